"""Operators that fix their range keep it in whatever reads them: each value has its own grid,
and no unit falls out.

A table of what joins two values crossed with what makes them; a new operator is a row.
"""

import numpy as np
import pytest
from quantization_subjects import fake_quantized, feeds_of, model_of, weights

from qbench.backends import get_backend
from qbench.calibration import calibrate
from qbench.quantization import Fixed, Plan, Role, make_plan, quantize_model

JOINS = {
    "Max": "c = Max(l, r)",
    "Min": "c = Min(l, r)",
    "Max of three": "c = Max(l, r, a)",
    "Where": "k = Greater(a, b)\n c = Where(k, l, r)",
    "Concat": "c = Concat<axis=1>(l, r)",
    "Add": "c = Add(l, r)",
    "Mul": "c = Mul(l, r)",
    "Sum": "c = Sum(l, r)",
    "Max of a moved one": "t = Transpose<perm=[0,1,3,2]>(l)\n c = Max(t, r)",
    "Max of a Max": "m = Max(l, r)\n c = Max(m, b)",
    "Min and Max of both": "m = Max(l, r)\n n = Min(l, r)\n c = Add(m, n)",
}
MAKERS = {
    "Sigmoid and Tanh": "l = Sigmoid(a)\n r = Tanh(b)",
    "Tanh and Sigmoid": "l = Tanh(a)\n r = Sigmoid(b)",
    "Sigmoid and own": "l = Sigmoid(a)\n r = Relu(b)",
    "own and Softmax": "l = LeakyRelu(a)\n r = Softmax<axis=1>(b)",
    "HardSigmoid and Tanh": "l = HardSigmoid(a)\n r = Tanh(b)",
    "Sigmoid twice": "l = Sigmoid(a)\n r = Sigmoid(b)",
}
FIXED = {"Sigmoid": 256, "HardSigmoid": 256, "Softmax": 256, "Tanh": 128}
"""Operator → steps of 1 on its grid of 8 bits, asymmetric."""


def planned(join: str, maker: str, schema: str, backend: str | None = None):
    channels = 8 if join == "Concat" else 4
    body = f"a = Conv(x, w)\n b = Conv(x, u)\n {MAKERS[maker]}\n {JOINS[join]}\n z = Conv(c, v)"
    model = model_of(
        "float[N,4,6,6] x",
        "float[N,2,6,6] z",
        body,
        w=weights(0, 4, 4, 1, 1),
        u=weights(1, 4, 4, 1, 1, size=3),
        v=weights(2, 2, channels, 1, 1),
    )
    feeds = feeds_of(model)
    return model, make_plan(model, calibrate(model, [feeds]), schema, capabilities=backend), feeds


def in_float(plan: Plan) -> list[str]:
    """Units that stay in float, but for a comparison, which has no form on integers."""
    return [name for name in plan.floats if name != "k"]


CROSSED = [(join, "Sigmoid and Tanh") for join in JOINS] + [("Max", maker) for maker in MAKERS]


@pytest.mark.slow_but(3)
@pytest.mark.parametrize(("join", "maker"), dict.fromkeys(CROSSED))
def test_nothing_falls_to_float(join: str, maker: str) -> None:
    _, plan, _ = planned(join, maker, "w8a8_asym_pc")
    assert in_float(plan) == []
    made = {
        s.node: d
        for s, d in plan.decisions.items()
        if s.role is Role.OUTPUT and isinstance(d, Fixed)
    }
    for node, decision in made.items():
        operator = next(name for name in FIXED if f"{node} = {name}" in MAKERS[maker])
        assert float(decision.qparams.scale) == 1 / FIXED[operator]


@pytest.mark.slow_but(2)
@pytest.mark.parametrize(
    ("join", "backend"),
    [
        (one, "integer-tvm-relay")
        for one in ("Max", "Min", "Where", "Max of three", "Max of a moved one", "Max of a Max")
    ]
    + [("Max", "integer-ideal"), ("Max", "integer-gemmlowp")],
)
def test_the_interpreter_counts_them_on_their_own_grids(join: str, backend: str) -> None:
    model, plan, feeds = planned(join, "Sigmoid and Tanh", "w8a8_sym_pt", backend)
    said = fake_quantized(model, plan, feeds)["z"]
    with get_backend(backend).prepare(quantize_model(model, plan)) as executor:
        got = executor.run(feeds)["z"]
        ran = executor.executed()
    assert np.abs(got - said).max() <= 5e-2 * np.abs(said).max()
    joined = [one for name, one in ran.items() if name == "c"]
    assert joined, list(ran)
    assert all(one.in_integers for one in joined)


def test_why_says_that_operands_have_grids_of_their_own() -> None:
    _, plan, _ = planned("Max", "Sigmoid and Tanh", "w8a8_sym_pt")
    lines = [line for line in plan.lines() if "grids of their own" in line]
    assert lines
    assert all("fixed by its Sigmoid" in line for line in lines)
