"""One cell of a suite as its gates judge it, with and without a fault in it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from qbench.backends import Backend
from qbench.errors import QbenchError
from qbench.evaluation import (
    Quantized,
    Request,
    SubjectArtifacts,
    measure_request,
    rewrite_quantized,
)
from qbench.faults.fault import Fault, ProfileFault
from qbench.faults.faulty_backend import can_have
from qbench.faults.trial import main_graph
from qbench.judging import (
    Criterion,
    EnvironmentClass,
    Gate,
    GateState,
    Measurement,
    Rules,
    Tolerance,
    Verdict,
)
from qbench.metrics import Score


@dataclass(frozen=True, slots=True, kw_only=True)
class Gating:
    """The numbers that a cell is judged by."""

    rules: Rules
    tolerance: Tolerance
    criterion: Criterion | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProvenCell:
    """A quantized cell of a suite.

    Args:
        request: how the suite measures it.
        gating: what it is judged by.
        judge: the verdict on a measurement by these or other numbers.
        refused: the verdict where it could not be measured.
        partners: backends that it might equal, for a gate that the suite does not have.
        environment_of: the class of results of a backend here.
        is_new_class: whether it is judged as on a class without accepted results.
    """

    request: Request
    gating: Gating
    judge: Callable[[Measurement, Gating], Verdict]
    refused: Callable[[QbenchError], Verdict]
    partners: Sequence[Backend] = ()
    environment_of: Callable[[Backend], EnvironmentClass]
    is_new_class: bool = False

    @property
    def quantized(self) -> Quantized:
        """The graphs that its backend runs.

        Raises:
            QbenchError: they cannot be made.
        """
        request, schema = self.request, self.request.schema
        if schema is None:
            found = request.shared.given
        else:
            found = request.shared.quantized(schema, request.backend.capabilities)
        if request.rewriting is None:
            return found
        return rewrite_quantized(found, request.rewriting).quantized

    def applying(self, faults: Mapping[str, Fault]) -> tuple[str, ...]:
        """The names of those of ``faults`` that it has a place for.

        Raises:
            QbenchError: its graphs cannot be made.
        """
        graph = main_graph(self.quantized)
        return tuple(
            name
            for name, fault in faults.items()
            if fits(self.request.backend, fault)
            and self._is_calibrated(fault)
            and len(fault.sites(graph)) >= fault.at_once
        )

    def _is_calibrated(self, fault: Fault) -> bool:
        schema = self.request.schema
        is_used = schema is not None and schema.needs_profile
        return is_used or not isinstance(fault.injection, ProfileFault)


def fits(backend: Backend, fault: Fault) -> bool:
    """Whether a cell on ``backend`` may have ``fault`` at all, whatever its graph is."""
    injection = fault.injection
    return isinstance(injection, ProfileFault) or can_have(backend, injection)


@dataclass(slots=True, kw_only=True, eq=False)
class HealthyCell:
    """A cell without a fault.

    ``partner`` is the first backend that it equals, once it was looked for: (None,) where there is
    none. ``with_metric`` is by a further metric what cells of that one alone share, and its score;
    None: it is not for such answers.
    """

    measurement: Measurement
    verdict: Verdict
    partner: tuple[str | None] | None = None
    with_metric: dict[str, tuple[SubjectArtifacts, Score | None]] = field(default_factory=dict)


def measure_healthy(cell: ProvenCell) -> HealthyCell | Verdict:
    """The cell as it is, or the verdict where it cannot be measured."""
    try:
        measurement = measure_request(cell.request)
        verdict = cell.judge(measurement, cell.gating)
    except QbenchError as error:
        return cell.refused(error)
    return HealthyCell(measurement=measurement, verdict=verdict)


def changes_nothing(measured: Measurement, healthy: Measurement) -> bool:
    """Whether nothing that a gate looks at is another: predictions, scores, differences from
    another backend, calibrated ranges, the share that was executed in integers.
    """
    return _facts(measured) == _facts(healthy)


def _facts(measured: Measurement) -> tuple[object, ...]:
    compared, calibrated = measured.compared, measured.calibrated
    return (
        measured.predictions,
        measured.scores,
        0 if compared is None else compared.differing,
        {} if calibrated is None else calibrated.ranges,
        measured.executed_macs,
    )


def broken_gates(verdict: Verdict) -> tuple[Gate, ...]:
    """The gates of ``verdict`` that are broken, in the order in which the first decides."""
    return tuple(gate for gate in verdict.gates if gate.state is GateState.BROKEN)


def judged_by(cell: ProvenCell, measured: Measurement, **changes: object) -> Verdict:
    """The verdict on ``measured`` with other ``Rules`` in places."""
    rules = replace(cell.gating.rules, **changes)  # type: ignore[arg-type]
    return cell.judge(measured, replace(cell.gating, rules=rules))
