"""A cell beside another backend: the same quantized graphs on both, every batch on both, every output compared.

The cell's own answers drive the task's loop, so that both see the same feeds in a decoding loop too. Nothing is kept
but counts, and the first batch on which the two differ.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from qbench.backends import Array, Executor, Feeds
from qbench.errors import InputError, QbenchError
from qbench.evaluation.noted_samples import NotedSamples
from qbench.evaluation.output_steps import OutputSteps, steps_of
from qbench.evaluation.parting import first_parting
from qbench.evaluation.request import Beside, Request
from qbench.evaluation.shared import prepare_runners
from qbench.judging import Compared, FirstNode, holds
from qbench.metrics import Differences, count_differences, unequal
from qbench.subjects import Samples


@dataclass(frozen=True, slots=True)
class _Parting:
    """The first batch on which the two differ, with what both answered."""

    graph: str
    sample: str
    feeds: Feeds
    ours: Mapping[str, Array]
    theirs: Mapping[str, Array]


class Comparison:
    """What a cell's run counts beside ``beside.backend``; ``seconds`` is what the other one took, and comparing.

    Args:
        request: of the cell, with ``beside``. graphs: its quantized graphs by name. stack: closes what is prepared.

    Raises:
        QbenchError: the other backend does not take the graphs, or their outputs have no steps to be counted in.
    """

    def __init__(self, request: Request, graphs: Mapping[str, ir.Model], stack: ExitStack) -> None:
        assert request.beside is not None
        self.seconds = 0.0
        self._request, self._graphs, self._timer = request, graphs, request.timer
        self._beside: Beside = request.beside
        self._doing = f"Comparing '{request.cell}' with '{self._beside.backend.name}'"
        self._outputs = {name: self._outputs_of(model) for name, model in graphs.items()}
        self._counted = Differences()
        self._batch: Sequence[str] = ()
        self._parting: _Parting | None = None
        with self._other():
            self._theirs = prepare_runners(self._beside.backend, graphs, stack, threads=request.threads)

    def paired(self, runners: Mapping[str, Executor]) -> dict[str, "_Pair"]:
        """``runners`` of the cell's graphs, each with the other's beside it."""
        return {name: _Pair(self, name, runner) for name, runner in runners.items()}

    def noted(self, samples: Samples) -> Samples:
        """``samples`` whose batches are known by name while they run."""
        return NotedSamples.of(samples, self._note)

    def finished(self) -> Compared:
        """What was counted; where more differs than may, with the node at which it begins."""
        counted, parting, beside = self._counted, self._parting, self._beside
        compared = Compared(
            backend=beside.backend.name,
            environment_class=str(beside.environment),
            elements=counted.elements,
            differing=counted.differing,
            unbounded=counted.unbounded,
            steps=counted.steps,
            relative=counted.relative,
        )
        if parting is None:
            return compared
        compared = replace(compared, graph=parting.graph, sample=parting.sample)
        if holds(compared, beside.criterion):
            return compared
        with self._other():
            return replace(compared, first=self._first(parting))

    def _first(self, parting: _Parting) -> FirstNode | None:
        beside = self._beside
        runs = ((self._request.backend, parting.ours), (beside.backend, parting.theirs))
        return first_parting(self._graphs[parting.graph], parting.feeds, runs, threads=self._request.threads)

    def beside(self, graph: str, feeds: Feeds, ours: Mapping[str, Array]) -> None:
        """Run ``feeds`` on the other backend too and count what differs from ``ours``.

        Raises:
            QbenchError: it does not run them, or answers in other shapes.
        """
        with self._other():
            theirs = self._theirs[graph].run(feeds)
            rows = [self._count(output, ours[output.name], theirs) for output in self._outputs[graph]]
        differing = [row for row in rows if row is not None]
        if differing and self._parting is None:
            sample = self._batch[min(differing)] if self._batch else ""
            kept = {name: np.array(feed) for name, feed in feeds.items()}
            self._parting = _Parting(graph, sample, kept, ours, theirs)

    def _count(self, output: OutputSteps, ours: Array, answers: Mapping[str, Array]) -> int | None:
        """Count one output; the first row of the batch that differs, None: none does."""
        theirs = answers.get(output.name)
        if theirs is None or theirs.shape != ours.shape:
            shape = "none" if theirs is None else f"one of shape {theirs.shape}"
            raise InputError(
                "",
                found=f"output '{output.name}' of shape {ours.shape} here, and {shape} there",
                expected="outputs of one shape",
                remedy="",
            )
        found = count_differences(ours, theirs, output.broadcast(ours.ndim))
        self._counted = self._counted.joined(found)
        if not found.differing:
            return None
        if not ours.ndim or len(ours) != len(self._batch):  # its first axis does not run over samples
            return 0
        return int(np.argmax(unequal(ours, theirs).reshape(len(ours), -1).any(axis=1)))

    def _note(self, ids: Sequence[str]) -> None:
        self._batch = ids

    def _outputs_of(self, model: ir.Model) -> tuple[OutputSteps, ...]:
        outputs = tuple(steps_of(value) for value in model.graph.outputs)
        limits = self._beside.criterion
        bare = [output.name for output in outputs if output.scale is None]
        if limits.steps is not None and limits.relative is None and bare:
            raise InputError(
                self._doing,
                found=f"output '{bare[0]}', which comes out of no DequantizeLinear and so has no steps",
                expected="a limit for every output",
                remedy="Give close_to a limit 'relative' too.",
            )
        return outputs

    @contextmanager
    def _other(self) -> Iterator[None]:
        """The other backend at work: its time is apart, and its errors say that they are its."""
        started = self._timer()
        try:
            yield
        except QbenchError as error:
            raise type(error)(
                self._doing,
                found=error.found,
                expected=error.expected,
                remedy="Choose another backend to compare with, or mend the graph for it.",
            ) from error
        finally:
            self.seconds += self._timer() - started


@dataclass(frozen=True, slots=True)
class _Pair:
    """The executor of one graph; each batch runs on the other backend too."""

    comparison: Comparison
    graph: str
    executor: Executor

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """One batch, as the cell's own backend answers it."""
        ours = self.executor.run(feeds)
        self.comparison.beside(self.graph, feeds, ours)
        return ours
