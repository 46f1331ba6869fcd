"""Sums of products of floats of few bits, and of numbers in blocks, in a declared accumulator."""

from __future__ import annotations  # help() shows npt.ArrayLike, and not the union behind it

import enum
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from qbench.numerics.rounding import Rounding

# Sums of products of floats, group by group of g products:
#
#     S   = Σ p_k                                  kept_bits = 0, where g = 1
#     S   = Σ trunc(p_k / u) · u                   u = 2^(e − kept_bits + 1)
#     acc = round(acc + S)                         to the accumulator's numbers, once
#
# with p_k = x_k · w_k, which is exact, and e the largest exponent in the group, ⌊log₂ |x_k|⌋ +
# ⌊log₂ |w_k|⌋: that of the significands' product before it is normalized, as circuits have it. With
# ``joined`` the accumulator is aligned and cut in the same way as the products. Infinities and NaN
# go through as in IEEE 754.
#
# Sources: DeepSeek-AI, "DeepSeek-V3 Technical Report", arXiv 2412.19437, section 3.5.2 (float8:
# groups of 32, 14 bits); Fasi, Higham, Mikaitis, Pranesh, "Numerical behavior of NVIDIA tensor
# cores", PeerJ Computer Science 7:e330, 2021 (alignment to the largest exponent, truncation, one
# normalization; ``joined``).

Reals64 = npt.NDArray[np.float64]

MOST_PRODUCTS = 1024
MOST_KEPT = 40
"""With ``MOST_PRODUCTS`` a sum of cut products has at most 52 bits, so float64 has it exactly."""
_AT_ONCE = 1 << 20
"""Products that numpy holds at once."""
NO_EXPONENT = -100_000
"""Instead of the exponent of zero."""


class Register(enum.Enum):
    """The format of an accumulator."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"


_FORMATS = {Register.FLOAT32: (24, 127), Register.FLOAT16: (11, 15), Register.BFLOAT16: (8, 127)}
"""Significant bits, and the exponent of the largest number; the smallest normal number has 1 less
this one.
"""


class ScaledPart(enum.Enum):
    """What scales are multiplied with.

    SUMS      numbers of codes are multiplied; the sum of each block is multiplied by its scale, and
              what all blocks add up to by the scales of tensors and channels
    OPERANDS  codes are dequantized to float32 first (ONNX Runtime, OpenVINO)
    """

    SUMS = "sums"
    OPERANDS = "operands"


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatSums:
    """How products of floats are summed.

    Args:
        accumulator: the format that every sum is rounded to.
        accumulator_bits: significant bits of it that are used; 0: all.
        rounding: of a sum to the accumulator: half even, or truncated.
        group: products that are added to each other before the accumulator, 1 to 1024.
        kept_bits: of each product in a group, from the largest exponent in it downwards (2 to 40);
            what is below is cut off. 0: all, of groups of one.
        joined: the accumulator is cut to ``kept_bits`` with the group.
        scaled: what scales are multiplied with.

    Raises:
        ValueError: settings that no arithmetic has together.
    """

    accumulator: Register = Register.FLOAT32
    accumulator_bits: int = 0
    rounding: Rounding = Rounding.HALF_EVEN
    group: int = 1
    kept_bits: int = 0
    joined: bool = False
    scaled: ScaledPart = ScaledPart.SUMS

    def __post_init__(self) -> None:
        bits = _FORMATS[self.accumulator][0]
        if self.accumulator_bits and not 2 <= self.accumulator_bits <= bits:
            raise ValueError(
                f"'accumulator_bits' of {self.accumulator.value} is 0 or 2 to {bits}, not "
                f"{self.accumulator_bits}"
            )
        if self.rounding not in (Rounding.HALF_EVEN, Rounding.TRUNCATE):
            raise ValueError("sums of floats are rounded half_even, or truncate")
        if not 1 <= self.group <= MOST_PRODUCTS:
            raise ValueError(f"a group has 1 to {MOST_PRODUCTS} products, not {self.group}")
        if self.kept_bits and not 2 <= self.kept_bits <= MOST_KEPT:
            raise ValueError(f"'kept_bits' is 0 or 2 to {MOST_KEPT}, not {self.kept_bits}")
        if not self.kept_bits and (self.group > 1 or self.joined):
            raise ValueError(
                "products that are aligned in a group keep a stated number of bits: 'kept_bits'"
            )

    @property
    def significant(self) -> int:
        """Significant bits of the accumulator."""
        return self.accumulator_bits or _FORMATS[self.accumulator][0]

    @property
    def least_exponent(self) -> int:
        """Of the accumulator's smallest normal number."""
        return 1 - _FORMATS[self.accumulator][1]

    @property
    def largest(self) -> float:
        """The accumulator's largest number."""
        return float(np.ldexp(2 - 2.0 ** (1 - self.significant), _FORMATS[self.accumulator][1]))

    @property
    def truncates(self) -> bool:
        """Whether sums are rounded towards zero; then what is too large becomes the largest number,
        and else infinity.
        """
        return self.rounding is Rounding.TRUNCATE


