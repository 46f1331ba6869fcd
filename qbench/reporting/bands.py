"""What stands behind the line of a chart: environments, confidence, margin, and the levels it is measured by.

Environments alternate in shade, the newest on the page's own ground; margin, fp32 and limit are drawn as they were in
each stretch of runs, and only today's have labels.
"""

from collections.abc import Iterable, Sequence
from html import escape
from itertools import pairwise

from qbench.reporting.frame import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Frame, number
from qbench.reporting.timeline import Mark, Series, Switch, Trend
from qbench.reporting.trends import OTHER_SAMPLES, class_difference
from qbench.reporting.view import MetricView
from qbench.reporting.words import MINUS, SYMBOLS, percent

LABEL_GAP = 10.5
LETTER = 4.9
"""Width of a letter of a label, in SVG units, on average."""
MAX_SWITCHES = 3
"""More changes of class than this are machines by turns: then only what takes the place of another is marked."""
_SWITCH_Y = HEIGHT - 16


def environment_bands(trend: Trend, frame: Frame) -> Iterable[str]:
    """A shade behind every second environment, a line at each change, and what is new in words."""
    switches = marked_switches(trend)
    if not switches:
        return
    places = [(frame.x(s.position - 1) + frame.x(s.position)) / 2 for s in switches]
    edges = [float(LEFT), *places, float(WIDTH - RIGHT)]
    for left, right in list(pairwise(edges))[-2::-2]:
        yield (
            f'<rect class="environment" x="{number(left)}" y="{TOP - 12}" width="{number(right - left)}"'
            f' height="{HEIGHT - TOP - BOTTOM + 12}"/>'
        )
    for switch, (x, label, anchor) in zip(switches, _switch_labels(switches, places), strict=True):
        shift = -3 if anchor == "end" else 3
        yield f'<path class="switch" d="M{x:.1f} {TOP - 12}V{_SWITCH_Y + 1}"/>'
        yield (
            f'<text class="label" x="{x + shift:.1f}" y="{_SWITCH_Y}" text-anchor="{anchor}">{escape(label)}'
            f"<title>{escape(switch.label)}</title></text>"
        )


def marked_switches(trend: Trend) -> tuple[Switch, ...]:
    """The changes that are marked: all where they are few, else those of class to one that takes another's place.

    A machine that takes turns with others returns; one whose firmware is new comes under a new name, and the old name
    never again.
    """
    if len(trend.switches) <= MAX_SWITCHES:
        return trend.switches
    spans = sorted((s.positions[0], s.positions[-1], s.environment_class) for s in trend.series if s.positions)
    found = [switch for switch in trend.switches if switch.label == OTHER_SAMPLES]
    gone: set[str] = set()
    for first, _, name in spans:
        ended = [(last, other) for _, last, other in spans if last < first and other not in gone]
        if ended:
            before = max(ended)[1]
            gone.add(before)
            found.append(Switch(position=first, label=class_difference(before, name)))
    return tuple(sorted(found, key=lambda switch: switch.position)[-MAX_SWITCHES:])


def _switch_labels(switches: Sequence[Switch], places: Sequence[float]) -> Iterable[tuple[float, str, str]]:
    """(place, label, anchor) of each switch, from left to right: on its roomier side, cut where that is too narrow.

    To the right there is room up to the next switch, to the left back to the label before or the switch itself.
    """
    free = float(LEFT)
    for switch, x, after in zip(switches, places, [*places[1:], float(WIDTH)], strict=True):
        right, left = after - x - 6, x - free - 6
        wanted = LETTER * len(switch.label)
        anchor = "start" if wanted <= right or right >= left else "end"
        fits = int((right if anchor == "start" else left) / LETTER)
        label = switch.label if len(switch.label) <= fits else switch.label[: max(fits - 1, 0)].rstrip(" ,") + "…"
        free = x + 3 + LETTER * len(label) if anchor == "start" else x
        yield x, label, anchor


