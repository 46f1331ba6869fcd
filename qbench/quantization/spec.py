"""How one tensor or bias is to be quantized, the slots of a node, and what a backend cannot do."""

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, cast, get_args

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.calibration import RangeMethod, counts_codes, get_range_method
from qbench.errors import UnsupportedError
from qbench.graph import Capabilities, ZeroPoints
from qbench.numerics import QParams, QParamsKind, QType, ScaleKind, Symmetry

_SCALE_TYPES: Mapping[str, str] = MappingProxyType({"e8m0": "float8e8m0", "e4m3": "float8e4m3fn"})
"""Kind of scale → the type that stores such scales; those of other kinds are float32."""
_AFFINE_SCALES = tuple(kind for kind in get_args(ScaleKind) if kind not in _SCALE_TYPES)

# How a bias is to be added: at whose scale, in how many bits, and at whose scale the sum is.


class BiasKind(enum.Enum):
    """Where the qparams of a bias come from: the scales of input and weight, its own range, or
    the correlation.
    """

    DERIVED = "derived"
    OWN = "own"
    SHARED = "shared"
    FLOAT = "float"


class Finer(enum.Enum):
    """At whose scale product and bias are added when the bias has a scale of its own.

    CHOSEN: on the finer of the two, which loses nothing. PRODUCT: on the product's, so that a bias
    finer than it is rounded to it. BIAS: on the bias's, so that a product finer than it is rounded
    to it.
    """

    CHOSEN = "chosen"
    PRODUCT = "product"
    BIAS = "bias"


@dataclass(frozen=True, slots=True, kw_only=True)
class BiasSpec:
    """What a bias is added as.

    Args:
        kind: ``derived``: int32 at scale(input) · scale(weight); ``own``: at a scale of its own,
            symmetric, one per tensor; ``shared``: with the qparams of the unit's correlation, which
            then covers both; ``float``.
        qtype: the integer type of an ``own`` one.
        scale_kind: of an ``own`` one.
        finer: whose scale the sum has when the bias has its own.

    Raises:
        ValueError, InputError: an unsigned or unknown type, or settings of an own scale without
            one.
    """

    kind: BiasKind = BiasKind.DERIVED
    qtype: str = "int32"
    scale_kind: str = "real"
    finer: Finer = Finer.CHOSEN

    def __post_init__(self) -> None:
        qtype = QType.parse(self.qtype)
        if not qtype.signed:
            raise ValueError(f"the unsigned {self.qtype} for a bias")
        if qtype.is_float:
            raise ValueError(f"the type {self.qtype} for a bias, which is of integers")
        if self.scale_kind not in _AFFINE_SCALES:
            raise ValueError(f"{self.scale_kind!r}, which is none of {', '.join(_AFFINE_SCALES)}")
        own = (self.qtype, self.scale_kind, self.finer)
        if self.kind is not BiasKind.OWN and own != ("int32", "real", Finer.CHOSEN):
            raise ValueError(
                f"'qtype', 'scale_kind' or 'finer' for a bias of kind '{self.kind.value}', not "
                "'own'"
            )

    @property
    def qparams_kind(self) -> QParamsKind:
        """What is decided of the qparams of an ``own`` one before its range is known."""
        return QParamsKind(
            QType.parse(self.qtype), "symmetric", scale_kind=cast(ScaleKind, self.scale_kind)
        )

    def __str__(self) -> str:
        if self.kind is not BiasKind.OWN:
            return _BIASES[self.kind]
        words = [f"{self.qtype} at a scale of its own"]
        words += [self.scale_kind] * (self.scale_kind != "real")
        if self.finer is not Finer.CHOSEN:
            words.append(f"added on the grid of the {self.finer.value}")  # stored name
        return ", ".join(words)


_BIASES: Mapping[BiasKind, str] = MappingProxyType(
    {
        BiasKind.DERIVED: "int32 at the product's scale",
        BiasKind.SHARED: "on the correlation's grid",  # stored name
        BiasKind.FLOAT: "float",
    }
)
FLOAT_BIAS = BiasSpec(kind=BiasKind.FLOAT)


# Slots: the places of a node that can have parameters.
#
#     x ──input──┐
#                × ──correlation──┐
#     w ──weight─┘                + ──sum── clip ──output──
#     b ──bias────────────────────┘
#
# An integer engine that adds the bias in the accumulator has no qparams for correlation and sum; a
# schema that asks for them names canonical passes that split the bias off, so that both are values
# of the graph.


class Role(enum.Enum):
    """What a tensor is to its node."""

    INPUT = "input"
    WEIGHT = "weight"
    CORRELATION = "correlation"
    BIAS = "bias"
    SUM = "sum"
    OUTPUT = "output"
    CACHE = "cache"


