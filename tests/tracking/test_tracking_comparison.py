"""Two runs compared: what their counts against one fp32 reference
tell about single samples, never more.
"""

import itertools
import json
import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.cli.compare_runs import _paired
from qbench.errors import IncomparableError
from qbench.judging import EnvironmentClass, class_change, mcnemar_midp
from qbench.metrics import Answers, packed_answers
from qbench.tracking import FORMAT, Relation, Run, compare_runs, record_of_line

X64, UPGRADED = "x64-avx2+onnxruntime-1.31.1", "x64-avx2+onnxruntime-1.24.1"
flips_of = st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), min_size=1, max_size=40)


def run(name, metric, *, where=X64, **more):
    line = {
        "type": "cell",
        "suite": "smoke",
        "model": "m",
        "backend": "b",
        "schema": "s",
        "outcome": "passed",
        "environment_class": where,
        "metrics": {"top1": metric},
        "digests": {
            "data:d": "d",
            "reference:d": "r",
            "predictions:d": name,
            **more.pop("digests", {}),
        },
        **more,
    }
    return Run(
        header={"id": name, "suite": "smoke", "format": FORMAT},
        cells=(record_of_line(line),),
        complete=True,
    )


def counted(reference, answers, *, lower=False):
    """The counts of right answers (of wrong ones: ``lower``) against fp32."""
    losses = sum(r and not a for r, a in zip(reference, answers, strict=True))
    gains = sum(a and not r for r, a in zip(reference, answers, strict=True))
    n, right, before = len(answers), sum(answers), sum(reference)
    return {
        "direction": "lower" if lower else "higher",
        "against": "labels",
        "n": n,
        "hits": n - right if lower else right,
        "out_of": n,
        "reference_hits": n - before if lower else before,
        "losses": losses,
        "gains": gains,
    }


def pairs_of(old, new, **more):
    (row,) = compare_runs(run("a", old), run("b", new, **more))
    (metric,) = row.metrics
    return metric.pairs


@given(flips_of, st.booleans())
def test_the_losses_and_gains_of_every_possible_pair_of_runs_are_within_the_range(samples, lower):
    reference, old, new = zip(*samples, strict=True)
    pairs = pairs_of(counted(reference, old, lower=lower), counted(reference, new, lower=lower))
    lost = sum(a and not b for a, b in zip(old, new, strict=True))
    gained = sum(b and not a for a, b in zip(old, new, strict=True))
    assert pairs.losses[0] <= lost <= pairs.losses[1]
    assert pairs.gains[0] <= gained <= pairs.gains[1]
    assert lost - gained == pairs.losses[0] - pairs.gains[0] == pairs.losses[1] - pairs.gains[1]
    assert pairs.midp[0] <= mcnemar_midp(lost, gained) <= pairs.midp[1]


@pytest.mark.parametrize("n", [3, 4])
def test_both_ends_of_the_range_are_possible(n):
    ends = {}
    bits = list(itertools.product((False, True), repeat=n))
    for reference, old, new in itertools.product(bits, repeat=3):
        key = tuple(
            tuple(counted(reference, one)[k] for k in ("reference_hits", "losses", "gains"))
            for one in (old, new)
        )
        ends.setdefault(key, (reference, old, new, set()))[3].add(
            sum(a and not b for a, b in zip(old, new, strict=True))
        )
    for reference, old, new, lost in ends.values():
        assert pairs_of(counted(reference, old), counted(reference, new)).losses == (
            min(lost),
            max(lost),
        )


def test_samples_that_share_sources_show_less_of_a_change():
    old, new = (
        counted([True] * 400, [True] * 400),
        counted([True] * 400, [True] * 380 + [False] * 20),
    )
    ends = {"interval": [-0.08, 0.0], "shown": [-0.09, 0.01], "p": 0.1, "error": 0.02}
    grouped = new | {"clusters": {"sources": 20, "effect": 4.0} | ends}
    alone, together = pairs_of(old, new), pairs_of(old, grouped)
    assert (alone.effect, together.effect) == (1.0, 4.0)
    assert (alone.sources, together.sources) == (None, 20)
    assert _paired(alone).endswith("gained, p 9.5e-07")
    assert _paired(together).endswith("gained, p 0.025, 400 samples from 20 sources")
    assert together.losses == alone.losses == (20, 20)
    assert together.interval[0] < alone.interval[0] < alone.interval[1] < together.interval[1]
    assert together.midp[0] == pytest.approx(2 * NormalDist().cdf(-20 / math.sqrt(20 * 4)))
    same = pairs_of(old, grouped | {"hits": 400, "losses": 0})
    assert same.midp == (1.0, 1.0)


def test_nothing_is_said_of_pairs_without_one_reference_or_samples_of_one_vote_each():
    old, new = counted([1] * 10, [1] * 9 + [0]), counted([1] * 10, [1] * 8 + [0] * 2)
    assert pairs_of(old, new).losses == (1, 2)
    assert pairs_of(old, new, digests={"reference:d": "another"}) is None
    assert pairs_of(old | {"proportion": False}, new | {"proportion": False}) is None
    assert pairs_of(old, new | {"against": "reference"}) is None
    assert pairs_of(old, old, digests={"predictions:d": "a"}).losses == (0, 0)


