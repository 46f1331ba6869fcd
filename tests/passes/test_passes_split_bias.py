"""Splitting a constant bias off: the graph, its numbers, its units, and what is left alone."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from qbench.backends import get_backend
from qbench.calibration import units_of, watched_values
from qbench.graph import graph_digest, node_key, origin_of
from qbench.passes import canonicalize, is_product

Array = np.ndarray[Any, Any]


def model_of(inputs: str, outputs: str, body: str, **constants: Array) -> ir.Model:
    """A model from ONNX text; the keyword arguments are its initializers."""
    typed = ", ".join(
        f"float{list(array.shape) or ''} {name} = "
        f"{{{','.join(f'{x:.9g}' for x in array.reshape(-1))}}}"
        for name, array in constants.items()
    )
    head = '<ir_version: 10, opset_import: ["" : 21]>'
    return ir.from_onnx_text(f"{head}\nsubject ({inputs}) => ({outputs}) <{typed}> {{\n{body}\n}}")


def numbers(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def convolution() -> ir.Model:
    body = "c = Conv<pads=[1,1,1,1]>(x, w, b)\n y = Relu(c)"
    return model_of(
        "float[N,3,5,5] x", "float[N,4,5,5] y", body, w=numbers(0, 4, 3, 3, 3), b=numbers(1, 4)
    )


def convolution_of_one_axis() -> ir.Model:
    return model_of(
        "float[N,3,5] x",
        "float[N,4,5] y",
        "y = Conv(x, w, b)",
        w=numbers(0, 4, 3, 1),
        b=numbers(1, 4),
    )


def transposed() -> ir.Model:
    body = "y = ConvTranspose<strides=[2,2], group=2>(x, w, b)"
    return model_of(
        "float[N,4,5,5] x", "float[N,6,10,10] y", body, w=numbers(0, 4, 3, 2, 2), b=numbers(1, 6)
    )


def dense() -> ir.Model:
    body = "g = Gemm<transB=1>(x, w, b)\n y = Clip(g, low, high)"
    ends = {"low": np.array(-0.5, np.float32), "high": np.array(0.5, np.float32)}
    return model_of(
        "float[N,3] x", "float[N,4] y", body, w=numbers(0, 4, 3), b=numbers(1, 4), **ends
    )


def shared() -> ir.Model:
    body = "c = Conv(x, w, b)\n d = Conv(x, v, b)\n y = Add(c, d)"
    return model_of(
        "float[N,3,5,5] x",
        "float[N,4,5,5] y",
        body,
        w=numbers(0, 4, 3, 1, 1),
        v=numbers(2, 4, 3, 1, 1),
        b=numbers(1, 4),
    )


SUBJECTS = (convolution, convolution_of_one_axis, transposed, dense, shared)


@pytest.mark.parametrize("subject", SUBJECTS)
def test_the_numbers_stay_and_no_operator_adds_its_bias(subject: Callable[[], ir.Model]) -> None:
    model = subject()
    split = canonicalize(model, "split_bias")
    assert [
        node.op_type for node in split.graph if len(node.inputs) > 2 and node.op_type != "Clip"
    ] == []
    shape = [
        3,
        *(d if isinstance(d, int) else 3 for d in list(model.graph.inputs[0].shape or ())[1:]),
    ]
    x = numbers(7, *shape)
    with get_backend("ort-cpu-noopt").prepare(model) as executor:
        before = executor.run({"x": x})["y"]
    with get_backend("ort-cpu-noopt").prepare(split) as executor:
        after = executor.run({"x": x})["y"]
    np.testing.assert_allclose(after, before, rtol=0, atol=2e-6)
    again = canonicalize(split, "split_bias")
    assert graph_digest(again) == graph_digest(split)
    assert [v.name for v in split.graph.outputs] == ["y"]


def test_products_sums_and_results_are_watched_by_their_names() -> None:
    split = canonicalize(convolution(), "split_bias")
    (unit,) = units_of(split.graph)
    assert [node_key(node) for node in unit.nodes] == ["c", "c.bias", "y"]
    assert unit.correlation is not None
    assert unit.correlation.name == "c.correlation"
    assert unit.sum is not None
    assert unit.sum.name == "c"
    assert [value.name for value in watched_values(split)] == ["x", "c.correlation", "c", "y"]
    assert unit.bias is not None
    assert origin_of(unit.bias) == "c"
    assert [value.name for value in watched_values(canonicalize(convolution()))] == ["x", "y"]


def test_a_result_that_is_the_sum_or_the_product_is_watched_once() -> None:
    split = canonicalize(transposed(), "split_bias")
    (unit,) = units_of(split.graph)
    assert unit.sum is None
    assert unit.correlation is not None
    bare = model_of(
        "float[N,3,5,5] x",
        "float[N,4,5,5] y",
        "c = Conv(x, w)\n y = Relu(c)",
        w=numbers(0, 4, 3, 1, 1),
    )
    (unit,) = units_of(canonicalize(bare, "split_bias").graph)
    assert unit.correlation is unit.sum
    assert unit.correlation is not None
    assert [value.name for value in unit.values] == ["c", "y"]


def test_a_bias_of_two_convolutions_is_split_from_each() -> None:
    split = canonicalize(shared(), "split_bias")
    units = units_of(split.graph)
    assert [[node_key(node) for node in unit.nodes] for unit in units] == [
        ["c", "c.bias"],
        ["d", "d.bias"],
        ["y"],
    ]
    assert all(unit.bias is not None for unit in units[:2])


def test_a_computed_bias_is_left_alone() -> None:
    model = model_of(
        "float[N,3] x, float[4] b",
        "float[N,4] y",
        "y = Gemm<transB=1>(x, w, b)",
        w=numbers(0, 4, 3),
    )
    split = canonicalize(model, "split_bias")
    assert [node.op_type for node in split.graph] == ["Gemm"]
    assert not is_product(split.graph[0])
    assert units_of(split.graph)[0].correlation is None


@pytest.mark.parametrize("factor", ["beta=0.5", "alpha=2.0"])
def test_factors_go_into_the_constants_before_the_bias_is_split_off(factor: str) -> None:
    body = f"y = Gemm<transB=1, {factor}>(x, w, c)"
    model = model_of("float[N,3] x", "float[N,4] y", body, w=numbers(0, 4, 3), c=numbers(1, 4))
    split = canonicalize(model, "split_bias")
    assert [node.op_type for node in split.graph] == ["Gemm", "Add"]
    assert is_product(split.graph[0])


def test_the_marks_survive_a_file() -> None:
    split = canonicalize(convolution(), "split_bias")
    back = ir.serde.deserialize_model(ir.to_proto(split))
    (unit,) = units_of(back.graph)
    assert unit.bias is not None
    assert unit.correlation is not None


def test_a_matmul_and_its_bias_have_the_same_inner_values() -> None:
    model = model_of(
        "float[N,3] x",
        "float[N,4] y",
        "p = MatMul(x, w)\n y = Add(p, b)",
        w=numbers(0, 3, 4),
        b=numbers(1, 4),
    )
    (unit,) = units_of(canonicalize(model, "split_bias").graph)
    assert unit.bias is not None
    assert unit.correlation is not None
    assert unit.correlation.name == "p"
