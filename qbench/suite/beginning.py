"""How a run file begins: what was to be run, at which commit, and on what computer; every door writes the same lines.

{"type": "run", …, "suite": …, "commit": …, "complete_selection": …, "planned": …, "selected": …, …}
{"type": "environment", "processor": …, …, "versions": {…}}
"""

import datetime
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbench.errors import StoreError
from qbench.host import current_commit, describe_host
from qbench.storage import plain
from qbench.tracking import RunWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How much of a suite one run covers.

    Args:
        suite: its name. planned: cells it has. selected: cells this run measures, by the expression ``select``.
        limit: at most that many samples of each data set; None: all. shard: ``i/N``, its share; empty: none was asked.
    """

    suite: str
    planned: int
    selected: int
    select: str
    limit: int | None
    shard: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStart:
    """The first two lines of a run file, ``header`` still without what its writer adds, and what its name is made of.

    Args:
        started: with a time zone. token: a few random letters. commit: the hash; None outside version control.
    """

    header: dict[str, Any]
    environment: dict[str, Any]
    started: datetime.datetime
    token: str
    commit: str | None

    def open(self, history: Path) -> RunWriter:
        """A new run file in ``history``, begun with both lines.

        Raises:
            StoreError: the folder cannot be written, or is full.
        """
        writer = RunWriter.open(history, self.header, started=self.started, commit=self.commit, token=self.token)
        try:
            writer.write(self.environment)
        except StoreError:
            writer.abandon()
            raise
        return writer


def describe_start(
    extent: Extent, folder: Path, *, started: datetime.datetime, token: str, processor: str | None = None
) -> RunStart:
    """What a run of ``extent`` begins with, now and here.

    Args:
        folder: of the checkout whose commit is noted. started: with a time zone. token: a few random letters.
        processor: the machine's class; None: ask the machine.
    """
    commit = current_commit(folder)
    header = {
        "suite": extent.suite,
        "commit": plain(commit),
        "complete_selection": extent.selected == extent.planned and extent.limit is None,
        "planned": extent.planned,
        "selected": extent.selected,
        "limited": extent.limit,
        "select": extent.select,
    }
    if extent.shard:
        header["shard"] = extent.shard
    facts: dict[str, Any] = {**describe_host()}
    probed, versions = facts.pop("processor_class"), facts.pop("packages")
    environment = {"type": "environment", "processor": processor or probed, **facts, "versions": versions}
    sha = commit.sha if commit else None
    return RunStart(header=header, environment=environment, started=started, token=token, commit=sha)
