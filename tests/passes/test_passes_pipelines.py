"""What every canonical pipeline promises: names keep numbers, profiles of ancestors carry over
and others do not.
"""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from qbench.backends import get_backend
from qbench.calibration import calibrate
from qbench.errors import InputError
from qbench.graph import graph_digest, lineage_of, model_bytes, values_by_name
from qbench.passes import CANONICAL, canonicalize, plannable
from qbench.quantization import Schema, get_schema, make_plan, quantize_model

RNG = np.random.default_rng(11)


def constant(*shape: int, positive: bool = False) -> np.ndarray:
    array = RNG.normal(size=shape)
    return (np.abs(array) + 0.1 if positive else array).astype(np.float32)


def network() -> ir.Model:
    """A residual network in little: normalizations that fold, one that cannot,
    one behind rows, a Clip, a Relu.
    """
    constants = {
        "w0": constant(6, 3, 1, 1),
        "w1": constant(6, 6, 3, 3),
        "w2": constant(6, 1, 3, 3),
        "w3": constant(6, 6, 1, 1),
        "w4": constant(5, 6),
        "six": np.float32(6).reshape(()),
        "zero": np.float32(0).reshape(()),
        **{f"{k}{i}": constant(6, positive=k == "v") for i in range(4) for k in "gbmv"},
        **{f"{k}4": constant(5, positive=k == "v") for k in "gbmv"},
    }
    body = """
        c0 = Conv(x, w0)
        r0 = Relu(c0)
        c1 = Conv<pads=[1,1,1,1]>(r0, w1)
        n1 = BatchNormalization(c1, g0, b0, m0, v0)
        r1 = Relu(n1)
        c2 = Conv<pads=[1,1,1,1], group=6>(r1, w2)
        n2 = BatchNormalization(c2, g1, b1, m1, v1)
        r2 = Clip(n2, zero, six)
        c3 = Conv(r2, w3)
        s = Add(c3, r1)
        n3 = BatchNormalization(s, g2, b2, m2, v2)
        r3 = Relu(n3)
        t = Add(r3, s)
        p = GlobalAveragePool(t)
        f = Flatten(p)
        d = Gemm<transB=1>(f, w4)
        y = BatchNormalization(d, g4, b4, m4, v4)"""
    declared = ", ".join(
        f"float[{','.join(map(str, a.shape))}] {name}" for name, a in constants.items()
    )
    text = (
        f'<ir_version: 10, opset_import: ["" : 21]> net (float[N,3,8,8] x, {declared}) => '
        f"(float[N,5] y) {{{body}}}"
    )
    model = ir.from_onnx_text(text)
    for value in list(model.graph.inputs)[1:]:
        model.graph.inputs.remove(value)
        value.const_value = ir.tensor(constants[str(value.name)], name=value.name)
        model.graph.register_initializer(value)
    return model


FEEDS = {"x": np.random.default_rng(5).normal(size=(12, 3, 8, 8)).astype(np.float32)}
NETWORK = network()


def numbers(model: ir.Model, names: list[str]) -> dict[str, np.ndarray]:
    with get_backend("ort-cpu-noopt").prepare(model, taps=names) as executor:
        return executor.run(FEEDS)


def computed(model: ir.Model) -> list[str]:
    return [str(value.name) for node in model.graph for value in node.outputs]


def schema(pipeline: str) -> Schema:
    return replace(get_schema("w8a8_asym_pt"), canonical=pipeline)


@pytest.mark.parametrize("pipeline", CANONICAL)
def test_every_pipeline_is_valid_idempotent_and_keeps_names_with_numbers(pipeline: str) -> None:
    watched, planned = canonicalize(NETWORK, pipeline), plannable(NETWORK, pipeline)
    for model in (watched, planned):
        onnx.checker.check_model(onnx.load_model_from_string(model_bytes(model)), full_check=True)
    assert graph_digest(canonicalize(watched, pipeline)) == graph_digest(watched)
    assert graph_digest(plannable(planned, pipeline)) == graph_digest(planned)
    assert graph_digest(plannable(watched, pipeline)) == graph_digest(planned)
    common = [name for name in computed(watched) if name in set(computed(planned))]
    assert common
    before, after = numbers(watched, common), numbers(planned, common)
    for name in common:
        np.testing.assert_allclose(after[name], before[name], rtol=2e-5, atol=2e-5, err_msg=name)
    if pipeline != "equalized_relu":
        np.testing.assert_allclose(
            numbers(planned, ["y"])["y"], numbers(NETWORK, ["y"])["y"], rtol=1e-5, atol=1e-5
        )


