"""How numbers are written in verdicts: percent with two digits, differences of shares in percentage points.

A value of another unit has five digits and its unit: ``35.213 dB``; a plain number has none.
"""

from qbench.metrics import Score


def percent(value: float) -> str:
    """A fraction as percent: ``93.25 %``."""
    return f"{100 * value:.2f} %"


def points(difference: float) -> str:
    """A difference of fractions in percentage points: ``0.45 pp``."""
    return f"{100 * difference:.2f} pp"


def short_percent(value: float) -> str:
    """A setting as percent, no more digits than it needs: ``0.5 %``."""
    return f"{100 * value:g} %"


def valued(score: Score, value: float) -> str:
    """A value of ``score``'s metric in its unit: ``93.25 %``, ``35.213 dB``."""
    return percent(value) if score.unit == "%" else f"{value:.5g} {score.unit}".rstrip()


def apart(score: Score, difference: float) -> str:
    """A difference of values of ``score``'s metric: ``0.45 pp``, ``1.3 dB``."""
    return points(difference) if score.unit == "%" else valued(score, difference)
