"""A sweep as charts of loss against size and against time: laid out once, for SVG on the page and
for the PNG file (``sweep_picture``).

    x = left + (cost − least) · width / (most − least), in logarithms where costs differ tenfold
    y = top + (high − loss) · height / (high − low)

Each point is a cell: its shape and colour are its backend, filled where it is on the front, and its
number is that of its row. Points at one place share a label. The line joins the front.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape

from qbench.number_text import percent
from qbench.reporting.chart import number
from qbench.reporting.sweep_rows import (
    SweepRow,
    SweepTable,
    bytes_text,
    interval_text,
    loss_text,
    time_text,
)
from qbench.tracking import SWEEP_COSTS

WIDTH, HEIGHT = 520, 330
LEFT, RIGHT, TOP, BOTTOM = 58, 16, 14, 42
SHAPES = ("circle", "square", "triangle", "diamond")
"""Of the backends in their order; a further one begins again, in another colour."""
COLOURS = 4
"""Classes c0 … c3 of the style sheet."""
_RADIUS = 4.2
LETTER = 6.0
"""Width of a letter of a label, estimated rather too wide."""
_LINE = 11.0
_APART = 2.0
"""Room at either side of a label."""
NARROW = 1.5
"""Size of the letters on a narrow screen (``sweep.css``), as a multiple of the usual one."""
_LOGARITHMIC = 10.0
"""Costs that differ by this factor are drawn in logarithms."""
_TICKS = 4
_FAR = 2.0
"""The float model is drawn up to so many times the most of the quantized cells."""

AXES = {
    "size": "size of the file",
    "time": "milliseconds of a sample",
    "float": "multiply-accumulates in float, %",
}
"""Cost → the words below its axis."""
_COST_TEXT: dict[str, Callable[[float], str]] = {
    "size": lambda cost: bytes_text(round(cost)),
    "time": lambda cost: f"{time_text(cost)} ms",
    "float": lambda cost: f"{percent(cost)} in float",
}
_TICK_TEXT: dict[str, Callable[[float], str]] = {
    "size": _COST_TEXT["size"],
    "time": lambda cost: f"{cost:.6g}",
    "float": lambda cost: f"{100 * cost:.6g}",
}
"""The axes of time and of float say their units below."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One cell at ``x``, ``y``; ``low`` and ``high`` are the heights of the ends of its interval.

    ``shape`` and ``colour`` (0 …) are of its backend; ``text`` has all its numbers.
    """

    x: float
    y: float
    low: float
    high: float
    shape: str
    colour: int
    is_front: bool
    row: SweepRow
    text: str


@dataclass(frozen=True, slots=True)
class Label:
    """``text`` at ``x``, ``y``; ``anchor``: its start, middle or end is there; ``size``: of its
    letters, as a multiple of the usual one.
    """

    x: float
    y: float
    text: str
    anchor: str
    is_front: bool = False
    size: float = 1.0

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Left, top, right, bottom, with the room that keeps it apart from the next label."""
        wide = LETTER * self.size * len(self.text)
        left = self.x - {"start": 0.0, "middle": wide / 2, "end": wide}[self.anchor]
        top = self.y - (_LINE - 2) * self.size
        return left - _APART, top, left + wide + _APART, self.y + 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepChart:
    """One chart, laid out in SVG units.

    Args:
        cost: of ``AXES``.
        title, summary: for people who cannot see it.
        labels: the numbers of the points; ``narrow_labels``: in large letters, for a narrow screen.
        front: the corners of the line along the front.
        x_ticks, y_ticks: (place, text) of each. x_title, y_title: below and next to them.
        zero: the height of a loss of nothing; None: it is not on the chart.
    """

    cost: str
    title: str
    summary: str
    points: tuple[Point, ...]
    labels: tuple[Label, ...]
    narrow_labels: tuple[Label, ...]
    front: tuple[tuple[float, float], ...]
    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]
    x_title: str
    y_title: str
    zero: float | None = None


def backend_marks(table: SweepTable) -> dict[str, tuple[str, int]]:
    """Backend → the shape and the colour of its points, in the order of their names."""
    names = sorted({row.cell.backend for row in table.rows})
    return {
        name: (SHAPES[place % len(SHAPES)], place % COLOURS) for place, name in enumerate(names)
    }


