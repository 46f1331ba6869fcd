"""The model and the data of the suites in this folder, by the names that suites and the
commands of qbench use.
"""

from dataclasses import replace
from pathlib import Path

from qbench import Extension
from qbench.subjects import Dataset, ZooModel, dataset_from_text, model_from_file

HERE = Path(__file__).parent
DATA = f"{HERE}/val.npz"


def my_net() -> ZooModel:
    return model_from_file(HERE / "my_net.onnx", name="my_net")


def my_data() -> Dataset:
    return replace(dataset_from_text(DATA)[0], id="my_data")


def my_calibration() -> Dataset:
    return replace(dataset_from_text(f"{HERE}/calibration.npz")[0], id="my_calibration")


def pytest_qbench_extension(config: object) -> Extension:
    return Extension(
        name="own model",
        models={"my_net": my_net},
        datasets={"my_data": my_data, "my_calibration": my_calibration},
    )