@dataclass(frozen=True, slots=True)
class Slot:
    """The ``index``-th input (or output) of node ``node``, which is ``value``.

    WEIGHT is every constant that meets data in a product or a sum, BIAS one that is added in the
    accumulator; CORRELATION is the product before the bias, SUM the result before a clip, OUTPUT
    what leaves the unit, CACHE a key or value that a decoder keeps for later tokens.
    """

    node: str
    role: Role
    index: int
    value: str

    def __str__(self) -> str:
        return f"{self.node}.{self.role.value}[{self.index}]"


# How one tensor is to be quantized: type, family, granularity, kind of scale, and where its range
# comes from.


class Granularity(enum.Enum):
    """How many elements share one pair of parameters."""

    TENSOR = "tensor"
    CHANNEL = "channel"
    BLOCK = "block"
    HEAD = "head"  # of attention; of what a decoder keeps alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """How one tensor is to be quantized; plain words, so that a schema can be a TOML table.

    Args:
        qtype: the type, as in ``int8`` or ``float8e4m3fn``.
        symmetry: ``asymmetric``, ``symmetric`` or ``symmetric_unsigned``.
        granularity: per tensor, per channel, or per block of ``block_size`` elements of what is
            summed over.
        block_size: elements of a block.
        narrow_range: leave out the lowest code.
        scale_kind: ``real``, ``pow2`` (rounded up) or ``pow2_nearest``; of floats in blocks also
            ``e8m0`` (MX) and ``e4m3`` (NVFP4).
        range_method: the rule that takes a range from statistics, as in ``minmax`` or
            ``percentile(99.9)``.
        dynamic: parameters are computed from every batch at run time; nothing is calibrated.
        scale, zero_point: parameters fixed beforehand, of one tensor; they come together, and no
            range is taken.

    Raises:
        ValueError, InputError: no such type, family, kind of scale or range method, or settings
            that exclude another.
    """

    qtype: str
    symmetry: str
    granularity: Granularity = Granularity.TENSOR
    block_size: int | None = None
    narrow_range: bool = False
    scale_kind: str = "real"
    range_method: str = "minmax"
    dynamic: bool = False
    scale: float | None = None
    zero_point: int | None = None
    method: RangeMethod = field(init=False, repr=False, compare=False)
    """The range method that ``range_method`` spells."""

    def __post_init__(self) -> None:
        qtype = QType.parse(self.qtype)
        object.__setattr__(self, "method", get_range_method(self.range_method))
        for word, choices in (
            (self.symmetry, get_args(Symmetry)),
            (self.scale_kind, get_args(ScaleKind)),
        ):
            if word not in choices:
                raise ValueError(f"{word!r}, which is none of {', '.join(choices)}")
        if (self.granularity is Granularity.BLOCK) != (self.block_size is not None):
            size = (
                "no block_size" if self.block_size is None else f"a block_size of {self.block_size}"
            )
            raise ValueError(f"{size} with the granularity '{self.granularity.value}'")
        if self.block_size is not None and self.block_size < 1:
            raise ValueError(f"a block_size of {self.block_size}, below one element")
        if qtype.is_float or self.scale_kind in _SCALE_TYPES:
            self._refuse_floats(qtype)
        if (self.scale is None) != (self.zero_point is None):
            given, missing = (
                ("zero_point", "scale") if self.scale is None else ("scale", "zero_point")
            )
            raise ValueError(f"a fixed {given} without a fixed {missing}")
        if self.dynamic or self.scale is not None:
            self._refuse_calibrated()
        if self.scale is not None and not (0 < self.scale < math.inf):
            raise ValueError(f"a fixed scale of {self.scale:g}, which is not positive and finite")
        if (fixed := self.fixed) is not None:
            self._refuse_misfit(fixed)

    def _refuse_floats(self, qtype: QType) -> None:
        """What a type of floats, or a scale of its blocks, cannot have."""
        if not qtype.is_float:
            raise ValueError(f"scales of the kind '{self.scale_kind}' for {qtype}, not for floats")
        if self.symmetry != "symmetric" or self.narrow_range:
            words = "a narrow range" if self.narrow_range else f"the family '{self.symmetry}'"
            raise ValueError(f"{words} for {qtype}, which has no zero point")
        if self.dynamic:
            raise ValueError(f"dynamic parameters of {qtype}: ONNX computes those of uint8 alone")
        if self.scale_kind in _SCALE_TYPES and self.block_size is None:
            raise ValueError(f"scales of the kind '{self.scale_kind}' without blocks")
        if counts_codes(self.method):
            raise ValueError(
                f"the range method '{self.range_method}' for {qtype}, whose codes it cannot weigh"
            )

    def _refuse_calibrated(self) -> None:
        """What a spec cannot ask for whose parameters are not taken from statistics."""
        what = "dynamic" if self.dynamic else "fixed"
        if self.dynamic and self.scale is not None:
            raise ValueError("a fixed scale with dynamic = true")
        if self.granularity is not Granularity.TENSOR:
            raise ValueError(f"{what} parameters with the granularity '{self.granularity.value}'")
        if self.range_method != "minmax":
            raise ValueError(
                f"the range method '{self.range_method}', which {what} parameters have no use for"
            )
        if self.dynamic and (self.symmetry, self.scale_kind) != ("asymmetric", "real"):
            raise ValueError(
                f"dynamic parameters that are {self.symmetry} with {self.scale_kind} scales"
            )

    def _refuse_misfit(self, fixed: QParams) -> None:
        """Fixed parameters that are not of the family and the kind of scale asked for."""
        qtype, zero_point = fixed.qtype, int(fixed.zero_point)
        allowed = QParamsKind(qtype, cast(Symmetry, self.symmetry)).zero_points
        if allowed is not None and zero_point not in allowed:
            raise ValueError(
                f"a fixed zero_point of {zero_point}, which no {self.symmetry} {qtype} qparams have"
            )
        if self.scale_kind != "real" and math.frexp(float(fixed.scale))[0] != 0.5:
            raise ValueError(f"a fixed scale of {self.scale:g}, which is no power of two")

    @property
    def kind(self) -> QParamsKind:
        """What is decided of the qparams before their range is known."""
        symmetry, scale_kind = cast(Symmetry, self.symmetry), cast(ScaleKind, self.scale_kind)
        return QParamsKind(QType.parse(self.qtype), symmetry, self.narrow_range, scale_kind)

    @property
    def fixed(self) -> QParams | None:
        """The parameters, where they are fixed beforehand."""
        if self.scale is None or self.zero_point is None:
            return None
        return QParams(
            self.scale, self.zero_point, QType.parse(self.qtype), narrow_range=self.narrow_range
        )

    def __str__(self) -> str:
        words = [self.qtype, self.symmetry]
        if self.granularity is Granularity.CHANNEL:
            words.append("per channel")
        if self.granularity is Granularity.HEAD:
            words.append("per head")
        if self.block_size is not None:
            words.append(f"per block of {self.block_size}")
        if self.narrow_range:
            words.append("narrow")
        if self.scale_kind != "real":
            words.append(self.scale_kind)
        if self.dynamic:
            words.append("dynamic")
        elif self.scale is not None:
            words.append(f"fixed at scale {self.scale:g} zero point {self.zero_point}")
        elif self.range_method != "minmax":
            words.append(self.range_method)
        return " ".join(words)


# The ONNX element types that hold codes, and codes as tensors of them.
#
# constants      the narrowest of 4, 8, 16 and 32 bits
# activations    the narrowest of 8, 16 and 32: optimized sessions of ONNX Runtime (1.31) fail on a
#                QuantizeLinear to 4 bits or drop a Relu before it, whatever its zero point; in 8
#                bits they count them in integers
#
# A type narrower than its element type needs a clip, which ONNX Runtime has of 8 bits, not of 4 and
# 16.

_CLIPPED = frozenset({ir.DataType.INT8, ir.DataType.UINT8})


def constant_dtype(qtype: QType) -> ir.DataType:
    """The element type that stores a constant's codes."""
    return _dtype(qtype, (4, 8, 16, 32))


