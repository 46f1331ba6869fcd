"""What a task feeds its graphs: an executor that reports every batch, for work that runs the same
batches again.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from qbench.backends import Array, Executor, Feeds
from qbench.subjects import Samples, Task


@dataclass(frozen=True, slots=True)
class WatchedExecutor:
    """An executor that passes each batch and its outputs to ``seen`` before the task gets them."""

    executor: Executor
    seen: Callable[[Feeds, Mapping[str, Array]], None]

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """One batch."""
        outputs = self.executor.run(feeds)
        self.seen(feeds, outputs)
        return outputs


def recorded_feeds(
    task: Task, runners: Mapping[str, Executor], samples: Samples
) -> dict[str, list[dict[str, Array]]]:
    """Graph → the batches that ``task`` feeds it while it answers ``samples``; steps of a
    decoding loop one by one.

    Args:
        task: drives the graphs.
        runners: the float graphs by name.
        samples: what it answers.
    """
    batches: dict[str, list[dict[str, Array]]] = {name: [] for name in runners}

    def record(graph: str, feeds: Feeds, _: Mapping[str, Array]) -> None:
        before = batches[graph][-1] if batches[graph] else {}
        kept = {}
        for name, array in feeds.items():
            # a loop feeds much of one batch again: equal arrays are kept once
            known = before.get(name)
            kept[name] = (
                known if known is not None and np.array_equal(array, known) else np.array(array)
            )
        batches[graph].append(kept)

    task.answer(
        {name: WatchedExecutor(one, partial(record, name)) for name, one in runners.items()},
        samples,
    )
    return batches
