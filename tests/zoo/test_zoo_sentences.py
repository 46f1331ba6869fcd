"""Sentences: how text becomes word pieces, WordNet's lines, tasks over made-up directions, and
the real network.
"""

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.errors import InputError, UnavailableError
from qbench.metrics import get_metric
from qbench.storage import Cache
from qbench.subjects import Dataset, Samples, get_dataset, get_model, prepare_samples
from qbench.subjects.sequences import batches_by_length
from qbench_zoo.glosses import (
    Retrieval,
    Sentence,
    SentenceClassification,
    WordPieces,
    scored,
    split_words,
    training,
)
from qbench_zoo.readers.array_files import read_safetensors
from qbench_zoo.wordnet import read_gloss

PIECES = WordPieces.of("[PAD]\n[UNK]\n[CLS]\n[SEP]\nrow\n##ing\nboat\n##s\n.\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Rowing boats.", [2, 4, 5, 6, 7, 8, 3]),
        ("", [2, 3]),
        ("rows  xrow", [2, 4, 7, 1, 3]),
        ("rów", [2, 4, 3]),
        ("row" * 40, [2, 1, 3]),
    ],
)
def test_words_are_cut_greedily(text: str, expected: list[int]) -> None:
    assert PIECES.encode(text, 64) == expected


def test_long_text_is_cut_and_still_ends() -> None:
    assert PIECES.encode("row " * 50, 5) == [2, 4, 4, 4, 3]


def test_signs_stand_alone_and_controls_vanish() -> None:
    assert list(split_words("it's $5—\u200bé\tOK")) == ["it", "'", "s", "$", "5", "—", "e", "ok"]


def written(arrays: dict[str, np.ndarray], **changes: object) -> bytes:
    table: dict[str, object] = {"__metadata__": {"format": "pt"}}
    numbers = b""
    for name, array in arrays.items():
        kind = {"<f4": "F32", "<f2": "F16", "<i8": "I64"}[array.dtype.str]
        entry = {
            "dtype": kind,
            "shape": list(array.shape),
            "data_offsets": [len(numbers), len(numbers) + array.nbytes],
        }
        table[name] = {**entry, **changes}
        numbers += array.tobytes()
    text = json.dumps(table).encode()
    return struct.pack("<Q", len(text)) + text + numbers


ARRAYS = {
    "a": np.arange(6, dtype="<f4").reshape(2, 3),
    "b": np.array([1, -1], "<i8"),
    "c": np.ones(3, "<f2"),
}


def test_safetensors_come_out_as_they_went_in() -> None:
    found = read_safetensors(written(ARRAYS), "x")
    assert list(found) == ["a", "b", "c"]
    for name, array in found.items():
        np.testing.assert_array_equal(array, ARRAYS[name])
        assert array.dtype == ARRAYS[name].dtype


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"dtype": "BF16"}, "numbers of type 'BF16'"),
        ({"shape": [7]}, "an array of shape"),
        ({"data_offsets": [0, 2**40]}, "an array of shape"),
        ({"data_offsets": [-8, 16]}, "an array of shape"),
        ({"shape": None}, "NoneType"),
    ],
)
def test_safetensors_that_cannot_be_are_refused(changes: dict[str, object], found: str) -> None:
    with pytest.raises(InputError, match=found):
        read_safetensors(written({"a": ARRAYS["a"]}, **changes), "x")


@given(st.integers(0, len(written(ARRAYS)) - 1))
def test_safetensors_cut_short_are_refused(length: int) -> None:
    with pytest.raises(InputError, match="'x'"):
        read_safetensors(written(ARRAYS)[:length], "x")


def test_a_line_of_wordnet() -> None:
    line = (
        '00003993 03 n 02 con_gener 0 other 0 001 @ 00003553 n 0000 | a whole; of a kind; "lard '
        'was used"; "so"  '
    )
    gloss = read_gloss(line)
    assert (gloss.offset, gloss.field, gloss.word) == ("00003993", 0, "con gener")
    assert gloss.definition == "a whole; of a kind"
    for broken in ("00003993 03 n 02 congener 0", "00003993 99 n 02 congener 0 000 | a", "x"):
        with pytest.raises(UnavailableError, match="the line"):
            read_gloss(broken)


