"""Every metric against a plain loop, and the numbers a Score is made of."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from qbench.errors import InputError
from qbench.extension import Extension
from qbench.metrics import (
    PADDING,
    Against,
    AnswerKind,
    Answers,
    Counts,
    Direction,
    Metric,
    catalogue,
    get_metric,
    score,
)


def ranking(*rows):
    return Answers(np.array(rows, dtype=np.int32))


def sequences(*rows, width=None):
    width = width or max(map(len, rows))
    ids = [[*row, *[PADDING] * (width - len(row))] for row in rows]
    return Answers(np.array(ids, dtype=np.int32), kind=AnswerKind.SEQUENCE)


def edits(a, b):
    """Wagner and Fischer's table, the slow and sure way."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        new = [i]
        for j, y in enumerate(b, 1):
            new.append(min(row[j] + 1, new[j - 1] + 1, row[j - 1] + (x != y)))
        row = new
    return row[-1]


tokens = st.lists(st.integers(0, 4), max_size=7)


def test_top1_and_top5_count_any_right_label():
    answers = ranking([3, 1, 2, 0, 4, 5], [0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0])
    labels = ((3,), (5,), (7, 4))
    assert get_metric("top1").count(answers, labels, None).hits.tolist() == [1, 0, 0]
    assert get_metric("top5").count(answers, labels, None).hits.tolist() == [1, 0, 1]


@given(
    hnp.arrays(np.int32, (6, 7), elements=st.integers(0, 9)),
    st.lists(st.sets(st.integers(0, 9)), min_size=6, max_size=6),
)
def test_top_k_is_membership_among_the_first_k(ids, labels):
    answers, labels = Answers(ids), tuple(tuple(right) for right in labels)
    for k in (1, 5):
        expected = [
            int(any(int(i) in right for i in row[:k]))
            for row, right in zip(ids, labels, strict=True)
        ]
        assert get_metric(f"top{k}").count(answers, labels, None).hits.tolist() == expected


def test_agreement_of_rankings_is_the_best_class_alone():
    counts = get_metric("agreement").count(
        ranking([1, 2], [3, 4], [5, 6]), None, ranking([1, 9], [4, 3], [5, 6])
    )
    assert counts.hits.tolist() == [1, 0, 1]
    assert counts.out_of.tolist() == [1, 1, 1]


def test_agreement_of_sequences_is_the_whole_sequence_whatever_the_padding():
    counts = get_metric("agreement").count(
        sequences([1, 2], [3], [], width=3), None, sequences([1, 2], [3, 4], [], width=5)
    )
    assert counts.hits.tolist() == [1, 0, 1]


@given(st.lists(st.tuples(tokens, tokens), min_size=1, max_size=6))
def test_exact_and_per_against_the_slow_way(pairs):
    answers = sequences(*(a for a, _ in pairs), width=8)
    labels = tuple(tuple(b) for _, b in pairs)
    counts = get_metric("per").count(answers, labels, None)
    assert counts.hits.tolist() == [edits(a, b) for a, b in pairs]
    assert counts.out_of.tolist() == [len(b) for _, b in pairs]
    assert get_metric("exact").count(answers, labels, None).hits.tolist() == [
        int(a == b) for a, b in pairs
    ]


def test_per_is_an_error_rate():
    per = get_metric("per")
    assert (per.direction, per.unit, per.proportion, per.least_margin) == (
        Direction.LOWER,
        "%",
        False,
        0.005,
    )


@pytest.mark.parametrize("name", ["top1", "top5", "exact", "per"])
def test_a_metric_refuses_answers_of_the_other_kind(name):
    answers = ranking([1, 2]) if name in ("exact", "per") else sequences([1, 2])
    with pytest.raises(ValueError, match="sequences"):
        score(get_metric(name), answers, labels=((1,),), reference=answers)


def test_agreement_refuses_a_mixture():
    with pytest.raises(ValueError, match="not of one kind"):
        score(get_metric("agreement"), ranking([1]), labels=None, reference=sequences([1]))


def test_a_ranking_has_no_padding():
    with pytest.raises(ValueError, match="padding"):
        ranking([1, PADDING])


def test_score_counts_losses_and_gains_by_direction():
    now, before = ranking([1], [2], [3], [4]), ranking([1], [9], [9], [9])
    labels = ((1,), (2,), (3,), (9,))
    found = score(get_metric("top1"), now, labels=labels, reference=before, name="top1@photos")
    assert (found.metric, found.n, found.hits, found.reference_hits) == ("top1@photos", 4, 3, 2)
    assert (found.losses, found.gains, found.drop, found.value) == (1, 2, -1, 0.75)
    worse = score(
        get_metric("per"),
        sequences([1, 2], [3]),
        labels=((1,), (3,)),
        reference=sequences([1], [4]),
    )
    assert (worse.hits, worse.reference_hits, worse.losses, worse.gains, worse.drop) == (
        1,
        1,
        1,
        1,
        0,
    )


def test_agreement_counts_the_reference_as_perfect():
    found = score(
        get_metric("agreement"), ranking([1], [2]), labels=None, reference=ranking([1], [3])
    )
    assert (found.hits, found.reference_hits, found.losses, found.gains, found.against) == (
        1,
        2,
        1,
        0,
        Against.REFERENCE,
    )


@pytest.mark.parametrize(
    ("labels", "reference", "words"),
    [
        (((1,),), ranking([1]), "1 labels"),
        (None, ranking([1], [2]), "has none"),
        (((1,), (2,)), ranking([1]), "1 ref"),
    ],
)
def test_score_refuses_what_does_not_fit(labels, reference, words):
    with pytest.raises(ValueError, match=words):
        score(get_metric("top1"), ranking([1], [2]), labels=labels, reference=reference)


def test_score_refuses_nothing_to_count():
    with pytest.raises(ValueError, match="nothing to count"):
        score(get_metric("per"), sequences([1]), labels=((),), reference=sequences([1]))


def test_unknown_metric_suggests_the_nearest():
    with pytest.raises(InputError, match="top1"):
        get_metric("topp1")


def test_an_extension_adds_a_metric():
    def count(answers, labels, reference):
        return Counts(
            (answers.ids[:, 0] % 2 == 0).astype(np.int64), np.ones(len(answers), dtype=np.int64)
        )

    even = Metric(
        name="even", title="Even", direction=Direction.HIGHER, against=Against.LABELS, count=count
    )
    found = catalogue([Extension(name="odd-package", metrics={"even": lambda: even})])
    assert found.get("even") is even
    assert found.owner("even") == "odd-package"
    assert set(found.names()) == {*catalogue().names(), "even"}


def test_a_line_has_every_field_of_a_score():
    """`MetricRecord.score` copies them by name: a field that is new in one of the two is
    missing in the other.
    """
    from dataclasses import fields

    from qbench.metrics import Score
    from qbench.tracking import MetricRecord

    stored = set(MetricRecord.__struct_fields__)
    assert {field.name for field in fields(Score)} - {"metric"} <= stored
