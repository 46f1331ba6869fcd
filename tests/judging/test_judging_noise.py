"""The noise of repeated runs: its formulas against plain sums, how it enters the gates,
and its coverage.
"""

import dataclasses
import itertools
import math
import random
import statistics
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judged_numbers import HERE, accepted_of, agreement, expected, judged, measured, per, top1

from qbench.judging import (
    DecisionRule,
    Evidence,
    GateState,
    MetricNoise,
    Noise,
    Outcome,
    RelativeTo,
    Repeats,
    Rules,
    Tolerance,
)
from qbench.judging.loss import loss_gate, with_noise
from qbench.judging.noise import most_flips, noise_of
from qbench.judging.statistics import Decision
from qbench.metrics import Against, Clusters, Direction, Score


def noise_from(rows, *, averaged=True):
    """Of (samples × runs) hits, each 0 or 1."""
    runs = list(zip(*rows, strict=True))
    pairs = sum(a != b for row in rows for a, b in itertools.combinations(row, 2))
    counts = MetricNoise(
        hits=tuple(map(sum, runs)), out_of=(len(rows),) * len(runs), pairs=pairs, flips=pairs
    )
    return Noise(counts=counts, averaged=averaged)


def repeats_of(*hits, n=1000, pairs=0, flips=0, metric="top1", differing=5):
    counts = MetricNoise(hits=hits, out_of=(n,) * len(hits), pairs=pairs, flips=flips)
    return Repeats(
        runs=len(hits),
        differing={"photos": differing},
        flips={"photos": flips},
        metrics={metric: counts},
    )


@given(
    st.integers(2, 5).flatmap(
        lambda k: st.lists(st.lists(st.integers(0, 1), min_size=k, max_size=k), min_size=1)
    )
)
def test_the_variances_are_those_of_plain_sums(rows):
    noise = noise_from(rows).counts
    runs = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
    within = sum(statistics.variance(row) for row in rows) / len(rows) ** 2
    between = statistics.variance(runs)
    assert noise.within == pytest.approx(within)
    assert noise.variance == pytest.approx(max(within, between))
    assert noise.shared == pytest.approx(max(between - within, 0), abs=1e-12)
    assert noise.mean == Fraction(sum(map(sum, rows)), len(rows) * len(rows[0]))


def test_the_standard_error_is_that_of_the_mean_change_of_every_sample():
    # independent noise: σ² − W (1 − 1/K) is the variance of the samples' mean changes over n
    rows = [[1, 0, 1, 1], [0, 0, 1, 0], [1, 1, 0, 1], [0, 1, 0, 0], *[[1] * 4] * 30, *[[0] * 4] * 6]
    noise = noise_from(rows)
    n = len(rows)
    one = math.sqrt(
        statistics.fmean(statistics.pvariance(column) for column in zip(*rows, strict=True)) / n
    )
    means = [statistics.fmean(row) for row in rows]
    assert noise.counts.shared == 0
    assert noise.total(one) == pytest.approx(math.sqrt(statistics.pvariance(means) / n), rel=1e-3)


@pytest.mark.parametrize(
    "wrong",
    [
        {"hits": (1,), "out_of": (2,), "pairs": 0},
        {"hits": (1, 2), "out_of": (2,), "pairs": 0},
        {"hits": (1, 2), "out_of": (2, 0), "pairs": 0},
        {"hits": (1, 2), "out_of": (2, 2), "pairs": -1},
    ],
)
def test_impossible_counts_are_refused(wrong):
    with pytest.raises(ValueError, match="runs that differ"):
        MetricNoise(**wrong)


def test_repeats_of_another_number_of_runs_are_refused():
    counts = MetricNoise(hits=(1, 2), out_of=(2, 2), pairs=1)
    with pytest.raises(ValueError, match="3 runs"):
        Repeats(runs=3, metrics={"top1": counts})
    with pytest.raises(ValueError, match="1 runs"):
        Repeats(runs=1)


def test_a_cell_whose_runs_agree_is_judged_as_if_it_had_run_once():
    once, twice = (
        measured(top1(757, losses=5, gains=2)),
        measured(top1(757, losses=5, gains=2), repeats=Repeats(runs=2)),
    )
    for rule in DecisionRule:
        rules = Rules(decision=Decision(rule))
        assert judged(twice, rules=rules) == judged(once, rules=rules)


