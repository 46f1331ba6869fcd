"""SQNR along the graph as inline SVG: in the run, alone, and what the grids explain; suspects marked and named.

    x = left + place · width / (nodes − 1)        y = top + (high − dB) · height / (high − low)

Colours are classes of the page's style sheet; dashes and marks tell the lines apart without them. What lies beyond
±the ends of the scale is drawn at the end.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from qbench.judging import Errors, Finding, NodeErrors
from qbench.reporting.found_words import decibels
from qbench.reporting.frame import number
from qbench.reporting.heat_map import ranks_of
from qbench.reporting.node_labels import Label, node_labels
from qbench.reporting.words import MINUS, counted

WIDTH, PLOT = 1000, 250
LEFT, RIGHT, BOTTOM, LANE = 46, 14, 40, 15
_LEAST, _MOST = -20.0, 80.0
"""dB: beyond, a line says nothing but that all or nothing is right."""
_MARKS = 45
"""Marks along a line; between them the line alone is drawn."""


@dataclass(frozen=True, slots=True)
class _Line:
    """One number of every node: its class in the style sheet, its name, and what draws its mark at a place."""

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


@dataclass(frozen=True, slots=True)
class _Canvas:
    """Where a node and a number of dB lie; ``top`` is the upper end of the plot, below the lanes of the labels."""

    nodes: int
    low: float
    high: float
    top: float

    def x(self, place: int) -> float:
        width = WIDTH - LEFT - RIGHT
        return LEFT + (width / 2 if self.nodes < 2 else place * width / (self.nodes - 1))

    def y(self, decibel: float) -> float:
        return self.top + (self.high - min(max(decibel, self.low), self.high)) * PLOT / (self.high - self.low)


def nodes_svg(finding: Finding) -> str:
    """The chart of the nodes of ``finding`` as one ``<svg>`` element, safe in HTML; empty without numbers."""
    values = [one.sqnr_db for node in finding.nodes for line in LINES if (one := line.errors(node)) is not None]
    if not values:
        return ""
    low, high = min(max(min(values), _LEAST), _MOST - 20), max(min(max(values), _MOST), _LEAST + 20)
    low, high = 10 * (low // 10), -10 * (-high // 10)
    flat = _Canvas(len(finding.nodes), low, max(high, low + 20), 0.0)
    ranks = {rank: place - 1 for place, rank in ranks_of(finding).items()}
    labels = node_labels(
        {rank: flat.x(place) for rank, place in ranks.items()},
        [suspect.node for suspect in finding.suspects],
        left=LEFT - 4,
        right=WIDTH - 2,
    )
    top = LANE * (1 + max((label.lane for label in labels), default=-1)) + 18.0
    canvas = _Canvas(flat.nodes, flat.low, flat.high, top)
    height = number(top + PLOT + BOTTOM)
    parts = [
        f'<svg class="nodes" viewBox="0 0 {WIDTH} {height}" role="img" data-left="{LEFT}" data-right="{RIGHT}">',
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
    told = [f"{counted(len(finding.nodes), 'node')} in the order of the graph."]
    for line in LINES:
        known = [(one, node.node) for node in finding.nodes if (one := line.errors(node)) is not None]
        if known:
            worst, name = min(known, key=lambda one: one[0].sqnr_db)
            best = max((one for one, _ in known), key=lambda one: one.sqnr_db)
            told.append(
                f"{line.name.capitalize()} from {decibels(worst)} dB (at {name}) to {decibels(best)} dB."
                if worst != best
                else f"{line.name.capitalize()} {decibels(worst)} dB."
            )
    for rank, suspect in enumerate(finding.suspects, start=1):
        told.append(f"Suspect {rank}: {suspect.node}, {suspect.cause.value}.")
    return " ".join(told)


def _scale(canvas: _Canvas) -> Iterator[str]:
    """Lines of equal SQNR with their numbers, and the places of nodes below."""
    step = 10 if canvas.high - canvas.low <= 60 else 20
    bottom = canvas.top + PLOT
    for decibel in range(int(canvas.low), int(canvas.high) + 1, step):
        y = number(canvas.y(decibel))
        label = str(decibel).replace("-", MINUS)
        yield f'<path class="level" d="M{LEFT} {y}H{WIDTH - RIGHT}"/>'
        yield f'<text x="{LEFT - 7}" y="{y}" dy=".35em" text-anchor="end">{label}</text>'
    yield f'<text x="{LEFT - 7}" y="{number(canvas.top - 10)}" text-anchor="end">dB</text>'
    every = next((one for one in (1, 2, 5, 10, 20, 50, 100) if canvas.nodes / one <= 20), 200)
    for place in [1, *range(every, canvas.nodes + 1, every)] if every > 1 else range(1, canvas.nodes + 1):
        yield f'<text x="{number(canvas.x(place - 1))}" y="{number(bottom + 17)}" text-anchor="middle">{place}</text>'
    words = "nodes in the order of the graph"
    yield f'<text x="{WIDTH - RIGHT}" y="{number(bottom + 35)}" text-anchor="end">{words}</text>'


def _drawn(line: _Line, nodes: Sequence[NodeErrors], canvas: _Canvas) -> Iterator[str]:
    """The line, broken where a node has no number, and its marks."""
    every = max(1, -(-len(nodes) // _MARKS))
    path, marks, is_joined = "", "", False
    for place, node in enumerate(nodes):
        errors = line.errors(node)
        if errors is not None:
            x, y = canvas.x(place), canvas.y(errors.sqnr_db)
            path += f"{'L' if is_joined else 'M'}{number(x)} {number(y)}"
            marks += line.mark(x, y) if place % every == 0 else ""
        is_joined = errors is not None
    if path:
        yield f'<path class="way {line.style}" d="{path}"/><path class="marks {line.style}" d="{marks}"/>'


def _suspect_line(label: Label, canvas: _Canvas) -> str:
    y, x = canvas.top - 8 - LANE * label.lane, number(label.x)
    return (
        f'<g class="suspect"><path d="M{x} {number(y - 9)}V{number(canvas.top + PLOT)}"/>'
        f'<text x="{number(label.at)}" y="{number(y)}" text-anchor="{label.anchor}">{escape(label.text)}</text></g>'
    )


def _ring(node: NodeErrors, place: int, canvas: _Canvas) -> str:
    """A ring around the number that the suspect is suspected for."""
    errors = node.isolated or node.cumulative
    if errors is None:
        return ""
    return f'<circle class="ring" cx="{number(canvas.x(place))}" cy="{number(canvas.y(errors.sqnr_db))}" r="8"/>'
