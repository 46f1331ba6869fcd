"""``eval``, ``profile`` and ``quantize`` on files that people bring."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from qbench.backends import get_backend
from qbench.backends.ort import ORT_BACKENDS
from qbench.judging import NOTHING_QUANTIZED


def test_fp32_and_quantized_side_by_side(blobs_files, qbench):
    code, out, err = qbench(
        "eval", "net.onnx", "--data", "test.npz", "--schema", "w8a8_asym_pc", "--calib", "train.npz"
    )
    assert code == 0, err
    assert "100.0 % of the multiply-accumulates are planned in integers" in out
    assert "schema   w8a8_asym_pc\n" in out
    lines = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    assert len([line for line in lines if line in ("top1", "top5", "agreement")]) == 3
    assert max(len(line) for name, line in lines.items() if name != "backend") <= 80
    assert "100.00 % of" not in out
    assert " pp" in lines["top1"]
    assert " pp" not in lines["agreement"]


def test_a_schema_that_quantizes_nothing_is_said_above_the_table(blobs_files, qbench):
    Path("none.toml").write_text('[[rules]]\nreason = "all of it stays in float"\n')
    command = ("eval", "net.onnx", "--data", "test.npz", "--calib", "train.npz", "--schema")
    code, out, err = qbench(*command, "none.toml")
    assert code == 0, err
    above, _, below = out.partition("metric ")
    assert NOTHING_QUANTIZED in above
    assert NOTHING_QUANTIZED not in below
    # weights in integers by data in floats: no product in integers, and not the float model
    code, out, err = qbench(*command, "w2a8_asym_pc_dyn")
    assert code == 0, err
    assert "0.0 % of the multiply-accumulates are planned in integers" in out
    assert NOTHING_QUANTIZED not in out


def test_a_schema_that_a_backend_cannot_take_is_refused_by_every_verb(
    blobs_files, qbench, monkeypatch
):
    engine = get_backend("ort-cpu")
    static = replace(engine, capabilities=replace(engine.capabilities, dynamic=False))
    monkeypatch.setitem(ORT_BACKENDS, "ort-cpu", static)
    schema = ("--schema", "w8a8_asym_pc_dyn", "--backend", "ort-cpu")
    data = ("--data", "test.npz", "--calib", "train.npz")
    for words in (
        ("quantize", "net.onnx", *schema, "-o", "q.onnx"),
        ("eval", "net.onnx", *schema, *data),
        ("sweep", "net.onnx", *schema, *data),
    ):
        code, _, err = qbench(*words)
        assert (code, "nothing is quantized: " in err) == (2, True), words


def test_a_float_model_that_a_backend_refuses_has_no_schema(blobs_files, qbench):
    words = ("--data", "test.npz", "--backend", "ort-cpu,integer-ideal")
    code, out, err = qbench("eval", "net.onnx", *words)
    assert code == 0, err
    _, _, refused = out.partition("backend  integer-ideal\n")
    assert refused.startswith("not measured: ")


@pytest.mark.slow
def test_samples_that_share_sources_widen_the_interval_and_say_so(blobs_files, qbench):
    with np.load("test.npz") as file:
        n = len(file["x"])
        np.savez("grouped.npz", group=np.arange(n) // 20, **file)
    command = ("eval", "net.onnx", "--schema", "w8a8_asym_pc", "--calib", "train.npz", "--data")
    code, out, err = qbench(*command, "grouped.npz?sources=group")
    assert code == 0, err
    assert (
        f"{n} samples from {n // 20} sources: the interval is that of the sources; {n // 20} "
        "sources exclude no" in out
    )
    alone, grouped = (
        json.loads(qbench(*command, data, "--json")[1])["quantized"]["scores"][0]
        for data in ("test.npz", "grouped.npz?sources=group")
    )
    assert alone["clusters"] is None
    assert grouped["clusters"]["sources"] == n // 20
    assert (alone["losses"], alone["gains"], alone["hits"]) == (
        grouped["losses"],
        grouped["gains"],
        grouped["hits"],
    )


def test_one_source_is_said_to_prove_nothing(blobs_files, qbench):
    with np.load("test.npz") as file:
        np.savez("grouped.npz", group=np.zeros(len(file["x"]), np.int64), **file)
    command = ("eval", "net.onnx", "--schema", "w8a8_asym_pc", "--calib", "train.npz", "--data")
    code, out, err = qbench(*command, "grouped.npz?sources=group")
    assert code == 0, err
    assert "samples from 1 source: one source proves nothing about others" in out
    assert "the interval is that of the sources" not in out


def test_fp32_alone_has_no_columns_of_quantization(blobs_files, qbench):
    code, out, _ = qbench("eval", "net.onnx", "--data", "test.npz")
    assert code == 0
    assert "metric  fp32" in out
    assert "agreement" not in out
    assert "losses" not in out
    assert (
        "add --schema"
        in qbench("eval", "net.onnx", "--data", "test.npz", "--metrics", "agreement")[1]
    )


def counted(direction, reference_hits, hits, unit="%"):
    from qbench.metrics import Against, Score

    return Score(
        metric="m", direction=direction, against=Against.LABELS, unit=unit, proportion=False,
        least_margin=0, n=300, hits=hits, out_of=300, reference_hits=reference_hits,
        losses=0, gains=0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("hits", "change"), [(198, "−0.67 pp"), (202, "+0.67 pp"), (200, "+0.00 pp")]
)
@pytest.mark.parametrize("name", ["HIGHER", "LOWER"])
def test_a_change_is_the_value_minus_that_of_fp32_as_in_the_reports(name, hits, change):
    from qbench.cli.model_report import score_row
    from qbench.metrics import Direction

    before, after = (counted(Direction[name], 200, each) for each in (200, hits))
    assert score_row(before, after)[4] == change


@pytest.mark.slow
def test_the_line_below_says_which_sign_is_a_loss_and_each_interval_its_confidence(
    blobs_files, qbench
):
    with np.load("test.npz") as stored, np.load("train.npz") as other:
        np.savez(
            "values.npz",
            x=stored["x"],
            y=stored["x"].mean(axis=1, keepdims=True) * np.float32([0.5, 1, 2]),
        )
        np.savez("others.npz", x=other["x"])
    words = ("eval", "net.onnx", "--schema", "w4a4_asym_pt", "--calib")
    _, values, _ = qbench(*words, "others.npz", "--data", "values.npz")
    assert "plus is a loss of mae, rmse; shares" in values
    assert "95 %" not in values
    assert values.count("(90 %)") == 2
    _, classes, _ = qbench(*words, "train.npz", "--data", "test.npz")
    assert "\nminus is a loss; shares" in classes
    assert "95 % interval" in classes


def test_another_unit_than_percent_is_written_out():
    from qbench.cli.model_report import score_row
    from qbench.metrics import Direction

    before, after = (counted(Direction.LOWER, 600, hits, "nats") for hits in (600, 615))
    assert score_row(before, after)[1:5] == ("2 nats", "2.05 nats", "300", "+0.05 nats")


@pytest.mark.parametrize("text", ["0", "-1", "two"])
@pytest.mark.parametrize("command", [["eval"], ["profile", "-o", "p.json"]])
def test_no_threads_are_refused(blobs_files, qbench, command, text):
    code, out, err = qbench(*command, "net.onnx", "--data", "test.npz", f"--threads={text}")
    assert (code, out) == (2, "")
    assert f"--threads: found '{text}'; expected a whole number from 1" in err


def test_the_numbers_are_those_of_the_engine(blobs_files, qbench):
    from qbench_shapes import points

    from qbench import get_backend

    code, out, _ = qbench("eval", "net.onnx", "--data", "test.npz", "--metrics", "top1", "--json")
    assert code == 0
    (top1,) = json.loads(out)["fp32"]["scores"]
    x, y = points(1, 300)
    with get_backend("ort-cpu").prepare("net.onnx") as executor:
        scores = executor.run({"x": x})["scores"]
    assert top1["hits"] == int((scores.argmax(1) == y).sum())
    assert (top1["n"], top1["losses"], top1["gains"]) == (300, 0, 0)


def test_losses_and_gains_add_up(blobs_files, qbench):
    arguments = (
        "--data",
        "test.npz",
        "--schema",
        "w8a8_sym_pt",
        "--calib",
        "train.npz",
        "--calib-count",
        "8",
    )
    facts = json.loads(qbench("eval", "net.onnx", *arguments, "--json")[1])
    quantized = {score["metric"]: score for score in facts["quantized"]["scores"]}
    top1 = quantized["top1"]
    assert top1["drop"] == top1["losses"] - top1["gains"] == top1["reference_hits"] - top1["hits"]
    low, high = top1["interval"]
    assert low <= -top1["drop"] / top1["n"] <= high
    assert facts["quantized"]["integer_macs"] == 1


def test_the_graphs_own_input_name_is_used(blobs_files, qbench):
    from qbench import load_model, save_model

    model = load_model("net.onnx")
    model.graph.inputs[0].name = "picture"
    save_model(model, "other.onnx")
    assert qbench("eval", "other.onnx", "--data", "test.npz")[0] == 0


def test_a_model_and_data_of_an_extension(project, qbench):
    code, out, _ = qbench("eval", "blobs", "--data", "blobs_test", "--backend", "onnx-reference")
    assert code == 0
    assert "top5" in out


def bad(path, **arrays):
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["net.onnx", "--data", "test.npz", "--schema", "w8a8_asym_pc"],
            "--schema without --calib",
        ),
        (["net.onnx", "--data", "test.npz", "--calib", "train.npz"], "--calib without --schema"),
        (
            ["net.onnx", "--data", "test.npz", "--schema", "w8a8_asym_pcc", "--calib", "train.npz"],
            "Did you mean 'w8a8_asym_pc'?",
        ),
        (
            ["net.onnx", "--data", "test.npz", "--schema", "w8a8_asym_pc", "--calib", "test.npz"],
            "never scored",
        ),
        (
            [
                "net.onnx",
                "--data",
                "test.npz",
                "--schema",
                "w8a8_asym_pc",
                "--calib",
                "train.npz",
                "--calib-count",
                "99",
            ],
            "found 48 samples in it",
        ),
        (["net.onnx", "--data", "test.npz", "--backend", "ort-cpuu"], "Did you mean 'ort-cpu'?"),
        (["net.onnx", "--data", "test.npz", "--metrics", "top2"], "unknown metric 'top2'"),
        (["net.onnx", "--data", "none.npz"], "none.npz"),
        (["net.onnx", "--data", "blobs_tset"], "blobs_test"),
        (["none.onnx", "--data", "test.npz"], "No such file"),
        (["bobs", "--data", "test.npz"], "Did you mean 'blobs'?"),
        (["junk.onnx", "--data", "test.npz"], "no ONNX message"),
        (["net.onnx", "--data", "wide.npz"], "found 9 a sample for input 'x'; expected 8"),
        (["net.onnx", "--data", "nan.npz"], "x[7]"),
        (["net.onnx", "--data", "plain.npz", "--metrics", "top1"], "no labels"),
    ],
)
def test_bad_input_is_one_sentence_and_2(blobs_files, qbench, arguments, says):
    from qbench_shapes import points

    x, y = points(3, 20)
    Path("junk.onnx").write_bytes(b"not a model at all")
    bad("wide.npz", x=np.zeros((20, 9), np.float32), y=y)
    bad("plain.npz", x=x)
    x[7, 2] = np.nan
    bad("nan.npz", x=x, y=y)
    code, out, err = qbench("eval", *arguments)
    assert (code, out) == (2, ""), err
    assert says in err
    assert len(err.splitlines()) == 1


def test_overlap_is_found_whatever_the_files_are_called(blobs_files, qbench):
    with np.load("test.npz") as stored:
        x, y = stored["x"][100:140], stored["y"][100:140]
    np.savez("copy.npz", x=x, y=y)
    code, _, err = qbench(
        "eval", "net.onnx", "--data", "test.npz", "--schema", "w8a8_sym_pc", "--calib", "copy.npz"
    )
    assert code == 2
    assert "40 sources" in err


def test_folders_of_pictures(blobs_files, qbench):
    """Data of another shape than the model takes: one sentence that names both."""
    from PIL import Image

    for name, colour in (("ants", 10), ("bees", 200)):
        Path("pictures", name).mkdir(parents=True)
        for index in range(3):
            Image.new("RGB", (40, 30), (colour, index, 0)).save(
                Path("pictures", name, f"{index}.png")
            )
    code, _, err = qbench("eval", "net.onnx", "--data", "folder:pictures?resize=16&crop=16")
    assert code == 2
    assert "16" in err
    assert len(err.splitlines()) == 1


@pytest.mark.slow
def test_profile_and_quantize_by_steps(blobs_files, qbench):
    code, out, err = qbench("profile", "net.onnx", "--data", "train.npz", "-o", "net.json")
    assert code == 0, err
    assert "over 48 samples" in out
    code, out, _ = qbench(
        "quantize",
        "net.onnx",
        "--profile",
        "net.json",
        "--schema",
        "w8a8_asym_pc",
        "-o",
        "q.onnx",
        "--why",
    )
    assert code == 0
    assert "first" in out
    from qbench import load_model

    kinds = [node.op_type for node in load_model("q.onnx").graph]
    assert "QuantizeLinear" in kinds
    # by steps or by eval: the same model, the same answers
    direct = json.loads(
        qbench(
            "eval",
            "net.onnx",
            "--data",
            "test.npz",
            "--schema",
            "w8a8_asym_pc",
            "--calib",
            "train.npz",
            "--json",
        )[1]
    )
    stepped = json.loads(qbench("eval", "q.onnx", "--data", "test.npz", "--json")[1])
    name = "predictions:test.npz"
    assert stepped["quantized"]["digests"][name] == direct["quantized"]["digests"][name]


def test_a_profile_of_another_model_is_refused(blobs_files, qbench):
    from qbench import load_model, save_model

    qbench("profile", "net.onnx", "--data", "train.npz", "-o", "net.json")
    model = load_model("net.onnx")
    import onnx_ir as ir

    value = model.graph.initializers["b2"]
    value.const_value = ir.tensor(value.const_value.numpy() + 1, name="b2")
    save_model(model, "other.onnx")
    code, _, err = qbench(
        "quantize", "other.onnx", "--profile", "net.json", "--schema", "w8a8_sym_pc", "-o", "q.onnx"
    )
    assert code == 2
    assert "Calibrate" in err
    assert not Path("q.onnx").exists()


@pytest.mark.slow
def test_a_machine_that_counts_integers_is_held_against_a_float_engine(blobs_files, qbench):
    asked = (
        "eval",
        "net.onnx",
        "--data",
        "test.npz",
        "--schema",
        "w8a8_asym_pc",
        "--calib",
        "train.npz",
    )
    code, out, err = qbench(*asked, "--backend", "integer-gemmlowp", "--json")
    assert code == 0, err
    table = json.loads(out)
    assert table["backend"] == "integer-gemmlowp"
    assert table["fp32"]["cell"]["backend"] == "ort-cpu"
    assert table["quantized"]["cell"]["backend"] == "integer-gemmlowp"


def test_calibrating_on_scored_samples_names_one_of_them(blobs_files, qbench):
    _, _, err = qbench(
        "eval", "net.onnx", "--data", "test.npz", "--schema", "w8a8_asym_pc", "--calib", "test.npz"
    )
    assert re.search(r"'\w+\[0\]'", err)
    assert not re.search("[0-9a-f]{64}", err)


def test_the_share_of_a_schema_of_floats_is_that_of_its_weights(blobs_files, qbench):
    code, out, err = qbench(
        *("eval", "net.onnx", "--data", "test.npz", "--schema", "wf8e4m3_sym_pc"),
        *("--backend", "integer-ideal", "--calib", "train.npz"),
    )
    assert code == 0, err
    assert "100.0 % of the multiply-accumulates are planned by quantized weights" in out
    assert "float8e4m3fn: simulated" in out
    assert "planned in integers" not in out
