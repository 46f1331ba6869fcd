"""What ``qbench init --ci`` writes for each scheduler: files that divide a night, run its jobs and
put their run files together.
"""

from dataclasses import dataclass
from pathlib import Path

from qbench.cli.starter_files import TEMPLATES, filled
from qbench.errors import InputError

_WORKFLOWS = ".github/workflows"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduler:
    """Something that starts jobs.

    Args:
        name: as --ci takes it.
        files: path in the bench → template.
        usual: how many jobs where the user says nothing; None: the night is not divided.
        most: how many it starts at most.
        limit: what ``most`` is, in words.
        installs: whether its files say what pip installs; the machines of others have it.
        at_root: whether its files are read in the root of a repository only.
        next_step: what to type, or to read, next.
    """

    name: str
    files: dict[str, str]
    usual: int | None
    most: int
    limit: str
    installs: bool = False
    at_root: bool = False
    next_step: str = ""

    def filled_files(self, folder: Path, package: str, jobs: int | None) -> dict[Path, str]:
        """Path → text of its files for a bench in ``folder``."""
        words = {"PACKAGE": package, "JOBS": str(jobs)}
        return {folder / path: filled(name, **words) for path, name in self.files.items()}


GITHUB = "github"
_ONE_MACHINE = Scheduler(
    name=GITHUB,
    files={f"{_WORKFLOWS}/{path.name}": path.name for path in sorted(TEMPLATES.glob("*.yml"))},
    usual=None,
    most=1,
    limit="one machine",
    installs=True,
    at_root=True,
)
_MATRIX = Scheduler(
    name=GITHUB,
    files={f"{_WORKFLOWS}/nightly.yml": "github-jobs/nightly.yml"},
    usual=None,
    most=256,
    limit="the jobs of a matrix",
    installs=True,
    at_root=True,
)
_OTHERS = (
    Scheduler(
        name="gitlab",
        files={".gitlab-ci.yml": "gitlab/gitlab-ci.yml"},
        usual=8,
        most=200,
        limit="'parallel' of a job",
        installs=True,
        at_root=True,
    ),
    Scheduler(
        name="slurm",
        files={f"slurm/{name}": f"slurm/{name}" for name in ("night.sh", "job.sh", "merge.sh")},
        usual=8,
        most=1000,
        limit="the usual MaxArraySize",
        next_step="bash slurm/night.sh",
    ),
    Scheduler(
        name="kubernetes",
        files={f"kubernetes/{name}": f"kubernetes/{name}" for name in ("night.yaml", "merge.yaml")},
        usual=8,
        most=9999,
        limit="the jobs of a plan",
        next_step="the first lines of kubernetes/night.yaml say what it needs",
    ),
)
SCHEDULERS = {one.name: one for one in (_MATRIX, *_OTHERS)}


def scheduler_of(name: str | None, jobs: int | None, doing: str) -> tuple[Scheduler, int | None]:
    """What starts the jobs, and how many; without a ``name`` one machine of GitHub.

    Raises:
        InputError: more jobs than it starts, or jobs without a scheduler.
    """
    if name is None and jobs is not None:
        raise InputError(
            doing,
            found="--jobs without --ci",
            expected="what starts the jobs",
            remedy=f"Name it: --ci {'|'.join(SCHEDULERS)}.",
        )
    if name is None or (name == GITHUB and jobs is None):
        return _ONE_MACHINE, None
    found = SCHEDULERS[name]
    count = found.usual if jobs is None else jobs
    assert count is not None
    if count > found.most:
        raise InputError(
            doing,
            found=f"{count} jobs for {name}",
            expected=f"at most {found.most} ({found.limit})",
            remedy="Write fewer jobs.",
        )
    return found, count
