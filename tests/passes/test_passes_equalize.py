"""Cross-layer equalization: like ranges afterwards, the same function,
nothing left to do the second time.
"""

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbench.backends import get_backend
from qbench.errors import UnsupportedError
from qbench.graph import constant_value, graph_digest
from qbench.passes import canonicalize, plannable, rewrite
from qbench.passes.canonical.equalize import (
    Equalize,
    OpenClips,
    SharedChannels,
    blocks_of,
    equalizing_scales,
    linear_pairs,
    weight_of_blocks,
)

Array = np.ndarray


def net(
    body: str,
    inputs: str = "float[N,4,6,6] x",
    outputs: str = "float[N,C,H,W] y",
    **constants: object,
) -> ir.Model:
    arrays = {name: np.asarray(array) for name, array in constants.items()}
    declared = "".join(f", float[] {name}" for name in arrays)
    text = (
        f'<ir_version: 10, opset_import: ["" : 21]> net ({inputs}{declared}) '
        f"=> ({outputs}) {{ {body} }}"
    )
    model = ir.from_onnx_text(text)
    for value in [v for v in model.graph.inputs if v.name in arrays]:
        model.graph.inputs.remove(value)
        tensor = ir.tensor(arrays[str(value.name)], name=value.name)
        value.const_value, value.shape, value.dtype = tensor, tensor.shape, tensor.dtype
        model.graph.register_initializer(value)
    return model


def random(*shape: int, seed: int = 0, spread: float = 0.0) -> Array:
    """Normal numbers; ``spread``: of the sizes of slices of the first axis, in powers of e."""
    rng = np.random.default_rng([seed, *shape])
    sizes = np.exp(rng.normal(scale=spread, size=shape[0])).reshape(-1, *[1] * (len(shape) - 1))
    return (rng.normal(size=shape) * sizes).astype(np.float32)


def outputs(model: ir.Model, shape: tuple[int, ...] = (3, 4, 6, 6)) -> Array:
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    with get_backend("ort-cpu-noopt").prepare(model) as executor:
        return next(iter(executor.run({str(model.graph.inputs[0].name): x}).values()))


def equalized(model: ir.Model, shape: tuple[int, ...] = (3, 4, 6, 6)) -> ir.Model:
    """The model after the pass, when all that must hold was asserted: function, ranges,
    idempotence, interface.
    """
    plain = canonicalize(model)
    result = rewrite(plain, [Equalize()])
    before, after = outputs(plain, shape), outputs(result, shape)
    np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-5 * np.abs(before).max())
    assert [n.op_type for n in result.graph] == [n.op_type for n in plain.graph]
    assert [v.name for n in result.graph for v in n.outputs] == [
        v.name for n in plain.graph for v in n.outputs
    ]
    for pair in linear_pairs(result.graph):
        made, read = (
            ranges(pair.first)[0],
            ranges(pair.second)[1].reshape(-1, pair.columns).max(axis=1),
        )
        living = (made > made.max() / 2**20) & (read > read.max() / 2**20)
        np.testing.assert_allclose(made[living], read[living], rtol=2e-3)
    assert Equalize().run(result.clone()) is False
    assert graph_digest(rewrite(result, [Equalize()])) == graph_digest(result)
    return result


def ranges(node: ir.Node) -> tuple[Array, Array]:
    """The largest absolute weight of every output and of every input channel,
    by loops over channels.
    """
    weight = constant_value(node.inputs[1])
    assert weight is not None
    weight = np.abs(weight)
    if node.op_type == "Gemm":
        by_output = (
            weight
            if node.attributes.get("transB") and node.attributes["transB"].as_int()
            else weight.T
        )
        return by_output.max(axis=1), by_output.max(axis=0)
    group = node.attributes["group"].as_int() if "group" in node.attributes else 1
    parts = np.split(weight, group)
    if node.op_type == "Conv":
        return (
            np.array([w.max() for part in parts for w in part]),
            np.array([part[:, i].max() for part in parts for i in range(part.shape[1])]),
        )
    return (
        np.array([part[:, o].max() for part in parts for o in range(part.shape[1])]),
        np.array([w.max() for part in parts for w in part]),
    )


