"""The first two lines of a run file: the suite and its selected cells, the commit, the computer.

{"type": "run", …, "suite": …, "commit": …, "complete_selection": …, "planned": …, "selected": …, …}
{"type": "environment", "processor": …, …, "versions": {…}}
"""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbench.errors import StoreError
from qbench.host import current_commit, describe_host
from qbench.storage import plain
from qbench.suite.catalogues import versions_under
from qbench.tracking import HistoryStore, RunWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStart:
    """The first two lines of a run file (its writer adds to ``header``) and the parts of its name.

    Args:
        started: with a time zone.
        token: a few random letters.
        commit: the hash; None outside version control.
    """

    header: dict[str, Any]
    environment: dict[str, Any]
    started: datetime.datetime
    token: str
    commit: str | None

    def open(self, history: HistoryStore | Path) -> RunWriter:
        """A new run in ``history``, begun with both lines.

        Raises:
            StoreError: the store cannot be written, or is full.
        """
        writer = RunWriter.open(
            history, self.header, started=self.started, commit=self.commit, token=self.token
        )
        try:
            writer.write(self.environment)
        except StoreError:
            writer.abandon()
            raise
        return writer


def describe_start(
    folder: Path,
    *,
    suite: str,
    planned: int,
    selected: int,
    select: str,
    limit: int | None,
    backends: Sequence[str] = (),
    shard: str = "",
    job: Mapping[str, Any] | None = None,
    release: tuple[str, Path] | None = None,
    started: datetime.datetime,
    token: str,
    processor: str | None = None,
) -> RunStart:
    """The first lines of a run on this computer.

    Args:
        folder: of the checkout whose commit is noted.
        suite: its name.
        planned: cells it has.
        selected: cells this run measures, by the expression ``select``.
        limit: at most that many samples of each data set; None: all.
        backends: of its cells in the order of the suite, in which reports show them.
        shard: ``i/N``, its share; empty: all models.
        job: of a plan, its number and that of this attempt; None: the run is none.
        release: the package whose release is measured, and the Python that has it; None: what is
            installed.
        started: with a time zone.
        token: a few random letters.
        processor: the machine's class; None: ask the machine.

    Raises:
        InputError: no such Python, or no such package there.
    """
    commit = current_commit(folder)
    header: dict[str, Any] = {
        "suite": suite,
        "commit": plain(commit),
        "complete_selection": selected == planned and limit is None,
        "planned": planned,
        "selected": selected,
        "limited": limit,
        "select": select,
    }
    if backends:
        header["backends"] = list(backends)
    if shard:
        header["shard"] = shard
    if job is not None:
        header["job"] = dict(job)
    facts: dict[str, Any] = {**describe_host()}
    probed, versions = facts.pop("processor_class"), facts.pop("packages")
    sha = commit.sha if commit else None
    if release is not None:
        # what the run is about is the release, and the commit of this checkout is a side fact
        package, python = release
        there = versions_under(python, package)
        versions, sha = {**versions, **there}, there[package]
        header |= {
            "commit": {"sha": sha, "short": sha, "dirty": False},
            "releases": {"package": package, "version": sha},
            "checkout": plain(commit),
        }
    environment = {
        "type": "environment",
        "processor": processor or probed,
        **facts,
        "versions": versions,
    }
    return RunStart(
        header=header, environment=environment, started=started, token=token, commit=sha
    )
