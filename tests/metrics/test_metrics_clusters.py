"""Samples that share sources: held to a scalar count, to McNemar's test and to scipy's Student distribution."""

import itertools
import math
import re
import statistics
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats
import statsmodels.api as statsmodels
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import qbench
from qbench.judging import Evidence, changed_share, mcnemar_midp
from qbench.judging.statistics import shown_by, sources_for
from qbench.metrics import AnswerKind, Answers, get_metric, paired_interval, score, slice_scores
from qbench.metrics.clusters import clustered, design_effect, flip_midp, student_quantile, variance_between


def top1(now, before, sources):
    """``now`` and ``before``: per sample whether it is right."""
    answers = [Answers(np.array([[int(right)] for right in one], dtype=np.int32)) for one in (now, before)]
    return score(get_metric("top1"), answers[0], labels=((1,),) * len(now), reference=answers[1], sources=sources)


SIDES = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40)


@given(SIDES)
def test_samples_of_a_source_each_are_judged_as_without_sources(sides):
    now, before = zip(*sides, strict=True)
    alone = top1(now, before, [f"photo {i}" for i in range(len(sides))])
    assert alone == top1(now, before, None)
    assert alone.clusters is None


def test_other_sources_than_samples_are_refused():
    with pytest.raises(ValueError, match="1 sources of 2 samples"):
        top1([1, 0], [1, 1], ["a"])


@given(st.lists(st.integers(-4, 4), min_size=1, max_size=9))
def test_the_flip_test_counts_every_sign(sums):
    seen = abs(sum(sums))
    totals = [
        abs(sum(map(lambda s, sign: s * sign, sums, signs))) for signs in itertools.product((1, -1), repeat=len(sums))
    ]
    expected = Fraction(sum(total > seen for total in totals)) + Fraction(sum(total == seen for total in totals), 2)
    expected = 1 if seen == 0 else expected / len(totals)
    assert flip_midp(np.array(sums)) == pytest.approx(float(expected), abs=1e-14)


@given(st.integers(0, 60), st.integers(0, 60))
def test_the_flip_test_of_single_samples_is_mcnemars(losses, gains):
    sums = np.array([-1] * losses + [1] * gains + [0] * 5)
    assert flip_midp(sums) == pytest.approx(mcnemar_midp(losses, gains), rel=1e-12)


@pytest.mark.parametrize("freedom", [1, 2, 3.5, 19, 199, 9999])
@pytest.mark.parametrize("chance", [0.5, 0.9, 0.95, 0.975, 0.995])
def test_students_quantile_is_scipys(freedom, chance):
    assert student_quantile(chance, freedom) == pytest.approx(scipy.stats.t.ppf(chance, freedom), rel=1e-9, abs=1e-9)


def changes_of(*sources):
    """(changes, numbers) of sources with (samples, lost, gained) each."""
    changes = [
        change for n, lost, gained in sources for change in [-1] * lost + [1] * gained + [0] * (n - lost - gained)
    ]
    return np.array(changes), np.repeat(np.arange(len(sources)), [n for n, _, _ in sources])


SOURCES = st.lists(
    st.integers(1, 12).flatmap(
        lambda n: st.integers(0, n).flatmap(lambda lost: st.tuples(st.just(n), st.just(lost), st.integers(0, n - lost)))
    ),
    min_size=2,
    max_size=8,
)


def slow_effect(sources):
    """The design effect and the degrees of freedom, one source at a time."""
    count, n = len(sources), sum(size for size, _, _ in sources)
    change = Fraction(sum(gained - lost for _, lost, gained in sources), n)
    whole = Fraction(sum(size**2 for size, _, _ in sources), n)
    changed = sum(lost + gained for _, lost, gained in sources)
    within = changed - n * change**2
    effect = whole
    if within:
        between = sum((gained - lost - size * change) ** 2 for size, lost, gained in sources)
        seen = max(Fraction(1), Fraction(count, count - 1) * between / within)
        unmet = 8 * seen / changed
        effect = (changed + unmet * whole) / (changed / seen + unmet)
    alike = min(Fraction(1), (effect - 1) / (whole - 1)) if whole > 1 else Fraction(0)
    variances = [size * (1 + (size - 1) * alike) for size, _, _ in sources]
    return effect, max(sum(variances) ** 2 / sum(v**2 for v in variances) - 1, Fraction(1, 2))


