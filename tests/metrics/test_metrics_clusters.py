"""Samples that share sources: held to a scalar count,
to McNemar's test and to scipy's Student distribution.
"""

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
from qbench.judging import Evidence, mcnemar_midp
from qbench.judging.statistics import changed_share, settles, shown_by, sources_for
from qbench.metrics import (
    AnswerKind,
    Answers,
    get_metric,
    paired_interval,
    score,
    slice_scores,
    source_interval,
    source_p,
)
from qbench.metrics.clusters import (
    clustered,
    flip_midp,
    gathering,
    student_quantile,
    variance_between,
)


def top1(now, before, sources):
    """``now`` and ``before``: per sample whether it is right."""
    answers = [
        Answers(np.array([[int(right)] for right in one], dtype=np.int32)) for one in (now, before)
    ]
    return score(
        get_metric("top1"),
        answers[0],
        labels=((1,),) * len(now),
        reference=answers[1],
        sources=sources,
    )


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
        abs(sum(map(lambda s, sign: s * sign, sums, signs)))
        for signs in itertools.product((1, -1), repeat=len(sums))
    ]
    expected = Fraction(sum(total > seen for total in totals)) + Fraction(
        sum(total == seen for total in totals), 2
    )
    expected = 1 if seen == 0 else expected / len(totals)
    assert flip_midp(np.array(sums)) == pytest.approx(float(expected), abs=1e-14)


@given(st.integers(0, 60), st.integers(0, 60))
def test_the_flip_test_of_single_samples_is_mcnemars(losses, gains):
    sums = np.array([-1] * losses + [1] * gains + [0] * 5)
    assert flip_midp(sums) == pytest.approx(mcnemar_midp(losses, gains), rel=1e-12)


@pytest.mark.parametrize("freedom", [1, 2, 3.5, 19, 199, 9999])
@pytest.mark.parametrize("chance", [0.5, 0.9, 0.95, 0.975, 0.995])
def test_students_quantile_is_scipys(freedom, chance):
    assert student_quantile(chance, freedom) == pytest.approx(
        scipy.stats.t.ppf(chance, freedom), rel=1e-9, abs=1e-9
    )


def changes_of(*sources):
    """(changes, numbers) of sources with (samples, lost, gained) each."""
    changes = [
        change
        for n, lost, gained in sources
        for change in [-1] * lost + [1] * gained + [0] * (n - lost - gained)
    ]
    return np.array(changes), np.repeat(np.arange(len(sources)), [n for n, _, _ in sources])


SOURCES = st.lists(
    st.integers(1, 12).flatmap(
        lambda n: st.integers(0, n).flatmap(
            lambda lost: st.tuples(st.just(n), st.just(lost), st.integers(0, n - lost))
        )
    ),
    min_size=2,
    max_size=8,
)


def slow_gathering(sources):
    """The design effect, the degrees of freedom and the number of equal sources,
    one source at a time.
    """
    count, n = len(sources), sum(size for size, _, _ in sources)
    change = Fraction(sum(gained - lost for _, lost, gained in sources), n)
    whole = Fraction(sum(size**2 for size, _, _ in sources), n)
    changed = sum(lost + gained for _, lost, gained in sources)
    within = changed - n * change**2
    effect = whole
    if within:
        far = [(gained - lost - size * change) ** 2 for size, lost, gained in sources]
        between = Fraction(count, count - 1) * sum(far)
        most, fewest = max(
            (one, -lost - gained)
            for one, (_, lost, gained) in zip(far, sources, strict=True)
            if lost + gained
        )
        effect = max(Fraction(1), between / within, (between + 8 * most) / (within - 8 * fewest))
    alike = min(Fraction(1), (effect - 1) / (whole - 1)) if whole > 1 else Fraction(0)
    variances = [size * (1 + (size - 1) * alike) for size, _, _ in sources]
    freedom = max(sum(variances) ** 2 / sum(v**2 for v in variances) - 1, Fraction(1, 2))
    return float(effect), float(freedom), float(n / whole)


