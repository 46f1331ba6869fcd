"""What a verb is, and the exit codes of all verbs."""

import argparse
import enum
import itertools
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from qbench.errors import nearest
from qbench.storage import neutral_line


class ExitCode(enum.IntEnum):
    """How ``qbench`` ends. pytest keeps its own codes."""

    FINE = 0
    GATE_FAILED = 1
    USAGE = 2
    INCOMPARABLE = 3
    INCOMPLETE = 4


def count_from_one(text: str) -> int:
    """What an option that counts is read with: a whole number from 1.

    Raises:
        ArgumentTypeError: it is not; argparse names the option and ends with USAGE.
    """
    if not (text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"found '{text}'; expected a whole number from 1")
    return int(text)


class _Once(argparse._StoreAction):  # noqa: SLF001 - argparse has no public class for it
    """An option with one value: giving it twice is an error, since either value could be meant."""

    def __call__(
        self,
        parser: Any,  # noqa: ANN401
        namespace: Any,  # noqa: ANN401
        values: Any,  # noqa: ANN401
        option_string: str | None = None,
    ) -> None:
        """Keep the value of the option."""
        if option_string is not None:
            parser.require_first(self, option_string, values)
        super().__call__(parser, namespace, values, option_string)


class _Joined(argparse._StoreAction):  # noqa: SLF001
    """An option with a text of values between commas; those of a repeated option are joined."""

    def __call__(
        self,
        parser: Any,  # noqa: ANN401
        namespace: Any,  # noqa: ANN401
        values: Any,  # noqa: ANN401
        option_string: str | None = None,
    ) -> None:
        """Keep the values of the option."""
        parser.keep(self, values)
        super().__call__(parser, namespace, ",".join(parser.given_before(self)), option_string)


