"""What ``qbench eval`` measures: the cells of one model, from the arguments; nothing is printed
but notes.
"""

import argparse
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from qbench.cli.event_counters import CountedBackend, counted_backend
from qbench.cli.loss_parts import count_parts
from qbench.cli.options import (
    choose_backend,
    choose_cache,
    choose_schema,
    names_of,
    refuse_idle_rules,
    say_content_notes,
    say_notes,
    say_output,
    values_of,
    with_ranges_by_hand,
)
from qbench.cli.printing import say
from qbench.errors import QbenchError, StoreError

if TYPE_CHECKING:
    import onnx_ir as ir

    from qbench.backends import Backend
    from qbench.evaluation import RecordingTask, Subject, SubjectArtifacts
    from qbench.judging import LossParts, Measurement
    from qbench.metrics import TokenTable
    from qbench.quantization import Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """The measurements of one model, and what else the command line asks for.

    Args:
        shared: what the cells of the model share.
        measured: fp32 first, then the quantized model; a model that came quantized without its
            float model is alone.
        parts: of the loss, one for each metric against labels; empty without ``--parts``.
        counted: the backend with its counters; None without ``--counters``.
        tokens: the table of a quantized language model against the float one; None: answers are not
            token streams.
    """

    shared: "SubjectArtifacts"
    measured: "Sequence[Measurement]"
    parts: "tuple[LossParts, ...]" = ()
    counted: "CountedBackend | None" = None
    tokens: "TokenTable | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A cell of several that cannot be measured, and the error that says why."""

    error: QbenchError


def measure_models(
    arguments: argparse.Namespace,
) -> Iterator[tuple[argparse.Namespace, Evaluated | Refused]]:
    """The arguments of each cell that ``arguments`` name, and its measurements.

    The cells of one backend share the float model, its fp32 run and its profile, and all cells
    what quantizers of other people made. Of several cells one that cannot be measured is
    ``Refused``; a lone one raises.

    Raises:
        QbenchError: the model, the data or the names are wrong, or the backend does not run the
            model.
    """
    texts = values_of("backend", arguments.backend)
    names = values_of("schema", arguments.schema) if arguments.schema else (None,)
    yield from _cells(arguments, texts, names)


def _cells(
    arguments: argparse.Namespace, texts: Sequence[str], names: Sequence[str | None]
) -> Iterator[tuple[argparse.Namespace, Evaluated | Refused]]:
    """The cells of the backends ``texts`` and the schemas ``names`` (None: in float), as
    ``measure_models``.
    """
    backends = {text: choose_backend(text, arguments.python) for text in texts}
    schemas = {name: _schema(name, arguments) for name in names}
    is_lone = len(texts) * len(names) == 1
    first: _Bench | None = None
    for text, backend in backends.items():
        one = argparse.Namespace(**{**vars(arguments), "backend": text})
        bench = _Bench(one, backend, first=first)
        first = first or bench
        for name, schema in schemas.items():
            cell = argparse.Namespace(**{**vars(one), "schema": name})
            try:
                yield cell, bench.measured(cell, schema)
            except QbenchError as error:
                # what is wrong with the cache is wrong for every cell
                if is_lone or isinstance(error, StoreError):
                    raise
                yield cell, Refused(error=error)


def measure_model(arguments: argparse.Namespace) -> Evaluated:
    """The measurements of the one backend, and of the one schema or none, that ``arguments`` name.

    Raises:
        QbenchError: as ``measure_models``.
    """
    ((_, found),) = _cells(arguments, (arguments.backend,), (arguments.schema or None,))
    assert isinstance(found, Evaluated)
    return found


def _schema(name: str | None, arguments: argparse.Namespace) -> "Schema | None":
    return None if name is None else with_ranges_by_hand(choose_schema(name), arguments)


class _Bench:
    """One model on one backend, under one schema after the other."""

    def __init__(
        self, arguments: argparse.Namespace, backend: "Backend", *, first: "_Bench | None"
    ) -> None:
        from qbench.evaluation import RecordingTask, subject_artifacts

        self._counted = None
        if arguments.counters:
            self._counted = counted_backend(backend)
            backend = self._counted
        self._backend = backend
        subject = _subject(arguments, is_first=first is None)
        self._kept = RecordingTask(subject.model.task)
        self._subject = replace(subject, model=replace(subject.model, task=self._kept))
        self.shared = subject_artifacts(self._subject, backend, choose_cache(arguments.cache))
        if first is not None:
            self.shared.made_by_others = first.shared.made_by_others
        self._fp32: Measurement | None = None
        self._is_first = first is None

    def measured(self, arguments: argparse.Namespace, schema: "Schema | None") -> Evaluated:
        """The float model and, when there is a schema or the model came quantized, the quantized
        one.

        Raises:
            QbenchError: as ``measure_models``.
        """
        from qbench.judging import FP32

        shared, backend, subject = self.shared, self._backend, self._subject
        quantized = _name_of_quantized(arguments, schema)
        if quantized is not None:
            shared.require_float()
        if schema is not None:
            self._refuse_schema_without_effect(arguments.model, schema)
        if quantized is None:
            alone = _measure(shared, backend, None, FP32, arguments)
            measured = [_as_it_came(alone, shared.graphs.values())]
        else:
            if self._fp32 is None:
                self._fp32 = _measure(shared, shared.fp32_backend, None, FP32, arguments)
            measured = [
                self._fp32,
                _measure(shared, backend, schema, quantized, arguments),
            ]
        if self._is_first:
            say_content_notes(shared)
            self._is_first = False
        if arguments.backend.startswith("answers:") and not arguments.metrics:
            _say_left_out(subject, arguments.backend)
        parts: tuple[LossParts, ...] = ()
        if arguments.parts:
            parts = _parts(shared, backend, schema, self._kept, arguments.threads)
        return Evaluated(
            shared=shared,
            measured=measured,
            parts=parts,
            counted=self._counted,
            tokens=None if quantized is None else _tokens(shared, self._kept),
        )

    def _refuse_schema_without_effect(self, model: str, schema: "Schema") -> None:
        from qbench.quantization import refuse_all_float

        made = self.shared.quantized(schema, self._backend.capabilities)
        refuse_idle_rules(schema.name, model, made.idle_rules)
        refuse_all_float(model, schema.name, made.plans.values())


