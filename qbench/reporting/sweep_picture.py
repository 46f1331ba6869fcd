"""The charts of a sweep as a PNG file by matplotlib, of the layout of ``sweep_layout``."""

import math
from typing import Any

from qbench.reporting.png import png_bytes, safe_text
from qbench.reporting.sweep_layout import (
    AXES,
    BOTTOM,
    HEIGHT,
    LEFT,
    LETTER,
    RIGHT,
    TOP,
    WIDTH,
    SweepChart,
    backend_marks,
    is_drawn,
    sweep_chart,
)
from qbench.reporting.sweep_rows import SweepTable

_INKS = ("#1b1d20", "#0b5fa5", "#b23c08", "#7d5a00")
_SOFT, _HAIR, _PAPER = "#5d636c", "#eff0ec", "#ffffff"
_MARKERS = {"circle": "o", "square": "s", "triangle": "^", "diamond": "D"}
_UNITS = 68
"""SVG units of an inch."""
_COLUMNS = 3
"""Of the names of the rows below the charts."""


def sweep_png(table: SweepTable) -> bytes:
    """The charts of ``table`` next to each other as a PNG file, with the names of the rows."""
    from matplotlib.figure import Figure

    drawn = [chart for cost in AXES if (chart := sweep_chart(table, cost)) is not None]
    wide, head = WIDTH * max(len(drawn), 1), 44
    listed = [row for row in table.rows if is_drawn(row)]
    tall = head + HEIGHT + 16 + 15 * math.ceil(len(listed) / _COLUMNS) + 12
    figure = Figure(figsize=(wide / _UNITS, tall / _UNITS), facecolor=_PAPER)
    axis = figure.add_axes((0, 0, 1, 1))
    axis.set_xlim(0, wide)
    axis.set_ylim(tall, 0)
    axis.axis("off")
    axis.text(10, 18, safe_text(f"{table.model} on {table.data}"), fontsize=9, fontweight="bold")
    _draw_key(axis, table)
    for place, chart in enumerate(drawn):
        _draw(axis, chart, place * WIDTH, head)
    for place, row in enumerate(listed):
        line, column = divmod(place, _COLUMNS)
        axis.text(
            10 + column * (wide - 20) / _COLUMNS,
            head + HEIGHT + 20 + 15 * line,
            safe_text(f"{row.number}  {row.cell.name}"),
            fontsize=7,
            fontweight="bold" if row.fronts else "normal",
            color=_INKS[0] if row.fronts else _SOFT,
        )
    return png_bytes(figure)


def _draw_key(axis: Any, table: SweepTable) -> None:  # noqa: ANN401 - matplotlib has no types
    """The backends with their marks, in a line; filled marks are on the front."""
    x = 12.0
    for name, (shape, colour) in backend_marks(table).items():
        axis.plot([x], [35], marker=_MARKERS[shape], color=_INKS[colour], markersize=4)
        axis.text(x + 8, 38, safe_text(name), fontsize=7.5, color=_SOFT)
        x += 24 + LETTER * len(name)
    axis.text(x, 38, "filled: on the front of Pareto", fontsize=7.5, color=_SOFT)


def _draw(axis: Any, chart: SweepChart, dx: float, dy: float) -> None:  # noqa: ANN401
    right, low = WIDTH - RIGHT, HEIGHT - BOTTOM
    for y, text in chart.y_ticks:
        axis.plot([dx + LEFT, dx + right], [dy + y] * 2, color=_HAIR, linewidth=0.8, zorder=0)
        axis.text(dx + LEFT - 6, dy + y + 3, text, ha="right", fontsize=7, color=_SOFT)
    for x, text in chart.x_ticks:
        axis.plot([dx + x] * 2, [dy + TOP, dy + low], color=_HAIR, linewidth=0.8, zorder=0)
        axis.text(dx + x, dy + low + 14, text, ha="center", fontsize=7, color=_SOFT)
    if chart.zero is not None:
        axis.plot([dx + LEFT, dx + right], [dy + chart.zero] * 2, color=_SOFT, linewidth=0.7)
    if len(chart.front) > 1:
        xs, ys = zip(*chart.front, strict=True)
        axis.plot([dx + x for x in xs], [dy + y for y in ys], color=_SOFT, linewidth=1, ls="--")
    for point in chart.points:
        colour = _INKS[point.colour]
        axis.plot(
            [dx + point.x] * 2,
            [dy + point.high, dy + point.low],
            color=colour,
            linewidth=0.8,
            alpha=0.35,
        )
        axis.plot(
            [dx + point.x],
            [dy + point.y],
            marker=_MARKERS[point.shape],
            color=colour,
            markerfacecolor=colour if point.is_front else _PAPER,
            markersize=4.5,
            zorder=4 if point.is_front else 3,
        )
    aligned = {"start": "left", "middle": "center", "end": "right"}
    for label in chart.labels:
        axis.text(
            dx + label.x,
            dy + label.y,
            label.text,
            ha=aligned[label.anchor],
            fontsize=7,
            fontweight="bold" if label.is_front else "normal",
            color=_INKS[0] if label.is_front else _SOFT,
            zorder=5,
        )
    axis.text(
        dx + (LEFT + right) / 2,
        dy + HEIGHT - 8,
        safe_text(chart.x_title),
        ha="center",
        fontsize=7.5,
        color=_SOFT,
    )
    axis.text(
        dx + 12,
        dy + (TOP + low) / 2,
        safe_text(chart.y_title),
        ha="center",
        va="center",
        rotation=90,
        fontsize=7.5,
        color=_SOFT,
    )
