"""The qbench program: parse, run one verb, turn an error into a sentence and an exit code."""

import argparse
import functools
import gc
import io
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from qbench.cli import (
    accept_run,
    backfill,
    completion,
    doctor,
    import_answers,
    init,
    list_names,
    quarantine,
    run,
    samples,
    stability,
)
from qbench.cli import bisect as bisect_actions
from qbench.cli import compare_runs as compare_files
from qbench.cli import diff as diff_sides
from qbench.cli import evaluate as evaluate_model
from qbench.cli import export as export_runs
from qbench.cli import fit as fit_parameters
from qbench.cli import history as history_actions
from qbench.cli import lint as lint_model
from qbench.cli import localize as localize_model
from qbench.cli import merge as merge_histories
from qbench.cli import optimizers as try_optimizers
from qbench.cli import partition as partition_model
from qbench.cli import plan as plan_night
from qbench.cli import profile as profile_model
from qbench.cli import prove as prove_suite
from qbench.cli import quantize as quantize_file
from qbench.cli import report as draw_report
from qbench.cli import rewrite as rewrite_model
from qbench.cli import sweep as sweep_model
from qbench.cli.command import Command, ExitCode, Parser, count_from_one
from qbench.cli.options import declare_extensions, extensions_of_command
from qbench.cli.printing import complain, say
from qbench.errors import QbenchError, refused_by_system
from qbench.extension import error_of_end, named_also, place_of
from qbench.host import ended_like_interrupted
from qbench.lazy import defer_sympy
from qbench.storage import neutral_text
from qbench.working import telling, working

