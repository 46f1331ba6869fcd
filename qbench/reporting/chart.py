"""A trend as inline SVG: the values of each environment class, steps, changes of class, reference and margin.

    x = left + position · width / (runs − 1)        y = top + (high − value) · height / (high − low)

The span [low, high] holds every value and the limit, and the reference unless it is so far away that the values
would become a flat line. Colours are classes of the page's style sheet; shapes and labels say the same without them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from qbench.reporting.view import CellView, RunView, Series, Step, Trend
from qbench.reporting.words import change_text, percent, value_text

WIDTH, HEIGHT = 280, 96
LEFT, RIGHT, TOP, BOTTOM = 4, 46, 16, 16
LABEL_GAP = 10
LETTER = 4.9
"""Width of a letter of a label, in SVG units, on average."""
MAX_SWITCHES = 3
"""More changes of class than this are two machines by turns: then the lines are named, not the changes."""


@dataclass(frozen=True, slots=True)
class Frame:
    """Where a value of run ``position`` lies on the canvas."""

    low: float
    high: float
    runs: int

    def x(self, position: float) -> float:
        """The horizontal place of a run, in SVG units."""
        width = WIDTH - LEFT - RIGHT
        return LEFT + (width if self.runs < 2 else position * width / (self.runs - 1))

    def y(self, value: float) -> float:
        """The vertical place of a value, in SVG units."""
        return TOP + (self.high - value) * (HEIGHT - TOP - BOTTOM) / (self.high - self.low)


def frame_of(trend: Trend, runs: int) -> Frame:
    """The span that shows the values of ``trend`` over ``runs`` runs."""
    metric = trend.metric
    values = [value for series in trend.series for value in series.values] or [metric.value]
    values.extend(mark.limit for mark in trend.marks if mark.limit is not None)
    low, high = min(values), max(values)
    spread = max(high - low, 0.004 * abs(metric.reference), 1 / metric.out_of)
    references = [mark.reference for mark in trend.marks] or [metric.reference]
    if max(low - min(references), max(references) - high) <= 3 * spread:
        low, high = min(low, *references), max(high, *references)
    pad = max(0.08 * (high - low), 0.15 * spread)
    return Frame(low - pad, high + pad, runs)


def trend_svg(trend: Trend, cell: CellView, runs: Sequence[RunView]) -> str:
    """The chart of ``trend`` as one ``<svg>`` element, safe to place into HTML."""
    frame = frame_of(trend, len(runs))
    parts = [
        f'<svg class="trend" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"{_hover_data(trend, frame)}>',
        f"<title>{escape(f'{cell.key.name}, {trend.metric.name}')}</title>",
        f"<desc>{escape(describe(trend, runs))}</desc>",
        *_levels(trend, frame),
        *_switch_lines(trend, frame),
    ]
    for number, series in _newest_last(trend):
        parts.extend(_line(series, frame, number))
        parts.extend(_step_mark(step, trend, frame) for step in series.steps)
    parts.append(_last_mark(trend, cell, frame))
    return "".join([*parts, "</svg>"])


def sparkline_svg(trend: Trend, cell: CellView, runs: int) -> str:
    """The bare line of ``trend``, for a table; hidden from screen readers, because the row says its numbers."""
    frame = frame_of(trend, runs)
    scale = f'viewBox="0 {TOP - 6} {WIDTH - RIGHT + 8} {HEIGHT - TOP - BOTTOM + 12}" preserveAspectRatio="none"'
    lines = "".join("".join(_line(series, frame, number)) for number, series in _newest_last(trend))
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
    for step in trend.steps:
        run = runs[step.position]
        kind = "Possible step" if step.provisional else "Step"
        text += f". {kind} of {change_text(metric, step.after - step.before)} at {run.commit or run.started}"
        text += f" ({', '.join(step.causes)})" if step.causes else ""
    for switch in trend.switches[:MAX_SWITCHES]:
        text += f". From {runs[switch.position].started} on {switch.label}"
    return text + "."


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _hover_data(trend: Trend, frame: Frame) -> str:
    """What the page's script needs to read a value off: run numbers and shown values, and the span."""
    pairs = sorted((p, v) for s in trend.series for p, v in zip(s.positions, s.values, strict=True))
    where = " ".join(str(position) for position, _ in pairs)
    what = "|".join(value_text(trend.metric, value).replace(" %", "") for _, value in pairs)
    height = " ".join(_number(frame.y(value)) for _, value in pairs)
    unit = "%" if trend.metric.unit == "%" else ""
    return f' data-p="{where}" data-v="{escape(what)}" data-y="{height}" data-u="{unit}"'


