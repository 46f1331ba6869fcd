"""What to type next, from the remedies of red cells: commands that differ in their cell alone become one.

pytest "a" --qbench-accept=changed … , pytest "b" --qbench-accept=changed …  →  pytest "a" "b" --qbench-accept=changed …
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

TOGETHER = 3
"""Cells that one command names; more would not be read."""

_PYTEST = re.compile(r'pytest (?P<node>"[^"]+") (?P<rest>.*)')
_TOKEN = re.compile(r'"[^"]*"|\S+')


@dataclass(frozen=True, slots=True)
class Step:
    """A command to type (empty: there is none), words behind it, and how many more cells have a command like it."""

    command: str
    words: str = ""
    more: int = 0


def next_steps(remedies: Iterable[str]) -> tuple[Step, ...]:
    """The steps that ``remedies`` (a text for each cell, one or more cells a text) come down to, in their order."""
    nodes: dict[str, list[str]] = {}
    for remedy in remedies:
        found = _PYTEST.fullmatch(remedy)
        nodes.setdefault(found["rest"] if found else remedy, []).extend([found["node"]] if found else [])
    steps = []
    for rest, cells in nodes.items():
        text = f"pytest {' '.join(cells[:TOGETHER])} {rest}" if cells else rest
        command = _command(text)
        steps.append(Step(command, text[len(command) :].strip(), max(0, len(cells) - TOGETHER)))
    return tuple(steps)


def _command(text: str) -> str:
    """The command that ``text`` begins with, up to the first bare word that is no argument; empty where it has none."""
    end, options = 0, 0
    before = ""
    for token in _TOKEN.finditer(text):
        word = token[0]
        if not end and word not in ("pytest", "qbench"):
            return ""
        is_value = before.startswith("-") and "=" not in before
        is_argument = word.startswith(("-", '"')) or is_value
        if end and not is_argument and (options or text.startswith("pytest ")):
            break
        options += word.startswith("-")
        before, end = word, token.end()
    return text[:end]
