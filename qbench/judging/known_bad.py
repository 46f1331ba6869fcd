"""The verdict on a cell that the quarantine file lists as known to be bad."""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from qbench.judging import format as remedies
from qbench.judging.kinds import GateKind
from qbench.judging.measurement import Measurement
from qbench.judging.noise import Noise, Repeats, noise_of
from qbench.judging.rules import ANY_CLASS, QuarantineEntry, Tolerance, exact
from qbench.judging.verdict import WIDTH, Gate, GateState, Outcome, Verdict, one_line
from qbench.metrics import Against, Direction, Score
from qbench.number_text import distance_text, value_text

# A listed cell must keep failing as listed:
#
#     the entry has run out, or the cell does not fail    EXPIRED
#     worse than its listed values by more than a margin  FAILED
#     a metric that has a listed value is not measured    FAILED: nothing shows that the cell is as
#                                                         listed
#     no values of this cell, but of others               as judged: the entry is about the others
#     else                                                QUARANTINED
#
# The values are those of the environment class; where it has none, the cell may not be worse than
# in any class that has some, and a notice names these. The margin is the tolerance of the metric,
# at least 2 % of the samples (of a value without samples, of the value), or what runs of the cell
# differ by, whichever is more: values may come from another class, where a few crops move. An entry
# without any values is of an older qbench: any fall passes, and a notice says so.

EXCUSABLE = (Outcome.FAILED, Outcome.DRIFTED, Outcome.INCONCLUSIVE)
NO_LONGER_FAILS = "no longer fails"
"""The headline of a cell whose quarantine entry is not needed begins with this."""
_SLACK = Fraction(2, 100)
_NO_VALUES = (
    "it has no values, so any fall passes: 'qbench quarantine' of the same cell writes them"
)


def quarantined(
    verdict: Verdict,
    measurement: Measurement,
    entry: QuarantineEntry,
    *,
    tolerance: Tolerance,
    repeats: tuple[Repeats | None, bool],
    notices: tuple[str, ...],
    today: datetime.date,
    whole: bool,
) -> Verdict:
    """``verdict`` as the ``entry`` about its cell changes it.

    Args:
        tolerance: of the cell.
        repeats: what is known of its noise, and whether the scores are a mean of these runs.
        notices: those of ``verdict`` that help for a cell that is never accepted.
        today: for the last day of the entry.
        whole: whether all samples were run; values of a part are not compared.
    """
    rule = f"quarantine '{entry.cell}' until {entry.expires} ({entry.owner})"
    if verdict.outcome not in EXCUSABLE:
        return _not_failing(verdict, entry, rule, notices)
    if entry.expired(today):
        return replace(
            verdict,
            outcome=Outcome.EXPIRED,
            headline=one_line(f"the quarantine ended on {entry.expires}: {verdict.headline}"),
            rule=rule,
            remedy=remedies.quarantine_over(entry.cell, entry.owner),
        )
    listed = (
        f"'{entry.cell}' is listed as {entry.measured}: {entry.reason} ({entry.owner}, "
        f"{entry.expires})"
    )
    listings = entry.values_of(measurement.cell, measurement.environment)
    if entry.values and not listings:
        added = (
            f"'{entry.cell}' lists other cells as known bad, and not this one: it has no values of "
            "it"
        )
        return replace(verdict, notices=(*notices, added))
    is_compared = whole and measurement.stopped is None
    fallen = _fallen(measurement, listings, tolerance, repeats) if is_compared else None
    if fallen is not None:
        gate = replace(fallen, rule=rule)
        return replace(
            verdict,
            outcome=Outcome.FAILED,
            headline=one_line(f"{gate.detail}; {verdict.headline}"),
            rule=rule,
            gates=(*verdict.gates, gate),
            notices=(*notices, listed),
            remedy=remedies.worse_than_listed(entry.cell),
        )
    listed += _unknown(measurement, listings)
    return replace(
        verdict,
        outcome=Outcome.QUARANTINED,
        headline=_headline_listed(verdict.headline, entry.reason),
        rule=rule,
        notices=(*notices, listed),
        remedy="",
    )


def _not_failing(
    verdict: Verdict, entry: QuarantineEntry, rule: str, notices: tuple[str, ...]
) -> Verdict:
    if entry.is_pattern:  # other cells of the pattern may fail
        return replace(
            verdict,
            notices=(*notices, f"does not fail, though '{entry.cell}' lists it as known bad"),
        )
    return replace(
        verdict,
        outcome=Outcome.EXPIRED,
        headline=one_line(f"{NO_LONGER_FAILS}: remove the entry; {verdict.headline}"),
        rule=rule,
        remedy=remedies.no_longer_fails(entry.cell),
    )


