"""Activations around grids become limits: exact on every number,
gone where a grid's own ends say the same.
"""

import numpy as np
import onnx_ir as ir
import pytest
from chains import operators, run_machine, run_qdq, text
from hypothesis import given, settings
from hypothesis import strategies as st

from qbench.graph import clip_of_codes, constant_value, node_qparams
from qbench.passes import Pipeline, lower_to_integers, run_pipeline
from qbench.passes.requantization.tables import critical_reals
from qbench.passes.rewrites.clips import AbsorbClip, ClipCodes

ABSORB, LEVELS = Pipeline((AbsorbClip(),)), Pipeline((ClipCodes(),))


def in_front(
    clip: str,
    *,
    scale: float = 0.5,
    zero: int = 0,
    qtype: str = "int8",
    size: int = 8,
    more: str = "",
) -> ir.Model:
    constants = [
        f"float s = {{{scale!r}}}",
        f"{qtype} z = {{{zero}}}",
        "float a = {-1.2}",
        "float b = {3.3}",
    ]
    lines = [f"c = {clip}", "q = QuantizeLinear(c, s, z)", "y = DequantizeLinear(q, s, z)"]
    outputs = f"float[{size}] y" + (f", float[{size}] n" if more else "")
    return text(f"float[{size}] x", outputs, constants, [*lines, *([more] if more else [])])


def behind(clip: str, *, zero: int = 0, size: int = 256) -> ir.Model:
    constants = [
        "float s = {0.5}", f"int8 z = {{{zero}}}", "float t = {0.25}", "float a = {-1.0}",
        "float b = {3.3}", "float c = {-64.0}", "float e = {64.0}",
    ]  # fmt: skip
    lines = [
        "i = DequantizeLinear(x, t, z)", "q = QuantizeLinear(i, s, z)",
        "d = DequantizeLinear(q, s, z)", f"y = {clip}",
    ]  # fmt: skip
    return text(f"int8[{size}] x", f"float[{size}] y", constants, lines)


def limits(model: ir.Model) -> list[tuple[int, int]]:
    clips = [clip for node in model.graph if (clip := clip_of_codes(node)) is not None]
    return [tuple(int(constant_value(end)) for end in clip.inputs[1:]) for clip in clips]  # type: ignore[arg-type]


def test_a_relu_that_the_grid_says_too_is_gone() -> None:
    after = run_pipeline(in_front("Relu(x)", zero=0, qtype="uint8"), ABSORB).model
    assert operators(after) == ["QuantizeLinear", "DequantizeLinear"]


def test_a_relu_that_the_grid_does_not_say_is_a_limit() -> None:
    after = run_pipeline(in_front("Relu(x)", zero=-5), ABSORB).model
    assert limits(after) == [(-5, 127)]


def test_the_lower_end_of_a_clip_above_zero_is_kept() -> None:
    model = in_front("Clip(x, b)")
    after = run_pipeline(model, ABSORB).model
    assert limits(after) == [(7, 127)]
    feeds = np.array([-9, -1, 0, 1, 3.2, 3.3, 3.4, 90], np.float32)
    assert run_qdq(after, x=feeds)["y"].min() == 3.5


def test_two_clips_in_a_row_are_both_absorbed() -> None:
    constants = ["float s = {0.5}", "uint8 z = {0}", "float b = {3.3}"]
    lines = [
        "r = Relu(x)",
        "c = Clip(r, , b)",
        "q = QuantizeLinear(c, s, z)",
        "y = DequantizeLinear(q, s, z)",
    ]
    after = run_pipeline(text("float[4] x", "float[4] y", constants, lines), ABSORB).model
    assert operators(after) == ["QuantizeLinear", "Clip", "DequantizeLinear"]
    assert limits(after) == [(0, 7)]


@pytest.mark.parametrize(
    ("more", "reason"),
    [("n = Neg(c)", "has other readers"), ("n = Neg(x)", "others read what")],
    ids=["clip", "source"],
)
def test_what_others_read_is_left(more: str, reason: str) -> None:
    model = in_front("Clip(x, a, b)", more=more)
    done = run_pipeline(model, ABSORB)
    assert operators(done.model) == operators(model)
    assert reason in done.declined[0].reason


