"""What an operator is: one row (``OpSpec``) per operator of ONNX, and operators from outside.

    slots        weight, bias, moved, real      which input is what
    results      low, high, pointwise, local    what they can be, and which inputs they depend on
    weight axes  axes                           output channels, and what products are summed over
    quantizer    data, output, same_qparams, table
                                                what may be quantized, and whose parameters the
                                                output has
    lowering     lowering, dynamic, forms       the rule of ``passes.lowering``, and the operators
                                                on integers
    kernel       kernel, forms[…].kernel        the function of ``interpreter.integer_kernels``
    device       kind                           what a device limits by the sort of operator

Other packages hold no table of operators where a row can say it: they ask ``op_spec(node)``. This
package lies below them, so a row names a rule or a kernel as ``module:function``;
``passes.lowering.qoperator`` and ``interpreter.program`` look the names up when they are imported.
A new operator is a row and, unless a kernel fits already, a kernel: a function that an integer
engine reads from a table is a row alone. An operator of an extension (``Operator``) gets its row
from what the extension says.

Sources: the operator definitions of ONNX opset 21; contrib operators of ONNX Runtime 1.24
(docs/ContribOperators); the operators that ONNX Runtime's static quantizer takes, TFLite's int8
specification, Glow's quantized nodes.
"""

import enum
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import onnx_ir as ir

from qbench.graph.outside_operators import QLINEAR, Operator, OperatorFacts, outside_operator
from qbench.graph.query import (
    constant_value,
    float_attribute,
    input_at,
    int_attribute,
    word_attribute,
)


class Output(enum.Enum):
    """Whose quantization parameters an output has.

    OWN: those of a range of its own. SHARED: those of the first input, whose elements it holds or
        lies between.
    FIXED: those of the operator's range, such that the asymmetric scale of b bits is a power of
        two.
    """

    OWN = "own"
    SHARED = "shared"
    FIXED = "fixed"


class Kind(enum.Enum):
    """What sort of operator it is, where a device or a pass treats the whole sort alike."""

    CONVOLUTION = "convolution"
    MATRIX_PRODUCT = "matrix product"
    RECURRENCE = "recurrence"
    POOL = "pool of windows"
    GLOBAL_POOL = "pool of everything"
    BORDER = "border of integers"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerForm:
    """An operator on integers that computes a float operator.

    Args:
        domain, name: of its nodes.
        kernel: ``module:function`` below ``qbench.interpreter.integer_kernels``; "": it is read,
            never computed here.
        operands: (integers, scale, zero point) of each real operand, by index of the input;
            (integers, zero point) where scales are applied behind it; a single index is passed as
            it is. Left empty where any number of operands may come.
        result: (scale, zero point) of the result; None: the result is real, int32, or behind any
            number of operands.
        bias: index of the int32 bias, at the product of the scales of the first two operands.
        bias_scale: index of the scale of a bias at a scale of its own (one, or one per column),
            which may be left out;
            None: there is no such operand.
        attributes: those of the float operator that it has too.
    """

    domain: str
    name: str
    kernel: str = ""
    operands: tuple[tuple[int, ...], ...] = ()
    result: tuple[int, int] | None = None
    bias: int | None = None
    bias_scale: int | None = None
    attributes: tuple[str, ...] = ()

    @property
    def is_scaled_behind(self) -> bool:
        """Whether it multiplies integers alone, and scales are applied to the result."""
        return bool(self.operands) and self.result is None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpSpec(OperatorFacts):
    """All that is known of one operator: the row that a new operator adds, next to its kernel.

    Args:
        name: as ONNX calls it.
        kind: its sort.
        axes: (node, rank of its weight) → the axes of the weight that run over output channels and
            that products are summed over; None where there is no such axis.
        pointwise: whether it treats every element alike and reads no other: a function of one
            value, or of one of each operand.
        table: of a pointwise operator, whether an integer engine reads it from a table, or cannot
            compute it; others are linear by pieces, or have a rule of integers.
        picks: whether its results hold elements of the first input that are chosen by value, order
            or place; with ``moved`` these are the movers, which work on the integers themselves.
        local: whether a result depends on values near its place, or on all alike, so that a part of
            a picture will do.

        data: the inputs that a quantizer may quantize; None: all but the bias; (): it stays float.
        output: whose quantization parameters the output has.
        signed: of a FIXED output, whether its range is [−1, 1 − 2¹⁻ᵇ], not [0, 1 − 2⁻ᵇ].
        same_qparams: whether computed inputs and output hold elements of one another, hence share
            their qparams.
        why_float: why this very node has no integer form though others have; None when it has.

        lowering: ``module:function`` below ``qbench.passes.lowering``, the rule that writes an
            engine's integer form.
        dynamic: multiplies integers whose qparams are computed for every batch: ConvInteger,
            MatMulInteger.
        kernel: of the operator itself on integers, as in ``IntegerForm``, or ``REFERENCE_KERNEL``.
        forms: the operators on integers that compute it.
    """

    name: str = ""
    kind: Kind = Kind.OTHER
    axes: Callable[[ir.Node, int], tuple[int | None, int | None]] | None = None
    pointwise: bool = False
    table: bool = False
    picks: bool = False
    local: bool = False

    data: tuple[int, ...] | None = ()
    output: Output = Output.OWN
    signed: bool = False
    same_qparams: bool = False
    why_float: Callable[[ir.Node], str | None] | None = None

    lowering: str = ""
    dynamic: str = ""
    kernel: str = ""
    forms: tuple[IntegerForm, ...] = ()

    @property
    def is_mover(self) -> bool:
        """Whether its results hold elements of the first input and nothing computed."""
        return self.picks or self.moved == (0,)

    @property
    def is_max_pool(self) -> bool:
        """Whether it takes maxima over windows or over everything."""
        return self.kind in {Kind.POOL, Kind.GLOBAL_POOL} and self.is_mover


