"""Files of answers: what was written is read again, in every form,
and any other bytes are one sentence.
"""

import contextlib
import json

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbench.errors import InputError
from qbench.metrics import (
    AnswerRecord,
    Header,
    Provenance,
    TokenRecord,
    answer_lines,
    is_answer_file,
    open_answers,
)

TEXT = st.text(max_size=8)
FINITE = st.floats(-1e300, 1e300)
RECORD = st.fixed_dictionaries(
    {
        "answer": st.lists(st.integers(0, 2**31 - 1), max_size=4),
        "scores": st.lists(FINITE, max_size=4),
        "metrics": st.fixed_dictionaries({"acc": FINITE, "f1": st.booleans()}),
        "label": TEXT,
        "source": TEXT,
        "content": TEXT,
        "tokens": st.builds(
            TokenRecord,
            realised=st.lists(FINITE, max_size=3),
            top=st.lists(st.lists(st.integers(0, 9), max_size=2), max_size=3),
            logprobs=st.lists(st.lists(FINITE, max_size=2), max_size=3),
        ),
    }
)


@settings(deadline=None, max_examples=20)
@given(
    rows=st.lists(RECORD, min_size=1, max_size=5),
    names=st.dictionaries(TEXT, TEXT, max_size=2),
    ids=st.data(),
)
def test_what_was_written_is_read_again(tmp_path_factory, rows, names, ids):
    path = tmp_path_factory.mktemp("answers") / "run.jsonl"
    found = [AnswerRecord(id=ids.draw(TEXT), **row) for row in rows]
    header = Header(provenance=Provenance(device="a", versions=names), lower=["f1"])
    path.write_bytes(b"".join(answer_lines(header, iter(found))))
    file = open_answers(path)
    assert (file.header, list(file.records())) == (header, found)
    assert is_answer_file(path)


GOOD = (
    b'{"format": "qbench-answers/1"}\n{"id": "a", "answer": [1, 2], "scores": [0.5, 0.25]}\n'
    b'{"id": 2, "answer": [3]}\n'
)


@settings(deadline=None, max_examples=120)
@given(st.integers(0, len(GOOD)), st.integers(0, 12), st.binary(max_size=12))
def test_other_bytes_are_one_sentence_or_records(tmp_path_factory, place, length, other):
    path = tmp_path_factory.mktemp("answers") / "run.jsonl"
    path.write_bytes(GOOD[:place] + other + GOOD[place + length :])
    is_answer_file(path)
    with contextlib.suppress(InputError):  # any other exception fails
        records = list(open_answers(path).records())
        assert records
        assert all(isinstance(one, AnswerRecord) for one in records)


def test_nested_json_is_one_sentence(tmp_path):
    path = tmp_path / "deep.jsonl"
    path.write_text('{"id": ' + "[" * 100_000 + "]" * 100_000 + "}\n")
    with pytest.raises(InputError, match="line 1"):
        list(open_answers(path).records())


@pytest.mark.parametrize(
    ("arrays", "named"),
    [
        ({"answer": [1, 2]}, "the arrays answer"),
        ({"id": ["a", "b"]}, "id"),
        ({"id": ["a", "b"], "answer": [1]}, "one row for each id"),
        ({"id": [["a"]], "answer": [[1]]}, "one row for each id"),
        ({"id": [], "answer": []}, "no sample"),
        ({"id": ["a"], "answer": [object()]}, "objects"),
        ({"id": ["a"], "answer": [1], "header": "{"}, "header"),
        (
            {"id": ["a", "b"], "answer": [[1], [2]], "scores": [[0.5], [np.nan]]},
            "row 1, sample 'b'",
        ),
        ({"id": ["a"], "answer": [1j]}, "row 0"),
    ],
)
def test_arrays_that_do_not_fit(arrays, named, tmp_path):
    path = tmp_path / "run.npz"
    np.savez(path, **{name: np.array(value) for name, value in arrays.items()})
    with pytest.raises(InputError) as caught:
        list(open_answers(path).records())
    assert named in str(caught.value)


def test_a_run_file_is_no_file_of_answers(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_text(json.dumps({"type": "run", "format": "qbench-run/1", "id": "x"}) + "\n")
    assert not is_answer_file(path)
    with pytest.raises(InputError, match="qbench-run/1"):
        open_answers(path)


def test_records_are_read_one_by_one(tmp_path):
    """The first record comes before the last line is looked at, which is broken."""
    path = tmp_path / "run.jsonl"
    lines = [msgspec.json.encode(AnswerRecord(id=row, answer=1)) for row in range(1000)]
    path.write_bytes(b"\n".join([*lines, b"{"]))
    records = open_answers(path).records()
    assert next(records).id == 0
    with pytest.raises(InputError, match="line 1001"):
        list(records)


@pytest.mark.parametrize(
    ("record", "found"),
    [
        ({"id": "a", "answer": 1, "metrics": {"acc": "high"}}, "a text in 'metrics'"),
        ({"id": "a", "answer": {"class": 1}}, "an object in 'answer'"),
        ({"answer": 1}, "no 'id'"),
        ([1, 2], "a list"),
    ],
)
def test_a_record_of_other_types_is_told_in_plain_words(record, found, tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_text(json.dumps({"id": "z", "answer": 1}) + "\n" + json.dumps(record) + "\n")
    with pytest.raises(InputError) as refused:
        list(open_answers(path).records())
    assert refused.value.found == found
