"""What a task feeds its graphs: recorded batch by batch, for work that runs the same batches
again, or folded into profiles.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from qbench.backends import Array, Backend, Executor, Feeds
from qbench.subjects import Samples, Task

if TYPE_CHECKING:
    from qbench.calibration import Profile


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


def task_profiles(
    task: Task,
    graphs: Mapping[str, ir.Model],
    samples: Samples,
    backend: Backend,
    *,
    pipeline: str | None,
    channels: bool,
    threads: int = 1,
) -> "dict[str, Profile]":
    """Graph → the profile of what ``task`` feeds it while it answers ``samples``.

    Args:
        task: drives the graphs.
        graphs: the float graphs by name.
        samples: what it answers.
        backend: whose float arithmetic makes the values.
        pipeline: the canonical passes, as schemas name them; None: they ran already.
        channels: keep the extremes of every channel too.
        threads: of each engine.

    Raises:
        InputError: the task refuses a sample, or a value is not finite.
    """
    from qbench.calibration import prepare_watch

    with ExitStack() as stack:
        watches = {
            name: stack.enter_context(
                prepare_watch(model, backend, threads=threads, pipeline=pipeline, channels=channels)
            )
            for name, model in graphs.items()
        }
        task.answer(watches, samples)
        return {name: watch.profile() for name, watch in watches.items()}
