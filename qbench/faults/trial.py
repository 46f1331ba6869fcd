"""One fault in one subject: which gates see it, and what localization reports."""

import datetime
import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import onnx_ir as ir

from qbench.backends import Array, Backend, Feeds, isolated
from qbench.diagnosis import (
    Budget,
    LocalizeOptions,
    RepeatableCell,
    localize_verdict,
    samples_that_moved,
)
from qbench.errors import QbenchError, UnsupportedError
from qbench.evaluation import (
    Comparator,
    Quantized,
    Request,
    Rewriting,
    SubjectArtifacts,
    measure_request,
)
from qbench.faults.catalogue import get_fault
from qbench.faults.fault import Fault, GraphEdit, Placed, ProfileFault, Stage, draw_sites
from qbench.faults.faulty_backend import FaultyWork, edit_at, with_fault
from qbench.graph import node_key
from qbench.judging import (
    Cell,
    Criterion,
    Decision,
    DecisionRule,
    EnvironmentClass,
    Evidence,
    Expectation,
    Finding,
    GateKind,
    GateState,
    Measurement,
    Rules,
    Tolerance,
    Verdict,
    judge,
    least_agreement,
)
from qbench.metrics import Answers
from qbench.passes import EXACT, Effect, Pipeline, Policy, assert_effect
from qbench.quantization import Schema

# A pass that claims to be exact and is not: a fault in the graph that all backends run.

_MARK = "qbench.faults"


@dataclass(frozen=True, slots=True)
class WrongPass:
    """Requires: QDQ. Ensures: nothing; the fault is in the graph, once.

    Args:
        fault: its name.
        sites: float operators.
        seed: of what it draws.
        name: of the pass.
    """

    fault: str
    sites: tuple[str, ...]
    seed: int = 0
    name: str = "wrong-pass"

    @property
    def effect(self) -> Effect:
        """What it claims."""
        return EXACT

    def run(self, model: ir.Model) -> bool:
        """Put the fault where it was not put yet; True when it was put anywhere."""
        nodes = {node_key(node): node for node in model.graph}
        mark = f"{_MARK}.{self.fault}"
        left = tuple(
            site for site in self.sites if site in nodes and mark not in nodes[site].metadata_props
        )
        done = edit_at(model, Placed(fault=get_fault(self.fault), sites=left, seed=self.seed))
        for site in done:
            nodes[site].metadata_props[mark] = str(self.seed)
        return bool(done)


def wrong_rewriting(placed: Placed) -> Rewriting:
    """The rewriting of a request whose only pass is this fault.

    Raises:
        UnsupportedError: it is no edit of a graph.
    """
    if not isinstance(placed.fault.injection, GraphEdit):
        raise UnsupportedError(
            f"Making a pass of the fault '{placed.fault.name}'",
            found=f"a fault of kind {type(placed.fault.injection).__name__}",
            expected="an edit of the graph",
            remedy="Put it into a backend (with_fault), or into the calibration (FaultyWork).",
        )
    return Rewriting(
        Pipeline((WrongPass(placed.fault.name, placed.sites, placed.seed),)), Policy.EXACT
    )


def faulty_request(request: Request, placed: Placed) -> Request:
    """``request`` with a fault in place of one part of it: its backend, what runs behind the
    quantizer, or the profile.

    Raises:
        UnsupportedError: it has no place for such a fault.
    """
    if placed.fault.stage is Stage.ENGINE:
        return replace(request, backend=with_fault(request.backend, placed))
    if isinstance(placed.fault.injection, ProfileFault):
        return replace(request, shared=FaultyWork.of(request.shared, placed))
    wrong = wrong_rewriting(placed)
    if request.rewriting is not None:
        passes = (*request.rewriting.pipeline.passes, *wrong.pipeline.passes)
        wrong = replace(request.rewriting, pipeline=Pipeline(passes))
    return replace(request, rewriting=wrong)


def main_graph(quantized: Quantized) -> ir.Model:
    """The graph that faults are put into: the first one of a model."""
    return next(iter(quantized.models.values()))


