"""What samples find and margins need, against the tables;
adjusted p-values against scipy and statsmodels.
"""

import math
from dataclasses import replace
from statistics import NormalDist

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, binomtest, false_discovery_control
from statsmodels.stats.multitest import multipletests

from qbench.judging import (
    benjamini_hochberg,
    changed_share,
    detectable_drop,
    loss_midp,
    mcnemar_midp,
    samples_needed,
)
from qbench.judging.power import DataPower, decidable_drop, excluded_text, open_sentence
from qbench.judging.statistics import detectable_by_spread, samples_by_spread, spread_of
from qbench.metrics import Gathering


@pytest.mark.parametrize(
    ("n", "drops"),
    [
        (1000, (0.88, 1.25, 1.98)),
        (5000, (0.40, 0.56, 0.89)),
        (10_000, (0.28, 0.40, 0.63)),
        (50_000, (0.13, 0.18, 0.28)),
    ],
)
def test_detectable_drops_of_the_table(n, drops):
    found = [100 * detectable_drop(share, n) for share in (0.01, 0.02, 0.05)]
    assert found == pytest.approx(drops, abs=0.0051)


@pytest.mark.parametrize(
    ("margin", "needed"),
    [(0.005, (1237, 2474, 4947, 12_366, 24_731)), (0.01, (310, 619, 1237, 3092, 6183))],
)
def test_needed_samples_of_the_table(margin, needed):
    assert [samples_needed(share, margin) for share in (0.005, 0.01, 0.02, 0.05, 0.1)] == list(
        needed
    )


def test_a_margin_needs_what_an_unchanged_sample_needs_at_least():
    assert samples_needed(0.0, 0.005) == 539
    assert samples_needed(0.5, 0.0) is None
    assert samples_needed(0.5, 1.0) == 1


def test_the_detectable_drop_is_found_four_times_in_five():
    """Exactly: losses and gains at n = 2000 whose true drop is the detectable one, through
    McNemar's own test.
    """
    n, share = 2000, 0.04
    drop = detectable_drop(share, n)
    losing, gaining = (share + drop) / 2, (share - drop) / 2
    power = 0.0
    for flips in range(30, 140):
        weight = binom.pmf(flips, n, share)
        least = next(
            b for b in range(flips + 1) if b > flips - b and mcnemar_midp(b, flips - b) <= 0.05
        )
        power += weight * binom.sf(least - 1, flips, losing / (losing + gaining))
    assert power == pytest.approx(0.8, abs=0.015)


@given(st.floats(0.001, 1), st.integers(5, 10**6))
def test_more_samples_find_smaller_drops(share, n):
    assert 0 < detectable_drop(share, n + 1) <= detectable_drop(share, n) <= 1


@pytest.mark.parametrize("n", range(1, 12))
def test_few_samples_detect_what_the_test_itself_detects(n):
    """All that change are lost; without any drop where even the loss of all is not significant."""
    least = next((lost for lost in range(n + 1) if mcnemar_midp(lost, 0) <= 0.05), None)
    found = detectable_drop(changed_share(0, 0, n), n)
    assert (found is None) is (least is None)
    if found is not None:
        assert binom.sf(least - 1, n, found) >= 0.8 - 1e-9
    assert changed_share(0, 0, 1) == pytest.approx(2 / 3)


def test_few_sources_detect_no_drop_however_many_samples_they_have():
    for effect in (1.0, 10.0):
        assert detectable_drop(0.05, 4000, effect=effect, sources=4) is None
        assert detectable_drop(0.05, 4000, effect=effect, sources=5) < 1
    assert detectable_drop(0.05, 40, effect=20.0, sources=8) == pytest.approx(0.8 ** (1 / 8))


def test_spread_of_a_normal_estimate():
    z = NormalDist().inv_cdf(0.95)
    assert spread_of(-0.01 * z, 0.01 * z) == pytest.approx(0.01)
    # the two formulas are one: a share that changes by ±1 in a part π of n samples spreads by
    # √(π/n)
    share, n, margin = 0.02, 1000, 0.005
    assert samples_by_spread(math.sqrt(share / n), n, margin) == samples_needed(share, margin)
    assert detectable_by_spread(math.sqrt(share / n)) == pytest.approx(0.0125, abs=1e-4)
    assert samples_by_spread(0.01, 100, 0.0) is None


