"""How often a cell that ends early is wrong, and how many samples it saves.

    python benchmarks/sequential.py [--trials 4000] [--table counts]

Each trial draws paired changes of a cell whose true change is known, looks every 64 samples (or at
whole sources), and ends as ``stop = "decided"`` with ``decision = "ci"`` does: by the always-valid
test, else by the test of all samples.
"""

import argparse
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from qbench.judging import CountTest, EarlyTest, Evidence, margin_evidence
from qbench.judging.sequential import _BETS, EARLY
from qbench.judging.statistics import ALPHA, beyond_sources_p
from qbench.metrics.clusters import gathering, source_p

LOOK = 64
SEED = 20261123
Array = npt.NDArray[np.float64]
Source = tuple[int, float]
"""How many samples share a source, and how far their changes are correlated."""


def draws(
    rng: np.random.Generator, shape: tuple[int, int], losses: float, gains: float, source: Source
) -> Array:
    """``shape`` (trials, n) changes; the samples of a ``source`` are correlated:
    some of them copy the first.
    """
    (size, rho), (trials, n) = source, shape
    u = rng.random((trials, n))
    changes = np.where(u < losses, -1.0, np.where(u < losses + gains, 1.0, 0.0))
    if size > 1 and rho:
        first = np.repeat(changes[:, ::size], size, axis=1)[:, :n]
        copied = rng.random((trials, n)) < np.sqrt(rho)
        changes = np.where(copied, first, changes)
    return changes


