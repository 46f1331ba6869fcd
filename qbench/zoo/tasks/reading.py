"""Outputs as a task trusts them: there, with a row for every sample, and finite.

An engine that answers NaN has not answered; argmax would quietly make a class of it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.errors import InputError
from qbench.zoo.tasks.task import Runner

Array = npt.NDArray[Any]


def runner_named(runners: Mapping[str, Runner], name: str, task: str) -> Runner:
    """The runner of graph ``name``.

    Raises:
        InputError: the model has no such graph.
    """
    if name not in runners:
        raise InputError(
            f"Answering with task '{task}'",
            found=f"the graphs {sorted(runners)}",
            expected=f"one called '{name}'",
            remedy="Give the model the graphs its task names.",
        )
    return runners[name]


def finite_rows(outputs: Mapping[str, Array], name: str | None, sample_ids: Sequence[str], doing: str) -> Array:
    """Output ``name`` (None: the first one) as (n, c) float32, one row a sample of ``sample_ids``.

    Raises:
        InputError: no such output, another shape than (n, c), or a number that is not finite (the sample is named).
    """
    if name is None:
        name = next(iter(outputs), "")
    if name not in outputs:
        raise InputError(
            doing,
            found=f"the outputs {sorted(outputs)}",
            expected=f"one called '{name}'" if name else "at least one",
            remedy="Name an output that the graph has.",
        )
    rows = np.asarray(outputs[name])
    if rows.ndim != 2 or len(rows) != len(sample_ids) or not rows.shape[1]:
        raise InputError(
            doing,
            found=f"output '{name}' of shape {rows.shape}",
            expected=f"({len(sample_ids)}, numbers a sample)",
            remedy="Choose a model whose output has one row a sample.",
        )
    # an integer or a wider float has its exact or its nearest float32; half precision is exact
    rows = rows.astype(np.float32, copy=False)
    finite = np.isfinite(rows).all(axis=1)
    if not finite.all():
        raise InputError(
            f"{doing}, sample '{sample_ids[int(np.argmin(finite))]}'",
            found=f"NaN or Inf in output '{name}' ({int((~finite).sum())} of {len(rows)} samples of the batch)",
            expected="finite numbers",
            remedy="Look for a kernel or a scale that overflows; the sample is not counted as right or wrong.",
        )
    return rows
