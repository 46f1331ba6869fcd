"""``qbench sweep`` and ``eval`` of several backends and schemas, from the outside."""

import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import numpy as np
import pytest

DATA = ("--data", "test.npz", "--calib", "train.npz")
TWO = ("--backend", "ort-cpu,ort-cpu-noopt", "--schema", "w8a8_asym_pt", "--schema", "w8a8_asym_pc")


@pytest.fixture
def swept(blobs_files, qbench):
    """The facts of a sweep of two backends and two schemas, in the folder of its files."""
    code, out, err = qbench("sweep", "net.onnx", *DATA, *TWO, "--json")
    assert code == 0, err
    return json.loads(out)


def names(facts):
    return [cell["cell"] for cell in facts["cells"]]


def test_every_cell_has_its_numbers(swept, qbench):
    assert sorted(names(swept)) == sorted(
        f"{backend}+{schema}"
        for backend in ("ort-cpu", "ort-cpu-noopt")
        for schema in ("fp32", "w8a8_asym_pt", "w8a8_asym_pc")
    )
    losses = [cell["loss"] for cell in swept["cells"]]
    assert losses == sorted(losses)
    assert [cell["number"] for cell in swept["cells"]] == [1, 2, 3, 4, 5, 6]
    for cell in swept["cells"]:
        low, high = cell["interval"]
        assert low <= cell["loss"] <= high
        assert cell["samples"] == swept["samples"] == 300
        assert cell["loss"] == pytest.approx((cell["losses"] - cell["gains"]) / 300)
        assert cell["loss"] == pytest.approx(
            cell["metrics"]["top1"]["fp32"] - cell["metrics"]["top1"]["value"]
        )
        assert 0 < cell["ms_interval"][0] <= cell["ms"] <= cell["ms_interval"][1]
    by_name = {cell["cell"]: cell for cell in swept["cells"]}
    assert by_name["ort-cpu+w8a8_asym_pc"]["executed"] == 1.0
    assert by_name["ort-cpu-noopt+w8a8_asym_pc"]["executed"] == 0.0
    assert by_name["ort-cpu+fp32"]["executed"] is None
    # the very numbers of eval, and the very bytes of the file that quantize writes
    evaluated = json.loads(
        qbench("eval", "net.onnx", *DATA, "--schema", "w8a8_asym_pc", "--json")[1]
    )
    (top1, *_) = evaluated["quantized"]["scores"]
    assert (top1["losses"], top1["gains"]) == (
        by_name["ort-cpu+w8a8_asym_pc"]["losses"],
        by_name["ort-cpu+w8a8_asym_pc"]["gains"],
    )
    low, high = top1["interval"]
    assert by_name["ort-cpu+w8a8_asym_pc"]["interval"] == [-high, -low]
    qbench("profile", "net.onnx", "--data", "train.npz", "-o", "p.json")
    qbench(
        "quantize", "net.onnx", "--profile", "p.json", "--schema", "w8a8_asym_pc", "-o", "q.onnx"
    )
    assert by_name["ort-cpu+w8a8_asym_pc"]["file_bytes"] == Path("q.onnx").stat().st_size


def test_the_rows_are_sorted_as_asked(swept, qbench):
    for sort, key in (("time", "ms"), ("size", "file_bytes"), ("name", "cell")):
        code, out, _ = qbench(
            "sweep", "net.onnx", *DATA, *TWO, "--json", "--resume", "--sort", sort
        )
        values = [cell[key] for cell in json.loads(out)["cells"]]
        assert (code, values) == (0, sorted(values))


