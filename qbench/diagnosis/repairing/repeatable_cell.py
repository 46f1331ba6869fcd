"""A judged cell that can be run again under another schema: the same samples, reference, engine and rules.

A cell is restored when no gate is broken that fails a cell whatever was accepted for it: a loss, a floor, a limit,
equality with another backend. Whether enough of it stays in integers is another question: how much leaves them is told
beside.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from qbench.errors import InputError
from qbench.evaluation import Request, SharedWork, evaluate
from qbench.judging import FAILING, EnvironmentClass, GateState, Measurement, Verdict
from qbench.metrics import Answers
from qbench.quantization import Schema
from qbench.storage import digest_plain, table_from_value


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RepeatableCell:
    """One cell with all that running and judging it takes.

    Args:
        request: as it was run; its schema is what is exchanged.
        shared: of the request's subject. reference: fp32 answers by data set. environment: of the request's backend.
        judge: the rules that the cell was judged by, but for how much of it must be in integers.
        rules: what these rules depend on, in a word or a digest: answers under other rules are no answers here.
        timer: seconds on a monotonic clock.
        integer_floor: share of multiply-accumulates that must stay in integers for the cell to count as quantized.
    """

    request: Request
    shared: SharedWork
    reference: Mapping[str, Answers]
    environment: EnvironmentClass
    judge: Callable[[Measurement], Verdict]
    rules: str
    timer: Callable[[], float]
    integer_floor: float = 0.0

    @property
    def schema(self) -> Schema:
        """What the cell is quantized by.

        Raises:
            InputError: it came quantized, or is not.
        """
        if self.request.schema is None:
            raise InputError(
                f"Repairing '{self.request.cell}'",
                found="a cell without a schema",
                expected="one that qbench quantizes: a schema is what a repair changes",
                remedy="Name the float model and a schema.",
            )
        return self.request.schema

    def measured(self, schema: Schema) -> Measurement:
        """The numbers under ``schema``; nothing that was made for another one than the cell's own is kept.

        Raises:
            QbenchError: it cannot be quantized or run so.
        """
        request = replace(self.request, schema=schema)
        try:
            return evaluate(request, self.shared, self.reference, self.environment, timer=self.timer)
        finally:
            if schema != self.request.schema:
                self.shared.forget(schema, self.request.backend.capabilities)

    def identity(self) -> dict[str, str]:
        """What an answer depends on, as digests and names: that of a changed model is of another search."""
        request = self.request
        data = {name: digest for name, digest in self.shared.identity().items() if name.startswith("data:")}
        references = {name: answers.digest for name, answers in self.reference.items()}
        calibration = request.subject.calibration
        return {
            "model": self.shared.model_digest,
            "schema": digest_plain(table_from_value(self.schema)),
            "data": digest_plain([data, references, calibration.digest if len(calibration) else ""]),
            "backend": request.backend.name,
            "environment": str(self.environment),
            "passes": "" if request.rewriting is None else request.rewriting.digest,
            "rules": self.rules,
        }


def is_restored(verdict: Verdict) -> bool:
    """Whether ``verdict`` fails no more; what it was accepted as is not asked."""
    return not any(gate.kind in FAILING and gate.state is GateState.BROKEN for gate in verdict.gates)
