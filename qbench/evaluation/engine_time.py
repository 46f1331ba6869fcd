"""The time of a sample on the engine, taken while a cell answers its samples.

Nothing runs a second time for it, but where there are too few batches for a median. Each run of a
graph is timed with the check of its outputs, in the process of the engine; preparation of samples
and the work of the task are not in it. The first run is left out: engines make memory ready in it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from qbench.backends import Array, Executor, Feeds, run_where_prepared
from qbench.metrics import Answers
from qbench.number_text import counted
from qbench.subjects import Samples, Task
from qbench.working import working

_LEAST = 21
"""Runs of a lone graph that a median is taken of; where there are fewer, the last batch runs
again.
"""
_PASSES = 3
"""Runs of which the fastest counts: whatever else the computer does only adds time."""
_EXTRA_S = 0.25
"""Seconds that these further runs may take."""

Timer = Callable[[], float]


@dataclass(slots=True)
class _TimedExecutor:
    """An executor that notes the samples and the seconds of each run."""

    executor: Executor
    timer: Timer
    runs: list[tuple[int, float]] = field(default_factory=list)
    last: Feeds = field(default_factory=dict)

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """One batch."""
        began = self.timer()
        outputs = self.executor.run(feeds)
        self.runs.append((_rows(feeds), self.timer() - began))
        self.last = feeds
        return outputs


def timed_answers(
    task: Task, runners: Mapping[str, Executor], samples: Samples, timer: Timer
) -> tuple[Answers, tuple[float, ...]]:
    """The answers of ``task`` to ``samples``, and the seconds of a sample on the engine.

    Of a lone graph that is fed every sample once the seconds are of runs, of each three the
    fastest, for a median with its interval; of others, such as a decoding loop, they are one
    number: all runs over all samples.

    Raises:
        QbenchError: what the task and the engine raise.
    """
    with working(f"running {counted(len(samples), 'sample')}"):
        return run_where_prepared(partial(_timed, task, samples, timer), runners)


def _timed(
    task: Task, samples: Samples, timer: Timer, runners: Mapping[str, Executor]
) -> tuple[Answers, tuple[float, ...]]:
    timed = {name: _TimedExecutor(one, timer) for name, one in runners.items()}
    answers = task.answer(timed, samples)
    lone = next(iter(timed.values()))
    if len(timed) > 1 or sum(rows for rows, _ in lone.runs) != len(samples):
        spent = sum(seconds for one in timed.values() for _, seconds in one.runs)
        return answers, (spent / len(samples),)
    _top_up(lone)
    runs = lone.runs[1:] or lone.runs
    each = [seconds / rows for rows, seconds in runs if rows]
    if len(each) < _LEAST - 1:
        return answers, tuple(each)
    return answers, tuple(min(each[at : at + _PASSES]) for at in range(0, len(each), _PASSES))


def _top_up(lone: _TimedExecutor) -> None:
    """Run the last batch of ``lone`` again until there are runs enough, or it takes too long."""
    left = _EXTRA_S
    while len(lone.runs) <= _LEAST and left > lone.runs[-1][1]:
        lone.run(lone.last)
        left -= lone.runs[-1][1]


def _rows(feeds: Feeds) -> int:
    """The samples in a batch: the length of its first input that has an axis."""
    return next((len(array) for array in feeds.values() if array.ndim), 0)