def test_finished_cells_are_not_measured_again(swept, qbench):
    """What is kept has the very numbers, times too; a cut line is measured anew."""
    file = Path("sweep-net.jsonl")
    lines = file.read_bytes().splitlines(keepends=True)
    assert len(lines) == 6
    file.write_bytes(b"".join(lines[:4]) + lines[4][:50])
    code, out, err = qbench("sweep", "net.onnx", *DATA, *TWO, "--json", "--resume")
    assert code == 0
    assert "4 finished cells are taken" in err
    again = {cell["cell"]: cell for cell in json.loads(out)["cells"]}
    kept = [name for name, cell in again.items() if cell["kept"]]
    before = {cell["cell"]: cell for cell in swept["cells"]}
    written = [json.loads(line) for line in lines[:4]]
    assert sorted(kept) == sorted(f"{one['backend']}+{one['schema']}" for one in written)
    assert all(again[name]["ms"] == before[name]["ms"] for name in kept)
    # the file is whole again, and all of it is taken now
    out = qbench("sweep", "net.onnx", *DATA, *TWO, "--json", "--resume")[1]
    assert all(cell["kept"] for cell in json.loads(out)["cells"])
    # without --resume all are measured, and the newest result is taken later
    out = qbench("sweep", "net.onnx", *DATA, *TWO, "--json")[1]
    newest = json.loads(out)
    assert not any(cell["kept"] for cell in newest["cells"])
    out = qbench("sweep", "net.onnx", *DATA, *TWO, "--json", "--resume")[1]
    assert [cell["ms"] for cell in json.loads(out)["cells"]] == [
        cell["ms"] for cell in newest["cells"]
    ]


def test_another_schema_or_range_is_another_result(swept, qbench):
    Path("ranges.toml").write_text("[values.r]\nlow = 0.0\nhigh = 80.0\n")
    code, out, err = qbench(
        "sweep", "net.onnx", *DATA, *TWO, "--json", "--resume", "--ranges", "ranges.toml"
    )
    assert code == 0, err
    assert {cell["cell"] for cell in json.loads(out)["cells"] if cell["kept"]} == {
        "ort-cpu+fp32",
        "ort-cpu-noopt+fp32",
    }


@pytest.mark.parametrize("change", ["model", "data", "version"])
def test_results_of_something_else_are_refused(swept, qbench, change):
    arguments = ["sweep", "net.onnx", *DATA, *TWO, "--resume"]
    if change == "version":
        file = Path("sweep-net.jsonl")
        file.write_text(file.read_text().replace('"qbench": "', '"qbench": "0.0.', 1))
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        for line in lines:
            line["made"]["qbench"] = "0.0.1"
        file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    elif change == "data":
        with np.load("test.npz") as arrays:
            np.savez("test.npz", x=arrays["x"][:200], y=arrays["y"][:200])
    else:
        from qbench_shapes import network

        from qbench import save_model

        model = network()
        weight = model.graph.initializers["w1"]
        import onnx_ir as ir

        weight.const_value = ir.tensor(weight.const_value.numpy() * 1.01, name="w1")
        save_model(model, Path("net.onnx"))
    code, out, err = qbench(*arguments)
    said = {"model": "another model", "data": "other data", "version": "another version of qbench"}
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert f"found results of {said[change]}; expected" in err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("what is this\n", "line 1: found a line that no sweep wrote"),
        ('{"format": "qbench-sweep/9"}\n', "made by a newer qbench"),
        ('{"format": "qbench-sweep/1", "backend": 3, "schema": "s"}\n', "line 1: found Expected"),
    ],
)
@pytest.mark.parametrize("more", [("--resume",), ()])
def test_a_file_that_is_no_file_of_results_is_refused(blobs_files, qbench, text, says, more):
    Path("r.jsonl").write_text(text)
    code, out, err = qbench("sweep", "net.onnx", *DATA, *TWO, "--results", "r.jsonl", *more)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert says in err
    assert Path("r.jsonl").read_text() == text


