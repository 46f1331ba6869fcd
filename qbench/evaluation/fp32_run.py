"""Today's fp32 run as it is kept in the cache: ids, ties, outputs, and how likely labels are where it is asked."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.metrics import AnswerKind, Answers, Likelihoods, OutputKind, Outputs

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
    if answers.likelihoods is not None:
        arrays |= {"surprise": answers.likelihoods.surprise, "tokens": answers.likelihoods.tokens}
    return arrays


def stored_run(arrays: Arrays) -> Answers:
    """The answers of ``run_arrays``."""
    outputs = None
    if "outputs" in arrays:
        outputs = Outputs(arrays["outputs"], OutputKind(str(arrays["output_kind"])))
    likelihoods = Likelihoods(arrays["surprise"], arrays["tokens"]) if "surprise" in arrays else None
    kind = AnswerKind(str(arrays["kind"]))
    return Answers(arrays["ids"], tied=arrays.get("tied"), kind=kind, outputs=outputs, likelihoods=likelihoods)