def test_no_limit_is_written_on_levels_that_engines_do_not_clip() -> None:
    done = run_pipeline(in_front("Relu(x)", qtype="int16"), ABSORB)
    assert "Relu" in operators(done.model)
    assert "int16" in done.declined[0].reason


CLIPS = st.sampled_from(
    ["Relu(x)", "Clip(x, a, b)", "Clip(x, a)", "Clip(x, , b)", "Clip(x, b, a)", "Clip(x)"]
)


@settings(max_examples=25)
@given(
    clip=CLIPS,
    scale=st.sampled_from([0.5, 0.1, 1.1, 0.04, 7.0]),
    zero=st.integers(-128, 127),
    qtype=st.sampled_from(["int8", "uint8"]),
)
def test_every_number_gives_the_same_level(clip: str, scale: float, zero: int, qtype: str) -> None:
    zero += 128 * (qtype == "uint8")
    shown = in_front(clip, scale=scale, zero=zero, qtype=qtype)
    grid_q = next(node for node in shown.graph if node.op_type == "QuantizeLinear")
    grid = node_qparams(grid_q)
    assert grid is not None
    numbers = np.concatenate(
        [critical_reals(grid), np.array([-1.2, 3.3, 0.0, -0.0], np.float32)]
    ).astype(np.float32)
    numbers = np.concatenate([numbers, np.nextafter(numbers, np.float32(0))])
    numbers = np.clip(numbers, -1e6, 1e6)  # ONNX's evaluator makes the lowest level of +∞
    model = in_front(clip, scale=scale, zero=zero, qtype=qtype, size=numbers.size)
    after = run_pipeline(model, ABSORB).model
    assert not {"Relu"} & set(operators(after))
    for run in (run_qdq, run_machine):
        np.testing.assert_array_equal(run(after, x=numbers)["y"], run(model, x=numbers)["y"])


@pytest.mark.parametrize(
    ("clip", "expected"),
    [
        ("Relu(d)", [(0, 127)]),
        ("Clip(d, a)", [(-2, 127)]),
        ("Clip(d, c, e)", []),
    ],
)
def test_clips_of_levels_are_limits_or_nothing(clip: str, expected: list[tuple[int, int]]) -> None:
    model = behind(clip)
    done = run_pipeline(model, LEVELS)
    assert limits(done.model) == expected
    every = np.arange(-128, 128).astype(np.int8)
    for run in (run_qdq, run_machine):
        np.testing.assert_array_equal(run(done.model, x=every)["y"], run(model, x=every)["y"])
    assert [value.name for value in done.model.graph.outputs] == ["y"]


def test_an_end_between_two_levels_stays() -> None:
    done = run_pipeline(behind("Clip(d, a, b)"), LEVELS)
    assert "Clip" in operators(done.model)
    assert "between two quantized values" in done.declined[0].reason


def test_a_clip_past_all_levels_makes_one_level_of_them() -> None:
    model = behind("Clip(d, e)")
    done = run_pipeline(model, LEVELS)
    every = np.arange(-128, 128).astype(np.int8)
    np.testing.assert_array_equal(run_qdq(done.model, x=every)["y"], run_qdq(model, x=every)["y"])


@pytest.mark.parametrize("opset", [10, 11, 12, 13])
def test_a_limit_is_written_where_clip_takes_integers(opset: int) -> None:
    model = in_front("Relu(x)", zero=-5)
    model.graph.opset_imports[""] = opset
    done = run_pipeline(model, ABSORB)
    assert ("Relu" in operators(done.model)) == (opset < 12)


def test_a_clip_at_minus_zero_is_no_limit() -> None:
    model = behind("Clip(d, a)")
    for name, value in model.graph.initializers.items():
        if name == "a":
            value.const_value = ir.tensor(np.float32(-0.0), name="a")
    every = np.arange(-128, 128).astype(np.int8)
    after = run_pipeline(model, LEVELS).model
    assert run_qdq(after, x=every)["y"].tobytes() == run_qdq(model, x=every)["y"].tobytes()