def test_what_the_budget_leaves_out_is_named(blobs_files, qbench, monkeypatch):
    """The first cell begins, whatever it takes; the clock then jumps."""
    from qbench.evaluation import sweep as module

    original = module._swept
    now = time.monotonic

    def swept(*arguments):
        monkeypatch.setattr("qbench.cli.sweep.time.monotonic", lambda: now() + 3600)
        return original(*arguments)

    monkeypatch.setattr(module, "_swept", swept)
    code, out, err = qbench("sweep", "net.onnx", *DATA, *TWO, "--budget", "30m")
    assert code == 4
    assert "the budget was used up: 5 cells not measured (" in err
    assert "--resume goes on from 'sweep-net.jsonl'" in err
    assert out.count("not measured: the budget was used up before it") == 5
    monkeypatch.undo()
    monkeypatch.setenv("QBENCH_CACHE", str(blobs_files / "cache"))
    monkeypatch.chdir(blobs_files)
    code, out, _ = qbench("sweep", "net.onnx", *DATA, *TWO, "--json", "--resume")
    facts = json.loads(out)
    assert (code, len(facts["cells"])) == (0, 6)
    assert sum(cell["kept"] for cell in facts["cells"]) == 1


REFUSING = """
from dataclasses import replace

from qbench import Extension
from qbench.backends import get_backend
from qbench.errors import UnsupportedError


class Refusing:
    name = "refusing"
    packages = ()
    arithmetic = None
    capabilities = replace(get_backend("ort-cpu").capabilities, max_macs=1)

    def prepare(self, model, *, taps=(), threads=1):
        raise UnsupportedError("Running it", found="no kernel", expected="one", remedy="Add it.")


EXTENSION = Extension(name="mine", backends={"refusing": Refusing})
"""
MINE = ("--extension", "mine_backend:EXTENSION")


@pytest.fixture
def refusing(blobs_files, monkeypatch):
    """A backend of the user that runs nothing."""
    Path("mine_backend.py").write_text(REFUSING)
    monkeypatch.syspath_prepend(str(blobs_files))
    yield blobs_files
    sys.modules.pop("mine_backend", None)


def test_a_backend_that_cannot_run_a_schema_is_a_row_with_its_reason(refusing, qbench):
    arguments = ("--backend", "ort-cpu,refusing", "--schema", "w8a8_asym_pc")
    code, out, err = qbench("sweep", "net.onnx", *DATA, *MINE, *arguments, "--json")
    assert code == 0, err
    refused = [cell for cell in json.loads(out)["cells"] if cell["state"] == "unsupported"]
    assert [cell["cell"] for cell in refused] == ["refusing+fp32", "refusing+w8a8_asym_pc"]
    assert all("at most 0 million" in cell["reason"] for cell in refused)
    assert all(cell["number"] is None and cell["loss"] is None for cell in refused)
    out = qbench("sweep", "net.onnx", *DATA, *MINE, *arguments)[1]
    assert out.count("refusing+w8a8_asym_pc: unsupported: ") == 1


def test_what_was_measured_is_shown_where_a_chosen_cell_cannot_run(refusing, qbench):
    code, out, err = qbench(
        *("sweep", "net.onnx", *DATA, *MINE, "--backend", "ort-cpu,refusing"),
        *("--schema", "w8a8_asym_pt", "--choose", "refusing+w8a8_asym_pt"),
        *("--write-suite", "a/suites/b.qbench.toml"),
    )
    assert code == 2
    assert "which names no measured cell" in err.splitlines()[-1]
    assert "100 %" in next(line for line in out.splitlines() if "w8a8_asym_pt" in line)


def test_a_sweep_in_which_every_cell_is_refused_is_one_sentence(refusing, qbench):
    arguments = ("--backend", "refusing", "--schema", "w8a8_asym_pt,w8a8_asym_pc")
    code, out, err = qbench("sweep", "net.onnx", *DATA, *MINE, *arguments)
    last = err.splitlines()[-1]
    assert (code, out) == (2, "")
    assert "found 2 cells, none of which can run; refusing+w8a8_asym_pt: " in last