class _Listed(argparse._AppendAction):  # noqa: SLF001
    """An option that adds to a list; one text may have several values, between commas.

    ``item`` reads one of them; ``among`` are those that are possible, if they can be listed.
    """

    def __init__(
        self,
        *args: Any,  # noqa: ANN401
        item: Callable[[str], Any] = str,
        among: Sequence[str] = (),
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        if among and "metavar" not in kwargs:
            kwargs["metavar"] = f"{{{','.join(among)}}}"
        super().__init__(*args, **kwargs)
        self._item = item
        self._among = among

    def __call__(
        self,
        parser: Any,  # noqa: ANN401
        namespace: Any,  # noqa: ANN401
        values: Any,  # noqa: ANN401
        option_string: str | None = None,
    ) -> None:
        """Add the values of the option."""
        for text in (part.strip() for part in values.split(",")):
            if self._among and text not in self._among:
                listed = ", ".join(f"'{one}'" for one in self._among)
                raise argparse.ArgumentError(
                    self, f"invalid choice: '{text}' (choose from {listed})"
                )
            try:
                value = self._item(text)
            except argparse.ArgumentTypeError as error:
                raise argparse.ArgumentError(self, str(error)) from None
            super().__call__(parser, namespace, value, option_string)


def takes_joined(action: argparse.Action) -> bool:
    """Whether ``action`` is an option with a text of values between commas."""
    return isinstance(action, _Joined)


_SEVERAL = {"backend": "backends", "schema": "schemas"}
"""Options that suites have several values of, by the key there."""
_ALIKE = (
    ("--samples", "--count", "--calib-count"),
    ("--samples", "--count", "--limit"),
    ("--report", "--format", "--kind"),
)
"""What verbs call by different words."""
_SCORES_ALL = (
    "; all samples of --data are scored: write fewer into a file, or 'qbench run --limit N' takes "
    "at most N of each data set of a suite"
)
"""Where verbs that score have no ``--limit``."""


def in_turn(kind: str) -> str:
    """What to do about several values of the option ``kind``, which takes one."""
    if kind not in _SEVERAL:
        return "Leave one of them out."
    return (
        f"Run the command once for each, or list them as {_SEVERAL[kind]} of a suite ('qbench "
        "init' writes one); 'qbench eval' and 'qbench sweep' take several."
    )


class Parser(argparse.ArgumentParser):
    """A parser that names a mistyped option or command, and what is nearest to it.

    An option with one value is given once. ``action="joined"`` is one with a text of values between
    commas, and ``action="listed"`` one that adds to a list; both may be repeated. Its errors quote
    words of the command line, which may be names of files, as text alone.
    """

    _given: Sequence[str] = ()

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(*args, **kwargs)
        self._values: dict[str, list[Any]] = {}
        for name in (None, "store"):
            self.register("action", name, _Once)
        self.register("action", "joined", _Joined)
        self.register("action", "listed", _Listed)

    def given_before(self, action: argparse.Action) -> list[Any]:
        """The values of the option ``action`` that were read so far."""
        return self._values.get(action.dest, [])

    def keep(self, action: argparse.Action, value: Any) -> None:  # noqa: ANN401
        """Remember that the option ``action`` was given with ``value``."""
        self._values.setdefault(action.dest, []).append(value)

    def require_first(self, action: argparse.Action, option: str, value: Any) -> None:  # noqa: ANN401
        """End the process with USAGE where the option ``action`` was given before."""
        if earlier := self.given_before(action):
            self.error(
                f"{option} was given twice, '{earlier[-1]}' and '{value}'; it takes one. "
                f"{in_turn(action.dest)}"
            )
        self.keep(action, value)

    def parse_known_args(  # type: ignore[override]
        self,
        args: Sequence[str] | None = None,
        namespace: Any = None,  # noqa: ANN401 - as argparse has it
    ) -> tuple[Any, list[str]]:
        """As argparse, but what a command does not know is an error of that command, with its
        usage.
        """
        self._given = sys.argv[1:] if args is None else list(args)
        self._values = {}
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(
                f"unrecognized arguments: {' '.join(unknown)}{self._with_commas(unknown[0])}"
            )
        return found, unknown

    def _with_commas(self, word: str) -> str:
        """How to write ``word`` if it follows values of an option that takes several; empty: it
        does not.
        """
        before = list(self._given[: self._given.index(word)]) if word in self._given else []
        option = next((one for one in reversed(before) if one.startswith("-")), "")
        if not isinstance(
            self._option_string_actions.get(option), _Joined | _Listed
        ) or word.startswith("-"):
            return ""
        return (
            f"; several values of {option} have commas between them: {option} {before[-1]},{word}"
        )

    def error(self, message: str) -> NoReturn:
        """End the process with USAGE."""
        super().error(
            neutral_line(self._mistyped_option() or self._mistyped_command(message) or message)
        )

    def _mistyped_option(self) -> str:
        """A sentence about the first option that does not exist; argparse names a missing one
        before it.
        """
        words = itertools.takewhile(lambda word: word != "--", self._given)
        if self._commands():  # options after the command are of its own parser
            words = itertools.takewhile(lambda word: word.startswith("-"), words)
        for word in words:
            option = word.partition("=")[0]
            if option.startswith("--") and option not in self._option_string_actions:
                return (
                    "unknown option "
                    f"'{option}'{self._suggestion(option, self._option_string_actions)}"
                )
        return ""

    def _mistyped_command(self, message: str) -> str:
        found = re.search(r"invalid choice: '([^']*)'", message)
        if found is None or not self._commands():
            return ""
        return f"unknown command '{found[1]}'{self._suggestion(found[1], self._commands())}"

    def _suggestion(self, word: str, known: Iterable[str]) -> str:
        known = list(known)
        alike = [one for group in _ALIKE if word in group for one in group if one in known]
        close = nearest(word, known, cutoff=0.7) or next(iter(alike), None)
        if word == "--limit" and not close and "--metrics" in known:
            return _SCORES_ALL
        return (
            f"; did you mean '{close}'?" if close else f"; '{self.prog} --help' lists what there is"
        )

    def _commands(self) -> tuple[str, ...]:
        """The commands below this parser; none of a parser of options."""
        actions = (
            action
            for action in self._actions
            if isinstance(action, argparse._SubParsersAction)  # noqa: SLF001
        )
        return tuple(name for action in actions for name in action.choices)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command.

    Args:
        name: what is typed.
        summary: one line for the list of commands.
        example: shown below its help.
        declare: adds its arguments to its parser.
        execute: runs it and gives the exit code; what has a sentence is raised as a QbenchError.
    """

    name: str
    summary: str
    example: str
    declare: Callable[[argparse.ArgumentParser], None]
    execute: Callable[[argparse.Namespace], ExitCode]
