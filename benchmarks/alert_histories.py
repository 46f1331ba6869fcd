"""Histories whose truth is known, with all that can happen to one: for ``alert_rates.py`` and
the tests.

    fifteen nights   as a newcomer lived them: two models on a backend that repeats its answers and
                     on one that does not; calibration cut, reverted; retrained, accepted; a schema
                     edited for three nights; an engine upgraded, its results accepted; validation
                     data cut
    mixed histories  random: steps and slides in shares and in decibels, engines with noise
                     (measured by repeats, or known alone), upgrades, changes that are accepted,
                     nights of a part, runs of uncommitted files

A record is made as a run makes it: what was accepted when it was judged, and its repeats.
``Made.truths`` are the changes for the worse of one metric of one cell.
"""

import dataclasses
import datetime
import random
from collections.abc import Callable, Iterator, Sequence

from msgspec import structs

from qbench.judging import Cell, MetricNoise, Noise, Repeats
from qbench.metrics import Against, Direction, Score
from qbench.tracking import FORMAT, Alert, CellRecord, Kind, MetricRecord, Run, State

START = datetime.datetime(2026, 1, 1, 3, tzinfo=datetime.UTC)
REPEATS = 3
CONFIRM = 3


def sha(number: int) -> str:
    """The commit of a number."""
    return f"{number:040x}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Truth:
    """A change for the worse of ``metric`` of ``cell`` in one class at a commit, by ``size`` (a
    fraction, or dB).

    ``kind``: a step, or a slide that begins there. ``is_clear``: whether it has to be found: it
    exceeds the least step and the noise, and enough nights are before it and behind it. ``until``:
    the commit at which the level ends.
    """

    cell: Cell
    metric: str
    environment_class: str
    commit: int
    until: int
    size: float
    kind: str = "step"
    is_clear: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class Made:
    """A history: its runs in the order in which they began, the main line, what is true of it."""

    runs: tuple[Run, ...]
    line: tuple[str, ...]
    truths: tuple[Truth, ...]


# One value of one metric, as a run records it.


def share(
    level: float, n: int, rng: random.Random, *, flippers: int = 0, accepted: int | None = None
) -> MetricRecord:
    """A count of right answers of ``n``;
    so many samples are right or wrong by chance in every run.
    """
    sure = round(level * n) - flippers // 2
    answers = [
        [rng.random() < 0.5 for _ in range(flippers)] for _ in range(REPEATS if flippers else 1)
    ]
    hits = tuple(max(0, min(n, sure + sum(one))) for one in answers)
    noise = mean = None
    if flippers:
        counts = [sum(each) for each in zip(*answers, strict=True)]
        pairs = sum(REPEATS * count - count * count for count in counts)
        noise = noise_of(hits, n, pairs)
        mean = sum(hits) / len(hits) / n
    facts = {"n": n, "out_of": n, "reference_hits": n, "losses": 0, "gains": 0}
    return MetricRecord(
        direction="higher",
        against="labels",
        hits=hits[0],
        accepted=accepted,
        noise=noise,
        mean=mean,
        **facts,
    )


def noise_of(hits: tuple[int, ...], n: int, pairs: int) -> tuple[float, float] | None:
    """The noise that a run writes into its record."""
    counts = MetricNoise(hits=hits, out_of=(n,) * len(hits), pairs=pairs, flips=pairs)
    score = Score(
        metric="top1", direction=Direction.HIGHER, against=Against.LABELS, unit="%",
        proportion=True, least_margin=0.0, n=n, hits=hits[0], out_of=n, reference_hits=n,
        losses=0, gains=0,
    )  # fmt: skip
    assert Repeats(runs=len(hits), differing={"d": pairs}).runs == REPEATS
    return Noise(counts=counts, averaged=True).spreads(score)


def decibels(
    level: float, rng: random.Random, *, noise: float = 0.0, accepted: int | None = None
) -> MetricRecord:
    """A distance of the outputs from those of fp32, which is not repeated."""
    hits = round(1000 * (level + rng.gauss(0, noise) if noise else level))
    facts = {"n": 1, "out_of": 1000, "reference_hits": 0, "losses": 0, "gains": 0}
    return MetricRecord(
        direction="higher", against="reference", unit="dB", proportion=False, hits=hits,
        accepted=accepted, noise=(0.0, 0.0) if noise else None, **facts,
    )  # fmt: skip