def wealths(changes: Array, margin: float, size: int) -> tuple[Array, Array]:
    """(trials, looks) logarithms of both e-processes at every look, by the formula of
    ``qbench.judging.sequential``.
    """
    trials, n = changes.shape
    sums = changes.reshape(trials, n // size, size).sum(axis=2) + margin * size
    step = max(1, LOOK // size)
    found = []
    for sign in (1.0, -1.0):
        logs = []
        for share in _BETS:
            bet = share / ((1 - sign * margin) * size)
            logs.append(np.log1p(sign * bet * sums).cumsum(axis=1)[:, step - 1 :: step])
        stacked = np.stack(logs)
        most = stacked.max(axis=0)
        found.append(most + np.log(np.exp(stacked - most).mean(axis=0)))
    return found[0], found[1]


def check(rng: np.random.Generator) -> None:
    """The formula above is that of the class that ends cells."""
    for size in (1, 8):
        changes = draws(rng, (20, 512), 0.05, 0.02, (size, 0.3))
        up, down = wealths(changes, 0.03, size)
        for row, one in enumerate(changes):
            test = EarlyTest(0.03, size)
            test.add((int(part.sum()), size) for part in one.reshape(-1, size))
            bound = -np.log(EARLY)
            early = (
                Evidence.PASS
                if up[row, -1] >= bound
                else Evidence.FAIL
                if down[row, -1] >= bound
                else None
            )
            assert test.evidence is (early or Evidence.INCONCLUSIVE)


def ends(changes: Array, margin: float, size: int) -> tuple[Array, Array, Array]:
    """Of each trial: the early verdict (1 PASS, −1 FAIL, 0 none), the final one, and how many
    samples were run.
    """
    up, down = wealths(changes, margin, size)
    bound = -np.log(EARLY)
    n = changes.shape[1]
    crossed = np.where(up >= bound, 1, np.where(down >= bound, -1, 0))
    early, final, samples = (np.zeros(len(changes)) for _ in range(3))
    for row, one in enumerate(crossed):
        at = np.flatnonzero(one)
        if len(at):
            early[row] = final[row] = one[at[0]]
            samples[row] = min(n, (at[0] + 1) * max(LOOK, size))
            continue
        samples[row] = n
        final[row] = _at_end(changes[row], margin, size)
    return early, final, samples


def _at_end(changes: Array, margin: float, size: int) -> int:
    lost, won = int((changes < 0).sum()), int((changes > 0).sum())
    if size == 1:
        evidence = margin_evidence(lost, won, len(changes), margin)
        return {Evidence.PASS: 1, Evidence.FAIL: -1}.get(evidence, 0)
    by_source = changes.reshape(-1, size)
    sizes = np.full(len(by_source), float(size))
    found = gathering(sizes, by_source.sum(axis=1), np.abs(by_source).sum(axis=1))
    if lost - won < margin * len(changes):
        return int(source_p(lost, won, len(changes), -margin, found) < ALPHA)
    return -int(beyond_sources_p(lost, won, len(changes), margin, found) < ALPHA)


def percent(share: float) -> str:
    """``4.9 %``."""
    return f"{100 * share:.1f} %"


def errors(trials: int, rng: np.random.Generator) -> Iterator[str]:
    """One row for each number of samples, margin and kind of sources, the worst of four shares
    of changed samples.
    """
    yield (
        "| n | margin | samples of a source, correlation | wrong PASS early / in all "
        "| wrong FAIL early / in all |"
    )
    yield "|---|---|---|---|---|"
    cases = [(n, margin, 1, 0.0) for n in (500, 2000) for margin in (0.005, 0.01, 0.02)]
    cases += [(2000, 0.02, 10, 0.3), (2000, 0.02, 20, 0.7)]
    for n, margin, size, rho in cases:
        worst = np.zeros(4)
        for share in (margin, 1.5 * margin, 3 * margin, 10 * margin):
            losses = (share + margin) / 2
            early, final, _ = ends(
                draws(rng, (trials, n), losses, share - losses, (size, rho)), margin, size
            )
            found = [(early > 0).mean(), (final > 0).mean(), (early < 0).mean(), (final < 0).mean()]
            worst = np.maximum(worst, found)
        source = "1" if size == 1 else f"{size}, {rho}"
        words = list(map(percent, worst))
        yield (
            f"| {n} | {100 * margin:g} pp | {source} | {words[0]} / {words[1]} "
            f"| {words[2]} / {words[3]} |"
        )


def savings(trials: int, rng: np.random.Generator) -> Iterator[str]:
    """What cells of several true losses end with, and how many of their samples they run."""
    yield (
        "| n | margin | true drop | changed | PASS / FAIL / neither | samples run, mean "
        "| whole test alone |"
    )
    yield "|---|---|---|---|---|---|---|"
    for n, margin in ((1000, 0.02), (5000, 0.01)):
        for drop in (0.0, 0.5 * margin, margin, 2 * margin, 5 * margin):
            share = max(drop, 0.01) + 0.01
            losses = (share + drop) / 2
            changes = draws(rng, (trials, n), losses, share - losses, (1, 0.0))
            _, final, samples = ends(changes, margin, 1)
            alone = np.array([_at_end(one, margin, 1) for one in changes])
            shares, without = (
                " / ".join(percent((one == state).mean()) for state in (1, -1, 0))
                for one in (final, alone)
            )
            drop_text, share_text = f"{100 * drop:g} pp", f"{100 * share:g} %"
            mean = f"{samples.mean():.0f} of {n}"
            yield (
                f"| {n} | {100 * margin:g} pp | {drop_text} | {share_text} | {shares} | {mean} "
                f"| {without} |"
            )


def counted_ends(changes: Array, least: int, most: int) -> tuple[Array, Array]:
    """Of each trial, (trials, n) changes in the order drawn: the early verdict by counts,
    and the samples run.
    """
    trials, n = changes.shape
    up, down = np.zeros((len(_BETS), trials)), np.zeros((len(_BETS), trials))
    bets = np.array(_BETS)[:, None]
    seen, early, samples = np.zeros(trials), np.zeros(trials), np.full(trials, float(n))
    for place in range(n):
        under, over = (least - 1 - seen) / (n - place), (least - seen) / (n - place)
        change = changes[:, place]
        with np.errstate(divide="ignore", invalid="ignore"):
            up += np.where(under > -1, np.log1p(bets * (change - under) / (under + 1)), 0.0)
            down += np.where(over < most, np.log1p(-bets * (change - over) / (most - over)), 0.0)
        seen += change
        if (place + 1) % LOOK == 0:
            wealth = [
                peak + np.log(np.exp(one - peak).mean(axis=0))
                for one in (up, down)
                for peak in [one.max(axis=0)]
            ]
            found = np.where(
                wealth[0] >= -np.log(EARLY), 1, np.where(wealth[1] >= -np.log(EARLY), -1, 0)
            )
            fresh = (early == 0) & (found != 0)
            early[fresh], samples[fresh] = found[fresh], place + 1
    return early, samples


def check_counts(rng: np.random.Generator) -> None:
    """The formula above is that of the class that ends cells."""
    changes = rng.choice([-1.0, 0.0, 1.0], p=[0.06, 0.9, 0.04], size=(20, 512))
    early, samples = counted_ends(changes, -10, 1)
    for row, one in enumerate(changes.astype(int).tolist()):
        test, found = CountTest(-10, 512), Evidence.INCONCLUSIVE
        for start in range(0, 512, LOOK):
            test.add((change, 1) for change in one[start : start + LOOK])
            found = test.evidence
            if found is not Evidence.INCONCLUSIVE:
                assert start + LOOK == samples[row]
                break
        assert {1: Evidence.PASS, -1: Evidence.FAIL, 0: Evidence.INCONCLUSIVE}[
            int(early[row])
        ] is found


def counts(trials: int, rng: np.random.Generator) -> Iterator[str]:
    """Cells whose counts decide: how often the early verdict is not that of all samples,
    and the samples run.
    """
    yield (
        "| decided by | n | least allowed | of all samples | early verdict is wrong "
        "| samples run, mean |"
    )
    yield "|---|---|---|---|---|---|"
    cases = [
        (1000, -20, 1, lost, won)
        for lost, won in ((0, 0), (10, 5), (20, 0), (21, 0), (60, 40), (61, 40), (50, 0), (120, 5))
    ]
    cases += [(1000, -30, 0, lost, 0) for lost in (5, 10, 20, 30, 31, 60, 150)]
    cases += [(5000, -50, 1, 10, 10), (5000, -150, 0, 50, 0)]
    for n, least, most, lost, won in cases:
        changes = np.concatenate([np.full(lost, -1.0), np.full(won, 1.0), np.zeros(n - lost - won)])
        early, samples = counted_ends(
            rng.permuted(np.tile(changes, (trials, 1)), axis=1), least, most
        )
        right = 1 if won - lost >= least else -1
        wrong, mean = percent((early == -right).mean()), f"{samples.mean():.0f} of {n}"
        kind, words = (
            ("loss, point", f"{lost} losses, {won} gains")
            if most
            else ("agreement floor", f"{lost} differ")
        )
        yield (
            f"| {kind} | {n} | {least} | {words}: "
            f"{'PASS' if right > 0 else 'FAIL'} | {wrong} | {mean} |"
        )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--table", action="append", choices=("counts", "errors", "savings"), help="only this one"
    )
    parser.add_argument("--trials", type=int, default=4000, help="trials of each row")
    arguments = parser.parse_args()
    rng = np.random.Generator(np.random.PCG64(SEED))
    check(rng)
    check_counts(rng)
    tables = {"counts": counts, "errors": errors, "savings": savings}
    for name in arguments.table or tables:
        table = tables[name](arguments.trials, rng)
        for line in table:
            print(line, flush=True)
        print()


if __name__ == "__main__":
    main()
