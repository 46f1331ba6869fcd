"""``--qbench-prune``, and what it would remove: baselines that a suite has no more, listed by every run of the suite.

The matrix of a suite is known once it is collected, whatever is selected of it; removing asks for all of it to be
selected, so that nobody prunes by the way.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from qbench.plugin.opening import OpenSuite, open_suite
from qbench.plugin.options import OPTIONS
from qbench.plugin.tags import collected_tags
from qbench.suite import QUARANTINE_SUFFIX, SUFFIX
from qbench.tracking import Leftover, find_leftovers, leftover_notes, orphan_notes, prune_leftovers

if TYPE_CHECKING:
    from qbench.judging import QuarantineEntry


def leftover_sentences(opened: OpenSuite) -> tuple[str, ...]:
    """What of the baselines of a suite nothing uses, in sentences."""
    baselines = opened.config.stash[OPTIONS].baselines
    orphans = orphan_notes(baselines, opened.suite.path.parent, SUFFIX)
    return leftover_notes(_leftovers(opened, baselines), opened.shown_path) + orphans


def demand_whole_suites(session: pytest.Session) -> None:
    """Refuse to prune by a part of a suite, before anything is measured.

    Raises:
        pytest.UsageError: no suite was collected, or not all of one is selected.
    """
    if session.testsfailed:  # a suite could not be read: pytest says why, and goes no further
        return
    tags = collected_tags(session.config)
    if not tags:
        raise _refusal("no suite", "the file of one: pytest suites/NAME.qbench.toml --collect-only --qbench-prune")
    for tag in tags:
        if tag.selected != tag.planned:
            raise _refusal(f"{tag.selected} of the {tag.planned} cells of '{tag.suite}' selected", "all of them")


def prune(session: pytest.Session, files: Iterable[Path]) -> list[str]:
    """Remove what the suites at ``files`` have no more; a line for each thing that went.

    Raises:
        QbenchError: a suite is wrong, or a baseline cannot be written.
    """
    folder = session.config.stash[OPTIONS].baselines
    said = []
    for file in files:
        opened = _opened(session, file)
        leftovers = _leftovers(opened, folder)
        prune_leftovers(folder, leftovers)
        done = [f"pruned {one.name}: {one.why}" for one in leftovers]
        done += [f"left to you: {_told_entry(opened, entry)}" for entry in opened.stale_entries]
        said += done or [f"nothing to prune: {file.name}"]
    return said


def _told_entry(opened: OpenSuite, entry: "QuarantineEntry") -> str:
    """A file that people write, with their comments, is not written anew."""
    file = f"{opened.suite.name}{QUARANTINE_SUFFIX}"
    return f"the quarantine entry '{entry.cell}' is about no cell of '{opened.suite.name}': remove it from '{file}'"


def _leftovers(opened: OpenSuite, folder: Path) -> tuple[Leftover, ...]:
    return find_leftovers(folder, opened.suite.name, (planned.cell for planned in opened.planned))


def _opened(session: pytest.Session, file: Path) -> OpenSuite:
    return open_suite(file, session.config, session.gethookproxy(file))


def _refusal(found: str, expected: str) -> pytest.UsageError:
    return pytest.UsageError(
        f"Pruning baselines: found {found}; expected {expected}. A part of a suite cannot tell what is left over."
    )