REFERENCE_KERNEL = "reference"
"""The kernel of an operator that ONNX's own implementation computes on integers too."""
REQUANTIZE = "Requantize"
"""The change of quantization parameters: a QuantizeLinear of what a DequantizeLinear gave. ONNX
has no name for it.
"""
INTEGER_DOMAIN = "qbench.integer"
"""The domain of our own integer operators."""
ENGINE_DOMAIN = "com.microsoft"
"""The domain of ONNX Runtime's own operators."""

_INF = math.inf
_ONE, _TWO = ((0, 1, 2),), ((0, 1, 2), (3, 4, 5))
_WINDOW = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
_POOL_WINDOW = ("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")
_POINTWISE_RULE = "elementwise:lower_pointwise"


def _own(name: str, kernel: str) -> IntegerForm:
    """The operator of our own for ``name``: x s z of every operand, then s_y z_y; attributes as
    they were.
    """
    return IntegerForm(domain=INTEGER_DOMAIN, name=f"{QLINEAR}{name}", kernel=kernel)


def _own_bias(
    name: str,
    kernel: str,
    result: tuple[int, int] = (6, 7),
    bias: int = 8,
    attributes: tuple[str, ...] = (),
) -> IntegerForm:
    """The product ``name`` of an engine as an operator of our own: a bias, then its scale as
    the last operand.

    The attribute ``sum_scale`` is ``bias`` where the product is rounded to the bias's scale, else
    ``finest``.
    """
    return IntegerForm(
        domain=INTEGER_DOMAIN,
        name=name,
        kernel=kernel,
        operands=_TWO,
        result=result,
        bias=bias,
        bias_scale=9,
        attributes=attributes,
    )


def _engine(
    name: str,
    kernel: str = "",
    operands: tuple[tuple[int, ...], ...] = _ONE,
    result: tuple[int, int] | None = (3, 4),
    attributes: tuple[str, ...] = (),
) -> IntegerForm:
    """The operator of ONNX Runtime for ``name``."""
    return IntegerForm(
        domain=ENGINE_DOMAIN,
        name=f"{QLINEAR}{name}",
        kernel=kernel,
        operands=operands,
        result=result,
        attributes=attributes,
    )


