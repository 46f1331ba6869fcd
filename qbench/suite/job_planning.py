"""Suites and their history → the plan of a night, and how its durations were found."""

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from qbench.errors import InputError
from qbench.suite.catalogues import gather
from qbench.suite.division import MOST_JOBS, TimedModel, divide_among, divide_by_time, imbalance
from qbench.suite.durations import Durations, Source, read_durations
from qbench.suite.expansion import PlannedCell, expand
from qbench.suite.job_plan import JobPlan, PlannedSuite, make_job_plan
from qbench.suite.plan_identity import describe_code, suite_digest
from qbench.suite.suite_file import load_suite
from qbench.tracking import History

_DOING = "Planning jobs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Planning:
    """A new ``plan``; ``sources``: how many of its cells have their expected time from where."""

    plan: JobPlan
    sources: dict[Source, int]

    @property
    def imbalance(self) -> float:
        """The time of the longest job, as a multiple of their mean."""
        return imbalance(job.units for job in self.plan.jobs)


def plan_jobs(
    suites: Sequence[Path],
    history: History | None,
    *,
    jobs: int | None = None,
    minutes: float | None = None,
    environment_class: str | None = None,
    night: str = "",
) -> Planning:
    """A plan of all cells of ``suites``: of ``jobs`` jobs, or of as many as take ``minutes`` each.

    Args:
        history: says how long cells take; None: nothing is known.
        environment_class: of the processors that the jobs must run on; None: any.
        night: a name of the night, such as the time at which it is planned.

    Raises:
        InputError: a suite is wrong, two of them have one name, none has a cell, or there would be
            too many jobs.
    """
    if jobs is not None and jobs > MOST_JOBS:
        raise InputError(
            _DOING,
            found=f"{jobs} jobs",
            expected=f"at most {MOST_JOBS}",
            remedy="Plan fewer jobs.",
        )
    planned = _PlannedSuites(environment_class, history)
    for path in suites:
        planned.add(path)
    models = planned.models
    if not models:
        raise InputError(
            _DOING, found="no cell", expected="at least one", remedy="Name a suite with cells."
        )
    divided = (
        divide_among(models, jobs or 1)
        if minutes is None
        else divide_by_time(models, 60.0 * minutes)
    )
    plan = make_job_plan(
        planned.suites, describe_code(suites[0].parent), environment_class, divided, night=night
    )
    return Planning(plan=plan, sources=dict(planned.sources))


class _PlannedSuites:
    """The suites of a plan, expanded one by one: of their cells only the times are kept."""

    def __init__(self, processor: str | None, history: History | None) -> None:
        self._processor = processor
        self._history = history
        self.suites: list[PlannedSuite] = []
        self.models: list[TimedModel] = []
        self.sources: Counter[Source] = Counter()

    def add(self, path: Path) -> None:
        suite = load_suite(path)
        if any(other.name == suite.name for other in self.suites):
            raise InputError(
                _DOING,
                found=f"two suites of the name '{suite.name}'",
                expected="each suite once",
                remedy="Name one of them, or rename it.",
            )
        digest = suite_digest(path)
        durations = read_durations(self._history, suite.name, self._processor)
        cells = expand(suite, gather(suites=path.parent))
        self._add_cells(cells, durations)
        shown = os.path.relpath(path).replace(os.sep, "/")
        self.suites.append(
            PlannedSuite(path=shown, name=suite.name, digest=digest, cells=len(cells))
        )

    def _add_cells(self, cells: Sequence[PlannedCell], durations: Durations) -> None:
        known: dict[str, TimedModel] = {}
        for one in cells:
            cell = one.cell
            if cell.model not in known:
                known[cell.model] = TimedModel(cell.suite, cell.model)
            seconds, source = durations.of(cell, one.model)
            known[cell.model].add(cell.backend, cell.schema, seconds)
            self.sources[source] += 1
        self.models += known.values()