def _tokens(shared: "SubjectArtifacts", kept: "RecordingTask") -> "TokenTable | None":
    from qbench.metrics import TokenStreams, token_table

    if not isinstance(kept.last, TokenStreams):
        return None
    ((name, data),) = shared.subject.data.items()
    reference = shared.reference()[name]
    assert isinstance(reference, TokenStreams)
    return token_table(reference, kept.last, data.drawn_from)


def _subject(arguments: argparse.Namespace, *, is_first: bool) -> "Subject":
    from qbench.evaluation import build_subject

    subject = build_subject(
        arguments.fp32 or arguments.model,
        arguments.data,
        arguments.calib,
        names_of(arguments.metrics),
        arguments.calib_count,
        given=arguments.model if arguments.fp32 else None,
        output=arguments.output,
    )
    if arguments.backend.startswith("answers:") and not arguments.metrics:
        subject = _with_answered_metrics(subject, arguments.backend)
    if is_first:
        say_notes(subject.model, next(iter(subject.data.values())))
        say_output(subject.model)
    return subject


def _with_answered_metrics(subject: "Subject", backend: str) -> "Subject":
    """``subject`` with those of its usual metrics that the classes of recorded answers are
    enough for.
    """
    from qbench.backends import Recorded

    recorded = choose_backend(backend)
    assert isinstance(recorded, Recorded)
    named = recorded.recorded().named_classes()
    outputs = next(iter(subject.model.graphs.values()))().graph.outputs
    shape = outputs[0].shape if outputs else None
    if named is None or (shape is not None and len(shape) and shape[-1] == named):
        # every class is named
        return subject
    return replace(
        subject, metrics=tuple(use for use in subject.metrics if use.metric.depth <= named)
    )


def _say_left_out(subject: "Subject", backend: str) -> None:
    """Which of the usual metrics recorded answers are not enough for."""
    task = subject.model.task
    usual = getattr(getattr(task, "__wrapped__", task), "usual_metrics", ())
    names = [use.name for use in subject.metrics]
    if all(data.labels is None for data in subject.data.values()):
        return
    if left := [name for name in usual if name not in names]:
        say(
            f"left out: {', '.join(left)}; '{backend.removeprefix('answers:')}' names fewer "
            "classes of each sample"
        )


def _name_of_quantized(arguments: argparse.Namespace, schema: "Schema | None") -> str | None:
    """The schema of the cell that is compared with fp32; None: the model is measured alone."""
    from qbench.judging import GIVEN, RECORDED

    if arguments.backend.startswith("answers:"):
        return RECORDED
    if schema is not None:
        return schema.name
    if arguments.fp32:
        return GIVEN
    return None


def _measure(
    shared: "SubjectArtifacts",
    backend: "Backend",
    schema: "Schema | None",
    name: str,
    arguments: argparse.Namespace,
) -> "Measurement":
    from qbench.evaluation import environment_here, measure_cell
    from qbench.judging import Cell

    cell = Cell("eval", shared.subject.model.id, backend.name, name)
    return measure_cell(
        shared,
        backend,
        schema,
        cell=cell,
        environment=environment_here(backend),
        threads=arguments.threads,
        most_samples=getattr(arguments, "most_samples", 0),  # of a verb that lists samples
    )


def _as_it_came(alone: "Measurement", graphs: "Collection[ir.Model]") -> "Measurement":
    """``alone``, named as the measurement of a quantized model where one of its graphs came
    quantized.
    """
    from qbench.graph import quantized_cache
    from qbench.judging import GIVEN

    with_cache = [graph for graph in graphs if quantized_cache(graph)]
    if with_cache:
        alone = _with_cache(alone, with_cache)
    if with_cache or any(_has_quantized_products(graph) for graph in graphs):
        return replace(alone, cell=replace(alone.cell, schema=GIVEN))
    return alone


def _has_quantized_products(model: "ir.Model") -> bool:
    from qbench.graph import Form, form_of

    if form_of(model) is Form.FLOAT:
        return False
    # loaded only for the few models that may be
    from qbench.quantization import has_quantized_products

    return has_quantized_products(model)


def _with_cache(alone: "Measurement", graphs: "Sequence[ir.Model]") -> "Measurement":
    """``alone``, with what the cache of ``graphs`` holds, and what else they quantize."""
    from qbench.evaluation import Quantized, cache_words
    from qbench.quantization import read_plan

    named = {str(place): graph for place, graph in enumerate(graphs)}
    read = Quantized(named, {name: read_plan(graph) for name, graph in named.items()})
    return replace(
        alone,
        cache=cache_words(read),
        integer_macs=read.integer_macs,
        weight_macs=read.weight_macs if read.is_of_weights_alone else None,
    )


def _parts(
    shared: "SubjectArtifacts",
    backend: "Backend",
    schema: "Schema | None",
    kept: "RecordingTask",
    threads: int,
) -> "tuple[LossParts, ...]":
    made = shared.given if schema is None else shared.quantized(schema, backend.capabilities)
    return count_parts(shared, made.models, kept, threads=threads)
