"""Sums of products in declared accumulators by whole fractions and Python alone: the oracle of
``float_sums`` and of kernels.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import floor, inf, isfinite

from qbench.numerics import FloatSums, Register, Rounding

FORMATS = {Register.FLOAT32: (24, 127), Register.FLOAT16: (11, 15), Register.BFLOAT16: (8, 127)}


def exponent(value: Fraction) -> int:
    """⌊log₂ |value|⌋."""
    size = abs(value)
    found = size.numerator.bit_length() - size.denominator.bit_length()
    return found if Fraction(2) ** found <= size else found - 1


def rounded(value: Fraction, rules: FloatSums) -> float:
    """``value`` in the accumulator, by definition: a multiple of the last place."""
    if not value:
        return 0.0
    bits, most = FORMATS[rules.accumulator]
    bits = rules.accumulator_bits or bits
    place = Fraction(2) ** (max(exponent(value), 1 - most) - bits + 1)
    steps = abs(value) / place
    whole = floor(steps)
    if rules.rounding is Rounding.HALF_EVEN:
        whole = round(steps)  # Python's halves of fractions go to the even one
    found = whole * place
    largest = (2 - Fraction(2) ** (1 - bits)) * Fraction(2) ** most
    if found > largest:
        found = largest if rules.rounding is Rounding.TRUNCATE else inf
    return float(found) if value > 0 else -float(found)


def cut(value: Fraction, place: Fraction) -> Fraction:
    """Towards zero to a multiple of ``place``."""
    size = floor(abs(value) / place) * place
    return size if value > 0 else -size


def one_sum(left: Sequence[float], right: Sequence[float], rules: FloatSums) -> float:
    """The accumulator after one row by one column, each number finite."""
    total: float = 0.0
    for start in range(0, len(left), rules.group):
        pairs = [
            (Fraction(x), Fraction(w))
            for x, w in zip(left[start : start + rules.group], right[start:], strict=False)
        ]
        if not isfinite(total):
            return total
        joining = Fraction(total) if rules.joined else Fraction(0)
        adding = sum((x * w for x, w in pairs), joining)
        if rules.kept_bits:
            places = [exponent(x) + exponent(w) for x, w in pairs if x and w]
            places += [exponent(joining)] if joining else []
            if not places:
                continue
            place = Fraction(2) ** (max(places) - rules.kept_bits + 1)
            adding = sum((cut(x * w, place) for x, w in pairs), cut(joining, place))
        total = rounded(adding if rules.joined else Fraction(total) + adding, rules)
    return total


def sum_of_blocks(
    left: Sequence[float],
    right: Sequence[float],
    blocks: Sequence[tuple[slice, float]],
    rules: FloatSums,
) -> float:
    """The accumulator after ``blocks``, the sum of each of which is multiplied by its scale."""
    total = 0.0
    for part, scale in blocks:
        found = one_sum(left[part], right[part], rules)
        if not (isfinite(total) and isfinite(found)):
            total += found * scale
            continue
        total = rounded(Fraction(total) + Fraction(found) * Fraction(scale), rules)
    return total