_Listings = tuple[tuple[str, Mapping[str, float]], ...]
"""Values of one cell, each with the class that they were measured in."""


def _unknown(measurement: Measurement, listings: _Listings) -> str:
    """What may fall unseen, in words, behind the sentence of the entry; empty where nothing may."""
    if not listings:
        return f"; {_NO_VALUES}"
    words = ""
    hardware = measurement.environment.hardware
    own = (str(measurement.environment), hardware, ANY_CLASS)
    classes = [name for name, _ in listings if name not in own]
    if classes:
        words += f"; it has no values of {hardware}, compared with {', '.join(classes)}"
    unlisted = [
        score.metric
        for score in measurement.scores
        if not any(score.metric in one for _, one in listings)
    ]
    if unlisted:
        words += f"; it has no value of {', '.join(unlisted)}, so that these may fall any further"
    return words


def _fallen(
    measurement: Measurement,
    listings: _Listings,
    tolerance: Tolerance,
    repeats: tuple[Repeats | None, bool],
) -> Gate | None:
    """The gate of a listed metric without a value, or of the one that fell furthest beyond its;
    None: none did.
    """
    worst = _worst_values(measurement, listings)
    named = dict.fromkeys(metric for _, values in listings for metric in values)
    missing = [metric for metric in named if metric not in worst]
    if missing:
        return _not_measured(missing)
    furthest, gate = Fraction(0), None
    for score in measurement.scores:
        if score.metric not in worst:
            continue
        noise = noise_of(score, repeats[0], averaged=repeats[1])
        beyond, fallen = _compared(score, worst[score.metric], tolerance, noise)
        if beyond > furthest:
            furthest, gate = beyond, fallen
    return gate


def _not_measured(missing: Sequence[str]) -> Gate:
    verb = "is" if len(missing) == 1 else "are"
    return Gate(
        kind=GateKind.KNOWN_BAD,
        metric=missing[0],
        state=GateState.BROKEN,
        detail=f"{', '.join(missing)} {verb} listed and not measured",
        rule="",
    )


def _compared(
    score: Score, listed: Fraction, tolerance: Tolerance, noise: Noise | None
) -> tuple[Fraction, Gate | None]:
    """How far ``score`` fell beyond ``listed``, in margins, and its gate; 0 and None: within
    the margin.
    """
    judged, margin = Fraction(score.hits, score.out_of), _margin(score, listed, tolerance)
    if noise is not None:
        judged = noise.value(score)
        margin = max(
            margin, Fraction(noise.admits(score, round(listed * score.out_of))[1]) / score.out_of
        )
    worse = listed - judged if score.direction is Direction.HIGHER else judged - listed
    if worse <= margin:
        return Fraction(0), None
    return worse / margin if margin else worse, _gate(score, listed, judged, margin)


def _worst_values(measurement: Measurement, listings: _Listings) -> dict[str, Fraction]:
    """For every measured metric that is listed: the worst of its values."""
    worst = dict[str, Fraction]()
    for score in measurement.scores:
        values = [exact(one[score.metric]) for _, one in listings if score.metric in one]
        if values:
            worst[score.metric] = (
                min(values) if score.direction is Direction.HIGHER else max(values)
            )
    return worst


def _margin(score: Score, listed: Fraction, tolerance: Tolerance) -> Fraction:
    own = tolerance.margin(score) / score.out_of if score.against is Against.LABELS else Fraction(0)
    return max(own, _SLACK if score.unit == "%" else _SLACK * abs(listed))


def _gate(score: Score, listed: Fraction, judged: Fraction, margin: Fraction) -> Gate:
    now, then = value_text(float(judged), score.unit), value_text(float(listed), score.unit)
    return Gate(
        kind=GateKind.KNOWN_BAD,
        metric=score.metric,
        state=GateState.BROKEN,
        detail=f"{score.metric} {now} is worse than listed, {then}, by more than "
        f"{distance_text(float(margin), score.unit)}",
        rule="",
        limit=float(listed - margin if score.direction is Direction.HIGHER else listed + margin),
    )


def _headline_listed(headline: str, reason: str) -> str:
    """``headline`` with the reason where both fit on the line; the notice of the entry has the
    reason too.
    """
    full = " ".join(f"{headline} (listed: {reason})".split())
    choices = (full, f"{headline} (listed)")
    return next((text for text in choices if len(text) <= WIDTH), headline)
