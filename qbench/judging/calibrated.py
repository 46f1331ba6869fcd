"""The ranges that a calibration saw, held to those that were accepted: on whatever machine, for they hold on every one.

The float model is run by one backend, whose classes differ in last bits. A range that is other by a hundredth of its
width was taken from other samples, in another order of magnitude, or by statistics that went wrong: the cause of other
predictions, which no class of processor explains, and a fault that a test of a few hundred samples may not feel at all.

apart = max(|low − accepted low|, |high − accepted high|) / max(width, accepted width)            in [0, 1]
"""

from collections.abc import Mapping

from qbench.judging.amounts import short_percent
from qbench.judging.expectation import Expectation
from qbench.judging.measurement import Measurement
from qbench.judging.rules import Rules
from qbench.judging.verdict import Gate, GateState, MovedRange
from qbench.judging.wording import counted

CHANGED = "calibration changed: "
"""How a line begins that says so where its gate is not named."""


def moved_ranges(
    before: Mapping[str, tuple[float, float]], after: Mapping[str, tuple[float, float]], limit: float
) -> tuple[MovedRange, ...]:
    """The values of both whose ranges are further than ``limit`` apart, in the order of ``after``.

    Args:
        before, after: value → (low, high). limit: share of the wider of the two widths.
    """
    pairs = ((value, before[value], now) for value, now in after.items() if value in before)
    moved = (MovedRange(value=value, before=old, after=new, apart=_apart(old, new)) for value, old, new in pairs)
    return tuple(one for one in moved if one.apart > limit)


def moves_of(measurement: Measurement, expectation: Expectation, rules: Rules) -> tuple[MovedRange, ...]:
    """The values of ``measurement`` that were calibrated otherwise than accepted; none where nothing was."""
    before = _accepted(measurement, expectation)
    if measurement.calibrated is None or before is None:
        return ()
    return moved_ranges(before, measurement.calibrated.ranges, rules.ranges)


def calibration_gates(
    measurement: Measurement, expectation: Expectation, rules: Rules, moved: tuple[MovedRange, ...]
) -> tuple[Gate, ...]:
    """Whether the cell was calibrated as accepted, by ``moved``; no gate where it was not, or nothing was accepted."""
    now, before = measurement.calibrated, _accepted(measurement, expectation)
    if now is None or before is None:
        return ()
    ranges, unknown = len(now.ranges), sum(value not in before for value in now.ranges)
    if moved:
        state, detail = GateState.BROKEN, _told(moved, ranges)
    elif unknown:
        state, detail = GateState.SHOWN, f"{unknown} of {counted(ranges, 'calibrated range')} were never accepted"
    else:
        state, detail = GateState.HOLDS, f"{counted(ranges, 'calibrated range')} as accepted"
    rule = f"calibrated ranges within {short_percent(rules.ranges)} of what was accepted ({rules.ranges_rule})"
    return (Gate(kind="calibration", metric="ranges", state=state, detail=detail, rule=rule),)


def _accepted(measurement: Measurement, expectation: Expectation) -> Mapping[str, tuple[float, float]] | None:
    now = measurement.calibrated
    return None if now is None else expectation.calibrations.get(now.key)


def _told(moved: tuple[MovedRange, ...], ranges: int) -> str:
    first = moved[0]
    return f"{len(moved)} of {counted(ranges, 'range')} moved, the first that of '{first.value}', {first.text}"


def _apart(one: tuple[float, float], other: tuple[float, float]) -> float:
    furthest = max(abs(one[0] - other[0]), abs(one[1] - other[1]))
    if not furthest:
        return 0.0
    width = max(one[1] - one[0], other[1] - other[0])
    return min(furthest / width, 1.0) if width else 1.0
