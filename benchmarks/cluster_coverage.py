"""How well intervals and verdicts hold where samples share sources: `python benchmarks/cluster_coverage.py`, 9 minutes.

A simulation: the samples of G sources lose or gain with a chance that differs between sources. That of each source,
(losing, same, gaining), is drawn from a Dirichlet distribution: changes have the intra-cluster correlation ICC. Of
fp32's wrong samples a fifth are gained, and as many are lost, plus the drop. Coverage is that of the 95 % interval that
is shown; wrong PASS and wrong FAIL are counted where the true drop is just the margin.

`--methods` compares the ways that were tried, on some of the cases; `--flips` tests the test of "no change"; `--ratio`
is for metrics that are no share of samples; `--speed` times the judgement of a million samples of 10,000 sources;
`--whole` draws sources of which some change as a whole now and then.
"""

import argparse
import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import norm, t

from qbench.judging import Evidence, margin_evidence, mcnemar_midp
from qbench.judging.statistics import shown_by
from qbench.metrics import Answers, get_metric, resampling, score
from qbench.metrics.clusters import clustered, design_effect, flip_midp, widened

Floats = npt.NDArray[np.float64]
SOURCES = (20, 50, 200)
SIZES: dict[str, Callable[[int], npt.NDArray[np.int64]]] = {
    "5": lambda count: np.full(count, 5),
    "50": lambda count: np.full(count, 50),
    "1 to 50": lambda count: np.linspace(1, 50, count).round().astype(np.int64),
    "most few": lambda count: np.maximum(1, np.round(50 * (np.arange(1, count + 1) / count) ** 4)).astype(np.int64),
}
CORRELATIONS = (0.0, 0.1, 0.3, 0.6, 0.9)
RATES = (0.5, 0.8, 0.95, 0.99)
DROPS = (0.0, 0.5, 1.0, 1.5, 2.0)
MARGINS = (0.02, 0.05)
MANY = 20
"""From so many effective changes on (changed samples over the design effect) coverage is to be 93 to 97 %."""
_MOST = 0.06
_Z90, _Z95 = norm.ppf(0.95), norm.ppf(0.975)


@dataclass(frozen=True, slots=True)
class Case:
    """``count`` sources of some ``sizes``; ``drop`` is in margins."""

    count: int
    sizes: str
    correlation: float
    rate: float
    margin: float
    drop: float

    @property
    def chances(self) -> tuple[float, float]:
        """Of a sample to be lost, and to be gained."""
        gaining = 0.2 * (1 - self.rate)
        return gaining + self.drop * self.margin, gaining

    @property
    def effective(self) -> float:
        """How many changes of samples of their own would vary as much as those expected."""
        sizes = SIZES[self.sizes](self.count)
        whole = float((sizes**2).sum()) / sizes.sum()
        return sizes.sum() * sum(self.chances) / (1 + (whole - 1) * self.correlation)


