"""``qbench diff``: what sides say, what is printed, the exit code, the saved case,
and what is refused.
"""

import json

import numpy as np
import onnx_ir as ir
import pytest

from qbench import load_model, save_model
from qbench.backends import Level, get_backend
from qbench.cli.diff import SideText
from qbench.diagnosis import Allowed, run_test_case
from qbench.errors import InputError
from qbench.passes import Policy

FILES = ("net.onnx", "--data", "test.npz", "--calib", "train.npz", "--samples", "40")


def test_the_right_takes_from_the_left_what_it_does_not_say():
    left = SideText().saying("backend=ort-cpu-precise schema=w8a8_asym_pc threads=2")
    right = left.saying("backend=integer-ort-x64 policy=exact")
    assert left.label == "backend=ort-cpu-precise schema=w8a8_asym_pc threads=2"
    assert right.label == "backend=integer-ort-x64 schema=w8a8_asym_pc policy=exact threads=2"
    assert right.saying("threads=1 policy=").label == "backend=integer-ort-x64 schema=w8a8_asym_pc"
    assert right.thread_count == 2


def test_passes_are_the_standard_ones_of_a_policy_or_those_that_are_named():
    assert SideText().chosen_rewriting() is None
    assert SideText().saying("policy=exact passes=none").chosen_rewriting() is None
    named = (
        SideText()
        .saying("passes='merge-requantize{steps = 1},drop-pair' policy=rounding")
        .chosen_rewriting()
    )
    assert [one.name for one in named.pipeline.passes] == ["merge-requantize", "drop-pair"]
    assert named.policy is Policy.ROUNDING
    assert len(SideText().saying("policy=exact").chosen_rewriting().pipeline.passes) > 5


def test_a_level_is_one_of_the_engine():
    backend = SideText().saying("level=extended").chosen_backend()
    assert (backend.name, backend.optimization.level) == ("ort-cpu-extended", Level.EXTENDED)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("backnd=ort-cpu", "unknown key 'backnd'"),
        ("ort-cpu", "found 'ort-cpu'; expected key=value"),
        ("backend=a backend=b", "'backend' twice"),
        ("schema='w8", "No closing quotation"),
    ],
)
def test_a_side_that_cannot_be_read_says_so(text, found):
    with pytest.raises(InputError, match=found):
        SideText().saying(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("level=most", "unknown level 'most'"),
        ("backend=integer-ideal level=all", "a backend without optimization levels"),
        ("backend=ort-gpu", "unknown backend 'ort-gpu'"),
        ("python=nowhere/there backend=integer-ideal", "a backend that does not run ONNX Runtime"),
    ],
)
def test_a_backend_that_cannot_be_had_says_so(text, found):
    with pytest.raises(InputError, match=found):
        SideText().saying(text).chosen_backend()


@pytest.mark.slow
def test_equal_sides_end_with_0(blobs_files, qbench):
    sides = (
        "--left",
        "backend=ort-cpu-precise schema=w8a8_asym_pc",
        "--right",
        "backend=integer-ort-x64",
    )
    code, out, err = qbench("diff", *FILES, *sides)
    assert (code, err) == (0, "")
    assert out.startswith(
        "model  net.onnx, 40 samples of test.npz\n"
        "left   backend=ort-cpu-precise schema=w8a8_asym_pc\n"
        "right  backend=integer-ort-x64 schema=w8a8_asym_pc\n"
    )
    assert "no value differs, of 3 that both have" in out
    facts = json.loads(qbench("diff", *FILES, *sides, "--json")[1])
    assert facts["equal"] is True
    assert facts["graphs"]["model"]["first"] is None


def test_sides_that_differ_end_with_1_and_name_the_first_node(blobs_files, qbench):
    sides = ("--left", "backend=integer-ideal schema=w8a8_asym_pc", "--right", "schema=w4a8_sym_pt")
    code, out, _ = qbench("diff", *FILES, *sides)
    assert code == 1
    assert "first to differ: first (r)" in out
    assert "* with different qparams" in out
    lines = out[out.index("node  ") :].splitlines()
    assert lines[1].split() == ["…", "1", "value", "equal", "0"]
    assert [line.split()[0] for line in lines[2:4]] == ["first", "second"]
    code, out, _ = qbench("diff", *FILES, *sides, "--top", "1")
    assert "and 1 more that differ (--top lists more, --json all of them)" in out
    assert "second" not in out
    code, out, _ = qbench("diff", *FILES, *sides, "--json")
    graph = json.loads(out)["graphs"]["model"]
    assert code == 1
    assert graph["first"]["node"] == "first"
    assert graph["outputs"]["differing"] > 0
    assert graph["samples"] == 40
    assert [node["value"] for node in graph["nodes"]] == ["x", "r", "scores"]


