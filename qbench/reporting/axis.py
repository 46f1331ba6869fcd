"""What stands below the chart of a trend: when its first, middle and last run were, or which commit they measured."""

import re
from collections.abc import Sequence

from qbench.reporting.frame import HEIGHT, Frame
from qbench.reporting.view import RunView

_DATED = re.compile(r"\d{4}-\d\d-\d\d ")
_LETTER = 5.8
"""Width of a digit, in SVG units."""


def run_axis(runs: Sequence[RunView], frame: Frame) -> str:
    """Names of the first, the middle and the last of ``runs`` at their places: days, or times where all are of one day.

    A run without a time is named by its commit. What would touch its neighbour is left out.
    """
    if not runs:
        return ""
    last = len(runs) - 1
    wanted = [(0, "start"), (last, "end"), (last // 2, "middle")] if last else [(0, "end")]
    taken: list[tuple[float, float]] = []
    shown = []
    same_day = last > 0 and len({run.started[:10] for run in runs}) == 1
    for place, anchor in wanted:
        text, x = _name(runs[place], same_day=same_day), frame.x(place)
        left = x - _LETTER * len(text) * {"start": 0.0, "middle": 0.5, "end": 1.0}[anchor]
        right = left + _LETTER * len(text)
        if all(right + 6 < start or left > end + 6 for start, end in taken):
            taken.append((left, right))
            shown.append(f'<tspan x="{x:.0f}" text-anchor="{anchor}">{text}</tspan>')
    return f'<text class="axis-label" y="{HEIGHT - 2}">{"".join(shown)}</text>'


def _name(run: RunView, *, same_day: bool) -> str:
    text = run.commit[:7] or run.id[:8]
    if _DATED.match(run.started):
        text = run.started[11:16] if same_day else run.started[:10]
    return "".join(letter if letter.isalnum() or letter in "-:" else "." for letter in text)
