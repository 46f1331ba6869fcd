"""Where a value lies on the canvas of a chart.

    x = left + position · width / (runs − 1)        y = top + (high − value) · height / (high − low)

The span [low, high] holds every value, the limit and the accepted result, and the reference unless it is so far away
that the values would become a flat line. The band of confidence may reach beyond it and is cut off there.
"""

from dataclasses import dataclass

from qbench.reporting.timeline import Trend

WIDTH, HEIGHT = 280, 109
LEFT, RIGHT, TOP, BOTTOM = 4, 58, 16, 29


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

    def cut(self, value: float) -> float:
        """The vertical place of ``value``, or of the nearest that is shown."""
        return self.y(min(max(value, self.low), self.high))


def frame_of(trend: Trend, runs: int) -> Frame:
    """The span that shows the values of ``trend`` over ``runs`` runs."""
    metric = trend.metric
    values = [value for series in trend.series for value in series.values] or [metric.value]
    values.extend(mark.limit for mark in trend.marks if mark.limit is not None)
    values.extend([] if trend.accepted is None else [trend.accepted])
    low, high = min(values), max(values)
    spread = max(high - low, 0.004 * abs(metric.reference), 1 / metric.out_of)
    references = [mark.reference for mark in trend.marks] or [metric.reference]
    if max(low - min(references), max(references) - high) <= 3 * spread:
        low, high = min(low, *references), max(high, *references)
    pad = max(0.08 * (high - low), 0.15 * spread)
    return Frame(low - pad, high + pad, runs)


def number(value: float) -> str:
    """``value`` in SVG units, to a tenth."""
    return f"{value:.1f}".removesuffix(".0")
