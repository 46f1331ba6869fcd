"""Canonical passes on graphs written as ONNX text: structure,
the same numbers in onnxruntime, idempotence.
"""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbench.backends import get_backend
from qbench.errors import InputError, UnsupportedError
from qbench.graph import (
    check_convention,
    constant_value,
    graph_digest,
    lineage_of,
    model_bytes,
    values_by_name,
)
from qbench.passes import CANONICAL, Pass, canonical_pipeline, canonicalize, plannable, rewrite


def net(
    body,
    inputs="float[N, 4, 6, 6] x",
    outputs="float[N, C, H, W] y",
    opset=21,
    ir_version=10,
    **constants,
):
    # Values that only ``constants`` define are declared as inputs for the parser, then taken back.
    declared = "".join(f", float[] {name}" for name in constants)
    text = (
        f'<ir_version: {ir_version}, opset_import: ["" : {opset}]> net ({inputs}{declared}) => '
        f"({outputs}) {{ {body} }}"
    )
    model = ir.from_onnx_text(text)
    for value in [v for v in model.graph.inputs if v.name in constants]:
        array = np.asarray(constants[value.name])
        model.graph.inputs.remove(value)
        tensor = ir.tensor(array, name=value.name)
        value.const_value, value.shape, value.dtype = tensor, tensor.shape, tensor.dtype
        model.graph.register_initializer(value)
    return model


def outputs(model, feeds, backend="ort-cpu-noopt"):
    with get_backend(backend).prepare(model) as executor:
        return executor.run(feeds)


def checked(model, seed=0, tolerance=1e-5, backend="ort-cpu-noopt"):
    """The canonical model, after everything that must hold of it was asserted."""
    before = graph_digest(model)
    result = canonicalize(model)
    assert graph_digest(model) == before
    onnx.checker.check_model(onnx.load_model_from_string(model_bytes(result)), full_check=True)
    assert graph_digest(canonicalize(result)) == graph_digest(result)
    assert [v.name for v in result.graph.outputs] == [v.name for v in model.graph.outputs]
    names = [node.name for node in result.graph]
    assert all(names)
    assert len(set(names)) == len(names)
    rng = np.random.default_rng(seed)
    shapes = {
        v.name: [d if isinstance(d, int) else 2 for d in v.shape] for v in result.graph.inputs
    }
    feeds = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    for (name, a), b in zip(
        outputs(model, feeds, backend).items(),
        outputs(result, feeds, backend).values(),
        strict=True,
    ):
        np.testing.assert_allclose(
            b, a, rtol=tolerance, atol=tolerance * max(1, np.abs(a).max()), err_msg=name
        )
    return result


def operators(model):
    return [node.op_type for node in model.graph]


def arrays(seed, **shapes):
    rng = np.random.default_rng(seed)
    made = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    return {name: np.abs(a) + 0.1 if name.startswith("v") else a for name, a in made.items()}