def test_the_mean_of_the_runs_decides_within_the_margin():
    # margin 3.8 of 760; the first run alone loses 5, the mean of five loses 2.2
    repeats = repeats_of(755, 759, 758, 758, 759, pairs=40)
    verdict = judged(measured(top1(755, losses=8, gains=3), agreement(480), repeats=repeats))
    assert verdict.outcome is Outcome.PASSED
    gate = verdict.gates[0]
    assert gate.state is GateState.HOLDS
    assert "mean of 5 runs" in gate.detail
    assert judged(measured(top1(755, losses=8, gains=3), agreement(480))).outcome is Outcome.FAILED


def test_noise_beyond_the_margin_is_inconclusive_by_the_counts_too():
    repeats = repeats_of(754, 763, 757, pairs=200)
    verdict = judged(measured(top1(754, losses=9, gains=3), agreement(480), repeats=repeats))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    gate = verdict.gates[0]
    assert gate.is_noise
    needed = math.ceil(1.6448536**2 * gate.noise.counts.variance / 0.0038**2)
    assert f"repeats = {needed}" in " ".join(verdict.notices)
    assert f"= {needed} }}" in verdict.remedy
    strict = judged(
        measured(top1(754, losses=9, gains=3), agreement(480), repeats=repeats),
        rules=Rules(decision=Decision(DecisionRule.STRICT)),
    )
    assert strict.outcome is Outcome.FAILED


def test_a_loss_beyond_margin_and_noise_fails():
    repeats = repeats_of(690, 700, 694, pairs=200)
    assert (
        judged(measured(top1(690, losses=80, gains=10), agreement(480), repeats=repeats)).outcome
        is Outcome.FAILED
    )


def test_a_margin_of_nothing_is_decided_by_no_number_of_runs():
    from qbench.judging import Tolerance

    repeats = repeats_of(758, 761, 760, pairs=20)
    verdict = judged(
        measured(top1(758, losses=4, gains=2), agreement(480), repeats=repeats),
        tolerance=Tolerance(0.0, "suite smoke"),
    )
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "no number of runs" in " ".join(verdict.notices)


def test_an_error_rate_that_is_noisy_is_judged_by_its_mean():
    score = dataclasses.replace(per(109, reference=100), interval=(0.001, 0.008))
    repeats = Repeats(
        runs=3,
        differing={"photos": 4},
        flips={"photos": 8},
        metrics={"per": MetricNoise(hits=(109, 103, 104), out_of=(2000,) * 3, pairs=60, flips=8)},
    )
    gate = judged(measured(score, repeats=repeats)).gates[0]
    assert "rise" in gate.detail
    assert gate.noise.drop(score) == Fraction(316, 6000) - Fraction(100, 2000)


def test_an_agreement_floor_that_noise_may_have_missed_is_inconclusive():
    repeats = repeats_of(458, 463, 455, n=500, pairs=120, metric="agreement@photo_crops")
    one = measured(top1(760), agreement(458), repeats=repeats)
    assert judged(one).outcome is Outcome.INCONCLUSIVE
    low = repeats_of(438, 440, 436, n=500, pairs=20, metric="agreement@photo_crops")
    assert judged(measured(top1(760), agreement(438), repeats=low)).outcome is Outcome.FAILED


def test_drift_is_held_to_the_noise_of_these_runs_or_of_those_in_the_baseline():
    noisy = repeats_of(760, 757, 762, pairs=40, flips=40)
    before = measured(top1(760), agreement(480))
    accepted = {str(HERE): accepted_of(before)}
    for now in (
        measured(top1(757, losses=4, gains=1), agreement(480), predictions="p2", repeats=noisy),
        measured(top1(757, losses=4, gains=1), agreement(480), predictions="p2"),
    ):
        floor = {} if now.repeats else {str(HERE): noisy}
        gate = next(
            g
            for g in judged(now, expected(now, accepted=accepted, noise=floor)).gates
            if g.kind == "drift"
        )
        assert gate.state is GateState.HOLDS
        assert "757" in gate.detail or "759.67" in gate.detail
    far = measured(top1(700, losses=60), agreement(480), predictions="p2")
    gates = judged(far, expected(far, accepted=accepted, noise={str(HERE): noisy})).gates
    assert next(g for g in gates if g.kind == "drift").state is GateState.BROKEN
    exact = measured(top1(757, losses=4, gains=1), agreement(480), predictions="p2")
    gates = judged(
        exact, expected(exact, accepted=accepted, noise={str(HERE): Repeats(runs=2)})
    ).gates
    assert next(g for g in gates if g.kind == "drift").state is GateState.BROKEN


