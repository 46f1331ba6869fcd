"""Pictures of text whose transcript is known because we wrote it: hard single lines, and pages turned four ways.

The words are WordNet's definitions, the letters DejaVu Sans out of a pinned package, every choice a generator's that is
seeded with the sample's number. Pillow draws: its version is part of the key that prepared samples are kept by.

    line    30 to 45 letters less a word cut off, 11 to 14 pixels, turned by up to 2°, a blur of up to 1.2 pixels, noise
            of up to 30 levels
    page    24 lines of 14 to 20 pixels on a sheet of 600 × 800, turned by 0, 90, 180 or 270 degrees clockwise
"""

import functools
import io
import zipfile
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from qbench.metrics import points_of
from qbench.storage import digest_plain
from qbench.zoo.assets import fetch_package
from qbench.zoo.dataset import Dataset
from qbench.zoo.packages import MATPLOTLIB, WORDNET
from qbench.zoo.pictures import Pixels
from qbench.zoo.wordnet import nouns

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
    font = _font(_FACES[int(random.integers(len(_FACES)))], int(random.integers(11, 15)))
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
    font = _font(_FACES[int(random.integers(len(_FACES)))], int(random.integers(14, 21)))
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


@functools.cache
def _font(face: str, size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(io.BytesIO(_face(face)), size, layout_engine=ImageFont.Layout.BASIC)


@functools.cache
def _face(name: str) -> bytes:
    with zipfile.ZipFile(fetch_package(MATPLOTLIB)) as archive:
        return archive.read(f"{_FOLDER}/{name}.ttf")


@functools.cache
def _texts() -> tuple[str, ...]:
    """Definitions of ASCII letters and signs alone, in the order of the file."""
    return tuple(gloss.definition for gloss in nouns() if gloss.definition.isascii())


def _line_text(number: int) -> str:
    """The beginning of a definition, ended at a word."""
    texts, random = [text for text in _texts() if len(text) >= _LONGEST], np.random.default_rng([number, 2])
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
    texts = _texts()

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
    return digest_plain([MATPLOTLIB.sha256, WORDNET.sha256, __doc__])
