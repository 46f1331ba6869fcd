"""Metrics of text: word and character error rates, chrF and BLEU, counted by the libraries of their fields.

    wer, cer   hits_i = the least number of insertions, deletions and substitutions, out of the words (characters) that
               are right; so Σ edits / Σ lengths, which may exceed 1                                          (jiwer)
    chrf, bleu hits_i = the score of sample i in hundredths of a percent, out of 10,000; so their mean    (sacrebleu)

Texts are compared as they are: what spelling and case mean nothing is the task's to make alike. A text without a word
counts every answered one as an edit, out of nothing.
"""

from collections.abc import Callable, Iterator

import numpy as np

from qbench.metrics.answers import ANSWER_WORDS, AnswerKind, Answers, text_of
from qbench.metrics.metric import Counts, Labels, Metric
from qbench.metrics.scores import Against, Direction

_LEAST_ERROR_MARGIN = 0.005
"""Half a point of error rate, as of phonemes."""

_WHOLE = 10_000


def _texts(name: str, answers: Answers, labels: Labels | None) -> Iterator[tuple[str, str]]:
    """The right text and the answered one of every sample."""
    assert labels is not None
    if answers.kind is not AnswerKind.TEXT:
        raise ValueError(f"{name} compares texts, and these answers are {ANSWER_WORDS[answers.kind]}")
    for index, right in enumerate(labels):
        yield text_of(right), answers.text(index)


def _count_words(answers: Answers, labels: Labels | None, _reference: Answers | None) -> Counts:
    import jiwer

    edits, lengths = [], []
    for right, answered in _texts("wer", answers, labels):
        words = right.split()
        lengths.append(len(words))
        if not words:  # jiwer has no rate of nothing
            edits.append(len(answered.split()))
            continue
        found = jiwer.process_words(right, answered)
        edits.append(found.substitutions + found.deletions + found.insertions)
    return Counts(np.array(edits, dtype=np.int64), np.array(lengths, dtype=np.int64))


def _count_characters(answers: Answers, labels: Labels | None, _reference: Answers | None) -> Counts:
    from rapidfuzz.distance import Levenshtein  # what jiwer counts with, which would cut the ends of a text off

    pairs = list(_texts("cer", answers, labels))
    edits = [Levenshtein.distance(right, answered) for right, answered in pairs]
    return Counts(np.array(edits, dtype=np.int64), np.array([len(right) for right, _ in pairs], dtype=np.int64))


def _mean(name: str, score_of: Callable[[str, str], float]) -> Callable[..., Counts]:
    def count(answers: Answers, labels: Labels | None, _reference: Answers | None) -> Counts:
        hits = [round(100 * score_of(answered, right)) for right, answered in _texts(name, answers, labels)]
        return Counts(np.array(hits, dtype=np.int64), np.full(len(answers), _WHOLE, dtype=np.int64))

    return count


def _chrf(answered: str, right: str) -> float:
    import sacrebleu

    return float(sacrebleu.sentence_chrf(answered, [right]).score)


def _bleu(answered: str, right: str) -> float:
    import sacrebleu

    return float(sacrebleu.sentence_bleu(answered, [right]).score)


WER = Metric(
    name="wer",
    title="Word error rate",
    direction=Direction.LOWER,
    against=Against.LABELS,
    count=_count_words,
    least_margin=_LEAST_ERROR_MARGIN,
    proportion=False,
)
CER = Metric(
    name="cer",
    title="Character error rate",
    direction=Direction.LOWER,
    against=Against.LABELS,
    count=_count_characters,
    least_margin=_LEAST_ERROR_MARGIN,
    proportion=False,
)
CHRF = Metric(
    name="chrf",
    title="chrF of sentences",
    direction=Direction.HIGHER,
    against=Against.LABELS,
    count=_mean("chrf", _chrf),
    proportion=False,
)
BLEU = Metric(
    name="bleu",
    title="BLEU of sentences",
    direction=Direction.HIGHER,
    against=Against.LABELS,
    count=_mean("bleu", _bleu),
    proportion=False,
)
