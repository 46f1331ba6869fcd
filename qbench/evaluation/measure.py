"""One cell from its request to its measurement: quantize, prepare, answer, count."""

import contextlib
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from qbench.backends import Backend, HasRuleDigests, Recorded, as_backend, get_backend, recording
from qbench.errors import InputError, UnsupportedError, require_count, require_type
from qbench.evaluation.artifacts import Quantized, SubjectArtifacts, answered, executed_macs, prepare_runners
from qbench.evaluation.recorded import environment_of, recorded_answers
from qbench.evaluation.repeats import measure_repeats, picked_answers
from qbench.evaluation.request import Comparator, Request
from qbench.evaluation.rewriting import Rewriting, rewrite_note, rewrite_quantized
from qbench.evaluation.sequential import can_stop, run_until_decided
from qbench.evaluation.subject import MetricUse, Subject
from qbench.evaluation.versus_backend import BackendComparison
from qbench.graph import Form, constant_bytes, values_by_name
from qbench.host import processor_class
from qbench.judging import FP32, GIVEN, RECORDED, Calibrated, Cell, EnvironmentClass, Measurement
from qbench.metrics import Against, Answers, Score, get_metric, packed_answers, score, slice_scores
from qbench.number_text import counted
from qbench.storage import Cache, digest_plain
from qbench.subjects import Dataset, Samples, task_answers
from qbench.working import working

if TYPE_CHECKING:
    import onnx_ir as ir

    from qbench.quantization import Schema

FLOAT_BACKEND = "ort-cpu"
"""Runs the float model next to a backend that runs none."""

LISTED = 20
"""How many changed samples a measurement names; it counts them all."""

_MEASURING = "Measuring a cell"

_RANGE_DIGITS = 5
"""Of a calibrated range: so few are the same on every computer."""


def measure_cell(
    subject: Subject | SubjectArtifacts,
    backend: Backend | str,
    schema: "Schema | str | None",
    *,
    passes: Rewriting | None = None,
    comparator: Comparator | None = None,
    cell: Cell | None = None,
    reference: Mapping[str, Answers] | None = None,
    environment: EnvironmentClass | None = None,
    threads: int = 1,
    repeats: int = 1,
    timer: Callable[[], float] = time.perf_counter,
) -> Measurement:
    """Measure one cell: ``subject`` under ``schema`` on ``backend``.

    Args:
        subject: what is measured, for instance ``qbench.evaluation.build_subject("net.onnx", "test.npz", "train.npz",
            [], None)``; ``SubjectArtifacts`` of it where several cells are measured, so that they share what they can.
        backend: a backend or its name.
        schema: a schema or its name; None: the model without quantizing it.
        passes: rewrites of the quantized graph.
        comparator: another backend that the cell is compared with.
        cell: the id of the measurement; None: made from the names of subject, backend and schema.
        reference: fp32 answers by data set, which losses and gains are counted against; None: today's fp32 run.
        environment: the class of results of ``backend`` on this computer; None: found out.
        threads: of one engine.
        repeats: how many times it runs, each time with the samples in another order and other batches; it runs twice
            where the second run gives the same answers.
        timer: seconds on a monotonic clock.

    Example:
        As ``qbench eval``; of files: ``build_subject("net.onnx", "test.npz", "train.npz", [], 64)``.

        >>> from qbench import measure_cell
        >>> from qbench.evaluation import build_subject
        >>> subject = build_subject("digits_cnn", "digits_test", "digits_train", ["top1", "agreement"], 64)
        >>> measured = measure_cell(subject, "ort-cpu", "w8a8_asym_pc")
        >>> top1 = measured.score("top1")
        >>> top1.n, top1.value > 0.95, top1.reference_value > 0.95
        (360, True, True)
        >>> top1.reference_hits - top1.hits == top1.losses - top1.gains
        True

    Raises:
        UnsupportedError: the backend does not run such a graph, or not in useful time.
        InputError: an unknown name, or a metric that is not for the answers or the labels that there are.
        QbenchError: anything else that has a sentence.
    """
    require_count(_MEASURING, "threads", threads)
    require_count(_MEASURING, "repeats", repeats)
    if passes is not None:
        remedy = "Make one with qbench.evaluation.Rewriting."
        require_type(_MEASURING, passes, Rewriting, expected="a Rewriting, or None for no passes", remedy=remedy)
    backend = as_backend(backend)
    if schema is not None:
        from qbench.quantization import as_schema

        schema = as_schema(schema)
    shared = subject_artifacts(subject, backend)
    as_it_is = RECORDED if isinstance(backend, Recorded) else FP32 if shared.subject.given is None else GIVEN
    name = as_it_is if schema is None else schema.name
    return measure_request(
        Request(
            cell=cell or Cell("measure", shared.subject.model.id, backend.name, name),
            shared=shared,
            backend=backend,
            schema=schema,
            reference=shared.reference() if reference is None else reference,
            environment=environment or environment_here(backend, threads=threads),
            rewriting=passes,
            threads=threads,
            comparator=comparator,
            repeats=repeats,
            timer=timer,
        )
    )


