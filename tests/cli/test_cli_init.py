"""``qbench init`` writes a bench that runs, or nothing."""

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from PIL import Image

from qbench import save_model

RNG = np.random.default_rng(3)
BASE = {"conftest.py", "pytest.ini", ".gitignore", "suites/mine.qbench.toml"}


def network(
    path: Path,
    inputs: dict[str, int],
    outputs: tuple[int | str, ...],
    shape: tuple[int | str, ...] = (),
):
    """A Gemm for each input of so many numbers, added."""
    values, nodes, weights = [], [], []
    for name, width in inputs.items():
        x = ir.Value(
            name=name, shape=ir.Shape(shape or ["n", width]), type=ir.TensorType(ir.DataType.FLOAT)
        )
        tensor = ir.tensor(
            RNG.normal(size=(width, math.prod(outputs[1:]))).astype(np.float32), name=f"w_{name}"
        )
        weight = ir.Value(
            name=f"w_{name}",
            const_value=tensor,
            shape=tensor.shape,
            type=ir.TensorType(tensor.dtype),
        )
        flat = ir.node("Flatten", [x], name=f"flat_{name}")
        node = ir.node("MatMul", [flat.outputs[0], weight], name=f"of_{name}")
        values.append(x)
        weights.append(weight)
        nodes += [flat, node]
    last = nodes[-1].outputs[0]
    if len(inputs) > 1:
        nodes.append(ir.node("Add", [nodes[1].outputs[0], nodes[3].outputs[0]], name="sum"))
        last = nodes[-1].outputs[0]
    if len(outputs) > 2:
        target = ir.tensor(
            np.array([0 if isinstance(one, str) else one for one in outputs]), name="shape"
        )
        to = ir.Value(
            name="shape", const_value=target, shape=target.shape, type=ir.TensorType(target.dtype)
        )
        weights.append(to)
        nodes.append(ir.node("Reshape", [last, to], name="reshape"))
        last = nodes[-1].outputs[0]
    last.name, last.shape = "out", ir.Shape(outputs)
    last.type = ir.TensorType(ir.DataType.FLOAT)
    save_model(
        ir.Model(
            ir.Graph(
                values,
                [last],
                nodes=nodes,
                opset_imports={"": 21},
                initializers=weights,
                name="net",
            ),
            ir_version=10,
        ),
        path,
    )


def rows(count: int, width: int) -> np.ndarray:
    return RNG.normal(size=(count, width)).astype(np.float32)


def classifier(folder: Path) -> tuple[str, ...]:
    network(folder / "Net 1.onnx", {"input": 12}, ("n", 3))
    np.savez(folder / "val.npz", x=rows(80, 12), y=RNG.integers(0, 3, 80))
    return ("--model", "Net 1.onnx", "--data", "val.npz")


def two_inputs(folder: Path) -> tuple[str, ...]:
    network(folder / 'two "{2}.onnx', {"left": 8, "right": 4}, ("n", 3))
    np.savez(folder / "val.npz", left=rows(40, 8), right=rows(40, 4))
    np.savez(folder / 'calib "{1}".npz', left=rows(20, 8), right=rows(20, 4))
    return ("--model", 'two "{2}.onnx', "--data", "val.npz", "--calib", 'calib "{1}".npz')


def no_classes(folder: Path) -> tuple[str, ...]:
    network(folder / "boxes.onnx", {"x": 8}, ("n", 2, 4, 3), ())
    np.savez(folder / "val.npz", x=rows(40, 8))
    return ("--model", "boxes.onnx", "--data", "val.npz")


def pictures(folder: Path) -> tuple[str, ...]:
    network(folder / "3d.onnx", {"pixels": 3 * 8 * 8}, ("n", 2), ("n", 3, 8, 8))
    for index in range(24):
        path = folder / "photos" / f"class{index % 2}" / f"{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(RNG.integers(0, 255, (9, 9, 3), dtype=np.uint8)).save(path)
    (folder / "labels.txt").write_text("class0\nclass1\n")
    return ("--model", "3d.onnx", "--data", "photos?resize=8&classes=labels.txt&crop=8")


def lines(folder: Path) -> tuple[str, ...]:
    network(folder / "net.onnx", {"x": 12}, ("n", 3))
    samples = [{"x": row.tolist(), "label": i % 3} for i, row in enumerate(rows(20, 12))]
    (folder / "val.jsonl").write_text("".join(json.dumps(one) + "\n" for one in samples))
    return ("--model", "net.onnx", "--data", "val.jsonl")


def masks(folder: Path) -> tuple[str, ...]:
    network(folder / "net.onnx", {"x": 3 * 8 * 8}, ("n", 2, 8, 8), ("n", 3, 8, 8))
    lines = ["sample,source"]
    for name, shape, top in (("photos", (8, 8, 3), 255), ("masks", (8, 8), 2)):
        (folder / name).mkdir()
        for index in range(8):
            Image.fromarray(RNG.integers(0, top, shape, dtype=np.uint8)).save(
                folder / name / f"{index}.png"
            )
    lines += [f"{index}.png,{index // 2}" for index in range(8)]
    (folder / "sources.csv").write_text("\n".join(lines))
    return (
        "--model",
        "net.onnx",
        "--data",
        "photos?resize=8&crop=8&labels=masks&sources=sources.csv",
    )


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("QBENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path


def written(folder: Path) -> set[str]:
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file()
        and path.suffix not in (".onnx", ".npz", ".png", ".txt", ".jsonl", ".csv")
        and ".git/" not in path.as_posix()
    }


