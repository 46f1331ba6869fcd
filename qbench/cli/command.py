"""What a verb is, and the exit codes of all verbs."""

import argparse
import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

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
    """A parser whose errors quote words of the command line, which may be names of files, as text alone."""

    def error(self, message: str) -> NoReturn:
        """End the process with USAGE."""
        super().error(neutral_line(message))


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
