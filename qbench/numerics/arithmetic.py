"""The rules by which an engine computes, as one value, and the arithmetics that can be named."""

import enum
import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from types import MappingProxyType

from qbench.errors import InputError
from qbench.extension import Catalogue, Extension, known_extensions
from qbench.numerics.accumulator import Accumulator
from qbench.numerics.float_accumulator import FloatSums
from qbench.numerics.qparams import QParams
from qbench.numerics.rounding import Rounding
from qbench.storage import digest_plain, read_toml, table_from_value, toml_text, value_from_table

# Multiplication by a real number: its representation, where and how often it is rounded.
#
# M = s_x · s_w / s_y;   y = clamp(round(acc · M) + z_y)


class MultiplierForm(enum.Enum):
    """What an arithmetic keeps of the real multiplier M.

    EXACT     M itself, a rational
    FLOAT32   M rounded to float32; sums are multiplied in float32
    FLOAT64   M rounded to float64; sums are multiplied in float64
    FIXED     M = m · 2⁻ⁿ with 2^(bits−1) ≤ m < 2^bits
    FRACTION  M = m · 2⁻ᵇⁱᵗˢ with 1 ≤ m < 2³¹: the same shift for every M
    SHORT     eight or nine bits of M between two shifts (Glow)
    POWER     a power of two
    CHAIN     nothing: float32 sums are multiplied by s_x, by s_w and by 1 / s_y, one after the
              other
    RANGE     nothing: a factor and an offset are computed in float32 from the real numbers at both
              ends of the output's codes, and one fused step applies both to the sums
    """

    EXACT = "exact"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    FIXED = "fixed"
    FRACTION = "fraction"
    SHORT = "short"
    POWER = "power"
    CHAIN = "chain"
    RANGE = "range"


class Precision(enum.Enum):
    """In what s_x · s_w / s_y is computed before it is brought to its form.

    DOUBLE      float64
    SINGLE      float32
    PRODUCT     s_x · s_w in float32, which is divided by s_y in float64
    RECIPROCAL  float32: s_x · s_w is multiplied by 1 / s_y
    """

    DOUBLE = "double"
    SINGLE = "single"
    PRODUCT = "product"
    RECIPROCAL = "reciprocal"


class Inverted(enum.Enum):
    """Which scales of a CHAIN an engine gets as reciprocals: it computes with 1 / (1 / s), which
    often differs from s in the last bit.
    """

    NONE = "none"
    INPUT = "input"
    BOTH = "both"


_BY_SHIFTS = frozenset({MultiplierForm.FIXED, MultiplierForm.POWER})
WIDEST_FACTOR = 31
"""The most bits of a fixed multiplier: its product with a sum of 32 bits fits 64."""
WIDEST_PRODUCT = 64
_LONGEST_SHIFT, _WIDEST_CODE = 62, 40


class ZeroPoint(enum.Enum):
    """Whether the zero point is added to the rounded code or to the real number."""

    AFTER = "after"
    BEFORE = "before"