def activation_dtype(qtype: QType) -> ir.DataType:
    """The element type that a QuantizeLinear to it gives; of 32 bits there is no such operator."""
    return _dtype(qtype, (8, 16, 32))


def saturates_at(dtype: ir.DataType) -> tuple[int, int]:
    """The ends of the codes of ``dtype``, where a QuantizeLinear onto it saturates."""
    signed = dtype.name.startswith("INT")
    ends = QType(dtype.bitwidth, signed)
    return ends.qmin, ends.qmax


def clips_codes(dtype: ir.DataType) -> bool:
    """Whether codes of ``dtype`` can be clipped as integers."""
    return dtype in _CLIPPED


def stored(codes: npt.NDArray[Any], dtype: ir.DataType) -> ir.TensorProtocol:
    """Codes as a tensor of ``dtype``, packed where that is narrower than a byte."""
    if not dtype.is_integer():  # the bits of floats
        return ir.tensor(codes.astype(np.uint8).view(dtype.numpy()), dtype=dtype)
    if dtype.bitwidth < 8:
        narrow = getattr(ml_dtypes, dtype.name.lower())
        return ir.tensor(codes.astype(narrow), dtype=dtype)
    return ir.tensor(codes.astype(dtype.numpy(), copy=False), dtype=dtype)


