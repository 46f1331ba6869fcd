"""How alerts do on histories whose truth is known: detected, false, delay, right commit, ends.

    fifty random histories: steps, slides, outliers, changes of the engine, few points, commits that
    are measured several times, old commits that are measured again

Each is replayed run by run: after every run all alerts of the history so far are found anew, as by
``qbench history check``. A confirmed alert must be there after every later run, of the same
commits, and ends at most once. ``--year FOLDER`` replays a scripted year
(``examples/scripted-year``) the same way. Then the same histories arrive in another
order: one night in seven is merged up to six nights late, behind runs that began after it; what
such a night says of its time can show that an alert was none, which is counted. The histories of
``alert_histories.py`` follow: a newcomer's fifteen nights under twenty seeds of noise, and mixed
ones. The tables go to standard output.

Run: python benchmarks/alert_rates.py [--histories 50] [--mixed 100] [--seed 1] [--year FOLDER]
"""

import argparse
import dataclasses
import datetime
import functools
import random
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from alert_histories import Counts, altered_ends, count_alerts, fifteen_nights, mixed_history
from alert_histories import Made as Mixed

from qbench.judging import Cell
from qbench.tracking import (
    FORMAT,
    AcceptedLevel,
    AcceptedLevels,
    Alert,
    CellRecord,
    History,
    Kind,
    MetricRecord,
    Run,
    State,
    accepted_levels,
    baseline_path,
    find_alerts,
    load_baseline,
    trend_series,
)

