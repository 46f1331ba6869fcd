"""The nodes of a finding as inline SVG and as a heat map."""

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

from qbench.judging import CountingErrors, Errors, Finding, NodeErrors
from qbench.number_text import MINUS, decimals_text, rough_percent, signed, small_percent
from qbench.reporting.chart import Frame, number
from qbench.reporting.findings_view import decibels
from qbench.reporting.format import counted

# The names of the suspects above a chart of nodes, each at its own line, so that no name covers
# another.
#
# A label is in one of several lanes, lane 0 nearest to the chart, and a line leads from it straight
# down. A place is free where the label overlaps no other of its lane, its line crosses no label
# below, and no line from above crosses it.

LETTER = 6.3
"""Width of a letter in SVG units, estimated rather too wide."""
_GAP = 3.0
_LONGEST = 30
"""Letters of a name; a longer one is cut in its middle, since names of layers differ at both
ends.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """``text`` to the right (``start``) or left (``end``) of the line at ``x``, in ``lane``."""

    x: float
    lane: int
    text: str
    anchor: str

    @property
    def at(self) -> float:
        """The horizontal place of the text's anchor."""
        return self.x + (_GAP if self.anchor == "start" else -_GAP)

    @property
    def span(self) -> tuple[float, float]:
        """Its left and right end."""
        wide = LETTER * len(self.text)
        return (self.at, self.at + wide) if self.anchor == "start" else (self.at - wide, self.at)

    def allows(self, other: "Label") -> bool:
        """Whether neither covers the other or the line that leads to it."""
        if self.lane == other.lane:
            (left, right), (start, end) = self.span, other.span
            return right + _GAP < start or end + _GAP < left
        upper, lower = (self, other) if self.lane > other.lane else (other, self)
        return not lower.span[0] - 1 < upper.x < lower.span[1] + 1


def node_labels(
    places: Mapping[int, float], names: Sequence[str], *, left: float, right: float
) -> tuple[Label, ...]:
    """A label for each suspect that has a place: its rank and name, or its rank alone where
    there is no room.

    Labels on the left side of the chart are to the right of their lines and are placed from right
    to left, each in a lane above those that it overlaps; labels on the right side the other way
    round. Every split into left and right is tried. Where names leave no room for all labels,
    labels are ranks alone.

    Args:
        places: rank from 1 → x.
        names: of the suspects, in order of rank. left, right: the ends that no label crosses.
    """
    order = sorted(places, key=lambda rank: places[rank])
    texts = {rank: (f"{rank} {shortened(names[rank - 1])}", str(rank)) for rank in order}
    bare = {rank: (str(rank),) for rank in order}
    tries = (
        _laid([*reversed(order[:split])], order[split:], places, words, (left, right))
        for words in (texts, bare)
        for split in range(len(order), -1, -1)
    )
    return max(tries, key=_goodness)


def _goodness(labels: Sequence[Label]) -> tuple[int, int, int]:
    """More labels, then more of them with a name, then fewer lanes."""
    named = sum(" " in label.text for label in labels)
    return len(labels), named, -max((label.lane for label in labels), default=0)


def _laid(
    starts: Sequence[int],
    ends: Sequence[int],
    places: Mapping[int, float],
    texts: Mapping[int, tuple[str, ...]],
    within: tuple[float, float],
) -> tuple[Label, ...]:
    """The labels of ``starts``, then of ``ends``, each free of those before it, with its first
    text that fits.
    """
    found: list[Label] = []
    for rank, anchors in [
        *((one, ("start", "end")) for one in starts),
        *((one, ("end", "start")) for one in ends),
    ]:
        for text, anchor, lane in itertools.product(texts[rank], anchors, range(len(places))):
            label = Label(x=places[rank], lane=lane, text=text, anchor=anchor)
            fits = within[0] <= label.span[0] and label.span[1] <= within[1]
            if fits and all(label.allows(one) for one in found):
                found.append(label)
                break
    return tuple(found)


def shortened(name: str) -> str:
    """``name`` in at most 30 letters."""
    if len(name) <= _LONGEST:
        return name
    return f"{name[: _LONGEST // 2 - 1]}…{name[-_LONGEST // 2 :]}"


