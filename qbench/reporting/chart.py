"""A trend as inline SVG."""

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import NamedTuple

from qbench.number_text import MINUS, percent, thousands
from qbench.reporting.format import SYMBOLS, change_text, counted, value_text
from qbench.reporting.trends import (
    Mark,
    RunPoint,
    Step,
    Switch,
    Trend,
    class_difference,
    stretches,
)
from qbench.reporting.view import CellView, MetricView, RunView

# The position of a value on the canvas of a chart.
#
#     x = left + position · width / (runs − 1)
#     y = top + (high − value) · height / (high − low)
#
# The span [low, high] contains every value, the limit and the accepted result. It contains the
# reference unless that is so far away that the values would become a flat line. The confidence band
# is cut off at its ends.

WIDTH, HEIGHT = 280, 109
LEFT, RIGHT, TOP, BOTTOM = 34, 58, 16, 29


@dataclass(frozen=True, slots=True)
class Frame:
    """Where a value lies on the canvas of a chart of ``count`` places (runs, nodes), counted
    from 0.

    The plot begins at ``left``, ``top``, in SVG units; a single place is at the share ``alone`` of
    its width.
    """

    low: float
    high: float
    count: int
    left: float = LEFT
    top: float = TOP
    width: float = WIDTH - LEFT - RIGHT
    height: float = HEIGHT - TOP - BOTTOM
    alone: float = 1.0
    places: tuple[int, ...] = ()
    """Of each run its place, where several have one; empty: runs are places."""

    def x(self, position: int) -> float:
        """The horizontal place of a run or node, in SVG units."""
        return self.at(self.place(position))

    def place(self, position: int) -> int:
        """The place of a run."""
        return self.places[position] if self.places else position

    def at(self, place: float) -> float:
        """Where the place ``place`` is, in SVG units."""
        return self.left + (
            self.alone * self.width if self.count < 2 else place * self.width / (self.count - 1)
        )

    def y(self, value: float) -> float:
        """The vertical place of a value, in SVG units."""
        return self.top + (self.high - value) * self.height / (self.high - self.low)

    def cut(self, value: float) -> float:
        """The vertical place of ``value``, or of the nearest that is shown."""
        return self.y(min(max(value, self.low), self.high))


def frame_of(trend: Trend, runs: int) -> Frame:
    """The span that shows the values of ``trend`` over ``runs`` runs."""
    metric = trend.metric
    values = [metric.value, *(one.value for one in trend.metrics)]
    values.extend(mark.limit for mark in trend.marks if mark.limit is not None)
    if trend.accepted is not None:
        values.append(trend.accepted)
    low, high = min(values), max(values)
    spread = max(high - low, 0.004 * abs(metric.reference_value), 1 / metric.out_of)
    references = [mark.reference for mark in trend.marks] or [metric.reference_value]
    if max(low - min(references), max(references) - high) <= 3 * spread:
        low, high = min(low, *references), max(high, *references)
    pad = max(0.08 * (high - low), 0.15 * spread)
    places = trend.places if len(trend.places) == runs else ()
    return Frame(low - pad, high + pad, places[-1] + 1 if places else runs, places=places)


def number(value: float) -> str:
    """``value`` in SVG units, to a tenth."""
    return f"{value:.1f}".removesuffix(".0")


# Below the chart of a trend: the days of its first, middle and last run, or the commits that they
# measured.

_DATED = re.compile(r"\d{4}-\d\d-\d\d ")
_LETTER = 5.8
"""Width of a digit, in SVG units."""


