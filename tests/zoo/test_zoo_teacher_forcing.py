"""Likelihoods of labels beside plain loops over one word, and what is refused."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbench.errors import InputError
from qbench.metrics import Likelihoods
from qbench.storage import Cache
from qbench.subjects import Classification, Dataset, Samples, prepare_samples
from qbench.subjects.sequences import Transduction
from qbench.subjects.tasks import forced_likelihoods
from qbench_zoo.pronunciation import Spelling

START, END, TOKENS = 2, 3, 7
Arrays = dict[str, Any]
Labels = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Function:
    """A runner that is a function."""

    function: Callable[[Arrays], Arrays]

    def run(self, feeds: Mapping[str, Any]) -> Arrays:
        return self.function(dict(feeds))


def words(folder: Path, chosen: tuple[str, ...], labels: Labels) -> Samples:
    data = Dataset(
        id="words",
        kind="word",
        sample_ids=chosen,
        sources=chosen,
        labels=labels,
        content="",
        load=chosen.__getitem__,
    )
    return prepare_samples(data, Spelling(), Cache(folder))


def encode(token: int, h: int) -> int:
    return (h * 3 + token) % 61


def decode(token: int, h: int) -> tuple[list[float], int]:
    state = (h * 5 + token) % 61
    return [((state * (i + 3)) % 11) / 4 for i in range(TOKENS)], state


def machine(fed: set[int]) -> dict[str, Function]:
    """A toy of whole states, which notes the tokens that its decoder is fed."""

    def run_encoder(feeds: Arrays) -> Arrays:
        rows = zip(feeds["token"], feeds["h"], strict=True)
        return {"next_h": np.array([[encode(int(t), int(h[0]))] for t, h in rows], np.float32)}

    def run_decoder(feeds: Arrays) -> Arrays:
        fed.update(feeds["token"].tolist())
        found = [decode(int(t), int(h[0])) for t, h in zip(feeds["token"], feeds["h"], strict=True)]
        return {
            "logits": np.array([logits for logits, _ in found], np.float32),
            "next_h": np.array([[state] for _, state in found], np.float32),
        }

    return {"encoder_step": Function(run_encoder), "decoder_step": Function(run_decoder)}


def surprise(word: str, label: tuple[int, ...]) -> float:
    """The oracle: one word, plain loops, a product of probabilities."""
    h, token, probability = 0, START, 1.0
    for letter in Spelling().prepare(word)["letters"][: len(word) + 1]:
        h = encode(int(letter), h)
    for right in (*label, END):
        logits, h = decode(token, h)
        probability *= math.exp(logits[right]) / sum(map(math.exp, logits))
        token = right
    return -math.log(probability)


SPOKEN = st.dictionaries(
    st.text("abcdefgh", min_size=1, max_size=14),
    st.lists(st.integers(0, TOKENS - 1), max_size=8).map(tuple),
    min_size=1,
    max_size=9,
)


@given(spoken=SPOKEN, batch=st.integers(1, 4))
@settings(max_examples=40)
def test_every_label_is_as_likely_as_it_would_be_alone(
    tmp_path_factory: pytest.TempPathFactory, spoken: dict[str, tuple[int, ...]], batch: int
) -> None:
    samples = words(tmp_path_factory.mktemp("words"), tuple(spoken), tuple(spoken.values()))
    task = Transduction(
        state=1, start=START, end=END, limit=1, batch=batch
    )  # the limit is of answers, not of labels
    found = forced_likelihoods(task, machine(set()), samples)
    assert found.tokens.tolist() == [len(label) + 1 for label in spoken.values()]
    assert (found.surprise / 1e6).tolist() == pytest.approx(
        [surprise(*one) for one in spoken.items()], abs=2e-6
    )


def test_answering_feeds_no_label(tmp_path: Path) -> None:
    fed: set[int] = set()
    task = Transduction(state=1, start=START, end=END, limit=5)
    with_labels = words(tmp_path / "a", ("ab", "cd"), ((6, 6, 5), (4, 6)))
    task.answer(machine(fed), with_labels)
    answered: set[int] = set()
    task.answer(machine(answered), words(tmp_path / "b", ("ab", "cd"), ((0,), (1,))))
    assert fed == answered
    forced: set[int] = set()
    task.likelihoods(machine(forced), with_labels)
    assert forced == {START, 4, 5, 6}


@pytest.mark.parametrize("token", [-1, TOKENS])
def test_a_token_that_the_decoder_lacks_names_its_word(tmp_path: Path, token: int) -> None:
    samples = words(tmp_path, ("ab", "cd"), ((1,), (1, token)))
    with pytest.raises(
        InputError, match=rf"'words', sample 'cd': found token {token} in its label"
    ):
        Transduction(state=1, start=START, end=END).likelihoods(machine(set()), samples)


def test_a_task_that_does_not_tell_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Choose another metric instead of perplexity"):
        forced_likelihoods(Classification(), {}, words(tmp_path, ("ab",), ((1,),)))


def test_an_empty_label_is_its_end_alone(tmp_path: Path) -> None:
    found = Transduction(state=1, start=START, end=END).likelihoods(
        machine(set()), words(tmp_path, ("ab",), ((),))
    )
    assert isinstance(found, Likelihoods)
    assert found.tokens.tolist() == [1]
    assert found.surprise.tolist() == [round(1e6 * surprise("ab", ()))]
