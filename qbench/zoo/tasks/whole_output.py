"""The answer that is all of an output: each number by its bits, so that equal answers are equal outputs.

ids(i) = the float32 numbers of sample i, flat, read as int32
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from qbench.errors import InputError
from qbench.metrics import AnswerKind, Answers, OutputKind, held_outputs
from qbench.zoo.samples import Samples
from qbench.zoo.tasks.classification import GRAPH
from qbench.zoo.tasks.reading import runner_named
from qbench.zoo.tasks.task import Runner


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeOutput:
    """One graph, one run a batch.

    Args:
        output: which one; None: the graph's first.
    """

    output: str | None = None

    @property
    def name(self) -> str:
        """Every setting in one word."""
        return f"whole output({self.output or 'first output'})"

    @property
    def graphs(self) -> tuple[str, ...]:
        """The one graph."""
        return (GRAPH,)

    def answer(self, runners: Mapping[str, Runner], samples: Samples) -> Answers:
        """The bits of every sample's output, (n, numbers) int32, as a sequence.

        Raises:
            InputError: no such output, not one entry a sample, or a number that is not finite.
        """
        run = runner_named(runners, GRAPH, self.name).run
        rows = []
        for feeds in samples.batches():
            outputs = run(feeds)
            name = next(iter(outputs), "") if self.output is None else self.output
            found = np.asarray(outputs.get(name, ()), np.float32)
            count = len(next(iter(feeds.values())))
            if found.ndim == 0 or len(found) != count or not np.isfinite(found).all():
                raise InputError(
                    f"Taking the outputs of '{samples.data}' for answers",
                    found=f"output '{name}' of shape {found.shape}"
                    + ("" if np.isfinite(found).all() else " with NaN or Inf"),
                    expected=f"finite numbers, with {count} samples along the first axis",
                    remedy="Name an output that the graph has; look for a kernel that overflows.",
                )
            # + 0: a negative zero is the same number as a positive one
            rows.append(np.ascontiguousarray(found + np.float32(0)).reshape(count, -1))
        whole = np.concatenate(rows)
        held = held_outputs(whole, OutputKind.VALUES)
        return Answers(whole.view(np.int32), kind=AnswerKind.SEQUENCE, outputs=held)
