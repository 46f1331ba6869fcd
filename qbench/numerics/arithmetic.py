"""How a machine counts, as one value: multiplier, rounding, accumulator, and the schemes of its operators.

    acc = Σ (x − z_x)(w − z_w) + bias                          the accumulator
    M   = s_x · s_w / s_y                                      a real number, which no two machines hold alike
    y   = clamp(round(acc · M) + z_y)                          where, how often and before what it rounds: here

A value of this type stands for an engine wherever one is taken. It is data: printable, readable from TOML, and part of
every measurement by its digest.
"""

import enum
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase

from qbench.numerics.accumulation import Accumulator
from qbench.numerics.qparams import QParams
from qbench.numerics.rounding import Rounding
from qbench.numerics.scaling import Scaling, ZeroPoint
from qbench.storage import digest_plain, table_from_value, toml_text

_MEANING = 1
"""Of the words here, as part of every digest: raised when one of them comes to mean something else."""


class AddScheme(enum.Enum):
    """How two quantized operands find a common scale.

    EXACT     round((s_a (a − z_a) + s_b (b − z_b)) / s_y), rational
    FUSED     two fused multiply-adds in float32 on the raw levels, zero points folded in          (ONNX Runtime)
    SEPARATE  the same with products that are rounded before they are added           (ONNX Runtime without FMA)
    REAL      dequantize, add in float32, quantize by the reciprocal                                  (PyTorch)
    HEADROOM  both to 2·max(s_a, s_b) with 20 bits of headroom, three fixed multiplications           (TFLite)
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
        operands: of HEADROOM: how each is brought to the common scale; None: as their sum is to the output's.
    """

    scheme: AddScheme
    bits: int = 0
    rounding: Rounding = Rounding.HALF_EVEN
    operands: Scaling | None = None


class Averaging(enum.Enum):
    """How the levels of a window become their mean.

    SCALED   Σ (x − z_x), scaled by s_x / (s_y · count) as any accumulator
    FOLDED   the same, the count divided into the fixed multiplier by truncation                        (TFLite's MEAN)
    RAW      Σ x / count, rounded half away on the raw sum, zero point left in; where both grids are one      (TFLite)
    REAL     Σ s_x (x − z_x) / count / s_y + z_y in float32, in the order of the window, half to even (ONNX Runtime)
    WITHIN   as SCALED, by 1 / count where both grids are one: there scales do not enter                 (PyTorch)
    BIASED   Σ x, scaled as SCALED; z_y less what the input's zero point is there, rounded by itself      (LiteRT)
    """

    SCALED = "scaled"
    FOLDED = "folded"
    RAW = "raw"
    REAL = "real"
    WITHIN = "within"
    BIASED = "biased"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """Some nodes of a machine that count otherwise: what is given here stands there instead of the machine's own.

    Args:
        operators: operators it applies to, as a float graph calls them (``Conv``); empty: any.
        names: patterns (``*``, ``?``) of node names; empty: any.
        scaling, accumulator, adding, averaging, mean, softmax, functions, multiplying, rescaling, quantizing,
            dequantizing: as in ``Arithmetic``; None: the machine's own.

    Raises:
        ValueError: it applies to every node, or changes nothing.
    """

    operators: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    scaling: Scaling | None = None
    accumulator: Accumulator | None = None
    adding: Adding | None = None
    averaging: Averaging | None = None
    mean: Averaging | None = None
    softmax: Softmax | None = None
    functions: Functions | None = None
    multiplying: Scaling | None = None
    rescaling: Scaling | None = None
    quantizing: Quantizing | None = None
    dequantizing: Dequantizing | None = None

    def __post_init__(self) -> None:
        if not self.operators and not self.names:
            raise ValueError("an override names operators or nodes; what holds everywhere is the machine's own")
        if not self.changes:
            raise ValueError("an override that changes nothing")

    @property
    def changes(self) -> dict[str, object]:
        """What it puts in the place of the machine's own, by field."""
        given = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in ("operators", "names")}
        return {name: value for name, value in given.items() if value is not None}

    def applies(self, operator: str, name: str) -> bool:
        """Whether the node called ``name`` is meant, which was ``operator`` in the float graph."""
        fits = not self.names or any(fnmatchcase(name, pattern) for pattern in self.names)
        return fits and (not self.operators or operator in self.operators)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arithmetic:
    """One machine.

    Args:
        name: how backends and suites call it.
        source: what it follows, for people.
        scaling: of accumulators.
        accumulator: where they come from.
        adding: of two quantized operands.
        averaging: of the levels of a window.
        mean: of all levels along some axes.
        softmax: of levels.
        functions: of one value.
        multiplying: of the product of two quantized operands; None: as accumulators are.
        rescaling: of levels from one grid to another; None: dequantized and quantized where multipliers are floats, as
            accumulators are where they are integers (``numerics.rescaling``).
        quantizing: of floats, and of the results of operators that are computed in float.
        dequantizing: of levels, for operators that are computed in float.
        narrow: levels never reach the lowest one of a signed grid.
        overrides: nodes that count otherwise; the first that applies holds.
    """

    name: str
    source: str
    scaling: Scaling
    accumulator: Accumulator = field(default_factory=Accumulator)
    adding: Adding = field(default_factory=lambda: Adding(scheme=AddScheme.EXACT))
    averaging: Averaging = Averaging.SCALED
    mean: Averaging = Averaging.SCALED
    softmax: Softmax = Softmax.REAL
    functions: Functions = Functions.REAL
    multiplying: Scaling | None = None
    rescaling: Scaling | None = None
    quantizing: Quantizing = field(default_factory=Quantizing)
    dequantizing: Dequantizing = Dequantizing.CENTRED
    narrow: bool = False
    overrides: tuple[Override, ...] = ()

    @property
    def digest(self) -> str:
        """Of all that changes numbers: two machines that count alike have one digest, whatever they are called."""
        words = table_from_value(self)
        return digest_plain([_MEANING, {key: word for key, word in words.items() if key not in ("name", "source")}])

    def __str__(self) -> str:
        """The TOML file that spells it, one line a field that is not as by default."""
        return toml_text(self).rstrip()

    def limits(self, output: QParams) -> tuple[int, int]:
        """The levels between which this machine clamps results on ``output``."""
        return max(output.qmin, output.qtype.qmin + int(self.narrow and output.qtype.signed)), output.qmax

    def at(self, operator: str, name: str) -> "Arithmetic":
        """How the node called ``name``, ``operator`` in the float graph, is counted; no overrides are left."""
        override = next((one for one in self.overrides if one.applies(operator, name)), None)
        changes = {} if override is None else override.changes
        return replace(self, overrides=(), **changes) if self.overrides else self  # type: ignore[arg-type]