@pytest.mark.parametrize(
    ("losses", "gains", "p"),
    [
        (4, 0, 0.031),
        (5, 0, 0.016),
        (6, 0, 0.008),
        (9, 2, 0.019),
        (15, 5, 0.013),
        (30, 20, 0.080),
        (60, 40, 0.023),
        (150, 100, 0.0008),
    ],
)
def test_one_sided_midp_of_the_table(losses, gains, p):
    assert loss_midp(losses, gains) == pytest.approx(p, abs=6e-4)


@given(st.integers(0, 60), st.integers(0, 60))
def test_one_sided_midp_against_scipy(losses, gains):
    flips = losses + gains
    greater = binomtest(losses, flips, alternative="greater").pvalue if flips else 1.0
    assert loss_midp(losses, gains) == pytest.approx(
        greater - binom.pmf(losses, flips, 0.5) / 2, abs=1e-12
    )
    assert loss_midp(losses, gains) + loss_midp(gains, losses) == pytest.approx(1)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40))
def test_adjusted_values_against_scipy_and_statsmodels(values):
    found = benjamini_hochberg(values)
    assert found == pytest.approx(list(false_discovery_control(values, method="bh")), abs=1e-12)
    assert found == pytest.approx(list(multipletests(values, method="fdr_bh")[1]), abs=1e-12)


def test_adjusting_nothing_and_the_impossible():
    assert benjamini_hochberg([]) == ()
    with pytest.raises(ValueError, match="between 0 and 1"):
        benjamini_hochberg([0.5, math.nan])


def test_what_samples_tell_from_chance_follows_the_table_of_sample_sizes():
    # n for a margin of 0.5 pp at 0.5, 1, 2 and 5 % of flips, one-sided 5 %, 80 % power
    for n, flips in ((1237, 0.005), (2474, 0.01), (4947, 0.02), (12366, 0.05)):
        assert decidable_drop(n, flips) == pytest.approx(0.005, rel=1e-3)
        # of so many sources hardly one that changes as a whole is missed, and Tango's variance is
        # that of flips alone
        many = Gathering(3.0, 1e9, 1e9)
        assert decidable_drop(30_000 * n, flips, many) == pytest.approx(0.00005, rel=0.01)


@pytest.mark.parametrize("sources", [4, 20, 300])
def test_before_a_run_the_sources_alone_say_what_can_be_told(sources):
    power = DataPower(model="m", metric="top1", n=25 * sources, sources=sources, margin=0.02)
    never_met = 1 - 0.05 ** (1 / sources)
    assert never_met < power.tells <= 1
    assert power.needed >= 25 * math.log(0.05) / math.log(0.98)
    assert power.is_open is (power.needed > power.n)


def test_what_sources_exclude_is_what_they_would_have_met(words):
    words(excluded_text(20))
    words(excluded_text(299))
    assert 0.99**299 < 0.05 < 0.99**298


def test_one_source_tells_nothing():
    assert DataPower(model="m", metric="top1", n=500, sources=1, margin=0.5).tells == 1.0


@settings(max_examples=30)
@given(st.integers(2, 2000), st.floats(0.001, 0.5), st.integers(2, 40))
def test_so_many_sources_more_do_settle_the_margin(sources, margin, size):
    power = DataPower(model="m", metric="top1", n=sources * size, sources=sources, margin=margin)
    if not power.is_open:
        assert power.more_text == ""
        return
    more = int(power.more_text.partition(" more source")[0].replace(",", ""))
    for added, is_open in ((more, False), (more - 1, True)):
        assert (
            replace(power, n=(sources + added) * size, sources=sources + added).is_open is is_open
        )


def test_a_suite_says_once_which_models_cannot_decide_their_own_rule(words):
    enough = DataPower(model="big", metric="top1", n=50_000, margin=0.01)
    exact = DataPower(
        model="exact", metric="top1", n=50, margin=0.0
    )  # the first flip counts: nothing to settle
    few = DataPower(model="voices", metric="top1", n=200, sources=4, margin=0.02)
    less = replace(few, metric="top5", margin=0.03)
    rate = DataPower(model="words", metric="wer", n=110, margin=0.001, error=0.004)
    assert open_sentence([enough, exact]) == ""
    found = open_sentence([enough, less, few, exact, rate])
    assert found.startswith("2 of 4 models have too few samples")
    words(found)
    assert "voices top5" not in found
    more = (
        math.ceil(110 * (4 * (NormalDist().inv_cdf(0.95) + NormalDist().inv_cdf(0.8))) ** 2) - 110
    )
    assert (
        "words wer may lose 0.10 pp, 110 samples tell a loss from 0.99 pp on, "
        f"{more:,} more samples" in found
    )