CELL = Cell("nightly", "network", "engine", "w8a8_asym_pc")
CLASSES = ("board-a+engine-1.0", "board-b+engine-1.0", "board-a+engine-1.1")
START = datetime.datetime(2026, 1, 1, 3, tzinfo=datetime.UTC)
CONFIRMED = {state for state in State if state is not State.PROVISIONAL}
NEAR = 3
"""How many commits an alert may be away from the change that it is of."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Truth:
    """What was done at a commit: a step for the worse, a slide that began there; how far,
    in samples.
    """

    kind: str
    commit: int
    samples: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Made:
    """A history: its runs in the order in which they began, the main line, what is true of it."""

    runs: tuple[Run, ...]
    line: tuple[str, ...]
    truths: tuple[Truth, ...]
    accepted: AcceptedLevels
    out_of: int
    noise: float


def sha(number: int) -> str:
    """The commit of a number."""
    return f"{number:040x}"


def make_run(commit: int, began: int, results: dict[str, int], out_of: int) -> Run:
    """A run of one commit, the ``began``-th by time; class → hits."""
    started = START + datetime.timedelta(hours=began)
    metric = {"n": out_of, "out_of": out_of, "reference_hits": out_of, "losses": 0, "gains": 0}
    cells = tuple(
        CellRecord(
            suite=CELL.suite,
            model=CELL.model,
            backend=CELL.backend,
            schema=CELL.schema,
            outcome="passed",
            environment_class=name,
            metrics={
                "top1": MetricRecord(direction="higher", against="labels", hits=hits, **metric)
            },
            digests={"data:photos": "d"},
        )
        for name, hits in results.items()
    )
    header = {
        "format": FORMAT,
        "id": f"{started:%Y%m%dT%H%M%SZ}-{sha(commit)[-7:]}-{began:05}",
        "suite": CELL.suite,
        "started": started.isoformat(),
        "commit": {"sha": sha(commit)},
    }
    return Run(header=header, cells=cells, complete=True)


def make_history(seed: int) -> Made:
    """A random history, and what is true of it."""
    rng = random.Random(seed)
    commits = rng.choice([6, 12, 17, 30, 60, 90])
    out_of = rng.choice([200, 400, 1000, 5000])
    least = max(2, round(0.001 * out_of))
    noise = rng.choice(
        [0.0, 0.0, 0.0, 0.3, 0.6]
    )  # in least steps: engines that count in integers have none
    outliers = rng.choice([0.0, 0.0, 0.03, 0.08])
    base = round(out_of * rng.uniform(0.7, 0.99))
    levels, truths = [float(base)] * commits, []
    place = rng.randint(1, 6)
    while place < commits - 2:
        kind = rng.choice(["step", "step", "slide", "back", "none"])
        if kind == "step":
            samples = rng.choice([1, 2, 4]) * least + rng.randint(0, least)
            levels[place:] = [level - samples for level in levels[place:]]
            truths.append(Truth(kind="step", commit=place, samples=samples))
        elif kind == "slide" and place + 12 < commits:
            length = rng.randint(10, commits - place)
            slope = rng.uniform(0.2, 0.5) * least
            for at in range(place, commits):
                levels[at] -= int(slope * min(at - place + 1, length) / 3)
            samples = int(slope * length / 3)
            truths.append(Truth(kind="slide", commit=place, samples=samples))
            place += length
        elif kind == "back":
            levels[place:] = [float(base)] * (commits - place)
        place += rng.randint(4, 25)
    machines = rng.choice([CLASSES[:1], CLASSES[:2]])
    upgrade = rng.choice([None, rng.randint(2, commits)])
    runs: list[tuple[int, dict[str, int]]] = []  # in the order in which they begin
    for commit, level in enumerate(levels):
        for turn in range(rng.choice([1, 1, 1, 2, 3])):
            name = machines[(commit + turn) % len(machines)]
            if upgrade is not None and commit >= upgrade and name == CLASSES[0]:
                name = CLASSES[2]
            offset = {CLASSES[0]: 0, CLASSES[1]: -1, CLASSES[2]: -3 * least}[name]
            value = level + offset + rng.gauss(0, noise * least)
            if rng.random() < outliers:
                value -= rng.choice([-1, 1, 3]) * rng.randint(2, 6) * least
            runs.append((commit, {name: max(0, min(out_of, round(value)))}))
        if commit > 3 and rng.random() < 0.1:  # an old commit is measured again
            old = rng.randrange(commit)
            runs.append((old, {machines[0]: round(levels[old])}))
    made = [
        make_run(commit, began, results, out_of) for began, (commit, results) in enumerate(runs)
    ]
    known = {
        (CELL, "top1", name): AcceptedLevel(hits=base + offset, data=frozenset(["d"]))
        for name, offset in zip(CLASSES, (0, -1, -3 * least), strict=True)
        if rng.random() < 0.7
    }
    line = tuple(map(sha, range(commits)))
    return Made(
        runs=tuple(made),
        line=line,
        truths=tuple(truths),
        accepted=known,
        out_of=out_of,
        noise=noise,
    )


def alerts_of(
    runs: Sequence[Run], line: Sequence[str], accepted: AcceptedLevels
) -> tuple[Alert, ...]:
    """What ``qbench history check`` knows of ``runs``."""
    return find_alerts(trend_series(runs, commits=line), commits=line, accepted=accepted)


def same(old: Alert, new: Alert) -> bool:
    """Whether ``new`` is ``old`` as it is known later: of no other commits,
    maybe a step that was a slide.
    """
    key = ("cell", "metric", "environment_class")
    if any(getattr(old, name) != getattr(new, name) for name in key):
        return False
    if old.kind is new.kind is Kind.STEP:
        return set(new.stretch) <= set(old.stretch)
    return bool(set(new.stretch) & set(old.stretch)) or old.kind is Kind.SLIDE


def broken_promises(
    runs: Sequence[Run], line: Sequence[str], accepted: AcceptedLevels, arrivals: Sequence[int] = ()
) -> Counter[str]:
    """What a replay run by run must not show: an alert that is gone, one that is open again
    after its end.

    Args:
        arrivals: positions of ``runs`` in the order in which they became known; empty: as they
            began.
    """
    found: Counter[str] = Counter()
    before: tuple[Alert, ...] = ()
    order = list(arrivals) or list(range(len(runs)))
    for count in range(1, len(runs) + 1):
        known = [runs[position] for position in sorted(order[:count])]
        now = tuple(one for one in alerts_of(known, line, accepted) if one.state in CONFIRMED)
        for old in before:
            kept = [one for one in now if same(old, one)]
            if not kept:
                found["gone"] += 1
            elif old.state is not State.DETECTED and not any(
                one.state is old.state for one in kept
            ):
                found["open again"] += 1
        before = now
    return found


def first_seen(
    runs: Sequence[Run], line: Sequence[str], accepted: AcceptedLevels, alert: Alert
) -> int:
    """How many runs there were when ``alert`` was confirmed."""
    low, high = 1, len(runs)
    while low < high:  # it stays, so that halving finds it
        middle = (low + high) // 2
        now = alerts_of(runs[:middle], line, accepted)
        if any(one.state in CONFIRMED and same(one, alert) for one in now):
            high = middle
        else:
            low = middle + 1
    return low


@dataclasses.dataclass
class Rates:
    """Counts over histories."""

    steps: int = 0
    slides: int = 0
    found_steps: int = 0
    found_slides: int = 0
    named: int = 0
    alerts: int = 0
    wrong: int = 0
    harmless: int = 0
    series: int = 0
    delays: list[int] = dataclasses.field(default_factory=list)
    ends: Counter[str] = dataclasses.field(default_factory=Counter)
    broken: Counter[str] = dataclasses.field(default_factory=Counter)
    late: Counter[str] = dataclasses.field(default_factory=Counter)


def merged_late(count: int, seed: int) -> list[int]:
    """Positions of runs in the order in which they become known:
    one in seven is merged up to six runs late.
    """
    rng = random.Random(seed)
    late = [
        place + (rng.randint(1, 6) + 0.5 if rng.random() < 1 / 7 else 0) for place in range(count)
    ]
    return sorted(range(count), key=late.__getitem__)


def judge(made: Made, rates: Rates) -> None:
    """Compare the alerts of a history with what is true of it, class by class."""
    found = [
        one for one in alerts_of(made.runs, made.line, made.accepted) if one.state in CONFIRMED
    ]
    rates.alerts += len(found)
    rates.ends.update("open" if one.state is State.DETECTED else one.state.value for one in found)
    rates.broken += broken_promises(made.runs, made.line, made.accepted)
    rates.late += broken_promises(
        made.runs, made.line, made.accepted, merged_late(len(made.runs), made.out_of)
    )
    explained: set[int] = set()
    for series in trend_series(made.runs, commits=made.line):
        rates.series += 1
        name = series.environment_class
        measured = sorted(int(point.commit, 16) for point in series.points)
        own = [(place, one) for place, one in enumerate(found) if one.environment_class == name]
        for truth in made.truths:
            good = sum(commit < truth.commit for commit in measured)
            until = min(
                (t.commit for t in made.truths if t.commit > truth.commit), default=len(made.line)
            )
            bad = [commit for commit in measured if truth.commit <= commit < until]
            if good < 1 or len(bad) < 4 or truth.samples < max(2, round(0.001 * made.out_of)):
                continue  # too few points, or too little
            hits = [(p, one) for p, one in own if is_of(truth, one, until)]
            explained |= {place for place, _ in hits}
            if truth.kind == "step":
                rates.steps += 1
                rates.found_steps += bool(hits)
                first = next(
                    commit for commit in bad
                )  # the commit itself may not have been measured in this class
                named = [one for _, one in hits if one.kind is Kind.STEP]
                rates.named += any(
                    {sha(truth.commit), sha(first)} & {*one.stretch} for one in named
                )
                if hits:
                    seen = first_seen(made.runs, made.line, made.accepted, hits[0][1])
                    class_runs = [
                        r for r in made.runs[:seen] if r.cells[0].environment_class == name
                    ]
                    rates.delays.append(sum(int(r.commit, 16) >= truth.commit for r in class_runs))
            else:
                rates.slides += 1
                rates.found_slides += bool(hits)
    for place, one in enumerate(found):
        if place not in explained and not any(
            is_of(truth, one, len(made.line)) for truth in made.truths
        ):
            rates.wrong += one.state is not State.ACCEPTED
            rates.harmless += one.state is State.ACCEPTED


def is_of(truth: Truth, alert: Alert, until: int) -> bool:
    """Whether ``alert`` is of what was done."""
    stretch = [int(commit, 16) for commit in alert.stretch]
    if truth.kind == "slide" or alert.kind is Kind.SLIDE:
        return bool(stretch) and truth.commit - NEAR <= stretch[-1] < until + NEAR
    return bool(stretch) and stretch[0] - NEAR <= truth.commit <= stretch[-1] + NEAR


def table(rates: Rates) -> str:
    """The rates in Markdown."""
    rows = [
        ("steps of at least the least step, a good commit before and four bad ones: found",
         f"{rates.found_steps} of {rates.steps}"),
        ("the commit is among those that are named", f"{rates.named} of {rates.found_steps}"),
        ("runs of the class until it is confirmed, middle and most",
         f"{statistics.median(rates.delays):.0f}, {max(rates.delays)}" if rates.delays else "–"),
        ("slides: found", f"{rates.found_slides} of {rates.slides}"),
        ("confirmed alerts where nothing had happened",
         f"{rates.wrong} of {rates.alerts}, on {rates.series} series; "
         f"{rates.harmless} more were accepted at once"),
        ("how they ended",
         ", ".join(f"{count} {name}" for name, count in sorted(rates.ends.items())) or "–"),
        ("gone after a later run, or open again", f"{sum(rates.broken.values())}"),
        ("the same where one night in seven is merged late", f"{sum(rates.late.values())}"),
    ]  # fmt: skip
    return "\n".join(
        ["| what | measured |", "|---|---|", *(f"| {what} | {value} |" for what, value in rows)]
    )


def truth_table(name: str, histories: Iterable[Mixed]) -> str:
    """A row of Markdown: what the alerts of histories say of the changes in them,
    at the end and run by run.
    """
    counts = Counts()
    many = 0
    for made in histories:
        find = functools.partial(_alerts_of_records, made.line)
        count_alerts(made, find(made.runs), counts)
        counts.altered += len(altered_ends(made, find))
        many += 1
    head = (
        "histories",
        "changes",
        "to be found",
        "alert at the commit",
        "moved",
        "missed",
        "false",
        "ended, altered",
    )
    row = (
        f"{many} {name}",
        counts.changes,
        counts.clear,
        counts.true,
        counts.moved,
        counts.missed,
        counts.false,
        counts.altered,
    )
    lines = (head, ("---",) * len(head), row)
    more = (
        f"{counts.alerts} alerts, of which {counts.parts} are further parts of a slide, and "
        f"{counts.twice} of a step"
    )
    return "\n".join(["", *(f"| {' | '.join(map(str, line))} |" for line in lines), "", more])


def _alerts_of_records(line: Sequence[str], runs: Sequence[Run]) -> tuple[Alert, ...]:
    """The alerts of runs whose records hold what was accepted."""
    return find_alerts(trend_series(runs, commits=line), commits=line)


def replay_year(folder: Path) -> str:
    """A scripted year, run by run."""
    from qbench.host import first_parents

    history = History(folder / "reports/history", now=datetime.datetime.now(datetime.UTC))
    runs = tuple(history.each(history.heads))
    line = first_parents(str(folder))
    suite, models = runs[0].suite, {record.model for run in runs for record in run.cells}
    classes = {record.environment_class for run in runs for record in run.cells}
    stored = [
        load_baseline(baseline_path(folder / "baselines", suite, model)) for model in sorted(models)
    ]
    known = accepted_levels(suite, stored, classes=classes)
    found = [one for one in alerts_of(runs, line, known) if one.state in CONFIRMED]
    ends = Counter("open" if one.state is State.DETECTED else one.state.value for one in found)
    broken = sum(broken_promises(runs, line, known).values())
    words = ", ".join(f"{count} {name}" for name, count in sorted(ends.items()))
    return (
        f"the year: {len(found)} alerts over {len(runs)} runs ({words}); "
        f"gone or open again: {broken}"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--histories", type=int, default=50)
    parser.add_argument("--mixed", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--year", type=Path, metavar="FOLDER")
    arguments = parser.parse_args()
    rates = Rates()
    for number in range(arguments.histories):
        judge(make_history(arguments.seed * 1000 + number), rates)
    print(table(rates))
    print(
        truth_table(
            "fifteen nights", map(fifteen_nights, range(arguments.seed, arguments.seed + 20))
        )
    )
    print(
        truth_table(
            "mixed",
            (mixed_history(1000 * arguments.seed + place) for place in range(arguments.mixed)),
        )
    )
    if arguments.year is not None:
        print(replay_year(arguments.year))


if __name__ == "__main__":
    main()
