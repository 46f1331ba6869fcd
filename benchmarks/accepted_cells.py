"""Which accepted cells end otherwise by today's rule for a loss: `python
benchmarks/accepted_cells.py`.

Every accepted result of the suites' baselines is judged against its fp32 reference by the
tolerances of the suites, once by the former rule (a margin under one sample did not gate, and a
tolerance held for all metrics of its model) and once as today. Baselines hold hits and neither
losses nor gains: for a share of right samples all of these are tried that fit the hits and the
number of samples that differ from fp32; where samples share sources, each with samples that change
alone and with all samples of a source changing together. Other metrics are decided by their counts
as before.

`--run FILE …` lists the loss gates of run files instead whose samples share sources: what they
would show if each sample were its own source, and what they show.

Exit code 1 where a cell fails today that no quarantine entry lists.
"""

import argparse
import functools
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

from rich.console import Console
from rich.table import Table

from qbench.judging import Decision, EnvironmentClass, GateState, Tolerance
from qbench.judging.loss import loss_gate
from qbench.judging.statistics import shown_by
from qbench.metrics import Against, Clusters, Direction, Gathering, Score, source_interval
from qbench.suite import Catalogues, PlannedCell, expand, gather, load_suite
from qbench.tracking import Baseline, baseline_path, load_baseline, read_run

ROOT = Path(__file__).parents[1]
States = dict[tuple[Score, Fraction, Decision], GateState]
"""Score, margin and decision → the state of its gate, which depends on nothing else."""
WIDER = {("nightly", "ppocr_v6_rec"): Tolerance(0.35, "model ppocr_v6_rec")}
"""Tolerances that held for every metric of a model and hold for one today."""
BEST = ("top1", "exact")
"""Metrics of the best answer, which is right or wrong as before where it agrees with fp32."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One accepted share or rate: what it was by the former rule,
    and all that it may be by today's.
    """

    cell: str
    environment: str
    score: Score
    before: GateState
    now: frozenset[GateState]
    listed: bool

    @property
    def is_red(self) -> bool:
        """Whether it fails today, for some losses and gains that fit, and nothing excuses it."""
        return GateState.BROKEN in self.now and not self.listed


