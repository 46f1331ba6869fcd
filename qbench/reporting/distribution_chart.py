"""The distribution of a value as inline SVG: its numbers in its range, its codes, its channels."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape

from qbench.judging import ValueDistribution
from qbench.number_text import MINUS, small_percent, thousands
from qbench.reporting.chart import number

# Heights are logarithms, log(1 + n): activations hold many zeros, and the few numbers beyond an end
# have to be seen next to them.
#
#     numbers    96 bins of equal width; the band is the chosen range; what is clipped is red
#     codes      one bar for a code, from the lowest; a red mark below a code that never occurs
#     channels   band: range; line: numbers, red beyond the range; below the share of codes in use

WIDTH, HEIGHT, BASE = 470.0, 150.0, 128.0
_TOP = 16.0
_STRIP = 5.0
"""Height of the marks below unused codes."""
_SPLIT = 96.0
"""Where the ranges of channels end and the use of their codes begins."""


def facts_of(one: ValueDistribution) -> Iterator[tuple[str, str]]:
    """(term, words): what the picture shows, in numbers."""
    yield "numbers", f"{thousands(one.count)} from {real(one.low)} to {real(one.high)}"
    if one.range_low is not None and one.range_high is not None:
        yield "range", f"{real(one.range_low)} to {real(one.range_high)}, {one.qparams}"
        yield "clipped", clipped_text(one)
        yield "codes", codes_text(one)
    for name, low, high in one.choices:
        yield name, f"{real(low)} to {real(high)}"


def clipped_text(one: ValueDistribution) -> str:
    """``0.3 %: 12 below, 5 above``."""
    if one.clipped is None or one.clipped_low is None or one.clipped_high is None:
        return "not known: a profile keeps the extremes of channels alone"
    if not one.clipped:
        return "none"
    ends = f"{thousands(one.clipped_low)} below, {thousands(one.clipped_high)} above"
    return f"{small_percent(one.clipped)}: {ends}"


def codes_text(one: ValueDistribution) -> str:
    """``213 of 256 occur``, and the channel that uses the fewest."""
    if one.used is None:
        return f"{thousands(one.code_count)}; how many occur is not counted"
    text = f"{thousands(one.used)} of {thousands(one.code_count)} occur"
    counted = [channel for channel in one.channels if channel.used is not None]
    if counted:
        fewest = min(counted, key=lambda channel: channel.used or 0)
        text += f"; fewest in one channel: {fewest.used} ({_channels(fewest.first, fewest.last)})"
    return text


def _channels(first: int, last: int) -> str:
    return f"channel {first}" if first == last else f"channels {first} to {last}"


def real(value: float) -> str:
    """``value`` in three digits."""
    return f"{value:.3g}".replace("-", MINUS)


def distribution_svgs(one: ValueDistribution) -> tuple[str, ...]:
    """The pictures of ``one``, each one ``<svg>`` element, safe in HTML."""
    made = [_svg(one, "numbers", _numbers(one))]
    if one.codes:
        made.append(_svg(one, "codes", _codes(one)))
    if one.channels:
        made.append(_svg(one, "channels", _ranges(one)))
    return tuple(made)


def _svg(one: ValueDistribution, what: str, parts: Iterable[str]) -> str:
    words = "; ".join(f"{term}: {text}" for term, text in facts_of(one))
    return (
        f'<svg class="dist" viewBox="0 0 {number(WIDTH)} {number(HEIGHT)}" role="img">'
        f"<title>{escape(f'{what} of {one.value}')}</title><desc>{escape(words)}</desc>"
        f"{''.join(parts)}</svg>"
    )


def _numbers(one: ValueDistribution) -> Iterator[str]:
    wide = (one.right - one.left) or 1.0

    def x(value: float) -> float:
        return (value - one.left) / wide * WIDTH

    low, high = one.range_low, one.range_high
    is_chosen = low is not None and high is not None
    if low is not None and high is not None:
        yield _rect("span", x(low), _TOP, x(high) - x(low), BASE - _TOP)
    bin_width = wide / max(len(one.bins), 1)
    inside: list[tuple[int, int]] = []
    cut: list[tuple[int, int]] = []
    for index, count in enumerate(one.bins):
        middle = one.left + (index + 0.5) * bin_width
        is_cut = low is not None and high is not None and not low <= middle <= high
        (cut if is_cut and one.clipped else inside).append((index, count))
    yield from _bars("bar", inside, len(one.bins), one.bins)
    yield from _bars("cut", cut, len(one.bins), one.bins)
    for edge in (low, high) if is_chosen else ():
        yield f'<path class="edge" d="M{number(x(edge or 0.0))} {number(_TOP)}V{number(BASE)}"/>'
    for place, (name, start, end) in enumerate(one.choices):
        y = number(_TOP + 10 + 14 * place)
        yield f'<path class="edge" d="M{number(x(start))} {y}H{number(x(end))}"/>'
        yield (
            f'<text x="{number(min(x(end) + 4, WIDTH - 70))}" y="{y}" dy=".35em">'
            f"{escape(name)}</text>"
        )
    yield from _axis(one.left, one.right, x)
    yield _caption("numbers (log)", one.bins)


def _codes(one: ValueDistribution) -> Iterator[str]:
    bars = list(enumerate(one.codes))
    yield from _bars("bar", bars, len(bars), one.codes)
    step = WIDTH / len(bars)
    empty = "".join(
        f"M{number(index * step)} {number(BASE + 2)}h{step:.2f}v{number(_STRIP)}h-{step:.2f}z"
        for index, count in bars
        if not count
    )
    yield f'<path class="cut" d="{empty}"/>' if empty else ""
    yield _text(0, "lowest code", "start") + _text(WIDTH, "highest code", "end")
    group = -(-one.code_count // len(bars))
    yield _caption("codes (log)" if group == 1 else f"codes in groups of {group} (log)", one.codes)


def _ranges(one: ValueDistribution) -> Iterator[str]:
    ends = [(c.low, c.high, c.range_low, c.range_high) for c in one.channels]
    low, high = min(map(min, ends)), max(map(max, ends))
    step = WIDTH / len(ends)

    def y(value: float) -> float:
        return _TOP + (high - value) / ((high - low) or 1.0) * (_SPLIT - _TOP)

    for index, (least, most, bottom, top) in enumerate(ends):
        left, middle = index * step, (index + 0.5) * step
        yield _rect("span", left, y(top), 0.9 * step, max(y(bottom) - y(top), 0.5))
        yield f'<path class="seen" d="M{number(middle)} {number(y(most))}V{number(y(least))}"/>'
        for start, end in ((most, top), (bottom, least)):
            if start > end:
                way = f"M{number(middle)} {number(y(start))}V{number(y(end))}"
                yield f'<path class="beyond" d="{way}"/>'
    shares = [(channel.used or 0) / max(one.code_count, 1) for channel in one.channels]
    if any(channel.used is not None for channel in one.channels):
        tall = BASE - _SPLIT - 6
        path = "".join(
            f"M{number(index * step)} {number(BASE)}v-{tall * share:.1f}h{0.9 * step:.2f}"
            f"V{number(BASE)}z"
            for index, share in enumerate(shares)
        )
        yield f'<path class="bar" d="{path}"/><path class="axis" d="M0 {BASE}H{WIDTH}"/>'
    last = one.channels[-1].last
    yield _text(0, "channel 0", "start") + _text(WIDTH, str(last), "end")
    yield f'<text x="0" y="12">ranges from {real(low)} to {real(high)}; below, codes in use</text>'


def _bars(
    style: str, bars: Sequence[tuple[int, int]], places: int, every: Sequence[int]
) -> Iterator[str]:
    most = math.log1p(max(every, default=0)) or 1.0
    step = WIDTH / max(places, 1)
    path = "".join(
        f"M{number(index * step)} {number(BASE)}v-{math.log1p(count) / most * (BASE - _TOP):.1f}"
        f"h{step:.2f}V{number(BASE)}z"
        for index, count in bars
        if count
    )
    if path:
        yield f'<path class="{style}" d="{path}"/>'


def _axis(left: float, right: float, x: Callable[[float], float]) -> Iterator[str]:
    yield f'<path class="axis" d="M0 {number(BASE)}H{number(WIDTH)}"/>'
    yield _text(0, real(left), "start") + _text(WIDTH, real(right), "end")
    if 60 < x(0.0) < WIDTH - 60:
        yield _text(x(0.0), "0", "middle")


def _text(at: float, words: str, anchor: str) -> str:
    return (
        f'<text x="{number(at)}" y="{number(BASE + 18)}" text-anchor="{anchor}">'
        f"{escape(words)}</text>"
    )


def _caption(what: str, counts: Sequence[int]) -> str:
    return f'<text x="0" y="12">{what}, at most {thousands(max(counts, default=0))}</text>'


def _rect(style: str, x: float, y: float, width: float, height: float) -> str:
    return (
        f'<rect class="{style}" x="{number(x)}" y="{number(y)}" width="{number(width)}" '
        f'height="{number(height)}"/>'
    )