COMMANDS: tuple[Command, ...] = (
    init.COMMAND,
    list_names.COMMAND,
    run.COMMAND,
    plan_night.COMMAND,
    evaluate_model.COMMAND,
    sweep_model.COMMAND,
    profile_model.COMMAND,
    quantize_file.COMMAND,
    fit_parameters.COMMAND,
    rewrite_model.COMMAND,
    localize_model.COMMAND,
    lint_model.COMMAND,
    try_optimizers.COMMAND,
    partition_model.COMMAND,
    compare_files.COMMAND,
    samples.COMMAND,
    import_answers.COMMAND,
    diff_sides.COMMAND,
    accept_run.COMMAND,
    stability.COMMAND,
    prove_suite.COMMAND,
    quarantine.COMMAND,
    merge_histories.COMMAND,
    draw_report.COMMAND,
    export_runs.COMMAND,
    history_actions.COMMAND,
    bisect_actions.COMMAND,
    backfill.COMMAND,
    doctor.COMMAND,
    completion.COMMAND,
)
_CODES = (
    "exit codes: 0 fine, 1 gate failed, 2 usage or bad input, 3 incomparable,\n  4 incomplete run"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command in ``argv`` (the process's own arguments when None); its exit code."""
    if "_ARGCOMPLETE" in os.environ and argv is None:  # a shell asks for the words that can follow
        completion.complete(build_parser())
    words = list(sys.argv[1:] if argv is None else argv)
    _write_what_the_terminal_lacks()
    defer_sympy()
    if words[:1] == ["help"]:  # help VERB is VERB --help
        words = [*words[1:], "--help"]
    try:
        code = _run(words, is_program=argv is None)
        # here, where a reader that has gone is expected; Python's own flush at exit complains
        sys.stdout.flush()
    except BrokenPipeError:
        code = _close_quietly()
    if argv is None:
        gc.freeze()  # the process ends: cycles need not be found, which takes seconds
    return code


def _run(words: Sequence[str], *, is_program: bool) -> int:
    """The exit code of ``words``; an error is one sentence on standard error.

    ``is_program``: this process is ``qbench`` itself, and not another program that calls it.

    Raises:
        BrokenPipeError: the reader of standard output has gone.
    """
    try:
        arguments = build_parser(words).parse_args(words)
    except SystemExit as request:
        # argparse ends the process for --help and for what it cannot read
        return int(request.code or 0)
    if is_program and arguments.verb == run.COMMAND.name:
        # its cells run code that can end the process
        from qbench.host import run_supervised

        return run_supervised(lambda: _performed(arguments), _ended_early)
    return _performed(arguments)


def _ended_early(how: str) -> ExitCode:
    """Say that the process that measured ended before the run did."""
    say(
        f"the run ended early: its process ended {how} before the last cell; what was measured is "
        "in the run file"
    )
    return ExitCode.INCOMPLETE


def _performed(arguments: argparse.Namespace) -> int:
    """Run the command in ``arguments``; its exit code."""
    try:
        with warnings.catch_warnings(), ended_like_interrupted():
            warnings.showwarning = _noting(warnings.showwarning)
            named = functools.partial(extensions_of_command, arguments.extension, Path.cwd())
            with _size_limits(arguments.size_limits), named_also(named), _told(arguments):
                code: ExitCode = arguments.execute(arguments)
    except QbenchError as error:
        say(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        say("interrupted")
        return ExitCode.INCOMPLETE
    except BrokenPipeError:
        raise
    except (OSError, MemoryError, RecursionError) as error:
        say(str(refused_by_system(f"Running 'qbench {arguments.verb}'", error)))
        return ExitCode.USAGE
    except BaseException as error:
        # code of users raised it, ended the process, or skipped itself by pytest.skip; what
        # qbench raised by mistake keeps its traceback
        if isinstance(error, Exception) and not place_of(error, Path.cwd()):
            raise
        say(str(error_of_end(f"Running 'qbench {arguments.verb}'", error)))
        return ExitCode.USAGE
    return int(code)


def build_parser(words: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """The parser of the whole program; None: with the options of every command.

    Otherwise it is for the command line ``words`` alone: a command that is not named there has no
    options. To declare those of all commands takes longer than most of what reads a file or two.
    """
    parser = Parser(
        prog="qbench",
        description=(
            "A bench for quantized neural networks: models × backends × schemas against stored "
            "fp32 baselines."
        ),
        epilog=f"'qbench help COMMAND' shows the options of a command; {' '.join(_CODES.split())}",
        allow_abbrev=False,
    )
    parser.add_argument("--version", "-V", action="version", version=_version())
    parser.add_argument(
        "--size-limits",
        metavar="N",
        type=count_from_one,
        help=(
            "open files up to N times as large as by default (docs/security.md); written before "
            "the command"
        ),
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        is_asked_for = words is None or command.name in words
        one = commands.add_parser(
            command.name,
            help=command.summary,
            description=f"{command.summary[0].upper()}{command.summary[1:]}.",
            epilog=f"example:\n  {command.example}\n\n{_CODES}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
            add_help=is_asked_for,
        )
        if not is_asked_for:
            continue
        command.declare(one)
        for verb in _innermost(one):
            declare_extensions(verb)
            if verb is not one:
                # an action, such as ``history show``, whose codes may have meanings of their own
                verb.epilog = verb.epilog or _CODES
                verb.formatter_class = argparse.RawDescriptionHelpFormatter
        one.set_defaults(execute=command.execute, verb=command.name)
    return parser


def _innermost(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    """``parser``, or the parsers of its actions (``history show``)."""
    actions = [
        action
        for action in parser._actions  # noqa: SLF001
        if isinstance(action, argparse._SubParsersAction)  # noqa: SLF001
    ]
    return [one for action in actions for one in action.choices.values()] or [parser]


def _size_limits(factor: int | None) -> AbstractContextManager[None]:
    if factor is None:
        return nullcontext()
    from qbench.storage import limits_times

    return limits_times(factor)


@contextmanager
def _told(arguments: argparse.Namespace) -> Iterator[None]:
    """Inside the block a log receives a line about the command every 30 s."""
    with ExitStack() as stack:
        if not sys.stderr.isatty():
            stack.enter_context(telling(complain))
        stack.enter_context(working(f"qbench {arguments.verb}"))
        yield


def _noting(plain: Callable[..., None]) -> Callable[..., None]:
    """``plain``, how Python shows a warning, for all but our own: they are a note of one line."""

    def show(message: Warning | str, category: type[Warning], *where: Any) -> None:  # noqa: ANN401 - file, line, stream
        if category.__module__.partition(".")[0] == "qbench":
            say(f"note: {message}")
        else:
            plain(neutral_text(str(message)), category, *where)

    return show


def _version() -> str:
    import qbench

    return f"qbench {qbench.__version__}"


def _write_what_the_terminal_lacks() -> None:
    """Let a character that the encoding of a stream lacks, such as … in Latin-1, be escaped and
    not be an error.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def _close_quietly() -> int:
    """The reader of our output has gone; Python would complain again when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 128 + int(getattr(signal, "SIGPIPE", 13))
