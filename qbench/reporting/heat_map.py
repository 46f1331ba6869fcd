"""The nodes of a finding in numbers, each with the shade of its column: what pages show as a heat map.

level = how many of the column's four limits a number is beyond: 0 good … 4 bad

Limits are the same on every page, so that two findings can be compared by eye: 10 dB of SQNR is a third of a signal
lost, 0.289 steps are what ideal rounding leaves, and 0.97 dB of gain is a fifth of the outputs' noise.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from qbench.judging import CountingErrors, Errors, Finding, NodeErrors, rough_percent
from qbench.reporting.found_words import share
from qbench.reporting.words import MINUS


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One number of a node: its ``name``, what it is in one sentence, and from where on it is how bad.

    ``limits`` are the ends of levels 0 to 3, the mildest first; they fall where small numbers are the bad ones.
    """

    name: str
    meaning: str
    limits: tuple[float, float, float, float]
    unit: str
    value: Callable[[NodeErrors], float | None]
    text: Callable[[float], str]

    def level(self, value: float) -> int:
        """How many limits ``value`` is beyond."""
        low_is_bad = self.limits[0] > self.limits[-1]
        return sum(value < limit if low_is_bad else value > limit for limit in self.limits)

    @property
    def scale(self) -> tuple[str, ...]:
        """The four limits in words, for the legend in the column's head."""
        sign = "<" if self.limits[0] > self.limits[-1] else ">"
        return tuple(f"{sign} {_limit(limit, self.unit)}" for limit in self.limits)


@dataclass(frozen=True, slots=True)
class Field:
    """A number as it is shown, how bad it is, and whether it is the worst of its column; ``key`` sorts it."""

    text: str = ""
    level: int = 0
    is_worst: bool = False
    key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatRow:
    """A node: its ``place`` in the graph from 1, and its ``rank`` among the suspects from 1; 0: it is none."""

    place: int
    node: NodeErrors
    rank: int
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap:
    """The columns in which any node has a number, and the nodes in the order of the graph."""

    columns: tuple[Column, ...]
    rows: tuple[HeatRow, ...]

    @property
    def operators(self) -> tuple[str, ...]:
        """The first operator of every node, each once, sorted."""
        return tuple(sorted({row.node.operators[0] for row in self.rows if row.node.operators}))


def heat_map(finding: Finding) -> HeatMap:
    """The heat map of ``finding``."""
    chosen = [column for column in COLUMNS if any(column.value(node) is not None for node in finding.nodes)]
    fields = [_fields(column, finding.nodes) for column in chosen]
    ranks = ranks_of(finding)
    rows = [
        HeatRow(place=place, node=node, rank=ranks.get(place, 0), fields=tuple(one[place - 1] for one in fields))
        for place, node in enumerate(finding.nodes, start=1)
    ]
    return HeatMap(columns=tuple(chosen), rows=tuple(rows))


def ranks_of(finding: Finding) -> dict[int, int]:
    """Place in the graph → rank among the suspects, both from 1; a node that makes several values has it once."""
    places: dict[str, int] = {}
    for place, node in enumerate(finding.nodes, start=1):
        places.setdefault(node.node, place)
    ranks: dict[int, int] = {}
    for rank, suspect in enumerate(finding.suspects, start=1):
        if suspect.node in places:
            ranks.setdefault(places[suspect.node], rank)
    return ranks


def excess_db(node: NodeErrors) -> float | None:
    """What the node loses beyond its grids: explained − isolated SQNR, in dB."""
    if node.isolated is None or node.explained is None:
        return None
    return node.explained.sqnr_db - node.isolated.sqnr_db


def _fields(column: Column, nodes: Sequence[NodeErrors]) -> list[Field]:
    values = [column.value(node) for node in nodes]
    known = [value for value in values if value is not None]
    worst = (min if column.limits[0] > column.limits[-1] else max)(known)
    found = []
    for value in values:
        if value is None:
            found.append(Field())
            continue
        text, level = column.text(value), column.level(value)
        key = f"{value:.3g}" if text.startswith("<") else ""
        found.append(Field(text, level, is_worst=level > 0 and value == worst, key=key))
    return found


