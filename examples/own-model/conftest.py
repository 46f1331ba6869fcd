"""Your own model and data in a suite: put net.onnx, val.npz and calibration.npz next to this file.

The .npz files hold an array for each input of the graph (a lone input may be called ``x``) and the classes ``y``. For
pictures in one folder per class, write ``folder:val?resize=256&crop=224`` in place of ``val.npz``, and give
``model_from_file`` the preprocessing that ``dataset_from_text`` returns with it.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from qbench import Extension
from qbench.subjects import Dataset, ZooModel, dataset_from_text, model_from_file

HERE = Path(os.environ.get("OWN_MODEL_FOLDER", Path(__file__).parent))


def my_net() -> ZooModel:
    return model_from_file(HERE / "net.onnx", name="my_net")


def samples(name: str, file: str) -> Callable[[], Dataset]:
    return lambda: replace(dataset_from_text(str(HERE / file))[0], id=name)


def pytest_qbench_extension(config: object) -> Extension:
    return Extension(
        name="own model",
        models={"my_net": my_net},
        datasets={
            "my_data": samples("my_data", "val.npz"),
            "my_calibration": samples("my_calibration", "calibration.npz"),
        },
    )
