"""What a task feeds its graphs: an executor that notes every batch, for work that runs the same batches again."""

from collections.abc import Mapping

import numpy as np

from qbench.backends import Array, Executor, Feeds
from qbench.subjects import Samples, Task


class _Recorder:
    """An executor and the batches that it was fed, in order."""

    def __init__(self, executor: Executor) -> None:
        self.batches: list[dict[str, Array]] = []
        self._executor = executor

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """One batch, noted."""
        before = self.batches[-1] if self.batches else {}
        self.batches.append({name: _noted(array, before.get(name)) for name, array in feeds.items()})
        return self._executor.run(feeds)


def _noted(array: Array, before: Array | None) -> Array:
    """A copy of ``array``; what was noted ``before``, where that is the same: a loop feeds much of one batch again."""
    return before if before is not None and np.array_equal(array, before) else np.array(array)


def recorded_feeds(task: Task, runners: Mapping[str, Executor], samples: Samples) -> dict[str, list[dict[str, Array]]]:
    """Graph → the batches that ``task`` feeds it while it answers ``samples``; steps of a decoding loop one by one.

    Args:
        task: drives the graphs.
        runners: the float graphs by name.
        samples: what it answers.
    """
    recorders = {name: _Recorder(executor) for name, executor in runners.items()}
    task.answer(recorders, samples)
    return {name: recorder.batches for name, recorder in recorders.items()}