@pytest.mark.parametrize("group", [1, 2, 4])
@pytest.mark.parametrize("bias", [False, True])
def test_batchnorm_into_conv(group, bias):
    body = f"""[c] h = Conv <group = {group}> (x, w{", b" if bias else ""})
               [n] k = BatchNormalization <epsilon = 0.01> (h, g, be, m, v) [r] y = Relu(k)"""
    constants = arrays(
        group, w=(8, 4 // group, 3, 3), **({"b": (8,)} if bias else {}), g=8, be=8, m=8, v=8
    )
    result = checked(net(body, **constants))
    assert operators(result) == ["Conv", "Relu"]
    assert [node.name for node in result.graph] == ["c", "r"]
    assert next(iter(result.graph)).outputs[0].name == "k"
    assert set(result.graph.initializers) == {"w", "b" if bias else "c.bias"}
    scale = constants["g"].astype(np.float64) / np.sqrt(
        constants["v"].astype(np.float64) + np.float32(0.01)
    )
    expected = (constants["w"].astype(np.float64) * scale.reshape(-1, 1, 1, 1)).astype(np.float32)
    np.testing.assert_array_equal(constant_value(result.graph.initializers["w"]), expected)


@pytest.mark.parametrize("group", [1, 2])
def test_batchnorm_into_transposed_conv(group):
    body = f"""h = ConvTranspose <group = {group}, strides = [2, 2]> (x, w, b)
               y = BatchNormalization(h, g, be, m, v)"""
    constants = arrays(3, w=(4, 6 // group, 2, 3), b=(6,), g=6, be=6, m=6, v=6)
    assert operators(checked(net(body, **constants))) == ["ConvTranspose"]


@pytest.mark.parametrize("transposed", [0, 1])
@pytest.mark.parametrize("bias", [None, (5,), (1, 5), (1,), ()])
def test_batchnorm_into_gemm_with_alpha_and_beta(transposed, bias):
    inputs = "a, w" if bias is None else "a, w, b"
    body = f"""a = Flatten(x) h = Gemm <alpha = 0.5, beta = 3.0, transB = {transposed}> ({inputs})
               y = BatchNormalization(h, g, be, m, v)"""
    shapes = {"w": (5, 144) if transposed else (144, 5)} | ({} if bias is None else {"b": bias})
    constants = {
        k: np.asarray(a, np.float32) for k, a in arrays(4, **shapes, g=5, be=5, m=5, v=5).items()
    }
    assert operators(checked(net(body, outputs="float[N, M] y", **constants))) == [
        "Flatten",
        "Gemm",
    ]


def test_batchnorm_is_not_folded_where_the_product_is_read_twice_or_given_out():
    constants = arrays(5, w=(8, 4, 3, 3), g=8, be=8, m=8, v=8)
    twice = "h = Conv(x, w) k = BatchNormalization(h, g, be, m, v) y = Add(h, k)"
    assert operators(checked(net(twice, **constants))) == ["Conv", "Conv", "Add"]
    out = "h = Conv(x, w) y = BatchNormalization(h, g, be, m, v)"
    given_out = net(out, outputs="float[N, C, H, W] y, float[N, C, H, W] h", **constants)
    assert operators(checked(given_out)) == ["Conv", "Conv"]


def test_batchnorm_leaves_a_weight_that_another_node_shares():
    body = (
        """h = Conv(x, w) k = BatchNormalization(h, g, be, m, v) [o] o = Conv(x, w) y = Add(k, o)"""
    )
    constants = arrays(6, w=(8, 4, 3, 3), g=8, be=8, m=8, v=8)
    result = checked(net(body, **constants))
    other = next(node for node in result.graph if node.name == "o")
    np.testing.assert_array_equal(constant_value(other.inputs[1]), constants["w"])


def test_identity_and_dropout_go_but_the_interface_stays():
    body = "a = Identity(x) h = Relu(a) d, mask = Dropout(h) [last] y = Identity(d)"
    result = checked(net(body, outputs="float[N, C, H, W] y"))
    assert operators(result) == ["Relu"]
    assert next(iter(result.graph)).outputs[0].name == "y"
    two = checked(
        net("y = Relu(x) z = Identity(y)", outputs="float[N, C, H, W] y, float[N, C, H, W] z")
    )
    assert operators(two) == ["Relu", "Identity"]
    assert operators(checked(net("y = Identity(x)"))) == ["Identity"]


def test_training_dropout_stays():
    body = (
        "t = Constant <value = bool {1}> () r = Constant <value = float {0.5}> () "
        "y = Dropout(x, r, t)"
    )
    assert operators(canonicalize(net(body))) == ["Dropout"]


def test_constants_are_folded_in_one_sweep_but_not_random_ones_nor_large_ones():
    body = """c = Constant <value_floats = [1.0, 2.0]> () d = Add(c, c) e = Mul(d, c) s = Sum(e, c)
              i = Identity(s) t = ReduceSum <keepdims = 0> (i) y = Mul(x, t)"""
    result = checked(net(body))
    assert operators(result) == ["Mul"]
    assert constant_value(values_by_name(result)["t"]) == 2 + 8 + 3
    noise = net("r = RandomNormal <shape = [6]> () z = Mul(r, r) y = Add(x, z)")
    assert operators(canonicalize(noise)) == ["RandomNormal", "Mul", "Add"]
    huge = """s = Constant <value_ints = [100, 4, 600, 600]> ()
              one = Constant <value_floats = [1.0]> ()
              e = Expand(one, s) m = ReduceMax <keepdims = 0> (e) y = Mul(x, m)"""
    assert operators(canonicalize(net(huge))) == ["Expand", "ReduceMax", "Mul"]


def test_sequences_and_texts_are_not_folded():
    body = """c = Constant <value_floats = [1.0, 2.0]> () s = SplitToSequence(c)
              i = Constant <value_int = 0> () e = SequenceAt(s, i) y = Mul(x, e)"""
    assert operators(checked(net(body))) == ["SplitToSequence", "SequenceAt", "Mul"]


def test_a_constant_output_stays_computed():
    body = "c = Constant <value_floats = [1.0, 2.0]> () z = Add(c, c) y = Relu(x)"
    result = checked(net(body, outputs="float[N, C, H, W] y, float[2] z"))
    assert "Add" in operators(result)


def test_weight_quantization_is_not_folded_away():
    body = """w = DequantizeLinear(wq, s, z) q = QuantizeLinear(x, s, z)
              d = DequantizeLinear(q, s, z) y = Conv(d, w)"""
    model = net(body, wq=np.ones((8, 4, 3, 3), np.int8), s=np.float32(0.5), z=np.int8(0))
    result = checked(model)
    assert sorted(operators(result)) == sorted(operators(model))
    assert check_convention(result) == ()


@pytest.mark.parametrize("given_pads", ["", "pads = [1, 0, 0, 1],"])
def test_zero_padding_goes_into_the_convolution(given_pads):
    body = f"p = Pad(x, pads) y = Conv <{given_pads} strides = [2, 2]> (p, w)"
    model = net(body, pads=np.array([0, 0, 1, 0, 0, 0, 2, 1]), **arrays(7, w=(8, 4, 3, 3)))
    result = checked(model, tolerance=0)
    assert operators(result) == ["Conv"]
    base = [1, 0, 0, 1] if given_pads else [0, 0, 0, 0]
    assert list(next(iter(result.graph)).attributes["pads"].as_ints()) == [
        a + b for a, b in zip(base, [1, 0, 2, 1], strict=True)
    ]


@pytest.mark.parametrize(
    ("body", "pads"),
    [
        ('p = Pad <mode = "reflect"> (x, pads) y = Conv(p, w)', [0, 0, 1, 1, 0, 0, 1, 1]),
        ("p = Pad(x, pads) y = Conv(p, w)", [0, 0, -1, 0, 0, 0, 0, 0]),
        ("p = Pad(x, pads, one) y = Conv(p, w)", [0, 0, 1, 1, 0, 0, 1, 1]),
        ("p = Pad(x, pads) y = Conv(p, w5)", [0, 1, 0, 0, 0, 0, 0, 0]),
        ('p = Pad(x, pads) y = Conv <auto_pad = "SAME_UPPER"> (p, w)', [0, 0, 1, 1, 0, 0, 1, 1]),
        ("p = Pad(x, pads) y = AveragePool <kernel_shape = [2, 2]> (p)", [0, 0, 1, 1, 0, 0, 1, 1]),
    ],
)
def test_other_padding_stays(body, pads):
    known = arrays(8, w=(8, 4, 3, 3), w5=(8, 5, 3, 3)) | {
        "one": np.float32(1),
        "pads": np.array(pads),
    }
    constants = {
        name: array for name, array in known.items() if f" {name})" in body or f" {name}," in body
    }
    assert operators(checked(net(body, **constants)))[0] == "Pad"


def test_shared_weights_become_one_a_consumer():
    body = """h = Conv(x, w, b) k = Conv(x, w, b) s = Add(h, k) t = ReduceSum(b) y = Add(s, t)"""
    constants = arrays(9, w=(8, 4, 3, 3), b=(8,))
    result = checked(net(body, **constants))
    convs = [node for node in result.graph if node.op_type == "Conv"]
    assert len({id(v) for node in convs for v in node.inputs[1:]}) == 4
    for node in convs:
        np.testing.assert_array_equal(constant_value(node.inputs[1]), constants["w"])
        np.testing.assert_array_equal(constant_value(node.inputs[2]), constants["b"])
    assert "w" in result.graph.initializers


def test_dead_nodes_go_and_unused_inputs_stay():
    result = checked(net("h = Exp(x) y = Relu(x)", inputs="float[N, 4, 6, 6] x, float[N] unused"))
    assert operators(result) == ["Relu"]
    assert [v.name for v in result.graph.inputs] == ["x", "unused"]


def test_names_are_given_and_made_unique():
    result = canonicalize(net("[a] h = Relu(x) [a] k = Neg(h) l = Exp(k) [l] y = Abs(l)"))
    assert [node.name for node in result.graph] == ["a", "a_1", "l_1", "l"]


def test_functions_are_inlined():
    text = """<ir_version: 10, opset_import: ["" : 21, "my" : 1]>
    net (float[N, 4] x) => (float[N, 4] y) { z = my.twice(x) y = my.twice(z) }
    <domain: "my", opset_import: ["" : 21]> twice (x) => (y) { t = Relu(x) y = Add(t, x) }"""
    result = checked(ir.from_onnx_text(text))
    assert operators(result) == ["Relu", "Add", "Relu", "Add"]
    assert not result.functions


OLD = {
    6: ("y = Clip <min = 0.0, max = 6.0> (x)", ["Clip"]),
    9: ("y = Pad <pads = [0, 0, 1, 1, 0, 0, 1, 1]> (x)", ["Pad"]),
    10: ("h = Relu(x) y, mask = Dropout <ratio = 0.5> (h)", ["Relu"]),
    11: ("y = Softmax <axis = 3> (x)", ["Softmax"]),
    12: ("y = ReduceSum <axes = [1], keepdims = 1> (x)", ["ReduceSum"]),
    15: ("h = BatchNormalization(x, g, be, m, v) y = HardSwish(h)", ["Conv", "HardSwish"]),
}


@pytest.mark.parametrize("opset", sorted(OLD))
def test_older_models_come_to_opset_21(opset):
    body, expected = OLD[opset]
    constants = arrays(10, g=4, be=4, m=4, v=4) if "BatchNorm" in body else {}
    result = checked(net(body, opset=opset, ir_version=7, **constants))
    assert operators(result) == expected
    assert result.graph.opset_imports == {"": 21}
    assert result.ir_version >= 10


def test_weights_that_old_exporters_list_as_inputs_become_constants():
    text = """<ir_version: 3, opset_import: ["" : 8]>
    net (float[N, 2] x, float[2, 2] w) => (float[N, 2] y)
    <float[2, 2] w = {1, 2, 3, 4}> { y = MatMul(x, w) }"""
    result = checked(ir.from_onnx_text(text))
    assert [v.name for v in result.graph.inputs] == ["x"]


def test_metadata_survives_the_conversion():
    model = net("[r] y = Relu(x)", opset=13)
    next(iter(model.graph)).metadata_props["qbench.origin"] = "there"
    assert next(iter(canonicalize(model).graph)).metadata_props["qbench.origin"] == "there"


def test_an_operator_that_cannot_be_converted_is_refused_in_one_sentence():
    model = net("y = Nonsense(x)", opset=13)
    with pytest.raises(UnsupportedError, match="opset 13 to 21"):
        canonicalize(model)


def test_foreign_operators_pass_through():
    text = """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
    net (float[N, 4] x) => (float[N, 4] y) { h = com.microsoft.Gelu(x) y = Relu(h) }"""
    assert operators(checked(ir.from_onnx_text(text))) == ["Gelu", "Relu"]


def test_lineage_names_the_ancestor_once():
    model = net("i = Identity(x) y = Relu(i)")
    result = canonicalize(model)
    assert lineage_of(result) == (graph_digest(model),)
    assert lineage_of(canonicalize(result)) == lineage_of(result)


def test_every_pass_returns_whether_it_changed_and_is_idempotent():
    body = """c = Constant <value_floats = [2.0]> () a = Identity(x) p = Pad(a, pads)
              h = Conv(p, w) j = Conv(p, w) n = BatchNormalization(h, g, be, m, v)
              s = Add(n, j) d = Add(c, c) y = Mul(s, d) dead = Exp(y)"""
    constants = arrays(11, w=(8, 4, 3, 3), g=8, be=8, m=8, v=8) | {
        "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1])
    }
    model = net(body, opset=17, **constants)
    for step in CANONICAL["default"].watched:
        assert isinstance(step, Pass)
        before = graph_digest(model)
        modified = step.run(model)
        assert modified or graph_digest(model) == before, step.name
        after = graph_digest(model)
        assert not step.run(model), step.name
        assert graph_digest(model) == after


class Breaks:
    name = "breaks-names"

    def run(self, model):
        first, second = list(model.graph)[:2]
        first.outputs[0].name = second.outputs[0].name
        return True


class Raises:
    name = "raises"

    def run(self, model):
        raise KeyError("inside")


@pytest.mark.parametrize("step", [Breaks(), Raises()])
def test_a_broken_pass_is_named_and_the_input_untouched(step):
    model = net("h = Relu(x) y = Neg(h)")
    before = graph_digest(model)
    with pytest.raises(InputError, match=step.name):
        rewrite(model, [step])
    assert graph_digest(model) == before


BLOCKS = {
    "conv": "v{o} = Conv <pads = [1, 1, 1, 1]> (v{i}, w{o})",
    "depthwise": "v{o} = Conv <pads = [1, 1, 1, 1], group = 4> (v{i}, dw{o}, b{o})",
    "bn": "v{o} = BatchNormalization(v{i}, g{o}, be{o}, m{o}, va{o})",
    "relu": "v{o} = Relu(v{i})",
    "identity": "v{o} = Identity(v{i})",
    "dropout": "v{o}, mask{o} = Dropout(v{i})",
    "pad": "u{o} = Pad(v{i}, pads) v{o} = Conv(u{o}, w{o})",
    "residual": "v{o} = Add(v{i}, v{j})",
    "shared": "v{o} = Conv <pads = [1, 1, 1, 1]> (v{i}, shared)",
    "constant": "k{o} = Mul(half, half) v{o} = Mul(v{i}, k{o})",
}


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.sampled_from(sorted(BLOCKS)), st.integers(0, 9)), min_size=1, max_size=8),
    st.integers(13, 21),
)
def test_random_networks_keep_their_numbers(blocks, opset):
    body, constants = ["v0 = Relu(x)"], {}
    rng = np.random.default_rng(len(blocks))
    shapes = {"w": (4, 4, 3, 3), "dw": (4, 1, 3, 3), "b": 4, "g": 4, "be": 4, "m": 4, "va": 4}
    everything = {"shared": shapes["w"], "half": 1}
    for index, (kind, back) in enumerate(blocks, start=1):
        body.append(BLOCKS[kind].format(i=index - 1, o=index, j=back % index))
        everything |= {f"{name}{index}": shape for name, shape in shapes.items()}
    body.append(f"y = Add(v{len(blocks)}, v0)")
    text = " ".join(body)
    for name, shape in everything.items():
        if f" {name}," in text or f" {name})" in text:
            array = 0.3 * rng.standard_normal(shape).astype(np.float32)
            constants[name] = np.abs(array) + np.float32(0.1) if name.startswith("va") else array
    if "pads" in text:
        constants["pads"] = np.array([0, 0, 1, 1, 0, 0, 1, 1])
    result = checked(net(text, opset=opset, **constants), tolerance=3e-5)
    assert not {"Identity", "Dropout", "Pad"} & set(operators(result))


def test_what_is_plannable_is_known_for_it(monkeypatch):
    """No pass runs on a marked graph; one that was touched is rewritten, and nothing stays with
    what it is made of.
    """
    ran = []
    kept = canonical_pipeline.rewrite
    monkeypatch.setattr(
        canonical_pipeline, "rewrite", lambda *given: (ran.append(1), kept(*given))[1]
    )
    model = ir.from_onnx_text(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[N,4] x) => (float[N,4] y) { h = '
        "Identity(x)\n y = Relu(h) }"
    )
    made = plannable(model)
    assert ran == [1, 1]
    assert plannable(made) is made
    reread = ir.from_proto(ir.to_proto(made))
    assert plannable(reread) is reread
    assert ran == [1, 1]
    plannable(made, "split_bias")
    assert ran == [1] * 4
    reread.graph[0].outputs[0].type = None
    assert plannable(reread).graph[0].outputs[0].type is not None
    assert ran == [1] * 6
    made.graph[0].name = "another"
    plannable(made)
    assert ran == [1] * 8
    again = plannable(model)
    assert ran == [1] * 10
    assert again.graph[0].name != "another"
    assert again.graph[0].outputs[0].shape is not None
    assert not model.meta
    assert not model.metadata_props