def _mover(
    name: str,
    kernel: str = "",
    kind: Kind = Kind.OTHER,
    *,
    real: tuple[int, ...] = (0,),
    local: bool = False,
    why_float: Callable[[ir.Node], str | None] | None = None,
) -> OpSpec:
    """All values of the first input, and nothing else."""
    return OpSpec(
        name=name,
        moved=(0,),
        real=real,
        kind=kind,
        local=local,
        data=(0,),
        output=Output.SHARED,
        kernel=kernel,
        why_float=why_float,
    )


def _function(
    name: str,
    kernel: str = "functions:function",
    *,
    low: float = -_INF,
    high: float = _INF,
    table: bool = True,
    local: bool = False,
    data: tuple[int, ...] | None = (),
    output: Output = Output.OWN,
    signed: bool = False,
    itself: str = "",
    engine: IntegerForm | None = None,
) -> OpSpec:
    """A pointwise operator, its ``kernel`` that of our own operator on integers."""
    return OpSpec(
        name=name,
        low=low,
        high=high,
        pointwise=True,
        table=table,
        local=local,
        data=data,
        output=output,
        signed=signed,
        kernel=itself,
        lowering="" if engine is None else _POINTWISE_RULE,
        forms=(_own(name, kernel),) if engine is None else (_own(name, kernel), engine),
    )


def _border(name: str, kernel: str, *, local: bool = False) -> OpSpec:
    """Between reals and integers."""
    return OpSpec(
        name=name,
        kind=Kind.BORDER,
        local=local,
        lowering="elementwise:lower_requantize",
        kernel=kernel,
    )


def _why_gemm_is_float(node: ir.Node) -> str | None:
    unit = float_attribute(node, "alpha", 1.0) == float_attribute(node, "beta", 1.0) == 1.0
    return None if unit else "Gemm with alpha or beta other than 1 before computed operands"


def _why_pad_is_float(node: ir.Node) -> str | None:
    value = input_at(node, 2)
    filler = 0.0 if value is None else constant_value(value)
    plain = filler is not None and not np.any(filler)
    return (
        None
        if word_attribute(node, "mode", "constant") != "constant" or plain
        else "Pad with a value other than 0"
    )


def _why_resize_is_float(node: ir.Node) -> str | None:
    """Cubic curves leave the range of what they pass through, and a crop may be filled with any
    number.
    """
    if word_attribute(node, "mode", "nearest") == "cubic":
        return "Resize by cubic curves, which leave the range of their input"
    if word_attribute(node, "coordinate_transformation_mode", "half_pixel") != "tf_crop_and_resize":
        return None
    return (
        "Resize that fills with a value other than 0"
        if float_attribute(node, "extrapolation_value", 0.0)
        else None
    )


