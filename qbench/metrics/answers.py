"""What a task answered, sample by sample."""

import abc
import base64
import enum
import io
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any, Self, cast

import numpy as np
import numpy.typing as npt

from qbench.metrics.answer_parts import PARTS, AnswerPart, numbers_text, shortened
from qbench.storage import current_limits, digest_arrays, read_archive

# How likely a sequence model takes the right sequences to be, in whole numbers: what perplexity is
# counted from.


@dataclass(frozen=True, slots=True, eq=False)
class Likelihoods:
    """Of n right sequences, each token predicted from the right ones before it (teacher forcing).

    Args:
        surprise: (n,) int64, −Σ ln p(token) in millionths of a nat.
        tokens: (n,) int64, how many the sum is over.
    """

    surprise: npt.NDArray[np.int64]
    tokens: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        for values in (self.surprise, self.tokens):
            if values.ndim != 1 or values.dtype != np.int64 or len(values) != len(self.tokens):
                raise ValueError(f"likelihoods are (n,) int64, not {values.shape} {values.dtype}")


# The outputs of a network for the first samples of a data set, as floats: distances to fp32 are
# computed from them.
#
# Never more than 128 samples and 2²⁰ numbers (4 MiB), so that they travel with the answers of every
# run; no baseline holds any.

HELD_SAMPLES = 128
HELD_NUMBERS = 1 << 20


class OutputKind(enum.Enum):
    """CLASSES: a score of every class, probabilities or logits. VALUES: any other numbers, such
    as an embedding.
    """

    CLASSES = "classes"
    VALUES = "values"


@dataclass(frozen=True, slots=True, eq=False)
class Outputs:
    """``values`` (m, d) float32, finite: d numbers for each of the first m samples."""

    values: npt.NDArray[np.float32]
    kind: OutputKind

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or self.values.dtype != np.float32:
            raise ValueError(
                f"outputs are (m, d) float32, not {self.values.shape} {self.values.dtype}"
            )

    def __len__(self) -> int:
        return len(self.values)


