"""What a task answered, sample by sample, in whole numbers: the only thing about a run that is kept per sample.

A classifier answers with its best classes in order, a sequence model with its tokens. Both are one integer
array, so that every metric is a count and every comparison is exact.
"""

import enum
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.storage import digest_arrays

PADDING = -1


class AnswerKind(enum.Enum):
    """What a row of ids means."""

    RANKING = "ranking"
    SEQUENCE = "sequence"


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """The answers of one model to n samples.

    Args:
        ids: (n, k) int32. Ranking: class ids, best first. Sequence: token ids, padded with ``PADDING`` at the end.
        scores: (n, k) float32 beside a ranking (probabilities or logits), or None.
        ties: samples whose best score another class shares; the lowest class id was taken.
    """

    ids: npt.NDArray[np.int32]
    scores: npt.NDArray[np.float32] | None = None
    ties: int = 0
    kind: AnswerKind = AnswerKind.RANKING

    def __post_init__(self) -> None:
        if self.ids.ndim != 2 or self.ids.dtype != np.int32:
            raise ValueError(f"answers are (n, k) int32, not {self.ids.shape} {self.ids.dtype}")
        if self.scores is not None and self.scores.shape != self.ids.shape:
            raise ValueError(f"scores are {self.scores.shape} beside ids of {self.ids.shape}")
        if self.kind is AnswerKind.RANKING and (self.ids < 0).any():
            raise ValueError("a ranking holds class ids from 0 on; padding is for sequences (AnswerKind.SEQUENCE)")

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def digest(self) -> str:
        """The digest of the ids, blind to columns of padding: equal digests are identical predictions."""
        used = int((self.ids != PADDING).any(axis=0).sum())
        return digest_arrays({"ids": self.ids[:, :used]})

    def best(self, index: int) -> tuple[int, ...]:
        """What sample ``index`` was answered with: the first class of a ranking, the whole of a sequence."""
        return self.sequence(index) if self.kind is AnswerKind.SEQUENCE else (int(self.ids[index, 0]),)

    def sequence(self, index: int) -> tuple[int, ...]:
        """The answer to sample ``index`` without padding."""
        row: npt.NDArray[Any] = self.ids[index]
        return tuple(row[row != PADDING].tolist())

    def padded(self, width: int) -> npt.NDArray[np.int32]:
        """The ids as (n, width), ``PADDING`` added at the end."""
        return np.pad(self.ids, ((0, 0), (0, width - self.ids.shape[1])), constant_values=PADDING)