def weights(model: ir.Model) -> dict[str, Array]:
    return {
        str(name): np.asarray(constant_value(v)) for name, v in model.graph.initializers.items()
    }


@pytest.mark.parametrize(
    "between",
    [
        "y1 = Relu(c)",
        "y1 = LeakyRelu<alpha = 0.2>(c)",
        "y1 = PRelu(c, slope)",
        "y1 = MaxPool<kernel_shape = [2, 2]>(c)",
        "r = Relu(c) y1 = AveragePool<kernel_shape = [2, 2], pads = [1, 1, 1, 1]>(r)",
        "y1 = Abs(c)",
    ],
)
def test_a_pair_gets_like_ranges_and_the_formula_of_the_paper(between: str) -> None:
    constants = {"w": random(8, 4, 3, 3, spread=2), "b": random(8), "v": random(5, 8, 1, 1)}
    constants |= {"slope": np.abs(random(8, 1, 1))} if "slope" in between else {}
    model = net(f"c = Conv(x, w, b) {between} y = Conv(y1, v)", **constants)
    result = weights(equalized(model))
    made = np.abs(constants["w"].astype(np.float64)).max(axis=(1, 2, 3))
    read = np.abs(constants["v"].astype(np.float64)).max(axis=(0, 2, 3))
    scale = np.sqrt(made * read) / read
    np.testing.assert_array_equal(
        result["w"], (constants["w"] / scale.reshape(-1, 1, 1, 1)).astype(np.float32)
    )
    np.testing.assert_array_equal(result["b"], (constants["b"] / scale).astype(np.float32))
    np.testing.assert_array_equal(
        result["v"], (constants["v"] * scale.reshape(1, -1, 1, 1)).astype(np.float32)
    )


def test_a_chain_through_a_depthwise_convolution_settles_at_one_range_for_all_three() -> None:
    body = """
    a = Conv(x, w) r = Relu(a) d = Conv<group = 8, pads = [1, 1, 1, 1]>(r, dw, db) s = Relu(d)
    y = Conv(s, v)"""
    constants = {
        "w": random(8, 4, 1, 1, spread=2),
        "dw": random(8, 1, 3, 3, spread=2),
        "db": random(8),
    }
    constants["v"] = random(5, 8, 1, 1)
    result = equalized(net(body, **constants))
    first, middle, last = (n for n in result.graph if n.op_type == "Conv")
    product = np.abs(constants["w"]).max(axis=(1, 2, 3)) * np.abs(constants["dw"]).max(
        axis=(1, 2, 3)
    )
    product = product * np.abs(constants["v"]).max(axis=(0, 2, 3))
    for found in (ranges(first)[0], ranges(middle)[0], ranges(last)[1]):
        np.testing.assert_allclose(found, np.cbrt(product), rtol=2e-3)