def _levels(trend: Trend, frame: Frame) -> Iterable[str]:
    """The band of the margin, the line of the reference, the line of the limit, as they were; today's have labels."""
    metric, right = trend.metric, WIDTH - RIGHT
    shown = all(frame.low < mark.reference < frame.high for mark in trend.marks)
    spans = _spans(trend, frame)
    for (left, end), mark in zip(spans, trend.marks, strict=True):
        if shown and mark.limit is not None:
            top, bottom = sorted((frame.y(mark.reference), frame.y(mark.limit)))
            yield (
                f'<rect class="margin" x="{_number(left)}" y="{top:.1f}" width="{_number(end - left)}"'
                f' height="{bottom - top:.1f}"/>'
            )
    lines: tuple[tuple[str, float | None, list[float | None]], ...] = (
        ("fp32", metric.reference if shown else None, [mark.reference if shown else None for mark in trend.marks]),
        ("limit", metric.limit, [mark.limit for mark in trend.marks]),
    )
    placed: list[float] = []
    for name, newest, levels in lines:
        path = _stairs(spans, levels, frame)
        if path:
            yield f'<path class="{name}" d="{path}"/>'
        if newest is None or not frame.low < newest < frame.high:
            continue
        label = frame.y(newest) + 3
        if placed and abs(label - placed[0]) < LABEL_GAP:
            label = placed[0] + (LABEL_GAP if label >= placed[0] else -LABEL_GAP)
        placed.append(label)
        short = percent(newest, 1).replace(" %", "") if metric.unit == "%" else f"{newest:.3g}"
        yield f'<text class="label" x="{right + 5}" y="{label:.1f}">{name} {short}</text>'


def _spans(trend: Trend, frame: Frame) -> list[tuple[float, float]]:
    """From where to where each mark of ``trend`` holds: half way to its neighbours, and over the whole width."""
    inner = [(frame.x(a.last) + frame.x(b.first)) / 2 for a, b in pairwise(trend.marks)]
    edges = [float(LEFT), *inner, float(WIDTH - RIGHT)]
    return list(pairwise(edges)) if trend.marks else []


def _stairs(spans: Sequence[tuple[float, float]], levels: Sequence[float | None], frame: Frame) -> str:
    """A path of one flat stretch a span, joined by upright ones; a gap where there is no level."""
    path, before = "", None
    for (left, right), level in zip(spans, levels, strict=True):
        if level is not None and level == before:  # only the other of the two lines moves here
            path += f"H{_number(right)}"
        elif level is not None:
            start = f"M{_number(left)} {frame.y(level):.1f}" if before is None else f"V{frame.y(level):.1f}"
            path += f"{start}H{_number(right)}"
        before = level
    return path


def _switch_lines(trend: Trend, frame: Frame) -> Iterable[str]:
    if len(trend.switches) > MAX_SWITCHES:
        return
    for switch in trend.switches:
        x = (frame.x(switch.position - 1) + frame.x(switch.position)) / 2
        anchor = "end" if x > WIDTH / 2 else "start"
        fits = int((x if anchor == "end" else WIDTH - RIGHT - x) / LETTER)
        label = switch.label if len(switch.label) <= fits else switch.label[: max(fits - 1, 1)].rstrip(" ,") + "…"
        shift = -3 if anchor == "end" else 3
        yield f'<path class="switch" d="M{x:.1f} {TOP - 12}V{HEIGHT - 2}"/>'
        yield (
            f'<text class="label" x="{x + shift:.1f}" y="{HEIGHT - 3}" text-anchor="{anchor}">{escape(label)}'
            f"<title>{escape(switch.label)}</title></text>"
        )


def _newest_last(trend: Trend) -> list[tuple[int, Series]]:
    """The series with the numbers of their strokes: the class of the newest run is 0 and is drawn on top."""
    newest = sorted(trend.series, key=lambda series: series.positions[-1], reverse=True)
    return list(enumerate(newest))[::-1]


def _line(series: Series, frame: Frame, number: int) -> Iterable[str]:
    places = [(frame.x(p), frame.y(v)) for p, v in zip(series.positions, series.values, strict=True)]
    if len(places) > 1:
        flat = zip(places, places[1:], places[2:], strict=False)
        bends = [here for before, here, after in flat if not before[1] == here[1] == after[1]]
        places = [places[0], *bends, places[-1]]
        path = "M" + "L".join(f"{_number(x)} {_number(y)}" for x, y in places)
        yield f'<path class="line c{min(number, 3)}" d="{path}"/>'
    elif places:
        yield f'<circle class="dot c{min(number, 3)}" cx="{places[0][0]:.1f}" cy="{places[0][1]:.1f}" r="2"/>'


def _tone(trend: Trend, step: Step) -> str:
    return "worse" if (step.after < step.before) != trend.metric.lower_is_better else "better"


def _step_mark(step: Step, trend: Trend, frame: Frame) -> str:
    """A line at the first run of the new level, a triangle (hollow while provisional) and the size of the step."""
    x, up = frame.x(step.position), step.after > step.before
    top = TOP - 4
    triangle = f"M{x - 4:.1f} {top}h8l-4 -7z" if up else f"M{x - 4:.1f} {top - 7}h8l-4 7z"
    hollow = " provisional" if step.provisional else ""
    anchor, shift = ("end", -7) if x > WIDTH / 2 else ("start", 7)
    size = change_text(trend.metric, step.after - step.before, unit=False)
    room = (x if x > WIDTH / 2 else WIDTH - x) - 7
    if step.causes and len(trend.steps) == 1 and LETTER * (len(size) + len(step.causes[0]) + 1) <= room:
        size += f" {step.causes[0]}"
    return (
        f'<g class="step {_tone(trend, step)}{hollow}"><path d="M{x:.1f} {top}V{HEIGHT - BOTTOM}"/>'
        f'<path class="mark" d="{triangle}"/>'
        f'<text x="{x + shift:.1f}" y="{top}" text-anchor="{anchor}">{escape(size)}</text>'
        f"{f'<title>{escape(chr(10).join(step.causes))}</title>' if step.causes else ''}</g>"
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
