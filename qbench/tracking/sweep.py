"""The cells of a sweep: what each of them measured, which of them are on a Pareto front, and the
file of results that lets a sweep go on.

A cell is on the front of loss against size where no other has a loss and a size that are at most
as large, one of them smaller; of loss against time likewise. Of cells that are equal in both it is
the one with the least of the other cost.
"""

import enum
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from qbench.errors import InputError
from qbench.judging import FP32
from qbench.storage import NOT_WRITTEN
from qbench.tracking.result_file import ResultFile

SWEEP_FORMAT = "qbench-sweep/1"
"""In every line of such a file."""


class SweepState(enum.StrEnum):
    """What became of a cell of a sweep."""

    MEASURED = "measured"
    UNSUPPORTED = "unsupported"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepMetric:
    """One metric of a cell: its value and that of fp32, in ``unit`` (``%``: a fraction)."""

    value: float
    fp32: float
    unit: str = "%"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepCell:
    """One cell of a sweep.

    Args:
        made: what the result is of, part → digest or words: model, data, calibration, schema,
            backend, computer, version … A result is taken again only where all of them are equal.
        reason: why there is no result.
        metric: the one that the loss is of, with its ``unit`` and its counts.
        loss: how much worse than fp32 (negative: better), a fraction where the unit is ``%``; of a
            distance to fp32, which has no loss, the distance, negative where more is better.
        interval: low and high of the loss; None: not known. ``confidence``: of it, a fraction.
        agreement: the share of samples that are answered as fp32 answers them; None: not counted.
        planned, executed: shares of the multiply-accumulates in integers, as planned and as the
            engine reports; None: not known, or a float model.
        weights_only: whether ``planned`` is the share by quantized weights, whose products are of
            floats.
        file_bytes: of the graphs as ONNX files; None: they do not fit into one.
        ms, ms_interval: milliseconds of a sample on the engine, the median of its runs with its
            interval of at least 95 %; the interval is None where there is one number.
        seconds: that the cell took; ``inference`` is that of answering alone.
        measured: when, in UTC.
        kept: whether the result was read from the file and not measured now.
    """

    backend: str
    schema: str
    state: SweepState = SweepState.MEASURED
    reason: str = ""
    made: Mapping[str, str] = field(default_factory=dict)
    environment: str = ""
    metric: str = ""
    unit: str = "%"
    is_distance: bool = False
    samples: int = 0
    loss: float | None = None
    interval: tuple[float, float] | None = None
    confidence: float = 0.95
    losses: int = 0
    gains: int = 0
    agreement: float | None = None
    metrics: Mapping[str, SweepMetric] = field(default_factory=dict)
    planned: float | None = None
    executed: float | None = None
    weights_only: bool = False
    file_bytes: int | None = None
    ms: float | None = None
    ms_interval: tuple[float, float] | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    measured: str = ""
    kept: bool = field(default=False, metadata={NOT_WRITTEN: True})

    @property
    def name(self) -> str:
        """``backend+schema``."""
        return f"{self.backend}+{self.schema}"

    @property
    def is_measured(self) -> bool:
        """Whether it has a result."""
        return self.state is SweepState.MEASURED

    @property
    def is_float(self) -> bool:
        """Whether it is the float model on its backend."""
        return self.schema == FP32

    @property
    def float_share(self) -> float | None:
        """The share of the multiply-accumulates in float, as executed where the engine reports it;
        None: not known.
        """
        if self.is_float or self.weights_only:
            return 1.0 if self.is_measured else None
        share = self.planned if self.executed is None else self.executed
        return None if share is None else 1.0 - share


# Fronts of Pareto.

Cost = Callable[[SweepCell], float | None]
SWEEP_COSTS: Mapping[str, Cost] = {
    "size": lambda cell: cell.file_bytes,
    "time": lambda cell: cell.ms,
    "float": lambda cell: cell.float_share,
}
"""What a loss is weighed against, by its name."""