def sweep_chart(table: SweepTable, cost: str) -> SweepChart | None:
    """The chart of loss against ``cost``; None: fewer than two cells have both."""
    rows, beyond = _drawn(table, cost)
    if len(rows) < 2 or (cost == "float" and len({_cost(row, cost) for row in rows}) < 2):
        return None
    x_of, x_ticks = _horizontal([_cost(row, cost) or 0.0 for row in rows], cost)
    losses = [row.cell.loss or 0.0 for row in rows]
    y_of, heights = _vertical(losses, [row.cell.interval for row in rows])
    marks = backend_marks(table)
    points = []
    for row in rows:
        loss = row.cell.loss or 0.0
        low, high = row.cell.interval or (loss, loss)
        shape, colour = marks[row.cell.backend]
        points.append(
            Point(
                x=x_of(_cost(row, cost) or 0.0),
                y=y_of(loss),
                low=y_of(low),
                high=y_of(high),
                shape=shape,
                colour=colour,
                is_front=cost in row.fronts,
                row=row,
                text=_point_text(row, cost),
            )
        )
    lead = rows[0].cell
    name = lead.metric if lead.is_distance else f"loss of {lead.metric}"
    front = sorted({(one.x, one.y) for one in points if one.is_front})
    named = ", ".join(row.cell.name for row in rows if cost in row.fronts)
    bottom, top = heights[0], heights[-1]
    return SweepChart(
        cost=cost,
        title=f"{name} against {AXES[cost]}, {len(rows)} cells",
        summary=f"On the front: {named}.",
        points=tuple(points),
        labels=_labels(points),
        narrow_labels=_labels(points, NARROW),
        front=tuple(_staircase(front)),
        x_ticks=x_ticks,
        x_title=f"{AXES[cost]}{beyond}",
        y_ticks=tuple((y_of(one), loss_text(lead, one, unit=False)) for one in heights),
        y_title=f"{name}{_unit(lead.unit, is_distance=lead.is_distance)}",
        zero=y_of(0.0) if not lead.is_distance and bottom <= 0.0 <= top else None,
    )


def _unit(unit: str, *, is_distance: bool) -> str:
    shown = "pp" if unit == "%" and not is_distance else unit
    return f" ({shown})" if shown else ""


def _cost(row: SweepRow, cost: str) -> float | None:
    return SWEEP_COSTS[cost](row.cell)


def _drawn(table: SweepTable, cost: str) -> tuple[list[SweepRow], str]:
    """The rows that a chart has room for, and words about the float model where it would leave no
    room to the others.
    """
    rows = [row for row in table.rows if _cost(row, cost) is not None and is_drawn(row)]
    quantized = [row for row in rows if not row.cell.is_float]
    most = _FAR * max((_cost(row, cost) or 0.0 for row in quantized), default=math.inf)
    far = [value for row in rows if (value := _cost(row, cost) or 0.0) > most]
    if not far:
        return rows, ""
    near = [row for row in rows if (_cost(row, cost) or 0.0) <= most]
    return near, f" (fp32: {_COST_TEXT[cost](min(far))}, not drawn)"


def is_drawn(row: SweepRow) -> bool:
    """Whether the row has a loss; the distance of the float model to itself is none."""
    return row.cell.loss is not None and not (row.cell.is_distance and row.cell.is_float)


def _point_text(row: SweepRow, cost: str) -> str:
    """``3 ort-cpu+w8a8_asym_pc: loss 0.44 pp (−0.9 … 1.8), 3.61 MB, 9.8 ms``."""
    cell = row.cell
    interval = f" ({interval_text(cell)})" if cell.interval else ""
    costs = ", ".join(
        _COST_TEXT[name](value) for name in SWEEP_COSTS if (value := _cost(row, name)) is not None
    )
    front = f"; on the front of {cost}" if cost in row.fronts else ""
    return f"{row.number} {cell.name}: {cell.metric} {loss_text(cell)}{interval}, {costs}{front}"


# Where values lie.