@pytest.mark.slow
def test_a_case_of_machines_that_differ_is_saved(blobs_files, qbench):
    sides = (
        "--left",
        "backend=integer-ort-x64 schema=w8a8_asym_pc",
        "--right",
        "backend=integer-glow-cpu",
    )
    code, out, _ = qbench("diff", *FILES, *sides, "--save-case", "case", "--json")
    assert code == 1
    case = json.loads(out)["case"]
    assert (case["node"], case["cause"]) == ("first", "other numbers than its arithmetic")
    assert not run_test_case(blobs_files / "case", get_backend("integer-glow-cpu")).passes
    assert run_test_case(blobs_files / "case", get_backend("integer-ort-x64")).passes


@pytest.mark.slow
def test_where_nothing_parts_there_is_no_case(blobs_files, qbench):
    sides = ("--left", "backend=integer-ort-x64 schema=w8a8_asym_pc")
    code, out, _ = qbench("diff", *FILES, *sides, "--save-case", "case")
    assert code == 0
    assert (
        "no test case: no unit of the engine differs from the arithmetic "
        "that it claims on these samples" in out
    )
    assert not (blobs_files / "case").exists()
    code, out, _ = qbench("diff", *FILES, "--save-case", "case")
    assert "no test case: a test case needs quantized values on both sides" in out


@pytest.mark.slow
def test_a_quantized_file_is_compared_as_it_is(words, blobs_files, qbench):
    assert qbench("profile", "net.onnx", "--data", "train.npz", "-o", "p.json")[0] == 0
    assert (
        qbench(
            "quantize",
            "net.onnx",
            "--profile",
            "p.json",
            "--schema",
            "w8a8_asym_pc",
            "-o",
            "q.onnx",
        )[0]
        == 0
    )
    code, out, _ = qbench(
        "diff",
        "q.onnx",
        "--data",
        "test.npz",
        "--left",
        "backend=integer-ort-x64",
        "--right",
        "backend=integer-glow-cpu",
    )
    assert code == 1
    assert "first to differ: " in out
    code, _, err = qbench("diff", "q.onnx", "--data", "test.npz", "--left", "schema=w8a8_asym_pc")
    assert code == 2
    words(err)


@pytest.mark.parametrize(
    ("sides", "found"),
    [
        (("--left", "schema=w8a8_asym_pc"), "schema=w8a8_asym_pc without --calib"),
        (("--right", "policy=exact"), "passes of the float model on the right"),
        (("--left", "backend=integer-ideal"), "a float graph"),
    ],
)
def test_what_does_not_go_together_is_refused(blobs_files, qbench, sides, found):
    code, _, err = qbench("diff", "net.onnx", "--data", "test.npz", *sides)
    assert code == 2
    assert found in err


@pytest.fixture
def quantized(blobs_files, qbench):
    """The network, quantized, as q.onnx."""
    assert qbench("profile", "net.onnx", "--data", "train.npz", "-o", "p.json")[0] == 0
    assert (
        qbench(
            "quantize",
            "net.onnx",
            "--profile",
            "p.json",
            "--schema",
            "w8a8_asym_pc",
            "-o",
            "q.onnx",
        )[0]
        == 0
    )
    return blobs_files


def compared(qbench, *words):
    """The exit code, and the facts that it prints."""
    code, out, err = qbench("diff", *words, "--json")
    assert err == ""
    return code, json.loads(out)


@pytest.mark.slow
def test_every_value_of_a_quantized_file_is_compared(quantized, qbench):
    code, facts = compared(
        qbench, "q.onnx", "--data", "test.npz", "--right", "backend=ort-cpu-noopt"
    )
    graph = facts["graphs"]["model"]
    assert graph["unaligned"] == []
    assert [node["node"] for node in graph["nodes"]][1:] == ["first", "second"]
    assert facts["came"] == ["qdq", "qdq"]
    assert (facts["left"], facts["right"]) == ("backend=ort-cpu", "backend=ort-cpu-noopt")
    assert code == (0 if facts["equal"] else 1)


@pytest.mark.slow
def test_integer_operators_of_a_file_are_compared_too(quantized, qbench):
    words = ("--form", "qoperator", "--backend", "ort-cpu-qoperator", "-o", "op.onnx")
    assert (
        qbench("quantize", "net.onnx", "--profile", "p.json", "--schema", "w8a8_asym_pc", *words)[0]
        == 0
    )
    _, facts = compared(qbench, "op.onnx", "--data", "test.npz", "--right", "backend=ort-cpu-noopt")
    graph = facts["graphs"]["model"]
    assert facts["came"] == ["qoperator", "qoperator"]
    assert graph["unaligned"] == []
    assert len(graph["nodes"]) >= 3