def confidence_band(series: Series, frame: Frame) -> Iterable[str]:
    """The 95 % interval of each value of ``series`` as one area, where it is known."""
    if len(series.band) < 2:
        return
    places = [frame.x(position) for position in series.positions]
    upper = _bends(places, [frame.cut(high) for _, high in series.band])
    lower = _bends(places, [frame.cut(low) for low, _ in series.band])
    outline = "L".join(f"{number(x)} {number(y)}" for x, y in [*upper, *reversed(lower)])
    yield f'<path class="confidence" d="M{outline}Z"/>'


def levels(trend: Trend, frame: Frame) -> Iterable[str]:
    """The band of the margin; the lines of fp32, the limit and the accepted result; labels for today's."""
    metric = trend.metric
    shown = all(frame.low < mark.reference < frame.high for mark in trend.marks)
    spans = _spans(trend.marks, frame)
    for (left, end), mark in zip(spans, trend.marks, strict=True):
        if shown and mark.limit is not None:
            top, bottom = sorted((frame.y(mark.reference), frame.y(mark.limit)))
            yield (
                f'<rect class="margin" x="{number(left)}" y="{top:.1f}" width="{number(end - left)}"'
                f' height="{bottom - top:.1f}"/>'
            )
    lines: tuple[tuple[str, str, float | None, list[float | None]], ...] = (
        ("fp32", "fp32", metric.reference if shown else None, [m.reference if shown else None for m in trend.marks]),
        ("limit", "limit", metric.limit, [mark.limit for mark in trend.marks]),
        ("approved", SYMBOLS["accepted"], trend.accepted, [trend.accepted] * len(trend.marks)),
    )
    labels = []
    for name, word, newest, heights in lines:
        path = _stairs(spans, heights, frame)
        if path:
            yield f'<path class="{name}" d="{path}"/>'
        if newest is not None and frame.low < newest < frame.high:
            labels.append((frame.y(newest) + 3, f"{word} {_short(metric, newest)}"))
    for height, text in _apart(labels):
        yield f'<text class="label" x="{WIDTH - RIGHT + 5}" y="{height:.1f}">{text}</text>'


def _short(metric: MetricView, value: float) -> str:
    return percent(value).replace(" %", "") if metric.unit == "%" else f"{value:.5g}".replace("-", MINUS)


def _apart(labels: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """``labels`` (height, text), the highest first, moved so that none covers another."""
    placed: list[tuple[float, str]] = []
    for height, text in sorted(labels):
        placed.append((max(height, placed[-1][0] + LABEL_GAP) if placed else height, text))
    over = max(placed[-1][0] - (HEIGHT - BOTTOM + 6), 0.0) if placed else 0.0
    return [(height - over, text) for height, text in placed]


def _spans(marks: Sequence[Mark], frame: Frame) -> list[tuple[float, float]]:
    """From where to where each mark holds: half way to its neighbours, and over the whole width."""
    inner = [(frame.x(a.last) + frame.x(b.first)) / 2 for a, b in pairwise(marks)]
    edges = [float(LEFT), *inner, float(WIDTH - RIGHT)]
    return list(pairwise(edges)) if marks else []


def _stairs(spans: Sequence[tuple[float, float]], heights: Sequence[float | None], frame: Frame) -> str:
    """A path of one flat stretch a span, joined by upright ones; a gap where there is no level."""
    path, before = "", None
    for (left, right), level in zip(spans, heights, strict=True):
        if level is not None and level == before:  # only the other of the lines moves here
            path = path[: path.rindex("H")] + f"H{number(right)}"
        elif level is not None:
            start = f"M{number(left)} {frame.y(level):.1f}" if before is None else f"V{frame.y(level):.1f}"
            path += f"{start}H{number(right)}"
        before = level
    return path


def _bends(places: Sequence[float], heights: Sequence[float]) -> list[tuple[float, float]]:
    """The points of a line without those in the middle of a flat stretch."""
    points = list(zip(places, heights, strict=True))
    inner = zip(points, points[1:], points[2:], strict=False)
    return [points[0], *(here for a, here, b in inner if not a[1] == here[1] == b[1]), points[-1]]