def _horizontal(
    costs: Sequence[float], cost: str
) -> tuple[Callable[[float], float], tuple[tuple[float, str], ...]]:
    """Cost → x, and the ticks: in logarithms where the most is ten times the least."""
    low, high = min(costs), max(costs)
    is_logarithmic = low > 0 and high / low >= _LOGARITHMIC
    scale: Callable[[float], float] = math.log10 if is_logarithmic else float
    ends = (scale(low), scale(high))
    pad = max(0.06 * (ends[1] - ends[0]), 0.02 * abs(ends[1]) if ends[0] == ends[1] else 0.0, 1e-9)
    first, last = ends[0] - pad, ends[1] + pad
    wide = WIDTH - LEFT - RIGHT

    def x_of(value: float) -> float:
        return LEFT + (scale(value) - first) * wide / (last - first)

    chosen = _decades(low, high) if is_logarithmic else _round_steps(low, high)
    ticks = tuple((x_of(one), _TICK_TEXT[cost](one)) for one in chosen)
    return x_of, tuple((x, text) for x, text in ticks if LEFT <= x <= WIDTH - RIGHT)


def _vertical(
    losses: Sequence[float], intervals: Iterable[tuple[float, float] | None]
) -> tuple[Callable[[float], float], tuple[float, ...]]:
    """Loss → y, and the ticks; ends of intervals far beyond the losses are cut off."""
    low, high = min(losses), max(losses)
    spread = max(high - low, 1e-6)
    ends = [end for one in intervals if one is not None for end in one]
    low = min([low, *(max(end, low - 0.5 * spread) for end in ends)])
    high = max([high, *(min(end, high + 0.5 * spread) for end in ends)])
    pad = max(0.06 * (high - low), 1e-4 * max(abs(low), abs(high)), 1e-9)
    low, high = low - pad, high + pad
    tall = HEIGHT - TOP - BOTTOM

    def y_of(value: float) -> float:
        return TOP + (high - min(max(value, low), high)) * tall / (high - low)

    return y_of, tuple(one for one in _round_steps(low, high) if low <= one <= high)