def drawn(
    case: Case, samples: int, rng: np.random.Generator, *, whole: bool = False
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(samples, G) losses and gains of each source; ``whole``: samples take a common draw with chance √ICC each."""
    losing, gaining = case.chances
    chances = np.array([losing, 1 - losing - gaining, gaining])
    sizes = np.broadcast_to(SIZES[case.sizes](case.count), (samples, case.count))
    if whole:
        common = rng.multinomial(1, chances, size=sizes.shape)
        together = rng.binomial(sizes, math.sqrt(case.correlation))
        counts = rng.multinomial(sizes - together, chances) + common * together[..., np.newaxis]
        return counts[..., 0], counts[..., 2]
    if case.correlation:
        shapes = np.broadcast_to((1 / case.correlation - 1) * chances, (samples, case.count, 3))
        gammas = rng.standard_gamma(shapes)
        chances = gammas / gammas.sum(axis=-1, keepdims=True)
    counts = rng.multinomial(sizes, chances)
    return counts[..., 0], counts[..., 2]


@dataclass(frozen=True, slots=True)
class Drawn:
    """Samples of one case: sizes (G,); losses, gains (samples, G)."""

    case: Case
    sizes: Floats
    losses: npt.NDArray[np.int64]
    gains: npt.NDArray[np.int64]

    @property
    def sums(self) -> Floats:
        """(samples, G) gains minus losses."""
        return (self.gains - self.losses).astype(np.float64)

    @property
    def change(self) -> float:
        """The true one."""
        losing, gaining = self.case.chances
        return gaining - losing


def effects(data: Drawn) -> tuple[Floats, Floats]:
    """(samples,) the design effect and the degrees of freedom of each sample, by ``metrics.clusters``."""
    changed = (data.losses + data.gains).sum(axis=1)
    found = [design_effect(data.sizes, sums, int(all_)) for sums, all_ in zip(data.sums, changed, strict=True)]
    return np.array([one for one, _ in found]), np.array([one for _, one in found])


def tango(losses: Floats, gains: Floats, n: Floats, change: float, less: float = 0.0) -> Floats:
    """``metrics.tango_statistic`` of arrays."""
    linear = -losses - gains + (2 * n - gains + losses) * change
    root = (np.sqrt(np.maximum(linear**2 + 8 * n * losses * change * (1 - change), 0)) - linear) / (4 * n)
    variance = n * (2 * root + change * (1 - change))
    distance = gains - losses - n * change
    distance = np.copysign(np.maximum(np.abs(distance) - less, 0), distance)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(variance > 0, distance / np.sqrt(variance), np.copysign(np.inf, distance) * (distance != 0))


@dataclass(frozen=True, slots=True)
class Rates:
    """Shares of the samples of a case: the true change inside the 95 % interval; PASS; FAIL."""

    covered: float
    passed: float
    failed: float


def rates(data: Drawn, effect: Floats, freedom: Floats | float) -> Rates:
    """Of paired intervals of counts over ``effect`` (samples,), with Student's t of ``freedom``."""
    counts = [one.sum(axis=1).astype(np.float64) for one in (data.losses, data.gains)]
    shows, decides = (effect * (t.ppf(p, freedom) / norm.ppf(p)) ** 2 for p in (0.975, 0.95))
    losses, gains, n = (one / shows for one in (*counts, data.sizes.sum()))
    lost, gained = (losses + 1) / (n + 2), (gains + 1) / (n + 2)
    half = _Z95 * np.sqrt((lost + gained - (gained - lost) ** 2) / (n + 2))
    covered = np.abs(gained - lost - data.change) <= half
    few = tuple(one / decides for one in (*counts, data.sizes.sum()))
    passed = tango(*few, -data.case.margin) > _Z90
    return Rates(covered.mean(), passed.mean(), (tango(*few, -data.case.margin, less=0.5) < -_Z90).mean())


def drawn_case(case: Case, samples: int, rng: np.random.Generator, *, whole: bool = False) -> Drawn:
    """``samples`` samples of ``case``."""
    return Drawn(case, SIZES[case.sizes](case.count).astype(np.float64), *drawn(case, samples, rng, whole=whole))


def check(data: Drawn, effect: Floats, freedom: Floats) -> None:
    """Hold the arrays of this file to what a cell is judged by, on the first sample."""
    sizes = data.sizes.astype(np.int64)
    kinds = [(-1, data.losses[0]), (1, data.gains[0]), (0, sizes - data.losses[0] - data.gains[0])]
    changes = np.concatenate([np.full(times.sum(), kind) for kind, times in kinds])
    numbers = np.concatenate([np.repeat(np.arange(len(sizes)), times) for _, times in kinds])
    found = clustered(changes, numbers)
    losses, gains = int((changes < 0).sum()), int((changes > 0).sum())
    evidence = margin_evidence(losses, gains, len(changes), data.case.margin, effect=found.effect)
    first = Drawn(data.case, data.sizes, data.losses[:1], data.gains[:1])
    mine = rates(first, effect[:1], freedom[:1])
    theirs = (found.shown[0] <= data.change <= found.shown[1], evidence is Evidence.PASS, evidence is Evidence.FAIL)
    if (mine.covered, mine.passed, mine.failed) != tuple(map(float, theirs)):
        raise SystemExit(f"{data.case}: {mine} is not what a cell is judged by: {theirs}")


def coverage(samples: int, *, whole: bool = False) -> None:
    """One row of a table for each number of sources and each correlation."""
    print(f"{samples} samples of each of {len(SIZES) * len(RATES) * len(MARGINS) * len(DROPS)} cases per row\n")
    print("| sources | ICC | 95 % covers, ≥ 20 changes | fewer changes | wrong PASS | wrong FAIL |")
    print("|---|---|---|---|---|---|")
    within = every = 0
    wrong: list[tuple[float, str, Case]] = []
    for count, correlation in itertools.product(SOURCES, CORRELATIONS):
        many, few, passed, failed = [], [], [], []
        for sizes, rate, margin, drop in itertools.product(SIZES, RATES, MARGINS, DROPS):
            case = Case(count, sizes, correlation, rate, margin, drop)
            rng = np.random.default_rng(
                [count, int(10 * correlation), int(100 * rate), int(1e3 * margin), int(2 * drop)]
            )
            data = drawn_case(case, samples, rng, whole=whole)
            effect, freedom = effects(data)
            check(data, effect, freedom)
            found = rates(data, effect, freedom)
            (many if case.effective >= MANY else few).append(found.covered)
            if drop == 1:
                passed.append(found.passed)
                failed.append(found.failed)
                kinds = (("PASS", found.passed), ("FAIL", found.failed))
                wrong += [(share, kind, case) for kind, share in kinds if share > _MOST]
        within += sum(0.93 <= one <= 0.97 for one in many)
        every += len(many)
        ends = [f"{100 * min(one):.1f} to {100 * max(one):.1f} %" if one else "–" for one in (many, few)]
        worst = [f"{100 * max(one):.1f} %" for one in (passed, failed)]
        print("|", " | ".join([str(count), f"{correlation:g}", *ends, *worst]), "|", flush=True)
    print(f"\nof {every} cases with 20 effective changes or more {100 * within / every:.0f} % cover 93 to 97 %")
    for share, kind, case in sorted(wrong, key=lambda one: -one[0]):
        print(f"wrong {kind} {100 * share:.1f} %: {case}")


# What was tried.

COMPARED = [
    Case(20, "1 to 50", 0.0, 0.8, 0.05, 1.0),
    Case(20, "50", 0.1, 0.8, 0.05, 1.0),
    Case(20, "1 to 50", 0.3, 0.8, 0.05, 1.0),
    Case(20, "50", 0.6, 0.5, 0.05, 1.0),
    Case(50, "1 to 50", 0.1, 0.95, 0.05, 1.0),
    Case(50, "1 to 50", 0.3, 0.95, 0.05, 1.0),
    Case(50, "50", 0.6, 0.95, 0.05, 1.0),
    Case(200, "5", 0.3, 0.95, 0.02, 1.0),
    Case(200, "1 to 50", 0.1, 0.95, 0.02, 1.0),
    Case(200, "1 to 50", 0.6, 0.95, 0.02, 1.0),
]
BOOTSTRAPS = 999


def methods(samples: int) -> None:
    """One row for each way and case: coverage / wrong PASS / wrong FAIL in percent."""
    rows: dict[str, list[Rates]] = {}
    for case in COMPARED:
        data = drawn_case(case, samples, np.random.default_rng(7))
        effect, freedom = effects(data)
        changed = (data.losses + data.gains).sum(axis=1)
        n, count = data.sizes.sum(), case.count
        change = data.sums.sum(axis=1) / n
        between = count / (count - 1) * ((data.sums - data.sizes * change[:, np.newaxis]) ** 2).sum(axis=1)
        within = changed - n * change**2
        plain = np.where(within > 0, between / np.maximum(within, 1e-9), (data.sizes**2).sum() / n)
        rows.setdefault("samples as independent", []).append(rates(data, np.ones(samples), 1e9))
        rows.setdefault("Wald, t of G − 1 (CR1)", []).append(wald(data, change, np.sqrt(between) / n, count - 1))
        rows.setdefault("score, effect as seen, t of G − 1", []).append(rates(data, np.maximum(plain, 1), count - 1))
        rows.setdefault("**score, unmet sources added, Satterthwaite's t**", []).append(rates(data, effect, freedom))
        for name, found in bootstraps(data, np.random.default_rng(8)).items():
            rows.setdefault(name, []).append(found)
    print("| method |", " | ".join(f"{c.count} of {c.sizes}, ICC {c.correlation:g}, {c.rate:g}" for c in COMPARED), "|")
    print("|---" * (len(COMPARED) + 1) + "|")
    for name, found in rows.items():
        cells = [f"{100 * r.covered:.1f} / {100 * r.passed:.1f} / {100 * r.failed:.1f}" for r in found]
        print("|", name, "|", " | ".join(cells), "|")


def wald(data: Drawn, change: Floats, error: Floats, freedom: int) -> Rates:
    """Of the interval of ``change`` (samples,) by its standard ``error``."""
    shows, decides = (t.ppf(p, freedom) * error for p in (0.975, 0.95))
    return ended(data, change - shows, change + shows, change - decides, change + decides)


def ended(data: Drawn, low95: Floats, high95: Floats, low90: Floats, high90: Floats) -> Rates:
    """Of the ends (samples,) of intervals."""
    covered = (low95 <= data.change) & (data.change <= high95)
    return Rates(covered.mean(), (low90 > -data.case.margin).mean(), (high90 < -data.case.margin).mean())


def bootstraps(data: Drawn, rng: np.random.Generator) -> dict[str, Rates]:
    """Of resampled sources: percentile, widened (Hesterberg 2015), BCa and bootstrap t (Efron and Tibshirani 1993)."""
    sizes, count = data.sizes, data.case.count
    ends: dict[str, list[list[float]]] = {}
    for sums in data.sums:
        change = sums.sum() / sizes.sum()
        parts = sums - sizes * change
        error = math.sqrt(count / (count - 1) * (parts**2).sum()) / sizes.sum()
        times = np.stack([np.bincount(row, minlength=count) for row in rng.integers(count, size=(BOOTSTRAPS, count))])
        totals, total = times @ sums, times @ sizes
        drawn_changes = np.sort(totals / total)
        squares = (
            times @ sums**2 - 2 * totals / total * (times @ (sums * sizes)) + (totals / total) ** 2 * (times @ sizes**2)
        )
        errors = np.sqrt(np.maximum(count / (count - 1) * squares, 0)) / total
        levels = (0.025, 0.975, 0.05, 0.95)
        ends.setdefault("bootstrap, percentile", []).append(list(np.quantile(drawn_changes, levels)))
        wide = [math.sqrt(count / (count - 1)) * t.ppf(p, count - 1) / norm.ppf(p) for p in (0.975, 0.975, 0.95, 0.95)]
        ends.setdefault("bootstrap, widened", []).append(
            [change + f * (end - change) for f, end in zip(wide, np.quantile(drawn_changes, levels), strict=True)]
        )
        ends.setdefault("bootstrap, BCa", []).append(_bca(drawn_changes, sums, sizes, levels))
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.nan_to_num((totals / total - change) / errors, nan=0.0, posinf=1e3, neginf=-1e3)
        ends.setdefault("bootstrap, t", []).append(
            [change - error * q for q in np.quantile(ratios, [1 - p for p in levels])]
        )
    return {name: ended(data, *np.array(found).T) for name, found in ends.items()}


def _bca(changes: Floats, sums: Floats, sizes: Floats, levels: tuple[float, ...]) -> list[float]:
    change = sums.sum() / sizes.sum()
    below = np.clip((changes < change).mean() + (changes == change).mean() / 2, 1e-3, 1 - 1e-3)
    bias = norm.ppf(below)
    left = (sums.sum() - sums) / (sizes.sum() - sizes)
    apart = left.mean() - left
    skew = (apart**3).sum() / max(6 * (apart**2).sum() ** 1.5, 1e-300)
    z = bias + norm.ppf(levels)
    return list(np.quantile(changes, norm.cdf(bias + z / (1 - skew * z))))


def flips(samples: int) -> None:
    """How often "no change" has p ≤ 5 % where nothing changes on average."""
    print("| sources | ICC | sign flips by source, p ≤ 5 % | samples as independent |")
    print("|---|---|---|---|")
    for count, correlation in itertools.product(SOURCES, (0.0, 0.3, 0.9)):
        data = drawn_case(Case(count, "1 to 50", correlation, 0.5, 0.02, 0.0), samples, np.random.default_rng(9))
        sums = data.sums.astype(np.int64)
        found = np.mean([flip_midp(one) <= 0.05 for one in sums])
        losses, gains = (one.sum(axis=1) for one in (data.losses, data.gains))
        alone = np.mean([mcnemar_midp(int(b), int(c)) <= 0.05 for b, c in zip(losses, gains, strict=True)])
        print(f"| {count} | {correlation:g} | {100 * found:.1f} % | {100 * alone:.1f} % |")


def ratio(samples: int) -> None:
    """Coverage of the 90 % bootstrap interval of an error rate: edits out of 6 units, more where a source is hard."""
    print("| sources | sizes | between sources | percentile | as judged |")
    print("|---|---|---|---|---|")
    for count, sizes, spread in itertools.product((5, 20, 50, 200), ("5", "1 to 50"), (0.0, 0.5, 1.0)):
        rng = np.random.default_rng(11)
        numbers = np.repeat(np.arange(count), SIZES[sizes](count))
        inside = {"percentile": 0, "as judged": 0}
        for _ in range(samples):
            harder = np.exp(spread * rng.standard_normal(count) - spread**2 / 2)[numbers]
            before, more = rng.poisson(0.3, len(numbers)), rng.poisson(0.06 * harder)
            rows = np.stack([before + more, np.full_like(more, 6), before, np.full_like(more, 6)], axis=1)
            found = resampling.change_interval(rows, numbers)
            assert found is not None
            change = float(more.sum()) / (6 * len(more))
            judged = resampling.with_unmet(widened(found, change, numbers), resampling.by_source(rows, numbers))
            for name, (low, high) in (("percentile", found), ("as judged", judged)):
                inside[name] += low <= 0.01 <= high
        shares = " | ".join(f"{100 * one / samples:.1f} %" for one in inside.values())
        print(f"| {count} | {sizes} | {spread:g} | {shares} |", flush=True)


def speed() -> None:
    """Processor seconds to score and judge a million samples of 10,000 sources."""
    rng = np.random.default_rng(1)
    n = 1_000_000
    now, before = (Answers((rng.random((n, 1)) < share).astype(np.int32)) for share in (0.78, 0.8))
    sources = [f"photo {i // 100}" for i in range(n)]
    labels = ((1,),) * n
    for name, given in (("without sources", None), ("10,000 sources", sources)):
        started = time.process_time()
        found = score(get_metric("top1"), now, labels=labels, reference=before, sources=given)
        counted = time.process_time()
        shown_by(found, 0.005)
        print(f"{name}: {counted - started:.2f} s to score, {time.process_time() - counted:.3f} s to judge")


def main() -> None:
    """Parse the arguments and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=2000, help="samples of each case")
    for name in ("methods", "flips", "ratio", "speed", "whole"):
        parser.add_argument(f"--{name}", action="store_true")
    arguments = parser.parse_args()
    asked = {"methods": methods, "flips": flips, "ratio": ratio}
    chosen = [run for name, run in asked.items() if getattr(arguments, name)]
    for run in chosen:
        run(arguments.samples)
    if not chosen and not arguments.speed:
        coverage(arguments.samples, whole=arguments.whole)
    if arguments.speed:
        speed()


if __name__ == "__main__":
    main()