def _limit(value: float, unit: str) -> str:
    return rough_percent(value) if unit == "%" else f"{value:g}"


def _db(errors: Errors | None) -> float | None:
    return None if errors is None else errors.sqnr_db


def _steps(node: NodeErrors) -> float | None:
    return None if node.isolated is None else node.isolated.steps


def _clipped(node: NodeErrors, end: float) -> float | None:
    return end if node.elements else None


def _differing(counted: CountingErrors | None, *, ties: bool) -> float | None:
    if counted is None or not counted.elements:
        return None
    return (counted.differing - (0 if ties else counted.ties)) / counted.elements


def _number(digits: int) -> Callable[[float], str]:
    def text(value: float) -> str:
        rounded = f"{value:.{digits}f}"
        return rounded.lstrip("-") if float(rounded) == 0 else rounded.replace("-", MINUS)

    return text


def _gain(value: float) -> str:
    text = f"{value:+.2f}"
    return "0.00" if float(text) == 0 else text.replace("-", MINUS)


_SQNR = (40.0, 30.0, 20.0, 10.0)
_CLIPPED = (0.001, 0.01, 0.05, 0.2)
_DIFFERING = (0.0001, 0.01, 0.05, 0.2)

COLUMNS: tuple[Column, ...] = (
    Column(
        name="In the run",
        meaning="SQNR against fp32 in the quantized run, everything in front included (cumulative)",
        limits=_SQNR,
        unit="dB",
        value=lambda node: _db(node.cumulative),
        text=_number(1),
    ),
    Column(
        name="Alone",
        meaning="SQNR of the node fed with fp32's numbers, rounded to its grids: its own error (isolated)",
        limits=_SQNR,
        unit="dB",
        value=lambda node: _db(node.isolated),
        text=_number(1),
    ),
    Column(
        name="Explained",
        meaning="SQNR that its grids alone leave: the fp32 operators with inputs, weights and result on these grids",
        limits=_SQNR,
        unit="dB",
        value=lambda node: _db(node.explained),
        text=_number(1),
    ),
    Column(
        name="Excess",
        meaning="explained less alone: what is lost beyond the grids, by the graph or the engine",
        limits=(0.5, 1.0, 3.0, 10.0),
        unit="dB",
        value=excess_db,
        text=_number(1),
    ),
    Column(
        name="Gain",
        meaning="what the outputs' SQNR gains when this node alone is kept in float",
        limits=(0.25, 0.97, 3.0, 10.0),
        unit="dB",
        value=lambda node: node.gain_db,
        text=_gain,
    ),
    Column(
        name="Steps",
        meaning="root mean square of its own error in steps of its grid; ideal rounding leaves 0.289",
        limits=(0.35, 0.5, 1.0, 4.0),
        unit="rms",
        value=_steps,
        text=lambda value: f"{value:.3f}" if value < 10 else f"{value:.1f}",
    ),
    Column(
        name="Clipped low",
        meaning="share of fp32's numbers below the grid",
        limits=_CLIPPED,
        unit="%",
        value=lambda node: _clipped(node, node.clipped_low),
        text=share,
    ),
    Column(
        name="Clipped high",
        meaning="share of fp32's numbers above the grid",
        limits=_CLIPPED,
        unit="%",
        value=lambda node: _clipped(node, node.clipped_high),
        text=share,
    ),
    Column(
        name="Ties",
        meaning="share of values that lie halfway between two levels",
        limits=(0.02, 0.05, 0.2, 0.5),
        unit="%",
        value=lambda node: _clipped(node, node.ties),
        text=share,
    ),
    Column(
        name="Differ",
        meaning="share of levels that are not real arithmetic's, ties left out",
        limits=_DIFFERING,
        unit="%",
        value=lambda node: _differing(node.counting, ties=False),
        text=share,
    ),
    Column(
        name="Not as claimed",
        meaning="share of levels that are not those of the arithmetic that the engine claims to count by",
        limits=_DIFFERING,
        unit="%",
        value=lambda node: _differing(node.claimed, ties=True),
        text=share,
    ),
)
"""In the order of the page."""