def scaled(source, target, value, factor):
    """``target``: the model ``source`` with one constant times ``factor``."""
    model = load_model(source)
    held = model.graph.initializers[value]
    held.const_value = ir.tensor(held.const_value.numpy() * np.float32(factor), name=value)
    save_model(model, target)


def test_a_tolerance_decides_what_differs(blobs_files, qbench):
    scaled("net.onnx", "near.onnx", "w2", 1 + 2.0**-10)
    plain = compared(qbench, "net.onnx", "near.onnx", "--data", "test.npz")
    assert plain[0] == 1
    outputs = plain[1]["graphs"]["model"]["outputs"]
    assert (outputs["elements"], plain[1]["graphs"]["model"]["within"]) == (192, 0)
    assert outputs["differing"] > 0
    loose = compared(
        qbench, "net.onnx", "near.onnx", "--data", "test.npz", "--rtol", "1e-3", "--atol", "0.1"
    )
    assert loose[0] == 0
    graph = loose[1]["graphs"]["model"]
    assert (loose[1]["equal"], graph["outputs"]["differing"], graph["within"]) == (
        True,
        0,
        outputs["differing"],
    )
    assert graph["first"] is None
    tight = compared(qbench, "net.onnx", "near.onnx", "--data", "test.npz", "--rtol", "1e-9")
    assert tight[0] == 1
    some = compared(qbench, "net.onnx", "near.onnx", "--data", "test.npz", "--atol", "1e-3")[1][
        "graphs"
    ]["model"]
    assert some["within"] + some["outputs"]["differing"] == outputs["differing"]


def test_two_float_files_are_compared_node_by_node(blobs_files, qbench):
    scaled("net.onnx", "other.onnx", "w2", 1.5)
    code, facts = compared(qbench, "net.onnx", "other.onnx", "--data", "test.npz")
    graph = facts["graphs"]["model"]
    assert (code, facts["other"], facts["came"]) == (1, "other.onnx", ["float", "float"])
    assert graph["first"]["node"] == "second"
    assert [node["differing"] > 0 for node in graph["nodes"]] == [False, False, True]
    assert qbench("diff", "net.onnx", "net.onnx", "--data", "test.npz")[0] == 0


@pytest.mark.parametrize(("first", "second"), [("net.onnx", "q.onnx"), ("q.onnx", "net.onnx")])
def test_a_float_file_and_a_quantized_one_are_aligned_by_their_float_values(
    quantized, qbench, first, second
):
    # The precise mode: without VNNI ONNX Runtime saturates pairs of products, which moves values by
    # 10 %.
    code, facts = compared(
        qbench, first, second, "--data", "test.npz", "--left", "backend=ort-cpu-precise"
    )
    graph = facts["graphs"]["model"]
    assert code == 1
    assert facts["right"].startswith("backend=ort-cpu-precise")
    assert facts["came"] == (["float", "qdq"] if first == "net.onnx" else ["qdq", "float"])
    assert {node["value"] for node in graph["nodes"]} == {"x", "r", "scores"}
    assert graph["unaligned"] == []
    assert max(node["relative"] for node in graph["nodes"]) < 0.05


@pytest.mark.slow
def test_a_schema_of_the_left_is_compared_with_a_quantized_file(quantized, qbench):
    words = (
        "net.onnx",
        "q.onnx",
        "--data",
        "test.npz",
        "--calib",
        "train.npz",
        "--left",
        "schema=w8a8_asym_pc",
    )
    code, facts = compared(qbench, *words)
    assert (code, facts["equal"], facts["right"]) == (0, True, "backend=ort-cpu")


def test_two_files_of_other_interfaces_are_one_sentence(words, blobs_files, qbench):
    model = load_model("net.onnx")
    model.graph.outputs[0].name = "logits"
    save_model(model, "renamed.onnx")
    code, out, err = qbench("diff", "net.onnx", "renamed.onnx", "--data", "test.npz")
    assert (code, out) == (2, "")
    words(err)
    code, _, err = qbench(
        "diff", "net.onnx", "net.onnx", "--data", "test.npz", "--save-case", "case"
    )
    assert code == 2
    assert "--save-case with two models" in err


