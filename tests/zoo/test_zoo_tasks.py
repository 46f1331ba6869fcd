"""Tasks: the declared order of classes, greedy decoding as a single word would be, and nothing
that is not finite.
"""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from qbench.errors import InputError
from qbench.metrics import PADDING, AnswerKind
from qbench.storage import Cache
from qbench.subjects import Dataset, Samples, prepare_samples
from qbench.subjects.sequences import Transduction
from qbench.subjects.tasks import Classification, best_classes
from qbench_zoo.pronunciation import Spelling

Arrays = dict[str, Any]


@dataclass(frozen=True)
class Function:
    """A runner that is a function."""

    function: Callable[[Arrays], Arrays]

    def run(self, feeds: Mapping[str, Any]) -> Arrays:
        return self.function(dict(feeds))


def words(folder: Path, *chosen: str) -> Samples:
    data = Dataset(
        id="words",
        kind="word",
        sample_ids=chosen,
        sources=chosen,
        labels=None,
        content="",
        load=chosen.__getitem__,
    )
    return prepare_samples(data, Spelling(), Cache(folder))


def classified(folder: Path, scores: Any, **settings: Any) -> Any:
    rows = np.asarray(scores)
    samples = words(
        folder, *(f"{'abcdefghij'[i // 10]}{'abcdefghij'[i % 10]}" for i in range(len(rows)))
    )
    given = iter(np.split(rows, range(8, len(rows), 8)))
    return Classification(**settings).answer(
        {"model": Function(lambda feeds: {"scores": next(given)})}, samples
    )


# -- classification


@given(
    hnp.arrays(
        np.float32,
        hnp.array_shapes(min_dims=2, max_dims=2, max_side=9),
        elements=st.sampled_from([-2.0, -0.0, 0.0, 1.0, 1.5]),
    ),
    st.integers(1, 7),
)
def test_classes_come_by_falling_score_then_rising_id(scores: Any, k: int) -> None:
    ids, best = best_classes(scores, k)
    for row, (order, values) in enumerate(zip(ids, best, strict=True)):
        oracle = sorted(range(scores.shape[1]), key=lambda c: (-scores[row, c], c))[:k]
        assert order.tolist() == oracle
        assert values.tolist() == [scores[row, c] for c in oracle]
    assert ids.dtype == np.int32


def test_ties_for_the_first_place_are_counted(tmp_path: Path) -> None:
    answers = classified(tmp_path, [[1, 3, 3], [3, 1, 1], [0, 0, 0]])
    assert answers.ties == 2
    assert answers.ids[:, 0].tolist() == [1, 0, 0]


def test_a_model_of_few_classes_answers_with_all_of_them(tmp_path: Path) -> None:
    assert classified(tmp_path, np.eye(3, dtype=np.float32)).ids.shape == (3, 3)


def test_batches_are_joined_in_order(tmp_path: Path) -> None:
    scores = np.eye(21, dtype=np.float16)
    answers = classified(tmp_path, scores, k=2)
    assert answers.ids[:, 0].tolist() == list(range(21))
    assert answers.scores.dtype == np.float32


def test_a_score_that_is_not_finite_names_its_sample(tmp_path: Path) -> None:
    scores = np.zeros((12, 3), np.float32)
    scores[10, 1] = np.nan
    with pytest.raises(
        InputError, match=r"'words', sample 'ba': found NaN or Inf in output 'scores'"
    ):
        classified(tmp_path, scores)


@pytest.mark.parametrize(
    ("scores", "settings", "words_of_error"),
    [
        (np.zeros((2, 3)), {"output": "logits"}, r"outputs \['scores'\].*one called 'logits'"),
        (np.zeros((2, 3, 1)), {}, r"shape \(2, 3, 1\)"),
        (np.zeros((2, 0)), {}, r"shape \(2, 0\)"),
    ],
)
def test_outputs_that_do_not_fit_are_refused(
    tmp_path: Path, scores: Any, settings: Arrays, words_of_error: str
) -> None:
    with pytest.raises(InputError, match=words_of_error):
        classified(tmp_path, scores, **settings)


def test_too_few_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected \(2, numbers a sample\)"):
        Classification().answer(
            {"model": Function(lambda _: {"y": np.zeros((1, 3))})}, words(tmp_path, "ab", "cd")
        )


def test_a_graph_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected one called 'model'"):
        Classification().answer({}, words(tmp_path, "ab"))


def test_an_answer_names_at_least_one_class() -> None:
    with pytest.raises(ValueError, match="0 classes"):
        Classification(k=0)


# -- transduction: a toy machine with whole numbers in h = (sum of tokens, answers so far)


def encode(token: int, h: tuple[int, int]) -> tuple[int, int]:
    return (h[0] * 3 + token) % 61, 0


def decode(token: int, h: tuple[int, int]) -> tuple[int, tuple[int, int]]:
    """The token answered (0 … 6, 3 ends) and the next state."""
    state = (h[0] * 5 + token) % 61, h[1] + 1
    return (state[0] % 7, state)


def alone(word: str, limit: int) -> list[int]:
    """The oracle: one word, plain loops."""
    h = (0, 0)
    for letter in Spelling().prepare(word)["letters"][: len(word) + 1]:
        h = encode(int(letter), h)
    token, answer = 2, []
    for _ in range(limit):
        token, h = decode(token, h)
        if token == 3:
            break
        answer.append(token)
    return answer


