"""Grey pictures of 48 × 48 pixels whose right answer is known by construction: clothes on
photographs, and noise.

Scenes: two pictures of Fashion-MNIST, at random places of a piece of a photograph, the second over
the first. A pixel of a garment is its class + 1 where the garment's picture is ≥ 32, ignored (255)
where it is 1 … 31, as on edges, and transparent where it is 0; the photograph is class 0. Points:
scenes of one garment, and where it is. Noise: pieces of photographs, and the same pieces with
Gaussian noise of 25 grey values added, rounded and clipped to 0 … 255.

A piece is 96 × 96 pixels of a photograph in grey, (77·R + 150·G + 29·B) / 256, each four of them
averaged. Scored pieces are of other photographs than those that networks learned from and that
calibrate; scored clothes are of Fashion-MNIST's test part. ``sources`` are the photographs.
"""

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.subjects import Array
from qbench_zoo.fashion import fashion_arrays
from qbench_zoo.photos import CALIBRATION_PHOTOS, SCORED_PHOTOS, Photo

SIDE = 48
CLASSES = 11
"""Of pixels: the photograph, and ten kinds of clothes."""
IGNORED = 255
POINTS = 5
"""Keypoints of a garment."""

_GARMENT = 28
_SOLID = 32
_NOISE = 25.0

Grey = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class GreyPixels:
    """A picture (1, 48, 48) uint8 → ``x`` (1, 48, 48) float32 of 0 … 1."""

    @property
    def name(self) -> str:
        """Every setting in one line."""
        return "48 grey pixels / 255"

    @property
    def kinds(self) -> tuple[str, ...]:
        """Pictures of 48 × 48 in one channel."""
        return ("grey48",)

    def prepare(self, sample: Any) -> dict[str, Array]:  # noqa: ANN401 - a picture, as ``kinds`` says
        """As it is."""
        return {"x": np.asarray(sample, np.uint8)}

    def finish(self, batch: dict[str, Array]) -> dict[str, Array]:
        """Pixels as shares of the brightest."""
        return {"x": batch["x"].astype(np.float32) / np.float32(255)}


@functools.cache
def grey_photos(*, test: bool) -> tuple[tuple[str, Grey], ...]:
    """Source and grey pixels (H, W) of each photograph of one part, half as large as the file.

    Raises:
        UnavailableError: a package that has one cannot be downloaded.
    """
    return tuple(
        (photo.source, _grey(photo)) for photo in (SCORED_PHOTOS if test else CALIBRATION_PHOTOS)
    )


def _grey(photo: Photo) -> Grey:
    pixels = photo.pixels().astype(np.uint32)
    grey = (pixels @ np.array([77, 150, 29], np.uint32)) >> 8
    height, width = (size // 2 * 2 for size in grey.shape)
    blocks = grey[:height, :width].reshape(height // 2, 2, width // 2, 2)
    return np.asarray((blocks.sum(axis=(1, 3)) + 2) >> 2, np.uint8)


def draw_pieces(count: int, seed: int, *, test: bool) -> tuple[Grey, tuple[str, ...]]:
    """``count`` pieces (count, 48, 48) of photographs, as many of each, and their sources."""
    photos = grey_photos(test=test)
    draw = np.random.default_rng(seed)
    pieces = np.zeros((count, SIDE, SIDE), np.uint8)
    for index, piece in enumerate(pieces):
        grey = photos[index % len(photos)][1]
        top, left = (int(draw.integers(0, size - SIDE + 1)) for size in grey.shape)
        piece[:] = grey[top : top + SIDE, left : left + SIDE]
    return pieces, tuple(photos[index % len(photos)][0] for index in range(count))


def draw_scenes(
    count: int, seed: int, *, test: bool, clothes: int = 2
) -> tuple[Grey, Grey, tuple[str, ...]]:
    """Pictures (count, 48, 48) with so many ``clothes`` in each, their masks of the same shape,
    and the sources.
    """
    pictures, sources = draw_pieces(count, seed, test=test)
    masks = np.zeros_like(pictures)
    garments, classes = fashion_arrays(test=test)
    draw = np.random.default_rng([seed, 1])
    count *= clothes
    is_enough = count <= len(classes)
    chosen = (
        draw.permutation(len(classes))[:count]
        if is_enough
        else draw.integers(0, len(classes), count)
    )
    for place, garment in enumerate(chosen):
        top, left = draw.integers(0, SIDE - _GARMENT + 1, 2)
        window = (place // clothes, slice(top, top + _GARMENT), slice(left, left + _GARMENT))
        pixels = garments[garment, 0]
        pictures[window] = np.where(pixels > 0, pixels, pictures[window])
        seen = np.where(pixels >= _SOLID, classes[garment] + 1, IGNORED)
        masks[window] = np.where(pixels > 0, seen, masks[window])
    return pictures, masks, sources


def draw_pointed(
    count: int, seed: int, *, test: bool
) -> tuple[Grey, npt.NDArray[np.float64], tuple[str, ...]]:
    """Pictures (count, 48, 48) of one garment, its keypoints and area (count, 3 · POINTS + 1),
    and the sources.

    The middles of the four sides of the box around its solid pixels, and the middle of the box: x,
    y and 2 (seen) of each, in pixels; then the number of solid pixels.
    """
    pictures, masks, sources = draw_scenes(count, seed, test=test, clothes=1)
    labels = np.zeros((count, 3 * POINTS + 1))
    for label, mask in zip(labels, masks, strict=True):
        rows, columns = np.nonzero((mask > 0) & (mask != IGNORED))
        left, right, top, bottom = columns.min(), columns.max(), rows.min(), rows.max()
        x, y = (left + right) / 2, (top + bottom) / 2
        for index, point in enumerate(((left, y), (right, y), (x, top), (x, bottom), (x, y))):
            label[3 * index : 3 * index + 3] = (*point, 2)
        label[-1] = len(rows)
    return pictures, labels, sources


def draw_noisy(count: int, seed: int, *, test: bool) -> tuple[Grey, Grey, tuple[str, ...]]:
    """Noisy pictures (count, 48, 48), the clean ones, and the sources."""
    clean, sources = draw_pieces(count, seed, test=test)
    noise = np.random.default_rng([seed, 2]).standard_normal(clean.shape) * _NOISE
    return np.asarray(np.clip(np.rint(clean + noise), 0, 255), np.uint8), clean, sources