# The nodes of a finding in numbers, each with a shade: the heat map of the page.
#
# level = how many of the column's four limits a number is beyond: 0 good … 4 bad
#
# Limits are the same on every page, so that two findings can be compared by eye: 10 dB of SQNR is a
# third of a signal lost, ideal rounding leaves 0.289 steps, and 0.97 dB of gain is a fifth of the
# outputs' noise.


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One number of a node: its ``name``, its ``meaning`` in one sentence, and the limits of
    its levels.

    ``limits`` are the ends of levels 0 to 3, the best first; they fall where small numbers are bad.
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
    """A number as text, its level, and whether it is the worst of its column; ``key`` is the
    number to sort by.
    """

    text: str = ""
    level: int = 0
    is_worst: bool = False
    key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatRow:
    """A node: its ``place`` in the graph from 1, and its ``rank`` among the suspects from 1 (0:
    not a suspect).
    """

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
    chosen = [
        column
        for column in COLUMNS
        if any(column.value(node) is not None for node in finding.nodes)
    ]
    fields = [_fields(column, finding.nodes) for column in chosen]
    ranks = ranks_of(finding)
    rows = [
        HeatRow(
            place=place,
            node=node,
            rank=ranks.get(place, 0),
            fields=tuple(one[place - 1] for one in fields),
        )
        for place, node in enumerate(finding.nodes, start=1)
    ]
    return HeatMap(columns=tuple(chosen), rows=tuple(rows))


def ranks_of(finding: Finding) -> dict[int, int]:
    """Place in the graph → rank among the suspects, both from 1; a node that makes several
    values has it once.
    """
    places: dict[str, int] = {}
    for place, node in enumerate(finding.nodes, start=1):
        places.setdefault(node.node, place)
    ranks: dict[int, int] = {}
    for rank, suspect in enumerate(finding.suspects, start=1):
        if suspect.node in places:
            ranks.setdefault(places[suspect.node], rank)
    return ranks


def excess_db(node: NodeErrors) -> float | None:
    """What the node loses beyond quantization: explained − isolated SQNR, in dB."""
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
    return functools.partial(decimals_text, digits=digits)


_SQNR = (40.0, 30.0, 20.0, 10.0)
_CLIPPED = (0.001, 0.01, 0.05, 0.2)
_DIFFERING = (0.0001, 0.01, 0.05, 0.2)

COLUMNS: tuple[Column, ...] = (
    Column(
        name="In the run",
        meaning=(
            "SQNR against fp32 in the quantized run, with the errors of all nodes before it "
            "(cumulative)"
        ),
        limits=_SQNR,
        unit="dB",
        value=lambda node: _db(node.cumulative),
        text=_number(1),
    ),
    Column(
        name="Alone",
        meaning=("SQNR of the node on the quantized fp32 inputs: its own error (isolated)"),
        limits=_SQNR,
        unit="dB",
        value=lambda node: _db(node.isolated),
        text=_number(1),
    ),
    Column(
        name="Explained",
        meaning=(
            "SQNR of the fp32 operators with inputs, weights and result quantized as the node's"
        ),
        limits=_SQNR,
        unit="dB",
        value=lambda node: _db(node.explained),
        text=_number(1),
    ),
    Column(
        name="Excess",
        meaning=(
            "explained minus alone: what is lost beyond this rounding, by the graph or the engine"
        ),
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
        text=signed,
    ),
    Column(
        name="Steps",
        meaning=(
            "root mean square of its own error in quantization steps; ideal rounding leaves 0.289"
        ),
        limits=(0.35, 0.5, 1.0, 4.0),
        unit="rms",
        value=_steps,
        text=lambda value: f"{value:.3f}" if value < 10 else f"{value:.1f}",
    ),
    Column(
        name="Clipped low",
        meaning="share of the fp32 values below the quantized range",
        limits=_CLIPPED,
        unit="%",
        value=lambda node: _clipped(node, node.clipped_low),
        text=small_percent,
    ),
    Column(
        name="Clipped high",
        meaning="share of the fp32 values above the quantized range",
        limits=_CLIPPED,
        unit="%",
        value=lambda node: _clipped(node, node.clipped_high),
        text=small_percent,
    ),
    Column(
        name="Ties",
        meaning="share of values that lie halfway between two quantized values",
        limits=(0.02, 0.05, 0.2, 0.5),
        unit="%",
        value=lambda node: _clipped(node, node.ties),
        text=small_percent,
    ),
    Column(
        name="Differ",
        meaning="share of quantized values that differ from real arithmetic, without ties",
        limits=_DIFFERING,
        unit="%",
        value=lambda node: _differing(node.counting, ties=False),
        text=small_percent,
    ),
    Column(
        name="Not as claimed",
        meaning=(
            "share of quantized values that differ from the arithmetic that the engine declares"
        ),
        limits=_DIFFERING,
        unit="%",
        value=lambda node: _differing(node.claimed, ties=True),
        text=small_percent,
    ),
)
"""In the order of the page."""


