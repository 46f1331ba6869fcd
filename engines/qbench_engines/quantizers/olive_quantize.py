"""Microsoft's Olive on ONNX: ``olive_quantize.py FP32 CALIBRATION OUT``.

Its pass for static quantization with per-channel weights, as a workflow in a folder of its own.
"""

import argparse
import logging
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from olive import run as run_olive
from olive.data.registry import Registry


class Samples:
    """Input name → array of one sample without its batch axis, and no label."""

    def __init__(self, path: Path) -> None:
        self._arrays = dict(np.load(path))

    def __len__(self) -> int:
        return len(next(iter(self._arrays.values())))

    def __getitem__(self, index: int) -> tuple[dict[str, Any], int]:
        return {name: array[index] for name, array in self._arrays.items()}, 0


class Failures(logging.Handler):
    """The words of the last exception that Olive logged: it goes on after a pass that failed."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.last = "it logged no error"

    def emit(self, record: logging.LogRecord) -> None:
        """Keep what failed, in the words of the first cause."""
        error = record.exc_info[1] if record.exc_info else None
        while error is not None and error.__cause__ is not None:
            error = error.__cause__
        if error is not None:
            self.last = f"{type(error).__name__}: {error}"


def workflow(source: Path, folder: Path) -> dict[str, Any]:
    """What Olive is to do, as its configuration file says it."""
    skip = {"pre_process_data_config", "post_process_data_config"}
    data = {
        "name": "calibration",
        "type": "DataContainer",
        "load_dataset_config": {"type": "qbench_samples"},
        "dataloader_config": {"batch_size": 1},
        **{step: {"type": f"skip_{step.removesuffix('_data_config')}"} for step in skip},
    }
    static = {
        "type": "OnnxStaticQuantization",
        "data_config": "calibration",
        "quant_format": "QDQ",
        "per_channel": True,
    }
    accelerator = {"device": "cpu", "execution_providers": ["CPUExecutionProvider"]}
    return {
        "input_model": {"type": "OnnxModel", "model_path": str(source)},
        "data_configs": [data],
        "systems": {"local": {"type": "LocalSystem", "accelerators": [accelerator]}},
        "passes": {"static": static},
        "host": "local",
        "target": "local",
        "output_dir": str(folder / "out"),
        "cache_dir": str(folder / "cache"),
    }


def main() -> None:
    """Read the arguments, write the quantized model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("fp32", type=Path)
    parser.add_argument("calibration", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()

    def dataset(**_: object) -> Samples:
        return Samples(given.calibration)

    Registry.register_dataset("qbench_samples")(dataset)
    failures = Failures()
    logging.getLogger("olive").addHandler(failures)
    with TemporaryDirectory() as name:
        folder = Path(name)
        run_olive(workflow(given.fp32.absolute(), folder))
        written = next((folder / "out").rglob("*.onnx"), None)
        if written is None:
            raise SystemExit(f"Olive wrote no model: {failures.last}")
        onnx.save(onnx.load(written), given.out)


if __name__ == "__main__":
    main()
