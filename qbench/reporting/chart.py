"""A trend as inline SVG: the values of each environment class, steps, and what they are measured by.

Colours are classes of the page's style sheet; shapes and labels say the same without them.
"""

import itertools
from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

from qbench.reporting.axis import run_axis
from qbench.reporting.bands import confidence_band, environment_bands, levels, marked_switches
from qbench.reporting.frame import BOTTOM, HEIGHT, RIGHT, TOP, WIDTH, Frame, frame_of, number
from qbench.reporting.timeline import Series, Step, Trend
from qbench.reporting.view import CellView, RunView
from qbench.reporting.words import change_text, value_text

_BOLD = 6.6
"""Width of a bold digit of a step's label, in SVG units."""


def trend_svg(trend: Trend, cell: CellView, runs: Sequence[RunView]) -> str:
    """The chart of ``trend`` as one ``<svg>`` element, safe to place into HTML."""
    frame = frame_of(trend, len(runs))
    parts = [
        f'<svg class="trend" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"{_hover_data(trend, frame)}>',
        f"<title>{escape(f'{cell.key.name}, {trend.metric.name}')}</title>",
        f"<desc>{escape(describe(trend, runs))}</desc>",
        *environment_bands(trend, frame),
        *levels(trend, frame),
    ]
    labels = _labels(trend, frame)
    for place, series in _newest_last(trend):
        parts.extend(confidence_band(series, frame) if place == 0 else ())
        parts.extend(_line(series, frame, place))
        parts.extend(_step_mark(step, trend, frame, labels.get(step)) for step in series.steps)
    parts.append(_last_mark(trend, cell, frame))
    parts.append(run_axis(runs, frame))
    return "".join([*parts, "</svg>"])


def sparkline_svg(trend: Trend, cell: CellView, runs: int) -> str:
    """The bare line of ``trend``, for a table; hidden from screen readers, because the row says its numbers."""
    frame = frame_of(trend, runs)
    scale = f'viewBox="0 {TOP - 6} {WIDTH - RIGHT + 8} {HEIGHT - TOP - BOTTOM + 12}" preserveAspectRatio="none"'
    lines = "".join("".join(_line(series, frame, place)) for place, series in _newest_last(trend))
    marks = "".join(
        f'<path class="step {_tone(trend, step)}" d="M{frame.x(step.position):.0f} {TOP}V{HEIGHT - BOTTOM}"/>'
        for step in trend.steps
    )
    return f'<svg class="spark{" red" if cell.is_red else ""}" {scale} aria-hidden="true">{marks}{lines}</svg>'


def describe(trend: Trend, runs: Sequence[RunView]) -> str:
    """The chart in one or two sentences, for those who cannot see it."""
    metric = trend.metric
    values = [value for series in trend.series for value in series.values]
    text = f"{len(values)} runs"
    if values:
        text += f" between {value_text(metric, min(values))} and {value_text(metric, max(values))}"
    text += f", now {value_text(metric)}; fp32 {value_text(metric, metric.reference)}"
    if metric.limit is not None:
        text += f", limit {value_text(metric, metric.limit)}"
    if trend.accepted is not None:
        text += f", accepted {value_text(metric, trend.accepted)}"
    for step in trend.steps:
        run = runs[step.position]
        kind = "Possible step" if step.provisional else "Step"
        text += f". {kind} of {change_text(metric, step.after - step.before)} at {run.commit or run.started}"
        text += f" ({', '.join(step.causes)})" if step.causes else ""
    if len(trend.series) > 1:
        text += f". Machines, the newest first: {', '.join(name for _, name in line_names(trend))}"
    for switch in marked_switches(trend):
        text += f". From {runs[switch.position].started} on {switch.label}"
    return text + "."


def line_names(trend: Trend) -> list[tuple[int, str]]:
    """(number of its stroke, environment class) of each line of ``trend``, that of the newest run first."""
    return [(min(place, 3), series.environment_class) for place, series in reversed(_newest_last(trend))]


def _hover_data(trend: Trend, frame: Frame) -> str:
    """What the page's script reads values off: ``first+more@height=value`` of each stretch of runs with one value."""
    stretches: list[tuple[int, int, float]] = []
    for position, value in sorted((p, v) for s in trend.series for p, v in zip(s.positions, s.values, strict=True)):
        first, last, before = stretches[-1] if stretches else (0, -2, 0.0)
        if position == last + 1 and value == before:
            stretches[-1] = first, position, value
        else:
            stretches.append((position, position, value))
    told = (
        f"{first}+{last - first}@{number(frame.y(value))}={value_text(trend.metric, value)}"
        for first, last, value in stretches
    )
    return f' data-values="{escape("|".join(told))}"'


