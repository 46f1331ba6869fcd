"""How numbers are written in verdicts: percent with two digits, differences of shares in percentage points.

Half of the last digit may stand on either side in a float (1.805 is 1.80499…), depending on how it was reached; so what
is below a millionth of it is taken off first, and one number reads the same wherever it comes from.

What is to be compared by eye and not to be gated by has two digits, however large or small it is.

A value of another unit has five digits and its unit: ``35.213 dB``; a plain number has none.
"""

import math
from decimal import Decimal

from qbench.metrics import Score

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
