"""How a machine multiplies by a real number: what it keeps of it, where and how often it rounds.

M = s_x · s_w / s_y;   y = clamp(round(acc · M) + z_y)
"""

import enum
from dataclasses import dataclass

from qbench.numerics.rounding import Rounding


class MultiplierForm(enum.Enum):
    """What a machine keeps of the real multiplier M.

    EXACT: M itself, a rational. FLOAT32, FLOAT64: a float, multiplied in floats. FIXED: M = m · 2⁻ⁿ with
    2^(bits−1) ≤ m < 2^bits. FRACTION: M = m · 2⁻ᵇⁱᵗˢ, the same shift for every M, m ≥ 1 and below 2³¹. SHORT: Glow's
    eight or nine bits between two shifts. POWER: a power of two. CHAIN: nothing: float32 sums are multiplied by s_x, by
    s_w and by 1 / s_y, one after the other.
    """

    EXACT = "exact"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    FIXED = "fixed"
    FRACTION = "fraction"
    SHORT = "short"
    POWER = "power"
    CHAIN = "chain"


class Precision(enum.Enum):
    """In what s_x · s_w / s_y is computed before it is brought to its form.

    DOUBLE, SINGLE: float64, float32. PRODUCT: s_x · s_w in float32, by s_y in float64. RECIPROCAL: float32, the product
    times 1 / s_y.
    """

    DOUBLE = "double"
    SINGLE = "single"
    PRODUCT = "product"
    RECIPROCAL = "reciprocal"


class Inverted(enum.Enum):
    """Which scales of a CHAIN an engine is given as reciprocals: it counts with 1 / (1 / s), often not quite s."""

    NONE = "none"
    INPUT = "input"
    BOTH = "both"


WIDEST_FACTOR = 31
"""Bits of a fixed multiplier: a product with 32 more fits 64."""
WIDEST_PRODUCT = 64
_LONGEST_SHIFT, _WIDEST_LEVEL = 62, 40


class ZeroPoint(enum.Enum):
    """Whether the zero point is added to the rounded level or to the real number."""

    AFTER = "after"
    BEFORE = "before"


@dataclass(frozen=True, slots=True)
class Stage:
    """One rounding shift of a fixed multiplier: by ``bits`` (1 to 62), or by all that is left (None).

    Raises:
        ValueError: another number of bits.
    """

    rounding: Rounding
    bits: int | None = None

    def __post_init__(self) -> None:
        if self.bits is not None and not 1 <= self.bits <= _LONGEST_SHIFT:
            raise ValueError(f"a stage shifts by 1 to {_LONGEST_SHIFT} bits, not {self.bits}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """From an accumulator to a level: y = clamp(round(acc · M) + z).

    Args:
        form: what is kept of M.
        bits: significant bits of a FIXED multiplier, fraction bits of a FRACTION; 0 elsewhere.
        precision: of M before that.
        stages: the shifts of a FIXED, FRACTION or POWER multiplier, in order; of a float one the last stage's rounding.
        zero_point: added after the last rounding, or before it.
        product_bits: width of acc · m of a SHORT multiplier, which wraps; 0: wide enough for any.
        inner_bits: width (2 to 40) to which the rounded product saturates before the zero point is added; 0: none.
        shift_powers: an M that is a power of two shifts once (the first stage's rounding) instead of multiplying.
        real_bias: of float forms: a bias is not added to the sums but stays the float32 number b · s_x · s_w, which is
            brought to the sums' scale, or (CHAIN) joins behind s_w.
        inverted: scales of a CHAIN that are reciprocals of reciprocals.

    Raises:
        ValueError: settings that no machine has together.
    """

    form: MultiplierForm
    bits: int = 0
    precision: Precision = Precision.DOUBLE
    stages: tuple[Stage, ...] = (Stage(Rounding.HALF_EVEN),)
    zero_point: ZeroPoint = ZeroPoint.AFTER
    product_bits: int = 0
    inner_bits: int = 0
    shift_powers: bool = False
    real_bias: bool = False
    inverted: Inverted = Inverted.NONE

    def __post_init__(self) -> None:
        if self.form is MultiplierForm.EXACT and self.precision is not Precision.DOUBLE:
            raise ValueError("a rational multiplier is taken from the scales as they are: its precision is double")
        if self.inverted is not Inverted.NONE and self.form is not MultiplierForm.CHAIN:
            raise ValueError("'inverted' is of chains of scales")
        if self.real_bias and self.form not in (MultiplierForm.FLOAT32, MultiplierForm.CHAIN):
            raise ValueError("a bias that stays a float32 number joins float32 sums: the form is float32 or chain")
        if self.product_bits and self.form is not MultiplierForm.SHORT:
            raise ValueError("'product_bits' is of short multipliers")
        self._check_widths()
        if not self.stages or any(stage.bits is None for stage in self.stages[:-1]) or self.stages[-1].bits is not None:
            raise ValueError("every stage but the last shifts by a stated number of bits, the last by the rest")
        if (self.form in (MultiplierForm.FIXED, MultiplierForm.FRACTION)) != (self.bits > 0):
            raise ValueError("'bits' is of fixed multipliers and fractions, and only of them")
        if self.zero_point is ZeroPoint.BEFORE and self.form not in (
            MultiplierForm.EXACT,
            MultiplierForm.FLOAT32,
            MultiplierForm.FLOAT64,
            MultiplierForm.CHAIN,
        ):
            raise ValueError("a zero point before the rounding is added to a real number: the multiplier is no float")

    def _check_widths(self) -> None:
        if not 0 <= self.bits <= WIDEST_FACTOR:
            raise ValueError(f"a fixed multiplier has up to {WIDEST_FACTOR} bits, not {self.bits}")
        if self.product_bits and not 2 <= self.product_bits <= WIDEST_PRODUCT:
            raise ValueError(f"'product_bits' is 0 or 2 to {WIDEST_PRODUCT}, not {self.product_bits}")
        if self.inner_bits and not 2 <= self.inner_bits <= _WIDEST_LEVEL:
            raise ValueError(f"'inner_bits' is 0 or 2 to {_WIDEST_LEVEL}, not {self.inner_bits}")
        if sum(stage.bits or 0 for stage in self.stages) > _LONGEST_SHIFT:
            raise ValueError(f"stages shift by up to {_LONGEST_SHIFT} bits in all")

    @property
    def factor_bits(self) -> int:
        """The widest integer that sums are multiplied by, in bits; 0: by none."""
        match self.form:
            case MultiplierForm.FIXED:
                return self.bits
            case MultiplierForm.FRACTION | MultiplierForm.SHORT:
                return WIDEST_FACTOR
            case _:
                return 0
