"""An answer as a person reads it: its parts, some with a probability."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # records of results are read without arrays
    import numpy.typing as npt

PARTS = 5
"""Parts of an answer that are told: the best classes of a classifier."""
_TEXT = 160
"""Characters of a part."""
_NUMBERS = 6
"""Numbers of an array that are told; of a larger one, its shape and extremes."""


@dataclass(frozen=True, slots=True)
class AnswerPart:
    """A part of an answer: a class, a text, some numbers; and its probability, where it has one."""

    text: str
    probability: float | None = None


def numbers_text(values: "npt.NDArray[Any]") -> str:
    """``2.5, -1``; of many ``48 × 48 numbers from 0 to 254``."""
    if values.dtype.kind not in "biuf":  # of a form of its own: texts, dates
        return shortened(" ".join(map(str, values.ravel().tolist())))
    if values.size <= _NUMBERS:
        return ", ".join(f"{value:.4g}" for value in values.ravel().tolist())
    shape = " × ".join(map(str, values.shape))
    return f"{shape} numbers from {values.min():.4g} to {values.max():.4g}"


def shortened(text: str) -> str:
    """``text``, cut where it is long."""
    return text if len(text) <= _TEXT else f"{text[:_TEXT]}…"