@pytest.mark.parametrize("operator", ["Add(d, d)", "Abs(d)", "Neg(d)"])
@pytest.mark.parametrize("clip", ["Relu(a)", "Clip(a, lo, hi)"])
def test_machines_count_alike_before_and_after_although_ties_abound(
    operator: str, clip: str
) -> None:
    """With a Relu between, an operator would run in floats; machines fuse it, so that nothing
    changes when it goes.
    """
    constants = [
        "float s = {0.1}",
        "float t = {0.2}",
        "uint8 z = {0}",
        "uint8 m = {128}",
        "float lo = {0}",
        "float hi = {6}",
    ]
    lines = ["d = DequantizeLinear(x, s, m)", f"a = {operator}", f"r = {clip}",
             "q = QuantizeLinear(r, t, z)", "y = DequantizeLinear(q, t, z)"]  # fmt: skip
    model = text("uint8[256] x", "float[256] y", constants, lines)
    done = run_pipeline(model, ABSORB)
    assert done.accounts[0].changed
    every = np.arange(256).astype(np.uint8)
    for run in (run_qdq, run_machine):
        np.testing.assert_array_equal(run(done.model, x=every)["y"], run(model, x=every)["y"])


@pytest.mark.parametrize(
    "clip", ["Clip(d, lo, hi)", "Clip(d, , hi)", "Relu(d)"], ids=["idle", "idle above", "a limit"]
)
def test_machines_count_an_operator_behind_a_clip_of_levels_as_without_it(clip: str) -> None:
    """A clip between the levels and their reader left a product in floats,
    whose ties are others.
    """
    constants = [
        "float s = {0.1}", "float u = {0.1}", "float t = {0.2}", "uint8 z = {128}",
        "uint8 m = {128}", "float lo = {-100}", "float hi = {100}",
    ]  # fmt: skip
    lines = ["i = QuantizeLinear(x, s, z)", "d = DequantizeLinear(i, s, z)", f"c = {clip}",
             "e = DequantizeLinear(w, u, m)", "p = Mul(c, e)", "q = QuantizeLinear(p, t, z)",
             "y = DequantizeLinear(q, t, z)"]  # fmt: skip
    model = text("float[65536] x, uint8[65536] w", "float[65536] y", constants, lines)
    done = run_pipeline(model, LEVELS)
    assert done.accounts[0].changed
    real = np.float32(0.1) * np.repeat(np.arange(-128, 128), 256).astype(np.float32)
    feeds = {"x": real, "w": np.tile(np.arange(256), 256).astype(np.uint8)}
    for run in (run_qdq, run_machine):
        np.testing.assert_array_equal(run(done.model, **feeds)["y"], run(model, **feeds)["y"])


def test_a_limit_does_not_go_to_levels_that_a_quantizer_behind_would_round_otherwise() -> None:
    """3 · 0.3 / 0.2 is a tie in float32, and above it by the exact scales:
    machines absorb the clip as reals.
    """
    constants = [
        "float s = {0.3}",
        "float t = {0.2}",
        "int8 z = {0}",
        "float hi = {0.9000000357627869}",
    ]
    lines = ["i = QuantizeLinear(x, s, z)", "d = DequantizeLinear(i, s, z)", "c = Clip(d, , hi)",
             "q = QuantizeLinear(c, t, z)", "y = DequantizeLinear(q, t, z)"]  # fmt: skip
    model = text("float[512] x", "float[512] y", constants, lines)
    feeds = {"x": np.linspace(-40, 40, 512).astype(np.float32)}
    after = run_pipeline(model, LEVELS).model
    for run in (run_qdq, run_machine):
        np.testing.assert_array_equal(run(after, **feeds)["y"], run(model, **feeds)["y"])


def test_what_nothing_reads_keeps_no_operator_in_floats() -> None:
    constants = ["float s = {0.1}", "float t = {0.2}", "uint8 z = {128}"]
    lines = ["a = DequantizeLinear(x, s, z)", "p = Add(a, a)", "gone = Exp(p)",
             "q = QuantizeLinear(p, t, z)", "y = DequantizeLinear(q, t, z)"]  # fmt: skip
    model = text("uint8[256] x", "float[256] y", constants, lines)
    assert "QLinearAdd" in operators(lower_to_integers(model))