def pareto_front(cells: Iterable[SweepCell], cost: str) -> tuple[SweepCell, ...]:
    """The measured ``cells`` that no other has both less loss and less ``cost`` than, the cheapest
    first.

    Args:
        cells: of one sweep.
        cost: a name of ``SWEEP_COSTS``.
    """
    others = [name for name in SWEEP_COSTS if name != cost]
    known = []
    for cell in cells:
        price = SWEEP_COSTS[cost](cell)
        if cell.is_measured and cell.loss is not None and price is not None:
            further = [SWEEP_COSTS[name](cell) for name in others]
            ties = tuple(math.inf if one is None else one for one in further)
            known.append(((price, cell.loss, *ties), cell))
    found: list[tuple[tuple[float, ...], SweepCell]] = []
    for place, cell in sorted(known, key=lambda one: one[0]):
        if not found or place[1] < found[-1][0][1] or place == found[-1][0]:
            found.append((place, cell))
    return tuple(cell for _, cell in found)


def fronts_of(cells: Sequence[SweepCell]) -> dict[str, tuple[str, ...]]:
    """Name of a cell → the costs whose front it is on; only those that are on one.

    The float model is what cells are compared with and none of the choices: it is on no front.
    """
    found: dict[str, tuple[str, ...]] = {}
    for cost in SWEEP_COSTS:
        for cell in pareto_front((cell for cell in cells if not cell.is_float), cost):
            found[cell.name] = (*found.get(cell.name, ()), cost)
    return found


# The file of results: a line for each finished cell, added and never changed.


def sweep_file(path: Path) -> ResultFile[SweepCell]:
    """The results of finished cells at ``path``, one JSON object in each line."""
    return ResultFile(
        path=path,
        format=SWEEP_FORMAT,
        kinds={"": SweepCell},
        maker="sweep",
        remedy="Name another file: --results FILE.",
    )


def kept_results(
    found: Sequence[SweepCell], wanted: Sequence[Mapping[str, str]], path: Path
) -> dict[int, SweepCell]:
    """Place in ``wanted`` → its result of ``found``, the newest where there are several.

    Args:
        found: the results in the file at ``path``.
        wanted: what each cell of this sweep is made of (``SweepCell.made``).

    Raises:
        InputError: there are results, but all are of another model, other data, another version …
    """
    newest = {_key(one.made): one for one in found if one.made}
    kept = {
        place: _named_by(replace(newest[_key(made)], kept=True), made)
        for place, made in enumerate(wanted)
        if _key(made) in newest
    }
    if found:
        _refuse_others(found, wanted, path)
    return kept


def _named_by(cell: SweepCell, made: Mapping[str, str]) -> SweepCell:
    """``cell`` called as this sweep calls it, whatever its line says: files are made by names."""
    backend, schema = made.get("backend", cell.backend), made.get("schema", cell.schema)
    return replace(cell, backend=backend, schema=schema)


_SHARED = {
    "model": "another model",
    "data": "other data",
    "calibration": "other calibration samples",
    "metrics": "other metrics",
    "qbench": "another version of qbench",
    "code": "another state of the code of qbench",
    "computer": "another computer",
}
"""Parts that all cells of a sweep have in common → what results are of where they differ."""


def _refuse_others(
    found: Sequence[SweepCell], wanted: Sequence[Mapping[str, str]], path: Path
) -> None:
    """Refuse a file in which no result has the same part, of those that a sweep has once."""
    for part, words in _SHARED.items():
        ours = {one[part] for one in wanted if part in one}
        theirs = {one.made.get(part, "") for one in found}
        if ours and not ours & theirs:
            raise InputError(
                f"Resuming the sweep in '{path}'",
                found=f"results of {words}",
                expected="results of this model, data and version",
                remedy="Name another file (--results FILE), or leave --resume out to measure anew.",
            )


def _key(made: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(made.items()))
