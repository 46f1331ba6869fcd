"""Labels of a user that are arrays: masks of a folder, values of a table,
and what of them is refused.
"""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from qbench.cli import main
from qbench.errors import InputError
from qbench.subjects import Dataset, Picture, dataset_from_text, model_from_file

SIDE = 12


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four pictures, red where their masks have class 1, in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("QBENCH_CACHE", str(tmp_path / "cache"))
    draw = np.random.default_rng(1)
    for folder in ("photos", "masks"):
        (tmp_path / folder).mkdir()
    for index in range(4):
        mask = (draw.random((SIDE, SIDE)) < 0.4).astype(np.uint8)
        pixels = np.where(mask[:, :, None] == 1, [250, 10, 10], [10, 10, 250]).astype(np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"photos/{index}.png")
        mask[0, :2] = 255
        Image.fromarray(mask).save(tmp_path / f"masks/{index}.png")
    return tmp_path


def save_net(outputs: int, *, pooled: bool = False) -> str:
    """A 1×1 convolution of the colours: a score of blue and a score of red,
    for each pixel or as means.
    """
    weight = np.array([[-1.0, 0, 1], [1, 0, -1], [0, 0, 0]][:outputs], np.float32).reshape(
        outputs, 3, 1, 1
    )
    nodes = [helper.make_node("Conv", ["x", "w"], ["scores"])]
    shape: list[str | int] = ["N", outputs, SIDE, SIDE]
    if pooled:
        nodes += [
            helper.make_node("GlobalAveragePool", ["scores"], ["means"]),
            helper.make_node("Flatten", ["means"], ["values"]),
        ]
        shape = ["N", outputs]
    result = helper.make_tensor_value_info(
        "values" if pooled else "scores", TensorProto.FLOAT, shape
    )
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, SIDE, SIDE])
    graph = helper.make_graph(nodes, "net", [x], [result], [numpy_helper.from_array(weight, "w")])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9),
        "net.onnx",
    )
    return "net.onnx"


SIZE = f"resize={SIDE}&crop={SIDE}"


def scores(capsys: pytest.CaptureFixture[str]) -> dict[str, float]:
    found = json.loads(capsys.readouterr().out)["fp32"]["scores"]
    return {one["metric"]: one["hits"] / one["out_of"] for one in found}


def test_a_folder_of_masks_scores_a_segmenter(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(
            [
                "eval",
                save_net(2),
                "--data",
                f"photos?{SIZE}&labels=masks",
                "--backend",
                "ort-cpu",
                "--json",
            ]
        )
        == 0
    )
    found = scores(capsys)
    assert (found["miou"], found["pixel_accuracy"]) == (1.0, 1.0)


def test_masks_go_the_way_of_their_pictures() -> None:
    (Path("photos") / "4.png").unlink(missing_ok=True)
    data, _ = dataset_from_text("photos?resize=24&crop=12&labels=masks")
    mask = np.asarray(Image.open("masks/0.png"))
    doubled = mask.repeat(2, axis=0).repeat(2, axis=1)
    assert data.labels is not None
    assert np.array_equal(data.labels[0], doubled[6:18, 6:18])
    wide = Picture(resize=24, crop=12).mask(mask.astype(np.uint16) + np.uint16(300))
    assert wide.dtype == np.uint16
    assert np.array_equal(wide, doubled[6:18, 6:18].astype(np.uint16) + 300)