def test_flips_are_exact_where_answers_are_kept_and_bounded_by_the_named_samples_elsewhere():
    score = counted([1] * 10, [1] * 8 + [0] * 2)

    def flips(old, new):
        (row,) = compare_runs(run("a", score, **old), run("b", score, **new))
        return row.flips

    def named(*samples, count=None):
        return {"changed": {"d": samples}, "changed_count": {"d": count or len(samples)}}

    assert flips(named("s1", "s2"), named("s2", "s3", "s4")) == {"d": (3, 4)}
    assert flips(named("s1", count=4), named("s2", count=2)) == {"d": (2, 6)}
    assert flips(named("s1", count=8), named("s2", count=5)) == {"d": (3, 10)}  # of 10
    assert flips({}, {}) == {}
    kept = [
        {"kept": {"d": packed_answers(Answers(np.array([[i % k] for i in range(10)], np.int32)))}}
        for k in (4, 5)
    ]
    exact = sum(i % 4 != i % 5 for i in range(10))
    assert flips(kept[0] | named("s1"), kept[1] | named("s1")) == {"d": (exact, exact)}
    assert flips(kept[0], {"kept": {"d": "rubbish"}}) == {}


def test_counts_out_of_different_numbers_are_compared_as_rates():
    """Such as the precision of boxes, of which each run finds its own number."""
    old = counted([1] * 10, [1] * 9 + [0]) | {"hits": 95, "out_of": 100}
    new = counted([1] * 10, [1] * 9 + [0]) | {"hits": 360, "out_of": 400}
    (row,) = compare_runs(run("a", old), run("b", new))
    (metric,) = row.metrics
    assert metric.moved == pytest.approx(-0.05)
    assert metric.values == (0.95, 0.9)
    assert (metric.old_out_of, metric.out_of) == (100, 400)
    assert metric.is_worse


def test_counts_of_other_samples_are_not_compared():
    old, new = counted([1] * 10, [1] * 9 + [0]), counted([1] * 40, [1] * 30 + [0] * 10)
    runs = run("a", old), run("b", new)
    with pytest.raises(IncomparableError, match="10 → 40"):
        compare_runs(*runs)


def test_classes_are_compared_on_request_and_what_was_exchanged_is_named():
    old, new = counted([1] * 10, [1] * 9 + [0]), counted([1] * 10, [1] * 8 + [0] * 2)
    runs = run("a", old), run("b", new, where=UPGRADED)
    with pytest.raises(IncomparableError, match="--across"):
        compare_runs(*runs)
    (row,) = compare_runs(*runs, across=True)
    assert (row.relation, row.differs) == (Relation.CHANGED, ("onnxruntime 1.31.1 → 1.24.1",))
    assert row.metrics[0].pairs.losses == (1, 2)
    other = run("b", new, where=UPGRADED, digests={"data:d": "other"})
    with pytest.raises(IncomparableError) as error:
        compare_runs(runs[0], other, across=True)
    assert "--across" not in str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (X64, X64, ""),
        (X64, UPGRADED, "onnxruntime 1.31.1 → 1.24.1"),
        ("x64-avx2+a-1", "arm64+a-1+threads-2", "x64-avx2 → arm64, threads 1 → 2"),
        ("x64+a-1", "x64+b-2", "a 1 → none, b none → 2"),
    ],
)
def test_what_differs_between_two_classes(old, new, words):
    assert class_change(EnvironmentClass.parse(old), EnvironmentClass.parse(new)) == words


def test_a_retrained_model_is_named_and_what_fp32_lost():
    old = run("a", counted([1] * 9 + [0], [1] * 9 + [0]), digests={"model": "one"})
    new = run(
        "b",
        counted([1] * 8 + [0] * 2, [1] * 8 + [0] * 2),
        digests={"model": "two", "reference:d": "r2"},
    )
    (row,) = compare_runs(old, new)
    assert row.has_another_model
    assert row.why == "another model"
    assert row.metrics[0].references == (9, 8)
    assert json.dumps(row.differs) == '["another model"]'


def test_without_repeated_rows_are_those_that_are_not_the_same_measured_contents():
    def night(name, *, moved):
        (measured,) = run("a", counted([1, 1, 0], [1, 0, 0])).cells
        (other,) = run("b", counted([1, 1, 0], [0, 0, 0])).cells
        lines = [measured.line() | {"model": f"m{number}"} for number in range(4)]
        lines[1] = (other if moved else measured).line() | {"model": "m1"}
        lines[2] |= {"metrics": {}, "outcome": "unsupported"}
        lines[3] |= {"seconds": {"inference": 2.0 if moved else 1.0}}
        header = {"id": name, "suite": "smoke", "format": FORMAT}
        return Run(header=header, cells=tuple(map(record_of_line, lines)), complete=True)

    old, new = night("old", moved=False), night("new", moved=True)
    every, fewer = compare_runs(old, new), compare_runs(old, new, with_repeated=False)
    assert [row.cell.model for row in every] == ["m0", "m1", "m2", "m3"]
    assert fewer == every[1:3]
    assert {row.relation for row in (every[0], every[3])} == {Relation.SAME}
    # two nights of which every cell repeats are comparable, and have no row to show
    assert compare_runs(old, old, with_repeated=False) == every[2:3]


def test_without_repeated_two_runs_that_measured_nothing_are_refused():
    (measured,) = run("a", counted([1], [1])).cells
    line = measured.line() | {"metrics": {}, "outcome": "unsupported"}
    nothing = Run(
        header={"id": "x", "suite": "smoke", "format": FORMAT}, cells=(record_of_line(line),)
    )
    with pytest.raises(IncomparableError):
        compare_runs(nothing, nothing, with_repeated=False)
