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


class Parser(argparse.ArgumentParser):
    """A parser that names a mistyped option or command, and what is nearest to it.

    Its errors quote words of the command line, which may be names of files, as text alone.
    """

    _given: Sequence[str] = ()

    def parse_known_args(  # type: ignore[override]
        self,
        args: Sequence[str] | None = None,
        namespace: Any = None,  # noqa: ANN401 - as argparse has it
    ) -> tuple[Any, list[str]]:
        """As argparse, but what a command does not know is an error of that command, with its usage."""
        self._given = sys.argv[1:] if args is None else list(args)
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        """End the process with USAGE."""
        super().error(neutral_line(self._mistyped_option() or self._mistyped_command(message) or message))

    def _mistyped_option(self) -> str:
        """A sentence about the first option that does not exist; argparse names a missing one before it."""
        words = itertools.takewhile(lambda word: word != "--", self._given)
        if self._commands():  # options behind the command are of its own parser
            words = itertools.takewhile(lambda word: word.startswith("-"), words)
        for word in words:
            option = word.partition("=")[0]
            if option.startswith("--") and option not in self._option_string_actions:
                return f"unknown option '{option}'{self._suggestion(option, self._option_string_actions)}"
        return ""

    def _mistyped_command(self, message: str) -> str:
        found = re.search(r"invalid choice: '([^']*)'", message)
        if found is None or not self._commands():
            return ""
        return f"unknown command '{found[1]}'{self._suggestion(found[1], self._commands())}"

    def _suggestion(self, word: str, known: Iterable[str]) -> str:
        close = nearest(word, known, cutoff=0.7)
        return f"; did you mean '{close}'?" if close else f"; '{self.prog} --help' lists what there is"

    def _commands(self) -> tuple[str, ...]:
        """The commands below this parser; none of a parser of options."""
        actions = (action for action in self._actions if isinstance(action, argparse._SubParsersAction))  # noqa: SLF001
        return tuple(name for action in actions for name in action.choices)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command.

    Args:
        name: what is typed. summary: one line for the list of commands. example: shown below its help.
        declare: adds its arguments to its parser. execute: runs it and gives the exit code; what has a sentence is
            raised as a QbenchError.
    """

    name: str
    summary: str
    example: str
    declare: Callable[[argparse.ArgumentParser], None]
    execute: Callable[[argparse.Namespace], ExitCode]
