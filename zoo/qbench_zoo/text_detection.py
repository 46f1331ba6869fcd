"""A network that finds lines of text, and rendered pages whose boxes are known because they
were drawn there.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFilter

from qbench.errors import InputError
from qbench.metrics import BoxAnswers, box_labels
from qbench.storage import digest_plain
from qbench.subjects import (
    FRAME,
    GRAPH,
    Array,
    Dataset,
    FramedPicture,
    Pixels,
    Runner,
    Samples,
    ZooModel,
    restored_boxes,
    runner_named,
    unframed,
)
from qbench_zoo.packages import MATPLOTLIB, RAPIDOCR, WORDNET
from qbench_zoo.text_lines import drawing_font, unpacked_graph, written_texts

Points = npt.NDArray[np.float64]

# A map of how likely each pixel is in the core of a line of text → boxes.
#
#     core    pixels above 0.3 that touch each other, by sides or corners
#     box     the rectangle of least area around a core, moved outwards by A · 1.6 / L on every side
#             (A area, L length of its border), as the network is taught cores that were shrunk so
#     score   mean of the map over the core; boxes below 0.5 and those less than 5 pixels wide are
#             dropped
#
# Source: Liao et al., "Real-time scene text detection with differentiable binarization" (2020),
# section 3.4; the numbers are those that the package runs the network with.

_CORE, _SCORE, _GROWTH, _NARROWEST = 0.3, 0.5, 1.6, 5.0
_CORE_NARROWEST = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFinding:
    """One graph from pictures to maps (n, 1, H, W). ``batch``: pictures of a run."""

    batch: int = 4

    @property
    def usual_metrics(self) -> tuple[str, ...]:
        """The one that text detection is ranked by."""
        return ("hmean",)

    @property
    def name(self) -> str:
        """Every setting in one word."""
        return f"text finding(core={_CORE}, score={_SCORE}, growth={_GROWTH}, batch={self.batch})"

    @property
    def graphs(self) -> tuple[str, ...]:
        """The one graph."""
        return (GRAPH,)

    def answer(self, runners: Mapping[str, Runner], samples: Samples) -> BoxAnswers:
        """The quadrilaterals of every sample, in pixels of its picture, all of class 0.

        Raises:
            InputError: an output of another shape, or not finite (the sample is named).
        """
        run = runner_named(runners, GRAPH, self.name).run
        frames = samples.noted(FRAME)
        boxes: list[Points] = []
        scores: list[Points] = []
        for feeds in samples.batches(self.batch):
            shape = next(iter(feeds.values())).shape
            maps = np.asarray(next(iter(run(feeds).values())))
            ids = samples.ids[len(boxes) : len(boxes) + shape[0]]
            _check(maps, (shape[0], 1, *shape[2:]), ids, samples.data)
            for likely in maps[:, 0]:
                found, means = text_boxes(likely)
                boxes.append(found if frames is None else unframed(found, frames[len(boxes)]))
                scores.append(means)
        classes = [np.zeros(len(one), np.int64) for one in scores]
        return BoxAnswers.of(boxes, scores, classes, sides=8, confident=_SCORE)

    def restored(self, arrays: Mapping[str, Array]) -> BoxAnswers:
        """The answers whose ``arrays()`` these are."""
        return restored_boxes(arrays, _SCORE)


def _check(maps: Array, shape: tuple[int, ...], ids: Sequence[str], data: str) -> None:
    doing = f"Finding text in '{data}'"
    if maps.shape != shape:
        found, expected = f"an output of shape {maps.shape}", f"a map {shape}"
        raise InputError(
            doing,
            found=found,
            expected=expected,
            remedy="Choose a model that gives one map a picture.",
        )
    finite = np.isfinite(maps).all(axis=(1, 2, 3))
    if not finite.all():
        raise InputError(
            f"{doing}, sample '{ids[int(np.argmin(finite))]}'",
            found="NaN or Inf in the map",
            expected="finite numbers",
            remedy="Look for a kernel or a scale that overflows.",
        )


def text_boxes(likely: npt.NDArray[np.float32]) -> tuple[Points, Points]:
    """The boxes in a map (H, W), pixels being unit squares: corners (m, 8), and scores (m,)
    from 0 to 1.
    """
    boxes, scores = [np.zeros((0, 8))], [np.zeros(0)]
    rows, first, behind, core = _cores(likely > _CORE)
    sums = np.concatenate([[0.0], np.cumsum(likely, dtype=np.float64)])
    width = likely.shape[1]
    inside = sums[rows * width + behind] - sums[rows * width + first]
    for number in range(int(core.max(initial=-1)) + 1):
        runs = core == number
        sides = np.concatenate([first[runs], behind[runs]]).astype(np.float64)
        upper = np.concatenate([rows[runs]] * 2).astype(np.float64)
        corners = np.stack(
            [np.concatenate([sides, sides]), np.concatenate([upper, upper + 1])], axis=1
        )
        middle, axes, half = _smallest_rectangle(_hull(corners))
        score = inside[runs].sum() / (behind[runs] - first[runs]).sum()
        if 2 * half.min() < _CORE_NARROWEST or score < _SCORE:
            continue
        half = half + _GROWTH * 4 * half[0] * half[1] / (4 * half.sum())
        if 2 * half.min() < _NARROWEST:
            continue
        signs = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]])
        boxes.append((middle + (signs * half) @ axes).reshape(1, 8))
        scores.append(np.array([min(score, 1.0)]))
    return np.concatenate(boxes), np.concatenate(scores)


Places = npt.NDArray[np.intp]


def _cores(mask: npt.NDArray[np.bool_]) -> tuple[Places, Places, Places, Places]:
    """The runs of true pixels of ``mask`` (H, W): row, first column, column behind it, and the
    number of the core.
    """
    padded = np.zeros((mask.shape[0], mask.shape[1] + 2), np.int8)
    padded[:, 1:-1] = mask
    steps = np.diff(padded, axis=1)
    rows, first = np.nonzero(steps == 1)
    behind = np.nonzero(steps == -1)[1]
    # a run touches those of the next row that begin before its end and end behind its beginning,
    # corners included
    wide = mask.shape[1] + 2
    begin = np.searchsorted(rows * wide + behind, (rows + 1) * wide + first)
    end = np.searchsorted(rows * wide + first, (rows + 1) * wide + behind, side="right")
    upper = np.repeat(np.arange(len(rows)), np.maximum(end - begin, 0))
    lower = np.concatenate(
        [np.arange(b, e) for b, e in zip(begin, end, strict=True)] or [np.zeros(0, np.intp)]
    )
    core = np.arange(len(rows))
    while len(upper):  # each run takes the least number that it touches, until none changes
        least = np.minimum(core[upper], core[lower])
        before = core.copy()
        np.minimum.at(core, upper, least)
        np.minimum.at(core, lower, least)
        core = core[core]
        if (core == before).all():
            break
    return rows, first, behind, np.unique(core, return_inverse=True)[1]


def _hull(points: Points) -> Points:
    """The corners of the convex hull of ``points`` (m, 2), in their order around it (Andrew's
    monotone chain).
    """
    ordered = np.unique(points, axis=0)
    halves: list[list[Points]] = []
    for half in (ordered, ordered[::-1]):
        chain: list[Points] = []
        for point in half:
            while len(chain) > 1 and _turn(chain[-2], chain[-1], point) <= 0:
                chain.pop()
            chain.append(point)
        halves.append(chain[:-1])
    return np.array(halves[0] + halves[1])


def _turn(a: Points, b: Points, c: Points) -> float:
    return float((b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]))


def _smallest_rectangle(hull: Points) -> tuple[Points, Points, Points]:
    """The rectangle of least area around ``hull`` (k, 2): middle (2,), axes (2, 2), half sides
    (2,).

    One of its sides lies on one of the hull's (Freeman and Shapira, 1975).
    """
    edges = np.roll(hull, -1, axis=0) - hull
    along = edges / np.hypot(edges[:, 0], edges[:, 1])[:, None]
    axes = np.stack([along, np.stack([-along[:, 1], along[:, 0]], axis=1)], axis=1)  # (k, 2, 2)
    spread = axes @ hull.T  # (k, 2, points)
    low, high = spread.min(axis=2), spread.max(axis=2)
    best = int(np.argmin((high - low).prod(axis=1)))
    return (low[best] + high[best]) / 2 @ axes[best], axes[best], (high[best] - low[best]) / 2


# The network of the package, which takes pictures of any size that 32 divides, blue first.

_DETECTOR = "rapidocr/models/PP-OCRv6_det_small.onnx"
_HALF = (0.5, 0.5, 0.5)


def ppocr_detector() -> ZooModel:
    """PP-OCRv6's small detector of lines of text."""
    return ZooModel(
        id="ppocr_v6_det",
        graphs={"model": partial(unpacked_graph, RAPIDOCR, _DETECTOR)},
        preprocess=FramedPicture(
            width=WIDTH, height=HEIGHT, mean=_HALF, std=_HALF, blue_first=True
        ),
        task=TextFinding(),
        origin=f"{RAPIDOCR.requirement} (Apache-2.0)",
    )