def run_axis(runs: Sequence[RunView], frame: Frame, height: float = HEIGHT) -> str:
    """Names of the first, the middle and the last of ``runs`` at their places: days, or times
    where all are of one day.

    A run without a time is named by its commit. What would touch its neighbour is left out.
    """
    if not runs:
        return ""
    if frame.places:
        firsts = dict(zip(reversed(frame.places), reversed(runs), strict=True))
        runs = [firsts[place] for place in sorted(firsts)]
    last = len(runs) - 1
    wanted = [(0, "start"), (last, "end"), (last // 2, "middle")] if last else [(0, "end")]
    taken: list[tuple[float, float]] = []
    shown = []
    same_day = last > 0 and len({run.started[:10] for run in runs}) == 1
    for place, anchor in wanted:
        text, x = _name(runs[place], same_day=same_day), frame.at(place)
        left = x - _LETTER * len(text) * {"start": 0.0, "middle": 0.5, "end": 1.0}[anchor]
        right = left + _LETTER * len(text)
        if all(right + 6 < start or left > end + 6 for start, end in taken):
            taken.append((left, right))
            shown.append(f'<tspan x="{x:.0f}" text-anchor="{anchor}">{text}</tspan>')
    return f'<text class="axis-label" y="{height - 2:g}">{"".join(shown)}</text>'


def _name(run: RunView, *, same_day: bool) -> str:
    text = run.commit[:7] or run.id[:8]
    if _DATED.match(run.started) and not run.release_of:
        text = run.started[11:16] if same_day else run.started[:10]
    return "".join(letter if letter.isalnum() or letter in "-:" else "." for letter in text)


# Behind the line of a chart: environments, confidence, margin, and the lines of fp32, limit and
# accepted result.
#
# Environments alternate in shade; the newest has the background of the page. Margin, fp32 and limit
# are drawn as they were in each stretch of runs; only the newest have labels.

LABEL_GAP = 10.5
LETTER = 4.9
"""Width of a letter of a label, in SVG units, on average."""
MAX_SWITCHES = 3
"""More changes of class than this mean machines that take turns: then only a class that
replaces another is marked.
"""
_SWITCH_Y = HEIGHT - 16


def environment_bands(trend: Trend, frame: Frame) -> Iterable[str]:
    """A shade behind every second environment, a line at each change, and a label of what is
    new.
    """
    switches = marked_switches(trend)
    if not switches:
        return
    places = [(frame.x(s.position - 1) + frame.x(s.position)) / 2 for s in switches]
    edges = [float(LEFT), *places, float(WIDTH - RIGHT)]
    for left, right in list(pairwise(edges))[-2::-2]:
        yield (
            f'<rect class="environment" x="{number(left)}" y="{TOP - 12}" '
            f'width="{number(right - left)}" height="{HEIGHT - TOP - BOTTOM + 12}"/>'
        )
    for switch, (x, label, anchor) in zip(switches, _switch_labels(switches, places), strict=True):
        shift = -3 if anchor == "end" else 3
        yield f'<path class="switch" d="M{x:.1f} {TOP - 12}V{_SWITCH_Y + 1}"/>'
        yield (
            f'<text class="label" x="{x + shift:.1f}" y="{_SWITCH_Y}" '
            f'text-anchor="{anchor}">{escape(label)}'
            f"<title>{escape(switch.label)}</title></text>"
        )


def marked_switches(trend: Trend) -> tuple[Switch, ...]:
    """The changes that are marked: all where they are few, else only those to a class that
    replaces another.

    A machine that takes turns with others comes back. A machine with new firmware has a new name,
    and its old name never comes back.
    """
    if len(trend.switches) <= MAX_SWITCHES:
        return trend.switches
    spans = sorted(
        (same[0].position, same[-1].position, same[0].environment_class) for same in trend.by_class
    )
    found = [switch for switch in trend.switches if switch.of_samples]
    gone: set[str] = set()
    for first, _, name in spans:
        ended = [(last, other) for _, last, other in spans if last < first and other not in gone]
        if ended:
            before = max(ended)[1]
            gone.add(before)
            found.append(Switch(position=first, label=class_difference(before, name)))
    return tuple(sorted(found, key=lambda switch: switch.position)[-MAX_SWITCHES:])


def _switch_labels(
    switches: Sequence[Switch], places: Sequence[float]
) -> Iterable[tuple[float, str, str]]:
    """(place, label, anchor) of each switch, from left to right: on the side with more room,
    cut where it is too long.

    The room to the right ends at the next switch, that to the left at the label or switch before.
    """
    free = float(LEFT)
    ends = [*places[1:], float(WIDTH - RIGHT + 6)]  # the labels of the levels are right of it
    for switch, x, after in zip(switches, places, ends, strict=True):
        right, left = after - x - 6, x - free - 6
        wanted = LETTER * len(switch.label)
        if wanted <= right or right >= left:
            label = _cut(switch.label, int(right / LETTER))
            free = x + 3 + LETTER * len(label)
            yield x, label, "start"
        else:
            free = x
            yield x, _cut(switch.label, int(left / LETTER)), "end"


def _cut(label: str, letters: int) -> str:
    """``label``, or as much of it as fits into ``letters``."""
    if len(label) <= letters:
        return label
    return label[: max(letters - 1, 0)].rstrip(" ,") + "…"


def confidence_band(points: Sequence[RunPoint], frame: Frame) -> Iterable[str]:
    """The 95 % intervals of ``points`` as areas, one for each stretch on the same samples."""
    outlines = []
    for same in stretches(points):
        if len(same) > 1:
            places = [frame.x(point.position) for point in same]
            upper = _bends(places, [frame.cut(point.interval[1]) for point in same])
            lower = _bends(places, [frame.cut(point.interval[0]) for point in same])
            ends = "L".join(f"{number(x)} {number(y)}" for x, y in [*upper, *reversed(lower)])
            outlines.append(f"M{ends}Z")
    if outlines:
        yield f'<path class="confidence" d="{"".join(outlines)}"/>'


def levels(trend: Trend, frame: Frame) -> Iterable[str]:
    """The band of the margin; the lines of fp32, the limit and the accepted result; labels for
    the newest.
    """
    metric = trend.metric
    shown = all(frame.low < mark.reference < frame.high for mark in trend.marks)
    spans = _spans(trend.marks, frame)
    for (left, end), mark in zip(spans, trend.marks, strict=True):
        if shown and mark.limit is not None:
            top, bottom = sorted((frame.y(mark.reference), frame.y(mark.limit)))
            yield (
                f'<rect class="margin" x="{number(left)}" y="{top:.1f}" '
                f'width="{number(end - left)}" height="{bottom - top:.1f}"/>'
            )
    lines: tuple[tuple[str, str, float | None, list[float | None]], ...] = (
        (
            "fp32",
            "fp32",
            metric.reference_value if shown else None,
            [m.reference if shown else None for m in trend.marks],
        ),
        ("limit", "limit", metric.limit, [mark.limit for mark in trend.marks]),
        ("approved", SYMBOLS["accepted"], trend.accepted, _accepted_heights(trend)),
    )
    labels: dict[str, tuple[float, str]] = {}
    data = [mark.data for mark in trend.marks]
    for name, word, newest, heights in lines:
        path = _stairs(spans, heights, data, frame)
        if path:
            yield f'<path class="{name}" d="{path}"/>'
        if newest is not None and frame.low < newest < frame.high:
            text = _short(metric, newest)
            words = f"{labels[text][1]} {word}" if text in labels else word
            labels[text] = frame.y(newest) + 3, words
    placed = _apart([(height, f"{words} {text}") for text, (height, words) in labels.items()])
    for height, text in placed:
        yield f'<text class="label" x="{WIDTH - RIGHT + 5}" y="{height:.1f}">{text}</text>'


def _accepted_heights(trend: Trend) -> list[float | None]:
    """What was accepted, in the stretches on the samples of the newest run alone: it is of no
    others.
    """
    newest = trend.points[-1].data if trend.points else ""
    return [trend.accepted if mark.data == newest else None for mark in trend.marks]


def _short(metric: MetricView, value: float) -> str:
    return (
        percent(value).replace(" %", "")
        if metric.unit == "%"
        else f"{value:.5g}".replace("-", MINUS)
    )


def _apart(labels: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """``labels`` (height, text), the highest first, moved so that none covers another."""
    placed: list[tuple[float, str]] = []
    lowest = -math.inf
    for height, text in sorted(labels):
        lowest = max(height, lowest + LABEL_GAP)
        placed.append((lowest, text))
    over = max(lowest - (HEIGHT - BOTTOM + 6), 0.0)
    return [(height - over, text) for height, text in placed]


def _spans(marks: Sequence[Mark], frame: Frame) -> list[tuple[float, float]]:
    """The stretch where each mark holds: half way to its neighbours, and over the whole width."""
    inner = [(frame.x(a.last) + frame.x(b.first)) / 2 for a, b in pairwise(marks)]
    edges = [float(LEFT), *inner, float(WIDTH - RIGHT)]
    return list(pairwise(edges)) if marks else []


def _stairs(
    spans: Sequence[tuple[float, float]],
    heights: Sequence[float | None],
    data: Sequence[str],
    frame: Frame,
) -> str:
    """A path of one flat stretch per span, joined by upright lines; a gap where there is no
    level, and none joins spans of other samples (their digests are ``data``).
    """
    path, before, samples = "", None, None
    for (left, right), level, one in zip(spans, heights, data, strict=True):
        before, samples = (before if one == samples else None), one
        if level is not None and level == before:  # only another line changes here
            path = path[: path.rindex("H")] + f"H{number(right)}"
        elif level is not None:
            start = (
                f"M{number(left)} {frame.y(level):.1f}"
                if before is None
                else f"V{frame.y(level):.1f}"
            )
            path += f"{start}H{number(right)}"
        before = level
    return path


def _bends(places: Sequence[float], heights: Sequence[float]) -> list[tuple[float, float]]:
    """The points of a line without those in the middle of a flat stretch."""
    points = list(zip(places, heights, strict=True))
    inner = zip(points, points[1:], points[2:], strict=False)
    return [points[0], *(here for a, here, b in inner if not a[1] == here[1] == b[1]), points[-1]]


# A trend as inline SVG: the values of each environment class, and its steps.
#
# Colours are classes of the page's style sheet; shapes and labels carry the same information
# without them.

_BOLD = 6.6
"""Width of a bold digit of a step's label, in SVG units."""


def trend_svg(trend: Trend, cell: CellView, runs: Sequence[RunView]) -> str:
    """The chart of ``trend`` as one ``<svg>`` element, safe to place into HTML."""
    frame = frame_of(trend, len(runs))
    parts = [
        f'<svg class="trend" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"{_hover_data(trend, frame)}>',
        f"<title>{escape(f'{cell.key}, {trend.metric.name}')}</title>",
        f"<desc>{escape(describe(trend, runs))}</desc>",
        *environment_bands(trend, frame),
        *levels(trend, frame),
        _scale(metric=trend.metric, frame=frame),
    ]
    labels = _labels(trend, frame)
    for place, points in _newest_last(trend):
        parts.extend(confidence_band(points, frame) if place == 0 and trend.has_intervals else ())
        parts.extend(_line(points, frame, place))
        parts.extend(_spreads(points, frame))
    parts.extend(_step_mark(step, trend, frame, labels.get(step)) for step in trend.steps)
    parts.append(_last_mark(trend, cell, frame))
    parts.append(run_axis(runs, frame))
    return "".join([*parts, "</svg>"])


def _scale(metric: MetricView, frame: Frame) -> str:
    """Numbers of the values left of the plot, as many as fit; the large chart shows all, and
    lines.
    """
    heights = ticks_of(metric, frame)
    lines = "".join(f"M{LEFT} {number(y)}h{WIDTH - RIGHT - LEFT}" for _, y in heights)
    every = math.ceil(len(heights) / _TICKS)
    ticks = "".join(
        f'<tspan x="{LEFT - 4}" y="{number(y + 3)}"{"" if place % every == 0 else _MORE}>'
        f"{text}</tspan>"
        for place, (text, y) in enumerate(heights)
    )
    return f'<path class="scale" d="{lines}"/><text class="ticks">{ticks}</text>'


_TICKS, _MORE = 4, ' class="more"'
"""How many numbers a small chart has room for; the others are shown in the large one alone."""


def ticks_of(metric: MetricView, frame: Frame) -> list[tuple[str, float]]:
    """(text, height) of each line of a scale: at most seven, at whole multiples of a step."""
    size = 10 ** math.floor(math.log10((frame.high - frame.low) / 3))
    step = next(
        (size * factor for factor in (1, 2, 5) if (frame.high - frame.low) / (size * factor) <= 6),
        size * 10,
    )
    first, last = math.ceil(frame.low / step), math.floor(frame.high / step)
    values = (one * step for one in range(first, last + 1))
    return [(_tick(metric, value, step), frame.y(value)) for value in values]


def _tick(metric: MetricView, value: float, step: float) -> str:
    """``value`` with as many decimals as a scale of that ``step`` needs."""
    if metric.unit != "%":
        return f"{value:.5g}".replace("-", MINUS)
    digits = max(0, -math.floor(math.log10(100 * step) + _TINY))
    return percent(value, digits).replace(" %", "")


_TINY = 1e-9


def _spreads(points: Sequence[RunPoint], frame: Frame) -> Iterable[str]:
    """From the least to the largest value of several runs of one commit."""
    found = [(frame.x(point.position), *point.spread) for point in points if point.spread]
    if found:
        path = "".join(
            f"M{number(x)} {number(frame.y(low))}V{number(frame.y(high))}" for x, low, high in found
        )
        yield f'<path class="spread" d="{path}"/>'


def sparkline_svg(trend: Trend, cell: CellView, runs: int) -> str:
    """The bare line of ``trend``, for a table; hidden from screen readers, because the row has
    its numbers.
    """
    frame = frame_of(trend, runs)
    scale = (
        f'viewBox="{LEFT - 4} {TOP - 6} {WIDTH - RIGHT - LEFT + 12} {HEIGHT - TOP - BOTTOM + 12}" '
        'preserveAspectRatio="none"'
    )
    lines = "".join("".join(_line(points, frame, place)) for place, points in _newest_last(trend))
    marks = "".join(
        f'<path class="step {_tone(trend, step)}" d="M{frame.x(step.position):.0f} '
        f'{TOP}V{HEIGHT - BOTTOM}"/>'
        for step in trend.steps
    )
    return (
        f'<svg class="spark{" red" if cell.is_red else ""}" {scale} '
        f'aria-hidden="true">{marks}{lines}</svg>'
    )


def describe(trend: Trend, runs: Sequence[RunView]) -> str:
    """The chart in one or two sentences, for those who cannot see it."""
    metric = trend.metric
    values = [point.metric.value for point in trend.points]
    text = counted(sum(len(point.each) for point in trend.points), "run")
    if any(point.several for point in trend.points):
        text += f" of {counted(len(values), 'commit')}"
    if values:
        text += f" between {value_text(metric, min(values))} and {value_text(metric, max(values))}"
    text += f", now {value_text(metric)}; fp32 {value_text(metric, metric.reference_value)}"
    if metric.limit is not None:
        text += f", limit {value_text(metric, metric.limit)}"
    if trend.accepted is not None:
        text += f", accepted {value_text(metric, trend.accepted)}"
    for step in trend.steps:
        run = runs[step.position]
        kind = "Possible step" if step.provisional else "Step"
        text += (
            f". {kind} of {change_text(metric, step.after - step.before)} at "
            f"{run.commit or run.started}"
        )
        if step.causes:
            text += f" ({', '.join(step.causes)})"
    if len(trend.by_class) > 1:
        text += f". Machines, the newest first: {', '.join(name for _, name in line_names(trend))}"
    for switch in marked_switches(trend):
        text += f". From {runs[switch.position].started} on {switch.label}"
    return text + "."


def line_names(trend: Trend) -> list[tuple[int, str]]:
    """(number of its stroke, environment class) of each line of ``trend``, that of the newest
    run first.
    """
    return [
        (min(place, 3), points[0].environment_class) for place, points in enumerate(trend.by_class)
    ]


def _hover_data(trend: Trend, frame: Frame) -> str:
    """The points for the page's script: ``first+more@height=words`` for each stretch of places
    with the same words.
    """
    stretches: list[tuple[int, int, float, str]] = []
    for point in trend.points:
        place = frame.place(point.position)
        value = point.metric.value
        words = _point_text(trend, point)
        first, last, _, before = stretches[-1] if stretches else (0, -2, 0.0, "")
        if place == last + 1 and words == before:
            stretches[-1] = first, place, value, words
        else:
            stretches.append((place, place, value, words))
    stretch_texts = (
        f"{first}+{last - first}@{number(frame.y(value))}={words}"
        for first, last, value, words in stretches
    )
    return f' data-values="{escape("|".join(stretch_texts))}"'


def _point_text(trend: Trend, point: RunPoint) -> str:
    """``72.80 %~95 %: 72.11 … 73.48 %~6 runs, 72.60 % … 72.90 %``: value, interval and spread,
    what is known.
    """
    metric = trend.metric
    parts = [value_text(metric, point.metric.value)]
    if trend.has_intervals:
        low, high = (value_text(metric, end) for end in point.interval)
        parts.append(f"95 %: {low.replace(' %', '')} … {high}")
    if point.several:
        parts.append(counted(len(point.several), "run"))
        parts[-1] += (
            f", {' … '.join(value_text(metric, end) for end in point.spread)}"
            if point.spread
            else ", equal"
        )
    return "~".join(parts)


def _newest_last(trend: Trend) -> list[tuple[int, tuple[RunPoint, ...]]]:
    """(number of its stroke, points of a class): the class of the newest run has 0 and is drawn
    last, on top.
    """
    return list(enumerate(trend.by_class))[::-1]


def line_path(points: Sequence[RunPoint], frame: Frame) -> str:
    """The line through ``points`` without the middles of flat stretches; a gap where the samples
    become others.
    """
    path = ""
    for same in stretches(points):
        xs = [frame.x(point.position) for point in same]
        bends = _bends(xs, [frame.y(point.metric.value) for point in same])
        if len(same) > 1:
            path += "M" + "L".join(f"{number(x)} {number(y)}" for x, y in bends)
    return path


def _line(points: Sequence[RunPoint], frame: Frame, place: int) -> Iterable[str]:
    if path := line_path(points, frame):
        yield f'<path class="line c{min(place, 3)}" d="{path}"/>'
    for same in stretches(points):
        if len(same) == 1:
            x, y = frame.x(same[0].position), frame.y(same[0].metric.value)
            yield f'<circle class="dot c{min(place, 3)}" cx="{x:.1f}" cy="{y:.1f}" r="2"/>'


def _tone(trend: Trend, step: Step) -> str:
    return "worse" if (step.after < step.before) != trend.metric.lower_is_better else "better"


class _Label(NamedTuple):
    """The words next to the mark of a step: on one side of it, or above it where that side is
    not free.
    """

    text: str
    anchor: str = "start"
    above: bool = False

    def span(self, x: float) -> tuple[float, float]:
        """Its left and right end, for a mark at ``x``."""
        wide, mark = _BOLD * len(self.text) + 2, 4 if self.above else -5
        if self.anchor == "end":
            return x + mark - wide, x + mark
        return x - mark, x - mark + wide


def _labels(trend: Trend, frame: Frame) -> dict[Step, _Label]:
    """The labels of the steps of ``trend``, the largest first; none that would cover another
    label or mark.
    """
    found: dict[Step, _Label] = {}
    places = {step: frame.x(step.position) for step in trend.steps}
    for step in sorted(
        trend.steps, key=lambda step: (-abs(step.after - step.before), step.position)
    ):
        x, size = places[step], change_text(trend.metric, step.after - step.before, unit=False)
        texts = (
            [f"{size} {step.causes[0]}", size] if step.causes and len(trend.steps) == 1 else [size]
        )
        sides = ("end", "start") if x > WIDTH / 2 else ("start", "end")
        for above, text, anchor in itertools.product((False, True), texts, sides):
            label = _Label(text, anchor, above)
            left, right = label.span(x)
            taken = [
                other.span(places[one]) for one, other in found.items() if other.above is above
            ]
            if not above:
                taken += [(at - 4, at + 4) for one, at in places.items() if one is not step]
            # the labels of the levels are right of the chart
            if (
                left >= 0
                and right <= WIDTH - RIGHT + 4
                and all(right < start or left > end for start, end in taken)
            ):
                found[step] = label
                break
    return found


def _step_mark(step: Step, trend: Trend, frame: Frame, label: _Label | None) -> str:
    """A line at the first run of the new level, a triangle (hollow while provisional) and the
    size of the step.
    """
    x, up = frame.x(step.position), step.after > step.before
    top = TOP - 4
    triangle = f"M{x - 4:.1f} {top}h8l-4 -7z" if up else f"M{x - 4:.1f} {top - 7}h8l-4 7z"
    hollow = " provisional" if step.provisional else ""
    words = ""
    if label:
        at, height = label.span(x)[label.anchor == "end"], top - 9 if label.above else top
        words = (
            f'<text x="{at:.1f}" y="{height}" '
            f'text-anchor="{label.anchor}">{escape(label.text)}</text>'
        )
    if step.causes:
        words += f"<title>{escape(chr(10).join(step.causes))}</title>"
    return (
        f'<g class="step {_tone(trend, step)}{hollow}"><path d="M{x:.1f} {top}V{HEIGHT - BOTTOM}"/>'
        f'<path class="mark" d="{triangle}"/>{words}</g>'
    )


def _last_mark(trend: Trend, cell: CellView, frame: Frame) -> str:
    """The newest value: a dot, or a cross when the cell is red."""
    if not trend.points:
        return ""
    newest = max((point.each[-1] for point in trend.points), key=lambda point: point.position)
    x, y = frame.x(newest.position), frame.y(newest.metric.value)
    if cell.is_red:
        return f'<path class="now red" d="M{x - 3.5:.1f} {y - 3.5:.1f}l7 7m0 -7l-7 7"/>'
    return f'<circle class="now" cx="{x:.1f}" cy="{y:.1f}" r="2.8"/>'


# Losses and gains of a cell over its runs as two areas: gains upwards, losses downwards, one scale
# for both.

FLIPS_HEIGHT = 30
MIDDLE = FLIPS_HEIGHT / 2


def flips_svg(trend: Trend, runs: int) -> str:
    """The areas of ``trend`` as one ``<svg>`` element; empty where no sample was ever lost or
    gained.
    """
    flips = {point.position: (point.metric.losses, point.metric.gains) for point in trend.points}
    most = max((max(pair) for pair in flips.values()), default=0)
    if most == 0:
        return ""
    places = trend.places if len(trend.places) == runs else ()
    frame = Frame(0.0, 1.0, places[-1] + 1 if places else runs, places=places)
    scale = (MIDDLE - 1) / most
    down = _flip_area({p: scale * losses for p, (losses, _) in flips.items()}, frame)
    up = _flip_area({p: -scale * gains for p, (_, gains) in flips.items()}, frame)
    newest = flips[max(flips)]
    words = f"Losses and gains over {counted(len(flips), 'run')}, at most {thousands(most)}"
    words += f"; now {newest[0]} and {newest[1]}"
    return (
        f'<svg class="flips" viewBox="0 0 {WIDTH} {FLIPS_HEIGHT}" '
        f'role="img"><title>{escape(words)}</title>'
        f'<path class="axis" d="M{LEFT} {MIDDLE:g}H{WIDTH - RIGHT}"/>'
        f'<path class="lost" d="{down}"/><path class="won" d="{up}"/>'
        f'<text class="label" x="{WIDTH - RIGHT + 5}" y="{MIDDLE - 3:g}">gains</text>'
        f'<text class="label" x="{WIDTH - RIGHT + 5}" y="{FLIPS_HEIGHT - 2}">losses</text></svg>'
    )


def _flip_area(heights: Mapping[int, float], frame: Frame) -> str:
    """The outline of the area between the middle and ``heights`` (run → height), with points
    only where it changes.
    """
    half = 0.5 * frame.width / max(frame.count - 1, 1)
    path, level, end = "", 0.0, 0.0
    for position, height in sorted(heights.items()):
        start = max(frame.x(position) - half, float(LEFT))
        if level and (height != level or start > end + 0.1):
            path += f"H{number(end)}V{MIDDLE:g}"
            level = 0.0
        if height != level:
            path += f"M{number(start)} {MIDDLE:g}V{number(MIDDLE + height)}"
            level = height
        end = min(frame.x(position) + half, float(WIDTH - RIGHT))
    return path + (f"H{number(end)}V{MIDDLE:g}" if level else "")