@pytest.mark.slow_but(1)
@pytest.mark.parametrize(
    ("make", "metrics"),
    [
        (classifier, {"top1", "agreement"}),
        (two_inputs, {"agreement"}),
        (no_classes, {"sqnr", "cosine", "max_error"}),
        (pictures, {"top1", "agreement"}),
        (lines, {"top1", "agreement"}),
        (masks, {"miou", "pixel_accuracy", "agreement", "sqnr"}),
    ],
)
def test_what_is_written_for_a_file_measures_every_cell(qbench, folder, monkeypatch, make, metrics):
    given = make(folder)
    (folder / "bench").mkdir()
    code, out, err = qbench("init", "bench", *given, "--json")
    assert code == 0, err
    told = json.loads(out)
    assert {f"bench/{name}" for name in BASE} <= written(folder) == set(told["written"])
    folder = folder / "bench"
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "conftest", raising=False)
    code, out, err = qbench("run", "suites/mine.qbench.toml", "--json")
    cells = json.loads(out)["cells"]
    assert len(cells) == 6, err
    assert {cell["outcome"] for cell in cells} == {"missing"}, cells[0][
        "headline"
    ]  # measured, and nothing is accepted yet
    assert set(cells[-1]["metrics"]) == metrics


def test_the_digits_need_no_file(qbench, folder):
    code, out, _ = qbench("init", "bench", "--suite", "first", "--json")
    told = json.loads(out)
    assert code == 0
    assert told["next"][0] == "cd bench"
    assert "bench/suites/first.qbench.toml" in told["written"]
    assert (
        qbench("doctor", "bench/suites/first.qbench.toml", "--json")[0] == 1
    )  # it has no baseline yet


def test_nothing_is_written_over(qbench, folder):
    (folder / "suites").mkdir()
    (folder / "suites/mine.qbench.toml").write_text("mine")
    code, out, err = qbench("init")
    assert (code, out) == (2, "")
    assert "found 'suites/mine.qbench.toml';" in err
    assert written(folder) == {"suites/mine.qbench.toml"}


def test_what_is_there_already_is_kept_where_it_can_be(qbench, folder):
    (folder / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    (folder / ".gitignore").write_text("reports/*\n__pycache__/\n")
    code, out, _ = qbench("init", "--json", "--package", "0.1.0")
    assert code == 0
    first, second = json.loads(out)["notes"]
    assert "pyproject.toml" in first
    assert "!reports/history/annotations.toml" in second
    assert not (folder / "pytest.ini").exists()
    assert (folder / ".gitignore").read_text() == "reports/*\n__pycache__/\n"


def test_the_baselines_and_annotations_are_for_git(qbench, folder):
    assert qbench("init")[0] == 0
    for name in (
        "reports/history/run.jsonl",
        "reports/index.html",
        "reports/history/annotations.toml",
        "baselines/a.json",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")
    subprocess.run(["git", "init", "-q"], check=True)
    command = ["git", "ls-files", "--others", "--exclude-standard"]
    listed = set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    assert {"baselines/a.json", "reports/history/annotations.toml"} <= listed
    assert not listed & {"reports/history/run.jsonl", "reports/index.html"}


def test_workflows_alone_below_a_root_are_refused_with_the_place(qbench, folder):
    (folder / ".git").mkdir()
    (folder / "below").mkdir()
    code, _, told = qbench("init", "below", "--ci", "github", "--package", "pytest-qbench==0.1.0")
    assert code == 2
    assert "found a folder below the root of a repository" in told
    assert "--package" not in told


def test_workflows_are_written_where_github_reads_them(qbench, folder):
    subprocess.run(["git", "init", "-q"], check=True)
    assert qbench("init", "below", "--package", "0.1.0")[0] == 0
    assert not (folder / "below/.github").exists()
    code, out, _ = qbench("init", "--json", "--package", "0.1.0")
    assert code == 0
    assert {f".github/workflows/{name}" for name in ("nightly.yml", "pull-request.yml")} <= set(
        json.loads(out)["written"]
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model", "Net 1.onnx"], "--model without --data"),
        (["--data", "val.npz"], "no --model"),
        (["--model", "Net 1.onnx", "--data", "digits_test"], "the name 'digits_test'"),
        (
            ["--model", "Net 1.onnx", "--data", "val.npz", "--calib", "val.npz"],
            "expected calibration samples that are",
        ),
        (["--model", "Net 1.onnx", "--data", "twice.npz"], "twice; expected"),
        (["--model", "Net 1.onnx", "--data", "few.npz"], "found 3 samples"),
        (["--model", "Net 1.onnx", "--data", "other.npz"], "a, b"),
        (["--model", "none.onnx", "--data", "val.npz"], "none.onnx"),
        (["--suite", "My Suite"], "--suite 'My Suite'"),
    ],
)
def test_bad_input_is_one_sentence_and_nothing_is_written(qbench, folder, arguments, words):
    classifier(folder)
    x = rows(8, 12)
    np.savez(folder / "twice.npz", x=np.concatenate([x, x[::-1]]))
    np.savez(folder / "few.npz", x=x[:3])
    np.savez(folder / "other.npz", a=x, b=x)
    code, out, err = qbench("init", *arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1
    assert not written(folder)


def test_a_file_that_cannot_be_written_leaves_none(qbench, folder, monkeypatch):
    from qbench.cli import init

    files = {
        folder / "a/one.txt": "1",
        folder / "a/b/two.txt": "2",
        folder / "a/one.txt/three.txt": "3",
    }
    monkeypatch.setattr(init, "_files", lambda *_: (files, []))
    code, out, err = qbench("init")
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert not list(folder.iterdir())