def _round_steps(low: float, high: float) -> tuple[float, ...]:
    """Round numbers from ``low`` to ``high``, about ``_TICKS`` of them."""
    rough = (high - low) / _TICKS or abs(high) or 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(size * power for size in (1, 2, 5, 10) if size * power >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return tuple(place * step for place in range(first, last + 1)) or (low,)


def _decades(low: float, high: float) -> tuple[float, ...]:
    """1, 3 and 10 of each power of ten near the span."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    sizes = (1, 3) if last - first <= _TICKS else (1,)
    return tuple(size * 10.0**power for power in range(first, last + 1) for size in sizes)


def _staircase(corners: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The line along the front: what a cost up to there can reach, from each corner to the next."""
    found: list[tuple[float, float]] = []
    for x, y in corners:
        if found:
            found.append((x, found[-1][1]))
        found.append((x, y))
    return found


# Labels: the numbers of the rows at each place, free of one another; those of the front first.

_NEAR = 5.0
_PLACES = (
    (6, -6, "start"),
    (-6, -6, "end"),
    (6, 13, "start"),
    (-6, 13, "end"),
    (0, -9, "middle"),
    (0, 17, "middle"),
    (8, 3.5, "start"),
    (-8, 3.5, "end"),
)
"""Where a label may be; corners first, since intervals are above and below a mark."""


def _labels(points: Sequence[Point], size: float = 1.0) -> tuple[Label, ...]:
    groups: list[list[Point]] = []
    for point in sorted(points, key=lambda one: (not one.is_front, one.row.number)):
        near = (
            group
            for group in groups
            if abs(group[0].x - point.x) < _NEAR and abs(group[0].y - point.y) < _NEAR
        )
        group = next(near, None)
        if group is None:
            groups.append([point])
        else:
            group.append(point)
    taken = [(one.x - 4, one.y - 4, one.x + 4, one.y + 4) for one in points]
    found: list[Label] = []
    for group in groups:
        label = _placed(group, taken, size)
        if label is not None:
            found.append(label)
            taken.append(label.box)
    return tuple(found)


def _placed(
    group: Sequence[Point], taken: Sequence[tuple[float, float, float, float]], size: float
) -> Label | None:
    """The label of the points at one place, where it covers nothing; None: there is no room."""
    numbers = sorted(one.row.number for one in group)
    shown = ", ".join(map(str, numbers[:4])) + (" …" if len(numbers) > 4 else "")
    first = group[0]
    for dx, dy, anchor in _PLACES:
        x, y = first.x + dx, first.y + dy * (size if dy > 0 else 1.0)
        label = Label(x, y, shown, anchor, any(one.is_front for one in group), size)
        left, top, right, bottom = label.box
        fits = left >= LEFT and right <= WIDTH and top >= 0 and bottom <= HEIGHT - BOTTOM
        own = [(one.x - 4, one.y - 4, one.x + 4, one.y + 4) for one in group]
        if fits and not any(_overlap(label.box, one) for one in taken if one not in own):
            return label
    return None


def _overlap(
    one: tuple[float, float, float, float], other: tuple[float, float, float, float]
) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


# As SVG.


def shape_path(shape: str, x: float, y: float, radius: float = _RADIUS) -> str:
    """The outline of a mark as a path."""
    corners = {
        "square": ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
        "triangle": ((0, -1.15), (1.1, 0.85), (-1.1, 0.85)),
        "diamond": ((0, -1.25), (1.25, 0), (0, 1.25), (-1.25, 0)),
    }
    if shape == "circle":
        wide = number(2 * radius)
        return (
            f"M{number(x - radius)} {number(y)}a{number(radius)} {number(radius)} 0 1 0 {wide} 0"
            f"a{number(radius)} {number(radius)} 0 1 0 -{wide} 0Z"
        )
    places = (f"{number(x + dx * radius)} {number(y + dy * radius)}" for dx, dy in corners[shape])
    return f"M{'L'.join(places)}Z"


def sweep_svg(chart: SweepChart) -> str:
    """``chart`` as SVG; every text is escaped."""
    right, low = WIDTH - RIGHT, HEIGHT - BOTTOM
    parts = [
        f'<svg class="sweep" role="img" viewBox="0 0 {WIDTH} {HEIGHT}">'
        f"<title>{escape(chart.title)}</title><desc>{escape(chart.summary)}</desc>"
    ]
    for y, text in chart.y_ticks:
        parts.append(
            f'<path class="rule" d="M{LEFT} {number(y)}H{right}"/>'
            f'<text x="{LEFT - 6}" y="{number(y + 3)}" text-anchor="end">{escape(text)}</text>'
        )
    for x, text in chart.x_ticks:
        parts.append(
            f'<path class="rule" d="M{number(x)} {TOP}V{low}"/>'
            f'<text x="{number(x)}" y="{low + 14}" text-anchor="middle">{escape(text)}</text>'
        )
    if chart.zero is not None:
        parts.append(f'<path class="zero" d="M{LEFT} {number(chart.zero)}H{right}"/>')
    if len(chart.front) > 1:
        line = "L".join(f"{number(x)} {number(y)}" for x, y in chart.front)
        parts.append(f'<path class="front" d="M{line}"/>')
    parts.extend(
        f'<path class="whisker c{point.colour}" '
        f'd="M{number(point.x)} {number(point.high)}V{number(point.low)}"/>'
        for point in chart.points
        if point.low != point.high
    )
    # those of the front last, so that no other covers them
    for point in sorted(chart.points, key=lambda one: one.is_front):
        state = "on" if point.is_front else "off"
        outline = shape_path(point.shape, point.x, point.y)
        parts.append(
            f"<g><title>{escape(point.text)}</title>"
            f'<path class="mark c{point.colour} {state}" d="{outline}"/></g>'
        )
    for kind, labels in (("wide", chart.labels), ("narrow", chart.narrow_labels)):
        parts.append(f'<g class="{kind}">{"".join(map(_label_svg, labels))}</g>')
    middle = (LEFT + right) / 2
    parts.append(
        f'<text class="axis-title" x="{number(middle)}" y="{HEIGHT - 8}" text-anchor="middle">'
        f"{escape(chart.x_title)}</text>"
        f'<text class="axis-title" transform="translate(12 {number((TOP + low) / 2)}) rotate(-90)" '
        f'text-anchor="middle">{escape(chart.y_title)}</text></svg>'
    )
    return "".join(parts)


def _label_svg(label: Label) -> str:
    kind = ' class="best"' if label.is_front else ""
    return (
        f'<text{kind} x="{number(label.x)}" y="{number(label.y)}" '
        f'text-anchor="{label.anchor}">{escape(label.text)}</text>'
    )
