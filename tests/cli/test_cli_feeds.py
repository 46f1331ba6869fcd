"""Models of several inputs and of other outputs than classes: every verb feeds arrays by the
names of the inputs.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

AXES = ("--backend", "ort-cpu-precise", "--schema", "w8a8_asym_pc", "--calib")
"""The precise mode: without VNNI ONNX Runtime saturates pairs of products,
which loses dB and names a suspect.
"""


def saved(path, nodes, inputs, output, weights):
    graph = helper.make_graph(
        nodes,
        "net",
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", *shape])
            for name, shape in inputs.items()
        ],
        [helper.make_tensor_value_info(output[0], TensorProto.FLOAT, ["n", *output[1]])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path
    )


@pytest.fixture
def two_inputs(project):
    """two.onnx with inputs image (n, 8) and meta (n, 3), and its labelled data:
    the class is the fp32 answer.
    """
    rng = np.random.default_rng(0)
    weights = {
        name: rng.normal(size=shape).astype(np.float32)
        for name, shape in {"a": (8, 16), "b": (3, 16), "c": (16, 4)}.items()
    }
    nodes = [
        helper.make_node("MatMul", ["image", "a"], ["u"], name="first"),
        helper.make_node("MatMul", ["meta", "b"], ["v"], name="second"),
        helper.make_node("Add", ["u", "v"], ["w"], name="add"),
        helper.make_node("Relu", ["w"], ["r"], name="relu"),
        helper.make_node("MatMul", ["r", "c"], ["scores"], name="last"),
    ]
    saved("two.onnx", nodes, {"image": [8], "meta": [3]}, ("scores", [4]), weights)
    for name, count in (("val", 100), ("cal", 32)):
        image, meta = rng.normal(size=(count, 8)), rng.normal(size=(count, 3))
        y = (np.maximum(image @ weights["a"] + meta @ weights["b"], 0) @ weights["c"]).argmax(1)
        np.savez(f"{name}.npz", image=image, meta=meta, y=y)
        np.savez(f"bare_{name}.npz", image=image, meta=meta)
    return rng


@pytest.fixture
def maps(project):
    """maps.onnx, whose output is (n, 6, 8, 8) and no scores of classes, and data without labels."""
    rng = np.random.default_rng(1)
    nodes = [
        helper.make_node("Conv", ["img", "w"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["boxes"], name="relu"),
    ]
    weights = {"w": rng.normal(size=(6, 3, 3, 3)).astype(np.float32)}
    saved("maps.onnx", nodes, {"img": [3, 8, 8]}, ("boxes", [6, 8, 8]), weights)
    for name in ("val", "cal"):
        np.savez(f"{name}.npz", x=rng.normal(size=(24, 3, 8, 8)))


def test_two_inputs_are_scored_against_their_labels(two_inputs, qbench):
    code, out, err = qbench("eval", "two.onnx", "--data", "val.npz", *AXES, "cal.npz", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert found["samples"] == 100
    top1 = {score["metric"]: score for score in found["fp32"]["scores"]}["top1"]
    assert (top1["hits"], top1["out_of"]) == (100, 100)


@pytest.mark.slow
@pytest.mark.parametrize("data", ["val", "bare_val"])
def test_every_verb_takes_two_inputs_with_and_without_labels(two_inputs, qbench, data):
    assert qbench("profile", "two.onnx", "--data", "bare_cal.npz", "-o", "p.json")[0] == 0
    code, _, err = qbench(
        "quantize", "two.onnx", "--profile", "p.json", "--schema", "w8a8_asym_pc", "-o", "q.onnx"
    )
    assert code == 0, err
    given = ("--data", f"{data}.npz")
    assert qbench("lint", "two.onnx", *given, "--schema", "w8a8_asym_pc")[0] == 0
    assert qbench("localize", "two.onnx", *given, *AXES, "cal.npz")[0] == 0
    assert qbench("diff", "two.onnx", *given, "--right", "backend=ort-cpu-noopt")[0] in (0, 1)
    assert (
        qbench("rewrite", "q.onnx", "--policy", "exact", "-o", "r.onnx", "--check", *given)[0] == 0
    )


def test_of_several_outputs_the_one_that_is_compared_is_named(words, maps, qbench):
    model = onnx.load("maps.onnx")
    model.graph.output.append(helper.make_tensor_value_info("c", TensorProto.FLOAT, ["n", 6, 8, 8]))
    onnx.save(model, "maps.onnx")
    given = ("eval", "maps.onnx", "--data", "val.npz", *AXES, "cal.npz")
    words(qbench(*given)[2])
    assert "compared: output" not in qbench(*given, "--output", "c")[2]


@pytest.mark.slow
def test_outputs_that_are_no_classes_are_compared_as_numbers(maps, qbench):
    code, out, err = qbench(
        "eval", "maps.onnx", "--data", "val.npz", *AXES, "cal.npz", "--output", "boxes", "--json"
    )
    assert code == 0, err
    scores = {score["metric"]: score["value"] for score in json.loads(out)["quantized"]["scores"]}
    assert scores.keys() == {"sqnr", "cosine", "max_error"}
    assert scores["sqnr"] > 30
    assert scores["cosine"] > 0.999
    assert 0 < scores["max_error"] < 1
    assert qbench("localize", "maps.onnx", "--data", "val.npz", *AXES, "cal.npz")[0] == 0
    assert (
        qbench(
            "diff",
            "maps.onnx",
            "--data",
            "val.npz",
            "--right",
            "schema=w8a8_asym_pc",
            "--calib",
            "cal.npz",
        )[0]
        == 1
    )


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        (
            {"image": (9, 8), "other": (9, 3)},
            "image, other; expected one for each input of the graph: image, meta",
        ),
        (
            {"x": (9, 8)},
            "found the arrays x; expected one for each input of the graph: image, meta",
        ),
        ({"image": (9, 8), "meta": (8, 3)}, "9 rows in 'image', 8 rows in 'meta'"),
    ],
)
def test_arrays_that_do_not_fit_are_one_sentence(two_inputs, qbench, arrays, says):
    np.savez("bad.npz", **{name: np.zeros(shape, np.float32) for name, shape in arrays.items()})
    code, out, err = qbench("eval", "two.onnx", "--data", "bad.npz")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert says in err


@pytest.fixture
def folders(project):
    """tiny.onnx, which takes pictures of 4 × 4,
    and four class folders that its outputs are the classes of.
    """
    rng = np.random.default_rng(2)
    nodes = [
        helper.make_node("Flatten", ["img"], ["flat"], name="flat"),
        helper.make_node("MatMul", ["flat", "w"], ["scores"], name="last"),
    ]
    saved(
        "tiny.onnx",
        nodes,
        {"img": [3, 4, 4]},
        ("scores", [4]),
        {"w": rng.normal(size=(48, 4)).astype(np.float32)},
    )
    for part in ("val", "cal"):
        for name in ("one", "two", "class10", "class9"):
            for place in range(3):
                path = project / part / name / f"{place}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(rng.integers(0, 255, (4, 4, 3), np.uint8)).save(path)
    return project


SIZES = "?resize=4&crop=4"
MAPPING = "'folder:val' has 4 classes: class10=0, class9=1, one=2, two=3"


@pytest.mark.slow_but(2)
@pytest.mark.parametrize("verb", ["eval", "profile", "lint", "localize", "diff"])
def test_every_verb_prints_once_how_folders_are_numbered(folders, qbench, verb):
    more = {
        "eval": (),
        "profile": ("-o", "p.json"),
        "lint": ("--schema", "w8a8_asym_pc"),
        "localize": ("--schema", "w8a8_asym_pc", "--calib", f"cal{SIZES}"),
        "diff": ("--right", "backend=ort-cpu-noopt"),
    }[verb]
    code, out, err = qbench(verb, "tiny.onnx", "--data", f"val{SIZES}", *more)
    assert code == 0, err
    assert (out + err).count(MAPPING) == 1


def test_folders_that_are_not_the_outputs_are_doubted_or_refused(words, folders, qbench):
    (folders / "labels.txt").write_text("one\ntwo\nclass9\nclass10\n")
    code, out, err = qbench(
        "eval", "tiny.onnx", "--data", f"folder:val{SIZES}&classes=labels.txt", "--json"
    )
    assert (code, json.loads(out)["samples"]) == (0, 12)
    assert "one=0, two=1, class9=2, class10=3" in err
    shutil.rmtree(folders / "val" / "one")
    code, _, err = qbench("eval", "tiny.onnx", "--data", f"val{SIZES}")
    assert (
        code,
        "3 classes are counted in the order of their names, and the model has 4" in err,
    ) == (0, True)
    for name in ("owl", "zoo"):
        shutil.copytree(folders / "val" / "two", folders / "val" / name)
    code, out, err = qbench("eval", "tiny.onnx", "--data", f"val{SIZES}")
    assert (code, out) == (2, "")
    words(err)


CONFTEST = f"""
from dataclasses import replace
from qbench import Extension
from qbench.subjects import dataset_from_text, model_from_file