def test_the_floor_of_an_equivalent_class_holds_too():
    from judged_numbers import ELSEWHERE

    noisy = repeats_of(760, 757, 762, pairs=40, flips=40)
    now = measured(
        top1(757, losses=4, gains=1), agreement(480), predictions="p2", environment=ELSEWHERE
    )
    accepted = {str(HERE): accepted_of(measured(top1(760), agreement(480)))}
    rules = Rules(equivalents=(("x64-avx512-vnni", "x64-avx2"),))
    gates = judged(
        now, expected(now, accepted=accepted, noise={str(HERE): noisy}), rules=rules
    ).gates
    assert next(g for g in gates if g.kind == "drift").state is GateState.HOLDS


def test_how_many_flips_noise_admits():
    repeats = repeats_of(760, 757, 762, flips=12)
    assert most_flips(repeats, "photos") == pytest.approx(4 + 3 * math.sqrt(4 * 5 / 3))
    assert most_flips(repeats, "crops") == 0


@pytest.mark.slow
@pytest.mark.parametrize("shared", [0.0, 0.01])
def test_intervals_of_noisy_cells_cover_the_expected_change(shared):
    """95 % intervals of 150 simulated cells, five runs each,
    with noise of single samples and of whole runs.
    """
    from qbench.judging import Tolerance
    from qbench.judging.loss import loss_gate, with_noise

    rng, inside, cells, n, runs = random.Random(5), 0, 150, 300, 5
    for _ in range(cells):
        # a sample is right with probability 0.02 … 0.98 in a run of the cell; fp32 is right on 76 %
        chances = [rng.choice([0.02, 0.98, 0.98, 0.98, 0.6]) for _ in range(n)]
        right = [rng.random() < 0.76 for _ in range(n)]
        truth = statistics.fmean([0.02, 0.98, 0.98, 0.98, 0.6]) - 0.76
        shifts = [rng.gauss(0, shared) for _ in range(runs)]
        rows = [[int(rng.random() < min(max(p + s, 0), 1)) for s in shifts] for p in chances]
        noise = noise_from(rows)
        first = [row[0] for row in rows]
        score = top1(
            sum(first),
            n,
            sum(right),
            losses=sum(b and not a for a, b in zip(first, right, strict=True)),
            gains=sum(a and not b for a, b in zip(first, right, strict=True)),
        )
        tolerance = Tolerance(0.02)
        shown = with_noise(
            loss_gate(score, tolerance), score, noise, tolerance, Decision(DecisionRule.CI)
        ).shown
        inside += shown.low <= truth <= shown.high
    assert 0.9 * cells <= inside <= 0.99 * cells


@pytest.mark.parametrize("by", [DecisionRule.CI, DecisionRule.STRICT])
def test_runs_of_one_source_prove_nothing_whatever_the_unit_of_their_metric(words, by):
    """A margin of 4 decibels is more than any error of a share,
    which one source was once taken to have.
    """
    decibels = Score(
        metric="psnr",
        direction=Direction.HIGHER,
        against=Against.LABELS,
        unit="dB",
        proportion=False,
        least_margin=0.0,
        n=40,
        hits=30_000_000,
        out_of=1_000_000,
        reference_hits=31_000_000,
        losses=40,
        gains=0,
        interval=(-1.0, 1.0),
        clusters=Clusters(
            sources=1, effect=40.0, interval=(-1.0, 1.0), shown=(-1.0, 1.0), p=1.0, error=1.0
        ),
    )
    noisy = noise_of(
        decibels, repeats_of(30_000_000, 30_000_100, n=1_000_000, metric="psnr"), averaged=True
    )
    tolerance, decision = Tolerance(4.0, relative_to=RelativeTo.NOTHING), Decision(by)
    gate = with_noise(
        loss_gate(decibels, tolerance, decision), decibels, noisy, tolerance, decision
    )
    assert gate.shown.evidence is Evidence.INCONCLUSIVE
    assert gate.state is (GateState.INCONCLUSIVE if by is DecisionRule.CI else GateState.BROKEN)
    words(gate.detail)


