"""A cell next to another backend: every output compared, and the first value that differs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, fields, replace
from functools import partial

import numpy as np
import onnx_ir as ir

from qbench.backends import Array, Backend, Executor, Feeds, in_slices, isolated
from qbench.errors import InputError, QbenchError
from qbench.evaluation.artifacts import prepare_runners
from qbench.evaluation.cell_model import model_of, refuse_slow
from qbench.evaluation.request import Comparator, Request
from qbench.evaluation.rewriting import OutputSteps, steps_of
from qbench.evaluation.watched_executor import WatchedExecutor
from qbench.graph import clip_of_codes, is_qdq, node_key, origin_of
from qbench.judging import Compared, FirstNode, holds
from qbench.metrics import Differences, count_differences, unequal
from qbench.subjects import BATCH, Samples

# Where two runs of one quantized graph diverge: the first integers, in the order of the graph, that
# are not equal.
#
#     v_q = Q(v)
#     the first v with v_q(ours) ≠ v_q(theirs); both run the same feeds, tapped at every v_q
#
# Only integers are tapped: an engine that fuses a node with the Q behind it still does so, whereas
# a tapped real value would keep it from that and make it another program.

Outputs = Mapping[str, Array]

_INTEGER_TYPES = frozenset({"INT4", "UINT4", "INT8", "UINT8", "INT16", "UINT16"})


def first_divergence(
    model: ir.Model, feeds: Feeds, runs: Sequence[tuple[Backend, Outputs]], *, threads: int
) -> FirstNode | None:
    """The node with the first integers that differ on ``feeds``, or what is known instead.

    Args:
        model: the quantized graph that both ran.
        feeds: a batch on which their outputs differ.
        runs: both backends with what they answered untapped, ours first.
        threads: of one engine.

    Returns:
        None when the graph computes no integers.
    """
    taps = dict(_integers(model))
    if not taps:
        return None
    try:
        ours, theirs = (_run(model, backend, tuple(taps), feeds, threads) for backend, _ in runs)
    except QbenchError as error:
        return FirstNode(origin="", note=f"its nodes could not be compared: found {error.found}")
    moved = [
        backend.name
        for (backend, plain), seen in zip(runs, (ours, theirs), strict=True)
        if any(unequal(plain[name], seen[name]).any() for name in plain)
    ]
    note = (
        f"tapping changes what {' and '.join(moved)} answers, so this is where the tapped runs "
        "diverge"
        if moved
        else ""
    )
    for name, origin in taps.items():
        found = count_differences(
            ours[name].astype(np.int64), theirs[name].astype(np.int64), np.ones(())
        )
        if found.differing:
            return FirstNode(
                origin=origin, elements=found.differing, steps=found.steps or 0.0, note=note
            )
    return _behind(model, ours, theirs, note)


def _integers(model: ir.Model) -> Iterator[tuple[str, str]]:
    """The computed integers of ``model`` in its order, each with the fp32 node whose result
    they are.
    """
    for node in model.graph:
        if node.op_type == "DequantizeLinear" or not node.outputs:
            continue
        codes = node.outputs[0]
        is_integer = codes.dtype is not None and codes.dtype.name in _INTEGER_TYPES
        if (is_qdq(node) or is_integer) and not clip_of_codes(node):
            yield str(codes.name), _origin(node)


def _origin(node: ir.Node) -> str:
    """The fp32 node whose result ``node`` quantizes: written, or that of what it reads
    when it is a quantizer.
    """
    origin, maker = origin_of(node), None if node.inputs[0] is None else node.inputs[0].producer()
    return (
        origin_of(maker)
        if is_qdq(node) and maker is not None and origin == node_key(node)
        else origin
    )


def _run(
    model: ir.Model, backend: Backend, taps: tuple[str, ...], feeds: Feeds, threads: int
) -> Outputs:
    with ExitStack() as stack:
        executor = stack.enter_context(isolated(backend).prepare(model, taps=taps, threads=threads))
        return in_slices(executor, model).run(feeds)


def _behind(model: ir.Model, ours: Outputs, theirs: Outputs, note: str) -> FirstNode:
    """All integers are equal: the outputs diverge in floats after them, or do not diverge in
    the tapped runs.
    """
    for output in model.graph.outputs:
        name, maker = str(output.name), output.producer()
        if maker is not None and unequal(ours[name], theirs[name]).any():
            return FirstNode(origin=origin_of(maker), note=note)
    return FirstNode(origin="", note=f"the tapped runs do not differ{f'; {note}' if note else ''}")


# Samples that report which of them are fed: a task requests batches and does not name the samples
# in them.


@dataclass(frozen=True, slots=True, eq=False)
class NotedSamples(Samples):
    """Samples that pass the names of each batch to ``note`` before it is used."""

    note: Callable[[Sequence[str]], None]

    @classmethod
    def of(cls, samples: Samples, note: Callable[[Sequence[str]], None]) -> "NotedSamples":
        """``samples``, whose batches are reported to ``note``."""
        return cls(
            **{field.name: getattr(samples, field.name) for field in fields(samples)}, note=note
        )

    def batches(self, size: int = BATCH) -> Iterator[dict[str, Array]]:
        """Feeds, as of any samples."""
        step = self.batch_size(size)
        for place, feeds in enumerate(Samples.batches(self, size)):
            self.note(self.ids[place * step : (place + 1) * step])
            yield feeds


# A cell compared with another backend: both run the same quantized graphs on every batch; every
# output is compared.
#
# The task continues with the cell's own answers, so that both get the same feeds in a decoding loop
# too. Only counts are kept, and the first batch on which the two differ.


@dataclass(frozen=True, slots=True)
class _Divergence:
    """The first batch on which the two differ, with the outputs of both."""

    graph: str
    sample: str
    feeds: Feeds
    ours: Mapping[str, Array]
    theirs: Mapping[str, Array]


class Diverged(Exception):  # noqa: N818 - it ends a run that has said enough
    """Two backends differ, and nothing more is asked."""


class BackendComparison:
    """Counts how a cell's run differs from ``request.comparator``; ``seconds``: of the
    comparator and of comparing.

    Args:
        request: of the cell, with a comparator.
        graphs: its quantized graphs by name.
        stack: closes the prepared executors.
        stops: whether ``compare`` raises ``Diverged`` at the first batch that differs.

    Raises:
        QbenchError: the other backend does not take the graphs, or their outputs have no steps to
            be counted in.
    """

    def __init__(
        self,
        request: Request,
        graphs: Mapping[str, ir.Model],
        stack: ExitStack,
        *,
        stops: bool = False,
    ) -> None:
        assert request.comparator is not None
        self._stops = stops
        self.seconds = 0.0
        self._request, self._graphs, self._timer = request, graphs, request.timer
        self._comparator: Comparator = request.comparator
        self._doing = f"Comparing '{request.cell}' with '{self._comparator.backend.name}'"
        self._outputs = {name: self._outputs_of(model) for name, model in graphs.items()}
        self._counted = Differences()
        self._batch: Sequence[str] = ()
        self._divergence: _Divergence | None = None
        with self._other():
            self._theirs = prepare_runners(
                self._comparator.backend, graphs, stack, threads=request.threads
            )

    def paired(self, runners: Mapping[str, Executor]) -> dict[str, WatchedExecutor]:
        """``runners`` of the cell's graphs; each batch runs on the other backend too."""
        return {
            name: WatchedExecutor(runner, partial(self.compare, name))
            for name, runner in runners.items()
        }

    def noted(self, samples: Samples) -> Samples:
        """``samples`` that report which of them are in each batch."""
        return NotedSamples.of(samples, self._note)

    def finished(self) -> Compared:
        """The counts; where they exceed the criterion, with the node at which the difference
        begins.
        """
        compared, divergence = self.counts, self._divergence
        if divergence is None or holds(compared, self._comparator.criterion):
            return compared
        with self._other():
            return replace(compared, first=self._first(divergence))

    @property
    def counts(self) -> Compared:
        """The counts so far, with the first sample that differs."""
        counted, divergence, comparator = self._counted, self._divergence, self._comparator
        compared = Compared(
            backend=comparator.backend.name,
            environment_class=str(comparator.environment),
            elements=counted.elements,
            differing=counted.differing,
            unbounded=counted.unbounded,
            steps=counted.steps,
            relative=counted.relative,
        )
        if divergence is None:
            return compared
        return replace(compared, graph=divergence.graph, sample=divergence.sample)

    def _first(self, divergence: _Divergence) -> FirstNode | None:
        comparator = self._comparator
        runs = ((self._request.backend, divergence.ours), (comparator.backend, divergence.theirs))
        return first_divergence(
            self._graphs[divergence.graph], divergence.feeds, runs, threads=self._request.threads
        )

    def compare(self, graph: str, feeds: Feeds, ours: Mapping[str, Array]) -> None:
        """Run ``feeds`` on the other backend too and count what differs from ``ours``.

        Raises:
            QbenchError: it does not run them, or answers in other shapes.
            Diverged: they differ, and the comparison is to end there.
        """
        with self._other():
            theirs = self._theirs[graph].run(feeds)
            rows = [
                self._count(output, ours[output.name], theirs) for output in self._outputs[graph]
            ]
        differing = [row for row in rows if row is not None]
        if differing and self._divergence is None:
            sample = self._batch[min(differing)] if self._batch else ""
            kept = {name: np.array(feed) for name, feed in feeds.items()}
            self._divergence = _Divergence(graph, sample, kept, ours, theirs)
            if self._stops:
                raise Diverged

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
        if not ours.ndim or len(ours) != len(self._batch):
            # its first axis does not run over samples
            return 0
        return int(np.argmax(unequal(ours, theirs).reshape(len(ours), -1).any(axis=1)))

    def _note(self, ids: Sequence[str]) -> None:
        self._batch = ids

    def _outputs_of(self, model: ir.Model) -> tuple[OutputSteps, ...]:
        outputs = tuple(steps_of(value) for value in model.graph.outputs)
        limits = self._comparator.criterion
        bare = [output.name for output in outputs if output.scale is None]
        if limits.steps is not None and limits.relative is None and bare:
            raise InputError(
                self._doing,
                found=(
                    f"output '{bare[0]}', which comes out of no DequantizeLinear and so has no "
                    "steps"
                ),
                expected="a limit for every output",
                remedy="Give close_to a limit 'relative' too.",
            )
        return outputs

    @contextmanager
    def _other(self) -> Iterator[None]:
        """Code that runs on the comparator: its time is counted apart, and its errors name it."""
        started = self._timer()
        try:
            yield
        except QbenchError as error:
            raise type(error)(
                self._doing,
                found=error.found,
                expected=error.expected,
                remedy="Choose another backend to compare with, or change the graph for it.",
            ) from error
        finally:
            self.seconds += self._timer() - started


def compare_until_differing(request: Request) -> Compared:
    """The counts of a cell next to its comparator, up to the first batch that differs: whether both
    are equal takes no more samples, no scores and no node.

    Raises:
        QbenchError: one of the two does not run the graphs, or not in useful time.
    """
    assert request.comparator is not None
    refuse_slow(request, request.backend, request.comparator.backend)
    graphs, task = model_of(request).graphs, request.subject.model.task
    with ExitStack() as stack:
        runners = prepare_runners(request.backend, graphs, stack, threads=request.threads)
        comparison = BackendComparison(request, graphs, stack, stops=True)
        pairs = comparison.paired(runners)
        with suppress(Diverged):
            for data in request.subject.data.values():
                task.answer(pairs, comparison.noted(request.shared.samples(data)))
        return comparison.counts