class Lengths:
    """Answers with the sum and the length of every sequence, and notes the shapes that it saw."""

    def __init__(self) -> None:
        self.shapes: list[tuple[int, ...]] = []

    def run(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        ids = feeds["ids"]
        self.shapes.append(ids.shape)
        angle = ids.sum(axis=1, dtype=np.float64) / 100
        return {"out": np.stack([np.cos(angle), np.sin(angle)], axis=1).astype(np.float32)}


def samples_of(
    kind: str, entries: list[object], labels: tuple[tuple[int, ...], ...], folder: Path
) -> Samples:
    names = tuple(f"s{i}" for i in range(len(entries)))
    data = Dataset(
        id="made-up",
        kind=kind,
        sample_ids=names,
        sources=names,
        labels=labels,
        content="x",
        load=entries.__getitem__,
    )
    return prepare_samples(data, Ready(), Cache(folder))


class Ready(Sentence):
    """Ids as they are, no vocabulary."""

    name = "ready"
    kinds = ("pair", "ids")

    def prepare(self, sample: object) -> dict[str, np.ndarray]:
        def padded(ids: list[int]) -> np.ndarray:
            return np.array(ids + [0] * (8 - len(ids)), np.uint16)

        if isinstance(sample, tuple):
            query, document = sample
            lengths = {"query_length": len(query), "document_length": len(document)}
            ids = {"query": padded(query), "document": padded(document)}
        else:
            assert isinstance(sample, list)
            lengths, ids = {"length": len(sample)}, {"ids": padded(sample)}
        return ids | {name: np.array(n, np.uint8) for name, n in lengths.items()}


def test_sequences_of_one_length_run_together_without_padding(tmp_path: Path) -> None:
    entries: list[object] = [[5], [1, 2], [7], [3, 4], *[[9]] * 9]
    samples = samples_of("ids", entries, ((0,),) * 13, tmp_path)
    seen = list(batches_by_length(samples, "ids", "length"))
    assert [ids.shape for _, ids in seen] == [(8, 1), (3, 1), (2, 2)]
    assert sorted(place for places, _ in seen for place in places) == list(range(13))
    for places, ids in seen:
        assert ids.tolist() == [entries[place] for place in places]


def test_classes_come_back_in_the_order_of_the_samples(tmp_path: Path) -> None:
    entries: list[object] = [
        [0],
        [100, 57],
        [0, 0],
        [157],
    ]  # angles 0, π/2, 0, π/2: the better output is 0, 1, 0, 1
    answers = SentenceClassification(k=2).answer(
        {"model": Lengths()}, samples_of("ids", entries, ((0,),) * 4, tmp_path)
    )
    assert answers.ids[:, 0].tolist() == [0, 1, 0, 1]


def test_retrieval_ranks_documents_by_their_label(tmp_path: Path) -> None:
    pairs: list[object] = [([10], [10]), ([20, 30], [49]), ([90], [100])]
    answers = Retrieval(k=3).answer(
        {"model": Lengths()}, samples_of("pair", pairs, ((7,), (2,), (4,)), tmp_path)
    )
    assert answers.ids.tolist() == [[7, 2, 4], [2, 7, 4], [4, 2, 7]]
    assert get_metric("mrr").count(answers, ((7,), (7,), (9,)), None).hits.tolist() == [
        2520,
        1260,
        0,
    ]


def test_retrieval_needs_a_name_for_every_document(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="label of their own"):
        Retrieval().answer(
            {"model": Lengths()}, samples_of("pair", [([1], [1])] * 2, ((3,), (3,)), tmp_path)
        )


@pytest.mark.slow
def test_definitions_are_chosen_as_said() -> None:
    chosen, taught = scored(), training()
    assert (len(chosen), len(taught)) == (1920, 3933)
    assert not {g.offset for g in chosen} & {g.offset for g in taught}
    assert np.unique([g.field for g in chosen], return_counts=True)[1].tolist() == [80] * 24
    assert len(get_dataset("gloss_queries")) == 1000
    assert len(get_dataset("gloss_queries_calibration")) == 64
    assert not {*get_dataset("gloss_queries").sources} & {
        *get_dataset("gloss_queries_calibration").sources
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "data", "metrics"),
    [
        ("minilm_glosses", "glosses", {"top1": 0.711, "top5": 0.946}),
        ("minilm_retrieval", "gloss_queries", {"top1": 0.47, "top5": 0.612, "mrr": 0.5325}),
    ],
)
def test_what_the_network_makes_of_them(name: str, data: str, metrics: dict[str, float]) -> None:
    from qbench.backends import get_backend

    model, entries = get_model(name), get_dataset(data)
    with get_backend("ort-cpu").prepare(model.graphs["model"]()) as executor:
        answers = model.task.answer(
            {"model": executor}, prepare_samples(entries, model.preprocess, Cache.default())
        )
    for metric, expected in metrics.items():
        counts = get_metric(metric).count(answers, entries.labels, None)
        assert counts.hits.sum() / counts.out_of.sum() == pytest.approx(expected, abs=0.0016)
