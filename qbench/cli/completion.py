"""qbench completion: the words of the command line in the shell, by argcomplete.

The shell runs ``qbench`` at each TAB, so the words must be found quickly: names come from the
catalogues and the suite files, without importing a conftest.py, reading a model or starting an
engine.
"""

import argparse
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from qbench.cli.command import Command, ExitCode, takes_joined
from qbench.cli.export import FORMATS
from qbench.cli.history_files import DEFAULT_HISTORY
from qbench.cli.printing import print_commands
from qbench.errors import UnavailableError
from qbench.extension import install_command

SHELLS = ("bash", "zsh", "fish")
_SUITES, _ENDING = Path("suites"), ".qbench.toml"
_NEWEST = 20
"""Runs of the history that are offered."""
Words = Callable[[str], Iterable[str]]
"""The beginning of a word → possible words; the shell keeps those that begin like it."""


def declare(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``qbench completion``."""
    parser.add_argument(
        "shell",
        metavar="SHELL",
        choices=SHELLS,
        help="bash, zsh or fish, whose start-up file evaluates what is printed: "
        'eval "$(qbench completion bash)"; in fish: qbench completion fish | source',
    )


def execute(arguments: argparse.Namespace) -> ExitCode:
    """Print what the shell is to evaluate when it starts."""
    try:
        from argcomplete.shell_integration import shellcode
    except ModuleNotFoundError as error:
        raise UnavailableError(
            "Completing words in the shell",
            found="no argcomplete",
            expected="the extra 'completion'",
            remedy=f"Install it: {install_command('completion')}.",
        ) from error

    print_commands(shellcode(["qbench"], shell=arguments.shell).splitlines())
    return ExitCode.FINE


def complete(parser: argparse.ArgumentParser) -> None:
    """Answer the shell, which set ``_ARGCOMPLETE``, and end the process.

    Without argcomplete no word can be offered: the shell shows nothing that is written here.
    """
    try:
        import argcomplete
    except ModuleNotFoundError:
        raise SystemExit(1) from None

    for action in _actions(parser):
        if action.nargs != 0 and action.choices is None:
            words = _words_of(action)
            action.completer = lambda prefix, words=words, **_: list(words(prefix))  # type: ignore[attr-defined]
    argcomplete.autocomplete(parser, always_complete_options=False)


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to its options
        yield action
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for one in action.choices.values():
                yield from _actions(one)


def _words_of(action: argparse.Action) -> Words:
    """What ``action`` takes, by its place in the namespace; a path where nothing else is known."""
    if (
        action.metavar in ("N", "K", "R", "I/N", "SECONDS", "TEXT", "DAY", "TIME", "SHARE")
        and action.dest != "passes"
    ):
        return lambda _: ()
    if takes_joined(action) and action.dest in _NAMED_FILES:
        return _listed(f"{action.dest}s", ".toml")
    return _TAKEN.get(action.dest, _paths)


def _catalogue(kind: str) -> list[str]:
    from qbench.suite import gather

    return list(getattr(gather(suites=_SUITES), kind).names())


def _tables() -> Iterator[tuple[Path, dict[str, Any], list[dict[str, Any]]]]:
    """(path, ``[suite]``, its ``[[model]]`` tables) of each suite of this folder that is TOML."""
    import tomllib

    for path in sorted(_SUITES.glob(f"*{_ENDING}")):
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8"))
            models = [one for one in table.get("model", ()) if isinstance(one.get("id"), str)]
        except (OSError, ValueError, AttributeError):
            continue
        yield path, table.get("suite", {}), models


def _models(prefix: str) -> Iterator[str]:
    yield from (model["id"] for _, _, models in _tables() for model in models)
    yield from _catalogue("models")
    yield from _paths(prefix, ".onnx")


def _data(prefix: str) -> Iterator[str]:
    for _, _, models in _tables():
        for model in models:
            calibration = model.get("calibration")
            named = (
                model.get("data"),
                calibration.get("data") if isinstance(calibration, dict) else None,
            )
            yield from (name for name in named if isinstance(name, str))
    yield from _catalogue("datasets")
    form = "folder:"
    if prefix.startswith(form):
        yield from (form + path for path in _paths(prefix.removeprefix(form), "/"))
    else:
        yield form
        yield from _paths(prefix)


def _of(kind: str, ending: str = "") -> Words:
    """The names of ``kind``, and files with ``ending`` where one may be given instead."""
    return lambda prefix: (*_catalogue(kind), *(_paths(prefix, ending) if ending else ()))


def _arithmetics(prefix: str) -> Iterator[str]:
    """Those of the backends ``integer-…``: the catalogue of arithmetics itself loads numpy."""
    before = "integer-"
    yield from (
        name.removeprefix(before) for name in _catalogue("backends") if name.startswith(before)
    )
    yield from _paths(prefix, ".toml")


def _listed(kind: str, ending: str = "") -> Words:
    """The names of ``kind``, of which several may be written between commas, and files with
    ``ending`` where one may be given instead.
    """

    def words(prefix: str) -> Iterator[str]:
        before, _, last = prefix.rpartition(",")
        files = _paths(last, ending) if ending else ()
        return (f"{before},{name}" if before else name for name in (*_catalogue(kind), *files))

    return words


def _suites(prefix: str) -> Iterable[str]:
    return _paths(prefix or f"{_SUITES}/", _ENDING)


def _cells(prefix: str) -> Iterator[str]:
    """``model::backend+schema`` of the suites, as far as their tables name them; after a suite
    file, too.
    """
    for path, suite, models in _tables():
        before = f"{path}::" if prefix.startswith(f"{path}::") else ""
        for model in models:
            backends, schemas = (
                model.get(axis, suite.get(axis, ())) for axis in ("backends", "schemas")
            )
            yield from (
                f"{before}{model['id']}::{one}+{schema}"
                for one in backends
                for schema in ("fp32", *schemas)
            )


def _targets(prefix: str) -> Iterable[str]:
    return _cells(prefix) if "::" in prefix else _suites(prefix)


def _runs(prefix: str) -> Iterator[str]:
    from qbench.storage import paths_below

    yield from ("latest", "previous", "last-green", *_paths(prefix, ".jsonl"))
    files = (path.stem for path in paths_below(Path(DEFAULT_HISTORY), ".jsonl"))
    yield from sorted(files, reverse=True)[:_NEWEST]


def _paths(prefix: str, ending: str = "") -> Iterator[str]:
    """Folders, and files with ``ending``, that begin with ``prefix``; a folder ends with a
    slash.
    """
    folder, _, begun = prefix.rpartition("/")
    shown = prefix[: len(prefix) - len(begun)]
    try:
        found = sorted(Path(folder or ("/" if shown else ".")).iterdir())
    except OSError:
        return
    for path in found:
        if path.name.startswith(begun) and path.name.startswith(".") == begun.startswith("."):
            if path.is_dir():
                yield f"{shown}{path.name}/"
            elif path.name.endswith(ending):
                yield f"{shown}{path.name}"


_NAMED_FILES = ("backend", "schema")
"""Options whose values are names or files; some commands take several."""

_TAKEN: dict[str, Words] = {
    "model": _models,
    "fp32": _models,
    "data": _data,
    "calib": _data,
    "backend": _of("backends", ".toml"),
    "device": _of("backends", ".toml"),
    "arithmetic": _arithmetics,
    "machine": _arithmetics,
    "schema": _of("schemas", ".toml"),
    "format": lambda _: FORMATS,
    "metric": _of("metrics"),
    "metrics": _listed("metrics"),
    "passes": _listed("passes"),
    "faults": lambda _: (),  # their catalogue loads numpy
    "suite": _suites,
    "suites": _suites,
    "target": _targets,
    "cell": _cells,
    "runs": _runs,
    "old": _runs,
    "new": _runs,
    "compare": _runs,
}


COMMAND = Command(
    name="completion",
    summary="print what makes bash, zsh or fish complete the words of this program",
    example="qbench completion bash",
    declare=declare,
    execute=execute,
)