# SQNR along the graph as inline SVG: in the run, alone, and explained; suspects are marked and
# named.
#
#     x = left + place · width / (nodes − 1)        y = top + (high − dB) · height / (high − low)
#
# Colours are classes of the page's style sheet; dashes and marks distinguish the lines without
# them. A value beyond an end of the scale is drawn at that end.

WIDTH, PLOT = 1000, 250
LEFT, RIGHT, BOTTOM, LANE = 46, 14, 40, 15
_LEAST, _MOST = -20.0, 80.0
"""dB: a value beyond says only that everything or nothing is right."""
_MARKS = 45
"""Marks along a line; between them the line alone is drawn."""


@dataclass(frozen=True, slots=True)
class _Line:
    """One number of every node: its class in the style sheet, its name, and the path of its
    mark at a place.
    """

    style: str
    name: str
    errors: Callable[[NodeErrors], Errors | None]
    mark: Callable[[float, float], str]


LINES = (
    _Line(
        "explained",
        "explained",
        lambda node: node.explained,
        lambda x, y: f"M{number(x)} {number(y - 4.5)}l4.5 4.5l-4.5 4.5l-4.5 -4.5z",
    ),
    _Line(
        "inrun",
        "in the run",
        lambda node: node.cumulative,
        lambda x, y: f"M{number(x - 3)} {number(y)}a3 3 0 1 0 6 0a3 3 0 1 0 -6 0z",
    ),
    _Line(
        "alone",
        "alone",
        lambda node: node.isolated,
        lambda x, y: f"M{number(x - 3)} {number(y - 3)}h6v6h-6z",
    ),
)
"""In the order in which they are drawn."""