def environment_here(backend: Backend, *, threads: int = 1) -> EnvironmentClass:
    """The class of results of ``backend`` with so many threads on this computer."""
    return environment_of(backend, processor_class(), threads=threads)


def subject_artifacts(
    subject: Subject | SubjectArtifacts, backend: Backend, cache: Cache | None = None
) -> SubjectArtifacts:
    """What cells of ``subject`` on ``backend`` share; artifacts are returned as they are.

    The fp32 reference is that of this very backend where it runs float models and gives the values inside them, so that
    losses and gains are those of quantization; else that of ``FLOAT_BACKEND``.

    Raises:
        InputError: it is not a subject.
    """
    if isinstance(subject, SubjectArtifacts):
        return subject
    remedy = "Make one with qbench.evaluation.build_subject."
    require_type(_MEASURING, subject, Subject, expected="a Subject: a model with its data and metrics", remedy=remedy)
    can = backend.capabilities
    float_backend = backend if Form.FLOAT in can.forms and can.taps else get_backend(FLOAT_BACKEND)
    return SubjectArtifacts(subject, cache or Cache.default(), float_backend, str(environment_here(float_backend)))


def measure_request(request: Request) -> Measurement:
    """What ``measure_cell`` does once its arguments are together: for cells that are run again with one part exchanged.

    Raises:
        QbenchError: as ``measure_cell``.
    """
    with working(f"measuring {request.cell}"):
        return _measured(request)


