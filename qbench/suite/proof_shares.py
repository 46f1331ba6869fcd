"""The shares of a proof on workers: each is a process of its own that runs ``qbench prove --shard``
and adds its trials to a file of its own, which is the state.

    done    the file has a line ``end`` that this night added, or one of a share of which nothing
            is left
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from qbench.errors import InputError
from qbench.storage import digest_plain
from qbench.suite.job_night import JobRuns, Night
from qbench.suite.job_plan import SHORT_DIGEST, Job, Unit
from qbench.tracking import ProofCell, ProofEnd, ProofStart, ProofTrial, proof_file

_SHARE = re.compile(r"share-\d+-of-(\d+)\.jsonl")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofShares:
    """The trials of ``suite`` in ``count`` shares, whose files are in ``folder``.

    ``made`` is what they are of (``ProofStart.made``).
    """

    suite: str
    made: Mapping[str, str]
    folder: Path
    count: int

    @property
    def short(self) -> str:
        """Digits that name it."""
        return digest_plain([dict(self.made), self.count])[:SHORT_DIGEST]

    @property
    def jobs(self) -> tuple[Job, ...]:
        """A job for each share: one unit, of one thing to be done."""
        unit = Unit(suite=self.suite, model="", cells=1, seconds=0.0)
        return tuple(
            Job(index=index, units=(unit,), seconds=0.0) for index in range(1, self.count + 1)
        )

    @property
    def files(self) -> tuple[Path, ...]:
        """Of the shares, in order."""
        return tuple(self.folder / self.name(str(job.index)) for job in self.jobs)

    def name(self, index: str) -> str:
        """The name of the file of share ``index``."""
        return f"share-{index}-of-{self.count}.jsonl"


def count_of_shares(folder: Path) -> int | None:
    """How many shares the files in ``folder`` are of; None: there is none.

    Raises:
        InputError: they are of two proofs of different numbers of shares.
    """
    counts = {
        int(found[1]) for path in folder.glob("*.jsonl") if (found := _SHARE.fullmatch(path.name))
    }
    if len(counts) > 1:
        raise InputError(
            f"Reading the shares in '{folder}'",
            found=f"shares of {' and of '.join(map(str, sorted(counts)))}",
            expected="those of one proof",
            remedy="Name another file: -o FILE; --merge joins files of different shares.",
        )
    return next(iter(counts), None)


@dataclass(slots=True)
class ProofNight(Night):
    """The shares of a proof as jobs; ``history`` is their folder."""

    def _names(self) -> None:
        """Each share has one file."""

    def _runs_of(
        self, job: Job, names: Mapping[int, Sequence[tuple[str, str]]] | None = None
    ) -> JobRuns:
        del names
        assert isinstance(self.plan, ProofShares)
        path = self.plan.files[job.index - 1]
        lines = proof_file(path).read()
        ends = [line for line in lines if isinstance(line, ProofEnd)]
        complete = {str(number): int(end.is_whole) for number, end in enumerate(ends)}
        starts = sum(isinstance(line, ProofStart) for line in lines)
        facts = sum(isinstance(line, ProofCell | ProofTrial) for line in lines)
        return JobRuns({self.plan.suite: complete} if ends else {}, starts, facts)

    @property
    def mark(self) -> str:
        """The folder of the files."""
        return str(self.history)

    @property
    def unseen(self) -> str:
        """As of ``Night``, in other words."""
        return (
            f"found no end of it in '{self.history}', though its process ended well; expected one "
            "folder for all workers and this computer. Name one that all of them have: -o FILE."
        )
