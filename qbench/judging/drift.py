"""Drift: the same cell in the same environment class must answer exactly what was accepted there.

The samples are fixed and the kernels deterministic, so a rerun has no sampling noise: predictions are compared by
digest, per data set, and nothing is tested. Another class counts otherwise and is incomparable, never a regression.
"""

from qbench.judging.expectation import Accepted, Expectation
from qbench.judging.measurement import Measurement
from qbench.judging.verdict import Gate, GateState
from qbench.judging.wording import counted, listed

_SHOWN = 8
"""Digits of a digest, for people."""
RULE = "identical predictions in one environment class"


def drift_gate(measurement: Measurement, expectation: Expectation) -> Gate:
    """Whether ``measurement`` is what was accepted for its environment class."""
    accepted = expectation.accepted.get(str(measurement.environment))
    if accepted is None:
        known = ", ".join(sorted(expectation.accepted))
        elsewhere = f"nothing accepted for {measurement.environment} (accepted: {known})"
        return _gate(GateState.INCOMPARABLE, elsewhere if known else "nothing accepted yet")
    moved = [data for data, digest in _predictions(measurement).items() if accepted.predictions.get(data) != digest]
    if not moved:
        return _gate(GateState.HOLDS, f"predictions on {', '.join(_predictions(measurement))} as accepted")
    changed = f"predictions on {', '.join(moved)} changed; {metric_changes(measurement, accepted)}"
    cause = arithmetic_change(accepted.arithmetic, measurement.digests.get("arithmetic", ""))
    return _gate(GateState.BROKEN, f"{cause}; {changed}" if cause else changed)


def arithmetic_change(before: str, after: str) -> str:
    """The cause of other answers that an integer machine's own digests tell; empty where they tell none."""
    known = before and after and before != after
    return f"arithmetic changed: {before[:_SHOWN]} → {after[:_SHOWN]}" if known else ""


def reference_gate(measurement: Measurement, expectation: Expectation, drift: Gate) -> Gate:
    """Whether an fp32 cell reproduces the stored fp32 answers.

    One that does not is red where something was accepted for its class, unless exactly this difference was what was
    accepted (another engine adds in another order); in another class it is incomparable, and its loss is judged.
    """
    moved = [data for data, digest in _predictions(measurement).items() if expectation.reference.get(data) != digest]
    if not moved:
        return _reference(GateState.HOLDS, "reproduces the stored fp32 answers")
    count = sum(measurement.changed_count.get(data, 0) for data in moved)
    what = counted(count, "sample") + " differ" + ("s" if count == 1 else "")
    text = f"{what} from the stored fp32 answers on {', '.join(moved)}"
    text += f": {listed(measurement.changed)}" if count else " (only in ranks below the best)"
    if drift.state is GateState.HOLDS:
        return _reference(GateState.SHOWN, f"{text}; accepted so")
    return _reference(drift.state, text)


def metric_changes(measurement: Measurement, accepted: Accepted) -> str:
    """How many metrics changed, and each old → new: ``1 of 2 metrics changed: top1 356 → 350``."""
    both = [s for s in measurement.scores if s.metric in accepted.metrics]
    changed = [s for s in both if accepted.metrics[s.metric] != s.hits]
    listing = ", ".join(f"{s.metric} {accepted.metrics[s.metric]} → {s.hits}" for s in changed)
    return f"{len(changed)} of {counted(len(both), 'metric')} changed" + (f": {listing}" if changed else "")


def _predictions(measurement: Measurement) -> dict[str, str]:
    prefix = "predictions:"
    return {k.removeprefix(prefix): v for k, v in sorted(measurement.digests.items()) if k.startswith(prefix)}


def _gate(state: GateState, detail: str) -> Gate:
    return Gate(kind="drift", metric="predictions", state=state, detail=detail, rule=RULE)


def _reference(state: GateState, detail: str) -> Gate:
    return Gate(
        kind="reference", metric="predictions", state=state, detail=detail, rule="fp32 reproduces its reference"
    )
