"""``qbench diff``: what sides say, what is printed, the exit code, the saved case, and what is refused."""

import json

import pytest

from qbench.backends import Level, get_backend
from qbench.cli.diff import SideText
from qbench.diagnosis import run_test_case
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
    named = SideText().saying("passes='merge-requantize{steps = 1},drop-pair' policy=rounding").chosen_rewriting()
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


def test_equal_sides_end_with_0(blobs_files, qbench):
    sides = ("--left", "backend=ort-cpu-precise schema=w8a8_asym_pc", "--right", "backend=integer-ort-x64")
    code, out, err = qbench("diff", *FILES, *sides)
    assert (code, err) == (0, "")
    assert out.startswith(
        "model  net.onnx, 40 samples of test.npz\nleft   backend=ort-cpu-precise schema=w8a8_asym_pc\n"
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


def test_a_case_of_machines_that_differ_is_saved(blobs_files, qbench):
    sides = ("--left", "backend=integer-ort-x64 schema=w8a8_asym_pc", "--right", "backend=integer-glow-cpu")
    code, out, _ = qbench("diff", *FILES, *sides, "--save-case", "case", "--json")
    assert code == 1
    case = json.loads(out)["case"]
    assert (case["node"], case["cause"]) == ("first", "other numbers than its arithmetic")
    assert not run_test_case(blobs_files / "case", get_backend("integer-glow-cpu")).passes
    assert run_test_case(blobs_files / "case", get_backend("integer-ort-x64")).passes


def test_where_nothing_parts_there_is_no_case(blobs_files, qbench):
    sides = ("--left", "backend=integer-ort-x64 schema=w8a8_asym_pc")
    code, out, _ = qbench("diff", *FILES, *sides, "--save-case", "case")
    assert code == 0
    assert "no test case: no unit of the engine differs from the arithmetic that it claims on these samples" in out
    assert not (blobs_files / "case").exists()
    code, out, _ = qbench("diff", *FILES, "--save-case", "case")
    assert "no test case: a test case needs quantized values on both sides" in out


def test_a_quantized_file_is_compared_as_it_is(blobs_files, qbench):
    assert qbench("profile", "net.onnx", "--data", "train.npz", "-o", "p.json")[0] == 0
    assert qbench("quantize", "net.onnx", "--profile", "p.json", "--schema", "w8a8_asym_pc", "-o", "q.onnx")[0] == 0
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
    assert "for a model that is quantized already" in err


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
