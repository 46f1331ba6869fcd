"""qbench quarantine: list a cell that is known to be bad in the quarantine file of its suite."""

import argparse
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from qbench.cli.command import Command, ExitCode
from qbench.cli.history_files import declare_history
from qbench.cli.options import declare_json, hinted
from qbench.cli.printing import print_json, put, say
from qbench.errors import InputError, unknown_name
from qbench.storage import toml_text, value_from_table, write_text

if TYPE_CHECKING:
    from qbench.judging import QuarantineEntry
    from qbench.suite import PlannedCell, Suite
    from qbench.tracking import CellRecord

_HEAD = """\
# Cells of the suite {suite} that are known to be bad. Each must fail while it is listed; an entry that has run out, or
# whose cell no longer fails, turns the run red.
"""


def declare(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``qbench quarantine``."""
    parser.add_argument(
        "cell",
        metavar="[SUITE::]CELL",
        help="the cell as a run prints it, model::backend+schema, where * matches anything; with the suite file in "
        "front where several suites of the folder suites have such a cell",
    )
    parser.add_argument("--reason", metavar="TEXT", required=True, help="why the cell is bad")
    parser.add_argument("--until", metavar="DAY", required=True, help="the last day of the entry, such as 2027-03-31")
    parser.add_argument("--owner", metavar="NAME", help="who is responsible (default: git's user.name)")
    parser.add_argument(
        "--measured", metavar="TEXT", help="what was measured (default: what failed in the last run of the cell)"
    )
    parser.add_argument(
        "--when",
        metavar="CLASS",
        action="append",
        default=[],
        help="only on this environment class or processor; repeatable (default: everywhere)",
    )
    declare_history(parser)
    declare_json(parser)


def execute(arguments: argparse.Namespace) -> ExitCode:
    """Add the entry to the file; what is in it stays as it is written.

    Raises:
        InputError: no such cell, an entry that would not be read, one that has run out, or one that is listed already.
        StoreError: the file cannot be written.
    """
    from qbench.judging import QuarantineEntry

    doing = f"Listing '{arguments.cell}' in quarantine"
    with hinted(arguments.extension):
        suite, planned, pattern = _find(arguments.cell, doing)
    _refuse_listed(suite, pattern, tuple(arguments.when), doing)
    about = [str(one.cell) for one in planned if fnmatchcase(str(one.cell), pattern)]
    given = {
        "cell": pattern,
        "measured": arguments.measured or _measured(suite.name, about, arguments.history, doing),
        "reason": arguments.reason.strip(),
        "owner": arguments.owner or _owner(doing),
        "expires": arguments.until,
    }
    entry = value_from_table(
        QuarantineEntry, {**given, **({"when": arguments.when} if arguments.when else {})}, "the options"
    )
    _refuse_expired(entry, doing)
    path = _add(suite, entry, doing)
    if arguments.json:
        print_json({"path": str(path), "cells": about, "entry": entry})
    else:
        put(f"{path}: {pattern} is in quarantine until {entry.expires} ({entry.owner}): {entry.measured}")
    return ExitCode.FINE


def _find(text: str, doing: str) -> "tuple[Suite, tuple[PlannedCell, ...], str]":
    """The suite of the cell ``text``, all its cells, and the pattern.

    Raises:
        InputError: a suite that cannot be read, no such cell, or one in several suites.
    """
    from qbench.suite import SUFFIX

    first, _, rest = text.partition("::")
    is_named = first.endswith(SUFFIX)
    paths = [Path(first)] if is_named else sorted(Path("suites").glob(f"*{SUFFIX}"))
    pattern = rest if is_named else text
    opened = [_opened(path) for path in paths]
    found = [(suite, planned) for suite, planned in opened if any(fnmatchcase(c, pattern) for c in _names(planned))]
    if len(found) == 1:
        return (*found[0], pattern)
    if found:
        raise InputError(
            doing,
            found=f"such a cell in {' and '.join(str(suite.path) for suite, _ in found)}",
            expected="one suite",
            remedy=f"Name it: '{found[0][0].path}::{pattern}'.",
        )
    if not opened:
        remedy = "Write the suite file in front of the cell, with '::' between them."
        raise InputError(doing, found=f"no suites/*{SUFFIX}", expected="the suite of the cell", remedy=remedy)
    raise unknown_name(doing, "cell", pattern, [name for _, planned in opened for name in _names(planned)])


def _opened(path: Path) -> "tuple[Suite, tuple[PlannedCell, ...]]":
    from qbench.suite import expand, gather, load_suite

    suite = load_suite(path)
    return suite, expand(suite, gather(suites=path.parent))


def _names(planned: "Iterable[PlannedCell]") -> Iterator[str]:
    return (str(one.cell) for one in planned)


def _refuse_listed(suite: "Suite", pattern: str, when: tuple[str, ...], doing: str) -> None:
    """Check that no entry of the same cells on the same computers is in the file: the first one would be used.

    Raises:
        InputError: there is one.
    """
    for place, entry in enumerate(suite.quarantine, start=1):
        listed = (entry.when,) if isinstance(entry.when, str) else entry.when or ()
        if entry.cell == pattern and (not listed or set(when) & set(listed) or not when):
            raise InputError(
                doing,
                found=f"it listed until {entry.expires} ({entry.owner}), item {place} of the file",
                expected="a cell that is not listed",
                remedy=f"Change that entry in '{_file(suite)}'.",
            )


def _refuse_expired(entry: "QuarantineEntry", doing: str) -> None:
    from qbench.host import utc_today

    if entry.expired(utc_today()):
        raise InputError(
            doing,
            found=f"--until {entry.expires}, which is past",
            expected="the last day on which the entry holds",
            remedy="Name a later day.",
        )


def _measured(suite: str, cells: list[str], folder: str, doing: str) -> str:
    """What failed in the last run of one of ``cells``, in words; a note where none did.

    Raises:
        InputError: the history has none.
    """
    from qbench.tracking import History

    history = History(Path(folder))
    for run in history.each(reversed(history.nights(suite))):
        records = [record for record in run.cells if str(record.cell) in cells and record.is_measured]
        if red := [text for record in records if (text := _failure(record))]:
            return red[0] + (f" (the first of {len(red)} cells)" if len(red) > 1 else "")
        if records:
            say(f"note: in its last run, {run.id}, no such cell failed; a listed cell that does not fail is red")
            break
    raise InputError(
        doing,
        found=f"no failed run of it in '{folder}'",
        expected="what was measured, in words",
        remedy='Add --measured "…", or run the suite first.',
    )


def _failure(record: "CellRecord") -> str:
    """The numbers of the first gate that fails the cell, without their statistics; empty where none does."""
    from qbench.judging import FAILING, GateState

    broken = (gate for gate in record.gates if gate.kind in FAILING and gate.state == GateState.BROKEN.value)
    return next((gate.detail.partition(";")[0] for gate in broken), "")


def _owner(doing: str) -> str:
    from qbench.host import git_user

    if name := git_user():
        return name
    raise InputError(
        doing, found="no user.name in git", expected="who is responsible for the entry", remedy='Add --owner "…".'
    )


def _file(suite: "Suite") -> Path:
    from qbench.suite import QUARANTINE_SUFFIX

    return suite.path.with_name(suite.name + QUARANTINE_SUFFIX)


def _add(suite: "Suite", entry: "QuarantineEntry", doing: str) -> Path:
    """Write ``entry`` behind the others; the path of the file.

    Raises:
        InputError: the file would not be TOML with it.
    """
    import tomllib

    path = _file(suite)
    before = path.read_text(encoding="utf-8") if path.exists() else _HEAD.format(suite=suite.name)
    text = f"{before.rstrip()}\n\n[[cell]]\n{toml_text(entry)}"
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:  # what is there was read before: cell = [ { … } ] takes no further table
        raise InputError(
            doing,
            found=f"that an entry cannot follow what is in '{path}' ({error})",
            expected="its entries as tables [[cell]]",
            remedy="Write them so, and the command again.",
        ) from error
    write_text(path, text)
    return path


COMMAND = Command(
    name="quarantine",
    summary="list a cell that is known to be bad, until a day, in the file of its suite",
    example="qbench quarantine 'net::ort-cpu+w4*' --reason '4 bits' --until 2027-03-31",
    declare=declare,
    execute=execute,
)
