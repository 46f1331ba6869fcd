"""How numbers are written in verdicts, and what to type next for each way of being red."""

import math
from decimal import Decimal

from qbench.metrics import Score

# How numbers are written in verdicts: percent with two digits, differences of shares in percentage points.
#
# Half of the last digit may stand on either side in a float (1.805 is 1.80499…), depending on how it was reached; so
# what is below a millionth of it is taken off first, and one number reads the same wherever it comes from.
#
# What is to be compared by eye and not to be gated by has two digits, however large or small it is.
#
# A value of another unit has five digits and its unit: ``35.213 dB``; a plain number has none.

_DIGITS = 9

_HUNDREDTH = 0.01


def percent(value: float) -> str:
    """A fraction as percent: ``93.25 %``."""
    return f"{_settled(100 * value):.2f} %"


def points(difference: float) -> str:
    """A difference of fractions in percentage points: ``0.45 pp``."""
    return f"{_settled(100 * difference):.2f} pp".replace("-", "−")


def short_percent(value: float) -> str:
    """A setting as percent, no more digits than it needs: ``0.5 %``."""
    return f"{100 * value:g} %"


def rough_percent(share: float) -> str:
    """A share to two digits, never as a power of ten: ``100 %``, ``12 %``, ``0.034 %``."""
    return f"{Decimal(f'{100 * share:.2g}'):f} %"


def valued(score: Score, value: float) -> str:
    """A value of ``score``'s metric in its unit: ``93.25 %``, ``35.213 dB``."""
    return percent(value) if score.unit == "%" else f"{value:.5g} {score.unit}".rstrip()


def apart(score: Score, difference: float) -> str:
    """A difference of values of ``score``'s metric: ``0.45 pp``, ``1.3 dB``."""
    return points(difference) if score.unit == "%" else valued(score, difference)


def steps_text(steps: float) -> str:
    """``1 step``, ``0.5 steps``; to a hundredth, or two digits of what is less."""
    far = steps == 0 or steps >= _HUNDREDTH
    text = f"{steps:.2f}".rstrip("0").rstrip(".") if far else f"{steps:.2g}"
    return f"{text} step" if text == "1" else f"{text} steps"


def _settled(value: float) -> float:
    """``value`` without the rounding of its last binary digits, a tie on the side away from zero; zero has no sign."""
    rounded = round(value, _DIGITS)
    return rounded + math.copysign(10.0**-_DIGITS, rounded) if rounded else 0.0


# What to type next: the exact command, or the line of a file to change, for each way of being red.


def _command(node_id: str, options: str, *, reason: bool) -> str:
    return f'pytest "{node_id}" {options}' + (' --qbench-reason "…"' if reason else "")


def _model(node_id: str) -> str:
    """The node of the cell's model: a reference belongs to all its cells."""
    return node_id.rpartition("::")[0] or node_id


def missing_model(node_id: str) -> str:
    """No baseline at all: make the fp32 reference, and accept what its cells measure."""
    return _command(_model(node_id), "--qbench-accept-fp32 --qbench-accept=new", reason=False)


def stale(node_id: str) -> str:
    """A reference of something else: make it anew, and look at what its cells measure now."""
    return _command(_model(node_id), "--qbench-accept-fp32 --qbench-accept=all", reason=True)


def missing_cell(node_id: str) -> str:
    """A cell nobody approved yet."""
    return _command(node_id, "--qbench-accept=new", reason=False)


def changed(node_id: str) -> str:
    """A result that differs from the approved one."""
    return _command(node_id, "--qbench-accept=changed", reason=True)


def improved(node_id: str) -> str:
    """A result that is better than the approved one."""
    return _command(node_id, "--qbench-accept=improved", reason=True)


def failed(node_id: str, *, drifted: bool, floor: bool) -> str:
    """A loss is not accepted away: the rule has to admit it, or the quarantine list to name it."""
    if floor and drifted:
        return changed(node_id) + " lowers the floor, never under the suite's minimum; else find the cause"
    accept = f"{changed(node_id)} records the new numbers, but " if drifted else ""
    return f"{accept}this stays red: {still_failing()}"


def still_failing() -> str:
    """Its numbers are recorded, and beyond what the rule admits."""
    return "find the cause, or give the cell its own tolerance or a quarantine entry"


def undecided(node_id: str, *, whole: bool) -> str:
    """A sample that cannot tell: a larger one does, which the data has where this was not the ``whole`` of it."""
    more = (
        "when the suite gives its model that many ('samples', or other 'data')" if whole else "without --qbench-limit"
    )
    return f'pytest "{node_id}" again {more}; decision = "point" goes by the counts alone'


def too_far() -> str:
    """Nothing accepted moves a limit."""
    return "find the cause, or give the model another of 'limits' or the cell a quarantine entry"


def unequal(backend: str) -> str:
    """Nothing is accepted here either: two backends count one graph otherwise."""
    return (
        f"find why it counts otherwise than {backend} there, admit it by 'close_to', or list it in the quarantine file"
    )


def quarantine_over(pattern: str, owner: str) -> str:
    """The excuse has run out."""
    return f"Ask {owner} to mend the cell, or to renew the entry '{pattern}' in the quarantine file with a new date"


def no_longer_fails(pattern: str) -> str:
    """The excuse is not needed."""
    return f"Remove the entry '{pattern}' from the quarantine file"


def support_lost(slug: str) -> str:
    """A cell that ran no longer does: nothing to accept, and nothing to pass over either."""
    return f"find the cause; if it is meant, take '{slug}' out of the model's baseline file"
