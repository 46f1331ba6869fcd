"""A cell's quantized graphs after a pipeline of passes, and what each pass did to outputs."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial, reduce

import numpy as np
import onnx_ir as ir

from qbench.backends import Array, Backend, Executor, Feeds
from qbench.evaluation.artifacts import (
    Quantized,
    SubjectArtifacts,
    prepare_runners,
)
from qbench.evaluation.watched_executor import WatchedExecutor
from qbench.graph import constant_value, int_attribute
from qbench.judging import PassNote, RewriteNote
from qbench.metrics import Differences, count_differences
from qbench.passes import EffectKind, PassAccount, Pipeline, Policy, Rewritten, run_pipeline
from qbench.storage import digest_plain
from qbench.subjects import Samples

# What runs behind the quantizer, as one replaceable part of a request.


@dataclass(frozen=True, slots=True)
class Rewriting:
    """The pipeline that runs behind the quantizer, and what it may do to numbers."""

    pipeline: Pipeline
    policy: Policy

    @property
    def digest(self) -> str:
        """Of the pipeline and the policy."""
        return digest_plain([self.pipeline.digest, self.policy.value])


# The size of an output's steps: the scale of the DequantizeLinear that computes it; 1 where it is
# integers.


@dataclass(frozen=True, slots=True)
class OutputSteps:
    """A graph output and the size of its steps: one, one a slice of ``axis``, or None."""

    name: str
    scale: Array | None
    axis: int

    def broadcast(self, rank: int) -> Array | None:
        """Sizes that broadcast against an array of ``rank`` axes."""
        if self.scale is None or not self.scale.ndim:
            return self.scale
        return self.scale.reshape([-1 if axis == self.axis % rank else 1 for axis in range(rank)])


def steps_of(value: ir.Value) -> OutputSteps:
    """``value`` with its steps."""
    name, maker = str(value.name), value.producer()
    if value.dtype is not None and value.dtype.is_integer():
        return OutputSteps(name, np.ones(()), 0)
    if (
        maker is None
        or maker.op_type != "DequantizeLinear"
        or int_attribute(maker, "block_size", 0)
    ):
        return OutputSteps(name, None, 0)
    scale = constant_value(maker.inputs[1])
    if scale is not None and scale.size == 1:
        scale = scale.reshape(())
    return OutputSteps(name, scale, int_attribute(maker, "axis", 1))


# A cell's quantized graphs after a pipeline of passes, and what each pass that is not exact did to
# their outputs.
#
# The drift of a pass is what it changes in these outputs when all other passes run too: the graphs
# of the whole pipeline and of the pipeline without it run the same batches.

_SAMPLES = 64
"""That the drift of a pass is counted on."""


@dataclass(frozen=True, slots=True, eq=False)
class RewrittenGraphs:
    """What ``rewriting`` made of the graphs ``before``; ``done`` by name of the graph."""

    before: Quantized
    rewriting: Rewriting
    done: Mapping[str, Rewritten]

    @property
    def quantized(self) -> Quantized:
        """The graphs, with the plans they were written from."""
        return replace(self.before, models={name: one.model for name, one in self.done.items()})

    @property
    def accounts(self) -> dict[str, list[PassAccount]]:
        """Pass → what it did to each graph that it changed."""
        found: dict[str, list[PassAccount]] = {}
        for one in self.done.values():
            for account in one.accounts:
                if account.changed:
                    found.setdefault(account.name, []).append(account)
        return found

    def without(self, name: str) -> "RewrittenGraphs":
        """The same without the pass called ``name``."""
        others = tuple(one for one in self.rewriting.pipeline.passes if one.name != name)
        return rewrite_quantized(self.before, replace(self.rewriting, pipeline=Pipeline(others)))


def rewrite_quantized(quantized: Quantized, rewriting: Rewriting) -> RewrittenGraphs:
    """The graphs of ``quantized`` after ``rewriting``.

    Raises:
        PassError: a pass was stopped.
        QbenchError: a pass refused a graph.
    """
    models = quantized.models.items()
    done = {
        name: run_pipeline(graph, rewriting.pipeline, rewriting.policy) for name, graph in models
    }
    return RewrittenGraphs(quantized, rewriting, done)


def rewrite_note(
    graphs: RewrittenGraphs, shared: SubjectArtifacts, backend: Backend, *, threads: int
) -> RewriteNote:
    """The account of a cell's rewriting, with the drift of every pass that is not exact and
    changed something.

    Args:
        graphs: of the cell.
        shared: of its subject.
        backend, threads: of the cell, which run the first samples of its main data once more a
            pass.
    """
    main = shared.samples(next(iter(shared.subject.data.values())))
    labels = None if main.labels is None else main.labels[:_SAMPLES]
    few = replace(main, ids=main.ids[:_SAMPLES], labels=labels)
    notes = []
    for name, accounts in graphs.accounts.items():
        first, removed = accounts[0], sum(one.removed for one in accounts)
        note = PassNote(name=first.spelled, effect=str(first.effect), removed=removed)
        if first.effect.kind is not EffectKind.EXACT:
            with ExitStack() as stack:
                ours, theirs = (
                    prepare_runners(backend, one.quantized.models, stack, threads=threads)
                    for one in (graphs, graphs.without(name))
                )
                drift = _compared(graphs, ours, theirs, few, shared)
            note = replace(
                note,
                elements=drift.elements,
                differing=drift.differing,
                steps=drift.steps,
                relative=drift.relative,
            )
        notes.append(note)
    return RewriteNote(
        policy=graphs.rewriting.policy.value,
        nodes=sum(len(model.graph) for model in graphs.before.models.values()),
        passes=tuple(notes),
        declined=sum(len(one.declined) for one in graphs.done.values()),
        samples=len(few) if any(one.elements for one in notes) else 0,
    )


def _compared(
    graphs: RewrittenGraphs,
    ours: Mapping[str, Executor],
    theirs: Mapping[str, Executor],
    samples: Samples,
    shared: SubjectArtifacts,
) -> Differences:
    """What all outputs differ while the task answers ``samples`` by ``ours``."""
    outputs = {
        name: tuple(map(steps_of, one.model.graph.outputs)) for name, one in graphs.done.items()
    }
    counted: list[Differences] = []

    def count(graph: str, feeds: Feeds, found: Mapping[str, Array]) -> None:
        others = theirs[graph].run(feeds)
        for output in outputs[graph]:
            one = found[output.name]
            counted.append(count_differences(one, others[output.name], output.broadcast(one.ndim)))

    shared.subject.model.task.answer(
        {name: WatchedExecutor(ours[name], partial(count, name)) for name in outputs}, samples
    )
    return reduce(Differences.joined, counted, Differences())
