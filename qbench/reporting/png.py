"""Charts as PNG files by matplotlib."""

import io
import re
import textwrap
import warnings
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from qbench.reporting.chart import MAX_SWITCHES
from qbench.reporting.courses import course_of, folded
from qbench.reporting.format import (
    BELOW,
    BELOW_MEANING,
    cell_text,
    change_text,
    counted,
    executed_otherwise,
    margin_level,
    symbol_of_cell,
    value_text,
)
from qbench.reporting.many_models import most_telling
from qbench.reporting.overlay import Overlay, overlays_of
from qbench.reporting.report import Matrix, Report
from qbench.reporting.trends import OTHER_SAMPLES, Trend, stretches
from qbench.reporting.view import CellView, RunView

if TYPE_CHECKING:
    import pandas as pd

INK, SOFT, LINE, RED, BLUE = "#1b1d20", "#5d636c", "#e5e6e2", "#b23c08", "#0b5fa5"
GREEN, AMBER = "#13694d", "#7d5a00"
SHADES = {-1: "#dcebf8", 0: "#ffffff", 1: "#fdf3e4", 2: "#fae0bd", 3: "#f3b182", 4: "#e07b45"}
DPI = 120
ROW, HEAD = 0.38, 0.62
"""Inches: a row of the heat map, and the heading of a backend."""
MAX_BACKENDS = 24
"""A picture of more is too large for many viewers."""

USUAL_MODELS, MAX_ROWS = 60, 480
"""Up to 60 models are all drawn; of more models, the pictures of all backends share 480 rows."""

MAX_MODELS = 8
"""A picture takes a second; the pages hold the charts of every model."""


def trend_frame(report: Report, model: str) -> "pd.DataFrame":
    """The lead metric of every cell of ``model``, one row per run.

    Columns: backend, column, metric, environment_class, data (digest of the samples; all str), run
        (position in ``report.runs``), value (fraction).
    """
    import pandas as pd

    rows = []
    for key in report.trends:
        # a trend is computed when it is looked up
        trends = report.trends[key] if key.model == model else ()
        if not trends:
            continue
        series = (key.backend, key.column, trends[0].metric.name)
        points = ((place.data, point) for place in trends[0].points for point in place.each)
        rows += [
            (*series, point.environment_class, data, point.position, point.metric.value)
            for data, point in points
        ]
    names = ["backend", "column", "metric", "environment_class", "data", "run", "value"]
    return pd.DataFrame(rows, columns=names)


def matrix_frames(matrix: Matrix) -> "tuple[pd.DataFrame, pd.DataFrame]":
    """Models × schemas of one backend: shade levels (NaN where nothing was measured), and the
    texts of the cells.
    """
    import pandas as pd

    levels, texts = {}, {}
    for model, cells in matrix.rows:
        levels[model] = [
            float(margin_level(c.lead)) if c and c.lead else float("nan") for c in cells
        ]
        texts[model] = [cell_text(c) for c in cells]
    make = pd.DataFrame.from_dict
    return (
        make(levels, orient="index", columns=list(matrix.columns)),
        make(texts, orient="index", columns=list(matrix.columns)),
    )


