"""One cell from its request to its measurement: quantize, prepare, answer, count."""

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from qbench.backends import Backend, HasRuleDigests, Recorded, as_backend, get_backend
from qbench.errors import require_count, require_type
from qbench.evaluation.artifacts import SubjectArtifacts
from qbench.evaluation.cell_model import NO_MODEL, CellModel, model_of, refuse_slow
from qbench.evaluation.cell_run import CellRun, read_run, run_cell
from qbench.evaluation.changed_samples import changed_samples, note_float_run
from qbench.evaluation.evidence import collect_evidence
from qbench.evaluation.recorded import environment_of
from qbench.evaluation.repeats import measure_repeats
from qbench.evaluation.request import Comparator, Request
from qbench.evaluation.rewriting import Rewriting
from qbench.evaluation.subject import Subject
from qbench.graph import Form
from qbench.host import processor_class
from qbench.judging import (
    FP32,
    GIVEN,
    RECORDED,
    Cell,
    EnvironmentClass,
    Measurement,
    Repeats,
    remembered_numbers,
)
from qbench.metrics import Answers, Score, packed_answers
from qbench.storage import Cache
from qbench.working import working

if TYPE_CHECKING:
    from qbench.quantization import Schema

FLOAT_BACKEND = "ort-cpu"
"""Runs the float model next to a backend that runs none."""

LISTED = 20
"""How many changed samples a measurement names; it counts them all."""

_MEASURING = "Measuring a cell"


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
    most_samples: int = 0,
    timer: Callable[[], float] = time.perf_counter,
) -> Measurement:
    """Measure one cell: ``subject`` under ``schema`` on ``backend``.

    Args:
        subject: what is measured, for instance ``qbench.evaluation.build_subject("net.onnx",
            "test.npz", "train.npz", [], None)``; ``SubjectArtifacts`` of it where several cells are
            measured, so that they share what they can.
        backend: a backend or its name.
        schema: a schema or its name; None: the model without quantizing it.
        passes: rewrites of the quantized graph.
        comparator: another backend that the cell is compared with.
        cell: the id of the measurement; None: made from the names of subject, backend and schema.
        reference: fp32 answers by data set, which losses and gains are counted against; None:
            today's fp32 run.
        environment: the class of results of ``backend`` on this computer; None: found out.
        threads: of one engine.
        repeats: how many times it runs, each time with the samples in another order and other
            batches; it runs twice where the second run gives the same answers.
        most_samples: how many samples of each data set that were lost or gained are listed
            (``Measurement.samples``).
        timer: seconds on a monotonic clock.

    Example:
        As ``qbench eval``; of files: ``build_subject("net.onnx", "test.npz", "train.npz", [],
        64)``.

        >>> from qbench import measure_cell
        >>> from qbench.evaluation import build_subject
        >>> subject = build_subject(
        ...     "digits_cnn", "digits_test", "digits_train", ["top1", "agreement"], 64
        ... )
        >>> measured = measure_cell(subject, "ort-cpu", "w8a8_asym_pc")
        >>> top1 = measured.score("top1")
        >>> top1.n, top1.value > 0.95, top1.reference_value > 0.95
        (360, True, True)
        >>> top1.reference_hits - top1.hits == top1.losses - top1.gains
        True

    Raises:
        UnsupportedError: the backend does not run such a graph, or not in useful time.
        InputError: an unknown name, or a metric that is not for the answers or the labels that
            there are.
        QbenchError: anything else that has a sentence.
    """
    require_count(_MEASURING, "threads", threads)
    require_count(_MEASURING, "repeats", repeats)
    if passes is not None:
        remedy = "Make one with qbench.evaluation.Rewriting."
        require_type(
            _MEASURING,
            passes,
            Rewriting,
            expected="a Rewriting, or None for no passes",
            remedy=remedy,
        )
    backend = as_backend(backend)
    if schema is not None:
        from qbench.quantization import as_schema

        schema = as_schema(schema)
    shared = subject_artifacts(subject, backend)
    name = _as_it_is(shared.subject, backend) if schema is None else schema.name
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
            most_samples=most_samples,
            timer=timer,
        )
    )


def _as_it_is(subject: Subject, backend: Backend) -> str:
    """The word in place of a schema for a model that is not quantized here."""
    if isinstance(backend, Recorded):
        return RECORDED
    return FP32 if subject.given is None else GIVEN


def environment_here(backend: Backend, *, threads: int = 1) -> EnvironmentClass:
    """The class of results of ``backend`` on this computer, with ``threads`` per engine."""
    return environment_of(backend, processor_class(), threads=threads)