class FirstOutputs:
    """Gathers outputs in the samples' order, and keeps as many of the first rows as are held."""

    __slots__ = ("_have", "_kept", "_kind")

    def __init__(self, kind: OutputKind) -> None:
        self._kind = kind
        self._kept: list[npt.NDArray[np.float32]] = []
        self._have = 0

    def add(self, rows: npt.NDArray[Any]) -> None:
        """The next batch (n, d)."""
        most = max(1, min(HELD_SAMPLES, HELD_NUMBERS // max(1, rows.shape[1])))
        if self._have < most:
            # a copy: the batch is not kept alive
            self._kept.append(rows[: most - self._have].astype(np.float32))
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


# The answers of a task, sample by sample. A task owns the form of its answers: boxes, masks,
# tokens, real values. Other code only compares and stores them sample by sample; the metrics of a
# form read their content.


class _AnswersType(abc.ABCMeta):
    def __call__(cls, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - of the class that is called
        """An instance; ``Answers(ids, …)`` makes ``IntegerAnswers``, the form of most tasks."""
        return super(_AnswersType, IntegerAnswers if cls is Answers else cls).__call__(
            *arguments, **named
        )


class Answers(metaclass=_AnswersType):
    """The answers to n samples, in their order. A task whose answers are of another form
    derives a class of its own.

    Such a class is a frozen dataclass that has ``form`` and ``arrays``. Its task makes it again
    from stored arrays (``restored(arrays)``), and its metrics read its arrays. Facts of a run,
    ``outputs``, ``tied`` and ``likelihoods``, are None unless the class has fields of these names
    and the task fills them.
    """

    __slots__ = ()

    @property
    @abc.abstractmethod
    def form(self) -> str:
        """The name of this form in errors and files: one word, such as ``boxes``."""

    @abc.abstractmethod
    def arrays(self) -> "Mapping[str, npt.NDArray[Any]]":
        """All that is compared, counted and stored: name (an identifier) → array with one row
        for each sample.
        """

    @property
    def outputs(self) -> "Outputs | None":
        """The outputs of the network for the first samples."""
        return None

    @property
    def tied(self) -> "npt.NDArray[np.bool_] | None":
        """(n,) whether the best score of a sample was shared."""
        return None

    @property
    def likelihoods(self) -> "Likelihoods | None":
        """Of the labels."""
        return None

    @property
    def usual_metrics(self) -> tuple[str, ...]:
        """Metrics that commonly count such answers against labels: what an error proposes."""
        return ()

    def __len__(self) -> int:
        return len(next(iter(self.arrays().values())))

    def best(self, index: int) -> Hashable:
        """What two answers to sample ``index`` are compared by."""
        return tuple(
            (name, array[index].tobytes()) for name, array in sorted(self.arrays().items())
        )

    def agreement_with(
        self, reference: "Answers"
    ) -> "tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]":
        """(n,) each: how many parts of every sample agree with ``reference``, of the same form,
        and out of how many.
        """
        same = [self.best(index) == reference.best(index) for index in range(len(self))]
        return np.array(same, dtype=np.int64), np.ones(len(self), dtype=np.int64)

    def told(
        self,
        index: int,
        name_of: Callable[[int], str],  # noqa: ARG002 - of the classes of other answers
    ) -> "tuple[AnswerPart, ...]":
        """The answer to sample ``index`` for a person: its ``PARTS`` most telling parts.

        Args:
            name_of: the name of a class.
        """
        return tuple(
            AnswerPart(f"{name} {numbers_text(array[index])}")
            for name, array in sorted(self.arrays().items())[:PARTS]
        )

    def told_label(
        self,
        right: "Sequence[int] | npt.NDArray[Any]",
        name_of: Callable[[int], str],  # noqa: ARG002 - of the classes of other answers
    ) -> str:
        """The label ``right`` of a sample for a person."""
        return shortened(numbers_text(np.asarray(right)))

    def moved_from(
        self,
        reference: "Answers",  # noqa: ARG002 - most answers have no probabilities
        index: int,  # noqa: ARG002
        right: Sequence[int],  # noqa: ARG002
    ) -> float | None:
        """By how much the probability of ``right`` (the right classes of sample ``index``; empty:
        not known, and the best class of ``reference`` is taken) differs from that in
        ``reference``, answers of this form to the same samples. None: there are no probabilities.
        """
        return None

    @property
    def digest(self) -> str:
        """The digest of what is compared: equal digests are identical predictions."""
        return digest_arrays(self.arrays())

    @property
    def ties(self) -> int:
        """How many samples were tied."""
        return 0 if self.tied is None else int(self.tied.sum())

    def with_run(self, **facts: object) -> Self:
        """These answers with ``facts`` of a run (outputs, tied, likelihoods), as far as the
        class has such fields.
        """
        names = {each.name for each in fields(cast(Any, self))}
        return cast(
            Self,
            replace(
                cast(Any, self), **{name: fact for name, fact in facts.items() if name in names}
            ),
        )

    def held(self, metric: str) -> Outputs:
        """The outputs, for ``metric`` to count.

        Raises:
            ValueError: there are none.
        """
        if self.outputs is None:
            raise ValueError(
                f"{metric} compares outputs, and the task of these answers hands none over"
            )
        return self.outputs


@dataclass(frozen=True, slots=True, eq=False)
class StoredAnswers(Answers):
    """Answers that only their task can read: they are compared, but not scored."""

    written_form: str
    stored: Mapping[str, npt.NDArray[Any]]
    outputs: Outputs | None = None
    tied: npt.NDArray[np.bool_] | None = None
    likelihoods: Likelihoods | None = None

    @property
    def form(self) -> str:
        """As it was stored."""
        return self.written_form

    def arrays(self) -> Mapping[str, npt.NDArray[Any]]:
        """As they were stored."""
        return self.stored


# Answers in whole numbers, the form of most tasks: a classifier answers with its best classes in
# order, a sequence model with its tokens, a recogniser with text, a verifier with how alike two
# things are. All are one integer array, so that every metric is a count and every comparison is
# exact.

PADDING = -1

_TYPES = (np.uint8, np.int8, np.uint16, np.int16, np.int32)

MILLION = 1_000_000
"""A similarity of 1."""


class AnswerKind(enum.Enum):
    """What a row of ids means.

    RANKING: class ids, best first. SEQUENCE: token ids. TEXT: Unicode code points, as labels are
        then.
    LIKENESS: one number, the similarity of a pair in millionths, from 0 to 1,000,000; labels are 1
        (alike) or 0.
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
        AnswerKind.LIKENESS: "similarities",
    }
)
"""The word of errors for answers of each kind."""

_USUAL_METRICS: Mapping[AnswerKind, tuple[str, ...]] = MappingProxyType(
    {
        AnswerKind.RANKING: ("top1", "top5"),
        AnswerKind.SEQUENCE: ("exact", "per"),
        AnswerKind.TEXT: ("cer", "wer"),
        AnswerKind.LIKENESS: ("eer",),
    }
)
"""The metrics that are usual for each kind."""


def integer_answers(answers: Answers, counting: str, *kinds: AnswerKind) -> "IntegerAnswers":
    """``answers``, where they are of one of ``kinds``.

    Raises:
        ValueError: they are not; ``counting`` begins the message: what is counted, and in which
            answers.
    """
    if isinstance(answers, IntegerAnswers) and answers.kind in kinds:
        return answers
    raise ValueError(f"{counting}, and these answers are {answer_words(answers)}")


def answer_words(answers: Answers) -> str:
    """``answers``, as errors call them."""
    return ANSWER_WORDS[answers.kind] if isinstance(answers, IntegerAnswers) else answers.form


@dataclass(frozen=True, slots=True, eq=False)
class IntegerAnswers(Answers):
    """The answers of one model to n samples as whole numbers.

    Args:
        ids: (n, k) int32, as ``kind`` says; sequences and text are padded with ``PADDING`` at the
            end.
        scores: (n, k) float32 of a ranking (probabilities or logits), or None.
        tied: (n,) bool: the best score of the sample (of a sequence: of one of its steps) was
            shared, and the lowest id taken; None: the task does not record it.
        outputs: those of the network for the first samples; None: the task does not record them.
        likelihoods: of the labels; None: no metric needs them.
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
            raise ValueError(
                f"scores of the shape {self.scores.shape} for ids of the shape {self.ids.shape}"
            )
        if self.tied is not None and (
            self.tied.shape != self.ids.shape[:1] or self.tied.dtype != np.bool_
        ):
            raise ValueError(
                f"ties of {len(self.ids)} answers are ({len(self.ids)},) bool, not "
                f"{self.tied.shape} {self.tied.dtype}"
            )
        if self.kind is AnswerKind.RANKING and (self.ids < 0).any():
            raise ValueError(
                "a ranking holds class ids from 0 on; padding is for sequences "
                "(AnswerKind.SEQUENCE)"
            )
        if self.kind is AnswerKind.LIKENESS and not (
            self.ids.shape[1] == 1 and _whole_share(self.ids)
        ):
            raise ValueError("a similarity is one number of millionths, from 0 to 1,000,000")

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def form(self) -> str:
        """The kind, in one word."""
        return self.kind.value

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """``ids`` in the smallest integer type that holds them."""
        low, high = int(self.ids.min(initial=0)), int(self.ids.max(initial=0))
        fitting = next(t for t in _TYPES if np.iinfo(t).min <= low and high <= np.iinfo(t).max)
        return {"ids": self.ids.astype(fitting)}

    @property
    def usual_metrics(self) -> tuple[str, ...]:
        """Of this kind."""
        return _USUAL_METRICS[self.kind]

    @property
    def digest(self) -> str:
        """The digest of the ids without columns of padding: equal digests are identical
        predictions.
        """
        used = int((self.ids != PADDING).any(axis=0).sum())
        return digest_arrays({"ids": self.ids[:, :used]})

    def best(self, index: int) -> tuple[int, ...]:
        """The answer to sample ``index``: the first class of a ranking, a whole sequence."""
        whole = self.kind in (AnswerKind.SEQUENCE, AnswerKind.TEXT)
        return self.sequence(index) if whole else (int(self.ids[index, 0]),)

    def agreement_with(
        self, reference: Answers
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Whether the best class, or the whole sequence, is the same: 0 or 1, out of 1."""
        assert isinstance(reference, IntegerAnswers)
        if self.kind is AnswerKind.RANKING:
            same = self.ids[:, 0] == reference.ids[:, 0]
        else:
            width = max(self.ids.shape[1], reference.ids.shape[1])
            same = (self.padded(width) == reference.padded(width)).all(axis=1)
        return same.astype(np.int64), np.ones(len(self), dtype=np.int64)

    def told(self, index: int, name_of: Callable[[int], str]) -> tuple[AnswerPart, ...]:
        """The best classes with their probabilities; the text; the tokens; how alike a pair is."""
        if self.kind is AnswerKind.RANKING:
            shares = (None,) * PARTS if self.scores is None else self.scores[index].tolist()
            named = map(name_of, self.ids[index, :PARTS].tolist())
            pairs = zip(named, shares, strict=False)  # there are more than PARTS scores
            return tuple(AnswerPart(shortened(one), share) for one, share in pairs)
        if self.kind is AnswerKind.LIKENESS:
            return (AnswerPart(f"{int(self.ids[index, 0]) / MILLION:.4f} alike"),)
        if self.kind is AnswerKind.TEXT:
            return (AnswerPart(shortened(self.text(index))),)
        if self.outputs is not None and self.outputs.kind is OutputKind.VALUES:
            is_held = index < len(self.outputs)
            return (AnswerPart(numbers_text(self.outputs.values[index])),) if is_held else ()
        return (AnswerPart(shortened(_spaced(self.sequence(index)))),)

    def told_label(
        self, right: "Sequence[int] | npt.NDArray[Any]", name_of: Callable[[int], str]
    ) -> str:
        """The names of the right classes; the text; the tokens; whether a pair is alike."""
        tokens = [int(one) for one in right]
        if self.kind is AnswerKind.TEXT:
            return shortened(text_of(tokens))
        if self.kind is AnswerKind.LIKENESS:
            return "alike" if tokens == [1] else "not alike"
        is_ranking = self.kind is AnswerKind.RANKING
        return shortened(" or ".join(map(name_of, tokens)) if is_ranking else _spaced(tokens))

    def moved_from(self, reference: Answers, index: int, right: Sequence[int]) -> float | None:
        """The change of the probability of ``right``, the least possible one where only one of
        the two names the class among its best.
        """
        assert isinstance(reference, IntegerAnswers)
        if self.scores is None or reference.scores is None:
            return None
        now = dict(zip(self.ids[index].tolist(), self.scores[index].tolist(), strict=True))
        before = dict(
            zip(reference.ids[index].tolist(), reference.scores[index].tolist(), strict=True)
        )
        wanted = right or (int(reference.ids[index, 0]),)
        return float(sum(_moved(now, before, one) for one in wanted))

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


def _moved(now: Mapping[int, float], before: Mapping[int, float], one: int) -> float:
    """The change of the probability of class ``one`` between two lists of best classes."""
    if one not in now:
        return min(0.0, min(now.values()) - before.get(one, 0.0))
    return now[one] - before.get(one, min(*before.values(), now[one]))


def _spaced(tokens: Sequence[int]) -> str:
    return " ".join(map(str, tokens))


def text_of(points: Sequence[int]) -> str:
    """The text of these code points, as labels and answers of text are kept."""
    return "".join(map(chr, points))


def points_of(text: str) -> tuple[int, ...]:
    """The code points of ``text``."""
    return tuple(map(ord, text))


def _whole_share(ids: npt.NDArray[np.int32]) -> bool:
    return bool(((ids >= 0) & (ids <= MILLION)).all())


# Answers that are kept with an accepted result, and how far later ones are from them.
#
# A flip is another best answer. Probabilities are compared class by class; where only one of the
# two has a class among its k best, the other gave it at most the probability of its last class, so
# the least possible change is taken:
#
#     change(c) = |p − p₀|                                          where both name c
#     change(c) = max(0, p₀(c) − min p) and max(0, p(c) − min p₀)   where one does
#
# A record has them as text: base64 of a compressed ``.npz`` of ``ids`` in the smallest type and
# ``scores``.

_MOST_PACKED = 32
"""Bytes that one packed byte may unpack to where many answers are kept; few equal answers pack
better.
"""

_MASKS = "masks"
_MOST_PACKED_MASKS, _MOST_MASKS = 1_032, 1 << 29
"""Of masks, which are areas of one class: all that deflate can do, and the largest size in
bytes.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerChange:
    """Of ``samples``: ``flips``; and those ``beyond`` what a probability may change, and the
    ``largest`` change.

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
        absolute, relative: how far a probability may move, the latter as a share of the accepted
            one; the larger holds.

    Raises:
        ValueError: they answer different numbers of samples, or in different kinds.
    """
    if len(now) != len(accepted) or now.form != accepted.form:
        raise ValueError(
            f"{len(now)} answers ({now.form}) compared with {len(accepted)} ({accepted.form})"
        )
    flips = sum(now.best(index) != accepted.best(index) for index in range(len(now)))
    if not (isinstance(now, IntegerAnswers) and isinstance(accepted, IntegerAnswers)):
        return AnswerChange(samples=len(now), flips=flips)
    if now.scores is None or accepted.scores is None:
        return AnswerChange(samples=len(now), flips=flips)
    moves, before = _moves(now.ids, now.scores, accepted.ids, accepted.scores)
    allowed = np.maximum(absolute or 0.0, (relative or 0.0) * before)
    beyond = int((moves > allowed).any(axis=1).sum())
    return AnswerChange(
        samples=len(now), flips=flips, beyond=beyond, largest=float(moves.max(initial=0.0))
    )


def _moves(
    ids: npt.NDArray[np.int32],
    scores: npt.NDArray[np.float32],
    old_ids: npt.NDArray[np.int32],
    old: npt.NDArray[Any],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """(n, k + k₀) changes, those of the accepted classes first, and the accepted probability of
    each.
    """
    p, p_old = scores.astype(np.float64), old.astype(np.float64)
    same = old_ids[:, :, None] == ids[:, None, :]
    last, old_last = p.min(axis=1, keepdims=True), p_old.min(axis=1, keepdims=True)
    matched = np.where(same, p[:, None, :], 0.0).sum(axis=2)
    dropped = np.where(same.any(axis=2), np.abs(matched - p_old), np.maximum(0.0, p_old - last))
    entered = np.where(same.any(axis=1), 0.0, np.maximum(0.0, p - old_last))
    known = np.concatenate([p_old, np.broadcast_to(old_last, p.shape)], axis=1)
    return np.concatenate([dropped, entered], axis=1), known


def rows_of(answers: Answers, rows: Sequence[int]) -> Answers:
    """The answers at ``rows``, in that order, without what only the first samples have (outputs).

    Those of a form of their own are as they are stored; their task restores them.
    """
    chosen = list(rows)
    if not isinstance(answers, IntegerAnswers):
        return restored_answers(
            answers.form, {name: array[chosen] for name, array in answers.arrays().items()}
        )
    scores = None if answers.scores is None else answers.scores[chosen]
    tied = None if answers.tied is None else answers.tied[chosen]
    return replace(
        answers, ids=answers.ids[chosen], scores=scores, tied=tied, outputs=None, likelihoods=None
    )


def kept_digest(answers: Answers) -> str:
    """The digest of ids and probabilities; of another form, of all that is stored."""
    if not isinstance(answers, IntegerAnswers):
        return answers.digest
    scores = {} if answers.scores is None else {"scores": answers.scores}
    return digest_arrays({"ids": answers.ids, **scores})


def kept_arrays(answers: Answers) -> dict[str, npt.NDArray[Any]]:
    """What is stored of ``answers``, and the probabilities ``scores`` (float32) of a ranking."""
    scores = answers.scores if isinstance(answers, IntegerAnswers) else None
    return dict(answers.arrays()) | ({} if scores is None else {"scores": scores})


def packed_answers(answers: Answers) -> str:
    """``answers`` as one word of text, for a record."""
    buffer = io.BytesIO()
    arrays: dict[str, Any] = kept_arrays(answers)
    np.savez_compressed(buffer, **arrays)
    return f"{answers.form}:{base64.b64encode(buffer.getvalue()).decode('ascii')}"


def unpacked_answers(text: str) -> Answers:
    """The answers that ``packed_answers`` wrote.

    Raises:
        ValueError: ``text`` is not of that kind.
    """
    form, _, word = text.partition(":")
    try:
        packed = base64.b64decode(word, validate=True)
        arrays = read_archive(
            packed, most=current_limits().kept_bytes + _unpacked_bytes(form, len(packed))
        )
        return restored_answers(form, arrays)
    except Exception as error:
        # damaged bytes cause many errors in numpy, zipfile, zlib, tokenize and pickle: no list of
        # them is complete
        raise ValueError(
            f"kept answers that cannot be read ({type(error).__name__}: {error})"
        ) from error


def _unpacked_bytes(form: str, packed: int) -> int:
    """The most bytes to which ``packed`` bytes may unpack."""
    return (
        min(_MOST_PACKED_MASKS * packed, _MOST_MASKS) if form == _MASKS else _MOST_PACKED * packed
    )


def restored_answers(form: str, arrays: Mapping[str, npt.NDArray[Any]]) -> Answers:
    """Answers of stored ``arrays``; the task restores those of its own form.

    Raises:
        ValueError: they are not stored answers.
    """
    if form not in {kind.value for kind in AnswerKind}:
        if not arrays or len({len(array) if array.ndim else -1 for array in arrays.values()}) != 1:
            raise ValueError("arrays that do not have one row for each sample")
        return StoredAnswers(form, arrays)
    if "ids" not in arrays:
        raise ValueError(f"no array 'ids' of {form} answers")
    scores = arrays.get("scores")
    return IntegerAnswers(
        arrays["ids"].astype(np.int32),
        None if scores is None else scores.astype(np.float32),
        kind=AnswerKind(form),
    )
