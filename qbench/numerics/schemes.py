"""The words that a machine's operators are told apart by: how it adds, averages, quantizes, and takes functions."""

import enum
from dataclasses import dataclass

from qbench.numerics.rounding import Rounding
from qbench.numerics.scaling import WIDEST_FACTOR, Scaling, ZeroPoint

LEAST_WEIGHT_BITS = 8
"""Of WEIGHTED: a ratio below 2^8 leaves its shift no less than 0."""


class AddScheme(enum.Enum):
    """How two quantized operands find a common scale.

    EXACT     round((s_a (a − z_a) + s_b (b − z_b)) / s_y), rational
    FUSED     two fused multiply-adds in float32 on the raw levels, zero points folded in          (ONNX Runtime)
    SEPARATE  the same with products that are rounded before they are added           (ONNX Runtime without FMA)
    REAL      dequantize, add in float32, quantize by the reciprocal                                  (PyTorch)
    HEADROOM  both to 2·max(s_a, s_b) with 20 bits of headroom (16-bit levels: 15), three multiplications  (TFLite)
    WEIGHTED  integer weights of both ratios, one shift                                     (XNNPACK, QNNPACK)
    EACH      each operand to the output's scale, then an integer sum                                (TVM, Glow)
    GRID      each operand to a grid of 2⁻¹⁵, then one product                               (Glow's interpreter)
    FINEST    the coarser operand to the finer one's scale, then one product                   (TVM's quantizer)
    """

    EXACT = "exact"
    FUSED = "fused"
    SEPARATE = "separate"
    REAL = "real"
    HEADROOM = "headroom"
    WEIGHTED = "weighted"
    EACH = "each"
    GRID = "grid"
    FINEST = "finest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Adding:
    """The add: its scheme, and what some schemes leave open.

    Args:
        scheme: how the operands find a common scale.
        bits, rounding: of WEIGHTED: its weights and its shift.
        least_power: of WEIGHTED: it takes ratios s / s_y in [2^least_power, 2^8).
        operands: of HEADROOM: how each is brought to the common scale; None: as their sum is to the output's.

    Raises:
        ValueError: settings that no machine has together.
    """

    scheme: AddScheme
    bits: int = 0
    rounding: Rounding = Rounding.HALF_EVEN
    least_power: int = -10
    operands: Scaling | None = None

    def __post_init__(self) -> None:
        weighted = self.scheme is AddScheme.WEIGHTED
        if weighted and not LEAST_WEIGHT_BITS <= self.bits <= WIDEST_FACTOR:
            raise ValueError(f"weighted sums have weights of {LEAST_WEIGHT_BITS} to {WIDEST_FACTOR} bits: 'bits'")
        if weighted and not -WIDEST_FACTOR <= self.least_power < LEAST_WEIGHT_BITS:
            raise ValueError(f"'least_power' is of ratios below 2^{LEAST_WEIGHT_BITS}: -{WIDEST_FACTOR} to 7")
        if not weighted and (self.bits or self.rounding is not Rounding.HALF_EVEN):
            raise ValueError("'bits' and 'rounding' are of weighted sums")
        if self.operands is not None and self.scheme is not AddScheme.HEADROOM:
            raise ValueError("'operands' is of sums with headroom")


class Averaging(enum.Enum):
    """How the levels of a window become their mean.

    SCALED   Σ (x − z_x), scaled by s_x / (s_y · count) as any accumulator
    FOLDED   the same, the count divided into the fixed multiplier by truncation                        (TFLite's MEAN)
    RAW      Σ x / count, rounded half away on the raw sum, zero point left in; where both grids are one      (TFLite)
    REAL     Σ s_x (x − z_x) / count / s_y + z_y in float32, in the order of the window, half to even (ONNX Runtime)
    WITHIN   as SCALED, by 1 / count where both grids are one: there scales do not enter                 (PyTorch)
    BIASED   Σ x, scaled as SCALED; z_y less what the input's zero point is there, rounded by itself      (LiteRT)
    DIVIDED  Σ (x − z_x) brought to the output's scale, then divided by count in integers, rounded half away; a window
             that counts its padding is SCALED                                                       (Glow on the CPU)
    """

    SCALED = "scaled"
    FOLDED = "folded"
    RAW = "raw"
    REAL = "real"
    WITHIN = "within"
    BIASED = "biased"
    DIVIDED = "divided"


class Softmax(enum.Enum):
    """How softmax of levels becomes levels.

    REAL     dequantize, softmax in float32, quantize
    TABLE    exp of differences to the largest level from a table; sum and quotient in float32       (ONNX Runtime)
    FIXED    differences in Q5.26, a fixed-point exp, sums in 12 integer bits, Newton's reciprocal         (TFLite)
    """

    REAL = "real"
    TABLE = "table"
    FIXED = "fixed"


class Functions(enum.Enum):
    """How functions of one value are computed.

    REAL    dequantize, the operator in float32, quantize; a sigmoid in float64, rounded to float32
    SHORT   a sigmoid by float32 steps; a hard swish in 16-bit fixed point                                   (TFLite)
    FUSED   as REAL, but sigmoid and tanh as quotients of polynomials by fused multiply-adds           (ONNX Runtime)
    SEPARATE    the same with products that are rounded before they are added              (ONNX Runtime without FMA)
    """

    REAL = "real"
    SHORT = "short"
    FUSED = "fused"
    SEPARATE = "separate"


class NotANumber(enum.Enum):
    """The level that NaN becomes: an end of the grid. Infinities saturate everywhere."""

    LOWEST = "lowest"
    HIGHEST = "highest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantizing:
    """From floats to levels: x / s or x · (1 / s) in float32, the tie rule, the zero point before or after it; NaN.

    Before it, and with one scale, x · (1 / s) + z is one fused step (PyTorch's quantize_per_tensor; per channel two).
    """

    rounding: Rounding = Rounding.HALF_EVEN
    reciprocal: bool = False
    zero_point: ZeroPoint = ZeroPoint.AFTER
    nan: NotANumber = NotANumber.LOWEST


class Dequantizing(enum.Enum):
    """From levels to the float32 numbers that a function is taken of.

    CENTRED: (q − z) · s. FUSED: fma(q, s, −f32(s · z)), which can differ in its last bit  (PyTorch's vectors).
    """

    CENTRED = "centred"
    FUSED = "fused"
