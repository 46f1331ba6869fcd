"""The ranges that a calibration saw, held to those that were accepted: on whatever machine, for they hold on every one.

The float model is run by one backend, whose classes differ in last bits. A range that is other by a hundredth of what
its grid spans was taken from other samples, in another order of magnitude, or by statistics that went wrong: the cause
of other predictions, which no class of processor explains, and a fault that a few hundred samples may not feel at all.

apart = max(|low − accepted low|, |high − accepted high|) / span                                   in [0, 1]
span = max(high, accepted high, 0) − min(low, accepted low, 0), as a grid holds zero; at least what noise of zero spans
"""

from collections.abc import Mapping

from qbench.judging.amounts import short_percent
from qbench.judging.expectation import Expectation
from qbench.judging.measurement import Calibrated, Measurement
from qbench.judging.rules import Rules
from qbench.judging.verdict import Gate, GateState, MovedRange
from qbench.judging.wording import counted

_NOISE = 1e-6
"""What single precision leaves of a zero among ordinary numbers: its range is another one on every processor."""
CHANGED = "calibration changed: "
"""How a line begins that says so where its gate is not named."""


def moved_ranges(
    before: Mapping[str, tuple[float, float]], after: Mapping[str, tuple[float, float]], limit: float
) -> tuple[MovedRange, ...]:
    """The values of both whose ranges are further than ``limit`` apart, in the order of ``after``.

    Args:
        before, after: value → (low, high). limit: share of what a grid of both spans.
    """
    pairs = ((value, before[value], now) for value, now in after.items() if value in before)
    moved = (MovedRange(value=value, before=old, after=new, apart=_apart(old, new)) for value, old, new in pairs)
    return tuple(one for one in moved if one.apart > limit)


def moves_of(measurement: Measurement, expectation: Expectation, rules: Rules) -> tuple[MovedRange, ...]:
    """The values of ``measurement`` that were calibrated otherwise than accepted; none where nothing was."""
    now = measurement.calibrated
    return () if now is None else moved_ranges(_accepted(now, expectation), now.ranges, rules.ranges)


def calibration_gates(
    measurement: Measurement, expectation: Expectation, rules: Rules, moved: tuple[MovedRange, ...]
) -> tuple[Gate, ...]:
    """Whether the cell was calibrated as accepted, by ``moved``; none where it was not calibrated, or is not stored."""
    now = measurement.calibrated
    if now is None or not expectation.stored or not expectation.whole:
        return ()
    before, ranges = _accepted(now, expectation), len(now.ranges)
    unknown, gone = len(now.ranges.keys() - before.keys()), len(before.keys() - now.ranges.keys())
    if moved:
        state, detail = GateState.BROKEN, _told(moved, ranges)
    elif not before:
        state, detail = GateState.SHOWN, f"no ranges were accepted of the calibration '{now.key}': accept them as new"
    elif unknown or gone:
        state, detail = GateState.SHOWN, f"calibrated ranges of other values: {unknown} never accepted, {gone} gone"
    else:
        state, detail = GateState.HOLDS, f"{counted(ranges, 'calibrated range')} as accepted"
    rule = f"calibrated ranges within {short_percent(rules.ranges)} of what was accepted ({rules.ranges_rule})"
    return (Gate(kind="calibration", metric="ranges", state=state, detail=detail, rule=rule),)


def _accepted(now: Calibrated, expectation: Expectation) -> Mapping[str, tuple[float, float]]:
    return expectation.calibrations.get(now.key, {})


def _told(moved: tuple[MovedRange, ...], ranges: int) -> str:
    first = moved[0]
    return f"{len(moved)} of {counted(ranges, 'range')} moved, the first that of '{first.value}', {first.text}"


def _apart(one: tuple[float, float], other: tuple[float, float]) -> float:
    furthest = max(abs(one[0] - other[0]), abs(one[1] - other[1]))
    span = max(one[1], other[1], 0.0) - min(one[0], other[0], 0.0)
    return furthest / max(span, _NOISE)
