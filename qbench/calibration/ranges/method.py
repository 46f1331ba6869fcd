"""A range method turns what is known of a tensor into the interval that its grid is to represent."""

from typing import Any, Protocol, runtime_checkable

import numpy.typing as npt

from qbench.calibration.distribution import Distribution
from qbench.numerics import GridKind, Interval


@runtime_checkable
class RangeMethod(Protocol):
    """A frozen value whose fields are its settings; ``str()`` of it is the text that schemas name it by.

    The kind of grid is given for methods that weigh its rounding error. What is asked of one tensor and what is asked
    of the rows of another agree: ``of_rows(rows, kind)[i] == of_distribution(Distribution.of(rows[i]), kind)``.
    """

    def of_distribution(self, distribution: Distribution, kind: GridKind) -> Interval:
        """One interval (0-d) for a tensor; it holds zero when it was searched for.

        Raises:
            InputError: the distribution holds too little for this method.
        """
        ...

    def of_rows(self, rows: npt.NDArray[Any], kind: GridKind) -> Interval:
        """One interval for each row of ``rows``, (n, elements) real: the channels or blocks of a constant."""
        ...
