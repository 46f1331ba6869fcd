"""The last nights of the cells, one line for each model and schema: what moved, and how far."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from qbench.judging import Cell
from qbench.reporting.chart import Frame, confidence_band, frame_of, line_path, number
from qbench.reporting.format import integers_text
from qbench.reporting.trends import RunPoint, Trend, turns_of
from qbench.reporting.view import ABSENT, CellView
from qbench.tracking import least_step, slide_of

# A night is one place of the axis of a chart: all runs of one commit. What is said of the nights of
# a cell is said of its newest environment class and of the samples of its newest result alone:
#
#     since the last night    newest value − value of the night before it
#     lowest of n nights      the worst value: of an error rate the highest
#     slide                   tracking.slides, whether the result is within its margin or not
#
# Results of other samples are not drawn: the line begins behind a gap, and its row says since when.

NIGHTS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentNights:
    """The last nights of ``cells``, which are equal to the digit on several backends.

    ``trend``: their lead metric in these nights; ``points``: those of the newest class on the
    samples of the newest result; ``first``, ``last``: the places of these nights; ``slide``: how
    much worse it got without a step, a fraction, 0: it did not.
    """

    cells: tuple[CellView, ...]
    trend: Trend
    points: tuple[RunPoint, ...]
    first: int
    last: int
    slide: float = 0.0

    @property
    def cell(self) -> CellView:
        """The first of its cells."""
        return self.cells[0]

    @property
    def backends(self) -> tuple[str, ...]:
        """Those on which the results are equal, in the order of the suite."""
        return tuple(cell.key.backend for cell in self.cells)

    @property
    def since(self) -> float | None:
        """The change since the night before, a fraction; None: there is none to compare with."""
        if len(self.points) < 2:
            return None
        return self.points[-1].metric.value - self.points[-2].metric.value

    @property
    def worst(self) -> float:
        """The lowest value of these nights; of an error rate the highest."""
        values = [value for point in self.points for value in _values(point)]
        return max(values) if self.trend.metric.lower_is_better else min(values)

    @property
    def has_moved(self) -> bool:
        """Whether its results on these samples, or fp32's, are not the same in all these nights."""
        first = self.trend.points[0].metric
        return any(
            (value, point.metric.reference_value) != (first.value, first.reference_value)
            for point in self.trend.points
            for value in _values(point)
        )

    @property
    def others(self) -> int | None:
        """The run from which on its samples are others than before; None: they are the same."""
        return self.trend.switches[-1].position if self.trend.switches else None


def _values(point: RunPoint) -> tuple[float, ...]:
    return tuple(one.metric.value for one in point.each)


def course_of(cells: Sequence[CellView], trend: Trend, nights: int = NIGHTS) -> RecentNights | None:
    """The course of ``cells`` over the last ``nights``; None where the newest run has no value."""
    last = trend.places[-1] if trend.places else max((p.position for p in trend.points), default=0)
    first = last - nights + 1
    newest = max(trend.points, key=lambda point: point.each[-1].position, default=None)
    if newest is None or _place(trend, newest.each[-1].position) < first:
        return None
    shown = tuple(
        point
        for point in trend.points
        if point.data == newest.data and _place(trend, point.each[-1].position) >= first
    )
    points = tuple(point for point in shown if point.environment_class == newest.environment_class)
    marks = tuple(
        mark
        for mark in trend.marks
        if mark.data == newest.data and _place(trend, mark.last) >= first
    )
    steps = tuple(step for step in trend.steps if _place(trend, step.position) >= first)
    others = tuple(
        switch
        for switch in trend.switches
        if switch.of_samples and _place(trend, switch.position) > first
    )
    recent = replace(trend, points=shown, marks=marks, steps=steps, switches=others)
    return RecentNights(
        cells=tuple(cells),
        trend=recent,
        points=points,
        first=max(first, 0),
        last=last,
        slide=_slide(points),
    )


def _place(trend: Trend, position: int) -> int:
    return trend.places[position] if trend.places else position


def _slide(points: Sequence[RunPoint]) -> float:
    newest = points[-1].metric
    least = least_step(newest.out_of) if newest.unit == "%" else 0.0
    values = [point.metric.value for point in points]
    if len(set(values)) < 2:
        return 0.0
    return slide_of(values, least=least, lower_is_better=newest.lower_is_better)