# One fault in one subject: which gates see it, and what localization reports.
#
# A healthy cell is a model under a schema on one of our integer backends. The fault takes the place
# of one part of its request, and the same cell is measured:
#
#     ENGINE        another backend, which must equal the healthy backend
#     PASS          a pass behind the quantizer that claims to be exact
#     CALIBRATION   another profile under the same schema
#
# Gates: (a) the relative 0.5 % rule on top-1, or what replaces it; (b) all metrics with labels, by
# Tango's interval or the bootstrap's; (c) the agreement with fp32, by the suite's floor and by what
# was accepted on any class; (d) other predictions than the healthy ones, which an accepted result
# of the same class shows; (e) equality with the healthy backend; (f) the effect that passes claim,
# tried; (g) the ranges that were calibrated, by those that were accepted on any class; (h) less run
# in integers than the healthy cell, as the executors report it.

SLACK = 0.02
"""Of all samples, how many fewer than accepted may agree with fp32 on another class."""
_STATISTICS = Decision(DecisionRule.CI)


class DetectedBy(enum.Enum):
    """By which gate."""

    RULE = "a"
    STATISTICS = "b"
    AGREEMENT = "c"
    DRIFT = "d"
    EQUALITY = "e"
    EFFECT = "f"
    CALIBRATION = "g"
    EXECUTED = "h"


