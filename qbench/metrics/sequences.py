"""Metrics of sequences and texts."""

from collections.abc import Callable, Hashable, Iterator, Sequence

import numpy as np

from qbench.errors import UnavailableError
from qbench.extension import install_command
from qbench.metrics.answers import (
    MILLION,
    AnswerKind,
    Answers,
    IntegerAnswers,
    integer_answers,
    text_of,
)
from qbench.metrics.metric import Counts, Labels, Metric
from qbench.metrics.scores import Against, Direction

# Metrics of sequences: the share that is wholly right, and the phoneme error rate.
#
# exact: hits_i = 1 if answer_i = label_i, out of 1. per: hits_i = the least number of insertions,
# deletions and substitutions that turn label_i into answer_i (Levenshtein 1966), out of the label's
# length; so Σ edits / Σ lengths, which may exceed 1.

_LEAST_PER_MARGIN = 0.005
"""Half a point of error rate: what the default tolerance admits of an accuracy near 100 %. The
tolerance relative to an error rate of 10 % would admit a twentieth of a point, and of a model
that makes no errors nothing at all.
"""


def _count_exact(answers: Answers, labels: Labels | None, _reference: Answers | None) -> Counts:
    assert labels is not None
    answers = _sequences("exact", answers)
    hits = [answers.sequence(i) == tuple(right) for i, right in enumerate(labels)]
    return Counts(np.array(hits, dtype=np.int64), np.ones(len(answers), dtype=np.int64))


def _count_edits(answers: Answers, labels: Labels | None, _reference: Answers | None) -> Counts:
    assert labels is not None
    answers = _sequences("per", answers)
    distance = _edit_distance("per")
    edits = [distance(tuple(right), answers.sequence(i)) for i, right in enumerate(labels)]
    return Counts(
        np.array(edits, dtype=np.int64), np.array([len(right) for right in labels], dtype=np.int64)
    )


def _edit_distance(metric: str) -> Callable[[Sequence[Hashable], Sequence[Hashable]], int]:
    """Levenshtein's distance.

    Raises:
        UnavailableError: rapidfuzz is not installed.
    """
    try:
        from rapidfuzz.distance import Levenshtein
    except ModuleNotFoundError as error:
        raise UnavailableError(
            f"Counting metric '{metric}'",
            found="no rapidfuzz",
            expected="the extra 'text'",
            remedy=f"Install it: {install_command('text')}.",
        ) from error
    return Levenshtein.distance


def _sequences(name: str, answers: Answers) -> IntegerAnswers:
    return integer_answers(
        answers, f"{name} compares sequences", AnswerKind.SEQUENCE, AnswerKind.TEXT
    )


EXACT = Metric(
    name="exact",
    title="Exact sequences",
    direction=Direction.HIGHER,
    against=Against.LABELS,
    count=_count_exact,
)
PER = Metric(
    name="per",
    title="Phoneme error rate",
    direction=Direction.LOWER,
    against=Against.LABELS,
    count=_count_edits,
    least_margin=_LEAST_PER_MARGIN,
    proportion=False,
)


# Metrics of text: word and character error rates, chrF and BLEU, counted by the libraries of their
# fields.
#
#     wer, cer    hits_i = the least number of insertions, deletions and substitutions, out of the
#                 words (characters) that are right; so Σ edits / Σ lengths, which may exceed 1
#                 (jiwer)
#     chrf, bleu  hits_i = the score of sample i in hundredths of a percent, out of 10,000; so their
#                 mean (sacrebleu)
#
# Texts are compared as they are: what spelling and case mean nothing is the task's to make alike. A
# text without a word counts every answered one as an edit, out of nothing.

_LEAST_ERROR_MARGIN = 0.005
"""Half a point of error rate, as of phonemes."""

_WHOLE = 10_000


def _texts(name: str, answers: Answers, labels: Labels | None) -> Iterator[tuple[str, str]]:
    """The right text and the answered one of every sample."""
    assert labels is not None
    texts = integer_answers(answers, f"{name} compares texts", AnswerKind.TEXT)
    for index, right in enumerate(labels):
        yield text_of(right), texts.text(index)


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


def _count_characters(
    answers: Answers, labels: Labels | None, _reference: Answers | None
) -> Counts:
    # what jiwer counts with, which would cut the ends of a text off
    pairs = list(_texts("cer", answers, labels))
    distance = _edit_distance("cer")
    edits = [distance(right, answered) for right, answered in pairs]
    return Counts(
        np.array(edits, dtype=np.int64),
        np.array([len(right) for right, _ in pairs], dtype=np.int64),
    )


def _mean(name: str, score_of: Callable[[str, str], float]) -> Callable[..., Counts]:
    def count(answers: Answers, labels: Labels | None, _reference: Answers | None) -> Counts:
        hits = [
            round(100 * score_of(answered, right))
            for right, answered in _texts(name, answers, labels)
        ]
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


# Perplexity, as its logarithm: the mean surprise of a right token, in nats.
#
#     ln perplexity = Σ −ln p(tokenⱼ | right ones before it) / #tokens
#     hits_i in millionths, out of 10⁶ · tokens_i
#
# The logarithm is a ratio of sums, so it is counted exactly and resampled like every other;
# perplexity itself is exp of it. The least margin, half a hundredth of a nat, is half a percent of
# perplexity; the default share of a logarithm near 0 would be next to nothing. Source: Jelinek,
# Mercer, Bahl and Baker, "Perplexity: a measure of the difficulty of speech recognition tasks"
# (1977).


def _count_surprise(answers: Answers, _labels: Labels | None, _reference: Answers | None) -> Counts:
    found = answers.likelihoods
    if found is None:
        raise ValueError("perplexity counts likelihoods of labels, and these answers have none")
    return Counts(found.surprise, MILLION * found.tokens)


PERPLEXITY = Metric(
    name="perplexity",
    title="Log perplexity",
    direction=Direction.LOWER,
    against=Against.LABELS,
    count=_count_surprise,
    unit="nats",
    least_margin=0.005,
    proportion=False,
    of_run=True,
    of_likelihoods=True,
)
