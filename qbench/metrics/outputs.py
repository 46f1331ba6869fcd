"""What a network put out for the first samples of a data set, as floats: what distances to fp32 are counted of.

Never more than 128 samples and 2²⁰ numbers (4 MiB), so that they travel with the answers of every run; no baseline
holds any.
"""

import enum
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

HELD_SAMPLES = 128
HELD_NUMBERS = 1 << 20


class OutputKind(enum.Enum):
    """CLASSES: a score of every class, probabilities or logits. VALUES: any other numbers, such as an embedding."""

    CLASSES = "classes"
    VALUES = "values"


@dataclass(frozen=True, slots=True, eq=False)
class Outputs:
    """``values`` (m, d) float32, finite: d numbers for each of the first m samples."""

    values: npt.NDArray[np.float32]
    kind: OutputKind

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or self.values.dtype != np.float32:
            raise ValueError(f"outputs are (m, d) float32, not {self.values.shape} {self.values.dtype}")

    def __len__(self) -> int:
        return len(self.values)


class FirstOutputs:
    """Gathers outputs batch by batch, in the samples' order, and keeps as many of the first rows as are held."""

    __slots__ = ("_have", "_kept", "_kind")

    def __init__(self, kind: OutputKind) -> None:
        self._kind = kind
        self._kept: list[npt.NDArray[np.float32]] = []
        self._have = 0

    def add(self, rows: npt.NDArray[Any]) -> None:
        """The next batch (n, d)."""
        most = max(1, min(HELD_SAMPLES, HELD_NUMBERS // max(1, rows.shape[1])))
        if self._have < most:
            self._kept.append(rows[: most - self._have].astype(np.float32))  # a copy: the batch is not kept alive
            self._have += len(self._kept[-1])

    @property
    def held(self) -> Outputs:
        """What was gathered, of at least one batch."""
        return Outputs(np.concatenate(self._kept), self._kind)


def held_outputs(rows: npt.NDArray[Any], kind: OutputKind) -> Outputs:
    """The first of ``rows`` (n, d), those of all samples."""
    first = FirstOutputs(kind)
    first.add(rows)
    return first.held
