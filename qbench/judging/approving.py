"""What becomes of a verdict whose result the same run takes over as accepted.

new or changed → ACCEPTED; beyond its rule → FAILED, though nothing is missing any more: a loss is not accepted away
"""

from dataclasses import replace

from qbench.judging import remedies
from qbench.judging.verdict import FAILING, GateState, Outcome, Verdict

APPROVABLE = (Outcome.MISSING, Outcome.DRIFTED, Outcome.FAILED)
"""The outcomes that accepting changes something about."""
NEVER_ACCEPTED = "never accepted; "
"""How the headline of a cell begins that nobody accepted before."""


def approved(verdict: Verdict) -> Verdict:
    """``verdict``, one of ``APPROVABLE``, once its result is accepted."""
    if not any(gate.kind in FAILING and gate.state is GateState.BROKEN for gate in verdict.gates):
        return replace(verdict, outcome=Outcome.ACCEPTED, remedy="", notices=())
    unaccepted = [g.detail for g in verdict.gates if g.kind == "drift" and g.state is GateState.INCOMPARABLE]
    return replace(
        verdict,
        outcome=Outcome.FAILED,
        headline=verdict.headline.removeprefix(NEVER_ACCEPTED),
        notices=tuple(notice for notice in verdict.notices if notice not in unaccepted),
        remedy=remedies.still_failing(),
    )
