"""Losses and gains of a cell over its runs as two areas: gains upwards, losses downwards, one scale for both."""

from collections.abc import Mapping
from html import escape

from qbench.reporting.frame import LEFT, RIGHT, WIDTH, Frame, number
from qbench.reporting.timeline import Trend
from qbench.reporting.words import counted, thousands

HEIGHT = 30
MIDDLE = HEIGHT / 2


def flips_svg(trend: Trend, runs: int) -> str:
    """The areas of ``trend`` as one ``<svg>`` element; empty where no sample was ever answered otherwise."""
    flips = {p: f for s in trend.series for p, f in zip(s.positions, s.flips, strict=True)}
    most = max((max(pair) for pair in flips.values()), default=0)
    if most == 0:
        return ""
    frame = Frame(0.0, 1.0, runs)
    scale = (MIDDLE - 1) / most
    down = _stairs({p: scale * losses for p, (losses, _) in flips.items()}, frame)
    up = _stairs({p: -scale * gains for p, (_, gains) in flips.items()}, frame)
    newest = flips[max(flips)]
    words = f"Losses and gains over {counted(len(flips), 'run')}, at most {thousands(most)}"
    words += f"; now {newest[0]} and {newest[1]}"
    return (
        f'<svg class="flips" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"><title>{escape(words)}</title>'
        f'<path class="axis" d="M{LEFT} {MIDDLE:g}H{WIDTH - RIGHT}"/>'
        f'<path class="lost" d="{down}"/><path class="won" d="{up}"/>'
        f'<text class="label" x="{WIDTH - RIGHT + 5}" y="{MIDDLE - 3:g}">gains</text>'
        f'<text class="label" x="{WIDTH - RIGHT + 5}" y="{HEIGHT - 2}">losses</text></svg>'
    )


def _stairs(heights: Mapping[int, float], frame: Frame) -> str:
    """A path around what lies between the middle and ``heights`` (run → height), drawn only where that changes."""
    half = 0.5 * (WIDTH - LEFT - RIGHT) / max(frame.runs - 1, 1)
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
