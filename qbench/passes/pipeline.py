"""A pipeline of passes as a value: printed, parsed, digested, ordered, admitted by a policy."""

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, fields
from graphlib import CycleError, TopologicalSorter

from qbench.errors import InputError, nearest
from qbench.extension import Catalogue
from qbench.passes.contract import Pass, Placed, Policy
from qbench.storage import digest_plain, table_from_value, toml_text, value_from_table

_ENTRY = re.compile(r"\s*(?P<name>[^\s{},]+)\s*(?P<table>\{[^{}]*\})?\s*(,|$)")


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Passes in the order they run.

    Raises:
        InputError: a pass is in it twice.
    """

    passes: tuple[Pass, ...]

    def __post_init__(self) -> None:
        names = [one.name for one in self.passes]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise InputError(
                "Making a pipeline",
                found=f"the pass '{twice}' {names.count(twice)} times",
                expected="every pass once: a pipeline runs until nothing changes",
                remedy="List it once.",
            )

    def __str__(self) -> str:
        return ", ".join(map(spelled, self.passes))

    @property
    def digest(self) -> str:
        """Of the passes, their settings and their order."""
        return digest_plain([[one.name, table_from_value(one)] for one in self.passes])

    def admitted(self, policy: Policy) -> "tuple[Pipeline, tuple[Pass, ...]]":
        """What of it runs under ``policy``, and what does not."""
        kept = tuple(one for one in self.passes if policy.admits(one.effect))
        return Pipeline(kept), tuple(one for one in self.passes if one not in kept)


def spelled(one: Pass) -> str:
    """A pass as pipelines write it."""
    settings = ", ".join(
        line for line in toml_text(one).splitlines() if not line.startswith("name = ")
    )
    return f"{one.name}{{{settings}}}" if settings else one.name


def parse_pipeline(text: str, passes: Catalogue[Pass]) -> Pipeline:
    """The pipeline that ``text`` spells, of passes that have a name; empty text, empty pipeline.

    Raises:
        InputError: an unknown pass or setting, one that is there twice, or a text that is not a
            pipeline.
    """
    found, place = [], 0
    while text[place:].strip():
        entry = _ENTRY.match(text, place)
        if entry is None:
            raise _unreadable(text, f"'{text[place:].strip()}'")
        found.append(
            _pass(
                passes.get(entry["name"], doing=f"Reading the pipeline '{text}'"),
                entry["table"],
                text,
            )
        )
        place = entry.end()
    return Pipeline(tuple(found))


def placed(standard: Iterable[Pass], outside: Iterable[Pass]) -> Pipeline:
    """The ``standard`` passes in their order, and those from ``outside`` where they want to be.

    Raises:
        InputError: a place behind or before an unknown pass, or places that form a circle.
    """
    own, added = tuple(standard), tuple(outside)
    by_name = {one.name: one for one in (*own, *added)}
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for index, one in enumerate(own):
        sorter.add(one.name, *(earlier.name for earlier in own[:index]))
    for one in added:
        after, before = (one.after, one.before) if isinstance(one, Placed) else ((), ())
        for name in (*after, *before):
            if name not in by_name:
                raise _misplaced(one, f"no pass called '{name}'")
        for name in after or (() if before else [earlier.name for earlier in own]):
            sorter.add(one.name, name)
        for name in before:
            sorter.add(name, one.name)
    try:
        return Pipeline(tuple(by_name[name] for name in sorter.static_order()))
    except CycleError as error:
        circle = [name for name in error.args[1] if name in {one.name for one in added}]
        raise _misplaced(
            by_name[circle[0]], f"a circle: {' → '.join(error.args[1][::-1])}"
        ) from error


# Former name of a setting → its name: suites and run files spell pipelines, so that old ones must
# stay readable.
_FORMER = {"machines": "arithmetics"}  # stored name


def _pass(default: Pass, table: str | None, text: str) -> Pass:
    if table is None:
        return default
    try:
        settings = tomllib.loads(f"settings = {table}")["settings"]
    except tomllib.TOMLDecodeError as error:
        raise _unreadable(text, f"{table} behind '{default.name}' ({error})") from error
    settings = {
        key if hasattr(default, key) else _FORMER.get(key, key): value
        for key, value in settings.items()
    }
    _require_settings(default, settings)
    where = f"the pass '{default.name}'"
    made = value_from_table(type(default), table_from_value(default) | settings, where)
    try:
        _ = made.effect  # follows from the settings, and need not make sense with these
    except ValueError as error:
        raise InputError(
            f"Reading {where}",
            found=str(error),
            expected="valid settings",
            remedy="Correct the pipeline.",
        ) from error
    return made


def _require_settings(default: Pass, settings: Iterable[str]) -> None:
    known = [one.name for one in fields(default) if one.init and one.name != "name"]  # type: ignore[arg-type]
    for key in settings:
        if key not in known:
            close = nearest(key, known)
            raise InputError(
                f"Reading the pass '{default.name}'",
                found=f"the setting '{key}'",
                expected=f"one of: {', '.join(known)}" if known else "none, for it has no settings",
                remedy=f"Did you mean '{close}'?" if close else "Leave it out.",
            )


def _unreadable(text: str, found: str) -> InputError:
    return InputError(
        f"Reading the pipeline '{text}'",
        found=found,
        expected=(
            "names of passes with commas between them, settings as in 'merge-requantize{steps = 1}'"
        ),
        remedy="Correct the text; 'qbench list passes' lists the passes.",
    )


def _misplaced(one: Pass, found: str) -> InputError:
    return InputError(
        f"Placing the pass '{one.name}' in the pipeline",
        found=found,
        expected="places before and behind known passes, in a possible order",
        remedy=f"Correct 'after' and 'before' of '{one.name}'.",
    )
