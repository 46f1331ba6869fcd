"""Networks trained here that answer with numbers, and their data: masks, points and pictures of
scenes; a table.

clothes_segmenter  which pixels of a scene show which clothes               masks      400 scenes
clothes_points     where the one garment of a scene is, by five points      keypoints  400 scenes
photo_denoiser     a piece of a photograph without its noise                pictures   120 pieces
diabetes_mlp       how far the disease of a patient went                    values      89 patients
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.errors import StoreError
from qbench.graph import load_model
from qbench.storage import digest_arrays, digest_file
from qbench.subjects import (
    SCIKIT_LEARN,
    Array,
    Dataset,
    Preprocess,
    Regression,
    Restoration,
    Segmentation,
    Task,
    ZooModel,
)
from qbench_zoo.diabetes import diabetes_arrays, diabetes_rows, standardized, target_scale
from qbench_zoo.scenes import POINTS, SIDE, GreyPixels, draw_noisy, draw_pointed, draw_scenes

_WEIGHTS = Path(__file__).parent / "weights"
_SCORED_SEED, _CALIBRATION_SEED = 7, 8

SHA256 = {
    "clothes_segmenter": "1e6e01c6b3c719e761fec7d19868265187d02f6128dccfb3a976a6db3f44822a",
    "clothes_points": "e1895abe85cce9f4f833b2ddedf6f9d96b9a6480f4a0f747c9b62b992c89d934",
    "photo_denoiser": "3c1d78ef2638f4048566cbc61a204c91571db6032082ac158c1bf2bec1a56437",
    "diabetes_mlp": "4f4fce158b4bfe4837d47528d56d9562d64290ce05400583dd6b4215773c69df",
}
"""Of the files that ``qbench_zoo.training.pixels`` wrote."""


@dataclass(frozen=True, slots=True)
class Measures:
    """Ten measures of a patient → ``x`` (10,) float32, standardized by those of the patients
    that were learned from.
    """

    @property
    def name(self) -> str:
        """Every setting in one line."""
        return "ten measures, standardized"

    @property
    def kinds(self) -> tuple[str, ...]:
        """Rows of the diabetes study."""
        return ("patient",)

    def prepare(self, sample: Any) -> dict[str, Array]:  # noqa: ANN401 - a row, as ``kinds`` says
        """As it is."""
        return {"x": np.asarray(sample, np.float64)}

    def finish(self, batch: dict[str, Array]) -> dict[str, Array]:
        """Measures less their mean, in standard deviations."""
        return {"x": standardized(batch["x"])}


def clothes_segmenter() -> ZooModel:
    """A small U-Net: convolutions, nearest neighbours and concatenations."""
    return _model(
        "clothes_segmenter",
        GreyPixels(),
        Segmentation(output="logits"),
        "Fashion-MNIST (MIT) on photographs",
    )


def clothes_points() -> ZooModel:
    """A network that regresses five points in pixels."""
    task = Regression(output="points", factor=float(SIDE), shape=(POINTS, 2))
    return _model("clothes_points", GreyPixels(), task, "Fashion-MNIST (MIT) on photographs")


def photo_denoiser() -> ZooModel:
    """A residual denoiser."""
    return _model(
        "photo_denoiser", GreyPixels(), Restoration(output="clean"), "photographs of packages"
    )


def diabetes_mlp() -> ZooModel:
    """Two hidden layers for a table."""
    task = Regression(output="value", factor=target_scale())
    return _model("diabetes_mlp", Measures(), task, "the diabetes study in scikit-learn")


def clothes_scenes() -> Dataset:
    """400 scenes of two garments on 20 photographs, with a mask each."""
    return _pictures("clothes_scenes", *draw_scenes(400, _SCORED_SEED, test=True))


def clothes_scenes_calibration() -> Dataset:
    """128 scenes of garments and photographs that the network learned from."""
    return _pictures("clothes_scenes_calibration", *draw_scenes(128, _CALIBRATION_SEED, test=False))


def clothes_single() -> Dataset:
    """400 scenes of one garment on 20 photographs, with five points and an area each."""
    return _pictures("clothes_single", *draw_pointed(400, _SCORED_SEED, test=True))


def clothes_single_calibration() -> Dataset:
    """128 scenes of one garment, of garments and photographs that the network learned from."""
    return _pictures(
        "clothes_single_calibration", *draw_pointed(128, _CALIBRATION_SEED, test=False)
    )


def noisy_pieces() -> Dataset:
    """120 noisy pieces of 20 photographs, labelled with the pieces without noise."""
    return _noisy("noisy_pieces", 120, _SCORED_SEED, test=True)


def noisy_pieces_calibration() -> Dataset:
    """64 noisy pieces of the photographs that the network learned from."""
    return _noisy("noisy_pieces_calibration", 64, _CALIBRATION_SEED, test=False)


def diabetes_test() -> Dataset:
    """89 patients, each with the value that was measured."""
    return _patients("diabetes_test", test=True)


def diabetes_train() -> Dataset:
    """The 353 other patients, from whom the network learned."""
    return _patients("diabetes_train", test=False)


def _noisy(name: str, count: int, seed: int, *, test: bool) -> Dataset:
    noisy, clean, sources = draw_noisy(count, seed, test=test)
    return _pictures(name, noisy, clean[:, None], sources)


def _pictures(
    name: str, pictures: npt.NDArray[np.uint8], labels: npt.NDArray[Any], sources: tuple[str, ...]
) -> Dataset:
    whole = pictures[:, None]
    return Dataset(
        id=name,
        kind="grey48",
        sample_ids=tuple(f"{name}{index:03d}" for index in range(len(whole))),
        sources=sources,
        labels=tuple(labels),
        content=digest_arrays({"pictures": whole}),
        load=whole.__getitem__,
    )


def _patients(name: str, *, test: bool) -> Dataset:
    measures, values = diabetes_arrays(test=test)
    ids = tuple(f"patient{index:03d}" for index in diabetes_rows(test=test))
    return Dataset(
        id=name,
        kind="patient",
        sample_ids=ids,
        sources=ids,
        labels=tuple(values[:, None]),
        content=SCIKIT_LEARN.sha256,
        load=measures.__getitem__,
    )


def _model(name: str, preprocess: Preprocess, task: Task, data: str) -> ZooModel:
    return ZooModel(
        id=name,
        graphs={"model": _loader(name)},
        preprocess=preprocess,
        task=task,
        origin=f"trained by qbench_zoo.training.pixels on {data}, Apache-2.0",
    )


def _loader(name: str) -> Callable[[], ir.Model]:
    path = _WEIGHTS / f"{name}.onnx"

    def load() -> ir.Model:
        found = digest_file(path)
        if found != SHA256[name]:
            raise StoreError(
                f"Loading the weights of '{name}' from '{path}'",
                found=f"SHA-256 {found}",
                expected=SHA256[name],
                remedy=(
                    "Restore the file, or pin the new digest if the network was trained anew on "
                    "purpose."
                ),
            )
        return load_model(path)

    return load
