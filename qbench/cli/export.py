"""qbench export: runs in other tools' formats, and a quantized model as a file of another
format, such as TFLite.
"""

import argparse
import itertools
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from qbench.cli.command import Command, ExitCode
from qbench.cli.history_files import RUN_NAMES, declare_history, find_run, open_history
from qbench.cli.printing import say
from qbench.errors import InputError, nearest

if TYPE_CHECKING:
    from qbench.tracking import History, Run

FORMATS = ("csv", "json", "junit", "github-benchmark", "bencher")
"""The formats of runs."""


def declare(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``qbench export``."""
    parser.add_argument(
        "runs",
        nargs="*",
        metavar="RUN",
        help=f"'all', or each {RUN_NAMES} (default: latest); or MODEL.onnx, for -o MODEL.tflite",
    )
    parser.add_argument(
        "--format",
        metavar=f"{{{','.join(FORMATS)}}}",
        help="csv, json: one row per metric; junit; github-benchmark: drops for "
        "customSmallerIsBetter; bencher: its BMF",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help=(
            "file to write (default: standard output); FILE.tflite, of a MODEL.onnx, needs no "
            "--format"
        ),
    )
    declare_history(parser)
    parser.add_argument("--suite", help="with 'all': only runs of this suite")


def execute(arguments: argparse.Namespace) -> ExitCode:
    """Write the file; INCOMPLETE when a run in it is not whole.

    Raises:
        InputError: there is no such run. UnsupportedError: the format lacks an operator of the
            model.
        UnavailableError: what writes the format is not installed.
        StoreError: the file cannot be written.
    """
    if _is_about_a_model(arguments):
        return _export_model(arguments)
    if arguments.format is not None and arguments.format not in FORMATS:
        near = nearest(arguments.format, FORMATS)
        raise InputError(
            "Exporting runs",
            found=f"--format {arguments.format}",
            expected=f"one of {', '.join(FORMATS)}",
            remedy=f"Did you mean '{near}'?" if near else "Choose one of these.",
        )
    if arguments.format is None:
        raise InputError(
            "Exporting runs",
            found="no --format",
            expected=f"one of {', '.join(FORMATS)}",
            remedy="Name the format of the file, such as --format csv.",
        )
    from qbench.reporting import export_pieces
    from qbench.storage import staged_files

    partial: dict[str, list[str]] = {}
    pieces = export_pieces(_noting(_chosen(arguments), partial), arguments.format)
    if arguments.output:
        path = Path(arguments.output)
        with (
            staged_files(path) as folder,
            (folder / path.name).open("w", encoding="utf-8", newline="") as file,
        ):
            file.writelines(pieces)
    else:
        sys.stdout.writelines(pieces)
    for what, names in partial.items():
        say(f"{what}: {', '.join(names)}")
    return ExitCode.INCOMPLETE if partial else ExitCode.FINE


def _is_about_a_model(arguments: argparse.Namespace) -> bool:
    """Whether an ONNX model is to be written, not runs: an input, the output or ``--format`` says
    so.
    """
    from qbench.extension import known_extensions
    from qbench.graph import format_catalogue

    if any(name.endswith(".onnx") for name in arguments.runs):
        return True
    if arguments.format in FORMATS:
        return False
    formats = format_catalogue(known_extensions()).names()
    named = (arguments.format, Path(arguments.output or "").suffix.removeprefix("."))
    return not {*formats}.isdisjoint(named)


def _export_model(arguments: argparse.Namespace) -> ExitCode:
    """Write one ONNX model as a file of another format with its own scales, zero points,
    weights and biases.
    """
    from qbench.extension import known_extensions
    from qbench.graph import format_catalogue, format_of_path, load_model
    from qbench.storage import staged_files

    given = arguments.runs[0] if arguments.runs else "no model"
    output, doing = Path(arguments.output or ""), f"Exporting '{given}'"
    target = format_of_path(output, doing)
    is_model = len(arguments.runs) == 1 and given.endswith(".onnx")
    suffixes = [f".{name}" for name in format_catalogue(known_extensions()).names()]
    if not is_model or target is None or arguments.format is not None:
        model = Path(given if is_model else "MODEL.onnx")
        wanted = output if target else model.with_suffix((suffixes or [".tflite"])[0])
        raise InputError(
            doing,
            found=_wrong_export(arguments),
            expected=(
                "one ONNX model, no --format, and a file that ends with "
                f"{' or '.join(suffixes) or '.tflite'}"
            ),
            remedy=f"Call 'qbench export {model} -o {wanted}'.",
        )
    written = target.write(load_model(Path(arguments.runs[0])))
    with staged_files(output) as folder:
        (folder / output.name).write_bytes(written.data)
    operators = f"{written.operators} operators, {written.in_float} of them in float32"
    say(f"wrote {output}: {len(written.data):,} bytes, {operators}")
    return ExitCode.FINE


def _wrong_export(arguments: argparse.Namespace) -> str:
    if arguments.format is not None:
        return f"--format {arguments.format}"
    if not arguments.output:
        return "no -o"
    if len(arguments.runs) != 1:
        return f"{len(arguments.runs)} inputs for '{arguments.output}'"
    if not arguments.runs[0].endswith(".onnx"):
        return f"'{arguments.runs[0]}', which is not an ONNX model"
    return f"-o {arguments.output}"


def _chosen(arguments: argparse.Namespace) -> "Iterator[Run]":
    """The runs that were asked for: those that are named are found now, those of ``all`` are
    read when they are due.
    """
    from qbench.reporting import EXPORT_KEYS

    names = arguments.runs or ["latest"]
    named = {
        text: find_run(text, arguments.history, EXPORT_KEYS) for text in names if text != "all"
    }
    for notice in (notice for run in named.values() for notice in run.notices):
        say(notice)
    history = open_history(arguments.history) if "all" in names else None
    return itertools.chain.from_iterable(
        [named[text]] if text in named else _each(history, arguments.suite) for text in names
    )


def _each(history: "History | None", suite: str | None) -> "Iterator[Run]":
    from qbench.reporting import EXPORT_KEYS
    from qbench.tracking import kept_keys

    if history is not None:
        yield from history.counted(suite, kept_keys(*EXPORT_KEYS))
        for sentence in (*history.problems, *history.clock_notices):
            say(sentence)


def _noting(runs: "Iterable[Run]", partial: dict[str, list[str]]) -> "Iterator[Run]":
    """``runs``; the ids of those that are not whole are added to ``partial``, below what they
    lack.
    """
    for run in runs:
        if not run.complete:
            what = (
                "interrupted, so cells are missing"
                if run.was_interrupted
                else "selected cells have no line"
            )
            partial.setdefault(what, []).append(run.id)
        yield run


COMMAND = Command(
    name="export",
    summary="write runs in other tools' formats, or a quantized model as TFLite",
    example="qbench export latest --format junit -o junit.xml",
    declare=declare,
    execute=execute,
)
