"""Boxes of text: out of maps that are drawn here, and of pages whose boxes are known."""

import math

import numpy as np
import pytest
from PIL import Image, ImageDraw

from qbench.backends import get_backend
from qbench.errors import InputError
from qbench.metrics import get_metric
from qbench.metrics.box_matching import areas_of, overlaps
from qbench.storage import Cache
from qbench.subjects import get_dataset, get_model, prepare_samples
from qbench_zoo.text_detection import (
    TextFinding,
    _pages,
    page_boxes,
    page_picture,
    text_boxes,
)


def drawn(
    *shapes: tuple[list[tuple[float, float]], float], size: tuple[int, int] = (120, 100)
) -> np.ndarray:
    """A map with filled polygons, each of one value."""
    picture = Image.new("F", size)
    for points, value in shapes:
        ImageDraw.Draw(picture).polygon(points, fill=value)
    return np.asarray(picture)


def rectangle(
    middle: tuple[float, float], wide: float, high: float, degrees: float = 0.0
) -> np.ndarray:
    angle = math.radians(degrees)
    turn = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
    corners = np.array([[-wide, -high], [wide, -high], [wide, high], [-wide, high]]) / 2
    return corners @ turn + middle


def test_a_core_grows_by_its_area_over_its_border() -> None:
    likely = np.zeros((100, 120), np.float32)
    likely[40:50, 20:60] = 0.8
    boxes, scores = text_boxes(likely)
    grown = 1.6 * 40 * 10 / (2 * (40 + 10))
    expected = [20 - grown, 40 - grown, 60 + grown, 50 + grown]
    corners = boxes.reshape(4, 2)
    np.testing.assert_allclose([*corners.min(axis=0), *corners.max(axis=0)], expected)
    np.testing.assert_allclose(scores, [0.8], rtol=1e-6)


@pytest.mark.parametrize("degrees", [0, 5, 30, 45, 80])
def test_a_turned_core_gives_a_turned_box(degrees: float) -> None:
    core = rectangle((300, 300), 400, 100, degrees)
    (box,), _ = text_boxes(drawn((list(map(tuple, core)), 0.9), size=(600, 600)))
    grown = 2 * 1.6 * 400 * 100 / (2 * (400 + 100))
    expected = rectangle((300.5, 300.5), 400 + grown, 100 + grown, degrees)
    assert overlaps(box[None], expected.reshape(1, 8), np.array([False]))[0] > 0.96


def test_cores_touch_at_their_corners_and_over_gaps_do_not() -> None:
    likely = np.zeros((60, 60), np.float32)
    likely[10:20, 10:20] = likely[20:30, 20:30] = 0.9
    assert len(text_boxes(likely)[0]) == 1
    likely[20] = 0
    assert len(text_boxes(likely)[0]) == 2
    ring = np.zeros((60, 60), np.float32)
    ring[10:50, 10:50] = 0.9
    ring[15:45, 15:45] = 0
    assert len(text_boxes(ring)[0]) == 1


@pytest.mark.parametrize("seed", range(5))
def test_cores_are_those_of_a_search_pixel_by_pixel(seed: int) -> None:
    mask = np.random.default_rng(seed).random((24, 31)) < 0.4
    left, found = {tuple(place) for place in np.argwhere(mask)}, 0
    while left:
        found, front = found + 1, [left.pop()]
        while front:
            y, x = front.pop()
            near = {(y + i, x + j) for i in (-1, 0, 1) for j in (-1, 0, 1)} & left
            left -= near
            front += near
    from qbench_zoo.text_detection import _cores

    assert int(_cores(mask)[3].max()) + 1 == found


def test_weak_and_thin_cores_are_no_text() -> None:
    likely = np.zeros((100, 100), np.float32)
    likely[10:20, 10:60] = 0.45  # weak
    likely[40:42, 10:60] = 0.9  # thin
    likely[60:70, 10:60] = 0.29  # no core
    assert [one.shape for one in text_boxes(likely)] == [(0, 8), (0,)]
    assert [one.shape for one in text_boxes(np.zeros((32, 32), np.float32))] == [(0, 8), (0,)]


class Gives:
    def __init__(self, output: np.ndarray) -> None:
        self.output = output

    def run(self, feeds: object) -> dict[str, np.ndarray]:
        return {"map": self.output}


@pytest.mark.slow
def test_boxes_lie_where_the_ink_is() -> None:
    for number in range(3):
        picture = page_picture(number)[..., 0].astype(float)
        boxes = page_boxes(number)
        inside = Image.new("L", picture.shape[::-1])
        for box in boxes:
            ImageDraw.Draw(inside).polygon(list(box), fill=1)
        within = np.asarray(inside, bool)
        dark = picture < picture[~within].min() - 1  # darker than any paper with its noise
        assert dark[within].mean() > 0.05
        assert not dark[~within].any()
        assert (areas_of(boxes) > 0).all()
    np.testing.assert_array_equal(page_picture(1), page_picture(1))


def test_the_pages_are_known_by_what_results_were_accepted_for() -> None:
    """Words of a docstring were part of it: wrapping them made the accepted results stale."""
    content = "0e130293ec6c945cba705ac87d1504f5c38256efe3457701aaa237b2afe8fb1b"
    assert _pages("pages", range(0)).content == content


@pytest.mark.slow
def test_what_the_network_finds() -> None:
    model, pages = get_model("ppocr_v6_det"), get_dataset("text_pages")
    assert sum(map(len, pages.labels)) == 1179
    samples = prepare_samples(pages, model.preprocess, Cache.default())
    with get_backend("ort-cpu").prepare(model.graphs["model"]()) as executor:
        answers = model.task.answer({"model": executor}, samples)
    for metric, expected in {"hmean": 0.990, "box_map": 0.550, "box_map_large": 0.839}.items():
        hits, out_of = get_metric(metric).count(answers, pages.labels, None).sums
        assert hits / out_of == pytest.approx(expected, abs=0.0101), (
            metric
        )  # another FreeType moves a line
    assert model.task.restored(answers.arrays()).digest == answers.digest
    with pytest.raises(InputError, match=r"found an output of shape \(1, 2\)"):
        TextFinding().answer({"model": Gives(np.zeros((1, 2)))}, samples)
