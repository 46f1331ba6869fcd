"""Pairs of things → how alike the two are: networks that embed, judged by whether both are of one origin.

    e = graph(x) once for every distinct x        likeness(a, b) = round(10⁶ · (1 + ⟨eₐ, e_b⟩ / (‖eₐ‖·‖e_b‖)) / 2)

The cosine is taken in float64, 0 where an embedding is 0; a half goes to the even number. Two feeds are the same x when
their bytes are: a thing that stands in many pairs runs once, in a batch with those that were new beside it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from qbench.metrics import MILLION, AnswerKind, Answers, OutputKind, held_outputs
from qbench.storage import digest_arrays
from qbench.zoo.samples import BATCH, Samples
from qbench.zoo.tasks.classification import GRAPH
from qbench.zoo.tasks.nearest_neighbour import unit_rows
from qbench.zoo.tasks.reading import Array, finite_rows, runner_named
from qbench.zoo.tasks.task import Runner


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """One graph, run on every distinct half of a pair.

    Args:
        input: of the graph. output: which holds the embeddings, (n, numbers); None: the graph's first.
        first, second: feeds of the samples, each what ``input`` takes.
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
        """How alike the halves of every sample are, in millionths, (n, 1) int32.

        Raises:
            InputError: an output is missing, has another shape, or is not finite (a sample that it is of is named).
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
        return Answers(likenesses(unit[left], unit[right])[:, None], kind=AnswerKind.LIKENESS, outputs=held)


@dataclass(slots=True)
class _Embedder:
    """Runs a graph on what it has not seen, a whole batch at a time."""

    task: Verification
    runner: Runner
    doing: str
    _places: dict[str, int] = field(default_factory=dict)
    _waiting: list[tuple[str, Array]] = field(default_factory=list)
    _rows: list[Array] = field(default_factory=list)

    def place(self, array: Array, sample: str) -> int:
        """The row of ``embeddings`` that will be ``array``'s; ``sample`` is whom to name if it is not finite."""
        key = digest_arrays({self.task.input: array})
        if key not in self._places:
            self._places[key] = len(self._places)
            self._waiting.append((sample, array))
            if len(self._waiting) == BATCH:
                self._run()
        return self._places[key]

    def embeddings(self) -> Array:
        """One row each, in the order of their first places: (n, numbers)."""
        if self._waiting:
            self._run()
        return np.concatenate(self._rows)

    def _run(self) -> None:
        names, arrays = zip(*self._waiting, strict=True)
        outputs = self.runner.run({self.task.input: np.stack(arrays)})
        self._rows.append(finite_rows(outputs, self.task.output, names, self.doing))
        self._waiting.clear()


def likenesses(left: npt.NDArray[np.float64], right: npt.NDArray[np.float64]) -> npt.NDArray[np.int32]:
    """Of rows of length 1 or 0, (n, d) each: (n,), from 0 to 1,000,000."""
    cosines = np.clip((left * right).sum(axis=1), -1.0, 1.0)
    return np.asarray(np.rint(MILLION * (1 + cosines) / 2), np.int32)
