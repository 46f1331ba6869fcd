"""The files that ``rival_mixed.py`` and ``rival_aimet_amp.py`` take, read alike.

Needs numpy alone: each of the two runs in the environment of its tool, next to this file.
"""

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a tool is given.

    Args:
        model: the network, as ``onnx.load`` gives it.
        name: of its input.
        calibration, validation: samples for it.
        labels: (samples, most classes of one), the classes that count as right, then -1.
        drop: of accuracy, that is accepted.
        out: the file that the model found is written to; empty: none.
    """

    model: "onnx.ModelProto"
    name: str
    calibration: Any
    validation: Any
    labels: Any
    drop: float
    out: str

    def hits(self, outputs: Any, which: slice = slice(None)) -> list[float]:  # noqa: ANN401
        """For each row of ``outputs`` (samples, classes), which are of the validation samples
        ``which``: 1 where its largest entry is a right class, else 0.
        """
        best = np.asarray(outputs).argmax(-1).reshape(-1, 1)
        return [float(one) for one in (self.labels[which] == best).any(axis=-1)]


def read_task(description: str | None) -> Task:
    """The task that the command line names; a wrong one ends the process with a sentence."""
    import onnx

    parser = argparse.ArgumentParser(description=(description or "").partition("\n\n")[0])
    parser.add_argument("model")
    parser.add_argument("calibration")
    parser.add_argument("validation")
    parser.add_argument("--drop", type=float, default=0.001, help="of accuracy that is accepted")
    parser.add_argument("--out", default="", help="write the model that was found")
    arguments = parser.parse_args()
    model = onnx.load(arguments.model)
    name = model.graph.input[0].name
    calibration, _ = _arrays(arguments.calibration, name)
    validation, labels = _arrays(arguments.validation, name)
    if labels is None or len(labels) != len(validation):
        parser.error(f"'{arguments.validation}' has no array 'labels' with one for each sample")
    return Task(
        model=model,
        name=name,
        calibration=calibration,
        validation=validation,
        labels=labels.reshape(len(labels), -1),
        drop=arguments.drop,
        out=arguments.out,
    )


def _arrays(path: str, name: str) -> tuple[Any, Any]:
    """The samples for the input ``name``, and the labels where the file has them."""
    with np.load(path) as file:
        samples = file[name] if name in file else file[file.files[0]]
        return samples, dict(file).get("labels")
