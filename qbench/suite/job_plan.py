"""A night divided into jobs: the plan file that every machine of the night reads.

    plan  = suites, code, environment class wanted, jobs
    job   = units, which one process measures
    unit  = the cells of one model, or those of some of its backends and schemas

A plan is static: nothing changes it while a night runs. Its digest covers everything that it says,
so that a run file can name the plan that it belongs to.
"""

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from qbench.errors import DamagedError, InputError
from qbench.judging import Cell
from qbench.storage import (
    digest_plain,
    json_text,
    plain,
    refuse_newer,
    value_of_plain,
    write_text,
)

FORMAT = "qbench-plan/1"
_FAMILY = FORMAT.partition("/")[0] + "/"
SHORT_DIGEST = 16
"""How many digits of a plan's digest run files and their names have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSuite:
    """A suite whose cells a plan divides.

    Args:
        path: of its file, relative to the folder that the plan was made in where it is below it.
        digest: of all files that are read for it.
        cells: how many it has.
    """

    path: str
    name: str
    digest: str
    cells: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCode:
    """The code that a plan was made for.

    Args:
        commit: the hash; empty outside version control.
        dirty: whether files differ from the commit.
        changes: a digest of how they differ; empty where they do not.
        qbench: its version.
        source: a digest of its source files.
        versions: of the installed packages that count, by name.
    """

    commit: str
    dirty: bool
    qbench: str
    source: str = ""
    changes: str = ""
    versions: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """The cells of ``model`` of ``suite`` (a name) that are measured together.

    Args:
        backends, schemas: of its cells; None: all of the model. A variant goes with its schema.
        cells: how many these are.
        seconds: how long they are expected to take.
    """

    suite: str
    model: str
    cells: int
    seconds: float
    backends: tuple[str, ...] | None = None
    schemas: tuple[str, ...] | None = None

    def covers(self, cell: Cell) -> bool:
        """Whether ``cell`` is one of the cells of this unit."""
        return (
            (cell.suite, cell.model) == (self.suite, self.model)
            and (self.backends is None or cell.backend in self.backends)
            and (self.schemas is None or cell.schema in self.schemas)
        )

    def overlaps(self, other: "Unit") -> bool:
        """Whether some cell could belong to both."""
        return (
            (self.suite, self.model) == (other.suite, other.model)
            and _share(self.backends, other.backends)
            and _share(self.schemas, other.schemas)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Share ``index`` (from 1) of a plan, expected to take ``seconds``."""

    index: int
    units: tuple[Unit, ...]
    seconds: float

    def covers(self, cell: Cell) -> bool:
        """Whether ``cell`` belongs to this job."""
        return any(unit.covers(cell) for unit in self.units)

    def models(self, suite: str) -> dict[str, tuple[Unit, ...]]:
        """The units of ``suite`` by their model."""
        found: dict[str, tuple[Unit, ...]] = {}
        for unit in self.units:
            if unit.suite == suite:
                found[unit.model] = (*found.get(unit.model, ()), unit)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """Which job measures which cell.

    Args:
        digest: of everything else.
        environment_class: the class of processor that every job must run on; None: any.
        jobs: in the order of their numbers.
        night: tells two nights of the same cells apart: a run of the same plan is another attempt
            at the same night.
    """

    digest: str
    suites: tuple[PlannedSuite, ...]
    code: PlannedCode
    environment_class: str | None
    jobs: tuple[Job, ...]
    night: str = ""
    _holders: dict[tuple[str, str], tuple[tuple[Job, Unit], ...]] = field(
        init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        held: dict[tuple[str, str], tuple[tuple[Job, Unit], ...]] = {}
        for job in self.jobs:
            for unit in job.units:
                key = unit.suite, unit.model
                held[key] = (*held.get(key, ()), (job, unit))
        object.__setattr__(self, "_holders", held)  # a frozen value has no other way

    @property
    def short(self) -> str:
        """The digits of its digest by which run files name it."""
        return self.digest[:SHORT_DIGEST]

    def job(self, index: int) -> Job:
        """The job of number ``index``, from 1.

        Raises:
            InputError: the plan has no such job.
        """
        if 1 <= index <= len(self.jobs):
            return self.jobs[index - 1]
        raise InputError(
            f"Choosing job {index} of plan {self.short}",
            found=f"a plan of {len(self.jobs)} jobs",
            expected=f"a number from 1 to {len(self.jobs)}",
            remedy="Correct the number after '#', or the size of the array that starts the jobs.",
        )

    def holder(self, cell: Cell) -> Job | None:
        """The job that measures ``cell``; None: no job does."""
        several = self._holders.get((cell.suite, cell.model), ())
        return next((job for job, unit in several if unit.covers(cell)), None)


def make_job_plan(
    suites: Iterable[PlannedSuite],
    code: PlannedCode,
    environment_class: str | None,
    jobs: Iterable[Iterable[Unit]],
    *,
    night: str = "",
) -> JobPlan:
    """A plan of these ``jobs``, each given as its units, with its digest."""
    numbered = tuple(
        Job(index=index, units=tuple(units), seconds=math.fsum(unit.seconds for unit in units))
        for index, units in enumerate(map(tuple, jobs), start=1)
    )
    named = tuple(suites)
    unsigned = JobPlan(
        digest="",
        suites=named,
        code=code,
        environment_class=environment_class,
        jobs=numbered,
        night=night,
    )
    return replace(unsigned, digest=digest_plain(_content(unsigned)))


def save_job_plan(plan: JobPlan, path: Path) -> None:
    """Write ``plan`` to ``path``; the same plan gives the same bytes.

    Raises:
        StoreError: the file cannot be written.
    """
    write_text(path, json_text({**_content(plan), "digest": plan.digest}))


def is_job_plan(path: Path) -> bool:
    """Whether the file at ``path`` is a plan of any format; False where there is no such file."""
    if not path.is_file():
        return False
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and str(found.get("format")).startswith(_FAMILY)


def load_job_plan(path: Path) -> JobPlan:
    """The plan in the file at ``path``.

    Raises:
        InputError: the file cannot be read, or is not a plan.
        DamagedError: its content does not match its digest, or has no meaning.
        StoreError: a newer qbench made it.
    """
    doing = f"Reading the plan '{path}'"
    table = _read_table(path, doing)
    if (found := table.get("format")) != FORMAT:
        refuse_newer(doing, found, FORMAT)
        raise InputError(
            doing,
            found="no key 'format'" if found is None else f"the format {found!r}",
            expected=f"a plan of the format '{FORMAT}', which 'qbench plan' writes",
            remedy="Check the path.",
        )
    content = {key: value for key, value in table.items() if key != "digest"}
    try:
        digest = digest_plain(content)
    except ValueError as error:  # of a number that JSON does not have
        raise _damaged(doing, str(error)) from error
    if table.get("digest") != digest:
        raise _damaged(doing, "content that does not match its digest")
    try:
        written = value_of_plain(_WrittenPlan, content)
    except ValueError as error:
        raise _damaged(doing, str(error)) from error
    if problem := next(_problems(written), ""):
        raise _damaged(doing, problem)
    names = [suite.name for suite in written.suites]
    jobs = tuple(
        Job(
            index=index,
            units=tuple(unit.named(names) for unit in job.units),
            seconds=job.seconds,
        )
        for index, job in enumerate(written.jobs, start=1)
    )
    return JobPlan(
        digest=digest,
        suites=written.suites,
        code=written.code,
        environment_class=written.environment_class,
        jobs=jobs,
        night=written.night,
    )


# The file: a unit names its suite by the position in the list of suites, from 0.


@dataclass(frozen=True, slots=True, kw_only=True)
class _WrittenUnit:
    suite: int
    model: str
    backends: tuple[str, ...] | None
    schemas: tuple[str, ...] | None
    cells: int
    seconds: float

    def named(self, suites: list[str]) -> Unit:
        return Unit(
            suite=suites[self.suite],
            model=self.model,
            backends=self.backends,
            schemas=self.schemas,
            cells=self.cells,
            seconds=self.seconds,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _WrittenJob:
    units: tuple[_WrittenUnit, ...]
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _WrittenPlan:
    suites: tuple[PlannedSuite, ...]
    code: PlannedCode
    environment_class: str | None
    jobs: tuple[_WrittenJob, ...]
    night: str = ""


def _content(plan: JobPlan) -> dict[str, Any]:
    """All that the file says, except for its digest."""
    places = {suite.name: place for place, suite in enumerate(plan.suites)}
    return {
        "format": FORMAT,
        "night": plan.night,
        "suites": plain(plan.suites),
        "code": plain(plan.code),
        "environment_class": plan.environment_class,
        "jobs": [
            {
                "seconds": job.seconds,
                "units": [{**plain(unit), "suite": places[unit.suite]} for unit in job.units],
            }
            for job in plan.jobs
        ],
    }


def _read_table(path: Path, doing: str) -> dict[str, Any]:
    """The JSON object in the file.

    Raises:
        InputError: the file cannot be read, or holds something else.
        DamagedError: it is the beginning of a plan, or has bytes that are no text.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise InputError(
            doing,
            found=error.strerror or str(error),
            expected="a plan that 'qbench plan' wrote",
            remedy="Check the path.",
        ) from error
    try:
        table = json.loads(text)
    except (ValueError, RecursionError) as error:
        if text.lstrip().startswith(b"{"):
            raise _damaged(doing, str(error)) from error
        found = "no JSON"
    else:
        if isinstance(table, dict):
            return table
        found = f"a {type(table).__name__}"
    raise InputError(
        doing,
        found=found,
        expected="a plan that 'qbench plan' wrote",
        remedy="Check the path.",
    )


def _damaged(doing: str, found: str) -> DamagedError:
    return DamagedError(
        doing,
        found=found,
        expected="a plan as 'qbench plan' wrote it",
        remedy="Copy the file again, or make the plan again with the same command.",
    )


def _problems(written: _WrittenPlan) -> Iterator[str]:
    """What has no meaning in a plan whose types are right."""
    names = [suite.name for suite in written.suites]
    if len(set(names)) < len(names):
        yield "two suites of one name"
    if not written.jobs:
        yield "no job"
    by_model: dict[tuple[str, str], list[Unit]] = {}
    for job in written.jobs:
        if not 0 <= job.seconds < math.inf:
            yield f"a job of {job.seconds} seconds"
        for unit in job.units:
            if not 0 <= unit.suite < len(names):
                yield f"a unit of suite {unit.suite}, of {len(names)}"
                return
            if unit.cells < 1 or not 0 <= unit.seconds < math.inf:
                yield f"a unit of {unit.cells} cells and {unit.seconds} seconds ({unit.model})"
            named = unit.named(names)
            by_model.setdefault((named.suite, named.model), []).append(named)
    for (suite, model), units in by_model.items():
        if any(one.overlaps(other) for one, other in combinations(units, 2)):
            yield f"two units that share cells of model '{model}' of suite '{suite}'"


def _share(one: tuple[str, ...] | None, other: tuple[str, ...] | None) -> bool:
    """Whether two lists have a name in common, where None has all."""
    return one is None or other is None or not set(one).isdisjoint(other)
