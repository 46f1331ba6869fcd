"""Losses and gains of a cell over its runs as small bars: gains upwards, losses downwards, one scale for both."""

from html import escape

from qbench.reporting.frame import LEFT, RIGHT, WIDTH, Frame, number
from qbench.reporting.timeline import Trend
from qbench.reporting.words import counted, thousands

HEIGHT = 30
MIDDLE = HEIGHT / 2


def flips_svg(trend: Trend, runs: int) -> str:
    """The bars of ``trend`` as one ``<svg>`` element; empty where no sample was ever answered otherwise."""
    flips = {p: f for s in trend.series for p, f in zip(s.positions, s.flips, strict=True)}
    most = max((max(pair) for pair in flips.values()), default=0)
    if most == 0:
        return ""
    frame = Frame(0.0, 1.0, runs)
    scale = (MIDDLE - 1) / most
    wide = min(6.0, max(0.8, 0.7 * (WIDTH - LEFT - RIGHT) / max(runs - 1, 1)))
    down = "".join(_bar(frame.x(p), scale * losses) for p, (losses, _) in sorted(flips.items()) if losses)
    up = "".join(_bar(frame.x(p), -scale * gains) for p, (_, gains) in sorted(flips.items()) if gains)
    newest = flips[max(flips)]
    words = f"Losses and gains over {counted(len(flips), 'run')}, at most {thousands(most)}"
    words += f"; now {newest[0]} and {newest[1]}"
    return (
        f'<svg class="flips" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"><title>{escape(words)}</title>'
        f'<path class="axis" d="M{LEFT} {MIDDLE:g}H{WIDTH - RIGHT}"/>'
        f'<path class="lost" stroke-width="{number(wide)}" d="{down}"/>'
        f'<path class="won" stroke-width="{number(wide)}" d="{up}"/>'
        f'<text class="label" x="{WIDTH - RIGHT + 5}" y="{MIDDLE - 3:g}">gains</text>'
        f'<text class="label" x="{WIDTH - RIGHT + 5}" y="{HEIGHT - 2}">losses</text></svg>'
    )


def _bar(x: float, height: float) -> str:
    return f"M{number(x)} {MIDDLE:g}v{number(height)}"
