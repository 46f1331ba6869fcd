"""``--extension MODULE:NAME``: what the conftest of a folder adds to pytest, for commands that read no conftest."""

import argparse
import contextlib
import importlib
import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from qbench.errors import InputError
from qbench.extension import Extension

_FORM = re.compile(r"[\w.-]+:\w+")
_UNKNOWN = re.compile(r"unknown (model|dataset|backend|schema|metric) ")
HINT = "What a conftest.py adds needs --extension conftest:pytest_qbench_extension here."


def declare_extensions(parser: argparse.ArgumentParser) -> None:
    """``--extension MODULE:NAME``, repeatable."""
    parser.add_argument(
        "--extension",
        metavar="MODULE:NAME",
        action="append",
        default=[],
        help="an Extension, or a function that returns one, of a module in the current folder, such as "
        "conftest:pytest_qbench_extension; repeatable",
    )


def named_extensions(texts: Sequence[str]) -> tuple[Extension, ...]:
    """The extensions that ``texts`` (each ``MODULE:NAME``) name; the current folder stays importable for their parts.

    Raises:
        InputError: another form, no such module or name, a module that fails, or a value that is no extension.
    """
    return tuple(_named(text) for text in texts)


@contextlib.contextmanager
def hinted(texts: Sequence[str]) -> Iterator[None]:
    """Ends the error of an unknown name with ``HINT``, unless ``texts`` show that the option is known."""
    try:
        yield
    except InputError as error:
        if texts or not _UNKNOWN.match(error.found):
            raise
        remedy = f"{error.remedy} {HINT}"
        raise InputError(error.doing, found=error.found, expected=error.expected, remedy=remedy) from error


def with_hint(sentence: str, texts: Sequence[str]) -> str:
    """``sentence`` of an error as ``hinted`` ends it."""
    return f"{sentence} {HINT}" if not texts and re.search(f"found {_UNKNOWN.pattern}", sentence) else sentence


def _named(text: str) -> Extension:
    doing = f"Reading --extension '{text}'"
    if not _FORM.fullmatch(text):
        raise InputError(
            doing, found="another form", expected="MODULE:NAME", remedy="As in conftest:pytest_qbench_extension."
        )
    module, _, name = text.partition(":")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)  # and left there: factories import their parts when a name is used
    try:
        loaded = importlib.import_module(module)
        value = getattr(loaded, name, None)
        if inspect.isroutine(value):
            value = value(None) if inspect.signature(value).parameters else value()
    except Exception as error:  # it is their code: whatever it raises is about their file
        raise InputError(
            doing,
            found=f"{type(error).__name__}: {error}",
            expected=f"a module '{module}' that can be imported from '{folder}'",
            remedy="Run the command in the module's folder, or mend the module.",
        ) from error
    if isinstance(value, Extension):
        return value
    raise InputError(
        doing,
        found=f"no name '{name}'" if not hasattr(loaded, name) else f"a {type(value).__name__}",
        expected="a qbench.Extension, or a function that returns one",
        remedy=f"Mend the name, or what it stands for in '{module}'.",
    )
