"""Detectors of a user: pictures in a frame, boxes out of outputs, labels of COCO's form."""

import copy
import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest
from detectors import FORMS, SIDE, write_detector, write_labels, write_pictures

from qbench.errors import InputError
from qbench.evaluation import build_subject, measure_cell
from qbench.storage import Cache
from qbench.subjects import (
    ClassNames,
    Corners,
    Dataset,
    Detection,
    Fit,
    FramedPicture,
    ReadyArray,
    dataset_from_text,
    model_from_file,
    prepare_samples,
    unframed,
)


class Outputs:
    """Gives what it holds, whatever it is fed."""

    def __init__(self, **outputs: object) -> None:
        self.outputs = {name: np.asarray(value, np.float32) for name, value in outputs.items()}

    def run(self, feeds: object) -> dict[str, np.ndarray]:
        return self.outputs


def samples(folder: Path, preprocess=None, count: int = 1, size: tuple[int, int] = (100, 50)):
    ids = tuple(f"s{i}" for i in range(count))
    wide, high = size
    data = Dataset(
        id="d",
        kind="picture",
        sample_ids=ids,
        sources=ids,
        labels=None,
        content=f"{size}",
        load=lambda index: np.zeros((high, wide, 3), np.uint8),
    )
    return prepare_samples(data, preprocess or FramedPicture(width=200, height=200), Cache(folder))


# ---- the frame


@pytest.mark.parametrize(
    ("fit", "frame"), [(Fit.LETTERBOX, [2, 2, 0, 50]), (Fit.STRETCH, [2, 4, 0, 0])]
)
def test_a_frame_says_where_its_picture_is(fit: Fit, frame: list[float]) -> None:
    preprocess = FramedPicture(width=200, height=200, fit=fit, divisor=1)
    picture = np.full((50, 100, 3), 200, np.uint8)
    prepared = preprocess.prepare(picture)
    assert prepared["frame"].tolist() == frame
    feed = preprocess.finish({name: one[None] for name, one in prepared.items()})
    assert {name: one.shape for name, one in feed.items()} == {"x": (1, 3, 200, 200)}
    rows = sorted({float(value) for value in feed["x"][0, 0, :, 100]})
    assert rows == ([114, 200] if fit is Fit.LETTERBOX else [200])
    corner = np.array([[frame[2], frame[3], frame[2] + 200, frame[3] + 50 * frame[1]]])
    assert unframed(corner, prepared["frame"]).tolist() == [[0, 0, 100, 50]]


