"""Small float graphs with one idea each,
and a numpy interpreter that fake-quantizes them as a plan says.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

from qbench.graph import node_key
from qbench.numerics import fake_quantize
from qbench.passes import plannable
from qbench.quantization import Plan

Array = np.ndarray[Any, Any]


def model_of(inputs: str, outputs: str, body: str, **constants: Array) -> ir.Model:
    """A model from ONNX text; the keyword arguments are its initializers."""
    head = '<ir_version: 10, opset_import: ["" : 21]>'
    model = ir.from_onnx_text(f"{head}\nsubject ({inputs}) => ({outputs}) {{\n{body}\n}}")
    values = {v.name: v for node in model.graph for v in node.inputs if v is not None}
    for name, array in constants.items():
        tensor = ir.tensor(array, name=name)
        value = values[name]
        value.const_value, value.dtype, value.shape = tensor, tensor.dtype, ir.Shape(array.shape)
        model.graph.register_initializer(value)
    return model


def weights(seed: int, *shape: int, size: float = 0.4) -> Array:
    """Normal numbers, float32."""
    return (np.random.default_rng(seed).normal(size=shape) * size).astype(np.float32)


def conv_relu() -> ir.Model:
    return model_of(
        "float[N,3,8,8] x",
        "float[N,4,8,8] z",
        "c = Conv<pads=[1,1,1,1]>(x, w, b)\n y = Relu(c)\n z = Conv(y, w2)",
        w=weights(0, 6, 3, 3, 3),
        b=weights(1, 6),
        w2=weights(2, 4, 6, 1, 1),
    )


def residual() -> ir.Model:
    return model_of(
        "float[N,4,6,6] x",
        "float[N,4,6,6] z",
        """a = Conv<pads=[1,1,1,1]>(x, w, b)
        r = Clip(a, low, high)
        c = Conv(r, w2, b2)
        s = Add(c, x)
        t = Relu(s)
        z = Conv(t, w3)""",
        w=weights(0, 4, 4, 3, 3),
        b=weights(1, 4),
        w2=weights(2, 4, 4, 1, 1),
        b2=weights(3, 4),
        w3=weights(4, 4, 4, 1, 1),
        low=np.float32(0).reshape(()),
        high=np.float32(6).reshape(()),
    )


def depthwise() -> ir.Model:
    return model_of(
        "float[N,6,9,9] x",
        "float[N,5] z",
        """d = Conv<pads=[1,1,1,1], group=6, strides=[2,2]>(x, w, b)
        r = Clip(d, low, high)
        p = GlobalAveragePool(r)
        f = Flatten(p)
        z = Gemm<transB=1>(f, g, h)""",
        w=weights(0, 6, 1, 3, 3),
        b=weights(1, 6),
        g=weights(2, 5, 6),
        h=weights(3, 5),
        low=np.array(0, np.float32),
        high=np.array(6, np.float32),
    )


def pooled_concat() -> ir.Model:
    return model_of(
        "float[N,3,8,8] x",
        "float[N,2,4,4] z",
        """a = Conv(x, w, b)
        p = MaxPool<kernel_shape=[2,2], strides=[2,2]>(a)
        q = AveragePool<kernel_shape=[2,2], strides=[2,2]>(x)
        c = Concat<axis=1>(p, q)
        t = Transpose<perm=[0,1,3,2]>(c)
        z = Conv(t, w2)""",
        w=weights(0, 4, 3, 1, 1),
        b=weights(1, 4),
        w2=weights(2, 2, 7, 1, 1),
    )


def gates() -> ir.Model:
    """A step of a gated recurrent unit: products of two computed operands,
    constants in differences.
    """
    return model_of(
        "float[N,8] x, float[N,6] h",
        "float[N,6] z",
        """a = MatMul(x, w)
        i = Add(a, b)
        u = MatMul(h, v)
        s = Add(i, u)
        g = Sigmoid(s)
        n = Tanh(i)
        o = Sub(one, g)
        p = Mul(o, n)
        q = Mul(g, h)
        z = Add(p, q)""",
        w=weights(0, 8, 6),
        b=weights(1, 6),
        v=weights(2, 6, 6),
        one=np.array(1, np.float32),
    )


def attention() -> ir.Model:
    return model_of(
        "float[N,5,8] x",
        "float[N,5,8] z",
        """q = MatMul(x, wq)
        k = MatMul(x, wk)
        t = Transpose<perm=[0,2,1]>(k)
        s = MatMul(q, t)
        m = Softmax<axis=-1>(s)
        z = MatMul(m, x)""",
        wq=weights(0, 8, 4),
        wk=weights(1, 8, 4),
    )


SUBJECTS: dict[str, Callable[[], ir.Model]] = {
    make.__name__: make
    for make in (conv_relu, residual, depthwise, pooled_concat, gates, attention)
}


def feeds_of(model: ir.Model, seed: int = 5, rows: int = 16) -> dict[str, Array]:
    """Normal numbers for every input, ``rows`` samples."""
    rng = np.random.default_rng(seed)
    shapes = {
        v.name: [d if isinstance(d, int) else rows for d in v.shape or ()]
        for v in model.graph.inputs
    }
    return {str(name): rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def fake_quantized(model: ir.Model, plan: Plan, feeds: dict[str, Array]) -> dict[str, Array]:
    """The float graph, node by node through the onnx evaluator, with a round trip at every slot
    of ``plan``.

    A graph output leaves as computed; everything else that has a grid is read through it.
    """
    canonical = plannable(model, plan.canonical)
    grids, constants = plan.values, {(s.node, s.index): q for s, q in plan.constants.items()}
    real: dict[str, Array] = dict(feeds)
    for name, value in canonical.graph.initializers.items():
        assert value.const_value is not None
        real[name] = value.const_value.numpy()
    for node in canonical.graph:
        operands = {}
        for index, value in enumerate(node.inputs):
            if value is not None and value.name is not None:
                qparams = constants.get((node_key(node), index)) or grids.get(value.name)
                array = real[value.name]
                operands[f"i{index}"] = array if qparams is None else fake_quantize(array, qparams)
        real.update(_evaluated(node, operands))
    return {str(v.name): real[str(v.name)] for v in canonical.graph.outputs}


def _evaluated(node: ir.Node, operands: dict[str, Array]) -> dict[str, Array]:
    inputs = [
        None
        if v is None
        else ir.Value(
            name=f"i{i}", type=ir.TensorType(ir.DataType.from_numpy(operands[f"i{i}"].dtype))
        )
        for i, v in enumerate(node.inputs)
    ]
    alone = ir.Node(
        "", node.op_type, inputs, list(node.attributes.values()), num_outputs=len(node.outputs)
    )
    for output, value in zip(node.outputs, alone.outputs, strict=True):
        value.name = output.name
    present = [value for value in inputs if value is not None]
    single = ir.Graph(present, alone.outputs, nodes=[alone], opset_imports={"": 21}, name="one")
    evaluator = ReferenceEvaluator(ir.to_proto(ir.Model(single, ir_version=10)))
    results = evaluator.run(None, operands)
    return dict(zip((str(v.name) for v in alone.outputs), results, strict=True))