@pytest.mark.parametrize("direction", list(Direction))
def test_a_share_changes_by_no_more_than_all_of_it(direction):
    """A few samples of a mean overlap: the normal interval and the power reach beyond 100
    points, an error rate may.
    """
    overlap = Score(
        metric="miou",
        direction=direction,
        against=Against.LABELS,
        unit="%",
        proportion=False,
        least_margin=0.0,
        n=8,
        hits=500_000,
        out_of=1_000_000,
        reference_hits=500_000,
        losses=1,
        gains=1,
        interval=(-0.9, 0.9),
    )
    noisy = noise_of(overlap, repeats_of(0, 1_000_000, n=1_000_000, metric="miou"), averaged=True)
    tolerance = Tolerance(0.02)
    gate = loss_gate(overlap, tolerance)
    both = with_noise(gate, overlap, noisy, tolerance, Decision(DecisionRule.CI))
    beyond = [
        gate.shown.detectable is not None,
        both.shown.detectable is not None,
        both.shown.low < -1,
        both.shown.high > 1,
    ]
    assert beyond == [direction is Direction.LOWER] * 4
    assert ("too few to detect any drop" in gate.detail) is (direction is Direction.HIGHER)


def test_the_mean_that_is_judged_is_the_number_of_the_record_and_of_the_headline(words):
    """Three runs, 757 + 760 + 763: the first one is neither shown nor judged."""
    from qbench.reporting.view import read_cell
    from qbench.tracking import CellRecord, cell_of_line, record_of_line

    noisy = repeats_of(757, 760, 763, pairs=40, flips=40)
    now = measured(top1(757, losses=4, gains=1), agreement(480), repeats=noisy)
    verdict = judged(now)
    record = CellRecord.of(now.cell, verdict, now)
    again = record_of_line(record.line())
    assert cell_of_line(record.line()) == now.cell
    for one in (record, again):
        assert one.metrics["top1"].value == pytest.approx(0.76)
        assert one.metrics["top1"].worse == pytest.approx(0.0)
        assert one.metrics["top1"].hits == 757
        assert read_cell(one).lead.excess == pytest.approx(-0.0038, abs=2e-4)
    assert record.line()["metrics"]["top1"]["value"] == pytest.approx(0.76)
    words(verdict.headline)
    low, high = record.metrics["top1"].noise
    assert 0 < low < high
    assert record.metrics["top1"].accepted == 757, "what was accepted when it was judged"
    assert record.metrics["agreement@photo_crops"].noise == (0.0, 0.0), (
        "noisy, by how much is not known"
    )


def test_an_accepting_run_records_what_it_accepts():
    from qbench.tracking import CellRecord

    now = measured(top1(750, losses=10), agreement(480), predictions="p2")
    verdict = judged(now, expected(now, accepted={str(HERE): accepted_of(measured())}))
    assert CellRecord.of(now.cell, verdict, now).metrics["top1"].accepted == 760
    verdict = dataclasses.replace(verdict, outcome=Outcome.ACCEPTED)
    assert CellRecord.of(now.cell, verdict, now).metrics["top1"].accepted == 750


def test_samples_unlike_fp32_within_noise_are_not_said_to_be_accepted():
    noisy = repeats_of(760, 757, 762, pairs=40, flips=40)
    before = measured(top1(760), agreement(480), schema="fp32")
    accepted = {str(HERE): accepted_of(before)}
    for predictions, words in (
        ("p1", "this was accepted"),
        ("p2", "within what 3 runs of the same code differ"),
    ):
        now = measured(
            top1(757, losses=4, gains=1), agreement(480), schema="fp32", predictions=predictions
        )
        now = dataclasses.replace(now, repeats=noisy)
        gates = judged(now, expected(now, accepted=accepted)).gates
        assert words in next(gate for gate in gates if gate.kind == "reference").detail