def found_in(sources):
    changes, numbers = changes_of(*sources)
    sizes, sums, changed = (
        np.bincount(numbers, weights=one) for one in (np.ones(len(changes)), changes, abs(changes))
    )
    return gathering(sizes, sums, changed)


@settings(max_examples=60)
@given(SOURCES)
def test_the_design_effect_is_that_of_a_slow_count(sources):
    found = found_in(sources)
    assert (found.effect, found.freedom, found.equal) == pytest.approx(
        slow_gathering(sources), rel=1e-9
    )


def slow_tango(losses, gains, n, change):
    """Tango's statistic, its share of losses by a search for the most probable one."""
    low, high = max(0.0, -change), min(1.0, (1 - change) / 2 if change > -1 else 1.0)

    def slope(share):  # of the logarithm of the chance of these counts
        rest = 1 - 2 * share - change
        terms = ((losses, share, 1), (gains, share + change, 1), (n - losses - gains, rest, -2))
        return sum(sign * count / max(part, 1e-300) for count, part, sign in terms if count)

    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) > 0 else (low, middle)
    return (gains - losses - n * change) / math.sqrt(
        max(n * (2 * low + change * (1 - change)), 1e-300)
    )


def slow_p(losses, gains, n, change, sources):
    """The largest p of a share that was not met, in steps,
    and of the rest by Tango's statistic and scipy's t.
    """
    effect, freedom, equal = slow_gathering(sources)
    middle = (gains - losses) / n
    farthest = min(1.0, abs(middle - change))
    chances = [(1 - farthest) ** equal if farthest < 1 else 0.0]
    for step in range(80):
        unmet = farthest * step / 80
        rest = change + math.copysign(unmet, middle - change)
        distance = abs(slow_tango(losses, gains, n, rest)) / math.sqrt(effect)
        chances.append((1 - unmet) ** equal * float(scipy.stats.t.sf(distance, freedom)))
    return max(chances)


@settings(max_examples=20)
@given(SOURCES, st.sampled_from([0.8, 0.9, 0.95]))
def test_the_ends_of_the_interval_are_where_a_slow_count_finds_the_error(sources, confidence):
    changes, _ = changes_of(*sources)
    counts = int((changes < 0).sum()), int((changes > 0).sum()), len(changes)
    ends = source_interval(*counts, found_in(sources), confidence=confidence)
    for end in ends:
        if -1 < end < 1:
            assert slow_p(*counts, end, sources) == pytest.approx((1 - confidence) / 2, rel=0.02)
            assert source_p(*counts, end, found_in(sources)) == pytest.approx(
                (1 - confidence) / 2, rel=0.02
            )


@settings(max_examples=40)
@given(SOURCES, st.randoms(use_true_random=False))
def test_the_order_and_the_names_of_sources_and_samples_say_nothing(sources, random):
    changes, numbers = changes_of(*sources)
    places = list(range(len(changes)))
    random.shuffle(places)
    names = [f"photo {(7 * number + 3) % 101}" for number in numbers]
    found = qbench.change_interval(changes, [str(one) for one in numbers])
    again = qbench.change_interval(changes[places], [names[place] for place in places])
    assert again == pytest.approx(found, abs=1e-9)


@settings(max_examples=40)
@given(SOURCES)
def test_no_interval_excludes_what_sources_that_were_not_met_may_do(sources):
    changes, numbers = changes_of(*sources)
    found = clustered(changes, numbers)
    middle = changes.mean()
    for error, (low, high) in ((0.05, found.interval), (0.025, found.shown)):
        unmet = 1 - error ** (len(changes) ** -2 * float((np.bincount(numbers) ** 2).sum()))
        assert low <= max(-1.0, middle - unmet) + 1e-9
        assert high >= min(1.0, middle + unmet) - 1e-9


