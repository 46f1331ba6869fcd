"""The schemas of a model on one backend in one chart, which can be read without colours."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from html import escape

from qbench.reporting.chart import Frame, frame_of, line_path, number, run_axis, ticks_of
from qbench.reporting.format import counted, value_text
from qbench.reporting.report import Report
from qbench.reporting.trends import RunPoint, Trend, stretches
from qbench.reporting.view import MetricView, RunView

# One line for each schema: the newest environment class of its first metric. A line has a colour,
# dashes and a mark of its own; marks of lines that coincide lie at different places.

MOST = 9
"""Lines of one chart; the first schemas, in the order of the matrix."""

_WIDTH, _HEIGHT = 560, 180
_LEFT, _TOP, _RIGHT, _BOTTOM = 40, 10, 14, 24
_MARKS = 5
"""Marks along a line."""

_SHAPES = (
    "M{x} {y}m-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0",
    "M{x} {y}m-3-3h6v6h-6z",
    "M{x} {y}m0-4l4 7h-8z",
    "M{x} {y}m0-4l4 4-4 4-4-4z",
    "M{x} {y}m-3-3l6 6m0-6l-6 6",
    "M{x} {y}m-4 0h8m-4-4v8",
    "M{x} {y}m0 4l4-7h-8z",
    "M{x} {y}m-4 0h8",
    "M{x} {y}m0-4v8",
)


@dataclass(frozen=True, slots=True)
class Line:
    """One schema, with its variant: its ``name`` and the points of its newest class."""

    name: str
    trend: Trend
    points: tuple[RunPoint, ...]


@dataclass(frozen=True, slots=True)
class Overlay:
    """The schemas of one model on ``backends``, which are equal to the digit."""

    backends: tuple[str, ...]
    metric: MetricView
    lines: tuple[Line, ...]


def overlays_of(report: Report, model: str) -> tuple[Overlay, ...]:
    """One for each backend with two schemas of ``model`` or more; equal ones together."""
    lines: dict[str, list[Line]] = {}
    for cell in report.cells:
        trends = report.trends.get(cell.key, ()) if cell.key.model == model else ()
        if trends and trends[0].points:
            line = Line(cell.key.column, trends[0], trends[0].by_class[0])
            lines.setdefault(cell.key.backend, []).append(line)
    groups: dict[Hashable, tuple[list[str], MetricView, tuple[Line, ...]]] = {}
    for backend, every in lines.items():
        metric = every[-1].trend.metric
        same = tuple(line for line in every if line.trend.metric.name == metric.name)[:MOST]
        if len(same) > 1:
            key = tuple((line.name, _values(line)) for line in same)
            groups.setdefault(key, ([], metric, same))[0].append(backend)
    return tuple(Overlay(tuple(names), metric, same) for names, metric, same in groups.values())


def _values(line: Line) -> Hashable:
    return tuple((point.position, point.metric.value, point.data) for point in line.points)


def overlay_svg(overlay: Overlay, runs: Sequence[RunView]) -> str:
    """The chart as one ``<svg>`` element, safe to place into HTML."""
    frame = _frame(overlay, runs)
    words = (
        f"{counted(len(overlay.lines), 'schema')} over {counted(len(runs), 'run')}: "
        + ", ".join(f"{one.name} {value_text(one.trend.metric)}" for one in overlay.lines)
    )
    ends = _WIDTH - _RIGHT
    grid = "".join(f"M{_LEFT} {number(y)}H{ends}" for _, y in ticks_of(overlay.metric, frame))
    texts = "".join(
        f'<tspan x="{_LEFT - 5}" y="{number(y + 3)}">{text}</tspan>'
        for text, y in ticks_of(overlay.metric, frame)
    )
    return (
        f'<svg class="overlaid" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">'
        f'<title>{escape(words)}</title><path class="rule" d="{grid}"/>'
        f'<text class="ticks">{texts}</text>'
        f"{''.join(_drawn(place, one, frame) for place, one in enumerate(overlay.lines))}"
        f"{run_axis(runs, frame, height=_HEIGHT)}</svg>"
    )


def overlay_key(place: int) -> str:
    """The piece of the line of the schema ``place`` in a legend."""
    mark = _SHAPES[place].format(x=13, y=6)
    return (
        f'<svg class="key" viewBox="0 0 26 12" aria-hidden="true"><path class="line s{place}" '
        f'd="M0 6H26"/><path class="dot s{place}" d="{mark}"/></svg>'
    )


def _frame(overlay: Overlay, runs: Sequence[RunView]) -> Frame:
    bare = [
        replace(line.trend, points=line.points, marks=(), accepted=None) for line in overlay.lines
    ]
    frames = [frame_of(trend, len(runs)) for trend in bare]
    return replace(
        frames[0],
        low=min(frame.low for frame in frames),
        high=max(frame.high for frame in frames),
        left=_LEFT,
        top=_TOP,
        width=_WIDTH - _LEFT - _RIGHT,
        height=_HEIGHT - _TOP - _BOTTOM,
    )


def _drawn(place: int, line: Line, frame: Frame) -> str:
    """The line, and its marks: the newest point, some before it, and each that no line joins."""
    alone = {same[0].position for same in stretches(line.points) if len(same) == 1}
    every = max(len(line.points) // _MARKS, 1)
    shift = place * every // MOST
    marked = [
        point
        for age, point in enumerate(reversed(line.points))
        if age == 0 or (age + shift) % every == 0 or point.position in alone
    ]
    shapes = "".join(
        _SHAPES[place].format(x=number(frame.x(one.position)), y=number(frame.y(one.metric.value)))
        for one in marked
    )
    return (
        f'<g><title>{escape(line.name)}</title><path class="line s{place}" '
        f'd="{line_path(line.points, frame)}"/><path class="dot s{place}" d="{shapes}"/></g>'
    )
