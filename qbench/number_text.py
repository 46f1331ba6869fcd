"""Numbers as people read them, in verdicts, reports and on the command line: the one place.

Shares are shown times 100 with two decimals, differences of shares in percentage points (pp),
values of another unit with five digits and their unit: ``35.213 dB``. A plain number has no unit.

A tie of the last digit may be on either side in a float (1.805 is 1.80499…), depending on how it
was computed. Verdicts compare numbers that were computed in different ways: they pass ``settled``
shares, which print the same.
"""

import math
from decimal import Decimal

MINUS = "\N{MINUS SIGN}"

_DIGITS = 9
_HUNDREDTH = 0.01
_LEAST_SHARE = 0.0001
"""Share below which its digits have no meaning for a reader."""


def settled(share: float) -> float:
    """``share`` without the rounding of its last binary digits, a tie on the side away from
    zero; zero has no sign.
    """
    rounded = round(100 * share, _DIGITS)
    return (rounded + math.copysign(10.0**-_DIGITS, rounded)) / 100 if rounded else 0.0


def percent(share: float, digits: int = 2) -> str:
    """0.7713 → ``77.13 %``."""
    return f"{100 * share:.{digits}f} %".replace("-", MINUS)


def short_percent(share: float) -> str:
    """A setting as percent, no more digits than it needs: ``0.5 %``."""
    return f"{100 * share:g} %"


def tenth_percent(share: float) -> str:
    """A share of work to a tenth of a percent, without a zero behind the point: ``100 %``,
    ``98.6 %``, ``0.4 %``; what is less is ``< 0.1 %``.
    """
    if 0 < share < _TENTH:
        return "< 0.1 %"
    return f"{100 * share:.1f}".removesuffix(".0") + " %"


_TENTH = 0.0005


def rough_percent(share: float) -> str:
    """A share to be compared by eye: two digits, never as a power of ten: ``100 %``, ``12 %``,
    ``0.034 %``.
    """
    return f"{Decimal(f'{100 * share:.2g}'):f} %"


def small_percent(share: float) -> str:
    """``rough_percent`` that stops at ``< 0.01 %``."""
    return "< 0.01 %" if 0 < share < _LEAST_SHARE else rough_percent(share)


def signed(number: float, digits: int = 2) -> str:
    """−1.25, +0.30; zero, and what rounds to it, has no sign."""
    text = f"{number:+.{digits}f}"
    return text[1:] if float(text) == 0 else text.replace("-", MINUS)


def points(change: float, digits: int = 2, *, unit: bool = True) -> str:
    """A change of a share: −0.0125 → ``−1.25 pp``."""
    return signed(100 * change, digits) + (" pp" if unit else "")


def change_text(change: float, unit: str, *, digits: int = 5) -> str:
    """A change of a value in its unit, zero with a plus: ``−1.25 pp``, or so many digits:
    ``−2.1 dB``.
    """
    number, unit = (
        (f"{100 * change:+.2f}", "pp") if unit == "%" else (f"{change:+.{digits}g}", unit)
    )
    number = "+0.00" if number == "-0.00" else number
    return f"{number.replace('-', MINUS)} {unit}".rstrip()


def value_text(value: float, unit: str) -> str:
    """A value of a metric in its unit: ``93.25 %``, ``35.213 dB``, ``12,345 bytes``."""
    if unit == "%":
        return percent(value)
    if unit == "bytes":
        return f"{value:,.0f} bytes"
    return f"{value:.5g} {unit}".strip()


def distance_text(distance: float, unit: str) -> str:
    """How far two values of a metric are apart, without a sign: ``0.45 pp``, ``1.3 dB``."""
    return (
        f"{100 * distance:.2f} pp".replace("-", MINUS)
        if unit == "%"
        else value_text(distance, unit)
    )


def decimals_text(number: float, digits: int) -> str:
    """``number`` with so many decimals and a real minus sign; what rounds to zero has none."""
    return signed(number, digits).removeprefix("+")


def steps_text(steps: float) -> str:
    """``1 step``, ``0.5 steps``; to a hundredth, or two digits of what is less."""
    far = steps == 0 or steps >= _HUNDREDTH
    text = f"{steps:.2f}".rstrip("0").rstrip(".") if far else f"{steps:.2g}"
    return f"{text} step" if text == "1" else f"{text} steps"


def thousands(count: int) -> str:
    """12345 → ``12,345``."""
    return f"{count:,}".replace("-", MINUS)


def rounded_count(count: int) -> str:
    """``960``, ``34.7 k``, ``1.23 M``: a number to compare by eye."""
    rounded = float(f"{count:.3g}")
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if rounded >= size:
            return f"{rounded / size:#.3g}".rstrip(".") + f" {unit}"
    return str(count)


def counted(count: int, one: str, many: str = "", *, grouped: bool = False) -> str:
    """``1 cell``, ``2 cells``; ``grouped`` puts commas between thousands."""
    return f"{thousands(count) if grouped else count} {one if count == 1 else many or one + 's'}"
