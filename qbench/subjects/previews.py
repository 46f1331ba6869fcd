"""What a raw sample looks like, small: a picture, a text, a row of values, the course of a sound.

It goes by the value and not by the name of its kind, so that samples of any reader have a preview.
"""

import io
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from qbench.number_text import counted
from qbench.storage import MOST_PREVIEW_BYTES, PREVIEW_SIDE, Preview

if TYPE_CHECKING:
    from PIL.Image import Image

_TEXT = 400
"""Characters of a text, and bytes of a file, that are shown."""
_ROW = 24
"""Numbers of a row of values; more are a course."""
_LEAST = 4
"""Pixels of the shorter side of what is shown as a picture."""
_DARK = 64
"""The largest grey of a picture that is too dark to be seen, such as one of 0 to 16."""
_COURSE = (192, 48)
"""Pixels of the picture of a course."""
_GREY = 128
"""Readable on a light and on a dark page."""
_QUALITIES = (80, 60, 40)
"""Of JPEG, as tried one after the other; below the last the picture is halved."""


def preview_of(sample: object) -> Preview:
    """``sample`` in small."""
    if isinstance(sample, str):
        return Preview(text=_cut(sample))
    if isinstance(sample, bytes | bytearray | memoryview):
        return _of_bytes(bytes(sample))
    if isinstance(sample, Mapping):
        return _of_several(dict(sample))
    if isinstance(sample, tuple | list):
        if sample and all(isinstance(one, int | float) for one in sample):
            return _of_array(np.asarray(sample))
        return _of_several({str(at): one for at, one in enumerate(sample, 1)})
    if is_dataclass(sample) and not isinstance(sample, type):
        held = {each.name: getattr(sample, each.name) for each in fields(sample)}
        return _of_several(held)
    if isinstance(sample, np.ndarray | np.generic | int | float):
        return _of_array(np.asarray(sample))
    return Preview(text=f"a {type(sample).__name__}")


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT else f"{text[:_TEXT]}…"


def _of_bytes(content: bytes) -> Preview:
    begin = content[:_TEXT].decode("utf-8", "replace")
    return Preview(text=f"{counted(len(content), 'byte')}: {begin}{'…' * (len(content) > _TEXT)}")


def _of_several(parts: Mapping[str, Any]) -> Preview:
    """Parts of one sample: their texts, and the first picture."""
    found = {name: preview_of(one) for name, one in parts.items()}
    if len(found) == 1:
        return next(iter(found.values()))
    first = next((one for one in found.values() if one.picture), Preview(text=""))
    texts = (f"{name}: {one.text}" for name, one in found.items())
    return Preview(
        text=_cut("; ".join(texts)), picture=first.picture, is_enlarged=first.is_enlarged
    )


def _of_array(values: npt.NDArray[Any]) -> Preview:
    if values.dtype.kind not in "biuf":
        return Preview(text=_cut(" ".join(map(str, values.ravel()[:_ROW].tolist()))))
    pixels = _pixels(values)
    if pixels is not None:
        height, width = pixels.shape[:2]
        text = f"{width} × {height} pixels"
        picture = _drawn(pixels)
        return Preview(
            text=text, picture=picture, is_enlarged=max(height, width) < PREVIEW_SIDE // 2
        )
    numbers = values.ravel()
    if numbers.size <= _ROW:
        return Preview(text=", ".join(f"{one:.4g}" for one in numbers.tolist()))
    shape = " × ".join(map(str, values.shape))
    text = f"{shape} numbers from {numbers.min():.4g} to {numbers.max():.4g}"
    is_course = values.size == max(values.shape) and bool(np.isfinite(numbers).all())
    return Preview(text=text, picture=_course(numbers) if is_course else b"")


def _pixels(values: npt.NDArray[Any]) -> npt.NDArray[np.uint8] | None:
    """(H, W) or (H, W, 3) of what may be a picture; numbers of another range are spread over all
    greys. None: it is none.
    """
    if values.dtype.kind == "b":
        return None
    if values.ndim == 3 and values.shape[0] in (1, 3) and values.shape[2] not in (1, 3):
        values = np.moveaxis(values, 0, 2)
    if values.ndim == 3 and values.shape[2] == 1:
        values = values[:, :, 0]
    is_grey, is_colour = values.ndim == 2, values.ndim == 3 and values.shape[2] == 3
    if not (is_grey or is_colour) or min(values.shape[:2]) < _LEAST:
        return None
    if values.dtype == np.uint8 and (is_colour or values.max() >= _DARK):
        return values
    low, high = float(values.min()), float(values.max())
    if not np.isfinite([low, high]).all():
        return None
    spread = (values.astype(np.float64) - low) * (255 / max(high - low, 1e-30))
    return np.rint(spread).astype(np.uint8)


def _drawn(pixels: npt.NDArray[np.uint8]) -> bytes:
    """A file of ``pixels``: small ones as PNG, which keeps each pixel."""
    from PIL import Image

    image = Image.fromarray(np.ascontiguousarray(pixels))
    if max(image.size) <= PREVIEW_SIDE // 2:
        drawn = _file(image, format="PNG", optimize=True)
        if len(drawn) <= MOST_PREVIEW_BYTES:
            return drawn
    image.thumbnail((PREVIEW_SIDE, PREVIEW_SIDE))
    while True:
        for quality in _QUALITIES:
            drawn = _file(image, format="JPEG", quality=quality, optimize=True)
            if len(drawn) <= MOST_PREVIEW_BYTES or max(image.size) <= _LEAST:
                return drawn
        image.thumbnail((max(image.width // 2, 1), max(image.height // 2, 1)))


def _file(image: "Image", **how: Any) -> bytes:  # noqa: ANN401 - settings of Pillow
    buffer = io.BytesIO()
    image.save(buffer, **how)
    return buffer.getvalue()


def _course(numbers: npt.NDArray[Any]) -> bytes:
    """The least and greatest number of each of many short spans, as a PNG without background."""
    from PIL import Image

    width, height = _COURSE
    spans = np.array_split(numbers.astype(np.float64), min(width, numbers.size))
    lows, highs = (np.array([pick(one) for one in spans]) for pick in (np.min, np.max))
    low, high = lows.min(), highs.max()
    scale = (height - 1) / max(high - low, 1e-30)
    ink = np.zeros((height, len(spans)), np.uint8)
    for column, (first, last) in enumerate(zip(lows, highs, strict=True)):
        top, bottom = (round((high - one) * scale) for one in (last, first))
        ink[top : bottom + 1, column] = 255
    drawn = Image.fromarray(np.stack([np.full_like(ink, _GREY), ink], axis=2), "LA")
    return _file(drawn, format="PNG", optimize=True)
