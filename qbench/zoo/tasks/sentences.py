"""Tasks over sentences: which class one is of, and which of all documents it belongs to.

    classes      the k best outputs of the graph for the sentence
    retrieval    s(i, j) = ⟨query i, document j⟩ of unit directions; the k documents j by falling s, equal ones by
                 rising id

A document's id is its sample's label, so that any part of the data can be asked.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from qbench.errors import InputError
from qbench.metrics import Answers, OutputKind, held_outputs
from qbench.zoo.samples import Samples
from qbench.zoo.tasks.by_length import batches_by_length
from qbench.zoo.tasks.classification import GRAPH, best_classes, tied_rows
from qbench.zoo.tasks.reading import Array, finite_rows, runner_named
from qbench.zoo.tasks.task import Runner


@dataclass(frozen=True, slots=True, kw_only=True)
class SentenceClassification:
    """One graph from token ids to scores of classes.

    Args:
        sequence, length: feeds of the samples: token ids, and how many count. k: how many classes an answer names.
    """

    sequence: str = "ids"
    length: str = "length"
    k: int = 5

    @property
    def name(self) -> str:
        """Every setting in one word."""
        return f"sentence classification({self.sequence}, {self.length}, k={self.k})"

    @property
    def graphs(self) -> tuple[str, ...]:
        """The one graph."""
        return (GRAPH,)

    def answer(self, runners: Mapping[str, Runner], samples: Samples) -> Answers:
        """The k best class ids of every sample (int32) with their scores (float32), best first.

        Raises:
            InputError: an output is missing, has another shape, or is not finite (the sample is named).
        """
        runner = runner_named(runners, GRAPH, self.name)
        scores = _rows(runner, samples, self.sequence, self.length)
        ids, best = best_classes(scores, self.k)
        held = held_outputs(scores, OutputKind.CLASSES)
        return Answers(ids, best, tied_rows(scores), outputs=held)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrieval:
    """One graph from token ids to a direction, run on every query and on every document.

    Args:
        query, document: feeds of the samples; the lengths of each stand in ``<feed>_length``.
        k: how many documents an answer names.
    """

    query: str = "query"
    document: str = "document"
    k: int = 10

    @property
    def name(self) -> str:
        """Every setting in one word."""
        return f"retrieval({self.query} → {self.document}, k={self.k})"

    @property
    def graphs(self) -> tuple[str, ...]:
        """The one graph."""
        return (GRAPH,)

    def answer(self, runners: Mapping[str, Runner], samples: Samples) -> Answers:
        """The ids of the k nearest documents of every query (int32) with their similarity (float32), best first.

        Raises:
            InputError: as ``SentenceClassification.answer``; or a sample without a label, its document's id.
        """
        runner = runner_named(runners, GRAPH, self.name)
        documents, queries = (
            _rows(runner, samples, feed, f"{feed}_length").astype(np.float64) for feed in (self.document, self.query)
        )
        ids = _document_ids(samples)
        order = np.argsort(ids)
        scores = queries @ documents[order].T
        places, best = best_classes(scores, self.k)
        held = held_outputs(queries, OutputKind.VALUES)
        return Answers(ids[order][places], best.astype(np.float32), tied_rows(scores), outputs=held)


def _rows(runner: Runner, samples: Samples, sequence: str, length: str) -> Array:
    """The graph's first output for every sample, in their order."""
    rows: dict[int, Array] = {}
    for places, tokens in batches_by_length(samples, sequence, length):
        names = [samples.ids[place] for place in places]
        found = finite_rows(runner.run({"ids": tokens}), None, names, f"Reading sentences of '{samples.data}'")
        rows.update(zip(places, found, strict=True))
    return np.stack([rows[place] for place in range(len(samples))])


def _document_ids(samples: Samples) -> npt.NDArray[np.int32]:
    labels = samples.labels or ()
    if len(labels) != len(samples) or any(len(one) != 1 for one in labels) or len(set(labels)) != len(labels):
        raise InputError(
            f"Retrieving documents of '{samples.data}'",
            found="samples without a label of their own",
            expected="one label each: the id of its document",
            remedy="Label every sample with the number of its document.",
        )
    return np.array(labels, np.int32)[:, 0]
