"""A sweep: the cells of one model on several backends under several schemas, each measured once.

The graphs, the prepared samples, the profile and the fp32 run are made once for all cells, and the
quantized graph of a schema once for backends of equal capabilities. Every loss is counted against
one fp32 run, that of ``FLOAT_BACKEND``, as in a suite.
"""

import datetime
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from qbench.backends import Backend
from qbench.errors import QbenchError, UnavailableError, UnsupportedError
from qbench.evaluation.artifacts import SubjectArtifacts
from qbench.evaluation.evidence.file_size import graph_bytes
from qbench.evaluation.measure import environment_here, measure_request
from qbench.evaluation.request import Request
from qbench.graph import Form
from qbench.host import processor_name, utc_now
from qbench.judging import (
    FP32,
    Cell,
    Measurement,
    median_interval,
    negative_is_worse,
    paired_interval,
    share_interval,
)
from qbench.metrics import Score
from qbench.storage import digest_code, digest_plain, followed_code, plain
from qbench.tracking import SweepCell, SweepMetric, SweepState

if TYPE_CHECKING:
    from qbench.quantization import Schema

SWEEP = "sweep"
"""The suite of its cells; no file has this name."""
_BOOTSTRAP = 0.9
"""The confidence of the intervals of metrics that are no shares."""
_MS = 1000
_REFUSALS = (UnsupportedError, UnavailableError)
"""What is about one cell; anything else is about the model, the data or the computer."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SweepPlan:
    """What a sweep crosses.

    Args:
        shared: what its cells share; its fp32 run is the reference of all.
        backends: in the order of the user.
        schemas: likewise; the float model is measured on each backend that runs one.
        version: of qbench, which results are of.
        threads: of one engine.
        timer: seconds on a monotonic clock.
        now: the clock that results are dated by.
    """

    shared: SubjectArtifacts
    backends: "Sequence[Backend]"
    schemas: "Sequence[Schema]"
    version: str
    threads: int = 1
    timer: Callable[[], float] = time.perf_counter
    now: Callable[[], datetime.datetime] = utc_now

    @property
    def cells(self) -> "tuple[tuple[Backend, Schema | None], ...]":
        """(backend, schema) of each cell in the order of measuring: schema by schema, so that one
        quantized graph is held at a time; None: the float model.
        """
        floats = [one for one in self.backends if Form.FLOAT in one.capabilities.forms]
        return (
            *((backend, None) for backend in floats),
            *((backend, schema) for schema in self.schemas for backend in self.backends),
        )

    def made(self) -> tuple[dict[str, str], ...]:
        """Of each of ``cells`` what its result is of: part → digest or words, all that can change
        it. Empty where this cannot be known, so that the result is never taken again.
        """
        common = self._common()
        return tuple(
            {} if not common else common | self._own(backend, schema)
            for backend, schema in self.cells
        )

    def _common(self) -> dict[str, str]:
        """The parts that all cells have alike."""
        from qbench.quantization import make_plan

        subject, shared = self.shared.subject, self.shared
        task = followed_code(subject.model.task)
        scored = {name: shared.samples(data) for name, data in subject.data.items()}
        prepared = [*scored.values()]
        calibration = "none"
        if len(subject.calibration):
            prepared.append(shared.samples(subject.calibration))
            calibration = prepared[-1].key
        if task.unfollowed or any(one.unknown for one in prepared):
            return {}
        labels = [data.digest for data in subject.data.values()]
        return {
            "model": shared.model_digest,
            "task": digest_plain([subject.model.task.name, task.digest]),
            "data": digest_plain([[one.key for one in scored.values()], labels]),
            "calibration": calibration,
            "metrics": ",".join(use.name for use in subject.metrics),
            "threads": str(self.threads),
            "qbench": self.version,
            "code": digest_code(measure_request, make_plan),
            "computer": processor_name(),
            "reference": str(environment_here(shared.fp32_backend)),
        }

    def _own(self, backend: Backend, schema: "Schema | None") -> dict[str, str]:
        """The parts of one cell."""
        rules = FP32
        if schema is not None and schema.made_by is not None:
            rules = schema.made_by.digest
        elif schema is not None:
            rules = digest_plain(plain(schema))
        return {
            "backend": backend.name,
            "engine": digest_code(backend),
            "environment": str(environment_here(backend, threads=self.threads)),
            "schema": FP32 if schema is None else schema.name,
            "rules": rules,
        }


def sweep_cells(
    plan: SweepPlan,
    made: Sequence[Mapping[str, str]],
    kept: Mapping[int, SweepCell],
    *,
    is_over: Callable[[], bool] = lambda: False,
) -> Iterator[SweepCell]:
    """The result of each cell of ``plan``, as soon as it is known.

    Args:
        made: as ``SweepPlan.made``.
        kept: place among the cells → a result that is taken and not measured.
        is_over: whether no further cell may begin.

    Raises:
        QbenchError: what is wrong with the model, the data or the metrics; what one cell cannot do
            is the reason in its result.
    """
    cells = plan.cells
    last = {schema.name: place for place, (_, schema) in enumerate(cells) if schema is not None}
    for place, (_, schema) in enumerate(cells):
        if place in kept:
            yield kept[place]
        elif is_over():
            reason = "the budget was used up before it"
            empty = _empty(plan, place, made[place])
            yield replace(empty, state=SweepState.NOT_MEASURED, reason=reason)
        else:
            yield sweep_cell(plan, place, made[place])
        if schema is not None and last[schema.name] == place:
            for one in plan.backends:
                plan.shared.forget(schema, one.capabilities)


def sweep_cell(plan: SweepPlan, place: int, made: Mapping[str, str]) -> SweepCell:
    """The result of the cell of ``plan`` at ``place``, which is of what ``made`` says; what it
    cannot do is the reason in it.
    """
    return _swept(plan, *plan.cells[place], _empty(plan, place, made))


def _empty(plan: SweepPlan, place: int, made: Mapping[str, str]) -> SweepCell:
    backend, schema = plan.cells[place]
    name = FP32 if schema is None else schema.name
    return SweepCell(backend=backend.name, schema=name, made=made)


def _swept(
    plan: SweepPlan,
    backend: Backend,
    schema: "Schema | None",
    empty: SweepCell,
) -> SweepCell:
    """``empty`` with its result, or with the reason why it has none."""
    from qbench.quantization import why_all_float

    shared, began = plan.shared, plan.timer()
    try:
        measured = measure_request(
            Request(
                cell=Cell(SWEEP, shared.subject.model.id, empty.backend, empty.schema),
                shared=shared,
                backend=backend,
                schema=schema,
                reference=shared.reference(),
                environment=environment_here(backend, threads=plan.threads),
                threads=plan.threads,
                times_samples=True,
                timer=plan.timer,
            )
        )
    except _REFUSALS as error:
        return replace(empty, state=SweepState.UNSUPPORTED, reason=_reason(error))
    if measured.idle_rules:
        return replace(empty, state=SweepState.UNSUPPORTED, reason=_why_idle(measured.idle_rules))
    graphs = shared.graphs
    if schema is not None:
        quantized = shared.quantized(schema, backend.capabilities)
        if reason := why_all_float(quantized.plans.values()):
            return replace(empty, state=SweepState.UNSUPPORTED, reason=reason)
        graphs = quantized.models
    size = graph_bytes(graphs)
    seconds = {**measured.seconds, "cell": round(plan.timer() - began, 3)}
    found = replace(
        empty, file_bytes=size, seconds=seconds, measured=f"{plan.now():%Y-%m-%dT%H:%M:%SZ}"
    )
    return with_scores(found, measured)


def _why_idle(rules: Sequence[str]) -> str:
    from qbench.quantization import IDLE_CACHE

    if IDLE_CACHE in rules:
        return "the model keeps no keys and values"
    return f"{' and '.join(rules)} matching no operator of the model"


def _reason(error: QbenchError) -> str:
    """What the cell cannot do, and what would help."""
    return f"{error.found}; expected {error.expected}. {error.remedy}"


def with_scores(cell: SweepCell, measured: Measurement) -> SweepCell:
    """``cell`` with what ``measured`` says of its answers, its executed share and its time."""
    lead = _lead(measured.scores)
    interval = _loss_interval(lead)
    agreement = next((one.value for one in measured.scores if one.has_floor), None)
    is_float = cell.is_float
    low, middle, high = (None, None, None)
    if measured.sample_seconds:
        low, middle, high = (_MS * one for one in median_interval(measured.sample_seconds))
    return replace(
        cell,
        environment=str(measured.environment),
        metric=lead.metric,
        unit=lead.unit,
        is_distance=_is_distance(lead),
        samples=lead.n,
        loss=_loss(lead),
        interval=interval,
        confidence=_BOOTSTRAP if interval is not None and not lead.proportion else 0.95,
        losses=lead.losses,
        gains=lead.gains,
        agreement=agreement,
        metrics={
            one.metric: SweepMetric(value=one.value, fp32=one.reference_value, unit=one.unit)
            for one in measured.scores
        },
        planned=None if is_float else measured.planned_share,
        weights_only=measured.weight_macs is not None,
        executed=None if is_float else measured.executed_macs,
        ms=middle,
        ms_interval=_ends(low, high) if len(measured.sample_seconds) > 1 else None,
    )


def _ends(low: float | None, high: float | None) -> tuple[float, float] | None:
    return None if low is None or high is None else (low, high)


def _lead(scores: Sequence[Score]) -> Score:
    """The score that the loss is of: the first against labels, else the first that counts samples
    equal to fp32, else the first.
    """
    against = (one for one in scores if one.against_labels)
    equal = (one for one in scores if one.has_floor)
    return next(against, None) or next(equal, None) or scores[0]


def _is_distance(score: Score) -> bool:
    """Whether ``score`` has no loss: it is a distance to fp32, such as decibels."""
    return not score.against_labels and not score.has_floor


def _loss(score: Score) -> float:
    """How much worse than fp32; a distance itself, negative where more is better."""
    if not _is_distance(score):
        return score.worse + 0.0  # no negative zero
    return score.value if score.lower_is_better else -score.value


def _loss_interval(score: Score) -> tuple[float, float] | None:
    """Low and high of the loss; None: not known."""
    interval = share_interval(score)
    if interval is None and score.has_floor:
        interval = paired_interval(score.losses, score.gains, score.n)
    if interval is None and score.interval is not None and score.against_labels:
        interval = negative_is_worse(score.interval, score)
    return None if interval is None else (-interval[1], -interval[0])
