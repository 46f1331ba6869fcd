"""What ONNX Runtime's optimizers do with a quantized graph that its file does not say.

    dropped Relu    Relu → QuantizeLinear to float8 or to fewer than 8 bits: the Relu is removed, as
                    for int8 with the lowest zero point, whatever the zero point is, so that numbers
                    below zero pass (``ReluQuantRewrite``, an extended optimization)
    half scales     DequantizeLinear by float16 scales with float32 results → MatMul or Gemm: fused
                    into an operator of mixed types, which does not load
    rounded data    DequantizeLinear of a constant matrix → MatMul or Gemm of real data: the data
                    are rounded to 8 bits, unless an entry of the session forbids it
    kept limits     product → Relu or Clip → QuantizeLinear to codes that reach beyond its limits:
                    the limits stay an operator, so the product runs in float

The first two are worked around where qbench makes the session. Source: onnxruntime 1.31.1 and
1.32.0, by single graphs (docs/findings).
"""

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from qbench.backends.protocol import EngineNote, Miscomputed
from qbench.graph import (
    constant_value,
    float_qparams,
    input_at,
    int_attribute,
    node_key,
    node_qparams,
    only_consumer,
    op_spec,
    own_copy,
)
from qbench.passes import NameScope

_ENGINE = "ONNX Runtime"
_ARITHMETICS = ("ort-x64", "ort-x64-avx2", "ort-x64-sse")
_WHOLE = frozenset({"INT8", "UINT8", "INT16", "UINT16", "INT32"})
"""Types for which the engine compares the zero point before it drops a Relu."""
_LOWEST = {"INT4": -8, "INT2": -2, "UINT4": 0, "UINT2": 0}
_PACKED = frozenset({"INT2", "UINT2", "INT4", "UINT4", "INT8", "UINT8"})
"""Types of weights that products with weights in blocks have."""
_LEAST_BLOCK = 16
_SCALAR = 1


def dropped_relus(graph: ir.Graph) -> Iterator[ir.Node]:
    """The Relu nodes that an optimized session drops, although negative numbers have codes."""
    for node in graph:
        if node.op_type != "Relu" or node.domain or node.outputs[0].is_graph_output():
            continue
        readers = [use.node for use in node.outputs[0].uses()]
        if readers and all(_takes_negatives(reader) for reader in readers):
            yield node


def _takes_negatives(node: ir.Node) -> bool:
    """Whether ``node`` quantizes to a narrow type by one scale, above whose zero point codes are
    left.
    """
    scale, zero = input_at(node, 1), input_at(node, 2)
    if node.op_type != "QuantizeLinear" or node.domain or zero is None or zero.dtype is None:
        return False
    if scale is None or scale.shape is None or scale.shape.dims not in ((), (_SCALAR,)):
        return False
    kind = zero.dtype.name
    known = constant_value(zero)
    if kind in _WHOLE or known is None:
        return False
    return kind not in _LOWEST or int(known.reshape(-1)[0]) > _LOWEST[kind]


def with_kept_relus(model: ir.Model) -> ir.Model:
    """``model`` itself, or a copy in which a Max with 0 is in the place of each Relu that would be
    dropped: the same numbers.
    """
    if not any(dropped_relus(model.graph)):
        return model
    copy = own_copy(model)
    names = NameScope.of_values(copy)
    for node in list(dropped_relus(copy.graph)):
        reader = next(iter(node.outputs[0].uses())).node
        scale = constant_value(input_at(reader, 1))
        kind = np.float32 if scale is None else scale.dtype
        zero = _initializer(copy.graph, names.fresh("zero"), np.zeros((), kind))
        old = node.outputs[0]
        kept = ir.val(str(old.name), old.dtype, old.shape)
        limit = ir.node("Max", [node.inputs[0], zero], name=node.name, outputs=[kept])
        old.replace_all_uses_with(kept)
        copy.graph.insert_after(node, limit)
        copy.graph.remove(node, safe=True)
    return copy


def quantizes_floats(model: ir.Model) -> bool:
    """Whether ``model`` quantizes values to floats of few bits.

    Optimizers of pairs then make operators that have no kernel of them (MaxPool, Flatten, Add), and
    one fails at a Clip before such a Q (1.31).
    """
    return any(
        node.op_type == "QuantizeLinear" and float_qparams(node) is not None for node in model.graph
    )


def half_scales(graph: ir.Graph) -> Iterator[ir.Node]:
    """The DequantizeLinear nodes by constant float16 scales whose float32 weights a product
    reads.
    """
    for node in graph:
        scale = input_at(node, 1)
        if (
            node.op_type == "DequantizeLinear"
            and not node.domain
            and scale is not None
            and scale.dtype is ir.DataType.FLOAT16
            and constant_value(scale) is not None
            and int_attribute(node, "output_dtype", 0) == ir.DataType.FLOAT
            and any(use.node.op_type in ("MatMul", "Gemm") for use in node.outputs[0].uses())
        ):
            yield node


def with_float_scales(model: ir.Model) -> ir.Model:
    """``model`` itself, or a copy in which these scales are float32: the same numbers."""
    if not any(half_scales(model.graph)):
        return model
    copy = own_copy(model)
    names = NameScope.of_values(copy)
    for node in list(half_scales(copy.graph)):
        scale = constant_value(input_at(node, 1))
        assert scale is not None
        name = names.fresh(f"{node_key(node)}_scale")
        node.replace_input_with(1, _initializer(copy.graph, name, scale.astype(np.float32)))
    return copy