def rounded_sums(first: Reals64, second: Reals64, rules: FloatSums) -> Reals64:
    """``first`` + ``second`` (float64) as numbers of the accumulator, rounded once."""
    return _rounded(_odd_sum(first, second), rules)


def float_sums(left: Reals64, right: Reals64, rules: FloatSums) -> Reals64:
    """What the accumulator holds at the end of each sum, from 0.

    Args:
        left: (M, K) numbers, float64, products of which with those of ``right`` are exact.
        right: (K, N) likewise.
        rules: how they are summed.

    Returns:
        (M, N), float64.
    """
    rows = max(_AT_ONCE // max(right.shape[1] * rules.group, 1), 1)
    exponents = exponents_of(left), exponents_of(right)
    found = np.empty((len(left), right.shape[1]))
    with np.errstate(invalid="ignore", over="ignore"):
        for start in range(0, len(left), rows):
            part = slice(start, start + rows)
            found[part] = _sums(left[part], right, (exponents[0][part], exponents[1]), rules)
    return found


def exponents_of(numbers: Reals64) -> npt.NDArray[np.int64]:
    """⌊log₂ |x|⌋ of ``numbers``; far below all others for zero and what is not finite."""
    found = np.frexp(numbers)[1].astype(np.int64) - 1
    found[(numbers == 0) | ~np.isfinite(numbers)] = NO_EXPONENT
    return found


def _sums(
    left: Reals64,
    right: Reals64,
    exponents: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]],
    rules: FloatSums,
) -> Reals64:
    total = np.zeros((len(left), right.shape[1]))
    for start in range(0, left.shape[1], rules.group):
        part = slice(start, start + rules.group)
        products = left[:, part, None] * right[None, part]
        if not rules.kept_bits:
            total = rounded_sums(total, products[:, 0], rules)
            continue
        largest = (exponents[0][:, part, None] + exponents[1][None, part]).max(axis=1)
        plain = products.sum(axis=1) + (total if rules.joined else 0)
        if rules.joined:
            largest = np.maximum(largest, exponents_of(total))
        shift = np.where(largest > NO_EXPONENT // 2, rules.kept_bits - 1 - largest, 0)
        whole = np.trunc(np.ldexp(products, shift[:, None])).sum(axis=1)
        if rules.joined:
            whole += np.trunc(np.ldexp(total, shift))
        cut = np.where(np.isfinite(plain), np.ldexp(whole, -shift), plain)
        total = _rounded(cut, rules) if rules.joined else rounded_sums(total, cut, rules)
    return total


def _odd_sum(first: Reals64, second: Reals64) -> Reals64:
    """The sums in float64, rounded to the odd neighbour where they are inexact (Boldo and Melquiond
    2008): rounding these again to fewer bits gives what one rounding gives.
    """
    total = first + second
    part = total - first
    lost = (first - (total - part)) + (second - part)
    bits = np.ascontiguousarray(total).view(np.int64)
    moved = np.isfinite(total) & (lost != 0) & (bits & 1 == 0)
    return np.where(moved, np.nextafter(total, np.copysign(np.inf, lost)), total)


def _rounded(values: Reals64, rules: FloatSums) -> Reals64:
    bits, least = rules.significant, rules.least_exponent
    places = np.maximum(np.frexp(values)[1] - 1, least) - bits + 1
    steps = np.ldexp(values, -places)
    steps = np.trunc(steps) if rules.truncates else np.rint(steps)
    found = np.ldexp(steps, places)
    beyond = np.isfinite(values) & (np.abs(found) > rules.largest)
    end = rules.largest if rules.truncates else np.inf
    return np.asarray(np.where(beyond, np.copysign(end, found), found))