def _measured(request: Request) -> Measurement:
    backend, schema, shared = request.backend, request.schema, request.shared
    subject = shared.subject
    task, timer = subject.model.task, request.timer
    reference = {name: task_answers(task, stored) for name, stored in request.reference.items()}
    if isinstance(backend, Recorded):
        _refuse_repeats(request)
        return _recorded(request, reference)
    others = () if request.comparator is None else (request.comparator.backend,)
    for runs in (backend, *others, *(() if request.rival is None else (request.rival,))):
        _refuse_slow(subject, runs, shared.macs)
    started = timer()
    quantized, rewritten = None, None
    if request.cell.is_given:
        quantized = shared.given
    elif schema is not None:
        quantized = shared.quantized(schema, backend.capabilities)
    if quantized is not None and request.rewriting is not None:
        done = rewrite_quantized(quantized, request.rewriting)
        quantized, rewritten = done.quantized, rewrite_note(done, shared, backend, threads=request.threads)
    graphs = shared.graphs if quantized is None else quantized.models
    reported = quantized is not None and not (schema and schema.weights_only)
    with ExitStack() as stack:
        runs = recording(backend) if reported else backend
        runners = prepare_runners(runs, graphs, stack, threads=request.threads)
        samples = {name: shared.samples(dataset) for name, dataset in subject.data.items()}
        prepared = timer()
        comparison = None if request.comparator is None else BackendComparison(request, graphs, stack)
        run = run_until_decided(request, runners, samples, reference) if can_stop(request, reference) else None
        if run is not None:
            answers = dict(run.answers)
        elif comparison is None:
            answers = {name: answered(task, runners, data) for name, data in samples.items()}
        else:
            pairs = comparison.paired(runners)
            answers = {name: task.answer(pairs, comparison.noted(data)) for name, data in samples.items()}
        compared = None if comparison is None else comparison.finished()
        finished = timer()
        answers = {name: shared.with_likelihoods(given, runners, subject.data[name]) for name, given in answers.items()}
        rival = {} if request.rival is None else _answers_of(request, request.rival, graphs, samples)
        share, in_float = executed_macs(runners, quantized) if quantized is not None and reported else (None, ())
    stopped = None if run is None else run.stopped
    whole, ids, data = reference, {name: one.ids for name, one in samples.items()}, subject.data
    if run is not None and stopped is not None:
        reference = {name: picked_answers(task, one, run.rows[name]) for name, one in whole.items()}
        data = {name: one.pick(run.rows[name]) for name, one in data.items()}
        ids = {name: one.sample_ids for name, one in data.items()}
    today = _of_today(request, reference)
    scores = tuple(_score(request, use, answers[use.data], today[use.data], data[use.data]) for use in subject.metrics)
    began = timer()
    repeats = measure_repeats(request, graphs, samples, first=answers, reference=reference, scores=scores)
    again = {} if repeats is None else {"repeats": round(timer() - began, 3)}
    keeps = request.keeps_answers or (repeats is not None and repeats.is_noisy)
    changed = {name: _changed(ids[name], answers[name], reference[name]) for name in answers}
    of_rules = backend.digests if isinstance(backend, HasRuleDigests) else {}
    pipeline = {} if request.rewriting is None else {"pipeline": request.rewriting.digest}
    return Measurement(
        cell=request.cell,
        environment=request.environment,
        scores=scores,
        digests=_digests(shared, quantized, answers, whole, part=stopped is not None) | dict(of_rules) | pipeline,
        changed={name: ids[:LISTED] for name, ids in changed.items()},
        changed_count={name: len(ids) for name, ids in changed.items()},
        ties={name: given.ties for name, given in answers.items()},
        macs=shared.macs,
        integer_macs=0.0 if quantized is None else quantized.integer_macs,
        weight_macs=quantized.weight_macs if quantized and schema and schema.weights_only else None,
        refusals=() if quantized is None else quantized.refusals,
        run_in_float=() if quantized is None else quantized.run_in_float,
        executed_macs=share,
        executed_in_float=in_float,
        made=_made(request),
        idle_rules=() if quantized is None else quantized.idle_rules,
        constant_bytes=sum(map(constant_bytes, graphs.values())),
        seconds=_seconds(started, prepared, finished, comparison) | again,
        compared=compared,
        kept={name: packed_answers(given) for name, given in answers.items()} if keeps else {},
        rewritten=rewritten,
        calibrated=_calibrated(request),
        repeats=repeats,
        stopped=stopped,
        drawn={} if run is None else run.rows,
        rival=tuple(
            _score(request, use, answers[use.data], rival[use.data])
            for use in subject.metrics
            if rival and use.metric.against is Against.LABELS and not use.metric.of_run
        ),
        recovery=_recovery(request, answers) if request.recovers else (),
        slices=_slices(request, answers, today) if request.slices else {},
    )


def _refuse_repeats(request: Request) -> None:
    """Check that answers that are only read are not asked for again.

    Raises:
        InputError: they are.
    """
    if request.repeats > 1:
        raise InputError(
            f"Measuring '{request.cell}'",
            found=f"repeats = {request.repeats} for answers that were recorded elsewhere",
            expected="1, since nothing is run here: every reading is the same",
            remedy=f'Set repeats = {{ "{request.backend.name}" = 1 }} for these cells.',
        )


def _recorded(request: Request, reference: Mapping[str, Answers]) -> Measurement:
    """The cell of answers that were recorded elsewhere: they are read and counted, and nothing is run."""
    started, shared = request.timer(), request.shared
    answers, today = recorded_answers(request, reference), _of_today(request, reference)
    subject = shared.subject
    changed = {name: _changed(subject.data[name].sample_ids, given, reference[name]) for name, given in answers.items()}
    return Measurement(
        cell=request.cell,
        environment=request.environment,
        scores=tuple(_score(request, use, answers[use.data], today[use.data]) for use in subject.metrics),
        digests=_digests(shared, None, answers, reference),
        changed={name: ids[:LISTED] for name, ids in changed.items()},
        changed_count={name: len(ids) for name, ids in changed.items()},
        ties={name: given.ties for name, given in answers.items()},
        macs=shared.macs,
        seconds={"prepare": 0.0, "inference": round(request.timer() - started, 3)},
        kept={name: packed_answers(given) for name, given in answers.items()} if request.keeps_answers else {},
        recovery=_recovery(request, answers) if request.recovers else (),
        slices=_slices(request, answers, today) if request.slices else {},
    )


