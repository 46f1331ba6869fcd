"""The QDQ convention and its checker, pairs of other tools, and the form of a graph."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.errors import InputError
from qbench.graph.capabilities import Form
from qbench.graph.decoder_cache import kept_type
from qbench.graph.ops import ENGINE_DOMAIN, INTEGER_DOMAIN, INTEGER_FORMS
from qbench.graph.query import (
    constant_value,
    input_at,
    int_attribute,
    is_constant,
    node_key,
    only_consumer,
)
from qbench.numerics import FLOAT_FORMATS, QParams, QType, dequantize, parameter_shape

# Quantization to 32 bits, which QuantizeLinear does not have, written in float operators that are
# marked as such.
#
#     value ──Div(s)──Round──Clip(qmin − z, qmax − z)──┬──Mul(s)── consumer
#                                                      └──Mul(s)── consumer
#
# Beyond 2²⁴ only codes that float32 can represent occur: there a quotient is an integer before it
# is rounded. The four nodes carry the name of the type in their metadata, so that a network's own
# Round is never taken for one.

_KEY = "qbench.levels"  # stored name


def mark_float_codes(node: ir.Node, qtype: str) -> None:
    """Write into ``node`` that it is part of a quantization to ``qtype`` in float operators."""
    node.metadata_props[_KEY] = qtype


def is_float_codes(node: ir.Node) -> bool:
    """Whether ``node`` is part of a quantization in float operators."""
    return _KEY in node.metadata_props


def breaches_of_float_codes(node: ir.Node) -> Iterator[str]:
    """What is wrong with the quantization in float operators that begins at ``node``, a marked
    Div; else nothing.
    """
    if not is_float_codes(node) or node.op_type != "Div":
        return
    name, scale = node_key(node), constant_value(node.inputs[1])
    if scale is None or not np.all(np.isfinite(scale)) or not np.all(scale > 0):
        yield f"The scale of '{name}' is not constant, finite and positive throughout."
        return
    clip = _following(_following(node, "Round"), "Clip")
    if clip is None:
        yield (
            f"Behind '{name}' there is no Round and Clip of their own; expected both, with "
            "constant ends."
        )
        return
    readers = [use.node for use in clip.outputs[0].uses()]
    if not readers or clip.outputs[0].is_graph_output():
        yield (
            f"The quantized values of '{name}' leave the graph or have no reader; expected a Mul "
            "behind them."
        )
    for reader in readers:
        factor = (
            constant_value(reader.inputs[1])
            if reader.op_type == "Mul" and is_float_codes(reader)
            else None
        )
        if factor is None or not np.array_equal(factor, scale):
            yield (
                f"The quantized values of '{name}' are read by '{node_key(reader)}'; expected a "
                "Mul by its scale."
            )
        elif len(reader.outputs[0].uses()) + reader.outputs[0].is_graph_output() != 1:
            yield f"What '{node_key(reader)}' gives has not one reader; expected one Mul a reader."


def rounded_behind(node: ir.Node) -> tuple[tuple[ir.Node, ...], str, npt.NDArray[Any]] | None:
    """The quantization in float operators that is the only reader of ``node`` and has one reader.

    Returns:
        Its Div, Round, Clip and Mul, the name of its type, and its scale; None where there is none.
    """
    first = _following(node, "Div")
    clip = _following(_following(first, "Round"), "Clip")
    last = _following(clip, "Mul")
    if first is None or clip is None or last is None or any(breaches_of_float_codes(first)):
        return None
    scale, rounded = constant_value(first.inputs[1]), only_consumer(first.outputs[0])
    if scale is None or rounded is None:
        return None
    return (first, rounded, clip, last), first.metadata_props[_KEY], scale


def _following(node: ir.Node | None, operator: str) -> ir.Node | None:
    """The marked node of kind ``operator`` that alone reads the result of ``node``, its other
    operands constant.
    """
    follower = None if node is None else only_consumer(node.outputs[0])
    if follower is None or follower.op_type != operator or not is_float_codes(follower):
        return None
    ends = [value for value in follower.inputs[1:] if value is not None]
    return follower if all(constant_value(end) is not None for end in ends) else None


# The qparams of a QuantizeLinear or DequantizeLinear from anywhere, or one sentence when it is
# invalid.
#
# Other tools leave the zero point out (then it is 0, and the type that of the integers, uint8 where
# nothing says), give one scale as a list of one, repeat the zero point once for many scales, and
# use the domain com.microsoft.

_Array = npt.NDArray[Any]
_FLOATS = frozenset(
    {ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE}
)


def node_qparams(node: ir.Node) -> QParams | None:
    """The qparams of a Q or DQ ``node`` of integers; None if they are computed at run time, of
    floats or without float32 scales.

    Raises:
        InputError: it is invalid: a scale that is not positive and finite, an integer tensor that
            is float, a zero point outside its type, more scales than slices.
    """
    scale = constant_value(input_at(node, 1))
    point = constant_value(input_at(node, 2))
    if scale is None or (point is None and input_at(node, 2) is not None):
        return None
    qtype = _qtype(node)
    if qtype is None or scale.dtype != np.float32:
        return None
    _check_scale(node, scale)
    block = int_attribute(node, "block_size", 0)
    points = np.zeros(scale.shape, np.int64) if point is None else point.astype(np.int64)
    if not block and scale.size == 1:
        return _made(
            node, scale.reshape(()), points.reshape(-1)[:1].reshape(()), qtype, (None, None)
        )
    if points.size == 1:
        points = np.broadcast_to(points.reshape(()), scale.shape)
    axis = axis_of(node)
    _check_axis(node, scale, axis, block)
    _check_blocks(node, scale, axis, block)
    return _made(node, scale, points, qtype, (axis, block or None))


def float_qparams(node: ir.Node) -> QParams | None:
    """The qparams of a Q or DQ ``node`` of floats of few bits, ``node_qparams`` of which is None;
    None: it is of integers, or its parameters are computed at run time.

    Raises:
        InputError: it is invalid: a scale that is zero or not finite, a zero point, scales that do
            not fit the blocks.
    """
    qtype, stored = _code_type(node), _stored_scales(node)
    if qtype is None or not qtype.is_float or stored is None:
        return None
    scale, scale_type, tensor_scale = stored
    _check_scale(node, scale)
    point = constant_value(input_at(node, 2))
    if point is not None and np.asarray(point, np.float32).any():
        raise _meaningless(node, f"a zero point for {qtype}", "none, or zeros")
    block, axis = int_attribute(node, "block_size", 0), int_attribute(node, "axis", 1)
    along: tuple[int | None, int | None] = (axis, block or None)
    if not block and scale.size == 1:
        scale, along = scale.reshape(()), (None, None)
    else:
        _check_axis(node, scale, axis, block)
        _check_blocks(node, scale, axis, block)
    made = _made(node, scale, np.zeros(scale.shape, np.int64), qtype, along)
    if scale_type is None:
        return made
    return replace(made, scale_type=FLOAT_FORMATS[scale_type], tensor_scale=tensor_scale)


def _stored_scales(node: ir.Node) -> tuple[_Array, str | None, float | None] | None:
    """The scales of ``node`` as float32, the type that stores them, and the scale of the tensor in
    them; None: they are computed at run time, or have another type.
    """
    value = input_at(node, 1)
    found = constant_value(value)
    if found is None:
        maker = None if value is None else value.producer()
        whole = None if maker is None else float_qparams_of_scales(maker)
        codes = None if maker is None or whole is None else constant_value(maker.inputs[0])
        if whole is None or codes is None:
            return None
        return dequantize(codes, whole), whole.qtype.name, float(whole.scale)
    if found.dtype == np.float32:
        return found, None, None
    form = FLOAT_FORMATS["float8e8m0"]
    return (form.decode(found), form.name, None) if value and _holds_e8m0(value) else None


def _holds_e8m0(value: ir.Value) -> bool:
    return value.dtype is ir.DataType.FLOAT8E8M0


def float_qparams_of_scales(node: ir.Node) -> QParams | None:
    """The qparams of a DequantizeLinear ``node`` that gives nothing but scales of blocks, which are
    float8e4m3fn times one scale of the tensor; None of any other node.
    """
    if node.op_type != "DequantizeLinear" or node.domain or node.outputs[0].is_graph_output():
        return None
    uses = node.outputs[0].uses()
    if not uses or any(use.idx != 1 or not _scales_floats(use.node) for use in uses):
        return None
    found = float_qparams(node) if is_constant(node.inputs[0]) else None
    known = found is not None and found.axis is None and found.qtype.name == "float8e4m3fn"
    return found if known else None


def _scales_floats(node: ir.Node) -> bool:
    qtype = _code_type(node) if node.op_type == "DequantizeLinear" else None
    return qtype is not None and qtype.is_float


def _check_blocks(node: ir.Node, scale: _Array, axis: int, block: int) -> None:
    source = input_at(node, 0)
    if not block or source is None or source.shape is None:
        return
    shape = tuple(size for size in source.shape if isinstance(size, int))
    if len(shape) != len(source.shape) or not -len(shape) <= axis < len(shape):
        return
    if scale.shape != (expected := parameter_shape(shape, axis, block)):
        raise _meaningless(
            node,
            f"scales of shape {scale.shape} for blocks of {block} along axis {axis} of {shape}",
            f"scales of shape {expected}",
        )


def axis_of(node: ir.Node) -> int:
    """The axis of the scales of a Q or DQ ``node``.

    The one that is written, unless it has not as many slices as there are scales and one other
    axis has: onnx-neural-compressor writes the axis of the weight for its bias, ONNX Runtime's
    quantizer axis 0 for a bias of ``[1, n]``, and ONNX Runtime, which joins weight and bias into
    one product, does not look at it.
    """
    source, written = input_at(node, 0), int_attribute(node, "axis", 1)
    has_blocks = int_attribute(node, "block_size", 0) > 0
    if source is None or source.shape is None or has_blocks:
        return written
    sizes, scales = list(source.shape), _row_length(input_at(node, 1))
    is_right = -len(sizes) <= written < len(sizes) and sizes[written] == scales
    if scales is None or is_right:
        return written
    fitting = [axis for axis, size in enumerate(sizes) if size == scales]
    return fitting[0] if len(fitting) == 1 else written


def _row_length(value: ir.Value | None) -> int | None:
    """How many numbers a vector has; None: it is none, or its size is open."""
    if value is None or value.shape is None or len(value.shape) != 1:
        return None
    size = value.shape[0]
    return size if isinstance(size, int) else None


def code_dtype(node: ir.Node) -> ir.DataType:
    """The type of the integers of a Q or DQ ``node``: that of its zero point, else of the tensor,
    else the one that ``output_dtype`` names, else uint8.

    Raises:
        InputError: the tensor is float, or of another type than the zero point.
    """
    integers = node.outputs[0] if node.op_type == "QuantizeLinear" else input_at(node, 0)
    point = input_at(node, 2)
    said = None if point is None else point.dtype
    found = None if integers is None else integers.dtype
    if node.op_type == "DequantizeLinear" and found in _FLOATS:
        raise _meaningless(node, f"integers that are {found.name.lower()}", "a quantized tensor")
    if said is not None and found is not None and said != found:
        raise _meaningless(
            node,
            f"integers of {found.name.lower()} and a zero point of {said.name.lower()}",
            "one type",
        )
    written = int_attribute(node, "output_dtype", 0)
    return said or found or (ir.DataType(written) if written else ir.DataType.UINT8)


def _qtype(node: ir.Node) -> QType | None:
    found = _code_type(node)
    return None if found is None or found.is_float else found


def _code_type(node: ir.Node) -> QType | None:
    """The type of its codes; None: qbench has none of it."""
    dtype = code_dtype(node)
    try:
        return QType.parse(dtype.name.lower())
    except InputError:
        return None


def _check_scale(node: ir.Node, scale: _Array) -> None:
    good = np.isfinite(scale) & (scale > 0)
    if not good.all():
        raise _meaningless(
            node, f"a scale of {scale[~good].reshape(-1)[0]}", "scales that are positive and finite"
        )


def _check_axis(node: ir.Node, scale: _Array, axis: int, block: int) -> None:
    source = input_at(node, 0)
    if source is None or source.shape is None or block:
        return
    rank = len(source.shape)
    if scale.ndim != 1 or not -rank <= axis < rank:
        raise _meaningless(
            node,
            f"scales of shape {scale.shape} along axis {axis} of {rank} dimensions",
            "one a slice",
        )
    size = source.shape[axis]
    if isinstance(size, int) and size != scale.size:
        raise _meaningless(
            node, f"{scale.size} scales for {size} slices of axis {axis}", "one a slice"
        )


def _made(
    node: ir.Node,
    scale: _Array,
    points: npt.NDArray[np.int64],
    qtype: QType,
    along: tuple[int | None, int | None],
) -> QParams:
    try:
        return QParams(scale, points, qtype, axis=along[0], block_size=along[1])
    except ValueError as error:
        raise _meaningless(node, str(error), "parameters that fit together") from error


def _meaningless(node: ir.Node, found: str, expected: str) -> InputError:
    return InputError(
        f"Reading the {node.op_type} '{node_key(node)}'",
        found=found,
        expected=expected,
        remedy="Export the model again; as it is, its numbers mean nothing.",
    )


# The QDQ convention, and its checker: one QuantizeLinear per value, one DequantizeLinear per
# consumer.
#
# 1. A value is read by at most one QuantizeLinear (or DynamicQuantizeLinear).
# 2. The result of a QuantizeLinear is read by DequantizeLinear only, and is not a graph output; or
#    one Clip with constant ends reads it, and only DequantizeLinear reads the Clip's: a clip
#    of codes, in place of a Relu or Clip of the real value.
# 3. The result of a DequantizeLinear has exactly one reader: one input of one node, or the graph's
#    output.
# 4. A DequantizeLinear reads a constant or the result of a QuantizeLinear (through its Clip), with
#    the same scale and zero point.
# 5. Scales are constant, finite and positive; a static zero point is constant, given, of the type
#    of the codes.
# 6. Per axis, each slice has one scale and one zero point.
#
# DynamicQuantizeLinear makes scale and zero point itself, so 5 and 6 do not apply to what it feeds.
# Floats of few bits have no zero point where they are constants, and scales of blocks may be e8m0,
# or what a further DequantizeLinear makes of float8e4m3fn and a scale of the tensor (NVFP4).
# Quantization to 32 bits is written in float operators (see above): 1 to 5 apply to its Div as to a
# QuantizeLinear, to its Muls as to DequantizeLinear. A range that is narrower than the type that
# stores it is a clip: of codes, or of the value before its QuantizeLinear where ONNX Runtime has no
# Clip for the type.

QDQ_OPSET, QDQ_IR_VERSION = 21, 10
"""The operator set that everything is written at, and the IR version that came with it: the
first whose QuantizeLinear has 16-bit, 4-bit and blocked forms. Where it changes, so do the
facts of operators (``graph.ops``).
"""
_QUANTIZERS = frozenset({"QuantizeLinear", "DynamicQuantizeLinear"})
_DOMAINS = frozenset({"", "com.microsoft"})


def check_convention(model: ir.Model) -> tuple[str, ...]:
    """Every breach of the convention in ``model``, a sentence each in graph order."""
    return tuple(_breaches(model.graph))


def clip_of_codes(quantize: ir.Node) -> ir.Node | None:
    """The Clip with constant ends that alone reads the integers of ``quantize``, a Q of any
    make, if there is one.
    """
    if quantize.domain not in _DOMAINS or quantize.op_type not in _QUANTIZERS:
        return None
    reader = only_consumer(quantize.outputs[0])
    if reader is None or not _is(reader, {"Clip"}) or reader.inputs[0] is not quantize.outputs[0]:
        return None
    return reader if all(end is None or is_constant(end) for end in reader.inputs[1:]) else None


def _breaches(graph: ir.Graph) -> Iterator[str]:
    for value in (
        *graph.inputs,
        *graph.initializers.values(),
        *(v for node in graph for v in node.outputs),
    ):
        quantizers = [
            node_key(use.node) for use in value.uses() if use.idx == 0 and _quantizes(use.node)
        ]
        if len(quantizers) > 1:
            yield (
                f"'{value.name}' is quantized {len(quantizers)} times, by {_listed(quantizers)}; "
                "expected once."
            )
    for node in graph:
        if _is(node, _QUANTIZERS):
            yield from _breaches_of_quantized(node)
        if _is(node, {"DequantizeLinear"}):
            yield from _breaches_of_dequantize(node)
        if _is(node, {"QuantizeLinear", "DequantizeLinear"}):
            yield from _breaches_of_parameters(node)
        yield from breaches_of_float_codes(node)


def _quantizes(node: ir.Node) -> bool:
    return _is(node, _QUANTIZERS) or (_is(node, {"Div"}) and is_float_codes(node))


def _breaches_of_quantized(node: ir.Node) -> Iterator[str]:
    clip = clip_of_codes(node)
    quantized = node.outputs[0] if clip is None else clip.outputs[0]
    readers = [use.node for use in quantized.uses()]
    foreign = [node_key(reader) for reader in readers if not _is(reader, {"DequantizeLinear"})]
    if foreign:
        yield (
            f"The integers of '{node_key(node)}' are read by {_listed(foreign)}; expected "
            "DequantizeLinear only."
        )
    if quantized.is_graph_output():
        yield (
            f"The integers of '{node_key(node)}' leave the graph; expected a DequantizeLinear "
            "behind them."
        )
    elif not readers:
        yield (
            f"Nothing reads what '{node_key(node)}' quantizes; expected a DequantizeLinear behind "
            "it."
        )


def _breaches_of_dequantize(node: ir.Node) -> Iterator[str]:
    if float_qparams_of_scales(node) is not None:
        return
    result = node.outputs[0]
    readers = len(result.uses()) + result.is_graph_output()
    if readers != 1:
        yield (
            f"What '{node_key(node)}' gives has {readers} readers; expected one DequantizeLinear a "
            "reader."
        )
    source = node.inputs[0]
    maker = None if source is None else source.producer()
    if maker is not None and _is(maker, {"Clip"}):
        before = maker.inputs[0].producer() if maker.inputs[0] is not None else None
        maker = before if before is not None and clip_of_codes(before) is maker else maker
    if maker is not None and _is(maker, _QUANTIZERS):
        if not _same_qparams(maker, node):
            yield (
                f"'{node_key(node)}' and '{node_key(maker)}' have different qparams; expected the "
                "same for one value."
            )
    elif not is_constant(source):
        yield (
            f"'{node_key(node)}' reads '{source.name if source else ''}'; expected a constant or a "
            "quantized value."
        )


def _same_qparams(quantize: ir.Node, dequantize: ir.Node) -> bool:
    if quantize.op_type == "DynamicQuantizeLinear":
        return list(dequantize.inputs[1:3]) == list(quantize.outputs[1:3])
    if axis_of(quantize) != axis_of(dequantize):
        return False
    pairs = ((input_at(quantize, index), input_at(dequantize, index)) for index in (1, 2))
    return all(a is b or _equal(constant_value(a), constant_value(b)) for a, b in pairs)


def _breaches_of_parameters(node: ir.Node) -> Iterator[str]:
    if _is_dynamic(node) or _scales_floats(node):
        return  # ``float_qparams`` refuses what is invalid of floats
    name = node_key(node)
    scale = constant_value(input_at(node, 1))
    zero_point = constant_value(input_at(node, 2))
    if scale is None or not np.all(np.isfinite(scale)) or not np.all(scale > 0):
        yield f"The scale of '{name}' is not constant, finite and positive throughout."
        return
    if zero_point is None:
        yield f"'{name}' has no constant zero point; expected one, which gives the integer type."
        return
    if zero_point.shape != scale.shape:
        yield (
            f"'{name}' has scales of shape {scale.shape} and zero points of shape "
            f"{zero_point.shape}; expected one."
        )
    integers = node.outputs[0] if node.op_type == "QuantizeLinear" else node.inputs[0]
    tensor = input_at(node, 2)
    if integers is not None and tensor is not None and integers.dtype not in (None, tensor.dtype):
        yield (
            f"'{name}' has integers of type {integers.dtype} and a zero point of {tensor.dtype}; "
            "expected one type."
        )
    yield from _breaches_of_axis(node, scale)


def _breaches_of_axis(node: ir.Node, scale: npt.NDArray[Any]) -> Iterator[str]:
    source = node.inputs[0]
    if (
        scale.ndim != 1
        or source is None
        or source.shape is None
        or int_attribute(node, "block_size", 0)
    ):
        return
    axis, shape = axis_of(node), source.shape
    if not -len(shape) <= axis < len(shape):
        yield f"'{node_key(node)}' has axis {axis} of a value with {len(shape)} dimensions."
    elif isinstance(size := shape[axis], int) and size != scale.size:
        yield (
            f"'{node_key(node)}' has {scale.size} scales for {size} slices of axis {axis}; "
            "expected one a slice."
        )


def _is_dynamic(node: ir.Node) -> bool:
    scale = input_at(node, 1)
    maker = None if scale is None else scale.producer()
    return maker is not None and maker.op_type == "DynamicQuantizeLinear"


def _is(node: ir.Node, op_types: frozenset[str] | set[str]) -> bool:
    return node.domain == "" and node.op_type in op_types


def _equal(a: npt.NDArray[Any] | None, b: npt.NDArray[Any] | None) -> bool:
    return a is not None and b is not None and a.dtype == b.dtype and np.array_equal(a, b)


def _listed(names: list[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


# Which form a graph has, by the operators in it.

QDQ_OPERATORS = frozenset({"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"})
_ENGINE_OPERATORS = frozenset(
    {
        "QGemm",
        "QAttention",
        "DynamicQuantizeLSTM",
        "DynamicQuantizeMatMul",
        "MatMulIntegerToFloat",
        "MatMulNBits",
        "GatherBlockQuantized",
    }
)


def held_format(node: ir.Node) -> str | None:
    """The suffix of the format of the file that ``node`` holds; None: it is an operator.

    The node ``TfliteFile`` of the domain ``qbench.tflite`` holds a ``.tflite`` file.
    """
    ours, _, suffix = node.domain.partition(".")
    return suffix if ours == "qbench" and node.op_type == f"{suffix.capitalize()}File" else None


def form_of(model: ir.Model) -> Form:
    """The form of ``model``, subgraphs included: the lowest that any node of it has.

    A node that holds a file of another format makes it file; our integer operators, integer;
    integer operators of ONNX or ONNX Runtime, qoperator; QuantizeLinear and its kin, or
    quantization in float operators, qdq; without any of these it is float.
    """
    nodes = [node for graph in model.graphs() for node in graph]
    if any(held_format(node) for node in nodes):
        return Form.FILE
    if any(node.domain == INTEGER_DOMAIN for node in nodes):
        return Form.INTEGER
    if any(_is_qoperator(node) for node in nodes):
        return Form.QOPERATOR
    if any(is_qdq(node) or is_float_codes(node) for node in nodes):
        return Form.QDQ
    return Form.FLOAT


def is_qdq(node: ir.Node) -> bool:
    """Whether ``node`` is a QuantizeLinear, a DequantizeLinear or a DynamicQuantizeLinear (the
    engine's own too).
    """
    return node.op_type in QDQ_OPERATORS and node.domain in ("", ENGINE_DOMAIN)


def _is_qoperator(node: ir.Node) -> bool:
    if node.domain == "":
        return ("", node.op_type) in INTEGER_FORMS
    return node.domain == ENGINE_DOMAIN and (
        node.op_type.startswith("QLinear")
        or node.op_type in _ENGINE_OPERATORS
        or kept_type(node) != ""
    )