def record(cell: Cell, where: str, metrics: dict[str, MetricRecord], data: str) -> CellRecord:
    """The line of one cell."""
    return CellRecord(
        suite=cell.suite,
        model=cell.model,
        backend=cell.backend,
        schema=cell.schema,
        outcome="passed",
        environment_class=where,
        metrics=metrics,
        digests={"data:photos": data},
    )


def run_of(
    cells: Sequence[CellRecord], *, commit: int, began: int, planned: int = 0, dirty: bool = False
) -> Run:
    """A run of a commit, the ``began``-th by time."""
    started = START + datetime.timedelta(days=began)
    header = {
        "format": FORMAT,
        "id": f"{started:%Y%m%dT%H%M%SZ}-{sha(commit)[-7:]}-{began:05}",
        "suite": "nightly",
        "started": started.isoformat(),
        "commit": {"sha": sha(commit), "dirty": dirty},
        "planned": planned or len(cells),
        "selected": len(cells),
    }
    return Run(header=header, cells=tuple(cells), complete=True)


# A cell on its way: its true levels, what is accepted for it, and its noise.


@dataclasses.dataclass
class SimulatedSeries:
    """One cell in one class. ``shares``, ``decibels``: metric → true level now. ``accepted``:
    metric → hits.

    ``flippers``: samples that are right or wrong by chance. ``noise_db``: standard deviation of
        values in dB.
    """

    cell: Cell
    where: str
    n: int
    shares: dict[str, float]
    decibels: dict[str, float]
    flippers: int = 0
    noise_db: float = 0.0
    data: str = "d"
    accepted: dict[str, int] = dataclasses.field(default_factory=dict)

    def measured(self, rng: random.Random) -> CellRecord:
        """A record of tonight."""
        metrics = {
            name: share(
                level, self.n, rng, flippers=self.flippers, accepted=self.accepted.get(name)
            )
            for name, level in self.shares.items()
        }
        metrics |= {
            name: decibels(level, rng, noise=self.noise_db, accepted=self.accepted.get(name))
            for name, level in self.decibels.items()
        }
        return record(self.cell, self.where, metrics, self.data)

    def accept(self, one: CellRecord) -> CellRecord:
        """Accept what was measured; its record as that of a run that accepts it."""
        self.accepted = {name: metric.hits for name, metric in one.metrics.items()}
        metrics = {
            name: structs.replace(metric, accepted=metric.hits)
            for name, metric in one.metrics.items()
        }
        return structs.replace(one, metrics=metrics, outcome="accepted")

    def noise_of(self, metric: str) -> float:
        """The standard deviation of the value of ``metric`` in a night, by noise."""
        if metric in self.decibels:
            return self.noise_db
        return (self.flippers / 4 / REPEATS) ** 0.5 / self.n

    def least_of(self, metric: str) -> float:
        """The least step that a user is told of."""
        return 0.1 if metric in self.decibels else max(2 / self.n, 0.001)


# The fifteen nights, an event a function: what happens to the cells before a night is measured.


def _cut_calibration(courses: Sequence[SimulatedSeries]) -> None:
    """Four samples instead of 32: the distance shows it, and the ranges."""
    for one in courses:
        one.decibels = {name: level - 3 for name, level in one.decibels.items()}


def _revert_calibration(courses: Sequence[SimulatedSeries]) -> None:
    for one in courses:
        one.decibels = {name: level + 3 for name, level in one.decibels.items()}


def _retrain(courses: Sequence[SimulatedSeries]) -> None:
    for one in courses:
        one.shares = {name: level - 5 / 96 for name, level in one.shares.items()}


def _clip(courses: Sequence[SimulatedSeries]) -> None:
    """A schema edited so that the first layer clips; top-1 stands still."""
    courses[0].decibels = {"sqnr": 14.0}


def _fix_schema(courses: Sequence[SimulatedSeries]) -> None:
    courses[0].decibels = {"sqnr": 42.7}


def _upgrade(courses: Sequence[SimulatedSeries]) -> None:
    courses[3].where, courses[3].accepted = "x64+onnxruntime-1.32.0", {}


def _add_noise(courses: Sequence[SimulatedSeries]) -> None:
    courses[1].flippers = courses[2].flippers = 14


def _cut_data(courses: Sequence[SimulatedSeries]) -> None:
    """Of 32 sources 8: other samples."""
    for one in courses:
        one.data, one.accepted = "d8", {}


