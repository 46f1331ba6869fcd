"""Embeddings → the class of the nearest other sample: how networks are judged that learned to tell apart, not to name.

    s(i, j) = ⟨eᵢ, eⱼ⟩ / (‖eᵢ‖·‖eⱼ‖), 0 where an embedding is 0        score(i, c) = max s(i, j) over j ≠ i of class c

Classes by falling score, equal ones by rising id: the first is the answer of the nearest neighbour, leave-one-out.
Without labels every sample is a class of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from qbench.errors import InputError
from qbench.metrics import Answers, OutputKind, held_outputs
from qbench.zoo.samples import Samples
from qbench.zoo.tasks.classification import GRAPH, best_classes, tied_rows
from qbench.zoo.tasks.reading import finite_rows, runner_named
from qbench.zoo.tasks.task import Runner

_NOBODY = -2.0
"""Below every cosine: the score of a class that no other sample is of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NearestNeighbour:
    """One graph, one run a batch, then every sample against all others.

    Args:
        output: the output that holds the embeddings, (n, numbers); None: the graph's first.
        k: how many classes an answer names; data of fewer classes is answered with all of them.
    """

    output: str | None = None
    k: int = 5

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"an answer of {self.k} classes")

    @property
    def name(self) -> str:
        """Every setting in one word."""
        return f"nearest neighbour({self.output or 'first output'}, cosine, k={self.k})"

    @property
    def graphs(self) -> tuple[str, ...]:
        """The one graph."""
        return (GRAPH,)

    def answer(self, runners: Mapping[str, Runner], samples: Samples) -> Answers:
        """The k classes of the nearest other samples (int32) with their similarity (float32), best first.

        Raises:
            InputError: an output is missing, has another shape, or is not finite (the sample is named); or a sample has
                not exactly one label.
        """
        run = runner_named(runners, GRAPH, self.name).run
        doing = f"Embedding '{samples.data}'"
        rows, start = [], 0
        for feeds in samples.batches():
            count = len(next(iter(feeds.values())))
            rows.append(finite_rows(run(feeds), self.output, samples.ids[start : start + count], doing))
            start += count
        embeddings = np.concatenate(rows)
        scores = class_scores(similarities(embeddings), _classes(samples, doing))
        ids, best = best_classes(scores, self.k)
        held = held_outputs(embeddings, OutputKind.VALUES)
        return Answers(ids, best.astype(np.float32), tied_rows(scores), outputs=held)


def similarities(embeddings: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """The cosine of every two rows of ``embeddings`` (n, d): (n, n); 0 for a row of zeros."""
    unit = unit_rows(embeddings)
    return np.asarray(unit @ unit.T)


def unit_rows(embeddings: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """``embeddings`` (n, d), each row over its length; a row of zeros stays."""
    wide = embeddings.astype(np.float64)
    norms = np.linalg.norm(wide, axis=1, keepdims=True)
    return np.asarray(np.divide(wide, norms, out=np.zeros_like(wide), where=norms > 0))


def class_scores(similar: npt.NDArray[np.float64], classes: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Each sample's similarity to the nearest other sample of every class.

    Args:
        similar: (n, n), of every two samples. classes: (n,), of each sample.

    Returns:
        (n, highest class + 1); -2 where a class has no other sample.
    """
    others = similar.copy()
    np.fill_diagonal(others, _NOBODY)
    scores = np.full((len(similar), int(classes.max()) + 1), _NOBODY)
    for one in np.unique(classes):
        scores[:, one] = others[:, classes == one].max(axis=1)
    return scores


def _classes(samples: Samples, doing: str) -> npt.NDArray[np.int64]:
    if samples.labels is None:
        return np.arange(len(samples), dtype=np.int64)
    for sample, right in zip(samples.ids, samples.labels, strict=True):
        if len(right) != 1 or right[0] < 0:
            raise InputError(
                f"{doing}, sample '{sample}'",
                found=f"the labels {list(right)}",
                expected="one label, from 0 on: whose sample it is",
                remedy="Give every sample exactly one.",
            )
    return np.array(samples.labels, dtype=np.int64)[:, 0]