BAD = {
    "backend": (["--backend", "ort-cpu,ort-cpu-nopt"], "Did you mean 'ort-cpu-noopt'?"),
    "schema": (["--schema", "w8a8_asym_pc,w8a8_asym_pz"], "unknown schema"),
    "nothing": (["--schema", ","], "found no name"),
    "recorded": (["--backend", "answers:a.jsonl"], "recorded elsewhere"),
    "plot": (["--plot", "a.jpg"], "expected a file that ends in .png"),
    "same": (["--plot", "a.png", "--html", "a.png"], "which --plot writes"),
    "input": (["--html", "net.onnx"], "which is read here"),
    "choose": (["--choose", "all"], "--choose without --write-suite"),
    "chosen": (
        ["--write-suite", "a/suites/b.qbench.toml", "--choose", "all,ort-cpu+w8a8_asym_pd"],
        "found 'ort-cpu+w8a8_asym_pd', which names no cell of this sweep",
    ),
    "suite": (["--write-suite", "suites/mine.toml"], "expected one that ends in .qbench.toml"),
    "there": (["--write-suite", "suites/tiny.qbench.toml"], "which is there already"),
    "ranges": (["--ranges", "none.toml"], "none.toml"),
    "metric": (["--metrics", "top9"], "unknown metric"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_mistake_is_one_sentence_before_anything_is_measured(blobs_files, qbench, name):
    arguments, says = BAD[name]
    code, out, err = qbench("sweep", "net.onnx", *DATA, *arguments)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert says in err
    assert not Path("sweep-net.jsonl").exists()


def test_a_sweep_without_a_result_counts_no_samples(blobs_files, qbench):
    code, out, _ = qbench("sweep", "net.onnx", *DATA, *TWO, "--budget", "0.000001s")
    assert code == 4
    assert out.count("not measured: the budget was used up before it") == 6
    assert "data     test.npz\n" in out


@pytest.mark.parametrize("budget", ["0", "-3", "soon", "5 days", "nan", "1e400"])
def test_a_budget_of_nonsense_is_usage(qbench, budget):
    code, out, err = qbench("sweep", "n", "--data", "d", f"--budget={budget}")
    assert (code, out) == (2, "")
    assert f"argument --budget: found '{budget}'; expected a time above 0" in err


def test_schemas_without_calibration_samples(blobs_files, qbench):
    code, _, err = qbench("sweep", "net.onnx", "--data", "test.npz", "--schema", "w8_sym_pc")
    assert code == 0, err
    code, out, err = qbench("sweep", "net.onnx", "--data", "test.npz")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert "found no --calib, which 'w8a8_asym_pt' takes ranges from" in err


def test_a_model_that_came_quantized_is_refused(blobs_files, qbench):
    qbench("profile", "net.onnx", "--data", "train.npz", "-o", "p.json")
    qbench(
        "quantize", "net.onnx", "--profile", "p.json", "--schema", "w8a8_asym_pc", "-o", "q.onnx"
    )
    code, out, err = qbench("sweep", "q.onnx", *DATA)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert "found a model that is quantized already" in err


def test_without_labels_the_loss_is_what_fp32_answers_otherwise(blobs_files, qbench):
    with np.load("test.npz") as arrays:
        np.savez("plain.npz", x=arrays["x"])
    out = qbench(
        *("sweep", "net.onnx", "--data", "plain.npz", "--calib", "train.npz", "--json"),
        *("--schema", "w4a8_asym_pc"),
    )[1]
    (cell,) = [one for one in json.loads(out)["cells"] if one["schema"] != "fp32"]
    assert cell["metric"] == "agreement"
    assert cell["loss"] == pytest.approx(1 - cell["agreement"])
    assert cell["interval"][0] <= cell["loss"] <= cell["interval"][1]


def test_the_table_of_a_terminal(swept, qbench, words):
    """Only what does not depend on this computer: no times, and the fronts by size."""
    out = qbench("sweep", "net.onnx", *DATA, *TWO, "--resume", "--sort", "name")[1]
    lines = [line for line in out.splitlines() if "ort-cpu" not in line]
    words([*lines[:3], *lines[5:]])


@pytest.mark.slow
def test_a_kill_loses_at_most_the_cell_under_way(blobs_files):
    command = [
        *(sys.executable, "-m", "qbench", "sweep", "net.onnx", *DATA),
        *(*TWO, "--schema", "w8a8_sym_pc"),
    ]
    child = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env={**os.environ}
    )
    told = 0
    for line in child.stderr:
        told += " of 8: " in line
        if told == 3:
            child.send_signal(signal.SIGKILL)
            break
    child.stderr.close()
    child.wait()
    done = len(Path("sweep-net.jsonl").read_text().splitlines())
    assert done >= 3
    resumed = subprocess.run(
        [*command, "--resume", "--json"], capture_output=True, text=True, check=True
    )
    cells = json.loads(resumed.stdout)["cells"]
    assert len(cells) == 8
    assert sum(cell["kept"] for cell in cells) == done


# The suite of chosen cells.


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["files", "names", "mixed"])
def test_the_suite_of_chosen_cells_runs_and_holds_these_cells(blobs_files, qbench, kind):
    model, data, calibration = {
        "files": ("net.onnx", "test.npz", "train.npz"),
        "names": ("blobs", "blobs_test", "blobs_train"),
        "mixed": ("blobs", "test.npz", "train.npz"),
    }[kind]
    chosen = "ort-cpu+w8a8_asym_pc,ort-cpu-noopt+w8a8_asym_p*"
    code, out, err = qbench(
        *("sweep", model, "--data", data, "--calib", calibration, *TWO, "--json"),
        *("--write-suite", "new/suites/best.qbench.toml", "--choose", chosen),
    )
    assert code == 0, err
    assert Path("new/conftest.py").exists() == (kind != "names")
    table = tomllib.loads(Path("new/suites/best.qbench.toml").read_text())
    assert table["suite"]["schemas"] == ["w8a8_asym_pc"]
    command = [sys.executable, "-m", "pytest", "-q", "suites/best.qbench.toml"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    first = subprocess.run(
        [*command, "--qbench-accept-fp32", "--qbench-accept=new"],
        cwd="new", env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert first.returncode == 0, first.stdout
    second = subprocess.run(
        command, cwd="new", env=environment, capture_output=True, text=True, check=False
    )
    assert second.returncode == 0, second.stdout
    (run, *_) = sorted(Path("new/reports/history").glob("*.jsonl"))
    lines = [json.loads(line) for line in run.read_text().splitlines()]
    records = {(one["backend"], one["schema"]): one for one in lines if one.get("type") == "cell"}
    assert sorted(records) == [
        *(("ort-cpu", "fp32"), ("ort-cpu", "w8a8_asym_pc"), ("ort-cpu-noopt", "fp32")),
        *(("ort-cpu-noopt", "w8a8_asym_pc"), ("ort-cpu-noopt", "w8a8_asym_pt")),
    ]
    # the very losses and gains of the sweep
    for cell in json.loads(out)["cells"]:
        record = records.get((cell["backend"], cell["schema"]))
        if record is not None:
            assert (record["losses"], record["gains"]) == (cell["losses"], cell["gains"])


def test_a_suite_is_written_by_its_front_and_never_over_a_file(swept, qbench):
    arguments = ("sweep", "net.onnx", *DATA, *TWO, "--resume", "--write-suite")
    code, _, err = qbench(*arguments, "a/suites/best.qbench.toml")
    assert code == 0, err
    table = tomllib.loads(Path("a/suites/best.qbench.toml").read_text())
    front = {
        (cell["backend"], cell["schema"])
        for cell in swept["cells"]
        if {"size", "time"} & {*cell["front"]} and cell["schema"] != "fp32"
    }
    assert {backend for backend, _ in front} == set(table["suite"]["backends"])
    assert Path("a/conftest.py").exists()
    assert Path("a/pytest.ini").exists()
    Path("b").mkdir()
    Path("b/conftest.py").write_text("# mine\n")
    code, out, err = qbench(*arguments, "b/suites/best.qbench.toml")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert "found 'b/conftest.py', which is there already" in err
    code, _, err = qbench(*arguments, "c/suites/best.qbench.toml", "--choose", "ort-cpu+w8a8_asm*")
    assert code == 2
    assert "which names no cell of this sweep" in err.splitlines()[-1]
    assert not Path("c").exists()


def test_a_file_of_results_adds_no_line_to_a_suite(swept, qbench):
    file = Path("sweep-net.jsonl")
    file.write_text(file.read_text().replace('"metric":"top1"', '"metric":"top1\\n[x]"'))
    assert "\\n[x]" in file.read_text()
    code, _, err = qbench(
        *("sweep", "net.onnx", *DATA, *TWO, "--resume"),
        *("--write-suite", "a/suites/best.qbench.toml"),
    )
    assert code == 0, err
    assert set(tomllib.loads(Path("a/suites/best.qbench.toml").read_text())) == {"suite", "model"}


def test_files_of_schemas_go_with_the_suite(blobs_files, qbench):
    shipped = Path(__file__).parents[2] / "suites" / "schemas"
    text = min(shipped.glob("*.toml")).read_text()
    Path("mine.toml").write_text(text)
    code, _, err = qbench(
        *("sweep", "net.onnx", *DATA, "--schema", "mine.toml,w8a8_asym_pc"),
        *("--write-suite", "a/suites/best.qbench.toml", "--choose", "all"),
    )
    assert code == 0, err
    assert Path("a/suites/schemas/mine.toml").read_text() == text


# Pictures and the page.


def test_the_picture_and_the_page_are_written(swept, qbench):
    arguments = ("--plot", "a.png", "--html", "a.html", "--resume")
    code, _, err = qbench("sweep", "net.onnx", *DATA, *TWO, *arguments)
    assert code == 0, err
    assert Path("a.png").read_bytes().startswith(b"\x89PNG")
    page = Path("a.html").read_text()
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org/", "")
    assert page.count("<tr") == 1 + len(swept["cells"])


# eval of several.


def test_eval_measures_every_backend_and_schema(blobs_files, qbench):
    code, out, err = qbench("eval", "net.onnx", *DATA, *TWO)
    assert code == 0, err
    heads = [line for line in out.splitlines() if line.startswith(("backend ", "schema "))]
    assert [line.split()[1] for line in heads] == [
        *("ort-cpu", "w8a8_asym_pt", "ort-cpu", "w8a8_asym_pc"),
        *("ort-cpu-noopt", "w8a8_asym_pt", "ort-cpu-noopt", "w8a8_asym_pc"),
    ]
    tables = json.loads(qbench("eval", "net.onnx", *DATA, *TWO, "--json")[1])
    lone = json.loads(qbench("eval", "net.onnx", *DATA, "--schema", "w8a8_asym_pc", "--json")[1])
    (same,) = [
        one for one in tables if (one["backend"], one["schema"]) == ("ort-cpu", "w8a8_asym_pc")
    ]
    assert same["quantized"]["scores"] == lone["quantized"]["scores"]
    assert same["quantized"]["digests"] == lone["quantized"]["digests"]
    assert same["fp32"]["scores"] == lone["fp32"]["scores"]


def test_eval_of_several_says_which_cannot_run(refusing, qbench):
    several = ("--backend", "ort-cpu,refusing", "--schema", "w8a8_asym_pc")
    code, out, err = qbench("eval", "net.onnx", *DATA, *MINE, *several, "--json")
    assert code == 0, err
    ran, refused = json.loads(out)
    assert ran["quantized"]["scores"]
    assert refused["backend"] == "refusing"
    assert "found no kernel" in refused["error"]
    several = ("--backend", "refusing", "--schema", "w8a8_asym_pc,w8a8_asym_pt")
    code, _, err = qbench("eval", "net.onnx", *DATA, *MINE, *several)
    assert (code, len(err.splitlines())) == (2, 1)
    assert "found 2 cells, none of which can run" in err
    code, out, err = qbench("eval", "net.onnx", *DATA[:2], "--backend", "ort-cpu,nothing")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert "unknown backend 'nothing'" in err


def test_a_sweep_profiles_once_whatever_the_schemas_and_range_methods(
    blobs_files, qbench, monkeypatch
):
    from qbench.calibration.watch import Watch

    rows = []
    run = Watch.run

    def counting(self, feeds):
        rows.append(len(next(iter(feeds.values()))))
        return run(self, feeds)

    monkeypatch.setattr(Watch, "run", counting)
    schemas = "w8a8_asym_pc,w8a8_asym_pt_entropy,w8a8_sym_pc_mse,w4a8_asym_pc_percentile"
    code, out, err = qbench(
        "sweep", "net.onnx", *DATA, "--backend", "ort-cpu,ort-cpu-noopt", "--schema", schemas,
        "--json",
    )  # fmt: skip
    assert code == 0, err
    assert len(names(json.loads(out))) == 10
    with np.load("train.npz") as file:
        assert sum(rows) == len(file["x"] if "x" in file else file[file.files[0]])


@pytest.mark.slow
def test_mixtures_are_cells_and_files_that_eval_takes(blobs_files, qbench):
    command = (
        "sweep", "net.onnx", *DATA, "--backend", "ort-cpu-noopt", "--schema",
        "w4a8_asym_pc,w8a8_asym_pc", "--mixed", "2", "--write-mixed", "mixed", "--json",
    )  # fmt: skip
    chosen = ("--choose", "ort-cpu-noopt+w4a8_asym_pc_mixed2")
    code, out, err = qbench(*command, "--write-suite", "a/suites/best.qbench.toml", *chosen)
    assert code == 0, err
    written = [*Path("a/suites/schemas").iterdir()]
    assert [path.name for path in written] == ["w4a8_asym_pc_mixed2.toml"]
    assert written[0].read_text() == Path("mixed", written[0].name).read_text()
    cells = {cell["cell"]: cell for cell in json.loads(out)["cells"]}
    paths = sorted(Path("mixed").glob("*.toml"))
    assert [path.stem for path in paths] == ["w4a8_asym_pc_mixed1", "w4a8_asym_pc_mixed2"]
    texts = [path.read_text() for path in paths]
    for path in paths:
        evaluated = qbench("eval", "net.onnx", *DATA, "--backend", "ort-cpu-noopt", "--schema",
                           str(path), "--json")  # fmt: skip
        (top1, *_) = json.loads(evaluated[1])["quantized"]["scores"]
        cell = cells[f"ort-cpu-noopt+{path.stem}"]
        assert (top1["losses"], top1["gains"]) == (cell["losses"], cell["gains"])
    assert qbench(*command)[0] == 0
    assert [path.read_text() for path in paths] == texts


@pytest.mark.slow
def test_a_search_for_a_drop_measures_each_mixture_once(blobs_files, qbench):
    command = (
        "sweep", "net.onnx", *DATA, "--backend", "ort-cpu-noopt", "--schema",
        "w2a8_asym_pt,w8a8_asym_pc", "--mixed", "4", "--mixed-drop", "0.5", "--json",
    )  # fmt: skip
    code, out, err = qbench(*command)
    assert code == 0, err
    facts = json.loads(out)
    cells = {cell["schema"]: cell for cell in facts["cells"]}
    mixtures = [name for name in cells if "_mixed" in name]
    assert 1 <= len(mixtures) <= 4
    assert 100 * cells["w2a8_asym_pt"]["loss"] > 0.5
    best = facts["coarsest_within_drop"]
    assert f"the coarsest that loses at most 0.5: {best}\n" in err
    (found,) = (cell for cell in facts["cells"] if cell["cell"] == best)
    assert 100 * found["loss"] <= 0.5
    written = Path("sweep-net.jsonl").read_text().splitlines()[-len(cells) :]
    assert len({json.loads(line)["schema"] for line in written}) == len(cells)
    code, out, err = qbench(*command, "--resume")
    assert code == 0, err
    again = json.loads(out)
    assert again["coarsest_within_drop"] == best
    assert {cell["schema"] for cell in again["cells"] if cell["kept"]} == set(cells)


def test_a_search_measures_each_cell_once_whose_results_cannot_be_taken_again(
    blobs_files, qbench, monkeypatch
):
    from qbench.evaluation import SweepPlan

    monkeypatch.setattr(SweepPlan, "made", lambda plan: tuple({} for _ in plan.cells))
    code, _, err = qbench(
        "sweep", "net.onnx", *DATA, "--backend", "ort-cpu-noopt", "--schema",
        "w4a8_asym_pc,w8a8_asym_pc", "--mixed", "2", "--mixed-drop", "100",
    )  # fmt: skip
    assert code == 0, err
    written = Path("sweep-net.jsonl").read_text().splitlines()
    schemas = [json.loads(line).get("schema") for line in written]
    assert sorted(filter(None, schemas)) == ["fp32", "w4a8_asym_pc", "w8a8_asym_pc"]


def test_a_search_for_a_drop_needs_a_metric_with_a_loss(blobs_files, qbench):
    code, _, err = qbench(
        "sweep", "net.onnx", *DATA, "--backend", "ort-cpu-noopt", "--metrics", "sqnr", "--schema",
        "w4a8_asym_pc,w8a8_asym_pc", "--mixed", "2", "--mixed-drop", "1",
    )  # fmt: skip
    assert code == 2
    assert "--mixed-drop with 'sqnr', a distance to fp32" in err
    assert not Path("sweep-net.jsonl").exists()  # nothing was measured before


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (("--write-mixed", "mixed"), "--write-mixed without --mixed"),
        ((*DATA[2:], "--mixed", "-1"), "--mixed -1"),
        ((*DATA[2:], "--mixed", "0"), "--mixed 0"),
        (("--mixed", "2"), "--mixed without --calib"),
        (("--mixed-cost", "bytes"), "--mixed-cost without --mixed"),
        (("--mixed-drop", "1"), "--mixed-drop without --mixed"),
        (("--mixed-drop", "nan"), "--mixed-drop: found 'nan'; expected a number from 0 on"),
        (("--mixed-drop", "inf"), "--mixed-drop: found 'inf'; expected a number from 0 on"),
        (("--mixed-drop", "-1"), "--mixed-drop: found '-1'; expected a number from 0 on"),
        (("--mixed-drop", "one"), "--mixed-drop: found 'one'; expected a number from 0 on"),
        (
            (*DATA[2:], "--mixed", "2", "--mixed-drop", "1", "--budget", "1m"),
            "--mixed-drop with --budget",
        ),
    ],
)
def test_mixtures_that_make_no_sense_are_refused(blobs_files, qbench, options, found):
    code, _, err = qbench("sweep", "net.onnx", *DATA[:2], *options)
    assert code == 2
    assert found in err


def test_a_cell_in_which_nothing_is_quantized_is_on_no_front(blobs_files, qbench):
    words = ("--backend", "ort-cpu,integer-ideal", "--schema", "w8a8_asym_pt,wnvfp4_sym_b16")
    code, out, err = qbench("sweep", "net.onnx", *DATA, *words, "--json")
    assert code == 0, err
    cells = {one["cell"]: one for one in json.loads(out)["cells"]}
    refused = cells["ort-cpu+wnvfp4_sym_b16"]
    assert refused["state"] == "unsupported"
    assert refused["reason"].startswith("nothing is quantized")
    assert not refused["front"]
    assert cells["integer-ideal+wnvfp4_sym_b16"]["state"] == "measured"