def _answers_of(
    request: Request, backend: Backend, graphs: "Mapping[str, ir.Model]", samples: Mapping[str, Samples]
) -> Mapping[str, Answers]:
    """The answers of ``backend`` to the same samples by the same quantized graphs.

    Raises:
        InputError: no metric of the subject counts against labels, so that there is no loss to compare.
    """
    if not any(use.metric.against is Against.LABELS for use in request.subject.metrics):
        raise InputError(
            f"Comparing '{request.cell}' with '{backend.name}'",
            found="no metric that counts against labels",
            expected="one, for 'no_worse_than' compares losses",
            remedy="Add a metric such as top1, or use 'close_to'.",
        )
    with ExitStack() as stack:
        runners = prepare_runners(backend, graphs, stack, threads=request.threads)
        return {name: answered(request.subject.model.task, runners, data) for name, data in samples.items()}


def _refuse_slow(subject: Subject, backend: Backend, macs: int) -> None:
    limit = backend.capabilities.max_macs
    if limit is not None and macs > limit:
        raise UnsupportedError(
            f"Running '{subject.model.id}' on '{backend.name}'",
            found=f"{macs / 1e6:.0f} million multiply-accumulates a sample",
            expected=f"at most {limit / 1e6:.0f} million, which it runs in useful time",
            remedy="Choose another backend for this model.",
        )


def _seconds(
    started: float, prepared: float, finished: float, comparison: BackendComparison | None
) -> dict[str, float]:
    """Wall clock of a cell; what the other backend took is apart, so that a cell's own time can be followed."""
    seconds = {"prepare": round(prepared - started, 3), "inference": round(finished - prepared, 3)}
    if comparison is None:
        return seconds
    other = comparison.seconds
    return seconds | {"inference": round(finished - prepared - other, 3), "compared": round(other, 3)}


def _of_today(request: Request, reference: Mapping[str, Answers]) -> Mapping[str, Answers]:
    """``reference``, with what only a run has where a metric counts that: today's outputs, ties and likelihoods."""
    asked = {use.data for use in request.shared.subject.metrics if use.metric.of_run}
    if not asked:
        return reference
    run = request.shared.reference()
    return {
        **reference,
        **{
            name: reference[name].with_run(
                outputs=run[name].outputs, tied=run[name].tied, likelihoods=run[name].likelihoods
            )
            for name in asked
        },
    }


def _score(
    request: Request, use: MetricUse, answers: Answers, reference: Answers, data: Dataset | None = None
) -> Score:
    data = data or request.shared.subject.data[use.data]
    labels = data.labels
    try:
        return score(use.metric, answers, labels=labels, reference=reference, name=use.name, sources=data.drawn_from)
    except ValueError as error:
        fitting = _fitting(use.metric.name, answers, reference, data)
        remedy = f"Choose {' or '.join(fitting)} instead" if fitting else "Leave the metric out"
        if labels is not None and data.whole_labels is None:
            remedy += ", or give the model the task of such labels: model_from_file(path, task=…)"
        raise InputError(
            f"Scoring '{request.shared.subject.model.id}' on '{use.data}' with metric '{use.name}'",
            found=str(error),
            expected="a metric that counts what this model answers, and data that it can count",
            remedy=f"{remedy}.",
        ) from error


def _fitting(wrong: str, answers: Answers, reference: Answers, data: Dataset) -> list[str]:
    """The names of the usual metrics of ``answers`` that can count them, other than ``wrong``."""
    found = []
    usual = answers.usual_metrics if data.labels is not None else ()
    for name in (*usual, "agreement"):
        with contextlib.suppress(ValueError):
            if name != wrong:
                score(get_metric(name), answers, labels=data.labels, reference=reference, name=name)
                found.append(name)
    return found


