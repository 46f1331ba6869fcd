"""``--qbench-resume``: cells that an unfinished run has a result for are taken over from it.

The controller looks for the runs before anything is measured, so that every worker of xdist chooses
from the same ones: this session's own run would be the newest of all. A worker reads them itself.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from qbench.plugin.item_state import SuiteFacts
from qbench.plugin.jobs import JOB
from qbench.plugin.options import OPTIONS, history_place
from qbench.storage import digest_plain

if TYPE_CHECKING:
    from qbench.judging import Cell
    from qbench.suite import PlannedCell
    from qbench.tracking import Held, HistoryStore

CANDIDATES = pytest.StashKey[dict[str, list[list[str]]]]()
"""Suite → the unfinished runs that may be resumed, each as the names of its attempts."""
_HELD = pytest.StashKey[dict[Path, "Held | None"]]()
_CODE = pytest.StashKey[dict[str, str]]()
"""Suite → ``code_digest``; of no suite the digest of the code alone."""
INPUT = "qbench_resumable"
"""The key by which a worker of xdist gets ``CANDIDATES``."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What a cell has instead of a measurement; ``run``: where from, empty where the cell killed
    its process too often.
    """

    line: dict[str, Any]
    finding: dict[str, Any] | None = None
    samples: dict[str, Any] | None = None
    run: str = ""


def find_candidates(config: pytest.Config, store: "HistoryStore") -> dict[str, list[list[str]]]:
    """The unfinished runs in ``store`` with the options of this session, at its commit."""
    from qbench.host import current_commit
    from qbench.tracking import unfinished_runs

    options = config.stash[OPTIONS]
    commit = current_commit(config.rootpath)
    choice = config.stash.get(JOB, None)
    wanted = {
        "limited": options.limit,
        "select": options.select,
        "shard": options.shard,
        "job": None if choice is None else (choice.plan.short, choice.job.index),
        "commit": "" if commit is None else commit.sha,
    }
    return unfinished_runs(store, lambda header: _told(header) == wanted)


def _told(header: Mapping[str, Any]) -> dict[str, Any]:
    """What a run and the session that resumes it have in common, by a ``run`` line."""
    from qbench.tracking import Run, job_of

    job = job_of(header)
    return {
        "limited": header.get("limited"),
        "select": header.get("select", ""),
        "shard": header.get("shard", ""),
        "job": None if job is None else (job.plan, job.index),
        "commit": Run(header=header).commit,
    }


def code_digest(config: pytest.Config, suite: Path) -> str:
    """A digest of the code in the root folder and of the files that are read for ``suite``."""
    from qbench.storage import plain
    from qbench.suite import describe_code, suite_digest

    known = config.stash.setdefault(_CODE, {})
    if "" not in known:
        known[""] = digest_plain(plain(describe_code(config.rootpath)))
    if str(suite) not in known:
        known[str(suite)] = digest_plain([known[""], suite_digest(suite)])[:16]
    return known[str(suite)]


def taken_over(config: pytest.Config, facts: SuiteFacts, planned: "PlannedCell") -> Taken | None:
    """What ``planned`` has instead of being measured; None: it is measured.

    ``facts`` are told which run is resumed.
    """
    held = _held(config, facts)
    if held is None:
        return None
    facts.resumes = held.run
    found = held.lines(planned.cell)
    if found is not None:
        return Taken(found.cell, found.finding, found.samples, found.run)
    return _given_up(planned.cell, held)


def _given_up(cell: "Cell", held: "Held") -> Taken | None:
    """The line of a cell that, or whose model, killed its process too often; None of any other."""
    from qbench.judging import Outcome, Verdict
    from qbench.suite import LAST_OUTPUT
    from qbench.tracking import MOST_DEATHS, MOST_MODEL_DEATHS, CellRecord

    died, words = held.deaths(cell)
    what = "it"
    if len(died) < MOST_DEATHS:
        died, what = held.deaths_of_model(cell.model), "cells of its model"
        if len(died) < MOST_MODEL_DEATHS:
            return None
    if (line := held.given_up(cell)) is not None:
        return Taken(line)
    # what starts jobs hands on the last output of the process that died, as that could not
    words = words or os.environ.get(LAST_OUTPUT, "")
    runs = " and ".join(f"'{run_id}'" for run_id in died)
    headline = f"its process died {len(died)} times while running {what}, in {runs}"
    verdict = Verdict(
        outcome=Outcome.INFRA,
        headline=f"{headline}; last known: {words}" if words else headline,
        rule="",
        remedy="Run it alone and look at its memory and its engine; a run without "
        "--qbench-resume tries it again.",
    )
    return Taken(CellRecord.of(cell, verdict, None).line())


def _held(config: pytest.Config, facts: SuiteFacts) -> "Held | None":
    """What the run holds that the session resumes for the suite of ``facts``; None: none is."""
    known = config.stash.setdefault(_HELD, {})
    if facts.file not in known:
        from qbench.tracking import held_results, store_of

        names = config.stash.get(CANDIDATES, {}).get(facts.suite, [])
        store = store_of(history_place(config)) if names else None
        several = (held_results(store, group) for group in names if store is not None)
        fits = _fits(config, facts)
        fitting = (held.given_by(fits) for held in several if held is not None)
        known[facts.file] = next(filter(None, fitting), None)
    return known[facts.file]


def _fits(config: pytest.Config, facts: SuiteFacts) -> "Callable[[Mapping[str, Any], str], bool]":
    """Says of a header and a class of processor whether they are of a run of the same cells, or an
    attempt at the same job, with the same code, on the same class as this session.
    """
    from qbench.host import processor_class

    own = config.hook.pytest_qbench_processor(config=config) or processor_class()
    wanted = {"planned": facts.planned, "code": code_digest(config, facts.file)}
    if JOB not in config.stash:  # a plan says which cells a job has, whatever -k leaves out
        wanted |= {"selected": facts.selected, "selection": facts.selection}

    def fits(header: Mapping[str, Any], processor: str) -> bool:
        found = {key: header.get(key, "") for key in wanted}
        return processor == own and found == wanted

    return fits
