"""Today's fp32 run as it is kept in the cache."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.metrics import Answers, Likelihoods, OutputKind, Outputs, restored_answers

# Ids, ties, outputs, and label likelihoods where a metric uses them.

FP32_VERSION = 3
"""Of these arrays: a cache of another version is not read."""

_ANSWER = "answer:"
"""In front of the names of the arrays that the answers are."""

Arrays = Mapping[str, npt.NDArray[Any]]


def run_arrays(answers: Answers) -> dict[str, Any]:
    """``answers`` as named arrays, without probabilities."""
    arrays: dict[str, Any] = {f"{_ANSWER}{name}": array for name, array in answers.arrays().items()}
    arrays["form"] = np.str_(answers.form)
    if answers.tied is not None:
        arrays["tied"] = answers.tied
    if answers.outputs is not None:
        arrays |= {
            "outputs": answers.outputs.values,
            "output_kind": np.str_(answers.outputs.kind.value),
        }
    if answers.likelihoods is not None:
        arrays |= {"surprise": answers.likelihoods.surprise, "tokens": answers.likelihoods.tokens}
    return arrays


def stored_run(arrays: Arrays) -> Answers:
    """The answers of ``run_arrays``."""
    outputs = None
    if "outputs" in arrays:
        outputs = Outputs(arrays["outputs"], OutputKind(str(arrays["output_kind"])))
    likelihoods = (
        Likelihoods(arrays["surprise"], arrays["tokens"]) if "surprise" in arrays else None
    )
    stored = {
        name.removeprefix(_ANSWER): array
        for name, array in arrays.items()
        if name.startswith(_ANSWER)
    }
    answers = restored_answers(str(arrays["form"]), stored)
    return answers.with_run(tied=arrays.get("tied"), outputs=outputs, likelihoods=likelihoods)
