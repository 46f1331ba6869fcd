"""What a range method is, and what several of them share."""

import warnings
from collections.abc import Callable
from dataclasses import fields
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from qbench.calibration.histogram import Distribution
from qbench.numerics import Interval, QParamsKind

# A range method turns what is known of a tensor into the interval that its qparams are to
# represent.


@runtime_checkable
class RangeMethod(Protocol):
    """A frozen value whose fields are its settings; ``str()`` of it is its name in schemas.

    ``kind`` is for methods that weigh the rounding error. The range of a tensor and the ranges of
    rows agree: ``of_rows(rows, kind)[i] ==
    of_distribution(Distribution.of(rows[i]), kind)``.
    """

    def of_distribution(self, distribution: Distribution, kind: QParamsKind) -> Interval:
        """One interval (0-d) for a tensor; it holds zero when it was searched for.

        Raises:
            InputError: the distribution holds too little for this method.
        """
        ...

    def of_rows(self, rows: npt.NDArray[Any], kind: QParamsKind) -> Interval:
        """One interval for each row of ``rows``, (n, elements) real: the channels or blocks of
        a constant.
        """
        ...


# How a range method spells itself: its name and its settings, as ``get_range_method`` reads them.
#
# percentile(99.99)    entropy(2048)    fixed(-1.0, 6.0)


def spelled(name: str, method: object) -> str:
    """``name`` with the fields of the dataclass ``method`` in brackets, in their order; numbers
    as by ``repr``.
    """
    values = [repr(getattr(method, field.name)) for field in fields(method)]  # type: ignore[arg-type]
    return f"{name}({', '.join(values)})"


def demand(holds: bool, setting: str, value: object, expected: str) -> None:
    """Refuses a setting out of its range.

    Raises:
        ValueError: ``holds`` is false (also what a comparison with NaN gives).
    """
    if not holds:
        raise ValueError(f"{setting} = {value!r}, which is not {expected}")


def demand_whole(setting: str, value: object, least: int) -> None:
    """Refuses a number that is no integer of at least ``least``.

    Raises:
        ValueError: it is not.
    """
    whole = isinstance(value, int) and not isinstance(value, bool)
    demand(whole and value >= least, setting, value, f"a whole number of at least {least}")  # type: ignore[operator]


# From one threshold T ≥ 0 to an interval: [−T, T], without the side on which the tensor has
# nothing.
#
#     [0, T] where low ≥ 0        [−T, 0] where high ≤ 0        else [−T, T]
#
# With symmetric qparams it comes to the same scale T / qmax wherever the tensor has a positive
# side.


def around_zero(threshold: npt.ArrayLike, low: npt.ArrayLike, high: npt.ArrayLike) -> Interval:
    """The interval that ``threshold`` means for a tensor seen in [low, high]; numbers, or one
    per row.
    """
    ends = np.asarray(threshold, np.float64)
    below = np.asarray(low) < 0
    above = (np.asarray(high) > 0) | ~below
    return Interval(np.where(below, -ends, 0.0) + 0.0, np.where(above, ends, 0.0) + 0.0)


# The warning that a histogram is too coarse for the codes that it is to judge: there is no window
# to choose from.


class FewBinsWarning(UserWarning):
    """A range method has fewer bins than there are codes, so that it keeps the whole range."""


def warn_of_few_bins(method: object, bins: int, groups: int) -> None:
    """Says so, in one sentence."""
    warnings.warn(
        f"Choosing a range by '{method}': found {bins} bins; expected at least the {groups} groups "
        "that they are merged into. The whole range is kept; give more bins.",
        FewBinsWarning,
        stacklevel=3,
    )


# Rows one after the other, for methods whose search looks at one tensor at a time.
#
# of_rows(rows)[i] = of_distribution(Distribution.of(rows[i]))


def each_row(
    of_distribution: Callable[[Distribution, QParamsKind], Interval],
    rows: npt.NDArray[Any],
    kind: QParamsKind,
) -> Interval:
    """One interval per row of ``rows`` (n, elements), each from the distribution of that row
    alone.
    """
    found = [of_distribution(Distribution.of(row), kind) for row in rows]
    return Interval(
        np.array([i.low for i in found], np.float64), np.array([i.high for i in found], np.float64)
    )