def test_a_frame_of_one_pixel_is_the_least(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one pixel"):
        FramedPicture(width=0)


# ---- outputs

BOXES = [
    [[20, 70, 60, 110], [0, 50, 200, 150], [1, 1, 2, 2]]
]  # in a frame of 200: (10, 10, 30, 30) and the picture


@pytest.mark.parametrize(
    ("task", "outputs"),
    [
        (
            Detection(boxes="b", scores="s", classes="c"),
            {"b": BOXES, "s": [[0.25, 0.5, 0]], "c": [[3, 1, 0]]},
        ),
        (
            Detection(boxes="b", scores="s", classes="c", corners=Corners.XYWH),
            {"b": [[[20, 70, 40, 40], [0, 50, 200, 100]]], "s": [[0.25, 0.5]], "c": [[3, 1]]},
        ),
        (
            Detection(boxes="b", scores="s", classes="c", corners=Corners.CXCYWH, relative=True),
            {"b": [[[0.2, 0.45, 0.2, 0.2], [0.5, 0.5, 1, 0.5]]], "s": [[0.25, 0.5]], "c": [[3, 1]]},
        ),
        (
            Detection(boxes="b"),
            {"b": [[[20, 70, 60, 110, 0.25, 3], [0, 50, 200, 150, 0.5, 1], [-1] * 6]]},
        ),
        (Detection(boxes="b"), {"b": [[20, 70, 60, 110, 0.25, 3], [0, 50, 200, 150, 0.5, 1]]}),
    ],
)
def test_boxes_come_in_every_common_form(task: Detection, outputs: dict, tmp_path: Path) -> None:
    answers = task.answer({"model": Outputs(**outputs)}, samples(tmp_path))
    assert np.round(answers.corners / 256, 2).tolist() == [[[0, 0, 100, 50], [10, 10, 30, 30]]]
    assert (answers.scores.tolist(), answers.classes.tolist()) == ([[500_000, 250_000]], [[1, 3]])
    again = task.restored(answers.arrays())
    assert (again.digest, again.confident) == (answers.digest, 500_000)


@pytest.mark.parametrize(
    ("outputs", "found"),
    [
        (
            {"b": BOXES, "s": [[0.2, math.nan, 0]], "c": [[0, 0, 0]]},
            "NaN or Inf in boxes or scores",
        ),
        ({"b": [[[math.inf, 0, 1, 1]]], "s": [[0.2]], "c": [[0]]}, "NaN or Inf in boxes or scores"),
        ({"b": BOXES, "s": [[0.2, 7, 0]], "c": [[0, 0, 0]]}, "a score of 7"),
        (
            {"b": BOXES, "s": [[0.2, 0.3, 0]], "c": [[0, -1, 0]]},
            "a class that is below 0 or no number",
        ),
        (
            {"b": [[[9, 9, 3, 3], [0, 9, 9, 3]]], "s": [[0.2, 0.9]], "c": [[0, 0]]},
            "2 of 2 boxes with a negative size",
        ),
        (
            {"b": BOXES, "s": [[0.2, 0.3]], "c": [[0, 0, 0]]},
            "outputs of the shapes [(1, 3, 4), (1, 2), (1, 3)]",
        ),
        ({"b": BOXES, "s": [[0.2, 0.3, 0]]}, "the outputs ['b', 's']"),
    ],
)
def test_outputs_that_are_no_boxes_are_refused(outputs: dict, found: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        Detection(boxes="b", scores="s", classes="c").answer(
            {"model": Outputs(**outputs)}, samples(tmp_path)
        )
    assert error.value.found == found


def test_a_few_boxes_of_negative_size_count_as_boxes(tmp_path: Path) -> None:
    rows = [[[9, 9, 3, 3, 0.9, 0], [0, 0, 9, 9, 0.8, 0]]]
    assert (
        len(Detection(boxes="b").answer({"model": Outputs(b=rows)}, samples(tmp_path)).scores[0])
        == 2
    )


@pytest.mark.parametrize(("listed", "count"), [(None, 2), (3, 3)])
def test_confident_boxes_of_a_class_beyond_the_labels_are_refused(
    listed, count, tmp_path: Path
) -> None:
    labelled = dataclasses.replace(
        samples(tmp_path), classes=ClassNames({"cat": 0, "dog": 1}, listed)
    )

    def answer(number: int, score: float) -> object:
        return Detection(boxes="b").answer(
            {"model": Outputs(b=[[[0, 0, 9, 9, score, number]]])}, labelled
        )

    answer(count - 1, 0.9)
    answer(count, 0.1)
    with pytest.raises(InputError, match=rf"class {count}; expected classes from 0 to {count - 1}"):
        answer(count, 0.9)


def test_boxes_beyond_the_limits_are_left_out(tmp_path: Path) -> None:
    rows = [[[0, 0, 9, 9, score, 0] for score in (0.9, 0.1, 0.5, 0.0005)]]
    found = Detection(boxes="b", most=2).answer({"model": Outputs(b=rows)}, samples(tmp_path))
    assert found.scores.tolist() == [[900_000, 500_000]]


# ---- files of a user


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("detector")
    write_labels(made / "labels.json", write_pictures(made / "pics"))
    for form in FORMS:
        write_detector(made / f"{form}.onnx", form)
    write_detector(made / "off.onnx", shift=3)
    return made


@pytest.mark.parametrize("form", FORMS)
def test_a_detector_is_scored_by_cocos_labels(form: str, folder: Path) -> None:
    data = f"{folder}/pics?labels={folder}/labels.json&resize=64"
    subject = build_subject(str(folder / f"{form}.onnx"), data, None, (), None)
    measured = measure_cell(subject, "ort-cpu", None)
    assert {name: measured.score(name).value for name in ("box_map", "box_map50")} == {
        "box_map": 1,
        "box_map50": 1,
    }
    assert measured.score("agreement").value == 1


def test_a_detector_that_misses_by_pixels_loses_precision(folder: Path) -> None:
    data = f"{folder}/pics?labels={folder}/labels.json&resize=64"
    subject = build_subject(str(folder / "off.onnx"), data, None, ("box_map", "box_map50"), None)
    measured = measure_cell(subject, "ort-cpu", None)
    assert 0 < measured.score("box_map").value < measured.score("box_map50").value == 1


def test_pictures_of_other_sizes_are_framed_and_answered_in_their_own_pixels(
    folder: Path, tmp_path: Path
) -> None:
    write_labels(tmp_path / "wide.json", write_pictures(tmp_path / "pics", size=(128, 96)))
    data = f"{tmp_path}/pics?labels={tmp_path}/wide.json&resize=64&interpolation=nearest"
    subject = build_subject(str(folder / "three.onnx"), data, None, ("box_map50",), None)
    assert measure_cell(subject, "ort-cpu", None).score("box_map50").value == 1


def test_names_of_classes_are_numbered_by_a_list(folder: Path, tmp_path: Path) -> None:
    listed = tmp_path / "classes.txt"
    listed.write_text("sun\nlamp\n")
    labelled = f"{folder}/pics?labels={folder}/labels.json"
    assert {label[0, 4] for label in dataset_from_text(labelled)[0].labels} == {0}
    assert {
        label[0, 4] for label in dataset_from_text(f"{labelled}&classes={listed}")[0].labels
    } == {1}


def test_a_detector_without_labels_is_framed_too(folder: Path) -> None:
    data, preprocess = dataset_from_text(f"{folder}/pics?fit=stretch&resize=32")
    assert (data.labels, preprocess) == (None, FramedPicture(width=32, height=32, fit=Fit.STRETCH))


def edited(coco: dict, **changes: object) -> dict:
    made = copy.deepcopy(coco)
    for name, value in changes.items():
        where, _, key = name.partition("__")
        (made[where][0].__setitem__(key, value) if key else made.__setitem__(where, value))
    return made


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"annotations__image_id": 99}, "the picture 99"),
        ({"annotations__category_id": 99}, "the category 99"),
        ({"annotations__bbox": [1, 2, -3, 4]}, "a box of -3 × 4 pixels"),
        ({"annotations__bbox": [60, 0, 8, 4]}, "a box from (60, 0) to (68, 4)"),
        ({"annotations__bbox": [math.nan, 0, 8, 4]}, "NaN or Inf in the box [nan, 0, 8, 4]"),
        ({"annotations__bbox": [0, 8, 4]}, "the box [0, 8, 4]"),
        ({"images__file_name": "none.png"}, "no such picture"),
        ({"images__file_name": "../p1.png"}, "no name of a file in the folder"),
        ({"images__file_name": "p1.png"}, "'p1.png' twice"),
        ({"images__width": 65}, f"{SIDE} × {SIDE} pixels"),
        ({"annotations__id": 1}, "the annotation 1 twice"),
        ({"images__id": 11}, "6 of them with 5 different ids"),
        ({"images": 3}, "no list of objects 'images'"),
        ({"categories": []}, "0 of them with 0 different ids"),
    ],
)
def test_labels_that_do_not_fit_are_refused_in_one_sentence(
    changes: dict, found: str, folder: Path
) -> None:
    labels = folder / "broken.json"
    write_labels(labels, edited(json.loads((folder / "labels.json").read_text()), **changes))
    with pytest.raises(InputError) as error:
        dataset_from_text(f"{folder}/pics?labels={labels}")
    assert error.value.found == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("pics?labels=none.json", "No such file or directory"),
        ("pics?labels=masks&fit=stretch", "labels=masks with fit="),
        ("folder:none?labels=labels.json", "nothing at that path"),
        ("pics?labels=labels.json&crop=32", "crop for a detector"),
        (
            "pics?labels=labels.json&resize=0",
            "a frame has at least one pixel, mean and std are finite, and no divisor is 0",
        ),
        ("pics?labels=labels.json&fit=tall", "'tall'"),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    text: str, found: str, folder: Path, monkeypatch
) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(InputError) as error:
        dataset_from_text(text)
    assert error.value.found == found


def test_a_network_without_boxes_is_no_detector(folder: Path) -> None:
    with pytest.raises(InputError) as error:
        model_from_file(
            folder / "three.onnx", preprocess=FramedPicture(width=64, height=64), output="labels"
        )
    assert error.value.found == "the outputs boxes, scores, labels"
    assert not isinstance(
        model_from_file(folder / "three.onnx", preprocess=ReadyArray()).task, Detection
    )


def test_a_frame_of_another_size_than_the_input_is_refused(folder: Path) -> None:
    data = f"{folder}/pics?labels={folder}/labels.json&resize=32"
    with pytest.raises(InputError) as error:
        build_subject(str(folder / "three.onnx"), data, None, (), None)
    assert (error.value.found, error.value.remedy) == (
        "3×32×32 a sample for input 'x'",
        "Add ?resize=64 to the path.",
    )
