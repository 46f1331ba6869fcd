"""What a task answered, sample by sample, in whole numbers: the only thing about a run that is kept per sample.

A classifier answers with its best classes in order, a sequence model with its tokens, a recogniser with text, a
verifier with how alike two things are. All are one integer array, so that every metric is a count and every comparison
is exact.
"""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.metrics.likelihoods import Likelihoods
from qbench.metrics.outputs import Outputs
from qbench.storage import digest_arrays

PADDING = -1

MILLION = 1_000_000
"""A likeness of 1."""


class AnswerKind(enum.Enum):
    """What a row of ids means.

    RANKING: class ids, best first. SEQUENCE: token ids. TEXT: Unicode code points, as labels are then.
    LIKENESS: one number, how alike a pair is, in millionths from 0 to 1,000,000; labels are 1 (alike) or 0.
    """

    RANKING = "ranking"
    SEQUENCE = "sequence"
    TEXT = "text"
    LIKENESS = "likeness"


ANSWER_WORDS: Mapping[AnswerKind, str] = MappingProxyType(
    {
        AnswerKind.RANKING: "rankings",
        AnswerKind.SEQUENCE: "sequences",
        AnswerKind.TEXT: "texts",
        AnswerKind.LIKENESS: "likenesses",
    }
)
"""Answers of each kind, as errors call them."""


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """The answers of one model to n samples.

    Args:
        ids: (n, k) int32, as ``kind`` says; sequences and text are padded with ``PADDING`` at the end.
        scores: (n, k) float32 beside a ranking (probabilities or logits), or None.
        tied: (n,) bool: the best score of the sample (of a sequence: of one of its steps) was shared, and the lowest id
            taken; None: the task does not tell.
        outputs: what the network put out for the first samples; None: the task does not hand it over.
        likelihoods: of the labels; None: no metric asked.
    """

    ids: npt.NDArray[np.int32]
    scores: npt.NDArray[np.float32] | None = None
    tied: npt.NDArray[np.bool_] | None = None
    kind: AnswerKind = AnswerKind.RANKING
    outputs: Outputs | None = None
    likelihoods: Likelihoods | None = None

    def __post_init__(self) -> None:
        if self.ids.ndim != 2 or self.ids.dtype != np.int32:
            raise ValueError(f"answers are (n, k) int32, not {self.ids.shape} {self.ids.dtype}")
        if self.scores is not None and self.scores.shape != self.ids.shape:
            raise ValueError(f"scores are {self.scores.shape} beside ids of {self.ids.shape}")
        if self.tied is not None and (self.tied.shape != self.ids.shape[:1] or self.tied.dtype != np.bool_):
            raise ValueError(f"{self.tied.shape} {self.tied.dtype} tell of ties in {len(self.ids)} answers")
        if self.kind is AnswerKind.RANKING and (self.ids < 0).any():
            raise ValueError("a ranking holds class ids from 0 on; padding is for sequences (AnswerKind.SEQUENCE)")
        if self.kind is AnswerKind.LIKENESS and not (self.ids.shape[1] == 1 and _whole_share(self.ids)):
            raise ValueError("a likeness is one number of millionths, from 0 to 1,000,000")

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def ties(self) -> int:
        """How many samples were tied."""
        return 0 if self.tied is None else int(self.tied.sum())

    def held(self, metric: str) -> Outputs:
        """The outputs, for ``metric`` to count.

        Raises:
            ValueError: there are none.
        """
        if self.outputs is None:
            raise ValueError(f"{metric} compares outputs, and the task of these answers hands none over")
        return self.outputs

    @property
    def digest(self) -> str:
        """The digest of the ids, blind to columns of padding: equal digests are identical predictions."""
        used = int((self.ids != PADDING).any(axis=0).sum())
        return digest_arrays({"ids": self.ids[:, :used]})

    def best(self, index: int) -> tuple[int, ...]:
        """What sample ``index`` was answered with: the first class of a ranking, the whole of a sequence."""
        whole = self.kind in (AnswerKind.SEQUENCE, AnswerKind.TEXT)
        return self.sequence(index) if whole else (int(self.ids[index, 0]),)

    def sequence(self, index: int) -> tuple[int, ...]:
        """The answer to sample ``index`` without padding."""
        row: npt.NDArray[Any] = self.ids[index]
        return tuple(row[row != PADDING].tolist())

    def text(self, index: int) -> str:
        """The answer to sample ``index``, where it is text."""
        return text_of(self.sequence(index))

    def padded(self, width: int) -> npt.NDArray[np.int32]:
        """The ids as (n, width), ``PADDING`` added at the end."""
        return np.pad(self.ids, ((0, 0), (0, width - self.ids.shape[1])), constant_values=PADDING)


def text_of(points: Sequence[int]) -> str:
    """The text of these code points, as labels and answers of text are kept."""
    return "".join(map(chr, points))


def points_of(text: str) -> tuple[int, ...]:
    """The code points of ``text``."""
    return tuple(map(ord, text))


def _whole_share(ids: npt.NDArray[np.int32]) -> bool:
    return bool(((ids >= 0) & (ids <= MILLION)).all())
