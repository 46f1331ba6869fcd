"""Handwritten digits, 8 × 8 pixels of 0 … 16, and a small network for them that is part of this
package.

The 1,797 pictures in scikit-learn (UCI, Alpaydin and Kaynak 1998) in their order, i = 0 … 1796:
every fifth, i mod 5 = 0, is scored (360); the others (1,437) were trained on and are for
calibration. x = pixel / 16.
"""

import functools
import gzip
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.errors import StoreError
from qbench.graph import load_model
from qbench.storage import digest_file
from qbench.subjects.assets import open_member
from qbench.subjects.catalogue import SCIKIT_LEARN
from qbench.subjects.dataset import Array, Dataset
from qbench.subjects.subject import ZooModel
from qbench.subjects.tasks import Classification

WEIGHTS = Path(__file__).parent / "weights" / "digits_cnn.onnx"
"""Written by ``qbench_zoo.training.digits``."""

WEIGHTS_SHA256 = "b39c557a5c5860cad5e598113c0fc8ed7efa0a0f4a2aa1a1993a4fac0069f36c"


@dataclass(frozen=True, slots=True)
class DigitPixels:
    """A picture (1, 8, 8) uint8 of 0 … 16 → ``x`` (1, 8, 8) float32 of 0 … 1."""

    @property
    def name(self) -> str:
        """Every setting in one line."""
        return "digit pixels / 16"

    @property
    def kinds(self) -> tuple[str, ...]:
        """Pictures of one channel and 17 grey values, which no other network takes."""
        return ("digit",)

    def prepare(self, sample: Any) -> dict[str, Array]:  # noqa: ANN401 - a picture, as ``kinds`` says
        """As it is."""
        return {"x": np.asarray(sample, np.uint8)}

    def finish(self, batch: dict[str, Array]) -> dict[str, Array]:
        """Pixels as shares of the darkest; sixteenths are exact in float32."""
        return {"x": batch["x"].astype(np.float32) / np.float32(16)}


def digits_cnn() -> ZooModel:
    """The model; its weights are a file of this package."""
    return ZooModel(
        id="digits_cnn",
        graphs={"model": _graph},
        preprocess=DigitPixels(),
        task=Classification(output="logits"),
        origin="trained by qbench_zoo.training.digits on scikit-learn's digits, Apache-2.0",
    )


def digits_test() -> Dataset:
    """360 digits, labelled."""
    return _digits("digits_test", test=True)


def digits_train() -> Dataset:
    """1,437 digits, labelled, which the network was trained on."""
    return _digits("digits_train", test=False)


def digits_arrays(*, test: bool) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Pictures (n, 1, 8, 8) of 0 … 16 and labels (n,) of one part.

    Raises:
        UnavailableError: the package that has them cannot be downloaded.
    """
    table = _table()[_chosen(test=test)]
    return table[:, :-1].astype(np.uint8).reshape(-1, 1, 8, 8), table[:, -1].astype(np.int64)


@functools.cache
def _table() -> npt.NDArray[np.int64]:
    """(1797, 65): 64 pixels and the label."""
    text = gzip.decompress(open_member(SCIKIT_LEARN, "sklearn/datasets/data/digits.csv.gz")).decode(
        "ascii"
    )
    return np.array(
        [[int(float(field)) for field in line.split(",")] for line in text.split()], np.int64
    )


def _chosen(*, test: bool) -> npt.NDArray[np.intp]:
    return np.flatnonzero((np.arange(len(_table())) % 5 == 0) == test)


def _digits(name: str, *, test: bool) -> Dataset:
    pictures, labels = digits_arrays(test=test)
    ids = tuple(f"digit{index:04d}" for index in _chosen(test=test))
    return Dataset(
        id=name,
        kind="digit",
        sample_ids=ids,
        sources=ids,
        labels=tuple((int(label),) for label in labels),
        content=SCIKIT_LEARN.sha256,
        load=pictures.__getitem__,
    )


def _graph() -> ir.Model:
    found = digest_file(WEIGHTS)
    if found != WEIGHTS_SHA256:
        raise StoreError(
            f"Loading the weights of 'digits_cnn' from '{WEIGHTS}'",
            found=f"SHA-256 {found}",
            expected=WEIGHTS_SHA256,
            remedy=(
                "Restore the file, or pin the new digest if the network was trained anew on "
                "purpose."
            ),
        )
    return load_model(WEIGHTS)
