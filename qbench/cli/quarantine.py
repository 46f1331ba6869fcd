"""qbench quarantine: list a cell that is known to be bad in the quarantine file of its suite."""

import argparse
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from qbench.cli.command import Command, ExitCode
from qbench.cli.history_files import declare_history
from qbench.cli.options import declare_json, hinted
from qbench.cli.printing import print_json, put, say
from qbench.errors import InputError, unknown_name
from qbench.number_text import counted
from qbench.storage import toml_text, value_from_table

if TYPE_CHECKING:
    from qbench.judging import QuarantineEntry
    from qbench.suite import PlannedCell, Suite
    from qbench.tracking import CellRecord

_HEAD = (
    "# Cells of the suite {suite} that are known to be bad. Each must fail while it is listed; "
    "an entry that has run out, or\n"
    "# whose cell no longer fails, turns the run red.\n"
)


_ENTRY = re.compile(r"^\[\[cell\]\]", re.MULTILINE)
_TRAILING = re.compile(r"\n\s*\n(?:#[^\n]*\n?)+\Z")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_DIGITS = 6


def declare(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``qbench quarantine``."""
    parser.add_argument(
        "cell",
        metavar="[SUITE::]CELL",
        help="the cell as a run prints it, model::backend+schema, where * matches anything; with "
        "the suite file in front where several suites of the folder suites have such a cell",
    )
    parser.add_argument(
        "--reason",
        metavar="TEXT",
        help="why the cell is bad; an entry that lacks values needs none",
    )
    parser.add_argument(
        "--until", metavar="DAY", help="the last day of the entry, such as 2027-03-31"
    )
    parser.add_argument(
        "--owner", metavar="NAME", help="who is responsible (default: git's user.name)"
    )
    parser.add_argument(
        "--measured",
        metavar="TEXT",
        help="what was measured (default: what failed in the last run of the cell)",
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
    """Add the entry to the file, or the values that an entry of the same cells lacks; the rest
    stays as it is written.

    Raises:
        InputError: no such cell, an entry that would not be read, one that has run out, or one that
            is listed already.
        StoreError: the file cannot be read or written.
    """
    from qbench.storage import changing_file

    doing = f"Listing '{arguments.cell}' in quarantine"
    with hinted(arguments.extension):
        suite, planned, pattern = _find(arguments.cell, doing)
    about = [str(one.cell) for one in planned if fnmatchcase(str(one.cell), pattern)]
    path = _file(suite)
    with changing_file(path) as change:
        text = change.read()
        before = _HEAD.format(suite=suite.name) if text is None else text
        listed = _listed(before, path, pattern, tuple(arguments.when))
        when = tuple(arguments.when) if listed is None else listed[1].when
        failed = _failed(suite.name, about, when or None, arguments.history)
        if listed is None:
            entry = _entry(arguments, pattern, failed, doing)
            after = f"{before.rstrip()}\n\n[[cell]]\n{_entry_text(entry)}"
        else:
            place, entry = listed
            missing = _missing(failed.values, entry)
            if not missing:
                raise _listed_already(entry, place, path, doing)
            after = _with_values(before, place, missing)
            entry = replace(entry, values=_joined(entry.values, missing))
        _require_toml(after, path, doing)
        change.write(after)
    if arguments.json:
        print_json({"path": str(path), "cells": about, "entry": entry})
    else:
        cells = {cell for held in entry.values.values() for cell in held}
        what = (
            f"{counted(len(cells), 'cell')} with values" if cells else "no values: any fall passes"
        )
        put(
            f"{path}: {pattern} is in quarantine until {entry.expires} ({entry.owner}): "
            f"{entry.measured} ({what})"
        )
    return ExitCode.FINE


def _entry(
    arguments: argparse.Namespace, pattern: str, failed: "_Failed", doing: str
) -> "QuarantineEntry":
    """The new entry that the options say.

    Raises:
        InputError: an option is missing or wrong, nothing failed and nothing is said of what was
            measured, or the day is past.
    """
    from qbench.judging import QuarantineEntry

    for name in ("reason", "until"):
        if not getattr(arguments, name):
            raise InputError(
                doing,
                found=f"no --{name}",
                expected="why the cell is bad, and the last day of the entry",
                remedy=(
                    'Add --reason "…" --until 2027-03-31; only an entry that is there needs '
                    "neither."
                ),
            )
    given = {
        "cell": pattern,
        "measured": arguments.measured or failed.words(arguments.history, doing),
        "reason": arguments.reason.strip(),
        "owner": arguments.owner or _owner(doing),
        "expires": arguments.until,
        "values": failed.values,
    }
    entry = value_from_table(
        QuarantineEntry,
        {**given, **({"when": arguments.when} if arguments.when else {})},
        "the options",
    )
    _refuse_expired(entry, doing)
    return entry


def _missing(values: "_Values", entry: "QuarantineEntry") -> "_Values":
    """Those of ``values`` that ``entry`` has none of, in the same class."""
    kept = {
        name: {cell: held for cell, held in cells.items() if cell not in entry.values.get(name, {})}
        for name, cells in values.items()
    }
    return {name: cells for name, cells in kept.items() if cells}


def _joined(values: "_Values", more: "_Values") -> "_Values":
    return {name: {**values.get(name, {}), **more.get(name, {})} for name in (*values, *more)}


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
    found = [
        (suite, planned)
        for suite, planned in opened
        if any(fnmatchcase(c, pattern) for c in _names(planned))
    ]
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
        raise InputError(
            doing, found=f"no suites/*{SUFFIX}", expected="the suite of the cell", remedy=remedy
        )
    raise unknown_name(
        doing, "cell", pattern, [name for _, planned in opened for name in _names(planned)]
    )


def _opened(path: Path) -> "tuple[Suite, tuple[PlannedCell, ...]]":
    from qbench.suite import expand, gather, load_suite

    suite = load_suite(path)
    return suite, expand(suite, gather(suites=path.parent))


def _names(planned: "Iterable[PlannedCell]") -> Iterator[str]:
    return (str(one.cell) for one in planned)


def _listed(
    text: str, path: Path, pattern: str, when: tuple[str, ...]
) -> "tuple[int, QuarantineEntry] | None":
    """The entry of the same cells on the same computers in ``text``, and its place from 1;
    None: there is none.

    Raises:
        InputError: the file, as it is now, is not a quarantine file.
    """
    from qbench.storage import text_toml
    from qbench.suite import QuarantineText

    entries = QuarantineText.of(text_toml(text, path), path.name).cell
    for place, entry in enumerate(entries, start=1):
        listed = (entry.when,) if isinstance(entry.when, str) else entry.when or ()
        if entry.cell == pattern and (not listed or set(when) & set(listed) or not when):
            return place, entry
    return None


def _listed_already(entry: "QuarantineEntry", place: int, path: Path, doing: str) -> InputError:
    return InputError(
        doing,
        found=f"it listed until {entry.expires} ({entry.owner}), item {place} of the file",
        expected="a cell that is not listed, or one whose entry lacks the values of a failed run",
        remedy=f"Change that entry in '{path}'.",
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


_Values = Mapping[str, Mapping[str, Mapping[str, float]]]
"""Environment class or processor → cell → metric → value."""


@dataclass(frozen=True, slots=True)
class _Failed:
    """What failed in the last run of some cells.

    Args:
        texts: a sentence for each cell that failed.
        values: processor → cell → metric → value, of these.
        run: the run; empty: none.
    """

    texts: tuple[str, ...] = ()
    values: "_Values" = field(default_factory=dict)
    run: str = ""

    def words(self, folder: str, doing: str) -> str:
        """What failed, in words.

        Raises:
            InputError: nothing did.
        """
        if self.texts:
            return self.texts[0] + (
                f" (the first of {len(self.texts)} cells)" if len(self.texts) > 1 else ""
            )
        if self.run:
            say(
                f"note: in its last run, {self.run}, no such cell failed; a listed cell that does "
                "not fail is red"
            )
        raise InputError(
            doing,
            found=f"no failed run of it in '{folder}'",
            expected="what was measured, in words",
            remedy='Add --measured "…", or run the suite first.',
        )


def _failed(
    suite: str, cells: list[str], when: str | tuple[str, ...] | None, folder: str
) -> _Failed:
    """What failed in the last run that has one of ``cells`` in a class that ``when`` names;
    None: in any class.
    """
    from qbench.judging import EnvironmentClass
    from qbench.tracking import History, history_at

    history = History(history_at(folder))
    for run in history.each(reversed(history.nights(suite))):
        records = [
            (EnvironmentClass.parse(record.environment_class), record)
            for record in run.cells
            if str(record.cell) in cells and record.is_measured
        ]
        records = [
            (environment, record) for environment, record in records if environment.matches(when)
        ]
        if not records:
            continue
        texts = []
        values: dict[str, dict[str, dict[str, float]]] = {}
        for environment, record in records:
            text = _failure(record)
            if text:
                texts.append(text)
            if text or record.outcome == "quarantined":
                held = {
                    name: round(one.hits / one.out_of, _DIGITS)
                    for name, one in record.metrics.items()
                }
                values.setdefault(environment.hardware, {})[str(record.cell)] = held
        return _Failed(tuple(texts), values, run.id)
    return _Failed()


def _failure(record: "CellRecord") -> str:
    """The numbers of the first gate that fails the cell, without their statistics; empty where
    none does.
    """
    from qbench.judging import FAILING, GateState

    broken = (
        gate
        for gate in record.gates
        if gate.kind in FAILING and gate.state == GateState.BROKEN.value
    )
    return next((gate.detail.partition(";")[0] for gate in broken), "")


def _owner(doing: str) -> str:
    from qbench.host import git_user

    if name := git_user():
        return name
    raise InputError(
        doing,
        found="no user.name in git",
        expected="who is responsible for the entry",
        remedy='Add --owner "…".',
    )


def _file(suite: "Suite") -> Path:
    from qbench.suite import QUARANTINE_SUFFIX

    return suite.path.with_name(suite.name + QUARANTINE_SUFFIX)


def _entry_text(entry: "QuarantineEntry") -> str:
    """``entry`` as TOML, with a table for the values of each class and a line for those of each
    cell.
    """
    return toml_text(replace(entry, values={})) + "".join(
        f"\n{_header(name)}\n{_lines(cells)}" for name, cells in sorted(entry.values.items())
    )


def _header(name: str) -> str:
    """The header of the table with the values of the class ``name``."""
    return f"[cell.values.{name if _BARE.fullmatch(name) else json.dumps(name)}]"


def _lines(values: "Mapping[str, Mapping[str, float]]") -> str:
    lines = []
    for cell, held in sorted(values.items()):
        inside = ", ".join(
            f"{json.dumps(name)} = {value!r}" for name, value in sorted(held.items())
        )
        lines.append(f"{json.dumps(cell)} = {{ {inside} }}\n")
    return "".join(lines)


def _with_values(text: str, place: int, values: _Values) -> str:
    """``text`` with ``values`` in the entry at ``place``, from 1.

    Cells of a class that the entry has a table of go to its first lines; other tables after what
    the entry has.
    """
    starts = [found.start() for found in _ENTRY.finditer(text)]
    start, end = starts[place - 1], starts[place] if place < len(starts) else len(text)
    own = text[start:end].rstrip()
    comment = _TRAILING.search(own)  # what is written above the next entry
    if comment is not None and place < len(starts):
        own, end = own[: comment.start()].rstrip(), start + comment.start()
    for name, cells in sorted(values.items()):
        head = _header(name) + "\n"
        first, _, more = f"{own}\n".partition(f"\n{head}")
        own = f"{first.rstrip()}\n\n{head}{_lines(cells)}{more}".rstrip()
    rest = text[end:].lstrip("\n")
    return f"{text[:start]}{own}\n" + (f"\n{rest}" if rest else "")


def _require_toml(text: str, path: Path, doing: str) -> None:
    """Check that the file can be read with the entry in it.

    Raises:
        InputError: it cannot: its entries are written in a form that no table can follow.
    """
    import tomllib

    from qbench.suite import QuarantineText

    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        # what is there was read before: cell = [ { … } ] takes no further table
        raise InputError(
            doing,
            found=f"that an entry cannot follow what is in '{path}' ({error})",
            expected="its entries as tables [[cell]]",
            remedy="Write them so, and the command again.",
        ) from error
    QuarantineText.of(table, path.name)


COMMAND = Command(
    name="quarantine",
    summary="list a cell that is known to be bad, until a day, in the file of its suite",
    example="qbench quarantine 'net::ort-cpu+w4*' --reason '4 bits' --until 2027-03-31",
    declare=declare,
    execute=execute,
)