def end_values(
    qparams: QParams, codes: tuple[int, int], rank: int | None
) -> tuple[npt.NDArray[np.float32], ...]:
    """The real values of two codes, float32; per channel in a form that broadcasts against
    ``rank`` dimensions.
    """
    shape: tuple[int, ...] = ()
    if qparams.axis is not None:
        assert rank is not None
        shape = tuple(qparams.scale.size if i == qparams.axis % rank else 1 for i in range(rank))
    centred = (np.asarray(code - qparams.zero_point).reshape(shape) for code in codes)
    return tuple(
        np.asarray(c.astype(np.float32) * qparams.scale.reshape(shape), np.float32) for c in centred
    )


def _float_dtype(qtype: QType) -> ir.DataType:
    name = qtype.name.upper()
    if name not in ir.DataType.__members__:
        raise UnsupportedError(
            f"Looking up the element type of {qtype}",
            found="an onnx_ir without it",
            expected=f"one with DataType.{name}",
            remedy="Install a newer onnx and onnx-ir.",
        )
    return ir.DataType[name]


def _dtype(qtype: QType, widths: tuple[int, ...]) -> ir.DataType:
    if qtype.is_float:
        return _float_dtype(qtype)
    width = next(width for width in widths if qtype.bits <= width)
    return ir.DataType[f"{'' if qtype.signed else 'U'}INT{width}"]


# What of a spec a backend, or ONNX, cannot do: a sentence for each limit.
#
# A type of a width that ONNX has no type for is stored in a wider one, so a backend takes it that
# takes either.


def beyond_activations(spec: Spec, capabilities: Capabilities, *, moved: bool) -> str | None:
    """What of ``spec`` for values cannot be had; ``moved``: for an operator that only moves
    them.
    """
    if not _known(spec, activation_dtype(spec.kind.qtype), capabilities.activation_qtypes):
        return f"the backend has no {spec.qtype} activations"
    if spec.dynamic:
        return _beyond_dynamic(spec, capabilities)
    if spec.granularity is Granularity.BLOCK:
        return "activations have no blocks"
    if spec.granularity is Granularity.CHANNEL:
        if not capabilities.activation_per_channel:
            return (
                "the backend has no activations per channel: "
                "theirs is one grid a tensor"  # stored name
            )
        if moved:
            return "a grid per channel does not follow values that are moved"  # stored name
    return None


def beyond_weights(spec: Spec, capabilities: Capabilities) -> str | None:
    """What of ``spec`` for weights cannot be had."""
    if spec.granularity is Granularity.CHANNEL and not capabilities.weight_per_channel:
        return "the backend has no weights per channel"
    if spec.granularity is Granularity.BLOCK and not capabilities.weight_per_block:
        return "the backend has no weights per block"
    scale_type = scale_type_of(spec)
    if scale_type is not None and scale_type not in capabilities.scale_types:
        return f"the backend has no {spec.qtype} weights with scales of {scale_type}"
    known = _known(spec, constant_dtype(spec.kind.qtype), capabilities.weight_qtypes)
    return None if known else f"the backend has no {spec.qtype} weights"


def beyond_zero_point(qparams: QParams, capabilities: Capabilities) -> str | None:
    """Why the backend cannot count with the zero points of ``qparams`` (of a value); None when
    it can.
    """
    if capabilities.zero_points is ZeroPoints.ANY:
        return None
    if qparams.qtype.is_float:
        return None
    lowest = capabilities.zero_points is ZeroPoints.ZERO_OR_QMIN
    allowed = {0, qparams.qtype.qmin} if lowest else {0}
    beyond = sorted({int(point) for point in qparams.zero_point.reshape(-1)} - allowed)
    if not beyond:
        return None
    return (
        f"its zero point is {beyond[0]}, and the backend counts with "
        f"{capabilities.zero_points.value} only"
    )


def scale_type_of(spec: Spec) -> str | None:
    """The type that stores the scales of ``spec``; None: float32."""
    return _SCALE_TYPES.get(spec.scale_kind)


def _beyond_dynamic(spec: Spec, capabilities: Capabilities) -> str | None:
    if not capabilities.dynamic:
        return "the backend has no parameters that are computed at run time"
    if (spec.qtype, spec.symmetry, spec.scale_kind, spec.narrow_range) == (
        "uint8",
        "asymmetric",
        "real",
        False,
    ):
        return None
    return f"DynamicQuantizeLinear makes uint8 asymmetric, not {spec}"


def _known(spec: Spec, stored_as: ir.DataType, names: frozenset[str]) -> bool:
    return spec.qtype in names or stored_as.name.lower() in names
