"""What a subject is made of is not what it should be: one sentence, and the cache as it was."""

import functools
import io
import os
import pickle
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qbench.errors import InputError, QbenchError, UnavailableError
from qbench.storage import Cache
from qbench.subjects import Dataset, get_model, prepare_samples
from qbench.subjects.catalogue import Entry
from qbench_zoo import image_models, pronunciation, voices, wordnet
from qbench_zoo.pronunciation import Spelling


class Call:
    """Pickles as a call that would leave a trace."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def one_sentence(error: QbenchError) -> bool:
    return bool(re.fullmatch(r"[^\n]+", str(error))) and bool(
        error.found and error.expected and error.remedy
    )


# -- checkpoints that hold more than tensors, or others


@pytest.mark.parametrize(
    ("room", "model"),
    [
        (image_models, "mobilenet_v2"),
        (image_models, "efficientnet_lite2"),
        (image_models, "squeezenet"),
        (voices, "resemblyzer"),
    ],
)
def test_a_checkpoint_with_a_call_in_it_builds_nothing_and_calls_nothing(
    room: Any, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = b"".join(pickle.dumps(value, protocol=2) for value in (0x1950A86A20F9469CFC6C, 1001))
    call = pickle.dumps({"weight": Call(tmp_path / "made")}, protocol=2)
    found = []
    for content in (call, head + pickle.dumps({"little_endian": True}, protocol=2) + call):
        monkeypatch.setattr(room, "open_member", functools.partial(_given, content))
        with pytest.raises(InputError) as caught:
            get_model(model).graphs["model"]()
        assert one_sentence(caught.value)
        found.append(caught.value.found)
    assert any("mkdir" in words for words in found)
    assert not (tmp_path / "made").exists()


def test_an_archive_of_arrays_with_a_pickle_in_it_is_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.BytesIO()
    np.savez(stream, enc_emb=np.array([Call(tmp_path / "made")], dtype=object))
    monkeypatch.setattr(pronunciation, "open_member", functools.partial(_given, stream.getvalue()))
    with pytest.raises(InputError) as caught:
        get_model("g2p_en").graphs["encoder_step"]()
    assert one_sentence(caught.value)
    assert not (tmp_path / "made").exists()


def _given(content: bytes, *_: Any, **__: Any) -> bytes:
    return content


# -- data of another count


def test_a_data_set_that_holds_another_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def few() -> Dataset:
        return words("cmudict_words", ["one", "two"])

    monkeypatch.setattr("qbench_zoo.pronunciation.cmudict_words", few)
    assert len(Entry("qbench_zoo.pronunciation", "cmudict_words", samples=2)()) == 2
    with pytest.raises(
        UnavailableError, match=r"'cmudict_words'.*found 2 samples.*expected 3"
    ) as caught:
        Entry("qbench_zoo.pronunciation", "cmudict_words", samples=3)()
    assert one_sentence(caught.value)


LINE = '00003993 03 n 02 congener 0 other 0 001 @ 00003553 n 0000 | a whole; "an example"  \n'


@pytest.mark.parametrize(
    ("text", "found"),
    [("  1 a licence\n" + 3 * LINE, "3 synsets"), ("", "0 synsets"), (LINE + "half a", "'half a'")],
)
def test_a_wordnet_of_another_size_is_refused(
    text: str, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wordnet, "open_member", functools.partial(_given, text.encode()))
    with pytest.raises(UnavailableError) as caught:
        wordnet.nouns.__wrapped__()
    assert found in caught.value.found
    assert one_sentence(caught.value)


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({"labels": ((1,), (2,))}, "2 labels for 3 samples"),
        ({"labels": ((1,),) * 4}, "4 labels for 3 samples"),
        ({"sources": ("a",)}, "1 sources for 3 samples"),
        ({"sample_ids": ("w0", "w0", "w1")}, "2 different names for 3 samples"),
    ],
)
def test_a_data_set_whose_parts_differ_in_number_is_named_with_both(
    changed: dict[str, Any], found: str
) -> None:
    with pytest.raises(InputError, match="'mine'") as caught:
        replace(words("mine", ["one", "two", "three"]), **changed)
    assert caught.value.found == found
    assert one_sentence(caught.value)


@pytest.mark.parametrize("count", [0, 4])
def test_more_samples_than_there_are_is_a_sentence(count: int) -> None:
    with pytest.raises(
        InputError, match=rf"Taking {count} samples of the data set 'mine'.*found 3"
    ) as caught:
        words("mine", ["one", "two", "three"]).take(count)
    assert one_sentence(caught.value)


# -- the cache


def words(name: str, samples: list[str]) -> Dataset:
    ids = tuple(f"w{place}" for place in range(len(samples)))
    load: Callable[[int], str] = samples.__getitem__
    return Dataset(
        id=name, kind="word", sample_ids=ids, sources=ids, labels=None, content="made up", load=load
    )


def test_a_bad_sample_leaves_nothing_behind_and_a_mended_one_goes_through(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    with pytest.raises(InputError, match="'na1ve'"):
        prepare_samples(words("mine", ["good", "na1ve"]), Spelling(), cache)
    assert not [
        path for path in cache.folder.rglob("*") if path.is_file() and path.suffix != ".lock"
    ]
    assert len(prepare_samples(words("mine", ["good", "naive"]), Spelling(), cache)) == 2
