"""Which job of a plan a process runs: ``plan.json#17``, or the number that a scheduler gives."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbench.errors import InputError
from qbench.suite.job_plan import Job, JobPlan, load_job_plan


@dataclass(frozen=True, slots=True)
class Counter:
    """A variable that a scheduler sets for each job of an array.

    Args:
        first: the number of the first job; of SLURM the user chooses it, and ``first_in`` names the
            variable that has it.
    """

    name: str
    scheduler: str
    first: int
    first_in: str = ""

    def index(self, environment: Mapping[str, str]) -> int:
        """The number of the job, from 1.

        Raises:
            InputError: the variable holds no number.
        """
        first = self.first
        if self.first_in in environment:
            # an array of some jobs, such as 5,9, begins with neither
            first = min(_number(environment, self.first_in), self.first)
        return _number(environment, self.name) + 1 - first


COUNTERS = (
    Counter("SLURM_ARRAY_TASK_ID", "SLURM", 1, "SLURM_ARRAY_TASK_MIN"),
    Counter("JOB_COMPLETION_INDEX", "Kubernetes", 0),
    Counter("CI_NODE_INDEX", "GitLab", 1),
    Counter("BUILDKITE_PARALLEL_JOB", "Buildkite", 0),
)


@dataclass(frozen=True, slots=True)
class JobChoice:
    """The ``job`` of the ``plan`` at ``path`` that this process runs."""

    path: Path
    plan: JobPlan
    job: Job

    @property
    def text(self) -> str:
        """How an option names it."""
        return f"{self.path}#{self.job.index}"

    @property
    def header(self) -> dict[str, Any]:
        """What the first line of a run file says of it."""
        return {
            "plan": self.plan.short,
            "index": self.job.index,
            "of": len(self.plan.jobs),
            "attempt": 1,
        }

    def suites(self, folder: Path) -> tuple[Path, ...]:
        """The files of the suites that the job has cells of, as seen from ``folder``; of a job
        without cells those of the plan.

        Raises:
            InputError: one of them is not there.
        """
        used = {unit.suite for unit in self.job.units}
        files = []
        for suite in self.plan.suites:
            if used and suite.name not in used:
                continue
            files.append(folder / suite.path)
            if not files[-1].is_file():
                raise InputError(
                    f"Running job {self.job.index} of plan {self.plan.short}",
                    found=f"no suite '{suite.path}' in '{folder}'",
                    expected="the folder that the plan was made in, or a copy of it",
                    remedy="Run the job there, or name the suites in the command.",
                )
        return tuple(files)


def choose_job(text: str, folder: Path, environment: Mapping[str, str]) -> JobChoice:
    """The job that ``text`` names: ``PLAN#N``, or ``PLAN`` with the number in ``environment``.

    Args:
        folder: that a relative path starts from.

    Raises:
        InputError: there is no such plan, no number, or no such job. StoreError: the plan is
            damaged.
    """
    name, mark, number = text.rpartition("#")
    if not mark or (folder / text).is_file():
        name, number = text, ""
    elif not number.isdecimal():
        raise InputError(
            f"Reading the job '{text}'",
            found=f"'{number}' after '#'",
            expected="the number of a job, from 1, as in plan.json#17",
            remedy="Correct the option.",
        )
    plan = load_job_plan(folder / name)
    index = (
        int(number)
        if number
        else _given_index(
            environment,
            f"Choosing a job of the plan '{name}'",
            expected=f"one from 1 to {len(plan.jobs)}",
            remedy=f"Name the job: {name}#1.",
        )
    )
    return JobChoice(folder / name, plan, plan.job(index))


def choose_share(text: str, environment: Mapping[str, str]) -> str:
    """``text``, a share as ``I/N``; of ``N`` alone with the number in ``environment``.

    Raises:
        InputError: it is ``N`` alone, and there is no number.
    """
    if not text.isdecimal():
        return text
    index = _given_index(
        environment,
        f"Reading --shard {text}",
        expected=f"one from 1 to {text}",
        remedy=f"Name the share: --shard 1/{text}.",
    )
    return f"{index}/{text}"


def _given_index(environment: Mapping[str, str], doing: str, *, expected: str, remedy: str) -> int:
    """The number that the scheduler gave this process.

    Raises:
        InputError: none did, or two gave different ones.
    """
    found = {one.name: one.index(environment) for one in COUNTERS if environment.get(one.name)}
    if len(set(found.values())) == 1:
        return next(iter(found.values()))
    said = ", ".join(f"{name}={environment[name]}" for name in found)
    raise InputError(
        doing,
        found=f"variables that do not agree ({said})"
        if found
        else f"no number: none of {', '.join(one.name for one in COUNTERS)} is set",
        expected=expected,
        remedy=remedy,
    )


def _number(environment: Mapping[str, str], name: str) -> int:
    text = environment[name].strip()
    if text.isdecimal():
        return int(text)
    raise InputError(
        f"Reading the variable {name}",
        found=f"'{text}'",
        expected="a whole number",
        remedy="Name the job in the option: PLAN#N.",
    )