def courses_of(
    cells: Iterable[CellView], trends: Mapping[Cell, tuple[Trend, ...]]
) -> tuple[RecentNights, ...]:
    """The course of each of ``cells`` that has a trend: slides first, then what moved, the
    largest loss first, then the rest in their order.
    """
    found = (
        course_of(same, trends[same[0].key][0])
        for same in folded(cells, trends)
        if trends.get(same[0].key) and same[0].record.outcome != ABSENT
    )
    return tuple(sorted((one for one in found if one is not None), key=_urgency))


def _urgency(course: RecentNights) -> tuple[bool, bool, float]:
    sign = 1 if course.trend.metric.lower_is_better else -1
    loss = max(sign * (course.since or 0.0), course.slide)
    return not course.slide, not course.has_moved, -loss


def folded(
    cells: Iterable[CellView], trends: Mapping[Cell, tuple[Trend, ...]]
) -> tuple[tuple[CellView, ...], ...]:
    """``cells``, those of one model and schema together whose results are equal to the digit in
    every run that is shown; a red cell stays alone.
    """
    groups: dict[Hashable, list[CellView]] = {}
    for cell in cells:
        of_cell = trends.get(cell.key, ())
        key = _digits(cell, of_cell[0]) if of_cell and not cell.is_red else cell.key
        groups.setdefault(key, []).append(cell)
    return tuple(map(tuple, groups.values()))


def _digits(cell: CellView, trend: Trend) -> Hashable:
    """All that a chart or a row of ``cell`` shows, but for its backend."""
    classes: dict[str, int] = {}
    metrics = tuple(
        (one.name, one.hits, one.out_of, one.reference_hits, one.losses, one.gains, one.limit)
        for one in cell.metrics
    )
    each = [one for point in trend.points for one in point.each]
    turns: list[Hashable] = []
    last: Hashable = None
    for place in turns_of(each):
        one = each[place]
        name = classes.setdefault(one.environment_class, len(classes))
        shown = one.metric.value, one.metric.losses, one.metric.gains, name
        if shown != last:
            turns.append((place, shown))
        last = shown
    points = (*turns, *(one.position for one in each))
    facts = cell.record.outcome, trend.metric.name, trend.accepted, integers_text(cell)
    return cell.key.model, cell.key.column, facts, metrics, points


# A course as inline SVG: the margin, the 95 % interval, the line, the newest value.

WIDTH, HEIGHT, _PAD = 132, 30, 3


def course_svg(course: RecentNights) -> str:
    """``course`` as one ``<svg>`` element, hidden from screen readers: its row has the numbers."""
    trend = course.trend
    whole = frame_of(trend, len(trend.places) or len(trend.points))
    first, count = course.first, course.last - course.first + 1
    frame = Frame(
        whole.low,
        whole.high,
        count,
        left=_PAD - first * (WIDTH - 2 * _PAD) / max(count - 1, 1) * (count > 1),
        top=_PAD,
        width=WIDTH - 2 * _PAD,
        height=HEIGHT - 2 * _PAD,
        places=trend.places,
    )
    parts = [_margin(trend, frame)]
    if trend.has_intervals:
        parts += confidence_band(course.points, frame)
    for place, points in list(enumerate(trend.by_class))[::-1]:
        if path := line_path(points, frame):
            parts.append(f'<path class="line c{min(place, 3)}" d="{path}"/>')
    newest = course.points[-1]
    x, y = number(frame.x(newest.position)), number(frame.y(newest.metric.value))
    parts.append(f'<path class="now" d="M{x} {y}h0"/>')
    tone = " red" if course.cell.is_red else ""
    return (
        f'<svg class="course{tone}" viewBox="0 0 {WIDTH} {HEIGHT}" aria-hidden="true">'
        f"{''.join(parts)}</svg>"
    )


def _margin(trend: Trend, frame: Frame) -> str:
    """From fp32 to the limit, as they are in the newest run; the limit is dashed."""
    if not trend.marks or trend.marks[-1].limit is None:
        return ""
    mark = trend.marks[-1]
    assert mark.limit is not None
    start, end = number(frame.cut(mark.reference)), number(frame.cut(mark.limit))
    return (
        f'<path class="margin" d="M0 {start}H{WIDTH}V{end}H0z"/>'
        f'<path class="limit" d="M0 {end}H{WIDTH}"/>'
    )