@pytest.mark.parametrize("form", ["table", "lines", "arrays"])
def test_values_score_a_regressor(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    values = [0.25, -1.5, 3.0, 2.0]
    address = f"photos?{SIZE}&labels=values.csv"
    if form == "table":
        lines = [f"{index}.png,{value},{-value}" for index, value in enumerate(values)]
        Path("values.csv").write_text("\n".join(["sample,red,blue", *reversed(lines)]))
    elif form == "lines":
        rows = [
            {"path": f"photos/{index}.png", "label": [value, -value]}
            for index, value in enumerate(values)
        ]
        Path("values.jsonl").write_text("\n".join(map(json.dumps, rows)))
        address = f"values.jsonl?{SIZE}"
    else:
        x = np.zeros((4, 3, SIDE, SIDE), np.float32)
        np.savez("values.npz", x=x, y=np.array([[value, -value] for value in values]))
        address = "values.npz"
    data, _ = dataset_from_text(address)
    assert [each.tolist() for each in data.labels or ()] == [[value, -value] for value in values]
    assert (
        main(
            ["eval", save_net(2, pooled=True), "--data", address, "--backend", "ort-cpu", "--json"]
        )
        == 0
    )
    assert {"mae", "rmse"} <= set(scores(capsys))


def test_the_interval_of_an_error_has_its_unit_and_its_sign(
    capsys: pytest.CaptureFixture[str],
) -> None:
    draw = np.random.default_rng(2)
    x = draw.random((40, 3, SIDE, SIDE)).astype(np.float32)
    means = x.mean(axis=(2, 3))
    right = np.stack(
        [means[:, 2] - means[:, 0], means[:, 0] - means[:, 2]], axis=1
    )  # what the network gives in float
    np.savez("values.npz", x=x, y=right)
    np.savez("others.npz", x=draw.random((16, 3, SIDE, SIDE)).astype(np.float32))
    given = [
        "--data",
        "values.npz",
        "--calib",
        "others.npz",
        "--backend",
        "ort-cpu",
        "--schema",
        "w8a8_asym_pc",
    ]
    assert main(["eval", save_net(2, pooled=True), *given, "--metrics", "mae"]) == 0
    (row,) = [
        line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("mae")
    ]
    change, low, _, high, *_ = row[4:]
    assert row[8:10] == ["(90", "%)"]
    low, change, high = (float(each.replace("−", "-")) for each in (low, change, high))
    assert 0 < low < change < high  # the error grows


def test_one_value_may_be_written_as_a_number_with_or_without_a_point() -> None:
    rows = [
        {"path": f"photos/{index}.png", "label": label} for index, label in enumerate((1, 2.5, 3))
    ]
    Path("values.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert [each.tolist() for each in dataset_from_text("values.jsonl")[0].labels or ()] == [
        [1.0],
        [2.5],
        [3.0],
    ]


def test_the_task_is_what_the_labels_ask_for() -> None:
    path, x = save_net(2), np.zeros((2, 3, SIDE, SIDE), np.float32)
    labels = {
        "segmentation": np.zeros((2, SIDE, SIDE), np.uint8),
        "restoration": np.zeros((2, 3, SIDE, SIDE), np.uint8),
        "regression": np.zeros((2, 5)),
        "whole": np.array([0, 1]),
    }
    for name, y in labels.items():
        task = model_from_file(path, data=Dataset.from_arrays("d", x, y)).task
        assert task.name.startswith(name)


def unlabel() -> None:
    Path("masks/2.png").unlink()


def colour() -> None:
    Image.fromarray(np.zeros((SIDE, SIDE, 4), np.uint8)).save("masks/1.png")


def break_file() -> None:
    Path("masks/1.png").write_bytes(b"no picture")


def table(*lines: str) -> Callable[[], None]:
    return lambda: Path("values.csv").write_text("\n".join(["sample,value", *lines])) and None


ALL = tuple(f"{index}.png,1" for index in range(4))


@pytest.mark.parametrize(
    ("change", "labels", "sentence"),
    [
        (unlabel, "masks", r"sample '2.png' in 'masks': found no file '2.png'; expected a mask"),
        (colour, "masks", r"sample '1.png' in 'masks': found a picture of mode 'RGBA'"),
        (break_file, "masks", r"sample '1.png' in 'masks': found a file that is no picture"),
        (table(), "nothing", r"labels in 'nothing': found nothing at that path"),
        (table(*ALL[:3]), "values.csv", r"found no line for 1 sample, such as '3.png'"),
        (table(*ALL, "5.png,1"), "values.csv", r"line 6: found no sample '5.png'"),
        (table(*ALL, ALL[0]), "values.csv", r"line 6: found '0.png' again"),
        (
            table(*ALL[:3], "3.png,nan"),
            "values.csv",
            r"line 5: found 'nan', which is no finite number",
        ),
        (
            table(*ALL[:3], "3.png,1,2"),
            "values.csv",
            r"sample '3.png': found 2 values; expected 1, as of the first",
        ),
        (table(), "", r"setting 'labels' in .*: found ''; expected a folder of masks"),
    ],
)
def test_a_label_that_cannot_be_used_is_named(
    change: Callable[[], None], labels: str, sentence: str
) -> None:
    change()
    with pytest.raises(InputError, match=sentence):
        dataset_from_text(f"photos?{SIZE}&labels={labels}")


@pytest.mark.parametrize("label", ["NaN", "[1, NaN]", "[]", "true", "-1", '[1, "a"]'])
def test_a_label_of_a_line_that_is_no_value_is_refused(label: str) -> None:
    Path("values.jsonl").write_text(f'{{"path": "photos/0.png", "label": {label}}}')
    with pytest.raises(InputError, match="a class from 0 on, the name of one, or finite values"):
        dataset_from_text("values.jsonl")


def test_lines_of_another_number_of_values_are_refused() -> None:
    Path("values.jsonl").write_text(
        '{"path": "photos/0.png", "label": [1]}\n{"path": "photos/1.png", "label": [1, 2]}'
    )
    with pytest.raises(
        InputError, match=r"line 2 .*found the path of a file and 2 values as label"
    ):
        dataset_from_text("values.jsonl")


def test_a_mask_of_another_size_or_with_an_unknown_class_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for mask, sentence in (
        (
            np.zeros((SIDE, SIDE + 1), np.uint8),
            f"sample 'x[1]' with that of the model: found {SIDE}×{SIDE + 1} pixels",
        ),
        (
            np.full((SIDE, SIDE), 7, np.uint8),
            "sample 'x[1]' with that of the model: found class 7; expected classes from 0 to 1",
        ),
    ):
        np.savez("data.npz", x=np.zeros((2, 3, SIDE, SIDE), np.float32))
        Path("labels").mkdir(exist_ok=True)
        np.save("labels/x[0].npy", np.zeros((SIDE, SIDE), np.uint8))
        np.save("labels/x[1].npy", mask)
        assert (
            main(["eval", save_net(2), "--data", "data.npz?labels=labels", "--backend", "ort-cpu"])
            == 2
        )
        assert sentence in capsys.readouterr().err


def test_labels_of_an_array_that_are_not_finite_are_refused() -> None:
    with pytest.raises(InputError, match="NaN or Inf in row 1"):
        Dataset.from_arrays("d", np.zeros((2, 3)), np.array([[1.0], [np.nan]]))


def test_a_mask_of_another_size_than_its_picture_is_refused() -> None:
    Image.fromarray(np.zeros((SIDE // 2, SIDE), np.uint8)).save("masks/2.png")
    with pytest.raises(
        InputError, match=f"a mask of {SIDE} × {SIDE // 2} pixels; expected {SIDE} × {SIDE}"
    ) as caught:
        dataset_from_text(f"photos?{SIZE}&labels=masks")
    assert "'2.png'" in str(caught.value)