@settings(max_examples=40)
@given(SOURCES)
def test_the_design_effect_is_that_of_a_slow_count(sources):
    changes, numbers = changes_of(*sources)
    sizes = np.array([float(n) for n, _, _ in sources])
    sums = np.bincount(numbers, weights=changes)
    found = design_effect(sizes, sums, int(np.abs(changes).sum()))
    assert found == pytest.approx([float(one) for one in slow_effect(sources)], rel=1e-9)


@settings(max_examples=40)
@given(SOURCES)
def test_intervals_mirror_and_are_wider_than_without_sources(sources):
    changes, numbers = changes_of(*sources)
    found, mirrored = clustered(changes, numbers), clustered(-changes, numbers)
    assert found.interval == pytest.approx(tuple(-end for end in reversed(mirrored.interval)), abs=1e-9)
    assert (found.effect, found.p, found.error) == pytest.approx((mirrored.effect, mirrored.p, mirrored.error))
    losses, gains = int((changes < 0).sum()), int((changes > 0).sum())
    alone = paired_interval(losses, gains, len(changes), confidence=0.9)
    assert found.interval[0] <= alone[0] + 1e-9
    assert found.interval[1] >= alone[1] - 1e-9
    assert -1 <= found.shown[0] <= found.shown[1] <= 1


def test_equal_sources_have_as_many_degrees_of_freedom_as_there_are_but_one():
    for sums in ([0.0] * 20, [-4.0, 3.0] + [0.0] * 18):
        effect, freedom = design_effect(np.full(20, 25.0), np.array(sums), int(np.abs(sums).sum()))
        assert freedom == pytest.approx(19)
        assert 10 < effect <= 25


