"""A pair between floats goes under the policy that allows it, with its rounding; its limits
stay, and other pairs.
"""

import numpy as np
import onnx_ir as ir
import pytest
from chains import Grid, chain, operators, run_qdq, text
from trees import rewritten

from qbench.graph import constant_value
from qbench.passes import Pipeline, Policy, run_pipeline, standard_pipeline
from qbench.passes.rewrites.pairs import DropPair

DROP = DropPair()
SEVEN = {"x": np.array([3.7], np.float32)}


def test_a_limit_of_two_holds_under_every_policy() -> None:
    """Glow drops DQ(Q(x)) always: quantize(3.7) with limit 2 then dequantize is 2, not 3.7."""
    model = chain(Grid(1.0, high=2), size=1)
    for policy in Policy:
        for pipeline in (Pipeline((DROP,)), standard_pipeline(policy)):
            found = run_pipeline(model, pipeline, policy)
            assert run_qdq(found.model, **SEVEN)["y"].tolist() == [2.0]
    assert "QuantizeLinear" not in operators(found.model)
    refused = run_pipeline(model, standard_pipeline(Policy.EXACT), Policy.EXACT).declined
    assert ("drop-pair", "its effect is lossy, which the policy 'exact' does not admit") in [
        (one.name, one.reason) for one in refused
    ]


CONSTANTS = ["float s = {0.5}", "int8 z = {0}", "int8[3,3] v = {1, 2, 3, 4, 5, 6, 7, 8, 9}"]
PAIR = ["q = QuantizeLinear(r, s, z)", "d = DequantizeLinear(q, s, z)"]


def fast(
    lines: list[str], outputs: str = "float[3,3] y", inputs: str = "float[3,3] x"
) -> tuple[ir.Model, list[str]]:
    found = run_pipeline(text(inputs, outputs, CONSTANTS, lines), Pipeline((DROP,)), Policy.FAST)
    return found.model, [one.reason for one in found.declined]


def test_a_pair_between_floats_goes_for_all_its_readers() -> None:
    more = ["e = DequantizeLinear(q, s, z)", "m = Transpose(e)", "y = Tanh(d)", "w = Cos(m)"]
    after, _ = fast(["r = Cos(x)", *PAIR, *more], "float[3,3] y, float[3,3] w")
    assert operators(after) == ["Cos", "Transpose", "Tanh", "Cos"]


def test_an_output_keeps_its_name() -> None:
    after, _ = fast(["r = Cos(x)", PAIR[0], "y = DequantizeLinear(q, s, z)"])
    assert operators(after) == ["Cos", "Identity"]
    assert [value.name for value in after.graph.outputs] == ["y"]


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (
            ["u = DequantizeLinear(v, s, z)", "r = Add(x, u)", *PAIR, "y = Cos(d)"],
            "what is quantized was computed from quantized values",
        ),
        (
            [
                "r = Cos(x)",
                *PAIR,
                "t = Relu(d)",
                "p = QuantizeLinear(t, s, z)",
                "y = DequantizeLinear(p, s, z)",
            ],
            None,
        ),
        (
            [
                "r = Cos(x)",
                *PAIR,
                "t = Transpose(d)",
                "p = QuantizeLinear(t, s, z)",
                "y = DequantizeLinear(p, s, z)",
            ],
            None,
        ),
        (["r = Cos(x)", *PAIR, "w = DequantizeLinear(v, s, z)", "y = MatMul(d, w)"], None),
        (
            [
                "r = Cos(x)",
                *PAIR,
                "m = Transpose(d)",
                "w = DequantizeLinear(v, s, z)",
                "y = MatMul(m, w)",
            ],
            None,
        ),
    ],
)
def test_pairs_around_what_counts_in_integers_stay(lines: list[str], reason: str | None) -> None:
    after, reasons = fast(lines)
    assert "QuantizeLinear" in operators(after)
    assert (reason or "what reads it computes in integers") in reasons


def test_integers_that_leave_the_graph_stay_beside_the_reals() -> None:
    after, _ = fast(["r = Cos(x)", *PAIR, "y = Tanh(d)"], "float[3,3] y, int8[3,3] q")
    assert operators(after) == ["Cos", "QuantizeLinear", "Tanh"]


def test_levels_that_come_from_outside_and_constants_are_no_pair() -> None:
    after, _ = fast(["d = DequantizeLinear(x, s, z)", "y = Tanh(d)"], inputs="int8[3,3] x")
    assert operators(after) == ["DequantizeLinear", "Tanh"]
    constants = [*CONSTANTS, "float[2] k = {0.3, 9.9}"]
    lines = ["q = QuantizeLinear(k, s, z)", "d = DequantizeLinear(q, s, z)", "y = Add(x, d)"]
    model = text("float[2] x", "float[2] y", constants, lines)
    assert operators(rewritten(model, DROP, policy=Policy.FAST)) == operators(model)


def test_only_ends_that_the_reals_can_pass_are_written() -> None:
    """What a Cos gives lies within the grid; a Relu has no negative numbers to limit, and a
    Sigmoid ends at 1.
    """
    fine = ["float t = {0.25}", "uint8 p = {0}"]
    for maker, ends in (
        ("Cos", None),
        ("Relu", (None, 63.75)),
        ("Sigmoid", None),
        ("Identity", (0.0, 63.75)),
    ):
        lines = [
            f"r = {maker}(x)",
            "q = QuantizeLinear(r, t, p)",
            "d = DequantizeLinear(q, t, p)",
            "y = Tan(d)",
        ]
        model = text("float[3,3] x", "float[3,3] y", fine, lines)
        after = rewritten(model, DROP, policy=Policy.FAST)
        clips = [node for node in after.graph if node.op_type == "Clip"]
        if ends is None and maker != "Cos":
            assert operators(after) == [maker, "Tan"]
        elif maker == "Cos":  # it is below 0 at times
            assert [
                constant_value(end).item() for end in clips[0].inputs[1:] if end is not None
            ] == [0.0]
        else:
            found = [
                None if end is None else constant_value(end).item() for end in clips[0].inputs[1:]
            ]
            assert tuple(found) == ends


def test_a_pair_of_two_grids_is_no_pair() -> None:
    """Dequantized by another scale, 6 is 3: dropping both would double it."""
    lines = ["r = Cos(x)", PAIR[0], "d = DequantizeLinear(q, t, z)", "y = Tanh(d)"]
    model = text("float[3,3] x", "float[3,3] y", [*CONSTANTS, "float t = {0.25}"], lines)
    assert operators(rewritten(model, DROP, policy=Policy.FAST)) == operators(model)


@pytest.mark.parametrize("opset", [10, 11, 21])
def test_limits_are_written_for_every_opset(opset: int) -> None:
    model = chain(Grid(1.0, high=2), size=1) if opset >= 12 else chain(Grid(0.5), size=1)
    model.graph.opset_imports[""] = opset
    after = rewritten(model, DROP, policy=Policy.FAST)
    far = np.array([1e6], np.float32)
    assert run_qdq(after, x=far)["y"].tolist() == run_qdq(model, x=far)["y"].tolist()
