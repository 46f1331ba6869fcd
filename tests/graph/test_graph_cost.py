"""Multiply-accumulates against hand counts and against a loop that really multiplies."""

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.graph import graph_digest, node_macs, with_shapes


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


# -- attention as one operator, next to the products of its heads


GROUPED = ("GroupQueryAttention", "com.microsoft")


def attention_net(operator, domain, inputs, attributes, outputs=3):
    values = {
        name: ir.val(name or "none", ir.DataType.FLOAT, ir.Shape(shape))
        for name, shape in inputs.items()
    }
    fed = [None if name.startswith("_") else values[name] for name in inputs]
    node = ir.node(operator, fed, attributes, domain=domain, name="attention", num_outputs=outputs)
    for place, value in enumerate(node.outputs):
        value.name, value.dtype = f"out{place}", ir.DataType.FLOAT
    graph = ir.Graph(
        [value for name, value in values.items() if not name.startswith("_")],
        node.outputs,
        nodes=[node],
        opset_imports={"": 23, "com.microsoft": 1},
    )
    return ir.Model(graph, ir_version=10)


def products(rows, heads, tokens, read, depth, mixed):
    """The network of MatMul: Q · Kᵀ and P · V of each head."""
    model = net(
        {
            "q": [rows, heads, tokens, depth],
            "k": [rows, heads, depth, read],
            "v": [rows, heads, read, mixed],
        },
        [("MatMul", ["q", "k"], "scores", {}), ("MatMul", ["scores", "v"], "y", {})],
        {},
    )
    return sum(node_macs(model).values())


@pytest.mark.parametrize(
    ("operator", "inputs", "attributes", "mixed"),
    [
        (
            "com.microsoft::GroupQueryAttention",
            {
                "q": [1, 3, 8],
                "k": [1, 3, 4],
                "v": [1, 3, 4],
                "pk": [1, 1, 5, 4],
                "pv": [1, 1, 5, 4],
            },
            {"num_heads": 2, "kv_num_heads": 1},
            4,
        ),
        (
            "com.microsoft::GroupQueryAttention",
            {"q": [1, 3, 16], "_k": [], "_v": [], "pk": [1, 1, 5, 4], "pv": [1, 1, 5, 4]},
            {"num_heads": 2, "kv_num_heads": 1},
            4,
        ),
        (
            "com.microsoft::MultiHeadAttention",
            {"q": [1, 3, 8], "k": [1, 8, 8], "v": [1, 8, 12]},
            {"num_heads": 2},
            6,
        ),
        (
            "com.microsoft::MultiHeadAttention",
            {"q": [1, 3, 8], "k": [1, 2, 8, 4], "v": [1, 2, 8, 4]},
            {"num_heads": 2},
            4,
        ),
        (
            "com.microsoft::MultiHeadAttention",
            {"q": [1, 3, 8], "k": [1, 8, 2, 2, 4]},
            {"num_heads": 2},
            4,
        ),
        (
            "com.microsoft::MultiHeadAttention",
            {"q": [1, 3, 2, 3, 4], "_k": [], "_v": [], "_b": [], "_m": [], "_a": []}
            | {"pk": [1, 2, 5, 4], "pv": [1, 2, 5, 4]},
            {"num_heads": 2},
            4,
        ),
        (
            "::Attention",
            {"q": [1, 2, 3, 4], "k": [1, 1, 3, 4], "v": [1, 1, 3, 6], "_m": []}
            | {"pk": [1, 1, 5, 4], "pv": [1, 1, 5, 6]},
            {},
            6,
        ),
        (
            "::Attention",
            {"q": [1, 3, 8], "k": [1, 8, 4], "v": [1, 8, 6]},
            {"q_num_heads": 2, "kv_num_heads": 1},
            6,
        ),
    ],
)
def test_attention_costs_what_its_products_do(operator, inputs, attributes, mixed):
    domain, _, name = operator.partition("::")
    model = attention_net(name, domain, inputs, attributes)
    assert node_macs(model) == {"attention": products(1, 2, 3, 8, 4, mixed)}


def test_attention_to_a_past_of_open_size_costs_what_its_products_do():
    past, new = ["N", 2, "S", 4], ["N", 2, "T", 4]
    model = net(
        {"q": new, "k": new, "v": new, "pk": past, "pv": past},
        [
            ("Concat", ["pk", "k"], "keys", {"axis": 2}),
            ("Transpose", ["keys"], "turned", {"perm": [0, 1, 3, 2]}),
            ("Concat", ["pv", "v"], "values", {"axis": 2}),
            ("MatMul", ["q", "turned"], "scores", {}),
            ("MatMul", ["scores", "values"], "y", {}),
        ],
        {},
    )
    new = {name: ["N", "T", 8] for name in "qkv"}
    heads = {"num_heads": 2, "kv_num_heads": 2}
    model_of_past = attention_net(*GROUPED, new | {"pk": past, "pv": past}, heads)
    first_run = attention_net(*GROUPED, new | {"_pk": [], "_pv": []}, heads)
    assert sum(node_macs(model).values()) == 2 * products(1, 2, 1, 1, 4, 4)
    assert node_macs(model_of_past) == {"attention": 2 * products(1, 2, 1, 1, 4, 4)}
    assert node_macs(first_run) == {"attention": products(1, 2, 1, 1, 4, 4)}


def test_attention_with_its_weights_costs_their_product_too():
    inputs = {"x": [1, 3, 10], "w": [10, 24], "_b": [], "_m": [], "past": [2, 1, 2, 5, 4]}
    model = attention_net("Attention", "com.microsoft", inputs, {"num_heads": 2}, 2)
    assert node_macs(model) == {"attention": 3 * 10 * 24 + products(1, 2, 3, 8, 4, 4)}
    inputs = {"x": [1, 3, 10], "w": [10, 28]}
    sizes = {"num_heads": 2, "qkv_hidden_sizes": [8, 8, 12]}
    model = attention_net("Attention", "com.microsoft", inputs, sizes, 2)
    assert node_macs(model) == {"attention": 3 * 10 * 28 + products(1, 2, 3, 3, 4, 6)}


@pytest.mark.parametrize("packed", [False, True])
def test_the_result_of_grouped_attention_has_the_shape_of_its_heads(packed):
    whole = {"q": ["N", "T", 8], "k": ["N", "T", 4], "v": ["N", "T", 4]}
    inputs = {"q": ["N", "T", 16], "_k": [], "_v": []} if packed else whole
    heads = {"num_heads": 2, "kv_num_heads": 1}
    model = attention_net("GroupQueryAttention", "com.microsoft", inputs, heads)
    (node,) = model.graph
    node.outputs[0].type = None
    found = with_shapes(model).graph.outputs[0]
    assert (found.dtype, found.shape) == (ir.DataType.FLOAT, ir.Shape(["N", "T", 8]))
