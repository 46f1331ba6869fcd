"""Metrics of texts, likenesses and ranks: hand-made numbers, plain loops, and the libraries'
own corpus counts.
"""

import jiwer
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.metrics import (
    MILLION,
    PADDING,
    AnswerKind,
    Answers,
    Direction,
    get_metric,
    points_of,
    score,
    text_of,
)

words = st.text("ab c", max_size=12)


def texts(*lines):
    rows = [points_of(line) for line in lines]
    width = max(1, *map(len, rows))
    ids = [[*row, *[PADDING] * (width - len(row))] for row in rows]
    return Answers(np.array(ids, dtype=np.int32), kind=AnswerKind.TEXT)


def labels(*lines):
    return tuple(points_of(line) for line in lines)


def likenesses(*values):
    return Answers(np.array(values, dtype=np.int32)[:, None], kind=AnswerKind.LIKENESS)


def counted(name, answers, right):
    counts = get_metric(name).count(answers, right, None)
    return counts.hits.tolist(), counts.out_of.tolist()


def test_text_is_kept_as_code_points():
    answers = texts("naïve 語", "")
    assert answers.text(0) == "naïve 語"
    assert answers.text(1) == ""
    assert text_of(answers.best(0)) == "naïve 語"


def test_words_and_characters_of_a_sentence():
    answers = texts("the cat sat on mat", "two words", "one", "")
    right = labels("the cat sat on the mat", "two words", "", "one")
    assert counted("wer", answers, right) == ([1, 0, 1, 1], [6, 2, 0, 1])
    assert counted("cer", answers, right) == ([4, 0, 3, 3], [22, 9, 0, 3])


@given(st.lists(st.tuples(words, words.map(str.strip).filter(bool)), min_size=1, max_size=5))
def test_error_rates_are_those_of_the_corpus(pairs):
    answered, right = [a.strip() for a, _ in pairs], [b for _, b in pairs]
    for name, of_corpus in (("wer", jiwer.wer), ("cer", jiwer.cer)):
        hits, out_of = counted(name, texts(*answered), labels(*right))
        assert sum(hits) / sum(out_of) == pytest.approx(of_corpus(right, answered))


def test_chrf_and_bleu_are_means_of_sentences_in_hundredths_of_a_percent():
    answers, right = (
        texts("the cat sat on the mat", "nothing alike"),
        labels("the cat sat on the mat", "qqq zzz"),
    )
    for name in ("chrf", "bleu"):
        hits, out_of = counted(name, answers, right)
        assert hits[0] == 10_000
        assert hits[1] < 500
        assert out_of == [10_000, 10_000]
    half = counted("chrf", texts("the cat sat"), labels("the cat sat on the mat"))[0][0]
    assert 3000 < half < 8000


@pytest.mark.parametrize(
    ("name", "direction"),
    [
        ("wer", "lower"),
        ("cer", "lower"),
        ("eer", "lower"),
        ("chrf", "higher"),
        ("bleu", "higher"),
        ("mrr", "higher"),
    ],
)
def test_directions(name, direction):
    assert get_metric(name).direction is Direction(direction)


def test_equal_error_rate_by_hand():
    # alike 9 8 7 2, others 6 3 1 0: at 6 one alike of four is missed (2), and one other of four
    # passes (6)
    answers = likenesses(900_000, 800_000, 700_000, 200_000, 600_000, 300_000, 100_000, 0)
    right = ((1,),) * 4 + ((0,),) * 4
    assert counted("eer", answers, right) == ([0, 0, 0, 1, 1, 0, 0, 0], [1] * 8)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=30))
def test_equal_error_rate_is_where_both_rates_meet(pairs):
    alike, others = (np.array(column) for column in zip(*pairs, strict=True))
    answers = likenesses(*alike, *others)
    hits, _ = counted("eer", answers, ((1,),) * len(pairs) + ((0,),) * len(pairs))
    rates = [((alike < t).mean(), (others >= t).mean()) for t in range(22)]
    crossing = next(i for i, (miss, alarm) in enumerate(rates) if alarm <= miss)
    assert np.mean(hits) == pytest.approx(sum(rates[crossing]) / 2)
    before = rates[max(crossing - 1, 0)]
    assert (
        min(before[0], rates[crossing][1]) - 1e-9
        <= np.mean(hits)
        <= max(rates[crossing][0], before[1]) + 1e-9
    )


def test_equal_error_rate_of_perfect_and_of_useless_answers():
    right = ((1,), (1,), (0,), (0,))
    assert counted("eer", likenesses(MILLION, 5, 4, 0), right)[0] == [0, 0, 0, 0]
    assert sum(counted("eer", likenesses(7, 7, 7, 7), right)[0]) == 2
    assert sum(counted("eer", likenesses(0, 1, 5, 6), right)[0]) == 4


@pytest.mark.parametrize("right", [((1,), (1,), (0,)), ((1,), (2,)), ((1,), (0, 1))])
def test_equal_error_rate_refuses_what_it_cannot_balance(right):
    with pytest.raises(ValueError, match="as many pairs that are alike"):
        counted("eer", likenesses(*range(len(right))), right)


def test_mean_reciprocal_rank_looks_at_ten():
    ids = np.arange(12, dtype=np.int32)[None].repeat(4, axis=0)
    right = ((0,), (2, 9), (9,), (10,))
    assert counted("mrr", Answers(ids), right) == ([2520, 840, 252, 0], [2520] * 4)


@pytest.mark.parametrize("name", ["wer", "cer", "chrf", "bleu", "eer", "mrr", "per", "top1"])
def test_answers_of_another_kind_are_refused(name):
    other = texts("a") if name in ("eer", "mrr", "top1") else Answers(np.zeros((1, 1), np.int32))
    with pytest.raises(ValueError, match=r"these answers are (texts|rankings)"):
        score(get_metric(name), other, labels=((1,),), reference=other)


@pytest.mark.parametrize("value", [-1, MILLION + 1])
def test_a_likeness_is_a_share(value):
    with pytest.raises(ValueError, match="millionths"):
        likenesses(value)


@pytest.mark.slow
def test_the_interval_of_an_equal_error_rate_finds_every_threshold_anew():
    generator = np.random.default_rng(3)
    alike = np.arange(200) < 100
    before = np.where(alike, 600_000, 400_000) + generator.integers(-150_000, 150_000, 200)
    labels = tuple((int(one),) for one in alike)

    def found(now):
        return score(
            get_metric("eer"), likenesses(*now), labels=labels, reference=likenesses(*before)
        )

    assert not found(before).proportion
    unmet = 1.6448536**2 / (200 + 1.6448536**2)
    assert found(before).interval == pytest.approx((-unmet, unmet))
    assert (
        found(before // 2).interval == found(before).interval
    )  # the threshold moves along: nothing is lost
    low, high = found(before + generator.integers(-200_000, 200_000, 200)).interval
    assert 0 < low < high < 0.3
    same = found(np.clip(before, 1, 2))  # nothing tells them apart any more
    assert same.value == 0.5
    assert 0.25 < same.interval[0] < 0.5 - same.reference_value < same.interval[1]