def _newest_last(trend: Trend) -> list[tuple[int, Series]]:
    """The series with the numbers of their strokes: the class of the newest run is 0 and is drawn on top."""
    newest = sorted(trend.series, key=lambda series: series.positions[-1], reverse=True)
    return list(enumerate(newest))[::-1]


def _line(series: Series, frame: Frame, place: int) -> Iterable[str]:
    places = [(frame.x(p), frame.y(v)) for p, v in zip(series.positions, series.values, strict=True)]
    if len(places) > 1:
        flat = zip(places, places[1:], places[2:], strict=False)
        bends = [here for before, here, after in flat if not before[1] == here[1] == after[1]]
        places = [places[0], *bends, places[-1]]
        path = "M" + "L".join(f"{number(x)} {number(y)}" for x, y in places)
        yield f'<path class="line c{min(place, 3)}" d="{path}"/>'
    elif places:
        yield f'<circle class="dot c{min(place, 3)}" cx="{places[0][0]:.1f}" cy="{places[0][1]:.1f}" r="2"/>'


def _tone(trend: Trend, step: Step) -> str:
    return "worse" if (step.after < step.before) != trend.metric.lower_is_better else "better"


class _Label(NamedTuple):
    """The words beside the mark of a step: on one side of it, or above it where that side is not free."""

    text: str
    anchor: str = "start"
    above: bool = False

    def span(self, x: float) -> tuple[float, float]:
        """From where to where it reaches, of a mark at ``x``."""
        wide, mark = _BOLD * len(self.text) + 2, 4 if self.above else -5
        return (x + mark - wide, x + mark) if self.anchor == "end" else (x - mark, x - mark + wide)


def _labels(trend: Trend, frame: Frame) -> dict[Step, _Label]:
    """The sizes of the steps of ``trend``, the largest first; none where it would cover another one or its mark."""
    found: dict[Step, _Label] = {}
    places = {step: frame.x(step.position) for step in trend.steps}
    for step in sorted(trend.steps, key=lambda step: (-abs(step.after - step.before), step.position)):
        x, size = places[step], change_text(trend.metric, step.after - step.before, unit=False)
        texts = [f"{size} {step.causes[0]}", size] if step.causes and len(trend.steps) == 1 else [size]
        sides = ("end", "start") if x > WIDTH / 2 else ("start", "end")
        for above, text, anchor in itertools.product((False, True), texts, sides):
            label = _Label(text, anchor, above)
            left, right = label.span(x)
            taken = [other.span(places[one]) for one, other in found.items() if other.above is above]
            taken += [] if above else [(at - 4, at + 4) for one, at in places.items() if one is not step]
            # right of the chart stand the labels of its levels
            if left >= 0 and right <= WIDTH - RIGHT + 4 and all(right < start or left > end for start, end in taken):
                found[step] = label
                break
    return found


def _step_mark(step: Step, trend: Trend, frame: Frame, label: _Label | None) -> str:
    """A line at the first run of the new level, a triangle (hollow while provisional) and the size of the step."""
    x, up = frame.x(step.position), step.after > step.before
    top = TOP - 4
    triangle = f"M{x - 4:.1f} {top}h8l-4 -7z" if up else f"M{x - 4:.1f} {top - 7}h8l-4 7z"
    hollow = " provisional" if step.provisional else ""
    words = ""
    if label:
        at, height = label.span(x)[label.anchor == "end"], top - 9 if label.above else top
        words = f'<text x="{at:.1f}" y="{height}" text-anchor="{label.anchor}">{escape(label.text)}</text>'
    return (
        f'<g class="step {_tone(trend, step)}{hollow}"><path d="M{x:.1f} {top}V{HEIGHT - BOTTOM}"/>'
        f'<path class="mark" d="{triangle}"/>'
        f"{words}{f'<title>{escape(chr(10).join(step.causes))}</title>' if step.causes else ''}</g>"
    )


def _last_mark(trend: Trend, cell: CellView, frame: Frame) -> str:
    """The newest value: a dot, or a cross when the cell is red."""
    ends = [(series.positions[-1], series.values[-1]) for series in trend.series if series.positions]
    if not ends:
        return ""
    position, value = max(ends)
    x, y = frame.x(position), frame.y(value)
    if cell.is_red:
        return f'<path class="now red" d="M{x - 3.5:.1f} {y - 3.5:.1f}l7 7m0 -7l-7 7"/>'
    return f'<circle class="now" cx="{x:.1f}" cy="{y:.1f}" r="2.8"/>'