def test_the_effect_that_many_changed_sources_show_is_taken():
    rng = np.random.default_rng(3)
    changes = rng.choice([-1, 0, 1], size=20_000, p=[0.1, 0.82, 0.08])
    assert clustered(changes, np.arange(20_000) // 20).effect == pytest.approx(1, abs=0.1)
    alike = np.repeat(changes[:1000], 20)
    assert clustered(alike, np.arange(20_000) // 20).effect == pytest.approx(20, rel=0.02)


def test_no_change_in_any_source_shows_as_much_as_one_sample_of_each():
    found = clustered(*changes_of(*[(25, 0, 0)] * 20))
    t = scipy.stats.t.ppf(0.95, 19)
    assert found.interval == pytest.approx((-t * t / (20 + t * t), t * t / (20 + t * t)), rel=1e-9)
    assert (found.sources, found.p) == (20, 1.0)


def test_one_source_proves_nothing():
    now, before = [False] * 40 + [True] * 460, [True] * 500
    found = top1(now, before, ["the photo"] * 500)
    assert found.clusters.interval == (-1.0, 1.0)
    for margin in (0.001, 0.5, 1.0):
        shown = shown_by(found, margin)
        assert (shown.evidence, shown.needed, shown.deciding) == (Evidence.INCONCLUSIVE, None, None)
        assert shown.text(found) == "INCONCLUSIVE: 500 samples from 1 source prove nothing about others"
    rate = score(get_metric("per"), **sequences(40, 3), sources=["the voice"] * 40)
    assert shown_by(rate, 0.01).evidence is Evidence.INCONCLUSIVE


def test_a_loss_within_one_source_is_no_proof_of_one():
    alone = top1([False] * 25 + [True] * 475, [True] * 500, None)
    photos = top1([False] * 25 + [True] * 475, [True] * 500, [f"photo {i // 25}" for i in range(500)])
    assert shown_by(alone, 0.01).evidence is Evidence.FAIL
    assert shown_by(photos, 0.01).evidence is Evidence.INCONCLUSIVE
    text = shown_by(photos, 0.01).text(photos)
    assert "500 samples from 20 sources detect a drop of" in text
    assert "any change p 0.5 (sign flips by source)" in text
    assert re.search(r"the margin needs \d+ more sources without a loss, \d+ more sources like these decide", text)


def of_pairs(counts, times):
    changes, numbers = changes_of(*counts * times)
    return top1([change > 0 for change in changes], [change < 0 for change in changes], [str(one) for one in numbers])


@settings(max_examples=30)
@given(st.integers(2, 30), st.integers(0, 4), st.integers(0, 4), st.integers(1, 6), st.floats(0.01, 0.2))
def test_as_many_more_sources_like_these_as_are_named_do_decide(size, lost, gained, unchanged, margin):
    counts = [(8 + size, lost, 0), (8 + size, 0, gained), *[(8 + size, 0, 0)] * unchanged]
    shown = shown_by(found := of_pairs(counts, 1), margin)
    if shown.deciding is None:
        return
    wanted = sources_for(found, shown.deciding)
    assert wanted > len(counts)
    for times in {times for times in (1, 2, 4, 8, 16) if times * len(counts) >= wanted}:
        # the same sources again have the same averages
        assert shown_by(of_pairs(counts, times), margin).evidence is not Evidence.INCONCLUSIVE
    several = [times for times in (2, 4, 8, 16) if times * len(counts) < wanted]
    for times in several:
        again = of_pairs(counts, times)
        share, apart = changed_share(found.losses, found.gains, found.n), margin - again.drop / again.n
        proven = again.n / again.clusters.effect * apart**2 / share > 6.1826
        assert shown_by(again, margin).evidence is Evidence.INCONCLUSIVE or not proven


def test_forty_sources_with_four_gains_need_more_than_one_source_more():
    found = of_pairs([(50, 0, 1)] * 4 + [(50, 0, 0)] * 36, 1)
    shown = shown_by(found, 0.0188)
    wanted = sources_for(found, shown.deciding)
    assert wanted > 41
    for sources in (41, wanted - 1, wanted):
        evidence = shown_by(
            of_pairs([(50, 0, 1)] * (sources // 10) + [(50, 0, 0)] * (sources - sources // 10), 1), 0.0188
        )
        assert (evidence.evidence is Evidence.PASS) == (sources == wanted)


@settings(max_examples=40)
@given(SOURCES, st.floats(0.001, 0.9))
def test_evidence_agrees_with_the_interval_that_decides(sources, margin):
    changes, numbers = changes_of(*sources)
    before = [bool(change < 0) for change in changes]
    found = top1([bool(change > 0) for change in changes], before, [str(number) for number in numbers])
    if found.clusters is None:
        return
    evidence = shown_by(found, margin).evidence
    low, high = found.clusters.interval
    if abs(low + margin) > 1e-9:
        assert (evidence is Evidence.PASS) == (low > -margin)
    assert evidence is not Evidence.FAIL or high < -margin + 1e-9


def sequences(n, edits):
    """Answers, labels and reference of ``n`` words, the first of which have so many more edits now."""
    right = np.tile(np.arange(1, 7, dtype=np.int32), (n, 1))
    now = right.copy()
    now[0, :edits] = 50
    return {
        "answers": Answers(now, kind=AnswerKind.SEQUENCE),
        "labels": tuple(map(tuple, right.tolist())),
        "reference": Answers(right, kind=AnswerKind.SEQUENCE),
    }


@settings(max_examples=20)
@given(SOURCES)
def test_the_variance_between_sources_is_that_of_cluster_robust_least_squares(sources):
    changes, numbers = changes_of(*sources)
    sizes = np.array([float(n) for n, _, _ in sources])
    fitted = statsmodels.OLS(changes.astype(float), np.ones(len(changes)))
    theirs = fitted.fit(cov_type="cluster", cov_kwds={"groups": numbers}).bse[0]
    assert math.sqrt(variance_between(sizes, np.bincount(numbers, weights=changes))) == pytest.approx(theirs, abs=1e-12)


@pytest.mark.oracle
@settings(max_examples=20)
@given(SOURCES)
def test_the_variance_between_sources_is_that_of_generalized_estimating_equations(sources):
    changes, numbers = changes_of(*sources)
    assume(len({*changes.tolist()}) > 1)
    sizes = np.array([float(n) for n, _, _ in sources])
    fitted = statsmodels.GEE(changes.astype(float), np.ones(len(changes)), groups=numbers).fit(cov_type="robust")
    theirs = fitted.bse[0] ** 2 * len(sizes) / (len(sizes) - 1)
    assert variance_between(sizes, np.bincount(numbers, weights=changes)) == pytest.approx(theirs, abs=1e-12)


@pytest.mark.parametrize(("losses", "gains"), [(5200, 5000), (7000, 6500), (165_000, 166_000), (300_000, 100)])
def test_mcnemar_of_many_changes_is_scipys(losses, gains):
    fewer, flips = min(losses, gains), losses + gains
    theirs = 2 * scipy.stats.binom.cdf(fewer - 1, flips, 0.5) + scipy.stats.binom.pmf(fewer, flips, 0.5)
    assert mcnemar_midp(losses, gains) == pytest.approx(theirs, rel=1e-8)


@settings(max_examples=20)
@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.sampled_from("abc")), min_size=1, max_size=30))
def test_a_slice_is_scored_like_its_samples_alone(rows):
    now, before, slices = zip(*rows, strict=True)
    answers = [Answers(np.array([[int(right)] for right in one], dtype=np.int32)) for one in (now, before)]
    sources = [str(place // 3) for place in range(len(rows))]
    found = slice_scores(
        get_metric("top1"), answers[0], labels=((1,),) * len(now), reference=answers[1], slices=slices, sources=sources
    )
    assert list(found) == sorted(set(slices))
    for name, one in found.items():
        places = [place for place in range(len(rows)) if slices[place] == name]
        alone = top1([now[i] for i in places], [before[i] for i in places], [sources[i] for i in places])
        assert one == alone


def test_slices_of_an_error_rate_have_intervals_and_those_of_no_sum_are_left_out():
    words = sequences(40, 3)
    found = slice_scores(get_metric("per"), **words, slices=["a", "b"] * 20)
    assert [one.hits for one in found.values()] == [3, 0]
    assert found["a"].interval is not None
    with pytest.raises(ValueError, match="1 slices of 40 samples"):
        slice_scores(get_metric("per"), **words, slices=["a"])
    likeness = Answers(np.array([[1], [0]] * 5, dtype=np.int32), kind=AnswerKind.LIKENESS)
    pairs = {"labels": ((1,), (0,)) * 5, "reference": likeness, "slices": ["a"] * 10}
    assert slice_scores(get_metric("eer"), likeness, **pairs) == {}


def test_the_public_interval_is_the_paired_one_and_that_of_clusters():
    changes = [-1] * 9 + [1] * 3 + [0] * 88
    assert qbench.change_interval(changes) == qbench.paired_interval(9, 3, 100)
    own = [f"s{i}" for i in range(100)]
    assert qbench.change_interval(changes, own, confidence=0.9) == qbench.paired_interval(9, 3, 100, confidence=0.9)
    shared = [f"s{i // 5}" for i in range(100)]
    judged = clustered(np.array(changes), np.arange(100) // 5)
    assert qbench.change_interval(changes, shared, confidence=0.9) == pytest.approx(judged.interval)
    assert qbench.change_interval(changes, ["one"] * 100) == (-1.0, 1.0)


def test_the_public_interval_of_real_changes_is_students():
    values = [0.5, -1.5, 2.0, 0.25, 1.0]
    far = 2.7764451 * statistics.stdev(values) / math.sqrt(5)  # t of 4 degrees of freedom, 97.5 %
    low, high = qbench.change_interval(values)
    assert (low, high) == pytest.approx((0.45 - far, 0.45 + far), abs=1e-6)
    doubled = qbench.change_interval(values * 2, list("abcde") * 2)
    assert doubled == pytest.approx((low, high))
    assert qbench.change_interval([0.5, 0.7], ["a", "a"]) == (-math.inf, math.inf)


@pytest.mark.parametrize(
    ("changes", "clusters", "confidence"),
    [([], None, 0.95), ([math.nan], None, 0.95), ([[1]], None, 0.95), ([1, 0], ["a"], 0.95), ([1.5, 0], None, 1.0)],
)
def test_the_public_interval_refuses_what_it_cannot_take(changes, clusters, confidence):
    with pytest.raises(ValueError, match=r"change|sources|confidence"):
        qbench.change_interval(changes, clusters, confidence=confidence)