def _recovery(request: Request, answers: Mapping[str, Answers]) -> tuple[Score, ...]:
    """The scores against labels, counted against the fp32 run of today; empty where there is no float model.

    Raises:
        InputError: there is no metric against labels.
    """
    uses = _against_labels(request, "recovery")
    if request.cell.is_given and request.shared.subject.given is None:
        uses = []
    run = request.shared.reference()
    return tuple(_score(request, use, answers[use.data], run[use.data]) for use in uses)


def _slices(
    request: Request, answers: Mapping[str, Answers], reference: Mapping[str, Answers]
) -> dict[str, tuple[Score, ...]]:
    """The scores against labels of each part of the data.

    Raises:
        InputError: the data has no such parts, or there is no metric against labels that is a sum over samples.
    """
    found: dict[str, list[Score]] = {}
    for use in _against_labels(request, "slices"):
        data = request.subject.data[use.data]
        scores = slice_scores(
            use.metric,
            answers[use.data],
            labels=data.labels,
            reference=reference[use.data],
            slices=data.slices(request.slices),
            name=use.name,
            sources=data.drawn_from,
        )
        for name, one in scores.items():
            found.setdefault(name, []).append(one)
    if not found:
        raise InputError(
            f"Measuring '{request.cell}'",
            found="'slices', and metrics whose value is no sum over samples, which no slice has a share of",
            expected="a metric that counts every sample alone",
            remedy="Add a metric such as top1, or leave 'slices' out.",
        )
    return {name: tuple(scores) for name, scores in found.items()}


def _against_labels(request: Request, key: str) -> list[MetricUse]:
    uses = [use for use in request.subject.metrics if use.metric.against is Against.LABELS]
    if not uses:
        raise InputError(
            f"Measuring '{request.cell}'",
            found=f"'{key}', and no metric that counts against labels",
            expected="one, in which something can be lost",
            remedy=f"Add a metric such as top1, or leave '{key}' out.",
        )
    return uses


def _digests(
    shared: SubjectArtifacts,
    quantized: Quantized | None,
    answers: Mapping[str, Answers],
    reference: Mapping[str, Answers],
    *,
    part: bool = False,
) -> dict[str, str]:
    digests = shared.identity()
    if quantized is not None:
        digests["quantized"] = quantized.digest
    digests |= {f"{'part' if part else 'predictions'}:{name}": given.digest for name, given in answers.items()}
    return digests | {f"reference:{name}": reference[name].digest for name in answers}


def _changed(ids: tuple[str, ...], answers: Answers, reference: Answers) -> tuple[str, ...]:
    """The samples whose best answer (the whole of a sequence) is not the reference's."""
    return tuple(sample for index, sample in enumerate(ids) if answers.best(index) != reference.best(index))


def _calibrated(request: Request) -> Calibrated | None:
    """The extremes that the grids of ``request`` come from; None where its schema asks for no profile."""
    schema, shared = request.schema, request.shared
    if schema is None or request.cell.is_given or not schema.needs_profile:
        return None
    profiles = shared.profiles(schema.canonical, channels=schema.wants_channels)
    ranges = {}
    for graph, model in shared.canonical(schema.canonical).items():
        prefix, seen = f"{graph}::" if len(profiles) > 1 else "", profiles[graph].values
        for name in values_by_name(model):
            if name in seen and seen[name].count:
                ranges[prefix + name] = (_short(seen[name].low), _short(seen[name].high))
    data = shared.subject.calibration
    words = f"{counted(len(data), 'sample')} of '{data.id}'"
    key = "+".join(filter(None, (schema.canonical, request.recalibrated)))
    return Calibrated(key=key, ranges=ranges, samples=words)


def _made(request: Request) -> dict[str, str]:
    """What the cell was quantized by, in words and digests: the calibration samples, and the rules of the schema."""
    schema = request.schema
    if schema is None or request.cell.is_given:
        return {}
    data = request.shared.subject.calibration
    samples = {"calibration": f"{counted(len(data), 'sample')} of '{data.id}'"} if schema.needs_profile else {}
    return {**samples, "schema": digest_plain(replace(schema, name=""))[:_RULE_DIGITS]}


_RULE_DIGITS = 12


def _short(end: float) -> float:
    """So many digits that a record and a baseline hold the very same number."""
    return float(f"{end:.{_RANGE_DIGITS}g}")
