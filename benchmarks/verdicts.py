"""How often the verdicts on a loss are wrong, counted over every possible sample: `python
benchmarks/verdicts.py`.

Type-I error: where the true loss is just the margin m, how often a sample is called PASS, and how
often FAIL, over all (losses, gains) of n samples, of which a share π changes sides; the largest
error over π. Both nominally 5 %.

    Pr(PASS) = Σ over gains c of Pr(c) Pr(losses ≤ the most that PASS with c gains), and FAIL
    likewise

Small samples: wrong FAIL where the margin is under one sample, the largest over π up to a fifth and
up to 1, and the fewest losses that FAIL when nothing is gained: what fails a cell by the default
rule.

Means (`--means N`): wrong PASS of a mean in N drawn samples of each row, by the percentile
bootstrap alone and as judged. Values have no bounds, 50 ± 5; the true loss is the margin.

Coverage: how often the interval that is shown holds the true change, the same sum over all samples
of n ≤ 30, and the least, the mean of it over a grid of true shares.
"""

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table
from scipy.stats import binom

from qbench.judging import Evidence, margin_evidence, paired_interval
from qbench.metrics import MILLION
from qbench.metrics.clusters import widened
from qbench.metrics.resampling import change_interval, with_unmet

MARGINS = (0.005, 0.01, 0.02)
SMALL_MARGINS = (0.0005, 0.005, 0.01, 0.02, 0.05)
SMALL = (1, 3, 4, 5, 7, 10, 15, 20, 50, 100, 199, 1000)
SHARES = 60
"""Shares π between the margin itself (nothing is gained) and 60 times it, or a half."""


@dataclass(frozen=True, slots=True)
class Case:
    """``n`` samples with ``gains`` and a ``margin``, a fraction."""

    n: int
    gains: int
    margin: float


def verdict_rates(n: int, margin: float, losing: float, gaining: float) -> tuple[float, float]:
    """(PASS, FAIL) probabilities where each sample is lost
    with ``losing`` and won with ``gaining``.
    """
    most_pass = np.empty(n + 1, dtype=np.int64)
    least_fail = np.empty(n + 1, dtype=np.int64)
    gains = np.arange(n + 1)
    likely = binom.pmf(gains, n, gaining)
    used = gains[likely > 1e-12]  # what is left out is less than 1e-8 in all
    for gained in used:
        case = Case(n, int(gained), margin)
        most_pass[gained] = _last(case, (Evidence.PASS,))
        least_fail[gained] = 1 + _last(case, (Evidence.PASS, Evidence.INCONCLUSIVE))
    chance = losing / (1 - gaining)
    passed = (likely[used] * binom.cdf(most_pass[used], n - used, chance)).sum()
    failed = (likely[used] * binom.sf(least_fail[used] - 1, n - used, chance)).sum()
    return float(passed), float(failed)


def _last(case: Case, wanted: tuple[Evidence, ...]) -> int:
    """The most losses with one of the ``wanted`` evidences, −1 for none:
    with more losses it only gets worse.
    """
    low, high = -1, case.n - case.gains
    while low < high:
        middle = (low + high + 1) // 2
        holds = margin_evidence(middle, case.gains, case.n, case.margin) in wanted
        low, high = (middle, high) if holds else (low, middle - 1)
    return low


def small_errors(n: int, margin: float, most: float) -> float:
    """Wrong FAIL, the largest over shares π up to ``most``, where the true loss is ``margin``."""
    shares = [margin, *np.geomspace(1.02 * margin, most, 2 * SHARES)]
    return max(
        verdict_rates(n, margin, (share + margin) / 2, (share - margin) / 2)[1] for share in shares
    )


def worst_errors(n: int, margin: float) -> tuple[tuple[float, float], tuple[float, float]]:
    """((wrong PASS, at which π), (wrong FAIL, at which π)), the largest over π, where the true
    loss is ``margin``.
    """
    shares = [margin, *np.geomspace(1.02 * margin, min(60 * margin, 0.5), SHARES)]
    found = {s: verdict_rates(n, margin, (s + margin) / 2, (s - margin) / 2) for s in shares}
    return max((rates[0], share) for share, rates in found.items()), max(
        (r[1], share) for share, r in found.items()
    )