def net():
    return model_from_file("tiny.onnx", preprocess=dataset_from_text("val{SIZES}")[1])

def data(name):
    return lambda: replace(dataset_from_text(name + "{SIZES}")[0], id=name)

def pytest_qbench_extension(config):
    return Extension(name="own", models={{"tiny": net}},
                     datasets={{"val": data("val"), "cal": data("cal")}})
"""
SUITE = """
[suite]
backends = ["ort-cpu"]
schemas = ["w8a8_asym_pt", "w8a8_asym_pc"]
[[model]]
id = "tiny"
data = "val"
calibration = { data = "cal", count = 12 }
metrics = ["top1"]
"""


@pytest.mark.slow
@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_a_suite_notes_once_how_folders_are_numbered(folders, workers):
    (folders / "conftest.py").write_text(CONFTEST)
    (folders / "pytest.ini").write_text("[pytest]\n")
    (folders / "suites" / "own.qbench.toml").write_text(SUITE)
    shutil.rmtree(folders / "val" / "two")
    command = [sys.executable, "-m", "pytest", "suites/own.qbench.toml", *workers]
    found = subprocess.run(
        [*command, "--qbench-accept-fp32", "--qbench-accept=new"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stdout
    (path,) = (folders / "reports" / "history").glob("*.jsonl")
    notes = [
        line["text"]
        for line in map(json.loads, path.read_text().splitlines())
        if line["type"] == "note"
    ]
    assert notes[0] == "'val' has 3 classes: class10=0, class9=1, one=2"
    assert [
        note.startswith("3 classes are counted in the order of their names") for note in notes
    ] == [False, True]


def test_pictures_of_another_size_name_the_setting(words, folders, qbench):
    code, out, err = qbench("eval", "tiny.onnx", "--data", "val")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    words(err)


def test_a_folder_without_class_folders_says_so(folders, qbench):
    code, out, err = qbench("eval", "tiny.onnx", "--data", f"val/one{SIZES}")
    assert code == 0, err
    assert "no class folders found in 'one'" in out


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        (
            {"img": np.zeros((3, 3, 4, 4), np.int64)},
            "found int64 for input 'img'; expected float32",
        ),
        ({"img": np.zeros((3, 4, 4, 3))}, "found 4×4×3 a sample for input 'img'; expected 3×4×4"),
        ({"img": np.zeros((3, 1, 3, 4, 4))}, "Save each sample without the axis of the batch"),
        (
            {"x": np.zeros((3, 3, 4, 4)), "y": np.zeros(4, int)},
            "found shape (4,) of int64; expected shape (3,)",
        ),
        (
            {"img": np.zeros((3, 3, 4, 4)), "page": np.array(["a", "b", "c"])},
            "'?sources=page'",
        ),
    ],
)
def test_arrays_of_other_shapes_and_types_are_one_sentence(folders, qbench, arrays, says):
    np.savez("bad.npz", **arrays)
    for verb, more in (("eval", ()), ("profile", ("-o", "p.json"))):
        code, out, err = qbench(verb, "tiny.onnx", "--data", "bad.npz", *more)
        assert (code, out, len(err.splitlines())) == (2, "", 1)
        assert says in err
    assert not (folders / "p.json").exists()


@pytest.mark.slow
def test_a_folder_of_samples_and_a_list_of_them_give_what_the_whole_array_gives(
    two_inputs, qbench, tmp_path
):
    whole = np.load("val.npz")
    (tmp_path / "dir").mkdir()
    rows = []
    for place in range(len(whole["y"])):
        row = {name: whole[name][place].astype(np.float32) for name in ("image", "meta")}
        np.savez(tmp_path / "dir" / f"{place:03}.npz", **row, y=whole["y"][place])
        np.save(tmp_path / "dir" / f"{place:03}.npy", row["image"])
        named = {"image": f"dir/{place:03}.npy", "meta": whole["meta"][place].tolist()}
        rows.append(json.dumps(named | {"label": int(whole["y"][place])}))
    (tmp_path / "val.jsonl").write_text("\n".join(rows))
    found = []
    for data in ("val.npz", "dir", "val.jsonl"):
        code, out, err = qbench("eval", "two.onnx", "--data", data, *AXES, "cal.npz", "--json")
        assert code == 0, err
        table = json.loads(out)
        found.append([table[side]["scores"] for side in ("fp32", "quantized")])
    assert found[0] == found[1] == found[2]


@pytest.mark.slow
def test_a_model_that_came_quantized_is_called_so_and_is_not_quantized_again(
    words, two_inputs, qbench
):
    assert qbench("profile", "two.onnx", "--data", "bare_cal.npz", "-o", "p.json")[0] == 0
    assert (
        qbench(
            "quantize",
            "two.onnx",
            "--profile",
            "p.json",
            "--schema",
            "w8a8_asym_pc",
            "-o",
            "q.onnx",
        )[0]
        == 0
    )
    code, out, err = qbench("eval", "q.onnx", "--data", "val.npz", "--json")
    assert code == 0, err
    table = json.loads(out)
    assert table["fp32"] is None
    assert [score["metric"] for score in table["quantized"]["scores"]] == [
        "top1",
        "top5",
        "agreement",
    ]
    assert "fp32" not in qbench("eval", "q.onnx", "--data", "val.npz")[1]
    code, out, err = qbench("quantize", "q.onnx", "--schema", "w8_sym_pt", "-o", "again.onnx")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    words(err)
    assert not Path("again.onnx").exists()


def test_calibration_samples_that_do_not_fit_are_named_before_anything_runs(
    words, two_inputs, qbench
):
    np.savez("other.npz", image=np.zeros((4, 8)))
    code, out, err = qbench("eval", "two.onnx", "--data", "val.npz", *AXES, "other.npz")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    words(err)


def test_an_output_that_the_graph_lacks_is_named(words, maps, qbench):
    code, _, err = qbench("eval", "maps.onnx", "--data", "val.npz", "--output", "scores")
    assert code == 2
    words(err)


def test_arrays_in_memory_and_a_file_make_a_model_of_a_suite(two_inputs, tmp_path):
    from qbench.subjects import Classification, Dataset, WholeOutput, model_from_file

    data = Dataset.from_arrays(
        "mine", {"image": np.zeros((4, 8)), "meta": np.ones((4, 3), np.float32)}, [0, 1, 2, 3]
    )
    assert (len(data), data.kind, data.labels) == (4, "array", ((0,), (1,), (2,), (3,)))
    assert {name: (one.shape, one.dtype) for name, one in data.load(2).items()} == {
        "image": ((8,), np.float32),
        "meta": ((3,), np.float32),
    }
    assert len(set(data.sources)) == 1  # equal rows are one source
    model = model_from_file("two.onnx", name="mine", data=data)
    assert (model.id, model.task) == ("mine", Classification())
    assert model_from_file("two.onnx", task=WholeOutput()).task == WholeOutput()


@pytest.mark.slow_but(1)
@pytest.mark.parametrize(
    ("form", "shared", "verb"),
    [("folder", 0, "eval"), ("folder", 12, "localize"), ("jsonl", 1, "eval")],
)
def test_pictures_that_are_scored_and_calibrated_on_as_other_files_are_noted(
    folders, qbench, form, shared, verb
):
    scored = sorted(Path("val").rglob("*.png"))
    for place, path in enumerate(scored):
        found = Image.open(path if place < shared else Path("cal", *path.parts[1:]))
        copy = Path("again", path.parts[1], f"copy{place}.bmp")
        copy.parent.mkdir(parents=True, exist_ok=True)
        found.save(copy)
    lines = [json.dumps({"path": str(path)}) for path in sorted(Path("again").rglob("*.bmp"))]
    Path("again.jsonl").write_text("\n".join(lines) + "\n")
    calibration = "again" if form == "folder" else "again.jsonl"
    code, _, err = qbench(
        verb, "tiny.onnx", "--data", f"val{SIZES}", *AXES, f"{calibration}{SIZES}"
    )
    assert code == 0, err
    assert (f"{shared} of 12 scored samples" in err) == bool(shared)
    assert err.count("the content of calibration samples of") == min(shared, 1)


@pytest.mark.parametrize(
    ("rows", "distinct"), [(1, "1 distinct content"), (99, "99 distinct contents")]
)
def test_rows_that_are_copies_are_noted(two_inputs, qbench, rows, distinct):
    with np.load("val.npz") as file:
        np.savez(
            "copies.npz", **{name: array[np.arange(100) % rows] for name, array in file.items()}
        )
    code, _, err = qbench("eval", "two.onnx", "--data", "copies.npz")
    assert code == 0, err
    assert f"100 samples, {distinct} " in err