_EVENTS = {
    4: _cut_calibration,
    6: _revert_calibration,
    7: _retrain,
    9: _clip,
    12: _fix_schema,
    13: _upgrade,
    14: _add_noise,
    15: _cut_data,
}
_ACCEPTING = (1, 8, 14)


def fifteen_nights(seed: int = 1) -> Made:
    """The nights of the newcomer: four cells of a CNN of 96 samples,
    accepted on the first night.
    """
    rng = random.Random(seed)
    ort, npu, n = "x64+onnxruntime-1.24.1", "x64+flaky-npu-1", 96
    courses = [
        SimulatedSeries(
            _cell("ort-cpu", "w8a8_asym_pc"),
            ort,
            n,
            {"top1": 93 / n, "agreement": 94 / n},
            {"sqnr": 42.7},
        ),
        SimulatedSeries(_cell("flaky-npu", "fp32"), npu, n, {"top1": 93 / n}, {}, 8),
        SimulatedSeries(
            _cell("flaky-npu"),
            npu,
            n,
            {"top1": 92 / n, "agreement": 91 / n},
            {"sqnr": 30.0},
            8,
            0.4,
        ),
        SimulatedSeries(
            _cell("ort-device", "w8a8_asym_pc"), ort, n, {"top1": 92 / n}, {"sqnr": 41.0}
        ),
    ]
    truths = [
        Truth(
            cell=one.cell,
            metric=name,
            environment_class=one.where,
            commit=7,
            until=17,
            size=5 / n,
            is_clear=not one.flippers,
        )
        for one in courses
        for name in one.shares
    ]
    truths.append(
        Truth(
            cell=courses[0].cell,
            metric="sqnr",
            environment_class=ort,
            commit=9,
            until=12,
            size=28.7,
        )
    )
    runs = []
    for night in range(1, 17):
        _EVENTS.get(night, lambda _: None)(courses)
        cells = [one.measured(rng) for one in courses]
        if night in _ACCEPTING:
            cells = [one.accept(line) for one, line in zip(courses, cells, strict=True)]
        runs.append(run_of(cells, commit=night, began=night))
    return Made(runs=tuple(runs), line=tuple(map(sha, range(17))), truths=tuple(truths))


def _cell(backend: str, schema: str = "w8a8_asym_pc") -> Cell:
    return Cell("nightly", "cnn", backend, schema)


# Random histories.


@dataclasses.dataclass
class _Story:
    """Random cells as they go from night to night.

    Args:
        fresh: cell → the night at which its levels last changed.
        pending: cell → the night at which it is accepted.
        sliding: (cell, metric) → how much is lost every night, and until when.
    """

    rng: random.Random
    courses: list[SimulatedSeries]
    truths: list[Truth] = dataclasses.field(default_factory=list)
    fresh: dict[Cell, int] = dataclasses.field(default_factory=dict)
    pending: dict[Cell, int] = dataclasses.field(default_factory=dict)
    sliding: dict[tuple[Cell, str], tuple[float, int]] = dataclasses.field(default_factory=dict)

    def happen(self, night: int, course: SimulatedSeries) -> None:
        """What happens to one cell before a night: mostly nothing."""
        for (cell, metric), (slope, end) in list(self.sliding.items()):
            if cell == course.cell:
                _levels(course, metric)[metric] -= slope
                if night >= end:
                    del self.sliding[cell, metric]
        is_sliding = any(cell == course.cell for cell, _ in self.sliding)
        if night < 4 or night - self.fresh.get(course.cell, 0) < 7 or is_sliding:
            return
        chance = self.rng.random()
        events = ((0.05, self.step), (0.065, self.slide), (0.08, self.upgrade), (0.1, self.improve))
        event = next((event for limit, event in events if chance < limit), None)
        if event is None:
            return
        known = len(self.truths)
        event(night, course)
        self.truths[:known] = [self._ended(one, night, course) for one in self.truths[:known]]
        self.fresh[course.cell] = night

    def step(self, night: int, course: SimulatedSeries) -> None:
        """One metric falls, or all; sometimes intended, and accepted soon."""
        names = [*course.shares, *course.decibels]
        for metric in names if self.rng.random() < 0.5 else [self.rng.choice(names)]:
            size = self._size(course, metric)
            _levels(course, metric)[metric] -= size
            self.truths.append(_truth(course, metric, night, size, "step"))
        if self.rng.random() < 0.4:
            self.pending[course.cell] = night + self.rng.randint(1, 4)

    def slide(self, night: int, course: SimulatedSeries) -> None:
        """One metric falls a little every night."""
        metric, length = (
            self.rng.choice([*course.shares, *course.decibels]),
            self.rng.randint(8, 14),
        )
        size = 3 * self._size(course, metric)
        self.sliding[course.cell, metric] = (size / length, night + length)
        self.truths.append(_truth(course, metric, night, size, "slide"))

    def upgrade(self, _night: int, course: SimulatedSeries) -> None:
        """Another version of the engine: another class, other levels, nothing accepted."""
        name, _, version = course.where.rpartition("-")
        course.where = f"{name}-{float(version) + 0.1:.1f}"
        course.shares = {
            key: level - self.rng.uniform(-0.03, 0.03) for key, level in course.shares.items()
        }
        course.accepted = {}

    def improve(self, _night: int, course: SimulatedSeries) -> None:
        """Something was repaired."""
        course.shares = {key: min(0.99, level + 0.03) for key, level in course.shares.items()}

    def measured(self, night: int, course: SimulatedSeries) -> CellRecord:
        """The record of a cell, accepted where nothing was, or where that is due."""
        line = course.measured(self.rng)
        return (
            course.accept(line)
            if not course.accepted or self.pending.get(course.cell) == night
            else line
        )

    def _size(self, course: SimulatedSeries, metric: str) -> float:
        return self.rng.choice([1.2, 2, 4, 8]) * max(
            course.least_of(metric), 4 * course.noise_of(metric)
        )

    @staticmethod
    def _ended(one: Truth, night: int, course: SimulatedSeries) -> Truth:
        is_own = one.cell == course.cell and one.commit < night < one.until
        return dataclasses.replace(one, until=night) if is_own else one


