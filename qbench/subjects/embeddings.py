"""Tasks of networks that embed: the class of the nearest neighbour, and the similarity of the two halves of a pair."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from qbench.errors import InputError
from qbench.metrics import MILLION, AnswerKind, Answers, IntegerAnswers, OutputKind, held_outputs
from qbench.storage import digest_arrays
from qbench.subjects.subject import BATCH, Array, Runner, Samples
from qbench.subjects.tasks import GRAPH, best_classes, finite_rows, runner_named, tied_rows

# Embeddings → the class of the nearest other sample, leave-one-out.
#
#     s(i, j) = ⟨eᵢ, eⱼ⟩ / (‖eᵢ‖·‖eⱼ‖), 0 where an embedding is 0        score(i, c) = max s(i, j) over j ≠ i of class c
#
# Classes by falling score, equal ones by rising id: the first is the class of the nearest neighbour. Without labels
# every sample is a class of its own.

_NO_SAMPLE = -2.0
"""Below every cosine: the score of a class that has no other sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NearestNeighbour:
    """One graph, one run per batch, then every sample against all others.

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
        return IntegerAnswers(ids, best.astype(np.float32), tied_rows(scores), outputs=held)


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
    np.fill_diagonal(others, _NO_SAMPLE)
    scores = np.full((len(similar), int(classes.max()) + 1), _NO_SAMPLE)
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
                expected="one label, from 0 on: the class of the sample",
                remedy="Give every sample exactly one label.",
            )
    return np.array(samples.labels, dtype=np.int64)[:, 0]


# Pairs → the similarity of the two halves, for networks that decide whether both are of one origin.
#
#     e = graph(x) once for every distinct x        similarity(a, b) = round(10⁶ · (1 + ⟨eₐ, e_b⟩ / (‖eₐ‖·‖e_b‖)) / 2)
#
# The cosine is computed in float64, 0 where an embedding is 0; ties round to even. Two feeds are the same x when their
# bytes are equal: an x that is in many pairs runs once, in a batch with the other new ones.


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """One graph, run on every distinct half of a pair.

    Args:
        input: of the graph. output: which holds the embeddings, (n, numbers); None: the graph's first.
        first, second: names of the samples' feeds; each of them becomes ``input``.
    """

    input: str
    output: str | None = None
    first: str = "first"
    second: str = "second"

    @property
    def name(self) -> str:
        """Every setting in one word."""
        return (
            f"verification({self.first} and {self.second} as {self.input}, {self.output or 'first output'}, cosine, "
            f"batch={BATCH})"
        )

    @property
    def graphs(self) -> tuple[str, ...]:
        """The one graph."""
        return (GRAPH,)

    def answer(self, runners: Mapping[str, Runner], samples: Samples) -> Answers:
        """The similarity of the halves of every sample, in millionths, (n, 1) int32.

        Raises:
            InputError: an output is missing, has another shape, or is not finite (a sample with that half is named).
        """
        embedder = _Embedder(self, runner_named(runners, GRAPH, self.name), f"Embedding '{samples.data}'")
        pairs: list[tuple[int, int]] = []
        for feeds in samples.batches():
            for first, second in zip(feeds[self.first], feeds[self.second], strict=True):
                sample = samples.ids[len(pairs)]
                pairs.append((embedder.place(first, sample), embedder.place(second, sample)))
        embeddings = embedder.embeddings()
        unit = unit_rows(embeddings)
        left, right = np.array(pairs, np.intp).T
        held = held_outputs(embeddings[left], OutputKind.VALUES)
        return IntegerAnswers(
            scaled_similarities(unit[left], unit[right])[:, None], kind=AnswerKind.LIKENESS, outputs=held
        )


@dataclass(slots=True)
class _Embedder:
    """Runs a graph once on every distinct array, a whole batch at a time."""

    task: Verification
    runner: Runner
    doing: str
    _places: dict[str, int] = field(default_factory=dict)
    _waiting: list[tuple[str, Array]] = field(default_factory=list)
    _rows: list[Array] = field(default_factory=list)

    def place(self, array: Array, sample: str) -> int:
        """The row of ``embeddings`` that will be ``array``'s; ``sample`` is named if the row is not finite."""
        key = digest_arrays({self.task.input: array})
        if key not in self._places:
            self._places[key] = len(self._places)
            self._waiting.append((sample, array))
            if len(self._waiting) == BATCH:
                self._run()
        return self._places[key]

    def embeddings(self) -> Array:
        """One row for each distinct array, in the order of their first use: (n, numbers)."""
        if self._waiting:
            self._run()
        return np.concatenate(self._rows)

    def _run(self) -> None:
        names, arrays = zip(*self._waiting, strict=True)
        outputs = self.runner.run({self.task.input: np.stack(arrays)})
        self._rows.append(finite_rows(outputs, self.task.output, names, self.doing))
        self._waiting.clear()


def scaled_similarities(left: npt.NDArray[np.float64], right: npt.NDArray[np.float64]) -> npt.NDArray[np.int32]:
    """The similarity of each pair of rows of length 1 or 0, (n, d) each: (n,), from 0 to 1,000,000."""
    cosines = np.clip((left * right).sum(axis=1), -1.0, 1.0)
    return np.asarray(np.rint(MILLION * (1 + cosines) / 2), np.int32)
