"""The factors that give the weights of neighbouring linear operators the same range in every channel they share.

With r¹_i the largest absolute weight that makes channel i and r²_i the largest that reads it, each pair takes

    s_i = √(r¹_i / r²_i)        W¹ := S⁻¹ · W¹,   W² := W² · S        so that both become √(r¹_i · r²_i)

over and over in graph order, as an operator in the middle of a chain belongs to two pairs, until no factor moves by
more than a ten-thousandth. A channel that is all but zero on one side has no range to speak of and keeps its factor.

Source: Nagel et al., Data-Free Quantization Through Weight Equalization and Bias Correction (arXiv 1906.04721), 4.1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from qbench.errors import UnsupportedError

Doubles = npt.NDArray[np.float64]

_SETTLED = 1e-4
_MATTERS = 1e-3
"""Less than this is left as it is, so that equalizing what was equalized, and rounded to float32, changes nothing."""

_SWEEPS = 1000
_DEAD = 2.0**-20
"""Channels whose weights are that small beside the operator's largest: they never reach a level of 16 bits."""


@dataclass(frozen=True, slots=True)
class SharedChannels:
    """Two operators by key, and how many input channels of the second each output channel of the first becomes."""

    first: str
    second: str
    columns: int


def equalizing_scales(magnitudes: Mapping[str, Doubles], pairs: Sequence[SharedChannels]) -> tuple[Doubles, ...] | None:
    """S of every pair, of shape [channels]; None when no factor would matter.

    Args:
        magnitudes: operator → largest absolute weight over the window, shape [group, outputs, inputs].
        pairs: in graph order; an operator is first in at most one and second in at most one.

    Raises:
        UnsupportedError: factors still move after a thousand sweeps, as along chains of some eighty operators. Half
            equalized would be another graph each time that it is equalized again.
    """
    current = {key: np.array(array, np.float64) for key, array in magnitudes.items()}
    total = [np.ones(_made(current[pair.first]).size) for pair in pairs]
    moved = largest = 0.0
    for sweep in range(_SWEEPS):
        largest = 0.0
        for index, pair in enumerate(pairs):
            step = _step(current, pair)
            total[index] *= step
            largest = max(largest, float(np.abs(np.log(step)).max(initial=0.0)))
        moved = largest if not sweep else moved
        if moved <= _MATTERS:
            return None
        if largest <= _SETTLED:
            return tuple(total)
    raise UnsupportedError(
        f"Equalizing the weights of {len(current)} operators",
        found=f"factors that still move by {np.expm1(largest):.1%} after {_SWEEPS} sweeps",
        expected="factors that settle",
        remedy="Choose a canonical pipeline without equalization.",
    )


def _step(current: dict[str, Doubles], pair: SharedChannels) -> Doubles:
    """One pair equalized in ``current``; the factors that did it."""
    first, second = current[pair.first], current[pair.second]
    made = _made(first)
    read = second.max(axis=1).reshape(-1, pair.columns).max(axis=1)
    living = (made > _DEAD * made.max(initial=0.0)) & (read > _DEAD * read.max(initial=0.0))
    scale = np.ones(made.size)
    scale[living] = np.sqrt(made[living]) / np.sqrt(read[living])
    current[pair.first] = first / scale.reshape(*first.shape[:2], 1)
    current[pair.second] = current[pair.second] * np.repeat(scale, pair.columns).reshape(second.shape[0], 1, -1)
    return scale


def _made(magnitude: Doubles) -> Doubles:
    """The range of every output channel."""
    return np.asarray(magnitude.max(axis=2).reshape(-1))
