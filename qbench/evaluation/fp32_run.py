"""Today's fp32 run as it is kept in the cache: ids, who was tied, and the outputs that distances are counted from."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.metrics import AnswerKind, Answers, OutputKind, Outputs

FP32_VERSION = 2
"""Of these arrays: a cache of another version is not read."""

Arrays = Mapping[str, npt.NDArray[Any]]


def run_arrays(answers: Answers) -> dict[str, Any]:
    """``answers`` as named arrays, without probabilities."""
    arrays: dict[str, Any] = {"ids": answers.ids, "kind": np.str_(answers.kind.value)}
    if answers.tied is not None:
        arrays["tied"] = answers.tied
    if answers.outputs is not None:
        arrays |= {"outputs": answers.outputs.values, "output_kind": np.str_(answers.outputs.kind.value)}
    return arrays


def stored_run(arrays: Arrays) -> Answers:
    """The answers of ``run_arrays``."""
    outputs = None
    if "outputs" in arrays:
        outputs = Outputs(arrays["outputs"], OutputKind(str(arrays["output_kind"])))
    return Answers(arrays["ids"], tied=arrays.get("tied"), kind=AnswerKind(str(arrays["kind"])), outputs=outputs)