_DETECTED_BY = {
    GateKind.FLOOR: DetectedBy.AGREEMENT,
    GateKind.EQUALITY: DetectedBy.EQUALITY,
    GateKind.EXECUTED: DetectedBy.EXECUTED,
}
"""Kinds of gates that show a fault when they are broken; a loss is read twice, by its rule and
by its statistics.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What came of one fault in one subject.

    Args:
        fault, sites, seed, subject: what was where.
        stage: of the fault.
        changes: whether any answer or any number that gates look at is another than the healthy
            one's.
        seen: by which gates.
        suspects: (node, cause) as localization ranks them.
        hit: place of the first that is a site, from 1; None: no suspect is.
        named: whether the cause given for it is one that is right.
        failed: the sentence with which the faulty cell did not run at all; empty otherwise.
        unlocalized: that with which localization gave up; a miss.
        seconds: of localization.
    """

    fault: str
    sites: tuple[str, ...]
    seed: int
    subject: str
    stage: Stage
    changes: bool
    seen: frozenset[DetectedBy] = frozenset()
    suspects: tuple[tuple[str, str], ...] = ()
    hit: int | None = None
    named: bool = False
    failed: str = ""
    unlocalized: str = ""
    seconds: float = 0.0

    @property
    def found(self) -> bool:
        """Whether a gate that needs no accepted result of this class sees it; what does not run
        is seen by anybody.
        """
        return bool(self.failed) or bool(self.seen - {DetectedBy.DRIFT})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FaultHarness:
    """One subject, healthy, to put faults into.

    Args:
        shared: of the subject.
        backend: an integer backend that computes it.
        schema: that it is quantized by.
        agreement: share of samples that must agree with fp32, as its suite has it.
        tries_effects: whether gate (f) is used: it checks the claim of a pass node by node, which
            takes minutes for a large network.
        timer: seconds on a monotonic clock.
    """

    shared: SubjectArtifacts
    backend: Backend
    schema: Schema
    agreement: float
    tries_effects: bool = True
    timer: Callable[[], float]
    reference: Mapping[str, Answers] = field(init=False)
    healthy: Measurement = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "reference", self.shared.reference())
        object.__setattr__(self, "healthy", measure_request(self._request(self.backend)))

    @property
    def subject(self) -> str:
        """The model."""
        return self.shared.subject.model.id

    def places(self, fault: Fault, seed: int, count: int) -> tuple[Placed, ...]:
        """Up to ``count`` places for ``fault`` in the main graph, drawn by ``seed``."""
        model = main_graph(self.shared.quantized(self.schema, self.backend.capabilities))
        return draw_sites(fault, model, seed, count)

    def try_fault(self, placed: Placed, *, samples: int) -> Trial:
        """Put ``placed`` into the subject, judge it by every gate, and localize it on
        ``samples``; 0: do not.
        """
        fault = placed.fault
        trial = Trial(
            fault=fault.name,
            sites=placed.sites,
            seed=placed.seed,
            subject=self.subject,
            stage=fault.stage,
            changes=True,
        )
        try:
            request = self._faulty(placed)
            measured = measure_request(request)
        except QbenchError as error:
            return replace(trial, failed=str(error))
        seen = frozenset(self._seen(request, measured))
        changes = bool(seen) or _results(measured) != _results(self.healthy)
        trial = replace(trial, changes=changes, seen=seen)
        if not changes or not samples:
            return trial
        return self._localized(trial, placed, self._cell(request), measured, samples)

    def alarms(
        self,
        shared: SubjectArtifacts,
        *,
        backend: Backend,
        twin: Backend | None,
        threads: int,
        in_order: bool = True,
    ) -> frozenset[DetectedBy]:
        """By which gates the healthy subject itself is called bad, run once more.

        Args:
            shared: of the same subject, which may order its samples otherwise.
            backend: the same, which may batch so.
            twin: a backend that must give equal outputs; None: no comparison.
            threads: of the engine.
            in_order: whether samples stand in the order of the first run, so that predictions can
                be compared; else their counts are.
        """
        comparator = None if twin is None else _equal_to(twin)
        request = replace(
            self._request(backend),
            shared=shared,
            reference=shared.reference(),
            comparator=comparator,
            threads=threads,
        )
        measured = measure_request(request)
        seen = self._by_verdict(measured)
        if threads > 1 and backend.packages:
            # several threads of an engine are a class of their own
            return frozenset(seen - {DetectedBy.DRIFT})
        if not in_order:
            seen.discard(DetectedBy.DRIFT)
            if measured.scores != self.healthy.scores:
                seen.add(DetectedBy.DRIFT)
        return frozenset(seen)

    def _request(self, backend: Backend, *, is_compared: bool = False) -> Request:
        return Request(
            cell=Cell("faults", self.subject, "device", self.schema.name),
            shared=self.shared,
            backend=backend,
            schema=self.schema,
            reference=self.reference,
            environment=_HERE,
            timer=self.timer,
            comparator=_equal_to(self.backend) if is_compared else None,
        )

    def _faulty(self, placed: Placed) -> Request:
        is_compared = placed.fault.stage is Stage.ENGINE
        return faulty_request(self._request(self.backend, is_compared=is_compared), placed)

    def _seen(self, request: Request, measured: Measurement) -> set[DetectedBy]:
        # what is red anyway shows nothing
        seen = self._by_verdict(measured) - self._by_verdict(self.healthy)
        if self.tries_effects and request.rewriting is not None and self._breaks_its_claim(request):
            seen.add(DetectedBy.EFFECT)
        return seen

    def _by_verdict(self, measured: Measurement) -> set[DetectedBy]:
        seen = set()
        point, statistics = self._verdict(measured), self._verdict(measured, _STATISTICS)
        labelled = [gate for gate in point.gates if gate.kind == GateKind.LOSS]
        if labelled and labelled[0].state is GateState.BROKEN:
            seen.add(DetectedBy.RULE)
        for gate in statistics.gates:
            if gate.kind == GateKind.LOSS and (
                gate.state is GateState.BROKEN
                or (gate.shown is not None and gate.shown.evidence is Evidence.FAIL)
            ):
                seen.add(DetectedBy.STATISTICS)
        broken = [gate.kind for gate in point.gates if gate.state is GateState.BROKEN]
        seen |= {_DETECTED_BY[kind] for kind in broken if kind in _DETECTED_BY}
        if point.moved:
            seen.add(DetectedBy.CALIBRATION)
        if measured.predictions != self.healthy.predictions:
            seen.add(DetectedBy.DRIFT)
        return seen

    def _verdict(self, measured: Measurement, decision: Decision | None = None) -> Verdict:
        healthy = None if measured is self.healthy else self.healthy.executed_macs
        rules = Rules(agreement=self.agreement, executed_macs=healthy)
        if decision is not None:
            rules = Rules(agreement=0.0, decision=decision)
        floors = {
            score.metric: score.hits - least_agreement(SLACK, score.out_of)
            for score in self.healthy.scores
            if score.has_floor
        }
        by = self.healthy.calibrated
        calibrations = {} if by is None else {by.key: by.ranges}
        return judge(
            measured,
            Expectation(
                cell_known=True,
                floors=floors if decision is None else {},
                calibrations=calibrations,
            ),
            tolerance=Tolerance(),
            rules=rules,
            criterion=Criterion(backend=measured.compared.backend)
            if measured.compared is not None
            else None,
            today=datetime.date.min,
        )

    def _breaks_its_claim(self, request: Request) -> bool:
        """Whether the checker of effects refutes the pass of ``request``."""
        assert request.rewriting is not None
        (wrong,) = request.rewriting.pipeline.passes
        for model in request.shared.quantized(
            self.schema, self.backend.capabilities
        ).models.values():
            try:
                assert_effect(wrong, model)
            except AssertionError:
                return True
        return False

    def _cell(self, request: Request) -> RepeatableCell:
        return RepeatableCell(request=request, judge=self._verdict, rules="faults")

    def _localized(
        self,
        trial: Trial,
        placed: Placed,
        cell: RepeatableCell,
        measured: Measurement,
        samples: int,
    ) -> Trial:
        options = LocalizeOptions(
            samples=samples,
            first=samples_that_moved(measured),
            repairs=False,
            in_float=measured.executed_in_float,
        )
        budget = Budget.begin(None, self.timer)
        try:
            finding = localize_verdict(cell, self._verdict(measured), budget, options=options)
        except Exception as error:  # whatever it is: a user would have no finding
            return replace(
                trial, unlocalized=f"{type(error).__name__}: {error}", seconds=budget.spent
            )
        return _with_finding(trial, placed, finding)