def possible_scores(
    planned: PlannedCell, baseline: Baseline, metric: str, hits: int, least_same: int
) -> Iterator[Score]:
    """The scores of ``metric`` with ``hits`` whose losses and gains fit the samples that answer
    otherwise than fp32.
    """
    reference = baseline.metrics[metric]
    data = baseline.data[metric.partition("@")[2] or planned.model.data]
    samples = data.samples
    lost = reference - hits
    for gains in range(max(-lost, 0), max(-lost, 0) + (samples - least_same - abs(lost)) // 2 + 1):
        alone = Score(
            metric=metric,
            direction=Direction.HIGHER,
            against=Against.LABELS,
            unit="%",
            proportion=True,
            least_margin=0.0,
            n=samples,
            hits=hits,
            out_of=samples,
            reference_hits=reference,
            losses=gains + lost,
            gains=gains,
        )
        yield alone
        if data.sources is not None:
            yield replace(alone, clusters=together(alone, data.sources))


@functools.cache
def together(score: Score, sources: int) -> Clusters:
    """What the samples of ``score`` show where all of a source change together."""
    found = Gathering.whole(score.n, sources)
    low, high = source_interval(score.losses, score.gains, score.n, found, confidence=0.9)
    return Clusters(
        sources=sources,
        effect=found.effect,
        interval=(low, high),
        shown=(low, high),
        p=1.0,
        error=0.0,
        seen=found.effect,
        freedom=found.freedom,
        equal=found.equal,
    )


def todays_state(
    score: Score, tolerance: Tolerance, decision: Decision, known: States
) -> GateState:
    """The state by today's rule; from ``known``, and put there, since cells of one model have
    equal scores.
    """
    key = score, tolerance.margin(score), decision
    if key not in known:
        known[key] = loss_gate(score, tolerance, decision).state
    return known[key]


def former_state(score: Score, tolerance: Tolerance) -> GateState:
    """The state before: by the counts alone."""
    margin = tolerance.margin(score)
    if 0 < margin < 1:
        return GateState.SHOWN
    return GateState.HOLDS if score.drop <= margin else GateState.BROKEN


def judged_cells(suite_path: Path, catalogues: Catalogues) -> Iterator[Judged]:
    """Every accepted share of right samples of the suite, in every class."""
    suite = load_suite(suite_path)
    loaded: dict[str, Baseline] = {}
    known: States = {}
    for planned in expand(suite, catalogues):
        name = planned.model.id
        path = baseline_path(ROOT / "baselines", suite.name, name)
        if name not in loaded and path.exists():
            loaded[name] = load_baseline(path)
        baseline = loaded.get(name)
        cell = None if baseline is None else baseline.cells.get(planned.cell.slug)
        if baseline is None or cell is None:
            continue
        decision = planned.rules.decision
        for where, accepted in cell.current.items():
            environment = EnvironmentClass.parse(where)
            tolerance = planned.tolerance(environment)
            for metric in (
                set(planned.model.metrics) & set(baseline.metrics) & set(accepted.metrics)
            ):
                if not catalogues.metrics.get(metric.partition("@")[0]).proportion:
                    continue
                same = accepted.metrics.get("agreement", 0) if metric in BEST else 0
                scores = list(
                    possible_scores(planned, baseline, metric, accepted.metrics[metric], same)
                )
                before = former_state(scores[0], WIDER.get((suite.name, name), tolerance))
                now = frozenset(todays_state(score, tolerance, decision, known) for score in scores)
                listed = planned.quarantine_entry(environment) is not None
                yield Judged(str(planned.cell), where, scores[0], before, now, listed)


def clustered_gates(path: Path) -> Iterator[tuple[str, ...]]:
    """Of the loss gates of the run at ``path`` whose samples share sources: a row for equal
    ones of one model.
    """
    rows = Counter(_clustered_rows(path))
    for (model, *numbers), times in rows.items():
        yield (model, str(times), *numbers)


def _clustered_rows(path: Path) -> Iterator[tuple[str, ...]]:
    for record in read_run(path).cells:
        for gate in record.gates:
            metric = record.metrics.get(gate.metric)
            if (
                gate.kind != "loss"
                or metric is None
                or metric.clusters is None
                or gate.limit is None
            ):
                continue
            score = metric.score(gate.metric)
            margin = abs(score.reference_value - float(gate.limit or 0.0))
            before, now = (shown_by(one, margin) for one in (replace(score, clusters=None), score))
            if (
                before is None or now is None or not score.proportion
            ):  # resamples of single samples are not in the run
                continue
            yield (
                record.model,
                gate.metric,
                f"{score.n} of {metric.clusters.sources}",
                f"{score.losses} / {score.gains}",
                f"{100 * margin:.2f}",
                *(f"{100 * one.low:+.2f} to {100 * one.high:+.2f}" for one in (before, now)),
                f"{metric.clusters.effect:.1f}",
                before.evidence.value,
                now.evidence.value,
            )


def print_clustered(paths: list[str]) -> int:
    """The rows of ``clustered_gates``; 0."""
    head = (
        "model",
        "cells",
        "metric",
        "samples of sources",
        "losses / gains",
        "margin, pp",
        "95 % before, pp",
        "95 % now, pp",
    )
    table = Table(*head, "effect", "shown before", "now")
    for path in paths:
        for row in clustered_gates(Path(path)):
            table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 200).print(table)
    return 0


def main() -> int:
    """Print what changed; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("suites", nargs="*", default=["smoke", "nightly"])
    parser.add_argument(
        "--run", nargs="+", default=[], metavar="FILE", help="run files to judge instead"
    )
    arguments = parser.parse_args()
    if arguments.run:
        return print_clustered(arguments.run)
    changed = Table("cell", "class", "metric", "fp32", "accepted", "before", "today", "listed")
    count, red = 0, 0
    for name in arguments.suites:
        folder = ROOT / "suites"
        for one in judged_cells(folder / f"{name}.qbench.toml", gather(suites=folder)):
            count, red = count + 1, red + one.is_red
            if one.now != {one.before}:
                states = " or ".join(sorted(state.value for state in one.now))
                hits = (str(one.score.reference_hits), f"{one.score.hits}/{one.score.n}")
                row = (one.cell, one.environment, one.score.metric, *hits, one.before.value, states)
                changed.add_row(*row, "yes" if one.listed else "no")
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(changed)
    console.print(
        f"{count} accepted shares, {changed.row_count} changed, {red} red without an entry"
    )
    return 1 if red else 0


if __name__ == "__main__":
    sys.exit(main())