def machine(seen: dict[str, set[tuple[int, ...]]]) -> dict[str, Function]:
    def run_encoder(feeds: Arrays) -> Arrays:
        rows = [
            (int(t), (int(h[0]), int(h[1])))
            for t, h in zip(feeds["token"], feeds["h"], strict=True)
        ]
        seen["encoder"] |= {(t, *h) for t, h in rows}
        return {"next_h": np.array([encode(t, h) for t, h in rows], np.float32)}

    def run_decoder(feeds: Arrays) -> Arrays:
        rows = [
            (int(t), (int(h[0]), int(h[1])))
            for t, h in zip(feeds["token"], feeds["h"], strict=True)
        ]
        seen["decoder"] |= {(t, *h) for t, h in rows}
        answers = [decode(t, h) for t, h in rows]
        return {
            "logits": np.eye(7, dtype=np.float32)[[token for token, _ in answers]],
            "next_h": np.array([state for _, state in answers], np.float32),
        }

    return {"encoder_step": Function(run_encoder), "decoder_step": Function(run_decoder)}


WORDS = st.lists(st.text("abcdefgh", min_size=1, max_size=14), min_size=1, max_size=12, unique=True)


@given(chosen=WORDS, batch=st.integers(1, 5), limit=st.integers(1, 6))
@pytest.mark.slow
def test_every_word_is_answered_as_it_would_be_alone(
    tmp_path_factory: pytest.TempPathFactory, chosen: list[str], batch: int, limit: int
) -> None:
    samples = words(tmp_path_factory.mktemp("words"), *chosen)
    task = Transduction(state=2, start=2, end=3, limit=limit, batch=batch)
    together, single = ({"encoder": set(), "decoder": set()} for _ in range(2))
    answers = task.answer(machine(together), samples)
    assert [list(answers.sequence(i)) for i in range(len(chosen))] == [
        alone(word, limit) for word in chosen
    ]
    assert answers.kind is AnswerKind.SEQUENCE
    assert answers.ids.shape == (len(chosen), limit)
    # no number comes before a watcher that a word alone would not have brought there
    Transduction(state=2, start=2, end=3, limit=limit, batch=1).answer(machine(single), samples)
    assert together == single


def test_words_that_end_at_once_are_all_padding(tmp_path: Path) -> None:
    ends = {"logits": np.eye(7, dtype=np.float32)[[3, 3]], "next_h": np.zeros((2, 2), np.float32)}
    runners = {
        "encoder_step": Function(lambda _: {"next_h": np.zeros((2, 2), np.float32)}),
        "decoder_step": Function(lambda _: ends),
    }
    answers = Transduction(state=2, start=2, end=3).answer(runners, words(tmp_path, "ab", "cd"))
    assert (answers.ids == PADDING).all()


def test_equal_logits_are_counted_once_a_word_and_give_the_lowest_token(tmp_path: Path) -> None:
    runners = {
        "encoder_step": Function(lambda _: {"next_h": np.zeros((2, 2), np.float32)}),
        "decoder_step": Function(
            lambda _: {
                "logits": np.array([[0, 1, 1], [0, 1, 0]], np.float32),
                "next_h": np.zeros((2, 2), np.float32),
            }
        ),
    }
    answers = Transduction(state=2, start=2, end=0, limit=3).answer(
        runners, words(tmp_path, "ab", "cd")
    )
    assert answers.ids.tolist() == [[1, 1, 1]] * 2
    assert answers.ties == 1


@pytest.mark.parametrize("where", ["encoder_step", "decoder_step"])
def test_a_state_that_is_not_finite_names_word_and_step(tmp_path: Path, where: str) -> None:
    runners = machine({"encoder": set(), "decoder": set()})
    good = runners[where].run

    def spoiled(feeds: Arrays) -> Arrays:
        outputs = good(feeds)
        outputs["next_h"][1, 0] = np.inf
        return outputs

    with pytest.raises(InputError, match=r"(letter|answer) 0, sample 'cd'"):
        Transduction(state=2, start=2, end=3).answer(
            {**runners, where: Function(spoiled)}, words(tmp_path, "ab", "cd")
        )


def test_settings_that_mean_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="limit 0"):
        Transduction(state=2, start=2, end=3, limit=0)
    assert (
        Transduction(state=2, start=2, end=3).name
        != Transduction(state=2, start=2, end=3, limit=4).name
    )


@pytest.mark.parametrize(
    ("labels", "bad"), [((0, 3, 1), "ab': found label 3"), ((0, 2, 50), "ac': found label 50")]
)
def test_a_label_that_is_no_class_names_its_sample(
    tmp_path: Path, labels: tuple[int, ...], bad: str
) -> None:
    scores = np.eye(3, dtype=np.float32)
    given = dataclasses.replace(
        words(tmp_path, "aa", "ab", "ac"), labels=tuple((label,) for label in labels)
    )
    runner = {"model": Function(lambda feeds: {"scores": scores})}
    with pytest.raises(InputError, match=bad) as caught:
        Classification().answer(runner, given)
    assert "labels from 0 to 2" in caught.value.expected
    fine = dataclasses.replace(given, labels=((0,), (2, 1), ()))
    assert len(Classification().answer(runner, fine)) == 3


def test_scores_beyond_shares_become_probabilities_over_all_classes(tmp_path: Path) -> None:
    logits = np.random.default_rng(5).normal(0, 4, (13, 30)).astype(np.float32)
    shares = np.exp(logits.astype(np.float64)) / np.exp(logits.astype(np.float64)).sum(
        axis=1, keepdims=True
    )
    answers = classified(tmp_path, logits)
    assert answers.scores == pytest.approx(
        np.take_along_axis(shares, answers.ids, axis=1), rel=1e-6
    )


def test_shares_stay_what_the_model_gave(tmp_path: Path) -> None:
    """On a grid they need not add up to 1."""
    shares = np.round(np.random.default_rng(6).random((13, 30)) * 255).astype(np.float32) / 255
    answers = classified(tmp_path, shares)
    assert np.array_equal(answers.scores, np.take_along_axis(shares, answers.ids, axis=1))