def _equal_to(backend: Backend) -> Comparator:
    return Comparator(backend=backend, criterion=Criterion(backend=backend.name), environment=_HERE)


def _with_finding(trial: Trial, placed: Placed, finding: Finding) -> Trial:
    suspects = tuple((one.node, one.cause.value) for one in finding.suspects)
    # with several graphs a node's name begins with its graph's, and the fault is in all that have
    # the operator
    hit = next(
        (
            place
            for place, (node, _) in enumerate(suspects, 1)
            if node.rpartition("::")[2] in placed.sites
        ),
        None,
    )
    named = hit is not None and finding.suspects[hit - 1].cause in placed.fault.causes
    return replace(trial, suspects=suspects, hit=hit, named=named, seconds=finding.seconds)


def _results(measured: Measurement) -> object:
    compared = measured.compared
    return measured.predictions, measured.scores, 0 if compared is None else compared.differing


_HERE = EnvironmentClass("faults")


# Whether a fault changes anything on given data: seen by running, never declared.


def is_equivalent(
    healthy: tuple[Backend, ir.Model],
    faulty: tuple[Backend, ir.Model],
    feeds: Sequence[Feeds],
    *,
    twice: bool = True,
) -> bool:
    """Whether two backends with their graphs give the same bits for all ``feeds``.

    Args:
        healthy, faulty: what runs what.
        feeds: batches, in order.
        twice: run them all again, for faults that hold on to earlier results.

    Raises:
        QbenchError: one of the two does not run the graph, or a batch.
    """
    batches = [*feeds, *feeds[::-1]] if twice else list(feeds)
    (ours, model), (theirs, changed) = healthy, faulty
    with isolated(ours).prepare(model) as right, isolated(theirs).prepare(changed) as wrong:
        return all(_equal(right.run(batch), wrong.run(batch)) for batch in batches)


def _equal(ours: dict[str, Array], theirs: dict[str, Array]) -> bool:
    return ours.keys() == theirs.keys() and all(
        np.array_equal(ours[name], theirs[name], equal_nan=ours[name].dtype.kind == "f")
        for name in ours
    )