def nodes_svg(finding: Finding) -> str:
    """The chart of the nodes of ``finding`` as one ``<svg>`` element, safe in HTML; empty
    without numbers.
    """
    values = [
        one.sqnr_db
        for node in finding.nodes
        for line in LINES
        if (one := line.errors(node)) is not None
    ]
    if not values:
        return ""
    low, high = min(max(min(values), _LEAST), _MOST - 20), max(min(max(values), _MOST), _LEAST + 20)
    low, high = 10 * (low // 10), -10 * (-high // 10)
    size: dict[str, Any] = {
        "left": LEFT,
        "width": WIDTH - LEFT - RIGHT,
        "height": PLOT,
        "alone": 0.5,
    }
    flat = Frame(low, max(high, low + 20), len(finding.nodes), **size)
    ranks = {rank: place - 1 for place, rank in ranks_of(finding).items()}
    labels = node_labels(
        {rank: flat.x(place) for rank, place in ranks.items()},
        [suspect.node for suspect in finding.suspects],
        left=LEFT - 4,
        right=WIDTH - 2,
    )
    top = LANE * (1 + max((label.lane for label in labels), default=-1)) + 18.0
    canvas = replace(flat, top=top)
    height = number(top + PLOT + BOTTOM)
    parts = [
        f'<svg class="nodes" viewBox="0 0 {WIDTH} {height}" role="img" data-left="{LEFT}" '
        f'data-right="{RIGHT}">',
        f"<title>{escape(f'SQNR of the nodes of {finding.model} in dB')}</title>",
        f"<desc>{escape(describe_nodes(finding))}</desc>",
        *_scale(canvas),
        *(_suspect_line(label, canvas) for label in labels),
    ]
    for line in LINES:
        parts.extend(_drawn(line, finding.nodes, canvas))
    parts.extend(_ring(finding.nodes[place], place, canvas) for place in ranks.values())
    return "".join([*parts, "</svg>"])


def describe_nodes(finding: Finding) -> str:
    """The chart in a few sentences, for those who cannot see it."""
    sentences = [f"{counted(len(finding.nodes), 'node')} in the order of the graph."]
    for line in LINES:
        known = [
            (one, node.node) for node in finding.nodes if (one := line.errors(node)) is not None
        ]
        if known:
            worst, name = min(known, key=lambda one: one[0].sqnr_db)
            best = max((one for one, _ in known), key=lambda one: one.sqnr_db)
            sentences.append(
                f"{line.name.capitalize()} from {decibels(worst)} dB (at {name}) to "
                f"{decibels(best)} dB."
                if worst != best
                else f"{line.name.capitalize()} {decibels(worst)} dB."
            )
    for rank, suspect in enumerate(finding.suspects, start=1):
        sentences.append(f"Suspect {rank}: {suspect.node}, {suspect.cause.value}.")
    return " ".join(sentences)


def _scale(canvas: Frame) -> Iterator[str]:
    """Lines of equal SQNR with their numbers, and the places of nodes below."""
    step = 10 if canvas.high - canvas.low <= 60 else 20
    bottom = canvas.top + PLOT
    for decibel in range(int(canvas.low), int(canvas.high) + 1, step):
        y = number(canvas.cut(decibel))
        label = str(decibel).replace("-", MINUS)
        yield f'<path class="level" d="M{LEFT} {y}H{WIDTH - RIGHT}"/>'
        yield f'<text x="{LEFT - 7}" y="{y}" dy=".35em" text-anchor="end">{label}</text>'
    yield f'<text x="{LEFT - 7}" y="{number(canvas.top - 10)}" text-anchor="end">dB</text>'
    every = next((one for one in (1, 2, 5, 10, 20, 50, 100) if canvas.count / one <= 20), 200)
    for place in (
        [1, *range(every, canvas.count + 1, every)] if every > 1 else range(1, canvas.count + 1)
    ):
        yield (
            f'<text x="{number(canvas.x(place - 1))}" y="{number(bottom + 17)}" '
            f'text-anchor="middle">{place}</text>'
        )
    words = "nodes in the order of the graph"
    yield f'<text x="{WIDTH - RIGHT}" y="{number(bottom + 35)}" text-anchor="end">{words}</text>'


def _drawn(line: _Line, nodes: Sequence[NodeErrors], canvas: Frame) -> Iterator[str]:
    """The line, broken where a node has no number, and its marks."""
    every = max(1, -(-len(nodes) // _MARKS))
    path, marks, is_joined = "", "", False
    for place, node in enumerate(nodes):
        errors = line.errors(node)
        if errors is not None:
            x, y = canvas.x(place), canvas.cut(errors.sqnr_db)
            path += f"{'L' if is_joined else 'M'}{number(x)} {number(y)}"
            marks += line.mark(x, y) if place % every == 0 else ""
        is_joined = errors is not None
    if path:
        yield (
            f'<path class="way {line.style}" d="{path}"/><path class="marks {line.style}" '
            f'd="{marks}"/>'
        )


def _suspect_line(label: Label, canvas: Frame) -> str:
    y, x = canvas.top - 8 - LANE * label.lane, number(label.x)
    return (
        f'<g class="suspect"><path d="M{x} {number(y - 9)}V{number(canvas.top + PLOT)}"/>'
        f'<text x="{number(label.at)}" y="{number(y)}" '
        f'text-anchor="{label.anchor}">{escape(label.text)}</text></g>'
    )


def _ring(node: NodeErrors, place: int, canvas: Frame) -> str:
    """A ring around the SQNR of a suspect."""
    errors = node.isolated or node.cumulative
    if errors is None:
        return ""
    return (
        f'<circle class="ring" cx="{number(canvas.x(place))}" '
        f'cy="{number(canvas.cut(errors.sqnr_db))}" r="8"/>'
    )
