"""Metrics of sequences: the share that is wholly right, and the phoneme error rate.

exact: hits_i = 1 if answer_i = label_i, out of 1. per: hits_i = the least number of insertions, deletions and
substitutions that turn label_i into answer_i (Levenshtein 1966), out of the label's length; so Σ edits / Σ lengths,
which may exceed 1.
"""

import numpy as np

from qbench.metrics.answers import ANSWER_WORDS, AnswerKind, Answers
from qbench.metrics.metric import Counts, Labels, Metric
from qbench.metrics.scores import Against, Direction

_LEAST_PER_MARGIN = 0.005
"""Half a point of error rate: what the default tolerance admits of an accuracy near 100 %. The tolerance relative to an
error rate of 10 % would admit a twentieth of a point, and of a model that makes no errors nothing at all."""


def _count_exact(answers: Answers, labels: Labels | None, _reference: Answers | None) -> Counts:
    assert labels is not None
    _demand_sequences("exact", answers)
    hits = [answers.sequence(i) == tuple(right) for i, right in enumerate(labels)]
    return Counts(np.array(hits, dtype=np.int64), np.ones(len(answers), dtype=np.int64))


def _count_edits(answers: Answers, labels: Labels | None, _reference: Answers | None) -> Counts:
    from rapidfuzz.distance import Levenshtein

    assert labels is not None
    _demand_sequences("per", answers)
    edits = [Levenshtein.distance(tuple(right), answers.sequence(i)) for i, right in enumerate(labels)]
    return Counts(np.array(edits, dtype=np.int64), np.array([len(right) for right in labels], dtype=np.int64))


def _demand_sequences(name: str, answers: Answers) -> None:
    if answers.kind not in (AnswerKind.SEQUENCE, AnswerKind.TEXT):
        raise ValueError(f"{name} compares sequences, and these answers are {ANSWER_WORDS[answers.kind]}")


EXACT = Metric(
    name="exact", title="Exact sequences", direction=Direction.HIGHER, against=Against.LABELS, count=_count_exact
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
