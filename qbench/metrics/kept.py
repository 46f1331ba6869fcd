"""Answers that are kept with an accepted result, and how far later ones are from them.

A flip is another best answer. Probabilities are compared class by class; of a class that only one of the two names
among its k best it is known that the other gave it no more than its last, so the least possible change is taken:

    change(c) = |p − p₀| where both name c;  max(0, p₀(c) − min p) and max(0, p(c) − min p₀) where one does

A record carries them as text: base64 of a compressed ``.npz`` of ``ids`` in the smallest type and ``scores``.
"""

import base64
import io
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.metrics.answers import AnswerKind, Answers
from qbench.storage import current_limits, digest_arrays, read_archive

_MOST_PACKED = 32
"""Bytes that one packed byte may stand for where many answers are kept; few equal ones pack better."""
_TYPES = (np.uint8, np.int8, np.uint16, np.int16, np.int32)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerChange:
    """Of ``samples``: ``flips``; and those ``beyond`` what probabilities may move, with the ``largest`` change of one.

    The last two are None where one of the two has no probabilities.
    """

    samples: int
    flips: int
    beyond: int | None = None
    largest: float | None = None


def count_changes(
    now: Answers, accepted: Answers, *, absolute: float | None = None, relative: float | None = None
) -> AnswerChange:
    """How ``now`` differs from ``accepted``, answers to the same samples.

    Args:
        absolute, relative: what a probability may move, the latter as a share of the accepted one; the wider holds.

    Raises:
        ValueError: they answer different numbers of samples, or in different kinds.
    """
    if len(now) != len(accepted) or now.kind is not accepted.kind:
        raise ValueError(f"{len(now)} answers ({now.kind.value}) beside {len(accepted)} ({accepted.kind.value})")
    flips = sum(now.best(index) != accepted.best(index) for index in range(len(now)))
    if now.scores is None or accepted.scores is None:
        return AnswerChange(samples=len(now), flips=flips)
    moves, before = _moves(now.ids, now.scores, accepted.ids, accepted.scores)
    allowed = np.maximum(absolute or 0.0, (relative or 0.0) * before)
    beyond = int((moves > allowed).any(axis=1).sum())
    return AnswerChange(samples=len(now), flips=flips, beyond=beyond, largest=float(moves.max(initial=0.0)))


def _moves(
    ids: npt.NDArray[np.int32], scores: npt.NDArray[np.float32], old_ids: npt.NDArray[np.int32], old: npt.NDArray[Any]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """(n, k + k₀) changes, those of the accepted classes first, and the accepted probability of each."""
    p, p_old = scores.astype(np.float64), old.astype(np.float64)
    same = old_ids[:, :, None] == ids[:, None, :]
    last, old_last = p.min(axis=1, keepdims=True), p_old.min(axis=1, keepdims=True)
    matched = np.where(same, p[:, None, :], 0.0).sum(axis=2)
    dropped = np.where(same.any(axis=2), np.abs(matched - p_old), np.maximum(0.0, p_old - last))
    entered = np.where(same.any(axis=1), 0.0, np.maximum(0.0, p - old_last))
    known = np.concatenate([p_old, np.broadcast_to(old_last, p.shape)], axis=1)
    return np.concatenate([dropped, entered], axis=1), known


def kept_digest(answers: Answers) -> str:
    """The digest of ids and probabilities."""
    scores = {} if answers.scores is None else {"scores": answers.scores}
    return digest_arrays({"ids": answers.ids, **scores})


def kept_arrays(answers: Answers) -> dict[str, npt.NDArray[Any]]:
    """``ids`` in the smallest integer type that holds them, and ``scores`` (float32) where there are some."""
    low, high = int(answers.ids.min(initial=0)), int(answers.ids.max(initial=0))
    fitting = next(t for t in _TYPES if np.iinfo(t).min <= low and high <= np.iinfo(t).max)
    return {"ids": answers.ids.astype(fitting)} | ({} if answers.scores is None else {"scores": answers.scores})


def packed_answers(answers: Answers) -> str:
    """``answers`` as one word of text, for a record."""
    buffer = io.BytesIO()
    arrays: dict[str, Any] = kept_arrays(answers)
    np.savez_compressed(buffer, **arrays)
    return f"{answers.kind.value}:{base64.b64encode(buffer.getvalue()).decode('ascii')}"


def unpacked_answers(text: str) -> Answers:
    """The answers that ``packed_answers`` wrote.

    Raises:
        ValueError: ``text`` is not of that kind.
    """
    kind, _, word = text.partition(":")
    try:
        packed = base64.b64decode(word, validate=True)
        arrays = read_archive(packed, most=current_limits().kept_bytes + _MOST_PACKED * len(packed))
        return restored_answers(arrays["ids"], arrays.get("scores"), AnswerKind(kind))
    except Exception as error:
        # numpy lets through whatever zipfile, zlib, tokenize and pickle make of damaged bytes: no list is complete
        raise ValueError(f"kept answers that cannot be read ({type(error).__name__}: {error})") from error


def restored_answers(ids: npt.NDArray[Any], scores: npt.NDArray[Any] | None, kind: AnswerKind) -> Answers:
    """Answers of stored arrays.

    Raises:
        ValueError: they are none.
    """
    return Answers(ids.astype(np.int32), None if scores is None else scores.astype(np.float32), kind=kind)