def subject_artifacts(
    subject: Subject | SubjectArtifacts, backend: Backend, cache: Cache | None = None
) -> SubjectArtifacts:
    """What cells of ``subject`` on ``backend`` share; artifacts are returned as they are.

    The fp32 reference is that of this very backend where it runs float models and gives the values
    inside them, so that losses and gains are those of quantization; else that of ``FLOAT_BACKEND``.

    Raises:
        InputError: it is not a subject.
    """
    if isinstance(subject, SubjectArtifacts):
        return subject
    remedy = "Make one with qbench.evaluation.build_subject."
    require_type(
        _MEASURING,
        subject,
        Subject,
        expected="a Subject: a model with its data and metrics",
        remedy=remedy,
    )
    can = backend.capabilities
    float_backend = backend if Form.FLOAT in can.forms and can.taps else get_backend(FLOAT_BACKEND)
    return SubjectArtifacts(
        subject, cache or Cache.default(), float_backend, str(environment_here(float_backend))
    )


def measure_request(request: Request) -> Measurement:
    """What ``measure_cell`` does once its arguments are together: for cells that are run again
    with one part exchanged.

    Raises:
        QbenchError: as ``measure_cell``.
    """
    with working(f"measuring {request.cell}"):
        return _measured(request)


def _measured(request: Request) -> Measurement:
    model, run = _model_and_run(request)
    evidence = collect_evidence(request, model, run)
    remembered = remembered_numbers(evidence, request.asked)
    scores = run.scores(request)
    repeats, seconds = _repeated(request, model, run, scores)
    note_float_run(request, run)
    changed = run.changed
    return Measurement(
        cell=request.cell,
        environment=request.environment,
        scores=scores,
        digests=_digests(request, model, run),
        changed={name: ids[:LISTED] for name, ids in changed.items()},
        changed_count={name: len(ids) for name, ids in changed.items()},
        ties={name: answers.ties for name, answers in run.answers.items()},
        macs=request.shared.macs,
        executed_macs=run.executed.share,
        executed_in_float=run.executed.in_float,
        rounded_data=run.executed.rounded,
        executed_unplanned=run.executed.unplanned,
        seconds=seconds,
        sample_seconds=run.sample_seconds,
        compared=run.compared,
        kept=_kept(request, run, repeats),
        repeats=repeats,
        stopped=run.stopped,
        drawn=run.drawn,
        evidence=evidence,
        samples=changed_samples(request, run),
        remembered={kind: one.number for kind, one in remembered.items()},
        remembered_range={kind: (one.low, one.high) for kind, one in remembered.items()},
        **_facts(model, run),
    )


def _facts(model: CellModel, run: CellRun) -> dict[str, Any]:
    """Those of ``model``, with the types of floats among the simulated ones that ``run`` did not
    sum as its arithmetic declares it.
    """
    simulated = model.facts.get("simulated", ())
    left = tuple(name for name in simulated if name not in run.executed.summed_types)
    return {**model.facts, "simulated": left}


def _repeated(
    request: Request, model: CellModel, run: CellRun, scores: tuple[Score, ...]
) -> tuple[Repeats | None, dict[str, float]]:
    """The runs after the first, None where the cell asks for none; and the seconds of all runs."""
    began = request.timer()
    repeats = measure_repeats(
        request,
        model.graphs,
        run.samples,
        first=run.answers,
        reference=run.reference,
        scores=scores,
    )
    if repeats is None:
        return None, dict(run.seconds)
    return repeats, {**run.seconds, "repeats": round(request.timer() - began, 3)}


def _model_and_run(request: Request) -> tuple[CellModel, CellRun]:
    """The graphs of a cell and its answers; of answers that were recorded elsewhere there are
    no graphs.
    """
    if isinstance(request.backend, Recorded):
        return NO_MODEL, read_run(request)
    started = request.timer()
    others = [one for one in request.asked.values() if isinstance(one, Backend)]
    if request.comparator is not None:
        others.append(request.comparator.backend)
    refuse_slow(request, request.backend, *others)
    model = model_of(request)
    return model, run_cell(request, model, started)


def _digests(request: Request, model: CellModel, run: CellRun) -> dict[str, str]:
    digests = request.shared.identity() | model.digests | run.digests
    if isinstance(request.backend, HasRuleDigests):
        digests |= request.backend.digests
    if request.rewriting is not None:
        digests["pipeline"] = request.rewriting.digest
    return digests


def _kept(request: Request, run: CellRun, repeats: Repeats | None) -> dict[str, str]:
    """Data set → its answers in one word, where the suite or the noise of the engine needs them."""
    if request.keeps_answers or (repeats is not None and repeats.is_noisy):
        return {name: packed_answers(answers) for name, answers in run.answers.items()}
    return {}