@pytest.mark.parametrize("group", [1, 2])
def test_groups_and_transposed_convolutions(group: int) -> None:
    body = f"""a = Conv<group = {group}>(x, w, b) r = Relu(a)
               t = ConvTranspose<group = {group}, strides = [2, 2]>(r, u, c)
               s = Relu(t) y = Conv<group = {group}>(s, v)"""
    model = net(
        body,
        w=random(8, 4 // group, 3, 3, spread=1),
        b=random(8),
        u=random(8, 6 // group, 2, 2, spread=1),
        c=random(6),
        v=random(4, 6 // group, 1, 1),
    )
    assert len(linear_pairs(equalized(model).graph)) == 2


@pytest.mark.parametrize("bias", [None, (5,), (1, 5), (1,), ()])
@pytest.mark.parametrize("transposed", [0, 1])
def test_rows_behind_pictures_and_rows_behind_rows(
    bias: tuple[int, ...] | None, transposed: int
) -> None:
    operands = "f, w1" if bias is None else "f, w1, b1"
    body = f"""a = Conv(x, w0, b0) r = Relu(a) f = Flatten(r)
               g = Gemm<transB = {transposed}, alpha = 0.5, beta = 2.0>({operands})
               s = Relu(g) y = Gemm(s, w2)"""
    constants = {"w0": random(3, 4, 3, 3, spread=2), "b0": random(3), "w2": random(5, 7)}
    wide = random(48, 5, spread=1)
    constants["w1"] = np.ascontiguousarray(wide.T) if transposed else wide
    if bias is not None:
        constants["b1"] = np.asarray(
            random(5)[:1].reshape(bias) if bias in ((1,), ()) else random(5).reshape(bias)
        )
    result = equalized(net(body, outputs="float[N, M] y", **constants))
    assert [(p.first.op_type, p.second.op_type, p.columns) for p in linear_pairs(result.graph)] == [
        ("Conv", "Gemm", 16),
        ("Gemm", "Gemm", 1),
    ]


@pytest.mark.parametrize(
    ("body", "outs"),
    [
        ("c = Conv(x, w) r = Clip(c, low, high) y = Conv(r, v)", None),
        ("c = Conv(x, w) r = Relu(c) y1 = Conv(r, v) y2 = Conv(r, v) y = Add(y1, y2)", None),
        ("c = Conv(x, w) r = Relu(c) y = Conv(r, v)", "float[N,C,H,W] y, float[N,C,H,W] r"),
        ("c = Conv(x, w) r = Sigmoid(c) y = Conv(r, v)", None),
        ("c = Conv(x, w) s = Add(c, c) y = Conv(s, v)", None),
        (
            "k = Relu(x) b = ReduceMax<keepdims = 0>(k) e = Expand(b, eight) "
            "c = Conv(x, w, e) y = Conv(c, v)",
            None,
        ),
        (
            "c = Conv(x, w) r, i = MaxPool<kernel_shape = [2, 2]>(c) y = Conv(r, v)",
            "float[N,C,H,W] y, int64[N,C,H,W] i",
        ),
        ("c = Conv(x, w) h = Cast<to = 10>(c) r = Cast<to = 1>(h) y = Conv(r, v)", None),
    ],
)
def test_what_lets_no_factor_through_is_left_alone(body: str, outs: str | None) -> None:
    constants: dict[str, object] = {"w": random(8, 4, 1, 1, spread=2), "v": random(5, 8, 1, 1)}
    if "Clip" in body:
        constants |= {"low": np.float32(0), "high": np.float32(6)}
    if "eight" in body:
        constants |= {"eight": np.array([8], np.int64)}
    plain = canonicalize(net(body, outputs=outs or "float[N,C,H,W] y", **constants))
    assert linear_pairs(plain.graph) == ()
    assert Equalize().run(plain.clone()) is False


def test_a_value_on_a_grid_of_its_own_is_left_alone() -> None:
    body = """c = Conv(x, w) q = QuantizeLinear(c, s, z) r = DequantizeLinear(q, s, z)
              y = Conv(r, v)"""
    model = net(
        body,
        w=random(8, 4, 1, 1, spread=2),
        v=random(5, 8, 1, 1),
        s=np.float32(0.1),
        z=np.array(7, np.uint8),
    )
    lifted = plannable(model)
    assert [n.op_type for n in lifted.graph] == ["Conv", "Conv"]
    assert Equalize().run(lifted) is False
    assert linear_pairs(canonicalize(model).graph) == ()


def test_channels_of_zeros_keep_their_bias_and_nothing_overflows() -> None:
    w, v = random(8, 4, 1, 1, spread=1), random(5, 8, 1, 1)
    w[2], v[:, 3], w[4], v[:, 5] = 0, 0, w[4] * 1e-30, v[:, 5] * 1e-30
    b = random(8)
    result = weights(equalized(net("c = Conv(x, w, b) r = Relu(c) y = Conv(r, v)", w=w, b=b, v=v)))
    np.testing.assert_array_equal(result["b"][2:6], b[2:6])
    assert all(np.isfinite(array).all() for array in result.values())


@settings(max_examples=40)
@given(st.lists(st.floats(-6, 6), min_size=16, max_size=16))
def test_the_result_does_not_know_how_the_factors_were_placed_before(powers: list[float]) -> None:
    sizes = np.exp(np.array(powers)).reshape(2, 8)
    w, d, v = random(8, 4, 1, 1), random(8, 1, 3, 3), random(5, 8, 1, 1)
    body = "c = Conv(x, w) r = Relu(c) e = Conv<group = 8>(r, d) s = Relu(e) y = Conv(s, v)"
    plain = weights(rewrite(canonicalize(net(body, w=w, d=d, v=v)), [Equalize()]))
    a, b = (column.reshape(-1, 1, 1, 1) for column in sizes)
    moved = net(
        body,
        w=(w / a).astype(np.float32),
        d=(d * a / b).astype(np.float32),
        v=(v * b.reshape(1, -1, 1, 1)).astype(np.float32),
    )
    for name, array in weights(rewrite(canonicalize(moved), [Equalize()])).items():
        np.testing.assert_allclose(array, plain[name], rtol=3e-3)


@settings(max_examples=30)
@given(
    st.sampled_from(["Conv", "ConvTranspose", "Gemm"]),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(0, 1),
)
def test_blocks_are_undone(operator: str, group: int, inner: int, transposed: int) -> None:
    shape = (4, inner) if operator == "Gemm" else (4 * group, inner, 2, 3)
    weight = random(*shape)
    attributes = {"transB": transposed} if operator == "Gemm" else {"group": group}
    node = ir.node(operator, [], attributes)
    np.testing.assert_array_equal(
        weight_of_blocks(node, blocks_of(node, weight), weight.shape), weight
    )


CLIPPED = "c = Conv(x, w, b) r = Clip(c, low, high) y = Conv(r, v)"


def test_an_opened_clip_is_another_function_above_its_end_and_the_same_below() -> None:
    ends = {"low": np.float32(0), "high": np.float32(6)}
    small = net(CLIPPED, w=random(8, 4, 1, 1) / 10, b=random(8), v=random(5, 8, 1, 1), **ends)
    large = net(CLIPPED, w=random(8, 4, 1, 1) * 10, b=random(8), v=random(5, 8, 1, 1), **ends)
    for model, same in ((small, True), (large, False)):
        result = canonicalize(model, "equalized_relu")
        assert [n.op_type for n in result.graph] == ["Conv", "Relu", "Conv"]
        assert next(n for n in result.graph if n.op_type == "Relu").name == "r"
        assert "low" not in result.graph.initializers
        before = outputs(model)
        close = np.allclose(outputs(result), before, rtol=1e-5, atol=1e-5 * np.abs(before).max())
        assert close is same
        assert [n.op_type for n in canonicalize(model, "equalized").graph] == [
            "Conv",
            "Clip",
            "Conv",
        ]


@pytest.mark.parametrize(("low", "high"), [(-1.0, 6.0), (1.0, 6.0), (0.0, -1.0), (0.0, np.inf)])
def test_other_clips_stay(low: float, high: float) -> None:
    ends = {"low": np.float32(low), "high": np.float32(high)}
    model = canonicalize(
        net(CLIPPED, w=random(8, 4, 1, 1), b=random(8), v=random(5, 8, 1, 1), **ends)
    )
    assert OpenClips().run(model) is False
    alone = "c = Conv(x, w, b) r = Clip(c, low, high) y = Sigmoid(r)"
    assert (
        OpenClips().run(
            canonicalize(net(alone, w=random(8, 4, 1, 1), b=random(8), low=0.0, high=6.0))
        )
        is False
    )


@pytest.mark.slow
def test_factors_that_do_not_settle_are_a_sentence() -> None:
    rng = np.random.default_rng(0)
    sizes = {
        str(i): np.abs(rng.normal(size=(1, 4, 4))) * np.exp(rng.normal(size=(1, 1, 4)))
        for i in range(100)
    }
    short, long = (
        [SharedChannels(str(i), str(i + 1), 1) for i in range(count)] for count in (9, 99)
    )
    assert equalizing_scales(sizes, short) is not None
    with pytest.raises(
        UnsupportedError, match=r"factors that still move by .*% after 1000 sweeps; expected"
    ):
        equalizing_scales(sizes, long)