def _initializer(
    graph: ir.Graph, name: str, array: "np.ndarray[tuple[int, ...], np.dtype[np.generic]]"
) -> ir.Value:
    tensor = ir.tensor(array, name=name)
    value = ir.val(name, tensor.dtype, ir.Shape(array.shape), const_value=tensor)
    graph.register_initializer(value)
    return value


def miscomputed(model: ir.Model) -> tuple[Miscomputed, ...]:
    """What a session of a user computes wrong of ``model``; qbench's own compute it right."""
    why = "a Relu in front of a quantizer to float8 or few bits, which the engine drops"
    return tuple(
        Miscomputed("relus", node_key(node), why, _ENGINE, _ARITHMETICS)
        for node in dropped_relus(model.graph)
    )


# What the engine does otherwise than the file says, without being wrong.


def notes(model: ir.Model) -> tuple[EngineNote, ...]:
    """What a session of a user does with ``model`` that its file does not say."""
    found = {
        (
            "half-scales",
            "does not load this",
            "DequantizeLinear by float16 scales with float32 results in front of a product; "
            "write the scales as float32",
        ): half_scales(model.graph),
        (
            "rounded-data",
            "rounds the data of this to 8 bits",
            "real data by dequantized weights, where the session leaves "
            "session.qdq_matmulnbits_accuracy_level as it is",  # stored name
        ): rounded_products(model.graph),
        (
            "kept-limits",
            "runs this in float",
            "its Relu or Clip cuts off codes of the type that it is quantized to, so it stays an "
            "operator; use a zero point at the lowest code",
        ): limited_products(model.graph),
    }
    return tuple(
        EngineNote(_ENGINE, pattern, effect, node_key(node), why)
        for (pattern, effect, why), nodes in found.items()
        for node in nodes
    )


def rounded_products(graph: ir.Graph) -> Iterator[ir.Node]:
    """The products of real data by dequantized matrices that become one operator, which rounds
    its data by default.
    """
    for node in graph:
        if node.op_type not in ("MatMul", "Gemm") or node.domain:
            continue
        data, weight = input_at(node, 0), input_at(node, 1)
        maker = None if weight is None else weight.producer()
        if data is None or maker is None or len(list(weight.uses() if weight else ())) != 1:
            continue
        turned = int_attribute(node, "transA", 0) or int_attribute(node, "transB", 0)
        if not turned and _is_packed(maker) and not _is_dequantized(data) and not _is_cut(node):
            yield node


def _is_packed(node: ir.Node) -> bool:
    """Whether ``node`` dequantizes a constant matrix by scales per column, per block of a column,
    or one.
    """
    codes = input_at(node, 0)
    if node.op_type != "DequantizeLinear" or node.domain or codes is None or codes.dtype is None:
        return False
    is_matrix = codes.is_initializer() and codes.shape is not None and len(codes.shape) == 2
    if not is_matrix or codes.dtype.name not in _PACKED:
        return False
    axis, block = int_attribute(node, "axis", 1) % 2, int_attribute(node, "block_size", 0)
    scale = input_at(node, 1)
    if scale is not None and scale.shape is not None and scale.shape.dims in ((), (_SCALAR,)):
        return True
    return (axis == 0 and block >= _LEAST_BLOCK) if block else axis == 1


def _is_dequantized(value: ir.Value) -> bool:
    """Whether ``value`` is dequantized, and perhaps moved behind that."""
    maker = value.producer()
    while maker is not None and op_spec(maker).is_mover and maker.inputs[0] is not None:
        maker = maker.inputs[0].producer()
    return maker is not None and maker.op_type == "DequantizeLinear"


def _is_cut(node: ir.Node) -> bool:
    """Whether a Relu inside the graph is the only reader: such a product is left as it is."""
    reader = only_consumer(node.outputs[0])
    return (
        reader is not None and reader.op_type == "Relu" and not reader.outputs[0].is_graph_output()
    )


def limited_products(graph: ir.Graph) -> Iterator[ir.Node]:
    """The products of quantized data whose limits do not count as absorbed by the quantizer
    behind them.
    """
    for node in graph:
        if node.op_type not in ("Conv", "Gemm", "MatMul") or node.domain:
            continue
        data, weight = input_at(node, 0), input_at(node, 1)
        if (
            data is None
            or weight is None
            or not (_is_dequantized(data) and _is_dequantized(weight))
        ):
            continue
        limits = only_consumer(node.outputs[0])
        if limits is None or limits.domain or limits.op_type not in ("Relu", "Clip"):
            continue
        reader = only_consumer(limits.outputs[0])
        if reader is not None and reader.op_type == "QuantizeLinear" and _cuts(limits, reader):
            yield node


def _cuts(limits: ir.Node, quantizer: ir.Node) -> bool:
    """Whether codes of ``quantizer`` lie beyond those of ``limits``; False where its qparams are
    unknown.
    """
    qparams = node_qparams(quantizer)
    if qparams is None or np.size(qparams.scale) != 1:
        return False
    scale, zero = float(np.ravel(qparams.scale)[0]), int(np.ravel(qparams.zero_point)[0])
    low, high = 0.0, np.inf
    if limits.op_type == "Clip":
        ends = [constant_value(input_at(limits, place)) for place in (1, 2)]
        low = -np.inf if ends[0] is None else float(np.ravel(ends[0])[0])
        high = np.inf if ends[1] is None else float(np.ravel(ends[1])[0])
    lowest, highest = (np.rint(end / scale) + zero for end in (low, high))
    return bool(lowest > qparams.qtype.qmin or highest < qparams.qtype.qmax)
