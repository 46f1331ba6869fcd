"""Fashion-MNIST: clothes in 28 × 28 grey pixels, ten classes, and two networks trained here.

Xiao, Rasul and Vollgraf (2017): 60,000 pictures to learn from, 10,000 to be scored on. Every 60th
of the first calibrates, 1,000 in all, none of which is scored. x = pixel / 255.
"""

import gzip
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.errors import StoreError, UnavailableError
from qbench.graph import load_model
from qbench.storage import digest_file
from qbench.subjects import Array, Classification, Dataset, ZooModel, open_member
from qbench_zoo.packages import FASHION_MNIST

PREACT_SHA256 = "6c33e98f0790e1b009b8920b600c91659b5e24d67aed5dc93ad0c68a1a57c282"
MOBILE_SHA256 = "a412c8b7a9a47740eddaa0576163b2bb55208ad4a1eff15a586557a34a0de4a1"

_FOLDER = "usr/share/datasets/fashion-mnist"
_WEIGHTS = Path(__file__).parent / "weights"
_CALIBRATION_STEP = 60


@dataclass(frozen=True, slots=True)
class FashionPixels:
    """A picture (1, 28, 28) uint8 → ``x`` (1, 28, 28) float32 of 0 … 1."""

    @property
    def name(self) -> str:
        """Every setting in one line."""
        return "grey pixels / 255"

    @property
    def kinds(self) -> tuple[str, ...]:
        """Pictures of 28 × 28 in one channel, which no other network takes."""
        return ("grey28",)

    def prepare(self, sample: Any) -> dict[str, Array]:  # noqa: ANN401 - a picture, as ``kinds`` says
        """As it is."""
        return {"x": np.asarray(sample, np.uint8)}

    def finish(self, batch: dict[str, Array]) -> dict[str, Array]:
        """Pixels as shares of the brightest."""
        return {"x": batch["x"].astype(np.float32) / np.float32(255)}


def fashion_preact() -> ZooModel:
    """A residual network with its normalizations before its convolutions."""
    return _model("fashion_preact", PREACT_SHA256)


def fashion_mobile() -> ZooModel:
    """A network of inverted residual blocks with depthwise convolutions."""
    return _model("fashion_mobile", MOBILE_SHA256)


def fashion_test() -> Dataset:
    """10,000 pictures, labelled: 1,000 of each class."""
    return _dataset("fashion_test", test=True, step=1)


def fashion_calibration() -> Dataset:
    """1,000 of the pictures that the networks learned from, labelled."""
    return _dataset("fashion_calibration", test=False, step=_CALIBRATION_STEP)


def fashion_arrays(*, test: bool) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Pictures (n, 1, 28, 28) and labels (n,) of one part.

    Raises:
        UnavailableError: the package that has them cannot be downloaded, or a file in it is not
            what it should be.
    """
    part = "t10k" if test else "train"
    pictures = _idx(f"{_FOLDER}/{part}-images-idx3-ubyte.gz")
    labels = _idx(f"{_FOLDER}/{part}-labels-idx1-ubyte.gz")
    return pictures[:, None], labels.astype(np.int64)


def _idx(path: str) -> npt.NDArray[np.uint8]:
    """An array in the IDX format: two zero bytes, 8 for uint8, the rank, the sizes as
    big-endian uint32, the data.
    """
    data = gzip.decompress(open_member(FASHION_MNIST, path))
    rank = data[3]
    shape = tuple(int(size) for size in np.frombuffer(data, ">u4", rank, 4))
    start = 4 + 4 * rank
    if data[:3] != b"\x00\x00\x08" or len(data) - start != math.prod(shape):
        raise UnavailableError(
            f"Reading '{path}' in package '{FASHION_MNIST.requirement}'",
            found=f"a header {data[:start].hex()} before {len(data) - start} bytes",
            expected="an IDX file of bytes",
            remedy="Pin the package that has one.",
        )
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def _dataset(name: str, *, test: bool, step: int) -> Dataset:
    pictures, labels = (part[::step].copy() for part in fashion_arrays(test=test))
    ids = tuple(f"{'test' if test else 'train'}{index * step:05d}" for index in range(len(labels)))
    return Dataset(
        id=name,
        kind="grey28",
        sample_ids=ids,
        sources=ids,
        labels=tuple((int(label),) for label in labels),
        content=FASHION_MNIST.sha256,
        load=pictures.__getitem__,
    )


def _model(name: str, sha256: str) -> ZooModel:
    return ZooModel(
        id=name,
        graphs={"model": _loader(name, sha256)},
        preprocess=FashionPixels(),
        task=Classification(output="logits"),
        origin="trained by qbench_zoo.training.fashion on Fashion-MNIST (MIT), Apache-2.0",
    )


def _loader(name: str, sha256: str) -> Callable[[], ir.Model]:
    path = _WEIGHTS / f"{name}.onnx"

    def load() -> ir.Model:
        found = digest_file(path)
        if found != sha256:
            raise StoreError(
                f"Loading the weights of '{name}' from '{path}'",
                found=f"SHA-256 {found}",
                expected=sha256,
                remedy=(
                    "Restore the file, or pin the new digest if the network was trained anew on "
                    "purpose."
                ),
            )
        return load_model(path)

    return load
