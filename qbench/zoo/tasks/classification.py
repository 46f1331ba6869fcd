"""Scores of classes → the k best classes of every sample, with their probabilities.

Order: by falling score, equal scores by rising class id. A quantized network answers on a grid, so that equal
scores are common; without a declared rule the same numbers would rank differently on two machines.

Probabilities are the scores where every one of the data set lies in [0, 1], as a network gives them that ends in a
softmax (on a grid they need not add up to 1), else softmax(scores) over all classes.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from qbench.errors import InputError
from qbench.metrics import Answers, FirstOutputs, OutputKind
from qbench.zoo.samples import Samples
from qbench.zoo.tasks.reading import Array, finite_rows, runner_named
from qbench.zoo.tasks.task import Runner

GRAPH = "model"


@dataclass(frozen=True, slots=True, kw_only=True)
class Classification:
    """One graph, one run a batch.

    Args:
        output: the output that holds the scores, (n, classes); None: the graph's first.
        k: how many classes an answer names; a model of fewer classes answers with all of them.
    """

    output: str | None = None
    k: int = 5

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"an answer of {self.k} classes")

    @property
    def name(self) -> str:
        """Every setting in one word."""
        return f"classification({self.output or 'first output'}, k={self.k})"

    @property
    def graphs(self) -> tuple[str, ...]:
        """The one graph."""
        return (GRAPH,)

    def answer(self, runners: Mapping[str, Runner], samples: Samples) -> Answers:
        """The k best class ids of every sample (int32) with their probabilities (float32), best first.

        Raises:
            InputError: an output is missing, has another shape, or is not finite (the sample is named); or a sample has
                a label that is no class of the model.
        """
        run = runner_named(runners, GRAPH, self.name).run
        doing = f"Classifying '{samples.data}'"
        ranked: list[tuple[Array, Array, Array]] = []
        tied: list[Array] = []
        first = FirstOutputs(OutputKind.CLASSES)
        start = 0
        are_shares = True
        for feeds in samples.batches():
            count = len(next(iter(feeds.values())))
            scores = finite_rows(run(feeds), self.output, samples.ids[start : start + count], doing)
            _refuse_other_labels(samples, start, count, scores.shape[1], doing)
            ids, best = best_classes(scores, self.k)
            ranked.append((ids, best, shares_of(scores, best)))
            are_shares = are_shares and bool((scores >= 0).all() and (scores <= 1).all())
            tied.append(tied_rows(scores))
            first.add(scores)
            start += count
        ids, best, shares = (np.concatenate(parts) for parts in zip(*ranked, strict=True))
        return Answers(ids, best if are_shares else shares, np.concatenate(tied), outputs=first.held)


def _refuse_other_labels(samples: Samples, start: int, count: int, classes: int, doing: str) -> None:
    """Check the labels of ``count`` samples from ``start`` on: one that is no class would silently never be right."""
    labels = () if samples.labels is None else samples.labels[start : start + count]
    for sample, right in zip(samples.ids[start : start + count], labels, strict=False):
        if other := [label for label in right if not 0 <= label < classes]:
            raise InputError(
                f"{doing}, sample '{sample}'",
                found=f"label {other[0]}",
                expected=f"labels from 0 to {classes - 1}, as the model has {classes} classes",
                remedy="Number the labels in the order of the model's outputs; they start at 0, not at 1.",
            )


def best_classes(scores: Array, k: int) -> tuple[Array, Array]:
    """Per row of ``scores`` (n, classes) the ids (n, min(k, classes)) int32 of the best classes, and their scores."""
    ids = np.argsort(-scores, axis=1, kind="stable")[:, :k]  # stable: equal scores stay in the order of class ids
    return ids.astype(np.int32), np.take_along_axis(scores, ids, axis=1)


def tied_rows(scores: Array) -> Array:
    """Per row of ``scores`` (n, classes) whether classes share the best score: (n,) bool."""
    return np.asarray((scores == scores.max(axis=1, keepdims=True)).sum(axis=1) > 1)


def shares_of(scores: Array, best: Array) -> Array:
    """Per row the softmax over all ``scores`` (n, classes) of its ``best`` (n, k), the first of which is greatest."""
    most = best[:, :1].astype(np.float64)
    whole = np.exp(scores - most).sum(axis=1, keepdims=True)
    shares: Array = (np.exp(best - most) / whole).astype(np.float32)
    return shares