def mixed_history(seed: int) -> Made:
    """A random history of a few cells, and what is true of it."""
    rng = random.Random(seed)
    nights, n = rng.choice([15, 20, 30, 60, 90]), rng.choice([96, 200, 400, 1000])
    courses = []
    for number in range(rng.choice([1, 2, 3])):
        is_noisy = rng.random() < 0.4
        courses.append(
            SimulatedSeries(
                _cell(f"engine{number}"),
                f"board+engine{number}-1.0",
                n,
                {"top1": rng.uniform(0.7, 0.97), "agreement": rng.uniform(0.85, 0.97)},
                {"sqnr": rng.uniform(15, 45)},
                flippers=rng.choice([4, 8, 16]) if is_noisy else 0,
                noise_db=rng.choice([0.1, 0.4]) if is_noisy else 0.0,
            )
        )
    story, runs = _Story(rng, courses), []
    for night in range(nights):
        for course in courses:
            story.happen(night, course)
        is_partial = len(courses) > 1 and rng.random() < 0.1
        cells = [
            story.measured(night, one)
            for one in (rng.sample(courses, 1) if is_partial else courses)
        ]
        runs.append(
            run_of(
                cells, commit=night, began=night, planned=len(courses), dirty=rng.random() < 0.03
            )
        )
    truths = [dataclasses.replace(one, until=min(one.until, nights)) for one in story.truths]
    return Made(
        runs=tuple(runs),
        line=tuple(map(sha, range(nights))),
        truths=tuple(_clear(truths, runs, courses)),
    )


def _levels(course: SimulatedSeries, metric: str) -> dict[str, float]:
    return course.shares if metric in course.shares else course.decibels


def _truth(course: SimulatedSeries, metric: str, night: int, size: float, kind: str) -> Truth:
    until = 1 << 30
    where = course.where
    return Truth(
        cell=course.cell,
        metric=metric,
        environment_class=where,
        commit=night,
        until=until,
        size=size,
        kind=kind,
    )


def _clear(
    truths: Sequence[Truth], runs: Sequence[Run], courses: Sequence[SimulatedSeries]
) -> Iterator[Truth]:
    """``truths`` with whether each has to be found."""
    for one in truths:
        measured = [
            int(run.commit, 16)
            for run in runs
            for line in run.cells
            if line.cell == one.cell and line.environment_class == one.environment_class
        ]
        course = next(course for course in courses if course.cell == one.cell)
        good = sum(commit < one.commit for commit in measured)
        bad = sum(one.commit <= commit < one.until for commit in measured)
        few = CONFIRM + 1 if course.flippers == 0 else 6
        is_large = (
            one.size >= max(course.least_of(one.metric), 4 * course.noise_of(one.metric)) * 1.1
        )
        if course.flippers and one.kind == "slide":
            is_large = False
        yield dataclasses.replace(
            one, is_clear=is_large and good >= 4 and bad >= few + 8 * (one.kind == "slide")
        )


