"""``--ranges`` of ``quantize`` and ``eval``, and plans that were edited by hand."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

QUANTIZE = ("quantize", "net.onnx", "--calib", "train.npz", "--schema", "w8a8_asym_pc")
EVAL = ("eval", "net.onnx", "--data", "test.npz", "--calib", "train.npz")
SCHEMA = ("--schema", "w8a8_asym_pc")
TABLE = "[values.r]\nlow = 0.0\nhigh = 3.0\n"


@pytest.fixture
def ranges(blobs_files):
    path = Path("mine.toml")
    path.write_text(TABLE)
    return path


def scale_of(path, name):
    """The scale that is written for the value ``name``."""
    constants = {one.name: one for one in onnx.load(path).graph.initializer}
    return float(numpy_helper.to_array(constants[f"{name}_scale"]))


def test_the_file_decides_and_is_named(ranges, qbench):
    code, out, err = qbench(*QUANTIZE, "--ranges", "mine.toml", "-o", "q.onnx", "--why")
    assert code == 0, err
    assert out.count("given by the ranges file 'mine.toml', [values.r]") == 2
    assert scale_of("q.onnx", "r") == np.float32(3 / 255)
    assert "100.0% of" in out


def test_eval_takes_it_and_says_so(ranges, qbench):
    code, out, err = qbench(*EVAL, *SCHEMA, "--ranges", "mine.toml")
    assert code == 0, err
    assert "ranges   1 value of 'mine.toml' (#" in out
    table = json.loads(qbench(*EVAL, *SCHEMA, "--ranges", "mine.toml", "--json")[1])["quantized"]
    plain = json.loads(qbench(*EVAL, *SCHEMA, "--json")[1])["quantized"]
    assert table["made"]["ranges"].startswith("1 value of 'mine.toml'")
    assert "ranges" not in plain["made"]
    assert table["made"]["schema"] == plain["made"]["schema"]
    assert table["digests"]["quantized"] != plain["digests"]["quantized"]


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ((*EVAL[:4], "--ranges", "mine.toml"), "--ranges without --schema"),
        ((*QUANTIZE, "--ranges", "none.toml", "-o", "q.onnx"), "'none.toml'"),
        ((*QUANTIZE, "--ranges", "odd.toml", "-o", "q.onnx"), "unknown value 'rr'"),
        (("quantize", "net.onnx", "--plan", "p.json", "--ranges", "mine.toml"), "--ranges"),
        (("quantize", "net.onnx", "--read", "--ranges", "mine.toml"), "--ranges"),
        ((*QUANTIZE, "--ranges", "mine.toml", "-o", "mine.toml"), "mine.toml"),
    ],
)
def test_mistakes_are_one_sentence(options, found, ranges, qbench):
    Path("odd.toml").write_text(TABLE.replace("values.r", "values.rr"))
    Path("p.json").write_text("{}")
    code, out, err = qbench(*options)
    assert code == 2
    assert not out
    assert found in err
    assert err.count("\n") == 1
    assert ranges.read_text() == TABLE


@pytest.fixture
def plan(blobs_files, qbench):
    assert qbench(*QUANTIZE, "--save-plan", "p.json")[0] == 0
    return json.loads(Path("p.json").read_text())


def edited(plan, value, scale, *roles):
    for row in plan["slots"]:
        if row["slot"][3] == value and (not roles or row["slot"][1] in roles):
            row["scale"] = scale
    Path("e.json").write_text(json.dumps(plan))
    return ("quantize", "net.onnx", "--plan", "e.json", "-o", "e.onnx")


def test_an_edited_plan_is_derived_again(plan, qbench):
    code, out, err = qbench(*edited(plan, "r", 0.03125), "--why")
    assert code == 0, err
    assert "derived again, as its file was edited" in out
    assert scale_of("e.onnx", "r") == 0.03125
    constants = {
        one.name: numpy_helper.to_array(one) for one in onnx.load("e.onnx").graph.initializer
    }
    product = np.float32(0.03125) * constants["w2_scale"]
    assert np.array_equal(constants["b2_scale"], product)
    code, out, err = qbench("eval", "e.onnx", "--fp32", "net.onnx", "--data", "test.npz")
    assert code == 0, err
    assert "100.0 % were executed in integers" in out


def test_a_contradiction_in_an_edited_plan_is_one_sentence(plan, qbench):
    code, out, err = qbench(*edited(plan, "r", 0.03125, "input"))
    assert (code, out) == (2, "")
    assert "two parameters for the value 'r'" in err
    assert "scale 0.03125 " in err
    assert err.count("\n") == 1
    assert not Path("e.onnx").exists()


def test_a_value_that_is_left_in_float_takes_its_bias_along_and_is_not_counted(plan, qbench):
    shares = []
    for keep_float in (False, True):
        for row in plan["slots"] if keep_float else ():
            if row["slot"][3] == "r":
                row.update(kind="float", reason="mine")
        Path("e.json").write_text(json.dumps(plan))
        command = ("quantize", "net.onnx", "--plan", "e.json", "-o", "e.onnx", "--json", "--why")
        code, out, err = qbench(*command)
        assert code == 0, err
        shares.append(json.loads(out)["integer_macs"])
    assert shares == [1.0, 48 / 66]
    decisions = "\n".join(json.loads(out)["decisions"])
    assert "which it is derived from, stays in float" in decisions
    assert "b2_quantized" not in {one.name for one in onnx.load("e.onnx").graph.initializer}


def test_an_impossible_scale_is_said_with_its_slot(plan, qbench):
    code, out, err = qbench(*edited(plan, "r", -1.0, "output"))
    assert (code, out) == (2, "")
    assert "'r' at first.output[0]: a scale is positive" in err
    assert err.count("\n") == 1


@pytest.mark.slow
def test_localize_examines_the_model_with_these_ranges(ranges, qbench):
    localize = ("localize", *EVAL[1:], *SCHEMA, "--samples", "8", "--json")
    Path("mine.toml").write_text(TABLE.replace("3.0", "0.05"))
    worse = json.loads(qbench(*localize, "--ranges", "mine.toml")[1])
    plain = json.loads(qbench(*localize)[1])

    def clipped(found):
        nodes = {node["value"]: node for node in found["finding"]["nodes"]}
        return nodes["r"]["clipped_high"]

    assert clipped(worse) > 0.1 > clipped(plain)


def test_localize_of_a_quantized_file_has_no_ranges(ranges, qbench):
    code, out, err = qbench(
        *("localize", "net.onnx", "--fp32", "net.onnx", "--data", "test.npz"),
        *("--ranges", "mine.toml"),
    )
    assert (code, out) == (2, "")
    assert "--fp32 with --ranges" in err