@dataclass(frozen=True, slots=True)
class Stage:
    """One rounding shift of a fixed multiplier: by ``bits`` (1 to 62), or by all left (None).

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
    """From an accumulator to a code: y = clamp(round(acc · M) + z).

    Args:
        form: what is kept of M.
        bits: significant bits of a FIXED multiplier, fraction bits of a FRACTION; 0 elsewhere.
        precision: in what M is computed before it is brought to ``form``.
        stages: the shifts of a FIXED, FRACTION or POWER multiplier, in order. Of a float
            multiplier only the rounding of the last stage counts.
        zero_point: added after the last rounding, or before it.
        product_bits: width of acc · m of a SHORT multiplier, which wraps; 0: wide enough for any.
        inner_bits: width (2 to 40) to which the rounded product saturates before the zero point is
            added; 0: none.
        shift_powers: an M that is a power of two shifts once (the first stage's rounding) instead
            of multiplying.
        real_bias: of float forms: a bias is not added to the sums but stays the float32 number b ·
            s_x · s_w, which is brought to the sums' scale, or (CHAIN) joins behind s_w.
        inverted: scales of a CHAIN that are reciprocals of reciprocals.
        signed: of a RANGE: signed codes stay signed ones, where kernels multiply those; else they
            become unsigned, but behind a Clip.

    Raises:
        ValueError: settings that no arithmetic has together.
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
    signed: bool = False

    def __post_init__(self) -> None:
        if self.form is MultiplierForm.EXACT and self.precision is not Precision.DOUBLE:
            raise ValueError(
                "a rational multiplier is taken from the scales as they are: its precision is "
                "double"
            )
        if self.inverted is not Inverted.NONE and self.form is not MultiplierForm.CHAIN:
            raise ValueError("'inverted' is of chains of scales")
        if self.real_bias and self.form not in (
            MultiplierForm.FLOAT32,
            MultiplierForm.CHAIN,
            MultiplierForm.RANGE,
        ):
            raise ValueError(
                "a bias that stays a float32 number joins float32 sums: form is float32, chain or "
                "range"
            )
        if self.form is MultiplierForm.RANGE and not self.real_bias:
            raise ValueError("the form 'range' adds a bias as a real number: 'real_bias' is true")
        if self.signed and self.form is not MultiplierForm.RANGE:
            raise ValueError("'signed' is of the form 'range'")
        if self.product_bits and self.form is not MultiplierForm.SHORT:
            raise ValueError("'product_bits' is of short multipliers")
        self._check_widths()
        if (
            not self.stages
            or any(stage.bits is None for stage in self.stages[:-1])
            or self.stages[-1].bits is not None
        ):
            raise ValueError(
                "every stage but the last shifts by a stated number of bits, the last by the rest"
            )
        if (self.form in (MultiplierForm.FIXED, MultiplierForm.FRACTION)) != (self.bits > 0):
            raise ValueError("'bits' is of fixed multipliers and fractions, and only of them")
        if self.zero_point is ZeroPoint.BEFORE and self.form not in (
            MultiplierForm.EXACT,
            MultiplierForm.FLOAT32,
            MultiplierForm.FLOAT64,
            MultiplierForm.CHAIN,
        ):
            raise ValueError(
                "a zero point before the rounding is added to a real number: the multiplier is no "
                "float"
            )

    def _check_widths(self) -> None:
        if not 0 <= self.bits <= WIDEST_FACTOR:
            raise ValueError(f"a fixed multiplier has up to {WIDEST_FACTOR} bits, not {self.bits}")
        if self.product_bits and not 2 <= self.product_bits <= WIDEST_PRODUCT:
            raise ValueError(
                f"'product_bits' is 0 or 2 to {WIDEST_PRODUCT}, not {self.product_bits}"
            )
        if self.inner_bits and not 2 <= self.inner_bits <= _WIDEST_CODE:
            raise ValueError(f"'inner_bits' is 0 or 2 to {_WIDEST_CODE}, not {self.inner_bits}")
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


# How an arithmetic adds, averages, quantizes, and computes functions.

LEAST_WEIGHT_BITS = 8
"""The fewest bits of the weights of WEIGHTED: with ratios below 2^8 no shift is negative."""


class AddScheme(enum.Enum):
    """How two quantized operands find a common scale.

    EXACT     round((s_a (a − z_a) + s_b (b − z_b)) / s_y), rational
    FUSED     two fused multiply-adds in float32 on the raw codes, zero points folded in
              (ONNX Runtime)
    SEPARATE  the same with products that are rounded before they are added
              (ONNX Runtime without FMA)
    REAL      dequantize, add in float32, quantize by the reciprocal (PyTorch)
    HEADROOM  both to 2·max(s_a, s_b) with 20 bits of headroom (16-bit codes: 15), three
              multiplications (TFLite)
    WEIGHTED  integer weights of both ratios, one shift (XNNPACK, QNNPACK)
    EACH      each operand to the output's scale, then an integer sum (TVM, Glow)
    STEPS     each operand to steps of 2⁻¹⁵, then one product (Glow's interpreter)
    FINEST    the coarser operand to the finer one's scale, then one product (TVM's quantizer)
    """

    EXACT = "exact"
    FUSED = "fused"
    SEPARATE = "separate"
    REAL = "real"
    HEADROOM = "headroom"
    WEIGHTED = "weighted"
    EACH = "each"
    STEPS = "grid"  # stored name
    FINEST = "finest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Adding:
    """The add: its scheme, and what some schemes leave open.

    Args:
        scheme: how the operands find a common scale.
        bits, rounding: of WEIGHTED: its weights and its shift.
        least_power: of WEIGHTED: it takes ratios s / s_y in [2^least_power, 2^8).
        operands: of HEADROOM: how each operand is scaled to the common scale; None: in the way in
            which their sum is scaled to the output's.
        fused: a convolution whose result this sum alone reads joins it clamped, but not rounded
            (``residual``).

    Raises:
        ValueError: settings that no arithmetic has together.
    """

    scheme: AddScheme
    bits: int = 0
    rounding: Rounding = Rounding.HALF_EVEN
    least_power: int = -10
    operands: Scaling | None = None
    fused: bool = False

    def __post_init__(self) -> None:
        weighted = self.scheme is AddScheme.WEIGHTED
        if weighted and not LEAST_WEIGHT_BITS <= self.bits <= WIDEST_FACTOR:
            raise ValueError(
                f"weighted sums have weights of {LEAST_WEIGHT_BITS} to {WIDEST_FACTOR} bits: 'bits'"
            )
        if weighted and not -WIDEST_FACTOR <= self.least_power < LEAST_WEIGHT_BITS:
            raise ValueError(
                f"'least_power' is of ratios below 2^{LEAST_WEIGHT_BITS}: -{WIDEST_FACTOR} to 7"
            )
        if not weighted and (self.bits or self.rounding is not Rounding.HALF_EVEN):
            raise ValueError("'bits' and 'rounding' are of weighted sums")
        if self.operands is not None and self.scheme is not AddScheme.HEADROOM:
            raise ValueError("'operands' is of sums with headroom")


class BiasScheme(enum.Enum):
    """At which scales a product of integers takes its bias.

    PRODUCT  at s_x · s_w alone: it is added to the accumulators as it is (nearly all)
    FINEST   at any: of sums and bias the coarser is brought to the finer one's scale, by a left
             shift where the ratio is a power of two and else by the arithmetic's multiplier; what
             both add up to is multiplied for the result. Where a graph rounds the product to the
             scale of its bias first, the sums are scaled to that scale in the same way (TVM's
             quantizer: AddRealize and UnifyDTypeScale)
    """

    PRODUCT = "product"
    FINEST = "finest"


class Averaging(enum.Enum):
    """How the codes of a window become their mean.

    SCALED   Σ (x − z_x), scaled by s_x / (s_y · count) as any accumulator
    FOLDED   the same, the count divided into the fixed multiplier by truncation (TFLite's MEAN)
    RAW      Σ x / count of codes as signed ones, rounded half away, zero point left in; where both
             have the same qparams (TFLite)
    REAL     Σ s_x (x − z_x) / count / s_y + z_y in float32, in the order of the window, half to
             even (ONNX Runtime)
    WITHIN   as SCALED, by 1 / count where both have the same qparams: scales do not enter
             (PyTorch)
    BIASED   Σ x, scaled as SCALED; z_y less what the input's zero point is there, rounded by
             itself (LiteRT)
    DIVIDED  Σ (x − z_x) brought to the output's scale, then divided by count in integers, rounded
             half away; a window that counts its padding is SCALED (Glow on the CPU)
    """

    SCALED = "scaled"
    FOLDED = "folded"
    RAW = "raw"
    REAL = "real"
    WITHIN = "within"
    BIASED = "biased"
    DIVIDED = "divided"


class Softmax(enum.Enum):
    """How softmax of codes becomes codes.

    REAL     dequantize, softmax in float32, quantize
    TABLE    exp of differences to the largest code from a table; sum and quotient in float32
             (ONNX Runtime)
    FIXED    differences in Q5.26, a fixed-point exp, sums in 12 integer bits, Newton's reciprocal
             (TFLite)
    """

    REAL = "real"
    TABLE = "table"
    FIXED = "fixed"


class Functions(enum.Enum):
    """How functions of one value are computed.

    REAL      dequantize, the operator in float32, quantize; a sigmoid in float64, rounded to
              float32
    SHORT     a sigmoid by float32 steps; a hard swish in 16-bit fixed point (TFLite)
    FUSED     as REAL, but sigmoid and tanh as quotients of polynomials by fused multiply-adds
              (ONNX Runtime)
    SEPARATE  the same with products that are rounded before they are added (ONNX Runtime without
              FMA)
    """

    REAL = "real"
    SHORT = "short"
    FUSED = "fused"
    SEPARATE = "separate"


class NotANumber(enum.Enum):
    """The code that NaN becomes: the lowest or the highest. Infinities saturate everywhere."""

    LOWEST = "lowest"
    HIGHEST = "highest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantizing:
    """From floats to codes: x / s or x · (1 / s) in float32, the tie rule, the zero point before or
    after it; NaN.

    Before it, and with one scale, x · (1 / s) + z is one fused step (PyTorch's quantize_per_tensor;
    per channel two).
    ``ranged``: one fused step by factor and offset of the form RANGE instead of all this but
        ``rounding``.
    """

    rounding: Rounding = Rounding.HALF_EVEN
    reciprocal: bool = False
    zero_point: ZeroPoint = ZeroPoint.AFTER
    nan: NotANumber = NotANumber.LOWEST
    ranged: bool = False


class Dequantizing(enum.Enum):
    """From codes to the float32 numbers that a function is taken of.

    CENTRED: (q − z) · s. FUSED: fma(q, s, −f32(s · z)), which can differ in its last bit
        (PyTorch's vectors).
    """

    CENTRED = "centred"
    FUSED = "fused"


# An arithmetic as one value: multiplier, rounding, accumulator, and the schemes of its operators.
#
#     acc = Σ (x − z_x)(w − z_w) + bias    the accumulator
#     M   = s_x · s_w / s_y                a real number, which engines represent differently
#     y   = clamp(round(acc · M) + z_y)    where, how often and before what it rounds: here
#
# An arithmetic describes how an engine computes. It is data: printable, readable from TOML, and
# part of every measurement by its digest.

_MEANING = 2
"""Part of every digest: increased when a word here changes its meaning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remainder:
    """Channels that vector code leaves to scalar code, which scales their sums otherwise.

    Vector code counts channels in whole blocks; those beyond the last whole block are left.

    Args:
        scaling: of the sums of channels that are left.
        depthwise: filters in a block of a depthwise convolution; 0: none is left.
        planes: channels in a block of a mean over planes (height and width); 0: none is left.
        grouped: every filter of any other convolution of several groups is left.

    Raises:
        ValueError: a negative block, or nothing that is ever left.
    """

    scaling: Scaling
    depthwise: int = 0
    planes: int = 0
    grouped: bool = False

    def __post_init__(self) -> None:
        if min(self.depthwise, self.planes) < 0:
            raise ValueError(f"blocks of {min(self.depthwise, self.planes)} channels")
        if not (self.depthwise or self.planes or self.grouped):
            raise ValueError(
                "a remainder is of blocks of channels: 'depthwise', 'planes' or 'grouped'"
            )

    def of_convolution(self, filters: int, depth: int, groups: int) -> int:
        """How many of the last of ``filters`` are left, in a convolution of ``groups`` groups whose
        filters have ``depth`` channels each.
        """
        if groups == 1:
            return 0
        if depth > 1:
            return filters if self.grouped else 0
        return _beyond_blocks(filters, self.depthwise)

    def of_planes(self, channels: int) -> int:
        """How many of the last of ``channels`` are left."""
        return _beyond_blocks(channels, self.planes)


def _beyond_blocks(channels: int, block: int) -> int:
    return channels % block if block else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """Other rules for some nodes: a field that is given here replaces that of the arithmetic.

    Args:
        operators: operators it applies to, as a float graph calls them (``Conv``); empty: any.
        names: patterns (``*``, ``?``) of node names; empty: any.
        scaling, accumulator, adding, averaging, mean, softmax, functions, multiplying, rescaling,
        remainder,
            floats, quantizing, dequantizing: as in ``Arithmetic``; None: that of the arithmetic.

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
    remainder: Remainder | None = None
    floats: FloatSums | None = None
    quantizing: Quantizing | None = None
    dequantizing: Dequantizing | None = None

    def __post_init__(self) -> None:
        if not self.operators and not self.names:
            raise ValueError(
                "an override names operators or nodes; what holds everywhere belongs to the "
                "arithmetic itself"
            )
        if not self.changes:
            raise ValueError("an override that changes nothing")

    @property
    def changes(self) -> dict[str, object]:
        """The fields that it replaces, and by what."""
        given = {
            one.name: getattr(self, one.name)
            for one in fields(self)
            if one.name not in ("operators", "names")
        }
        return {name: value for name, value in given.items() if value is not None}

    def applies(self, operator: str, name: str) -> bool:
        """Whether it applies to the node called ``name``, ``operator`` in the float graph."""
        fits = not self.names or any(fnmatchcase(name, pattern) for pattern in self.names)
        return fits and (not self.operators or operator in self.operators)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arithmetic:
    """The rules by which one engine or device computes with integers.

    Args:
        name: how backends and suites call it.
        source: what it follows, for people.
        scaling: of accumulators.
        accumulator: the register in which products are summed.
        adding: of two quantized operands.
        biases: at which scales products take their biases.
        averaging: of the codes of a window.
        mean: of all codes along some axes.
        softmax: of codes.
        functions: of one value.
        multiplying: of the product of two quantized operands; None: as accumulators are.
        rescaling: of codes to other qparams; None: dequantized and quantized where multipliers are
            floats, as accumulators are where they are integers (``numerics.requantization``).
        remainder: channels beyond the last whole block of vector code; None: all are counted alike.
        floats: of MatMul, Gemm and Conv with an operand of floats of few bits or in blocks; None:
            they are computed in float32, in any order.
        quantizing: of floats, and of the results of operators that are computed in float.
        dequantizing: of codes, for operators that are computed in float.
        narrow: codes never reach the lowest one of a signed type.
        overrides: nodes that count otherwise; the first that applies holds.

    Raises:
        ValueError: settings, an override's included, that no arithmetic has together.
    """

    name: str
    source: str
    scaling: Scaling
    accumulator: Accumulator = field(default_factory=Accumulator)
    adding: Adding = field(default_factory=lambda: Adding(scheme=AddScheme.EXACT))
    biases: BiasScheme = BiasScheme.PRODUCT
    averaging: Averaging = Averaging.SCALED
    mean: Averaging = Averaging.SCALED
    softmax: Softmax = Softmax.REAL
    functions: Functions = Functions.REAL
    multiplying: Scaling | None = None
    rescaling: Scaling | None = None
    remainder: Remainder | None = None
    floats: FloatSums | None = None
    quantizing: Quantizing = field(default_factory=Quantizing)
    dequantizing: Dequantizing = Dequantizing.CENTRED
    narrow: bool = False
    overrides: tuple[Override, ...] = ()

    def __post_init__(self) -> None:
        scalings = (
            [self.scaling] if self.remainder is None else [self.scaling, self.remainder.scaling]
        )
        sums = self.accumulator.bits
        factor = max(one.factor_bits for one in scalings)
        if factor and sums + factor >= WIDEST_PRODUCT:
            raise ValueError(
                f"sums of {sums} bits times a multiplier of {factor} do not fit a product of "
                f"{WIDEST_PRODUCT}"
            )
        if self.biases is BiasScheme.FINEST and self.scaling.form not in _BY_SHIFTS:
            raise ValueError(
                "biases that are shifted to the sums' scale are of multipliers that shift: fixed "
                "or power"
            )
        if self.adding.fused and self.scaling.form is not MultiplierForm.RANGE:
            raise ValueError(
                "sums that are fused into convolutions are known of multipliers of the form 'range'"
            )
        for one in self.overrides:
            # the changed arithmetic is made for its checks only
            replace(self, overrides=(), **one.changes)  # type: ignore[arg-type]

    @property
    def digest(self) -> str:
        """Of all fields that change numbers: arithmetics that compute alike have one digest,
        whatever their names.
        """
        words = table_from_value(self)
        return digest_plain(
            [_MEANING, {key: word for key, word in words.items() if key not in ("name", "source")}]
        )

    def __str__(self) -> str:
        """Its TOML file, without a file name: one line for each field that differs from the
        default.
        """
        own = toml_text(replace(self, overrides=())).partition("\n")[2]
        overrides = "".join(f"\n[[overrides]]\n{toml_text(one)}" for one in self.overrides)
        return f"# {self.name}\n{own}{overrides}".rstrip()

    def limits(self, output: QParams) -> tuple[int, int]:
        """The quantized values between which results on ``output`` are clamped."""
        skipped = int(self.narrow and output.qtype.signed)
        return max(output.qmin, output.qtype.qmin + skipped), output.qmax

    @property
    def beyond_blocks(self) -> "Arithmetic":
        """The rules for channels that vector code leaves."""
        return (
            self
            if self.remainder is None
            else replace(self, scaling=self.remainder.scaling, remainder=None)
        )

    def with_multiplier(self, scaling: Scaling) -> "Arithmetic":
        """The same arithmetic with ``scaling`` for every product; its sums keep as many bits as
        fit a product by it.

        Biases are shifted to other scales only where ``scaling`` shifts.
        """
        factor, sums = scaling.factor_bits, self.accumulator
        if factor:
            sums = replace(sums, bits=min(sums.bits, WIDEST_PRODUCT - 1 - factor))
        biases = self.biases if scaling.form in _BY_SHIFTS else BiasScheme.PRODUCT
        return replace(
            self, scaling=scaling, multiplying=None, remainder=None, accumulator=sums, biases=biases
        )

    def at(self, operator: str, name: str) -> "Arithmetic":
        """The rules for the node called ``name``, ``operator`` in the float graph; without
        overrides.
        """
        override = next((one for one in self.overrides if one.applies(operator, name)), None)
        changes = {} if override is None else override.changes
        return replace(self, overrides=(), **changes) if self.overrides else self  # type: ignore[arg-type]


# The arithmetics by name: one TOML file each in ``presets``, and those of extensions.

SUFFIX = ".toml"
_FOLDER = Path(__file__).parent / "presets"


def catalogue(extensions: Iterable[Extension] = ()) -> Catalogue[Arithmetic]:
    """Our own arithmetics and those of ``extensions``."""
    own: Catalogue[Arithmetic] = Catalogue("arithmetic", _presets())
    return own.extended(extensions)


def get_arithmetic(name: str) -> Arithmetic:
    """The arithmetic called ``name``, installed extensions included.

    Raises:
        InputError: no such arithmetic; the nearest name is suggested.
    """
    return catalogue(known_extensions()).get(name)


def arithmetic_for(arithmetic: Arithmetic | str, operator: str) -> Arithmetic:
    """The arithmetic, or the one of that name, for ``operator`` (``Conv``) in a node without a
    name.

    Raises:
        InputError: no such arithmetic.
    """
    arithmetic = get_arithmetic(arithmetic) if isinstance(arithmetic, str) else arithmetic
    return arithmetic.at(operator, "")


def list_arithmetics() -> tuple[str, ...]:
    """The names of all arithmetics, sorted, installed extensions included."""
    return catalogue(known_extensions()).names()


def load_arithmetic(path: Path | str) -> Arithmetic:
    """The arithmetic in the TOML file at ``path``; its name is that of the file.

    Raises:
        InputError: no such file, another name in it, an unknown key, or settings that no arithmetic
            has together.
    """
    file = Path(path)
    where = f"arithmetic '{file.name}'"
    table = read_toml(file)
    name = file.name.removesuffix(SUFFIX)
    if table.get("name", name) != name:
        raise InputError(
            f"Reading {where}",
            found=f"the name {table['name']!r} in it",
            expected=f"'{name}', as the file is called",
            remedy="Remove the name from the file, or rename the file.",
        )
    return value_from_table(Arithmetic, {**table, "name": name}, where)


@functools.cache
def _presets() -> Mapping[str, Callable[[], Arithmetic]]:
    return MappingProxyType(
        {path.stem: partial(load_arithmetic, path) for path in sorted(_FOLDER.glob("*.toml"))}
    )