# Pages of WordNet's definitions in DejaVu. Every choice is that of a generator seeded with the
# page's number.
#
#     page    640 × 480; a headline of 30 to 36 pixels, then rows of one or two pieces of one to six
#             words, of 12 to 24 pixels, turned by up to 3° together, a blur of up to 0.8 pixels,
#             noise of up to 25 levels
#     label   each piece as wide as its letters advance and an eighth of their size on both sides,
#             as high as the font from ascent to descent, turned likewise

HEIGHT, WIDTH = 640, 480
PAGES, PAGES_CALIBRATION = 60, 16
_FACES = ("DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSerif")
_MARGIN = 40


def text_pages() -> Dataset:
    """60 pages with the box of every piece of text."""
    return _pages("text_pages", range(PAGES))


def text_pages_calibration() -> Dataset:
    """16 other pages."""
    return _pages("text_pages_calibration", range(PAGES, PAGES + PAGES_CALIBRATION))


@dataclass(frozen=True, slots=True)
class _Piece:
    text: str
    face: str
    size: int
    left: int
    top: int


def _page(number: int) -> tuple[list[_Piece], float, np.random.Generator]:
    """The pieces of a page, how many degrees it is turned, and the generator of the rest."""
    random = np.random.default_rng([number, 3])
    texts = written_texts()
    words = iter(
        " ".join(texts[number * len(texts) // (PAGES + PAGES_CALIBRATION) :][:120]).split()
    )
    face = str(random.choice(_FACES))
    pieces, top = [], _MARGIN
    sizes = [int(random.integers(30, 37)), *(int(random.integers(12, 25)) for _ in range(40))]
    for row, size in enumerate(sizes):
        if top + size > HEIGHT - _MARGIN:
            break
        left = _MARGIN + (0 if row == 0 else int(random.integers(0, 60)))
        for _ in range(1 if row == 0 else int(random.integers(1, 3))):
            wanted = 6 if row == 0 else int(random.integers(1, 7))
            chosen: list[str] = []
            while len(chosen) < wanted:
                word = next(words)
                if left + _width([*chosen, word], face, size) > WIDTH - _MARGIN:
                    break
                chosen.append(word)
            if not chosen:
                break
            pieces.append(_Piece(" ".join(chosen), face, size, left, top))
            left += _width(chosen, face, size) + 3 * size
        top += 2 * size
    return pieces, float(random.uniform(-3, 3)), random


def _width(words: Sequence[str], face: str, size: int) -> int:
    return math.ceil(drawing_font(face, size).getlength(" ".join(words)))


def page_boxes(number: int) -> Points:
    """The corners of the pieces of page ``number``: (m, 8) pixels."""
    pieces, degrees, _ = _page(number)
    boxes = []
    for piece in pieces:
        font, edge = drawing_font(piece.face, piece.size), piece.size / 8
        left, right = piece.left - edge, piece.left + font.getlength(piece.text) + edge
        top, bottom = piece.top, piece.top + sum(font.getmetrics())
        boxes.append([left, top, right, top, right, bottom, left, bottom])
    middle, angle = np.array([WIDTH / 2, HEIGHT / 2]), math.radians(degrees)
    turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    return np.asarray(((np.array(boxes).reshape(-1, 4, 2) - middle) @ turn + middle).reshape(-1, 8))


def page_picture(number: int) -> Pixels:
    """Page ``number``: (640, 480, 3) uint8."""
    pieces, degrees, random = _page(number)
    paper, ink = int(random.integers(190, 256)), int(random.integers(0, 110))
    page = Image.new("L", (WIDTH, HEIGHT), paper)
    draw = ImageDraw.Draw(page)
    for piece in pieces:
        draw.text(
            (piece.left, piece.top), piece.text, fill=ink, font=drawing_font(piece.face, piece.size)
        )
    page = page.rotate(degrees, Image.Resampling.BICUBIC, fillcolor=paper)
    page = page.filter(ImageFilter.GaussianBlur(float(random.uniform(0, 0.8))))
    grey = np.asarray(page, np.float64) + random.normal(
        0, float(random.uniform(0, 25)), (HEIGHT, WIDTH)
    )
    rounded = np.clip(np.rint(grey), 0, 255).astype(np.uint8)
    return np.repeat(rounded[..., None], 3, axis=2)


_DRAWN = (
    "A network that finds lines of text, and rendered pages whose boxes are known because "
    "they were drawn there."
)
"""To be changed with what is drawn, and with nothing else: data are known by it, and results were
accepted for them.
"""


def _pages(name: str, numbers: range) -> Dataset:
    def load(index: int) -> Any:  # noqa: ANN401 - pixels
        return page_picture(numbers[index])

    boxes = [page_boxes(number) for number in numbers]
    return Dataset(
        id=name,
        kind="picture",
        sample_ids=tuple(f"page{number:02}" for number in numbers),
        sources=tuple(f"drawn:page{number:02}" for number in numbers),
        labels=tuple(box_labels(one, np.zeros(len(one)), sides=8) for one in boxes),
        content=digest_plain([MATPLOTLIB.sha256, WORDNET.sha256, _DRAWN]),
        load=load,
    )