@settings(max_examples=40)
@given(st.integers(2, 12), st.integers(1, 20), st.integers(0, 12), st.integers(2, 4))
def test_sources_that_are_merged_with_their_like_prove_no_more(count, size, lost, times):
    """Each of ``count`` sources in so many parts of the same changes, or in one."""
    lost = min(lost, size)
    apart = [(size, lost, 0)] * times + [(size, 0, 0)] * times * count
    together = [(size * times, lost * times, 0)] + [(size * times, 0, 0)] * count
    narrow, wide = (clustered(*changes_of(*one)).interval for one in (apart, together))
    assert wide[0] <= narrow[0] + 1e-9
    assert wide[1] >= narrow[1] - 1e-9


@settings(max_examples=40)
@given(st.integers(3, 60), st.integers(1, 20), st.integers(0, 8))
def test_one_more_source_that_is_lost_as_a_whole_proves_a_greater_loss(count, size, lost):
    lost = min(lost, count - 1)
    less, more = (
        clustered(*changes_of(*[(size, size, 0)] * k, *[(size, 0, 0)] * (count - k))).interval
        for k in (lost, lost + 1)
    )
    assert more[0] <= less[0] + 1e-9
    assert more[1] <= less[1] + 1e-9


def drawn(rng, sizes, losing, gaining, correlation, whole):
    """Sums and changed samples of sources whose losses gather and whose gains do not."""
    if whole:
        together = rng.random(len(sizes)) < correlation
        lost = np.where(
            together, sizes * (rng.random(len(sizes)) < losing), rng.binomial(sizes, losing)
        )
    else:
        scale = 1 / correlation - 1
        lost = rng.binomial(sizes, rng.beta(losing * scale, (1 - losing) * scale, len(sizes)))
    gained = rng.binomial(sizes - lost, gaining)
    return lost, gained


FEW_LARGE = np.array([267] * 10 + [7] * 190)


@pytest.mark.parametrize(
    ("sizes", "correlation", "whole"),
    [(FEW_LARGE, 0.1, False), (np.full(100, 30), 0.3, True), (np.full(300, 20), 0.3, True)],
    ids=["few large", "100 whole", "300 whole"],
)
def test_a_loss_of_the_margin_is_rarely_passed(sizes, correlation, whole):
    """A loss of 2 points, and a margin of 2: 13 to 33 % would pass by the design effect alone."""
    rng, trials, passed = np.random.default_rng(8), 200, 0
    for _ in range(trials):
        lost, gained = drawn(rng, sizes, 0.03, 0.01, correlation, whole)
        found = gathering(
            sizes.astype(float), (gained - lost).astype(float), (gained + lost).astype(float)
        )
        counts = int(lost.sum()), int(gained.sum()), int(sizes.sum())
        is_less = counts[0] - counts[1] < 0.02 * counts[2]
        passed += is_less and source_p(*counts, -0.02, found) < 0.05
    assert passed / trials <= 0.06


@settings(max_examples=40)
@given(SOURCES)
def test_intervals_mirror_and_are_wider_than_without_sources(sources):
    changes, numbers = changes_of(*sources)
    found, mirrored = clustered(changes, numbers), clustered(-changes, numbers)
    assert found.interval == pytest.approx(
        tuple(-end for end in reversed(mirrored.interval)), abs=1e-9
    )
    assert (found.effect, found.p, found.error) == pytest.approx(
        (mirrored.effect, mirrored.p, mirrored.error)
    )
    losses, gains = int((changes < 0).sum()), int((changes > 0).sum())
    alone = paired_interval(losses, gains, len(changes), confidence=0.9)
    assert found.interval[0] <= alone[0] + 1e-9
    assert found.interval[1] >= alone[1] - 1e-9
    assert -1 <= found.shown[0] <= found.shown[1] <= 1


def test_equal_sources_have_as_many_degrees_of_freedom_as_there_are_but_one():
    for sources in ([(25, 0, 0)] * 20, [(25, 4, 0), (25, 0, 3)] + [(25, 0, 0)] * 18):
        found = found_in(sources)
        assert found.freedom == pytest.approx(19)
        assert found.equal == pytest.approx(20)
        assert 3 < found.effect <= 25