def matrix_png(report: Report) -> bytes:
    """The heat map of every backend of ``report``, one above the other, as a PNG file."""
    from matplotlib.figure import Figure

    count = max(len(report.matrices[:MAX_BACKENDS]), 1)
    matrices = most_telling(report, max(USUAL_MODELS, MAX_ROWS // count)).matrices[:MAX_BACKENDS]
    columns = max((len(matrix.columns) for matrix in matrices), default=1)
    width = 2.2 + 1.3 * columns
    height = 0.7 + sum(ROW * len(matrix.rows) + HEAD for matrix in matrices)
    figure = Figure(figsize=(width, height), facecolor="white")
    title = textwrap.shorten(
        f"{report.suite}: {report.headline}", int(10.5 * width), placeholder=" …"
    )
    figure.text(
        0.15 / width, 1 - 0.3 / height, safe_text(title), color=INK, fontsize=10, fontweight="bold"
    )
    if any(cell.is_below_tolerance for cell in report.cells):
        words = f"{BELOW} {BELOW_MEANING}"
        figure.text(0.15 / width, 1 - 0.52 / height, words, color=SOFT, fontsize=8)
    top = height - 0.5
    for matrix in matrices:  # all rows have one height
        size = ROW * len(matrix.rows)
        top -= HEAD + size
        axis = figure.add_axes((2.05 / width, top / height, 1.3 * columns / width, size / height))
        figure.text(
            0.15 / width,
            (top + size + 0.1) / height,
            safe_text(matrix.backend),
            color=INK,
            fontsize=9,
            fontweight="bold",
        )
        _heat_map(axis, matrix, columns)
    return png_bytes(figure)


def model_png(report: Report, model: str) -> bytes:
    """The trends of ``model``, one small chart per cell: backends down, schemas across, as a
    PNG file; the first of a row has all its schemas.

    Cells that are equal to the digit on several backends have one chart, in the row of the first.
    """
    from matplotlib.figure import Figure

    measured = [c for c in report.cells if c.key.model == model and c.lead]
    cells = {
        (same[0].key.backend, same[0].key.column): same for same in folded(measured, report.trends)
    }
    backends = list(dict.fromkeys(backend for backend, _ in cells))
    known = [column for matrix in report.matrices for column in matrix.columns]
    columns = [c for c in dict.fromkeys(known) if any((b, c) in cells for b in backends)]
    overlays = {one.backends[0]: one for one in overlays_of(report, model)}
    width, height = 0.5 + 2.6 * max(len(columns) + 1, 2), 1.2 + 2.2 * max(len(backends), 1)
    figure = Figure(figsize=(width, height), facecolor="white")
    first = next(iter(measured), None)
    metric = first.lead.name if first and first.lead else "nothing measured"
    title = f"{model}, {metric}, {counted(len(report.runs), 'run')}"
    figure.text(
        0.15 / width, 1 - 0.32 / height, safe_text(title), color=INK, fontsize=12, fontweight="bold"
    )
    if not cells:
        return png_bytes(figure)
    frame, labels = trend_frame(report, model), run_labels(report.runs)
    _legend(figure, width, height)
    axes = figure.subplots(len(backends), len(columns) + 1, squeeze=False)
    figure.subplots_adjust(
        left=0.5 / width,
        right=1 - 0.2 / width,
        bottom=0.5 / height,
        top=1 - 1.15 / height,
        wspace=0.3,
        hspace=0.8,
    )
    for row, backend in zip(axes, backends, strict=True):
        _overlaid(row[0], overlays.get(backend), labels)
        for axis, column in zip(row[1:], columns, strict=True):
            same = cells.get((backend, column))
            if same is None:
                axis.axis("off")
                continue
            data = frame[(frame["backend"] == backend) & (frame["column"] == column)]
            _small_chart(axis, data, same, report.trends[same[0].key][0], labels)
    return png_bytes(figure)


_MARKERS = ("o", "s", "^", "D", "x", "+", "v", "_", "|")
_DASHES: tuple[Any, ...] = ("-", "--", ":", "-.", (0, (4, 4)), (0, (1, 3)), (0, (8, 2)), "--", "-.")


def _overlaid(axis: Any, overlay: Overlay | None, labels: Sequence[str]) -> None:  # noqa: ANN401
    """All schemas of one backend; dashes and marks tell the lines apart, too."""
    if overlay is None:
        axis.axis("off")
        return
    factor = 100 if overlay.metric.unit == "%" else 1
    colours = [INK, BLUE, GREEN, AMBER, SOFT] * 2
    for place, line in enumerate(overlay.lines):
        for number, same in enumerate(stretches(line.points)):
            axis.plot(
                [point.position for point in same],
                [factor * point.metric.value for point in same],
                color=colours[place],
                linewidth=1,
                linestyle=_DASHES[place],
                marker=_MARKERS[place],
                markersize=3.5,
                markevery=(place % max(len(same), 1), max(len(same) // 5, 1)),
                label=line.name if not number else None,
            )
    title = f"all schemas, {overlay.metric.name}\n{', '.join(overlay.backends)}"
    axis.set_title(safe_text(title), loc="left", fontsize=7, color=INK, pad=11)
    axis.legend(fontsize=4.5, frameon=False, labelcolor=SOFT, loc="best")
    _ticks(axis, labels)


def _ticks(axis: Any, labels: Sequence[str]) -> None:  # noqa: ANN401
    """The names of the first, the middle and the last run, and small plain numbers."""
    runs = len(labels)
    axis.set_xlim(-0.5, max(runs - 0.5, 0.5))
    places = sorted({0, (runs - 1) // 2, runs - 1})
    axis.set_xticks(places, [safe_text(labels[place]) for place in places])
    axis.tick_params(axis="x", labelsize=6, length=2, colors=SOFT)
    axis.tick_params(axis="y", labelsize=6, length=2, colors=SOFT)
    axis.ticklabel_format(axis="y", useOffset=False)
    axis.margins(y=0.15)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    axis.spines[["left", "bottom"]].set_color(LINE)


def _heat_map(axis: Any, matrix: Matrix, columns: int) -> None:  # noqa: ANN401 - matplotlib has no types
    from matplotlib.colors import BoundaryNorm, ListedColormap
    from matplotlib.patches import Rectangle

    levels, texts = matrix_frames(matrix)
    norm = BoundaryNorm([-1.5, -0.5, 0.5, 1.5, 2.5, 3.5, 4.5], 6)
    axis.pcolormesh(
        levels.to_numpy(),
        cmap=ListedColormap([SHADES[k] for k in sorted(SHADES)]),
        norm=norm,
        edgecolors="white",
        linewidth=2,
    )
    axis.set_xlim(0, columns)
    axis.invert_yaxis()
    for y, (_, cells) in enumerate(matrix.rows):
        for x, cell in enumerate(cells):
            red = cell is not None and cell.is_red
            without_numbers = cell is not None and not cell.lead
            axis.text(
                x + 0.5,
                y + 0.5,
                safe_text(str(texts.iat[y, x])),
                ha="center",
                va="center",
                fontsize=8,
                color=RED if red and without_numbers else INK,
                fontweight="bold" if red else "normal",
            )
            if red:
                axis.add_patch(
                    Rectangle(
                        (x + 0.03, y + 0.05), 0.94, 0.9, fill=False, edgecolor=RED, linewidth=1.6
                    )
                )
    axis.set_xticks(
        [x + 0.5 for x in range(len(texts.columns))],
        [safe_text(c) for c in texts.columns],
        fontsize=8,
    )
    axis.set_yticks(
        [y + 0.5 for y in range(len(texts.index))],
        [safe_text(str(m)) for m in texts.index],
        fontsize=8,
    )
    axis.xaxis.tick_top()
    axis.tick_params(length=0, colors=INK)
    for spine in axis.spines.values():
        spine.set_visible(False)


def _small_chart(
    axis: Any,  # noqa: ANN401
    data: "pd.DataFrame",
    same: tuple[CellView, ...],
    trend: Trend,
    labels: Sequence[str],
) -> None:
    cell, runs = same[0], len(labels)
    factor = 100 if trend.metric.unit == "%" else 1
    lines = _class_lines(data, factor)
    for parts, colour in zip(lines, [INK, BLUE, SOFT, AMBER] + [SOFT] * len(lines), strict=False):
        for line in parts:
            axis.plot(
                line.index,
                line.to_numpy(),
                color=colour,
                linewidth=1.2,
                marker="." if len(line) == 1 else None,
            )
    _levels(axis, trend, runs, factor)
    _events(axis, trend, runs)
    newest = lines[0][-1]
    colour, marker = (RED, "x") if cell.is_red else (INK, "o")
    axis.plot(
        newest.index[-1],
        newest.iloc[-1],
        marker=marker,
        color=colour,
        markersize=4,
        markeredgewidth=1.6,
    )
    names = textwrap.fill(", ".join(one.key.backend for one in same), 26, break_on_hyphens=False)
    title = f"{symbol_of_cell(cell)} {cell.key.column}\n{names}"
    numbers = f"{value_text(trend.metric)}\n{change_text(trend.metric)}"
    axis.set_title(safe_text(title), loc="left", fontsize=7, color=colour, pad=11)
    axis.set_title(safe_text(numbers), loc="right", fontsize=7, color=colour, pad=11)
    axis.set_xlabel(safe_text(_below(same, trend)), fontsize=6, color=SOFT, loc="left")
    _ticks(axis, labels)
    axis.set_ylim(*axis.get_ylim())  # an interval of few samples would make the lines flat
    _interval(axis, trend, factor)


def _below(same: tuple[CellView, ...], trend: Trend) -> str:
    """What the overview says of the last nights, and what was executed where that differs."""
    course = course_of(same, trend)
    if course is None:
        return executed_otherwise(same[0])
    metric = course.trend.metric
    nights = [f"lowest {value_text(metric, course.worst)}"]
    if course.since is not None:
        moved = change_text(metric, course.since)
        nights.insert(0, f"since the last night {moved if course.since else 'no change'}")
    lines = [", ".join(nights)]
    if course.slide:
        loss = course.slide if metric.lower_is_better else -course.slide
        lines.append(f"slides {change_text(metric, loss)}")
    lines.append(executed_otherwise(same[0]))
    return "\n".join(filter(None, lines))


def _class_lines(data: "pd.DataFrame", factor: float) -> "list[list[pd.Series[float]]]":
    """The values by run of each environment class, that of the newest run first; one part for
    each stretch on the same samples, so that no line joins results of others.
    """
    newest = data.groupby("environment_class")["run"].max().sort_values(ascending=False).index
    found = []
    for name in newest:
        own = data[data["environment_class"] == name].sort_values("run")
        stretch = (own["data"] != own["data"].shift()).cumsum()
        parts = [part.groupby("run")["value"].median() * factor for _, part in own.groupby(stretch)]
        found.append(parts)
    return found


def _interval(axis: Any, trend: Trend, factor: float) -> None:  # noqa: ANN401
    """The 95 % intervals of the newest class."""
    for same in stretches(trend.by_class[0]) if trend.has_intervals else ():
        low, high = zip(*(point.interval for point in same), strict=True)
        axis.fill_between(
            [point.position for point in same],
            [factor * value for value in low],
            [factor * value for value in high],
            **INTERVAL,
        )


def _events(axis: Any, trend: Trend, runs: int) -> None:  # noqa: ANN401
    """The steps, the cause of a single one, and the switches unless they are too many."""
    for step in trend.steps:
        worse = (step.after < step.before) != trend.metric.lower_is_better
        colour = RED if worse else BLUE
        axis.axvline(step.position, color=colour, linewidth=0.9)
        if step.causes and len(trend.steps) == 1:
            side = "left" if step.position < runs / 2 else "right"
            _cause(axis, step.position, step.causes[0], colour, side)
    if len(trend.switches) > MAX_SWITCHES:
        return
    for switch in trend.switches:
        axis.axvline(switch.position - 0.5, color=SOFT, linewidth=0.8, linestyle=":")
        if switch.of_samples:
            _cause(axis, switch.position, OTHER_SAMPLES, SOFT, "left")


def _levels(axis: Any, trend: Trend, runs: int, factor: float) -> None:  # noqa: ANN401
    """The reference and the margin under it as they were in each stretch of runs."""
    inner = [(a.last + b.first) / 2 for a, b in pairwise(trend.marks)]
    for (left, right), mark in zip(pairwise([-0.5, *inner, runs - 0.5]), trend.marks, strict=True):
        reference = mark.reference * factor
        axis.plot([left, right], [reference, reference], **FP32)
        if mark.limit is not None:
            limit = mark.limit * factor
            axis.fill_between([left, right], limit, reference, **BAND)
            axis.plot([left, right], [limit, limit], **LIMIT)
        if trend.accepted is not None and mark.data == trend.points[-1].data:
            accepted = trend.accepted * factor
            axis.plot([left, right], [accepted, accepted], **ACCEPTED)


def _cause(axis: Any, position: int, words: str, colour: str, side: str) -> None:  # noqa: ANN401
    """What is new at a step, next to the top of its line."""
    where = axis.get_xaxis_transform()
    axis.text(
        position,
        1.01,
        safe_text(f" {words} "),
        transform=where,
        fontsize=5.5,
        color=colour,
        ha=side,
        va="bottom",
    )


def _legend(figure: Any, width: float, height: float) -> None:  # noqa: ANN401
    """The legend of the lines, once, above the small charts."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    drawn = [
        Line2D([], [], color=INK, linewidth=1.2, label="value"),
        Patch(**INTERVAL, label="95 %"),
        Line2D([], [], **FP32, label="fp32"),
        Patch(**BAND, label="margin"),
        Line2D([], [], **LIMIT, label="limit"),
        Line2D([], [], **ACCEPTED, label="accepted"),
        Line2D([], [], color=RED, linewidth=0.9, marker="|", linestyle="", label="step"),
    ]
    place = (0.05 / width, 1 - 0.38 / height)
    figure.legend(
        handles=drawn,
        loc="upper left",
        bbox_to_anchor=place,
        ncols=len(drawn),
        fontsize=7,
        frameon=False,
        labelcolor=SOFT,
    )


def run_labels(runs: Sequence[RunView]) -> list[str]:
    """A short name of each run for an axis: its day, its time where all are of one day, else
    its commit.

    Of a run of a release it is the version.
    """
    days = [
        run.started[5:10] if _DATED.match(run.started) and not run.release_of else ""
        for run in runs
    ]
    if len(runs) > 1 and len({run.started[:10] for run in runs}) == 1:
        days = [run.started[11:16] if day else "" for run, day in zip(runs, days, strict=True)]
    return [day or run.commit[:7] or run.id[:8] for run, day in zip(runs, days, strict=True)]


_DATED = re.compile(r"\d{4}-\d\d-\d\d ")
FP32: dict[str, Any] = {"color": SOFT, "linewidth": 0.7}
LIMIT: dict[str, Any] = {"color": RED, "linewidth": 0.8, "linestyle": (0, (3, 3))}
ACCEPTED: dict[str, Any] = {"color": GREEN, "linewidth": 0.9, "linestyle": ":"}
INTERVAL: dict[str, Any] = {"color": INK, "alpha": 0.09, "zorder": 1, "linewidth": 0}
BAND: dict[str, Any] = {"color": "#f1f1ea", "zorder": 0, "linewidth": 0}


def safe_text(text: str) -> str:
    """``text`` as matplotlib shows it plainly: a dollar sign would start a formula."""
    return text.replace("$", r"\$")


def png_bytes(figure: Any, dpi: int = DPI) -> bytes:  # noqa: ANN401
    """``figure`` as a PNG file; equal figures are equal files."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure)
    held = io.BytesIO()
    with warnings.catch_warnings():
        # letters that the font lacks are drawn as boxes, which is enough
        warnings.simplefilter("ignore")
        # no time and no version inside, so that equal reports are equal files
        figure.savefig(held, format="png", dpi=dpi, metadata={"Software": None})
    return held.getvalue()


def charted_models(report: Report) -> Sequence[str]:
    """The models that are drawn: all; of many only those with the most events."""
    events = Counter({key.model: 0 for key in report.trends})
    eventful = report.eventful
    for cell in report.cells:
        if cell.key.model in events:
            events[cell.key.model] += cell.key in eventful
    if len(events) <= MAX_MODELS:
        return [model for model in report.models if model in events]
    return sorted(model for model, count in events.most_common(MAX_MODELS) if count)
