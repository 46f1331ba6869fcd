"""Multiply-accumulates against hand counts and against a loop that really multiplies."""

import numpy as np
import onnx_ir as ir
from hypothesis import given
from hypothesis import strategies as st

from qbench.graph import graph_digest, node_macs


def net(inputs, nodes, weights):
    values = {
        name: ir.val(name, ir.DataType.FLOAT, ir.Shape(shape)) for name, shape in inputs.items()
    }
    constants = []
    for name, shape in weights.items():
        tensor = ir.tensor(np.zeros(shape, np.float32), name=name)
        values[name] = ir.val(name, tensor.dtype, tensor.shape, const_value=tensor)
        constants.append(values[name])
    built = []
    for op, operands, out, attributes in nodes:
        node = ir.node(op, [values[o] for o in operands], attributes, name=f"node_{out}")
        node.outputs[0].name = out
        values[out] = node.outputs[0]
        built.append(node)
    values[nodes[-1][2]].dtype = ir.DataType.FLOAT
    graph = ir.Graph(
        [values[n] for n in inputs],
        [values[nodes[-1][2]]],
        nodes=built,
        initializers=constants,
        opset_imports={"": 21},
    )
    return ir.Model(graph, ir_version=10)


def test_conv_depthwise_transposed_gemm_matmul():
    model = net(
        {"x": ["N", 4, 9, 9]},
        [
            ("Conv", ["x", "w1"], "a", {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
            ("Conv", ["a", "w2"], "b", {"group": 8}),
            ("ConvTranspose", ["b", "w3"], "c", {"strides": [2, 2], "group": 2}),
            ("GlobalAveragePool", ["c"], "d", {}),
            ("Flatten", ["d"], "e", {}),
            ("Gemm", ["e", "w4"], "f", {"transB": 1}),
            ("MatMul", ["f", "w5"], "g", {}),
        ],
        {"w1": (8, 4, 3, 3), "w2": (8, 1, 3, 3), "w3": (8, 3, 2, 2), "w4": (5, 6), "w5": (5, 7)},
    )
    before = graph_digest(model)
    assert node_macs(model) == {
        "node_a": 5 * 5 * 8 * 4 * 9,
        "node_b": 3 * 3 * 8 * 9,
        "node_c": 3 * 3 * 8 * 3 * 4,
        "node_f": 5 * 6,
        "node_g": 5 * 7,
    }
    assert graph_digest(model) == before
    assert model.graph.inputs[0].shape[0] == ir.SymbolicDim("N")


@given(
    st.integers(1, 3),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(3, 8),
    st.integers(1, 3),
    st.integers(1, 2),
    st.integers(0, 2),
)
def test_conv_counts_what_a_loop_multiplies(
    groups, per_group, out_per_group, size, kernel, stride, pad
):
    model = net(
        {"x": ["N", groups * per_group, size]},
        [("Conv", ["x", "w"], "y", {"group": groups, "strides": [stride], "pads": [pad, pad]})],
        {"w": (groups * out_per_group, per_group, kernel)},
    )
    count = 0
    for _ in range(groups * out_per_group):
        position = -pad
        while position + kernel <= size + pad:
            count += per_group * kernel  # multiplications with padding are counted too
            position += stride
    assert node_macs(model) == {"node_y": count}


def test_batched_matmul_of_activations_counts_every_product():
    model = net({"a": ["N", 2, 3, 4], "b": ["N", 2, 4, 5]}, [("MatMul", ["a", "b"], "y", {})], {})
    assert node_macs(model) == {"node_y": 2 * 3 * 5 * 4}


def test_quantized_graph_counts_like_the_float_one_and_unnamed_nodes_bear_their_output():
    model = ir.from_onnx_text("""<ir_version: 10, opset_import: ["" : 21]>
    net (float[N, 3] x) => (float[N, 2] y)
    <float s = {0.1}, uint8 z = {3}, int8[3, 2] wq = {1, 2, 3, 4, 5, 6}, float ws = {0.1},
     int8 wz = {0}> {
      q = QuantizeLinear(x, s, z)
      d = DequantizeLinear(q, s, z)
      w = DequantizeLinear(wq, ws, wz)
      y = MatMul(d, w)
    }""")
    assert node_macs(model) == {"y": 6}


def test_a_fixed_batch_costs_a_sample_what_a_free_one_does():
    def counts(batch):
        return node_macs(net({"x": [batch, 3]}, [("MatMul", ["x", "w"], "y", {})], {"w": (3, 5)}))

    assert counts(1) == counts(4) == counts("N") == {"node_y": 15}