_ROWS = (
    # Products.
    OpSpec(
        name="Conv",
        kind=Kind.CONVOLUTION,
        weight=1,
        bias=2,
        axes=lambda _, __: (0, 1),
        local=True,
        data=None,
        lowering="products:lower_convolution",
        dynamic="ConvInteger",
        forms=(
            IntegerForm(
                domain="",
                name="QLinearConv",
                kernel="convolutions:conv",
                operands=_TWO,
                result=(6, 7),
                bias=8,
                attributes=_WINDOW,
            ),
            _own_bias("QLinearConv", "convolutions:conv", attributes=_WINDOW),
            IntegerForm(
                domain="",
                name="ConvInteger",
                kernel="convolutions:conv_integer",
                operands=((0, 2), (1, 3)),
                attributes=_WINDOW,
            ),
        ),
    ),
    OpSpec(
        name="ConvTranspose",
        kind=Kind.CONVOLUTION,
        weight=1,
        bias=2,
        axes=lambda _, __: (1, 0),
        data=None,
        lowering="products:lower_convolution",
        forms=(
            IntegerForm(
                domain=INTEGER_DOMAIN,
                name="QLinearConvTranspose",
                kernel="convolutions:conv_transpose",
                operands=_TWO,
                result=(6, 7),
                bias=8,
                bias_scale=9,
                attributes=(*_WINDOW, "output_padding", "output_shape"),
            ),
        ),
    ),
    OpSpec(
        name="Gemm",
        kind=Kind.MATRIX_PRODUCT,
        weight=1,
        bias=2,
        axes=lambda node, _: (0, 1) if int_attribute(node, "transB", 0) else (1, 0),
        data=None,
        why_float=_why_gemm_is_float,
        lowering="products:lower_gemm",
        dynamic="MatMulInteger",
        forms=(
            IntegerForm(
                domain=ENGINE_DOMAIN,
                name="QGemm",
                kernel="products:gemm",
                operands=_TWO,
                result=(7, 8),
                bias=6,
            ),
            _own_bias("QGemm", "products:gemm", result=(7, 8), bias=6),
        ),
    ),
    OpSpec(
        name="MatMul",
        kind=Kind.MATRIX_PRODUCT,
        weight=1,
        axes=lambda _, rank: (rank - 1 if rank > 1 else None, max(rank - 2, 0) if rank else None),
        data=None,
        lowering="products:lower_matrix_product",
        dynamic="MatMulInteger",
        forms=(
            IntegerForm(
                domain="",
                name="QLinearMatMul",
                kernel="products:matmul",
                operands=_TWO,
                result=(6, 7),
            ),
            _own_bias("QLinearMatMul", "products:matmul"),
            IntegerForm(
                domain="",
                name="MatMulInteger",
                kernel="products:matmul_integer",
                operands=((0, 2), (1, 3)),
            ),
            IntegerForm(
                domain=ENGINE_DOMAIN,
                name="MatMulIntegerToFloat",
                kernel="products:matmul_integer_to_float",
                operands=((0, 2, 4), (1, 3, 5)),
            ),
        ),
    ),
    # Recurrences: one gate of one unit, in every direction, of W and R alike.
    *(
        OpSpec(name=name, kind=Kind.RECURRENCE, axes=lambda _, __: (1, 2))
        for name in ("GRU", "LSTM", "RNN")
    ),
    # What only moves values.
    _mover("DepthToSpace"),
    _mover("Expand"),
    _mover("Flatten", "moving:flatten"),
    _mover("Gather"),
    _mover("GatherElements"),
    _mover("GatherND"),
    _mover("GlobalMaxPool", REFERENCE_KERNEL, Kind.GLOBAL_POOL),
    _mover("Identity"),
    _mover("MaxPool", "pooling:max_pool", Kind.POOL, local=True),
    _mover("Pad", REFERENCE_KERNEL, real=(0, 2), why_float=_why_pad_is_float),
    _mover("Reshape"),
    _mover("Slice"),
    _mover("SpaceToDepth"),
    _mover("Split"),
    _mover("Squeeze"),
    _mover("Tile"),
    _mover("Transpose"),
    _mover("Unsqueeze"),
    OpSpec(name="ReduceMax", picks=True, data=(0,), output=Output.SHARED),
    OpSpec(name="ReduceMin", picks=True, data=(0,), output=Output.SHARED),
    OpSpec(name="TopK", picks=True, data=(0,), output=Output.SHARED, kernel=REFERENCE_KERNEL),
    OpSpec(
        name="Resize",
        real=(0,),
        picks=True,
        data=(0,),
        output=Output.SHARED,
        why_float=_why_resize_is_float,
        kernel="moving:resize",
    ),
    OpSpec(name="ReverseSequence", data=(0,), output=Output.SHARED),
    # Sums, means, choices.
    OpSpec(
        name="Concat",
        local=True,
        data=None,
        lowering="elementwise:lower_concat",
        forms=(_engine("Concat", "moving:concat", (), None, ("axis",)),),
    ),
    OpSpec(name="Sum", data=None),
    OpSpec(name="Mean", data=None),
    OpSpec(
        name="Max", local=True, data=None, same_qparams=True, forms=(_own("Max", "moving:largest"),)
    ),
    OpSpec(
        name="Min",
        local=True,
        data=None,
        same_qparams=True,
        forms=(_own("Min", "moving:smallest"),),
    ),
    OpSpec(
        name="Where",
        local=True,
        data=(1, 2),
        same_qparams=True,
        forms=(
            _own("Where", "moving:where"),
            _engine("Where", operands=((0,), (1, 2, 3), (4, 5, 6)), result=(7, 8)),
        ),
    ),
    OpSpec(
        name="AveragePool",
        kind=Kind.POOL,
        local=True,
        data=(0,),
        lowering=_POINTWISE_RULE,
        forms=(_engine("AveragePool", "pooling:average_pool", attributes=_POOL_WINDOW),),
    ),
    OpSpec(
        name="GlobalAveragePool",
        kind=Kind.GLOBAL_POOL,
        local=True,
        data=(0,),
        lowering=_POINTWISE_RULE,
        forms=(
            _own("GlobalAveragePool", "pooling:global_average"),
            _engine("GlobalAveragePool", "pooling:global_average"),
        ),
    ),
    OpSpec(name="ReduceMean", data=(0,), forms=(_own("ReduceMean", "pooling:reduce_mean"),)),
    OpSpec(name="ReduceSum", forms=(_own("ReduceSum", "pooling:reduce_sum"),)),
    # Normalizations.
    OpSpec(name="BatchNormalization", data=(0,)),
    OpSpec(name="InstanceNormalization", data=(0,)),
    OpSpec(name="LpNormalization", data=(0,), output=Output.FIXED, signed=True),
    OpSpec(
        name="Softmax",
        low=0.0,
        high=1.0,
        data=(0,),
        output=Output.FIXED,
        lowering=_POINTWISE_RULE,
        forms=(_own("Softmax", "functions:softmax"), _engine("Softmax", "functions:softmax")),
    ),
    # TFLite fixes it to [−16, 0], which saturates: it has no lower end
    OpSpec(name="LogSoftmax", data=(0,)),
    # Functions of two values.
    _function(
        "Add",
        "functions:own_add",
        table=False,
        local=True,
        data=None,
        engine=_engine("Add", "functions:add", _TWO, (6, 7)),
    ),
    _function("Sub", "functions:sub", table=False, local=True, data=None),
    _function(
        "Mul",
        "functions:own_mul",
        table=False,
        local=True,
        data=None,
        engine=_engine("Mul", "functions:mul", _TWO, (6, 7)),
    ),
    _function("Div", "functions:div", table=False, local=True),
    _function("Pow"),
    # Functions of one value, linear by pieces.
    _function("Abs", "functions:absolute", low=0.0, table=False),
    _function("Neg", "functions:negative", table=False),
    _function("Sign", table=False),
    _function("Relu", "functions:relu", low=0.0, table=False, local=True, data=(0,)),
    _function("Clip", "functions:clip", table=False, local=True, data=(0,), itself="borders:clip"),
    _function(
        "LeakyRelu",
        "functions:leaky_relu",
        table=False,
        local=True,
        data=(0,),
        engine=_engine("LeakyRelu", "functions:leaky_relu", attributes=("alpha",)),
    ),
    _function("PRelu", "functions:prelu", table=False, local=True, data=None),
    # Functions of one value that are read from tables.
    _function(
        "Sigmoid",
        "functions:sigmoid",
        low=0.0,
        high=1.0,
        local=True,
        data=(0,),
        output=Output.FIXED,
        engine=_engine("Sigmoid", "functions:sigmoid"),
    ),
    _function("HardSigmoid", low=0.0, high=1.0, local=True, data=(0,), output=Output.FIXED),
    _function(
        "Tanh",
        "functions:tanh",
        low=-1.0,
        high=1.0,
        local=True,
        data=(0,),
        output=Output.FIXED,
        signed=True,
    ),
    _function("HardSwish", "functions:hard_swish", local=True, data=(0,)),
    _function("Gelu", local=True, data=(0,)),
    _function("Elu", data=(0,)),
    _function("Mish", data=(0,)),
    _function("Selu", data=(0,)),
    _function("Softplus", low=0.0, data=(0,)),
    _function("ThresholdedRelu", data=(0,)),
    # Functions of one value that a quantizer leaves in float.
    _function("Acos"),
    _function("Acosh"),
    _function("Asin"),
    _function("Asinh"),
    _function("Atan"),
    _function("Atanh"),
    _function("Ceil"),
    _function("Celu"),
    _function("Cos", low=-1.0, high=1.0),
    _function("Cosh"),
    _function("Erf", low=-1.0, high=1.0),
    _function("Exp", low=0.0),
    _function("Floor"),
    _function("Log"),
    _function("Reciprocal"),
    _function("Round"),
    _function("Shrink"),
    _function("Sin", low=-1.0, high=1.0),
    _function("Sinh"),
    _function("Softsign"),
    _function("Sqrt", low=0.0),
    _function("Tan"),
    # The borders of integers, and the change from one set of qparams to another, which ONNX has no
    # operator for.
    _border("QuantizeLinear", "borders:quantize_linear", local=True),
    _border("DequantizeLinear", "borders:dequantize_linear", local=True),
    _border("DynamicQuantizeLinear", "borders:dynamic_quantize_linear"),
    OpSpec(name=REQUANTIZE, forms=(_own(REQUANTIZE, "moving:requantize"),)),
)