@pytest.mark.slow_but(2)
@pytest.mark.parametrize("pipeline", CANONICAL)
def test_every_pipeline_is_profiled_planned_and_written(pipeline: str) -> None:
    profile = calibrate(NETWORK, [FEEDS], pipeline=pipeline)
    plan = make_plan(NETWORK, profile, schema(pipeline))
    assert not plan.refusals
    assert plan.integer_macs == 1
    written = quantize_model(NETWORK, plan)
    real, rounded = numbers(plannable(NETWORK, pipeline), ["y"])["y"], numbers(written, ["y"])["y"]
    assert np.abs(rounded - real).max() < 0.25 * np.abs(real).max()
    assert not np.array_equal(rounded, real)


def test_folded_after_profiling_a_product_has_the_statistics_of_its_normalization() -> None:
    watched, planned = canonicalize(NETWORK, "fold_after"), plannable(NETWORK, "fold_after")
    assert [n.op_type for n in watched.graph].count("BatchNormalization") == 4
    assert [n.op_type for n in planned.graph] == [n.op_type for n in plannable(NETWORK).graph]
    assert {"c1", "n1", "c2", "n2"} <= values_by_name(watched).keys()
    assert {"c1", "c2", "d"}.isdisjoint(values_by_name(planned))
    profile = calibrate(NETWORK, [FEEDS], pipeline="fold_after")
    assert profile.graph == graph_digest(watched)
    assert profile.graph in lineage_of(planned)
    products = numbers(planned, ["n1", "n2"])
    for name in ("n1", "n2"):
        statistics = profile.values[name]
        assert statistics.low == pytest.approx(products[name].min(), rel=1e-5)
        assert statistics.high == pytest.approx(products[name].max(), rel=1e-5)
        assert statistics.high != pytest.approx(
            profile.values[name.replace("n", "c")].high, rel=1e-2
        )
    before, after = (
        make_plan(NETWORK, calibrate(NETWORK, [FEEDS], pipeline=p), schema(p))
        for p in ("default", "fold_after")
    )
    assert before.values.keys() == after.values.keys()
    for name, grid in before.values.items():
        np.testing.assert_allclose(after.values[name].scale, grid.scale, rtol=1e-5)


def test_a_kept_normalization_is_an_operator_of_its_own() -> None:
    kept = plannable(NETWORK, "keep_batchnorm")
    assert [
        n.op_type for n in kept.graph if n.op_type in ("Conv", "BatchNormalization", "Gemm")
    ] == [
        *["Conv"] * 7,
        "Gemm",
    ]
    assert [
        n.attributes["group"].as_int()
        for n in kept.graph
        if n.outputs[0].name in ("n1", "n2", "n3")
    ] == [6, 6, 6]


@pytest.mark.parametrize("pipeline", ["equalized", "equalized_relu"])
def test_a_profile_from_before_equalizing_is_refused(pipeline: str) -> None:
    plain = canonicalize(NETWORK)
    assert graph_digest(canonicalize(plain)) == graph_digest(plain)
    stale = calibrate(plain, [FEEDS])
    with pytest.raises(InputError, match="a profile of another graph"):
        make_plan(plain, stale, schema(pipeline))
    assert (
        make_plan(
            plain, calibrate(plain, [FEEDS], pipeline=pipeline), schema(pipeline)
        ).integer_macs
        == 1
    )
    make_plan(plain, stale, schema("fold_after"))  # the same values under the same names
    again = plannable(plain, pipeline)
    assert lineage_of(again) == ()


def test_the_page_tells_every_pipeline() -> None:
    page = (Path(__file__).parents[2] / "docs" / "quantizer.md").read_text()
    table = page.partition("## Canonical form")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, flags=re.MULTILINE)) == set(CANONICAL)
