"""Small graphs of integer operators with weights of one's own."""

import numpy as np
import onnx_ir as ir

TYPES = {"uint8": ir.DataType.UINT8, "int8": ir.DataType.INT8}


def _graph(node_of, shape, constants, levels, clip):
    x = ir.Value(name="x", shape=ir.Shape(shape), type=ir.TensorType(TYPES[levels]))
    values = {
        name: ir.Value(name=name, const_value=ir.tensor(array, name=name))
        for name, array in constants.items()
    }
    for name, value in values.items():
        value.shape, value.type = (
            ir.Shape(constants[name].shape),
            ir.TensorType(value.const_value.dtype),
        )
    nodes, inner = [], x
    if clip is not None:
        ends = [np.array(end, levels) for end in clip]
        for name, end in zip(("low", "high"), ends, strict=True):
            values[name] = ir.Value(name=name, const_value=ir.tensor(end, name=name))
        nodes.append(ir.node("Clip", [x, values["low"], values["high"]], name="clip"))
        inner = nodes[0].outputs[0]
        inner.dtype, inner.name = TYPES[levels], "clipped"
    node = node_of(inner, values)
    node.outputs[0].name, node.outputs[0].dtype = "y", TYPES["uint8"]
    graph = ir.Graph(
        [x],
        [node.outputs[0]],
        nodes=[*nodes, node],
        opset_imports={"": 21},
        initializers=list(values.values()),
        name="g",
    )
    return ir.Model(graph, ir_version=10)


def _grids(weight, bias, *, scales, zeros, levels):
    constants = {
        "sx": np.array(scales[0], np.float32),
        "zx": np.array(zeros[0], levels),
        "w": weight,
        "sw": np.array(scales[1], np.float32),
        "zw": np.array(0, weight.dtype),
        "sy": np.array(scales[2], np.float32),
        "zy": np.array(zeros[1], np.uint8),
    }
    return constants if bias is None else {**constants, "b": np.asarray(bias, np.int32)}


def conv(
    weight, bias=None, *, group=1, scales=(0.5, 0.01, 1.0), zeros=(0, 0), levels="uint8", clip=None
):
    """A QLinearConv whose window is its whole input,
    of levels of ``levels`` clipped to ``clip``.
    """
    weight = np.asarray(weight)
    constants = _grids(weight, bias, scales=scales, zeros=zeros, levels=levels)
    shape = ["n", weight.shape[1] * group, *weight.shape[2:]]
    attributes = {"group": group, "kernel_shape": list(weight.shape[2:])}
    return _graph(
        lambda x, v: ir.node(
            "QLinearConv", [x, *(v[name] for name in constants)], attributes, name="conv"),
        shape, constants, levels, clip,
    )  # fmt: skip


def conv_integer(weight, *, group=1, levels="int8", clip=None):
    """A ConvInteger, likewise."""
    weight = np.asarray(weight)
    shape = ["n", weight.shape[1] * group, *weight.shape[2:]]
    attributes = {"group": group, "kernel_shape": list(weight.shape[2:])}
    model = _graph(
        lambda x, v: ir.node("ConvInteger", [x, v["w"]], attributes, name="conv"),
        shape,
        {"w": weight},
        levels,
        clip,
    )
    model.graph.outputs[0].dtype = ir.DataType.INT32
    return model


def matmul(weight, *, scales=(0.5, 0.01, 1.0), zeros=(0, 0), levels="uint8", clip=None):
    """A QLinearMatMul by ``weight``, (K, N)."""
    weight = np.asarray(weight)
    constants = _grids(weight, None, scales=scales, zeros=zeros, levels=levels)
    return _graph(
        lambda x, v: ir.node(
            "QLinearMatMul", [x, *(v[name] for name in constants)], name="product"),
        ["n", len(weight)], constants, levels, clip,
    )  # fmt: skip
