"""Gates against what was accepted and against another backend: drift, calibrated ranges,
equality.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from qbench.judging.expectation import Accepted, AcceptedHere, Expectation
from qbench.judging.kinds import GateKind
from qbench.judging.measurement import Calibrated, Compared, FirstNode, Measurement, Stopped
from qbench.judging.noise import Repeats, most_flips, noise_of
from qbench.judging.rules import Allowance, Rules
from qbench.judging.verdict import Gate, GateState, MovedRange, listed
from qbench.number_text import counted, short_percent, steps_text, value_text

if TYPE_CHECKING:
    from qbench.metrics import AnswerChange, Answers, Score


# Drift: the same cell in the same environment class must give the accepted answers.
#
# The samples are fixed and the kernels deterministic, so a rerun has no sampling noise: predictions
# are compared by digest, per data set, without a statistical test. Only an engine that was measured
# to answer otherwise in another run of the same code (``noise``) is held to the differences of
# these runs. A suite may allow some flips, and may compare probabilities with the accepted ones
# (``Allowance``). Another class computes differently and is incomparable, never a regression,
# unless the suite declares it equivalent, or the accepted result is one for ``any`` class.

_SHOWN = 8
"""Digits of a digest, for people."""
NOTHING_ACCEPTED_FOR = "nothing accepted for "
"""The detail of the drift gate in a class that is new to its cell begins with this."""
UNACCEPTED = "nothing accepted yet"
"""The detail of the drift gate of a cell without any accepted result."""
RULE = "identical predictions in one environment class"


def drift_gates(
    measurement: Measurement, here: AcceptedHere, allowance: Allowance, *, whole: bool
) -> tuple[Gate, ...]:
    """Whether ``measurement`` equals the accepted result of its class: predictions, and
    probabilities if so set.

    Args:
        whole: whether all samples were scored.
    """
    if not whole:
        return (
            _gate(
                GateState.INCOMPARABLE,
                "a part of the samples is not compared with what was accepted",
            ),
        )
    if here.result is None:
        return (_nothing_accepted(here),)
    if measurement.stopped is not None:
        return (_part_gate(measurement, measurement.stopped, here.kept, allowance),)
    changes = _changes(measurement, here.kept, allowance)
    gate = _predictions_gate(measurement, here.result, changes, allowance)
    if gate.state is GateState.BROKEN:
        gate = _admitting_noise(gate, measurement, here.result, here)
    if here.in_words:
        gate = replace(gate, detail=f"{gate.detail} ({here.in_words})")
    if allowance.compares_probabilities:
        return gate, _moves_gate(changes, allowance)
    return (gate,)


def _nothing_accepted(here: AcceptedHere) -> Gate:
    if not here.others:
        return _gate(GateState.INCOMPARABLE, UNACCEPTED)
    accepted = f"(accepted: {', '.join(here.others)})"
    return _gate(GateState.INCOMPARABLE, f"{NOTHING_ACCEPTED_FOR}{here.environment} {accepted}")


def _admitting_noise(
    gate: Gate, measurement: Measurement, accepted: Accepted, here: AcceptedHere
) -> Gate:
    """The broken ``gate``, judged by how far runs of the same code differ, where that is known
    and not nothing.
    """
    repeats, averaged = here.noise_with(measurement)
    if repeats is None or not repeats.is_noisy:
        return gate
    holds, text = within_noise(measurement, accepted, here.kept, repeats, averaged=averaged)
    state = GateState.HOLDS if holds else GateState.BROKEN
    return replace(
        gate,
        state=state,
        detail=text,
        rule=f"within what {repeats.runs} runs of the same code differ",
    )


def _part_gate(
    measurement: Measurement, stopped: Stopped, kept: Mapping[str, "Answers"], allowance: Allowance
) -> Gate:
    """Whether the samples that were run before the cell was stopped are answered as in the
    accepted result.
    """
    from qbench.metrics import count_changes, rows_of, unpacked_answers

    ran = f"{sum(stopped.samples.values())} of {counted(sum(stopped.of.values()), 'sample')}"
    if not kept or kept.keys() != measurement.kept.keys():
        text = (
            f"{ran} were run, and the answers were not kept when it was accepted: accept it as new "
            "to compare them"
        )
        return _gate(GateState.INCOMPARABLE, text)
    moved, flips = [], 0
    for data, word in sorted(measurement.kept.items()):
        now, before = unpacked_answers(word), rows_of(kept[data], measurement.drawn[data])
        if now.form != before.form or now.digest != before.digest:
            moved.append(data)
            flips += count_changes(now, before).flips if now.form == before.form else len(now)
    if not moved:
        return _gate(GateState.HOLDS, f"the {ran} that were run are answered as accepted")
    text = (
        f"the answers on {', '.join(moved)} changed, {counted(flips, 'flip')} in the {ran} that "
        "were run"
    )
    if allowance.flips is not None and flips <= allowance.flips:
        return replace(_gate(GateState.HOLDS, text), rule=allowance.flips_text)
    return _gate(GateState.BROKEN, text)


def within_noise(
    measurement: Measurement,
    accepted: Accepted,
    kept: Mapping[str, "Answers"],
    repeats: Repeats,
    *,
    averaged: bool,
) -> tuple[bool, str]:
    """Whether ``measurement`` differs from the ``accepted`` result by no more than noise
    explains, and a line about it.

    Every metric that was accepted and repeated; and the flips against the answers that were
    ``kept`` (data set → answers). Without a metric in common nothing can be compared, and it is not
    within.

    Args:
        repeats: runs that differ.
        averaged: whether ``measurement`` is one of them.
    """
    inside, parts = True, []
    for score in measurement.scores:
        noise = noise_of(score, repeats, averaged=averaged)
        if noise is None or score.metric not in accepted.metrics:
            continue
        before = accepted.metrics[score.metric]
        holds, most = noise.admits(score, before)
        inside = inside and holds
        mean = f"{float(noise.value(score) * score.out_of):.5g}"
        parts.append(f"{score.metric} {before} → {mean}, noise admits ±{most:.3g}")
    if not parts:
        return (
            False,
            f"predictions changed, and no metric that was accepted was repeated; {repeats.text}",
        )
    for data, flips in _flips(measurement, kept).items():
        most = most_flips(repeats, data)
        inside = inside and flips <= most
        parts.append(f"{counted(flips, 'flip')} on {data}, noise admits {most:.3g}")
    word = "within" if inside else "by more than"
    return inside, f"predictions changed {word} noise: {'; '.join(parts)}"


def _flips(measurement: Measurement, kept: Mapping[str, "Answers"]) -> dict[str, int]:
    """Data set → how many best answers are not the accepted ones, where both are kept."""
    from qbench.metrics import count_changes, unpacked_answers

    both = (
        (data, unpacked_answers(word), kept[data])
        for data, word in measurement.kept.items()
        if data in kept
    )
    return {
        data: count_changes(now, before).flips
        for data, now, before in both
        if len(now) == len(before) and now.form == before.form
    }


def _changes(
    measurement: Measurement, kept: Mapping[str, "Answers"], allowance: Allowance
) -> Mapping[str, "AnswerChange"]:
    """Data set → how its answers differ from the accepted ones, where both are kept."""
    if not allowance.keeps_answers:
        return {}
    from qbench.metrics import count_changes, unpacked_answers

    limits = {"absolute": allowance.absolute, "relative": allowance.relative}
    both = (
        (data, unpacked_answers(word), kept[data])
        for data, word in measurement.kept.items()
        if data in kept
    )
    return {
        data: count_changes(now, before, **limits)
        for data, now, before in both
        if len(now) == len(before) and now.form == before.form
    }


def _predictions_gate(
    measurement: Measurement,
    accepted: Accepted,
    changes: Mapping[str, "AnswerChange"],
    allowance: Allowance,
) -> Gate:
    moved = [
        data
        for data, digest in measurement.predictions.items()
        if accepted.predictions.get(data) != digest
    ]
    if not moved:
        return _gate(
            GateState.HOLDS, f"predictions on {', '.join(measurement.predictions)} as accepted"
        )
    changed = f"predictions on {', '.join(moved)} changed; {metric_changes(measurement, accepted)}"
    if allowance.flips is not None:
        if all(data in changes for data in moved):
            flips = sum(changes[data].flips for data in moved)
            state = GateState.HOLDS if flips <= allowance.flips else GateState.BROKEN
            text = (
                f"{counted(flips, 'flip')} against the accepted answers, {allowance.flips} "
                f"allowed; {changed}"
            )
            return replace(_gate(state, text), rule=allowance.flips_text)
        changed += "; flips cannot be counted, as the answers were not kept when it was accepted"
    cause = arithmetic_change(accepted.arithmetic, measurement.digests.get("arithmetic", ""))
    causes = [cause] if cause else []
    return _gate(
        GateState.BROKEN,
        "; ".join([*causes, *making_changes(accepted.made, measurement.made), changed]),
    )


def _moves_gate(changes: Mapping[str, "AnswerChange"], allowance: Allowance) -> Gate:
    known = {data: change for data, change in changes.items() if change.beyond is not None}
    if not known:
        state = GateState.SHOWN
        detail = "no probabilities were kept with the accepted result: accept it as new"
    else:
        beyond = sum(change.beyond or 0 for change in known.values())
        largest = max(change.largest or 0.0 for change in known.values())
        samples = counted(sum(change.samples for change in known.values()), "sample")
        state = GateState.BROKEN if beyond else GateState.HOLDS
        detail = (
            f"probabilities of {beyond} of {samples} moved further than allowed, the furthest by "
            f"{largest:.3g}"
        )
    return Gate(
        kind=GateKind.DRIFT,
        metric="probabilities",
        state=state,
        detail=detail,
        rule=allowance.moves_text,
    )


RANGES = "ranges"
"""What was made with it: a ranges file. Results without it were made without one."""
_SPELLED = {RANGES: "ranges by hand"}


def making_changes(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    """What two results were not made with alike, in words, as far as both know it.

    ``calibration: 32 samples of 'cnn_cal' → 4 samples of 'cnn_cal'``, ``the rules of the schema
        were edited``, ``ranges by hand: none → 2 values of 'ranges.toml' (#4f1f…)``.
    """
    moved = [key for key in before if before[key] != after.get(key, before[key])]
    if before and after and (RANGES in before) != (RANGES in after):
        moved = [RANGES, *(key for key in moved if key != RANGES)]
    return tuple(
        "the rules of the schema were edited"
        if key == "schema"
        else f"{_SPELLED.get(key, key)}: {before.get(key, 'none')} → {after.get(key, 'none')}"
        for key in moved
    )


def arithmetic_change(before: str, after: str) -> str:
    """``arithmetic changed: …`` where the digests of two arithmetics differ; empty where they
    are equal or unknown.
    """
    known = before and after and before != after
    return f"arithmetic changed: {before[:_SHOWN]} → {after[:_SHOWN]}" if known else ""


def reference_gate(measurement: Measurement, expectation: Expectation, drift: Gate) -> Gate:
    """Whether an fp32 cell reproduces the stored fp32 answers.

    If it does not, it is red where a result was accepted for its class, unless exactly this
    difference was accepted (another engine adds in another order); in another class it is
    incomparable, and its loss is judged.
    """
    moved = [
        data
        for data, digest in measurement.predictions.items()
        if expectation.reference.get(data) != digest
    ]
    if not moved:
        return _reference(GateState.HOLDS, "reproduces the stored fp32 answers")
    count = sum(measurement.changed_count.get(data, 0) for data in moved)
    what = counted(count, "sample") + " differ" + ("s" if count == 1 else "")
    text = f"{what} from the stored fp32 answers on {', '.join(moved)}"
    text += f": {listed(measurement.changed)}" if count else " (only in ranks below the best)"
    if drift.state is GateState.HOLDS:
        accepted = (
            "this was accepted"
            if drift.rule == RULE
            else f"from what was accepted they differ {drift.rule}"
        )
        return _reference(GateState.SHOWN, f"{text}; {accepted}")
    return _reference(drift.state, text)


def metric_changes(measurement: Measurement, accepted: Accepted) -> str:
    """How many metrics changed, and each old → new: ``1 of 2 metrics changed: top1 356 → 350``."""
    both = [s for s in measurement.scores if s.metric in accepted.metrics]
    changed = [s for s in both if accepted.metrics[s.metric] != s.hits]
    listing = ", ".join(_hits_change(score, accepted.metrics[score.metric]) for score in changed)
    return f"{len(changed)} of {counted(len(both), 'metric')} changed" + (
        f": {listing}" if changed else ""
    )


def _hits_change(score: "Score", before: int) -> str:
    """``top1 356 → 350`` of a count, ``sqnr 42.7 → 14 dB`` of a value in a unit."""
    if score.unit == "%":
        return f"{score.metric} {before} → {score.hits}"
    return f"{score.metric} {before / score.out_of:.5g} → {value_text(score.value, score.unit)}"


def _gate(state: GateState, detail: str) -> Gate:
    return Gate(kind=GateKind.DRIFT, metric="predictions", state=state, detail=detail, rule=RULE)


def _reference(state: GateState, detail: str) -> Gate:
    return Gate(
        kind=GateKind.REFERENCE,
        metric="predictions",
        state=state,
        detail=detail,
        rule="fp32 reproduces its reference",
    )


# Calibrated ranges compared with the accepted ones; the accepted ranges are valid on every
# computer.
#
# One backend runs the float model; its results differ between processors only in the last bits. A
# range that differs by a hundredth of its span comes from other samples, another scale of the
# inputs, or wrong statistics. This explains other predictions, and it is a fault that a few hundred
# samples may not show.
#
#     apart = max(|low − accepted low|, |high − accepted high|) / span                     in [0, 1]
#     span  = max(high, accepted high, 0) − min(low, accepted low, 0), as codes contain zero; at
#             least _NOISE

_NOISE = 1e-6
"""Rounding errors of single precision around zero, which differ on every processor."""
CHANGED = "calibration changed: "
"""The beginning of a line about calibration that does not name the gate."""


def moved_ranges(
    before: Mapping[str, tuple[float, float]],
    after: Mapping[str, tuple[float, float]],
    limit: float,
) -> tuple[MovedRange, ...]:
    """The values of both whose ranges are further than ``limit`` apart, in the order of ``after``.

    Args:
        before, after: value → (low, high).
        limit: share of the range that covers both.
    """
    pairs = ((value, before[value], now) for value, now in after.items() if value in before)
    moved = (
        MovedRange(value=value, before=old, after=new, apart=_apart(old, new))
        for value, old, new in pairs
    )
    return tuple(one for one in moved if one.apart > limit)


def moves_of(
    measurement: Measurement, expectation: Expectation, rules: Rules
) -> tuple[MovedRange, ...]:
    """The values of ``measurement`` whose calibrated range differs from the accepted one."""
    now = measurement.calibrated
    return (
        ()
        if now is None
        else moved_ranges(expectation.calibrations.get(now.key, {}), now.ranges, rules.ranges)
    )


def calibration_gates(
    measurement: Measurement,
    expectation: Expectation,
    here: AcceptedHere,
    rules: Rules,
    moved: tuple[MovedRange, ...],
) -> tuple[Gate, ...]:
    """Whether the cell was calibrated as accepted, by ``moved``; empty without a calibration or
    stored results.
    """
    now = measurement.calibrated
    if now is None or not expectation.stored or not expectation.whole:
        return ()
    before, ranges = expectation.calibrations.get(now.key, {}), len(now.ranges)
    unknown, gone = len(now.ranges.keys() - before.keys()), len(before.keys() - now.ranges.keys())
    if moved:
        state, detail = GateState.BROKEN, _moved_text(moved, now, here)
    elif not before:
        state = GateState.SHOWN
        detail = f"no ranges are accepted for the calibration '{now.key}': accept them as new"
    elif unknown or gone:
        state = GateState.SHOWN
        detail = f"calibrated ranges of other values: {unknown} never accepted, {gone} gone"
    else:
        state, detail = GateState.HOLDS, f"{counted(ranges, 'calibrated range')} as accepted"
    rule = (
        f"calibrated ranges within {short_percent(rules.ranges)} of what was accepted "
        f"({rules.ranges_rule})"
    )
    return (
        Gate(kind=GateKind.CALIBRATION, metric="ranges", state=state, detail=detail, rule=rule),
    )


def _moved_text(moved: tuple[MovedRange, ...], now: Calibrated, here: AcceptedHere) -> str:
    """How many ranges moved, the first of them, and the samples that both calibrations are of."""
    text = (
        f"{len(moved)} of {counted(len(now.ranges), 'range')} moved, the first that of "
        f"'{moved[0].value}', "
    )
    text += moved[0].text
    if not now.samples:
        return text
    text += f"; calibrated on {now.samples} now"
    before = here.result.made.get("calibration", "") if here.result is not None else ""
    return f"{text}, accepted on {before}" if before else text


def _apart(one: tuple[float, float], other: tuple[float, float]) -> float:
    furthest = max(abs(one[0] - other[0]), abs(one[1] - other[1]))
    span = max(one[1], other[1], 0.0) - min(one[0], other[0], 0.0)
    return furthest / max(span, _NOISE)


# Equality with another backend: the same quantized model on the same samples, judged by counts of
# elements.
#
# equal_to: no element of any graph output differs (NaN is NaN, −0.0 is 0.0: values are compared,
# not their bits) close_to: |a − b| ≤ steps × scale and |a − b| ≤ relative × max|b|, whichever of
# the two limits is given, or both
#
# Both backends run in this run, so a baseline stores nothing about it.


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion:
    """How close a cell must be to ``backend``: equal, or within the limits that are given.

    Args:
        backend: the other backend, by name.
        steps: largest difference in output steps, multiples of an output's scale; None: not
            limited.
        relative: largest difference as a share of the largest absolute value of the output; None:
            not limited.
        rule: the place that set it, e.g. ``suite smoke``.
    """

    backend: str
    steps: float | None = None
    relative: float | None = None
    rule: str = "default"

    def __post_init__(self) -> None:
        for name, value in (("steps", self.steps), ("relative", self.relative)):
            if value is not None and not value >= 0:
                raise ValueError(f"{name} = {value} is impossible: a difference is at least 0")

    @property
    def is_exact(self) -> bool:
        """Whether every element has to be equal."""
        return self.steps is None and self.relative is None

    @property
    def text(self) -> str:
        """``equal_to ort-cpu (suite smoke)`` or ``close_to ort-cpu, 1 step, relative 0.001
        (model m)``.
        """
        limits = [] if self.steps is None else [steps_text(self.steps)]
        limits += [] if self.relative is None else [f"relative {self.relative:g}"]
        word = "equal_to" if self.is_exact else "close_to"
        return f"{', '.join([f'{word} {self.backend}', *limits])} ({self.rule})"


def holds(compared: Compared, criterion: Criterion) -> bool:
    """Whether what was counted is within ``criterion``."""
    if criterion.is_exact or compared.unbounded:
        return not compared.differing
    near = criterion.steps is None or (compared.steps or 0.0) <= criterion.steps
    return near and (criterion.relative is None or compared.relative <= criterion.relative)


def equality_gate(compared: Compared, criterion: Criterion) -> Gate:
    """The gate of one comparison, with its numbers."""
    return Gate(
        kind=GateKind.EQUALITY,
        metric=compared.backend,
        state=GateState.HOLDS if holds(compared, criterion) else GateState.BROKEN,
        detail=_detail(compared),
        rule=criterion.text,
    )


def broken_text(compared: Compared | None, criterion: Criterion | None) -> str:
    """One line about a comparison that is not within its criterion; empty elsewhere."""
    if compared is None or criterion is None or holds(compared, criterion):
        return ""
    return f"{unequal_text(compared)}: {criterion.text}"


def unequal_text(compared: Compared) -> str:
    """The line of a cell that differs from another backend: how many elements differ, and where
    the first is.
    """
    text = (
        f"{compared.differing} of {counted(compared.elements, 'element')} differ from "
        f"{compared.backend}"
    )
    if compared.first is not None and compared.first.origin:
        text += f", first at '{compared.first.origin}'"
    return text


def _detail(compared: Compared) -> str:
    if not compared.differing:
        return f"all {counted(compared.elements, 'element')} equal those of {compared.backend}"
    largest = [f"relative {compared.relative:.3g}"]
    if compared.steps is not None:
        largest.insert(0, steps_text(compared.steps))
    text = (
        f"{compared.differing} of {counted(compared.elements, 'element')} differ from "
        f"{compared.backend}, by at most {', '.join(largest)}"
    )
    if compared.unbounded:
        text += f"; {compared.unbounded} are NaN or infinite on one side only"
    text += f"; first at sample '{compared.sample}'" if compared.sample else ""
    return text + _first(compared.first)


def _first(first: FirstNode | None) -> str:
    if first is None:
        return ""
    text = f"; {first.note}" if first.note else ""
    if not first.origin:
        return text
    if not first.elements:
        return f"; first in the floats of node '{first.origin}'{text}"
    integers = counted(first.elements, "integer")
    return (
        f"; first in {integers} of node '{first.origin}', by at most "
        f"{steps_text(first.steps)}{text}"
    )
