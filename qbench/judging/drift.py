"""Drift: the same cell in the same environment class must answer what was accepted there.

The samples are fixed and the kernels deterministic, so a rerun has no sampling noise: predictions are compared by
digest, per data set, and nothing is tested. A suite may allow some flips, and may hold probabilities to what was
accepted (``allowance``). Another class counts otherwise and is incomparable, never a regression, unless the suite
declares it equivalent, or the accepted result is one for ``any`` class.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from qbench.judging.allowance import Allowance
from qbench.judging.environment import ANY
from qbench.judging.expectation import Accepted, Expectation, inherited
from qbench.judging.measurement import Measurement
from qbench.judging.rules import Rules
from qbench.judging.verdict import Gate, GateState
from qbench.judging.wording import counted, listed

if TYPE_CHECKING:
    from qbench.metrics import AnswerChange, Answers

_SHOWN = 8
"""Digits of a digest, for people."""
RULE = "identical predictions in one environment class"


def drift_gates(measurement: Measurement, expectation: Expectation, rules: Rules) -> tuple[Gate, ...]:
    """Whether ``measurement`` is what was accepted for its class: in predictions, and where asked in probabilities."""
    if not expectation.whole:
        return (_gate(GateState.INCOMPARABLE, "a part of the samples is not compared with what was accepted"),)
    name = inherited(expectation.accepted, measurement.environment, rules.equivalents)
    if name is None:
        known = ", ".join(sorted(expectation.accepted))
        elsewhere = f"nothing accepted for {measurement.environment} (accepted: {known})"
        return (_gate(GateState.INCOMPARABLE, elsewhere if known else "nothing accepted yet"),)
    accepted, allowance = expectation.accepted[name], rules.allowance
    changes = _changes(measurement, expectation.kept.get(name, {}), allowance)
    gate = _predictions_gate(measurement, accepted, changes, allowance)
    if name != str(measurement.environment):
        where = "for any class" if name == ANY else f"for {name}, declared equivalent"
        gate = replace(gate, detail=f"{gate.detail} ({where})")
    return (gate, _moves_gate(changes, allowance)) if allowance.compares_probabilities else (gate,)


def _changes(
    measurement: Measurement, kept: Mapping[str, "Answers"], allowance: Allowance
) -> Mapping[str, "AnswerChange"]:
    """Data set → how its answers differ from the accepted ones, where both are there."""
    if not allowance.keeps_answers:
        return {}
    from qbench.metrics import count_changes, unpacked_answers

    limits = {"absolute": allowance.absolute, "relative": allowance.relative}
    both = ((data, unpacked_answers(word), kept[data]) for data, word in measurement.kept.items() if data in kept)
    return {
        data: count_changes(now, before, **limits)
        for data, now, before in both
        if len(now) == len(before) and now.kind is before.kind
    }


def _predictions_gate(
    measurement: Measurement, accepted: Accepted, changes: Mapping[str, "AnswerChange"], allowance: Allowance
) -> Gate:
    moved = [data for data, digest in _predictions(measurement).items() if accepted.predictions.get(data) != digest]
    if not moved:
        return _gate(GateState.HOLDS, f"predictions on {', '.join(_predictions(measurement))} as accepted")
    changed = f"predictions on {', '.join(moved)} changed; {metric_changes(measurement, accepted)}"
    if allowance.flips is not None:
        if all(data in changes for data in moved):
            flips = sum(changes[data].flips for data in moved)
            state = GateState.HOLDS if flips <= allowance.flips else GateState.BROKEN
            text = f"{counted(flips, 'flip')} against the accepted answers, {allowance.flips} allowed; {changed}"
            return replace(_gate(state, text), rule=allowance.flips_text)
        changed += "; flips cannot be counted, as the answers were not kept when it was accepted"
    cause = arithmetic_change(accepted.arithmetic, measurement.digests.get("arithmetic", ""))
    return _gate(GateState.BROKEN, f"{cause}; {changed}" if cause else changed)


def _moves_gate(changes: Mapping[str, "AnswerChange"], allowance: Allowance) -> Gate:
    known = {data: change for data, change in changes.items() if change.beyond is not None}
    if not known:
        state, detail = GateState.SHOWN, "no probabilities were kept with the accepted result: accept it as new"
    else:
        beyond = sum(change.beyond or 0 for change in known.values())
        largest = max(change.largest or 0.0 for change in known.values())
        samples = counted(sum(change.samples for change in known.values()), "sample")
        state = GateState.BROKEN if beyond else GateState.HOLDS
        detail = f"probabilities of {beyond} of {samples} moved further than they may, the furthest by {largest:.3g}"
    return Gate(kind="drift", metric="probabilities", state=state, detail=detail, rule=allowance.moves_text)


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