def test_a_lone_input_may_have_another_name_and_a_fixed_batch(blobs_files, qbench):
    model = load_model("net.onnx")
    model.graph.inputs[0].name = "features"
    model.graph.inputs[0].shape = ir.Shape([1, 8])
    for node in model.graph:
        node.outputs[0].shape = ir.Shape([1, *node.outputs[0].shape.dims[1:]])
    save_model(model, "one.onnx")
    code, facts = compared(qbench, "net.onnx", "one.onnx", "--data", "test.npz", "--atol", "1e-4")
    assert (code, facts["equal"]) == (0, True)


def test_several_outputs_without_labels_are_compared(blobs_files, qbench):
    model = load_model("net.onnx")
    model.graph.outputs.append(
        next(node for node in model.graph if node.op_type == "Relu").outputs[0]
    )
    save_model(model, "both.onnx")
    scaled("both.onnx", "other.onnx", "w2", 1.5)
    np.savez("bare.npz", x=np.load("test.npz")["x"])
    code, facts = compared(
        qbench, "both.onnx", "other.onnx", "--data", "bare.npz", "--rtol", "1e-4"
    )
    graph = facts["graphs"]["model"]
    assert (code, graph["first"]["node"], graph["flips"]) == (1, "second", None)
    assert (graph["outputs"]["elements"], graph["outputs"]["differing"]) == (64 * 9, 64 * 3)


@pytest.mark.slow
def test_the_cause_that_lint_knows_is_named(blobs_files, qbench):
    """Saturation of pairs: the weights of a column are equal, so every pair of large inputs
    loses some of its sum.
    """
    model = load_model("net.onnx")
    held = model.graph.initializers["w1"]
    held.const_value = ir.tensor(
        np.repeat([[1, -1]], 3, axis=1).repeat(8, axis=0).astype(np.float32), name="w1"
    )
    save_model(model, "ones.onnx")
    words = (
        "--left",
        "backend=integer-ort-x64 schema=w8a8_asym_pc",
        "--right",
        "backend=integer-ort-x64-avx2",
    )
    code, facts = compared(qbench, "ones.onnx", *FILES[1:], *words)
    graph = facts["graphs"]["model"]
    assert code == 1
    assert graph["first"]["node"] == "first"
    assert graph["why"].startswith("'ort-x64-avx2' at 'first': ")
    assert "can saturate in 16 bits" in graph["why"]
    same = (
        "--left",
        "backend=integer-ort-x64 schema=w8a8_asym_pc",
        "--right",
        "backend=integer-ort-x64",
    )
    assert compared(qbench, "ones.onnx", *FILES[1:], *same)[1]["graphs"]["model"]["why"] == ""


@pytest.mark.slow
def test_the_command_that_finds_the_cause_is_named(words, blobs_files, qbench):
    _, facts = compared(
        qbench, *FILES[:-1], "5", "--right", "schema=w4a8_sym_pt", "--calib-count", "9"
    )
    words(facts["next_step"])
    code, _, err = qbench(*facts["next_step"].split()[1:])
    assert code in (0, 1), err


def test_outputs_that_differ_though_no_value_does_are_explained(blobs_files, qbench):
    scaled("net.onnx", "near.onnx", "b2", 1 + 2.0**-20)
    code, facts = compared(qbench, "net.onnx", "near.onnx", "--data", "test.npz")
    graph = facts["graphs"]["model"]
    assert (code, graph["first"]) == (1, None)
    assert graph["outputs"]["differing"] > 0
    assert (
        "another order of float32 sums" in graph["why"]
        or "optimizations of the graph as a whole" in graph["why"]
    )
    _, out, _ = qbench("diff", "net.onnx", "near.onnx", "--data", "test.npz")
    assert f"why: {graph['why']}" in out


@pytest.mark.parametrize("text", ["x", "-1", "nan", "inf", ""])
def test_a_tolerance_is_a_number_from_0(blobs_files, qbench, text):
    code, _, err = qbench("diff", "net.onnx", "--data", "test.npz", f"--atol={text}")
    assert code == 2
    assert "expected a number from 0" in err


def test_not_a_number_equals_nothing_by_a_tolerance():
    left = np.array([1.0, np.nan, np.inf, 0.0, 5.0])
    right = np.array([1.05, 1.0, np.inf, 0.2, 5.4])
    assert Allowed(0.1, 0.1).equal(left, right).tolist() == [True, False, False, False, True]
    assert not Allowed().equal(left, left).any()


@pytest.mark.parametrize("word", ["ort-cpu-noopt", "w8a8_asym_pc", "x y"])
def test_a_word_without_a_key_is_suggested_with_one(word):
    with pytest.raises(InputError) as caught:
        SideText().saying(f"'{word}'")
    assert f"backend={word}" in caught.value.remedy