def test_the_effect_that_many_changed_sources_show_is_taken():
    rng = np.random.default_rng(3)
    changes = rng.choice([-1, 0, 1], size=20_000, p=[0.1, 0.82, 0.08])
    assert clustered(changes, np.arange(20_000) // 20).effect == pytest.approx(1, abs=0.1)
    alike = np.repeat(changes[:1000], 20)
    assert clustered(alike, np.arange(20_000) // 20).effect == pytest.approx(20, rel=0.02)


@pytest.mark.parametrize("sources", [10, 20, 300])
def test_no_change_in_any_source_shows_as_much_as_sources_that_were_not_met(sources):
    found = clustered(*changes_of(*[(25, 0, 0)] * sources))
    unmet = 1 - 0.05 ** (1 / sources)
    assert found.interval == pytest.approx((-unmet, unmet), rel=1e-9)
    assert (found.sources, found.p) == (sources, 1.0)
    assert (found.gathering.effect, found.gathering.equal) == (25, sources)


def test_one_source_proves_nothing():
    now, before = [False] * 40 + [True] * 460, [True] * 500
    found = top1(now, before, ["the photo"] * 500)
    assert found.clusters.interval == (-1.0, 1.0)
    for margin in (0.001, 0.5, 1.0):
        shown = shown_by(found, margin)
        assert (shown.evidence, shown.needed, shown.deciding) == (Evidence.INCONCLUSIVE, None, None)
        assert (
            shown.text(found)
            == "INCONCLUSIVE: 500 samples from 1 source prove nothing about others"
        )
    rate = score(get_metric("per"), **sequences(40, 3), sources=["the voice"] * 40)
    assert shown_by(rate, 0.01).evidence is Evidence.INCONCLUSIVE


def test_a_loss_within_one_source_is_no_proof_of_one():
    alone = top1([False] * 25 + [True] * 475, [True] * 500, None)
    photos = top1(
        [False] * 25 + [True] * 475, [True] * 500, [f"photo {i // 25}" for i in range(500)]
    )
    assert shown_by(alone, 0.01).evidence is Evidence.FAIL
    assert shown_by(photos, 0.01).evidence is Evidence.INCONCLUSIVE
    text = shown_by(photos, 0.01).text(photos)
    assert "500 samples from 20 sources detect a drop of" in text
    assert "any change p 0.5 (sign flips by source)" in text
    assert re.search(
        r"the margin needs \d+ more sources without a loss, \d+ more sources like these decide",
        text,
    )


def of_pairs(counts, times):
    changes, numbers = changes_of(*counts * times)
    return top1(
        [change > 0 for change in changes],
        [change < 0 for change in changes],
        [str(one) for one in numbers],
    )


@settings(max_examples=30)
@given(
    st.integers(2, 30),
    st.integers(0, 4),
    st.integers(0, 4),
    st.integers(1, 6),
    st.floats(0.01, 0.2),
)
def test_as_many_more_sources_like_these_as_are_named_do_decide(
    size, lost, gained, unchanged, margin
):
    counts = [(8 + size, lost, 0), (8 + size, 0, gained), *[(8 + size, 0, 0)] * unchanged]
    shown = shown_by(found := of_pairs(counts, 1), margin)
    if shown.deciding is None:
        return
    wanted = sources_for(found, shown.deciding)
    assert wanted > len(counts)
    for times in {times for times in (1, 2, 4, 8, 16) if times * len(counts) >= wanted}:
        # the same sources again have the same averages
        assert shown_by(of_pairs(counts, times), margin).evidence is not Evidence.INCONCLUSIVE
    assert not settles_at(found, margin, wanted - 1) or wanted == len(counts) + 1


def settles_at(found, margin, sources):
    times = sources / found.clusters.sources
    share = changed_share(found.losses, found.gains, found.n)
    return settles(
        share,
        found.drop / found.n,
        margin,
        found.n * times,
        found.clusters.gathering.of_more(times),
    )


def test_a_margin_takes_as_many_sources_as_would_have_shown_one_that_is_lost():
    found = of_pairs([(25, 0, 0)] * 20, 1)
    shown = shown_by(found, 0.02)
    assert shown.evidence is Evidence.INCONCLUSIVE
    wanted = sources_for(found, shown.needed)
    assert wanted >= math.log(0.05) / math.log(0.98)  # 149, of which none was lost
    text = shown.text(found)
    assert f"the margin needs {wanted - 20} more sources without a loss" in text


@settings(max_examples=40)
@given(SOURCES, st.floats(0.001, 0.9))
def test_evidence_agrees_with_the_interval_that_decides(sources, margin):
    changes, numbers = changes_of(*sources)
    before = [bool(change < 0) for change in changes]
    found = top1(
        [bool(change > 0) for change in changes], before, [str(number) for number in numbers]
    )
    if found.clusters is None:
        return
    evidence = shown_by(found, margin).evidence
    low, high = found.clusters.interval
    if abs(low + margin) > 1e-9:
        assert (evidence is Evidence.PASS) == (low > -margin)
    assert evidence is not Evidence.FAIL or high < -margin + 1e-9


def sequences(n, edits):
    """Answers, labels and reference of ``n`` words,
    the first of which have so many more edits now.
    """
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
    assert math.sqrt(
        variance_between(sizes, np.bincount(numbers, weights=changes))
    ) == pytest.approx(theirs, abs=1e-12)


@pytest.mark.oracle
@settings(max_examples=20)
@given(SOURCES)
def test_the_variance_between_sources_is_that_of_generalized_estimating_equations(sources):
    changes, numbers = changes_of(*sources)
    assume(len({*changes.tolist()}) > 1)
    sizes = np.array([float(n) for n, _, _ in sources])
    fitted = statsmodels.GEE(changes.astype(float), np.ones(len(changes)), groups=numbers).fit(
        cov_type="robust"
    )
    theirs = fitted.bse[0] ** 2 * len(sizes) / (len(sizes) - 1)
    assert variance_between(sizes, np.bincount(numbers, weights=changes)) == pytest.approx(
        theirs, abs=1e-12
    )


@pytest.mark.parametrize(
    ("losses", "gains"), [(5200, 5000), (7000, 6500), (165_000, 166_000), (300_000, 100)]
)
def test_mcnemar_of_many_changes_is_scipys(losses, gains):
    fewer, flips = min(losses, gains), losses + gains
    theirs = 2 * scipy.stats.binom.cdf(fewer - 1, flips, 0.5) + scipy.stats.binom.pmf(
        fewer, flips, 0.5
    )
    assert mcnemar_midp(losses, gains) == pytest.approx(theirs, rel=1e-8)


@settings(max_examples=20)
@given(
    st.lists(
        st.tuples(st.booleans(), st.booleans(), st.sampled_from("abc")), min_size=1, max_size=30
    )
)
def test_a_slice_is_scored_like_its_samples_alone(rows):
    now, before, slices = zip(*rows, strict=True)
    answers = [
        Answers(np.array([[int(right)] for right in one], dtype=np.int32)) for one in (now, before)
    ]
    sources = [str(place // 3) for place in range(len(rows))]
    found = slice_scores(
        get_metric("top1"),
        answers[0],
        labels=((1,),) * len(now),
        reference=answers[1],
        slices=slices,
        sources=sources,
    )
    assert list(found) == sorted(set(slices))
    for name, one in found.items():
        places = [place for place in range(len(rows)) if slices[place] == name]
        alone = top1(
            [now[i] for i in places], [before[i] for i in places], [sources[i] for i in places]
        )
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
    assert qbench.change_interval(changes, own, confidence=0.9) == qbench.paired_interval(
        9, 3, 100, confidence=0.9
    )
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
    [
        ([], None, 0.95),
        ([math.nan], None, 0.95),
        ([[1]], None, 0.95),
        ([1, 0], ["a"], 0.95),
        ([1.5, 0], None, 1.0),
    ],
)
def test_the_public_interval_refuses_what_it_cannot_take(changes, clusters, confidence):
    with pytest.raises(ValueError, match=r"change|sources|confidence"):
        qbench.change_interval(changes, clusters, confidence=confidence)