def coverages(n: int, method: str) -> tuple[float, float]:
    """(least, mean) coverage of the 95 % interval over true shares
    of losses and gains from 1 to 40 % each.
    """
    log = [math.lgamma(k + 1) for k in range(n + 1)]
    samples = [(b, c) for b in range(n + 1) for c in range(n + 1 - b)]
    ends = np.array([paired_interval(b, c, n, method=method) for b, c in samples])  # type: ignore[arg-type]
    losses, gains = np.array(samples).T
    ways = np.array([log[n] - log[b] - log[c] - log[n - b - c] for b, c in samples])
    found = []
    for losing in (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4):
        for gaining in (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4):
            same = 1 - losing - gaining
            weights = np.exp(
                ways
                + losses * math.log(losing)
                + gains * math.log(gaining)
                + (n - losses - gains) * math.log(same)
            )
            change = gaining - losing
            found.append(float(weights[(ends[:, 0] <= change) & (change <= ends[:, 1])].sum()))
    return min(found), float(np.mean(found))


Floats = npt.NDArray[np.float64]

CHANGES: dict[str, Callable[[np.random.Generator, int], Floats]] = {
    "normal": lambda rng, n: rng.normal(-1, 1, n),
    "exponential": lambda rng, n: -rng.exponential(1, n),
    "one in ten loses 10": lambda rng, n: np.where(rng.random(n) < 0.1, -10.0, 0.0),
    "the same, all move a little": lambda rng, n: (
        np.where(rng.random(n) < 0.1, -10.0, 0.0) + rng.normal(0, 0.1, n)
    ),
}
"""How changes are distributed, with a mean of −1."""


def mean_errors(
    changes: Callable[[np.random.Generator, int], Floats], n: int, trials: int
) -> Floats:
    """(2,) how often a mean of ``n`` samples is wrongly called PASS: by the bootstrap alone, and
    as judged.
    """
    rng, found = np.random.default_rng(1), np.zeros(2)
    whole = np.full(n, MILLION)
    for _ in range(trials):
        before = rng.normal(50, 5, n)
        after = before + changes(rng, n)
        hits = [np.rint(MILLION * one).astype(np.int64) for one in (after, before)]
        rows = np.stack([hits[0], whole, hits[1], whole], axis=1)
        change = float((hits[0] - hits[1]).sum()) / (n * MILLION)
        drawn = change_interval(rows)
        assert drawn is not None
        wide = widened(drawn, change, np.arange(n))
        judged = with_unmet(wide, change, rows, (-math.inf, math.inf))
        assert judged is not None
        found += drawn[0] > -1, judged[0] > -1
    return found / trials


def print_means(console: Console, trials: int) -> None:
    """The table of ``mean_errors``."""
    table = Table("changes", "n", "bootstrap alone", "as judged", title="Wrong PASS of a mean")
    for name, changes in CHANGES.items():
        for n in (5, 10, 20, 50, 200):
            alone, judged = 100 * mean_errors(changes, n, trials)
            table.add_row(name, str(n), f"{alone:.1f} %", f"{judged:.1f} %")
    console.print(table)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--samples", type=int, nargs="*", default=[200, 1000, 10_000])
    parser.add_argument("--means", type=int, metavar="N", help="samples of a mean instead")
    arguments = parser.parse_args()
    console = Console()
    if arguments.means:
        print_means(console, arguments.means)
        return
    errors = Table(
        "n", "margin", "wrong PASS", "at π", "wrong FAIL", "at π", title="Type-I error, nominal 5 %"
    )
    for n in arguments.samples:
        for margin in MARGINS:
            (passed, at_pass), (failed, at_fail) = worst_errors(n, margin)
            errors.add_row(
                str(n),
                f"{100 * margin:g} pp",
                f"{100 * passed:.2f} %",
                f"{100 * at_pass:.1f} %",
                f"{100 * failed:.2f} %",
                f"{100 * at_fail:.1f} %",
            )
    console.print(errors)
    small = Table(
        "n",
        "margin",
        "FAIL from",
        "wrong FAIL, π ≤ 20 %",
        "wrong FAIL, any π",
        title="Under one sample",
    )
    for margin in SMALL_MARGINS:
        for n in (each for each in SMALL if each * margin < 1):
            least = 1 + _last(Case(n, 0, margin), (Evidence.PASS, Evidence.INCONCLUSIVE))
            rates = [f"{100 * small_errors(n, margin, most):.2f} %" for most in (0.2, 1.0)]
            small.add_row(
                str(n), f"{100 * margin:g} pp", f"{least} losses" if least <= n else "never", *rates
            )
    console.print(small)
    covered = Table("n", "interval", "least", "mean", title="Coverage, nominal 95 %")
    for n in (5, 10, 20, 30):
        for method in ("bonett-price", "tango"):
            least, mean = coverages(n, method)
            covered.add_row(str(n), method, f"{100 * least:.1f} %", f"{100 * mean:.1f} %")
    console.print(covered)


if __name__ == "__main__":
    main()
