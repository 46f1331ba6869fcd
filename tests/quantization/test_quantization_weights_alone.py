"""Weights alone: what multiplies is quantized, recurrences too,
and everything else says why it is not.
"""

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from quantization_subjects import feeds_of, model_of, weights

from qbench.backends import get_backend
from qbench.calibration import calibrate
from qbench.quantization import KeptFloat, Plan, Role, make_plan, quantize_model


def recurrent(operator: str, directions: int = 1) -> ir.Model:
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[operator]
    direction = 'direction="bidirectional", ' if directions == 2 else ""
    return model_of(
        "float[6,N,5] x",
        f"float[6,{directions},N,4] z",
        f"z = {operator}<{direction}hidden_size=4>(x, w, r, b)",
        w=weights(0, directions, 4 * gates, 5),
        r=weights(1, directions, 4 * gates, 4),
        b=weights(2, directions, 8 * gates),
    )


def embedded() -> ir.Model:
    return model_of(
        "int64[N,3] i, float[N,3,4] y",
        "float[N,3,2] z",
        "e = Gather(t, i)\n s = Add(e, y)\n n = Relu(s)\n z = MatMul(n, w)",
        t=weights(0, 9, 4),
        w=weights(1, 4, 2),
    )


def planned(model: ir.Model, schema: str, feeds: Any = None) -> tuple[Plan, Any]:
    feeds = feeds_of(model) if feeds is None else feeds
    return make_plan(model, calibrate(model, [feeds]), schema), feeds


def run(model: ir.Model, feeds: Any) -> Any:
    with get_backend("ort-cpu").prepare(model) as executor:
        return executor.run(feeds)["z"]


@pytest.mark.slow_but(7)
@pytest.mark.parametrize("operator", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("schema", ["w8_sym_pc", "w8_sym_pt", "w4_sym_b4"])
@pytest.mark.parametrize("directions", [1, 2])
def test_weights_of_recurrences(operator: str, schema: str, directions: int) -> None:
    model = recurrent(operator, directions)
    plan, feeds = planned(model, schema)
    assert {slot.value for slot in plan.constants} == {"w", "r"}
    assert plan.refusals == ()
    real, got = run(model, feeds), run(quantize_model(model, plan), feeds)
    assert 0 < np.linalg.norm(got - real) < (0.2 if "w4" in schema else 0.03) * np.linalg.norm(real)


@pytest.mark.parametrize("schema", ["w8a8_asym_pc", "w8a8_asym_pc_dyn"])
def test_recurrences_with_integer_activations_stay_float_and_say_so(schema: str) -> None:
    plan, _ = planned(recurrent("LSTM"), schema)
    (refusal,) = plan.refusals
    assert refusal.endswith(
        "LSTM keeps its products inside, where no Q/DQ pair reaches; "
        "its weights alone can be integers"
    )
    assert not plan.decisions


def test_everything_else_says_why() -> None:
    model = embedded()
    feeds = {"i": np.array([[0, 5, 8], [1, 2, 3]]), "y": feeds_of(model, rows=2)["y"]}
    plan, _ = planned(model, "w8_sym_pc", feeds)
    assert [f.reason for f in plan.floats.values()] == [
        "it has no weight, and the schema asks for nothing else"
    ] * 2
    assert plan.refusals == ()
    assert [slot.value for slot in plan.constants] == ["w"]
    assert not any(
        isinstance(d, KeptFloat) for s, d in plan.decisions.items() if s.role is Role.WEIGHT
    )
    real, got = run(model, feeds), run(quantize_model(model, plan), feeds)
    assert np.linalg.norm(got - real) < 0.03 * np.linalg.norm(real)


@pytest.mark.parametrize("transposed", [0, 1])
def test_weights_per_block_of_gemm_and_matmul(transposed: int) -> None:
    shape = (6, 64) if transposed else (64, 6)
    model = model_of(
        "float[N,64] x",
        "float[N,3] z",
        f"a = Gemm<transB={transposed}>(x, w, b)\n z = MatMul(a, v)",
        w=weights(0, *shape),
        b=weights(1, 6),
        v=weights(2, 6, 3),
    )
    errors = []
    for schema in ("w4_sym_pt", "w4_sym_b32", "w4_sym_b8"):
        plan, feeds = planned(model, schema)
        real, got = run(model, feeds), run(quantize_model(model, plan), feeds)
        errors.append(float(np.linalg.norm(got - real) / np.linalg.norm(real)))
    assert errors[2] < errors[0]
    assert max(errors) < 0.25


def test_the_headline_counts_weights() -> None:
    plan, _ = planned(
        embedded(), "w8_sym_pc", {"i": np.zeros((2, 3), np.int64), "y": weights(3, 2, 3, 4)}
    )
    macs = plan.macs
    assert plan.lines()[0].startswith("w8_sym_pc: 1 weight quantized, ")
    assert plan.lines()[0].endswith(f"100.0% of {macs:,} multiply-accumulates by quantized weights")
