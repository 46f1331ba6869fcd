"""Your own model and data in a suite: put net.onnx, val.npz and calibration.npz (arrays x and y) beside this file.

For pictures sorted into a folder a class, write ``folder:val?resize=256&crop=224`` in place of ``val.npz`` and take the
preprocessing that comes with it.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from qbench import Extension, load_model
from qbench.subjects import Classification, Dataset, ReadyArray, ZooModel, dataset_from_text

HERE = Path(os.environ.get("OWN_MODEL_FOLDER", Path(__file__).parent))


def my_net() -> ZooModel:
    return ZooModel(
        id="my_net",
        graphs={"model": lambda: load_model(HERE / "net.onnx")},
        preprocess=ReadyArray(input="x"),  # the arrays are ready feeds of the graph's input "x"
        task=Classification(),  # the first output ranks the classes
        origin="trained by us",
    )


def arrays(name: str, file: str) -> Callable[[], Dataset]:
    def read() -> Dataset:
        dataset, _ = dataset_from_text(str(HERE / file))
        return replace(dataset, id=name)

    return read


def pytest_qbench_extension(config: object) -> Extension:
    return Extension(
        name="own model",
        models={"my_net": my_net},
        datasets={
            "my_data": arrays("my_data", "val.npz"),
            "my_calibration": arrays("my_calibration", "calibration.npz"),
        },
    )