# The judgement of alerts.


@dataclasses.dataclass
class Counts:
    """Alerts and changes over histories.

    ``true``: changes that have an alert which names their commit. ``moved``: those whose alert
        names other commits.
    ``missed``: clear changes without an alert. ``false``: alerts of no change.
    ``twice``: further alerts of a step; ``parts``: of a slide.
    """

    changes: int = 0
    clear: int = 0
    true: int = 0
    moved: int = 0
    missed: int = 0
    false: int = 0
    twice: int = 0
    parts: int = 0
    alerts: int = 0
    altered: int = 0
    """Alerts that had ended and later had other numbers or another state."""


def count_alerts(
    made: Made, alerts: Sequence[Alert], counts: Counts, wrong: list[str] | None = None
) -> None:
    """Compare ``alerts`` with what is true of a history."""
    told = [one for one in alerts if one.state is not State.PROVISIONAL]
    counts.alerts += len(told)
    used: set[int] = set()
    for truth in made.truths:
        counts.changes += 1
        counts.clear += truth.is_clear
        own = [
            (place, one)
            for place, one in enumerate(told)
            if place not in used and _is_of(truth, one)
        ]
        if own:
            used |= {place for place, _ in own}
            named = [one for _, one in own if _names(truth, one, made)]
            counts.true += bool(named)
            counts.moved += not named
            counts.twice += (len(own) - 1) * (truth.kind == "step")
            counts.parts += (len(own) - 1) * (truth.kind == "slide")
            if wrong is not None and (not named or len(own) > 1):
                wrong.append(
                    f"moved or twice: {truth} "
                    f"{[(o.kind, o.state, o.stretch, o.before, o.after) for _, o in own]}"
                )
        elif truth.is_clear:
            counts.missed += 1
            if wrong is not None:
                wrong.append(f"missed: {truth}")
    for place, one in enumerate(told):
        if place not in used:
            counts.false += 1
            if wrong is not None:
                wrong.append(f"false: {one}")


def _is_of(truth: Truth, alert: Alert) -> bool:
    same = (truth.cell, truth.metric, truth.environment_class) == (
        alert.cell,
        alert.metric,
        alert.environment_class,
    )
    if not same or not alert.stretch:
        return same and not alert.stretch
    stretch = [int(commit, 16) for commit in alert.stretch]
    return stretch[0] - 3 <= truth.commit <= stretch[-1] + 3 or (
        (truth.kind == "slide" or alert.kind is Kind.SLIDE)
        and truth.commit <= stretch[-1] < truth.until
    )


def _names(truth: Truth, alert: Alert, made: Made) -> bool:
    """Whether the commits of ``alert`` contain that of the change, or the first measured since;
    a slide's need not.
    """
    if truth.kind == "slide" or alert.kind is Kind.SLIDE:
        return truth.kind == "slide" or int(alert.stretch[-1], 16) >= truth.commit
    measured = [
        int(run.commit, 16)
        for run in made.runs
        for line in run.cells
        if line.cell == truth.cell and int(run.commit, 16) >= truth.commit
    ]
    return bool({sha(truth.commit), sha(min(measured, default=truth.commit))} & {*alert.stretch})


def altered_ends(
    made: Made, find: Callable[[Sequence[Run]], Sequence[Alert]]
) -> list[tuple[Alert, Alert | None]]:
    """Replay a history run by run: alerts that had ended, and what they are a run later, where
    that is not the same.

    Args:
        find: the runs so far → their alerts.
    """
    found: list[tuple[Alert, Alert | None]] = []
    ended: dict[tuple[object, ...], Alert] = {}
    for count in range(1, len(made.runs) + 1):
        now = {_key(one): one for one in find(made.runs[:count])}
        for key, before in ended.items():
            if now.get(key) != before:
                found.append((before, now.get(key)))
        ended = {key: one for key, one in now.items() if one.state in (State.ACCEPTED, State.FIXED)}
    return found


def _key(alert: Alert) -> tuple[object, ...]:
    return alert.cell, alert.metric, alert.environment_class, alert.run, alert.kind
