"""The zoo's networks that answer with masks, points, pictures and values, and their data."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from qbench.backends import get_backend
from qbench.cli import main
from qbench.errors import StoreError, UnavailableError
from qbench.metrics import IGNORED, get_metric, score
from qbench.storage import Cache
from qbench.subjects import fetch_package, get_dataset, get_model, prepare_samples
from qbench_zoo import number_models
from qbench_zoo.networks.parameters import TrainedArrays
from qbench_zoo.networks.pixels import (
    build_denoiser,
    build_pointer,
    build_regressor,
    build_segmenter,
)
from qbench_zoo.packages import FASHION_MNIST, FOOLBOX, IMGAUG, MATPLOTLIB, SCIKIT_IMAGE
from qbench_zoo.scenes import CLASSES, POINTS

WEIGHTS = Path(number_models.__file__).parent / "weights"
BUILDERS: dict[str, Callable[[TrainedArrays, str], ir.Model]] = {
    "clothes_segmenter": lambda state, name: build_segmenter(state, name, CLASSES),
    "clothes_points": lambda state, name: build_pointer(state, name, POINTS),
    "photo_denoiser": build_denoiser,
    "diabetes_mlp": lambda state, name: build_regressor(state, name, 10),
}
JUDGED = {
    "clothes_segmenter": ("clothes_scenes", {"miou": 0.5720, "pixel_accuracy": 0.9076}),
    "clothes_points": ("clothes_single", {"oks": 0.7757}),
    "photo_denoiser": ("noisy_pieces", {"psnr": 23.94, "ssim": 0.584}),
    "diabetes_mlp": (
        "diabetes_test",
        {"mae": 48.95, "rmse": 59.46, "mape": 0.3818, "spearman": 0.6346},
    ),
}


@pytest.fixture(scope="module")
def packages() -> None:
    try:
        for package in (FASHION_MNIST, FOOLBOX, IMGAUG, MATPLOTLIB, SCIKIT_IMAGE):
            fetch_package(package)
    except UnavailableError as error:
        pytest.skip(str(error))


@pytest.mark.slow_but(1)
@pytest.mark.usefixtures("packages")
@pytest.mark.parametrize(
    "name", [pytest.param("clothes_segmenter", marks=pytest.mark.slow), *list(JUDGED)[1:]]
)
def test_the_committed_networks_score_what_the_page_says(name: str) -> None:
    dataset, values = JUDGED[name]
    model, data = get_model(name), get_dataset(dataset)
    samples = prepare_samples(data, model.preprocess, Cache.default())
    with get_backend("ort-cpu").prepare(model.graphs["model"]()) as executor:
        answers = model.task.answer({"model": executor}, samples)
    for metric, value in values.items():
        found = score(get_metric(metric), answers, labels=data.labels, reference=answers)
        assert found.value == pytest.approx(value, rel=0.002), metric


@pytest.mark.usefixtures("packages")
def test_masks_cover_the_clothes_and_points_lie_around_them() -> None:
    scenes, single = get_dataset("clothes_scenes"), get_dataset("clothes_single")
    masks = np.stack(scenes.labels or ())
    assert set(np.unique(masks)) == {*range(CLASSES), IGNORED}
    assert len(set(scenes.sources)) == 20
    label = (single.labels or ())[0]
    left, right, top, bottom, middle = label[:-1].reshape(POINTS, 3)[:, :2]
    assert left[0] < middle[0] < right[0]
    assert top[1] < middle[1] < bottom[1]
    assert 0 < label[-1] <= (right[0] - left[0] + 1) * (bottom[1] - top[1] + 1)


@pytest.mark.slow
@pytest.mark.usefixtures("packages")
@pytest.mark.parametrize("name", ["clothes_scenes", "clothes_single", "noisy_pieces"])
def test_no_photograph_is_scored_and_calibrated_on(name: str) -> None:
    scored, calibration = get_dataset(name), get_dataset(f"{name}_calibration")
    assert not {*scored.sources} & {*calibration.sources}
    assert get_dataset(name).digest == scored.digest


@pytest.mark.slow
@pytest.mark.usefixtures("packages")
def test_the_node_that_costs_a_network_of_points_its_accuracy_is_found(
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = ["--data", "clothes_single", "--calib", "clothes_single_calibration"]
    assert (
        main(
            [
                "localize",
                "clothes_points",
                *data,
                "--backend",
                "ort-cpu",
                "--schema",
                "w4_sym_b32",
                "--json",
            ]
        )
        == 1
    )
    first = json.loads(capsys.readouterr().out)["finding"]["suspects"][0]
    assert (first["node"], first["cause"]) == ("points", "coarse grid")


class State:
    """The initializers of a file, by the names that the training gave them."""

    def __init__(self, arrays: dict[str, Any]) -> None:
        roles = {"running_mean": "mean", "running_var": "variance", "weight": "scale"}
        self._arrays = arrays
        self._roles = roles

    def take(self, name: str, shape: tuple[int, ...]) -> Any:
        before, _, role = name.rpartition(".")
        ours = f"{before}.{self._roles.get(role, role)}" if before.endswith(".bn") else name
        assert self._arrays[ours].shape == shape
        return self._arrays[ours]


@pytest.mark.parametrize("name", BUILDERS)
def test_the_committed_graph_is_what_the_builder_writes(name: str) -> None:
    proto = onnx.load(WEIGHTS / f"{name}.onnx")
    onnx.checker.check_model(proto, full_check=True)
    state = State({each.name: onnx.numpy_helper.to_array(each) for each in proto.graph.initializer})
    built = ir.to_proto(BUILDERS[name](state, name))
    assert [(n.op_type, n.name, *n.input) for n in built.graph.node] == [
        (n.op_type, n.name, *n.input) for n in proto.graph.node
    ]


def test_other_weights_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "diabetes_mlp.onnx").write_bytes(
        (WEIGHTS / "diabetes_mlp.onnx").read_bytes() + b"\0"
    )
    monkeypatch.setattr(number_models, "_WEIGHTS", tmp_path)
    with pytest.raises(StoreError, match="Restore the file"):
        get_model("diabetes_mlp").graphs["model"]()