OPERATORS: Mapping[str, OpSpec] = MappingProxyType({row.name: row for row in _ROWS})
"""Operators of which anything is known; the rest have no weight, move nothing, are unbounded
and stay float.
"""
POINTWISE = frozenset(row.name for row in _ROWS if row.pointwise)
"""Operators that treat every element alike and read no other: functions of one value, or of one
of each operand.
"""
PRODUCTS = frozenset(row.name for row in _ROWS if row.weight is not None)
"""Operators that sum products of data and weights."""
INTEGER_FORMS: Mapping[tuple[str, str], IntegerForm] = MappingProxyType(
    {(form.domain, form.name): form for row in _ROWS for form in row.forms}
)
"""(domain, operator) on integers → its form."""
_FLOAT_NAMES = MappingProxyType({form.name: row.name for row in _ROWS for form in row.forms})
_UNKNOWN = OpSpec()


def op_spec(node: ir.Node) -> OpSpec:
    """The row of the operator of ``node``; outside the default domain, that of its extension."""
    if node.domain == "":
        return OPERATORS.get(node.op_type, _UNKNOWN)
    outside = outside_operator(node)
    return _UNKNOWN if outside is None else _row_of(outside)


def _row_of(outside: Operator) -> OpSpec:
    """Any function is read from a table; what moves values shares the quantization parameters
    of its input.
    """
    facts, moves = outside.facts, outside.facts.moved == (0,)
    return OpSpec(
        weight=facts.weight,
        bias=facts.bias,
        moved=facts.moved,
        real=facts.real,
        low=facts.low,
        high=facts.high,
        pointwise=outside.pointwise,
        table=outside.pointwise,
        data=(0,) if moves else outside.data,
        output=Output.SHARED if moves else Output.OWN,
    )


def is_mover(node: ir.Node) -> bool:
    """Whether all results of ``node`` hold values of its first input and nothing computed."""
    if node.op_type == "Resize" and word_attribute(node, "mode", "nearest") != "nearest":
        return False
    return op_spec(node).is_mover


def float_name(operator: str) -> str:
    """What an operator on integers is called in float graphs: Conv of QLinearConv."""
    return _FLOAT_NAMES.get(operator, operator.removeprefix(QLINEAR))


def weight_channel_axis(node: ir.Node, rank: int) -> int | None:
    """The output-channel axis of the weight of ``node``, of ``rank`` dimensions, if it has one."""
    axes = op_spec(node).axes
    return None if axes is None else axes(node, rank)[0]


def weight_summed_axis(node: ir.Node, rank: int) -> int | None:
    """The axis of the weight of ``node``, of ``rank`` dimensions, that products are summed over.

    Axes of a window come behind it.
    """
    axes = op_spec(node).axes
    return None if axes is None else axes(node, rank)[1]
