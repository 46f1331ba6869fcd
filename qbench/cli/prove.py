"""qbench prove: put faults that happened into the models of a suite, and see what its gates let
through.
"""

import argparse
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from qbench.cli.command import Command, ExitCode, count_from_one
from qbench.cli.options import (
    check_outputs,
    choose_cache,
    declare_baselines,
    declare_cache,
    declare_json,
    duration,
    hinted,
    names_of,
    suite_path,
)
from qbench.cli.printing import print_columns, print_json, put, say
from qbench.cli.prove_on_workers import prove_on_workers
from qbench.cli.run import declare_workers
from qbench.errors import InputError
from qbench.number_text import counted
from qbench.storage import write_text
from qbench.working import working

if TYPE_CHECKING:
    from qbench.reporting import ProofTable
    from qbench.suite import ProofOptions, ProvenSuite
    from qbench.tracking import Proof, ProofEnd, ProofLine, ProofTrial, ResultFile

_PAGE, _MARKDOWN = "index.html", "prove.md"
"""Files of --report."""


def declare(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``qbench prove``."""
    parser.add_argument(
        "suite",
        nargs="?",
        metavar="SUITE",
        help="a suite file, suites/<name>.qbench.toml, or its name",
    )
    parser.add_argument(
        "--select",
        metavar="E",
        default="",
        help="cells by axis: 'model=mobilenet_v2 backend=ort-*,onnx-reference'",
    )
    parser.add_argument(
        "--faults",
        metavar="F,…",
        action="joined",
        default="",
        help="kinds of faults, as docs/faults.md names them (default: all)",
    )
    parser.add_argument(
        "--budget",
        metavar="TIME",
        type=duration,
        help="begin no trial after so long: 90s, 15m, 2h (default: no limit)",
    )
    parser.add_argument(
        "--trials", metavar="N", type=count_from_one, help="at most N trials (default: all)"
    )
    parser.add_argument(
        "--places",
        metavar="N",
        type=count_from_one,
        default=1,
        help="put each fault at N places of a cell (default: 1)",
    )
    parser.add_argument(
        "--seed",
        metavar="N",
        type=_seed,
        default=0,
        help="of the order of trials and of the places (default: 0)",
    )
    parser.add_argument(
        "--new-class",
        action="store_true",
        help="judge as in a class of environments without accepted results, as after an upgrade of "
        "the engine",
    )
    parser.add_argument(
        "--shard",
        metavar="I/N",
        default="",
        help="make only the trials of share I of N; N alone: I is that of the scheduler",
    )
    declare_workers(parser, "as many as the workers run at a time")
    parser.add_argument(
        "--detect",
        metavar="SHARE",
        type=_share,
        help="exit code 1 where less of the faults that change something is caught, such as 0.9",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE.jsonl",
        help="keep a line for each trial in this file (default: prove-SUITE.jsonl)",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="take the trials of that file and make the others",
    )
    parser.add_argument(
        "--merge",
        metavar="FILE",
        nargs="+",
        default=[],
        help="make no trial: join the files of several machines, and show what they found",
    )
    parser.add_argument(
        "--report", metavar="DIR", help=f"write {_PAGE} and {_MARKDOWN} into this folder"
    )
    declare_baselines(parser)
    declare_cache(parser)
    declare_json(parser)


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"found '{text}'; expected a whole number from 0")
    return int(text)


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"found '{text}'; expected a share from 0 to 1")
    return value


def execute(arguments: argparse.Namespace) -> ExitCode:
    """Make the trials, or join those of several files; print the table, write what is asked for.

    Raises:
        QbenchError: the suite or a name is wrong, no cell is green without a fault, or a file
            cannot be read or written.
    """
    table = _found(arguments)
    if arguments.json:
        from qbench.reporting import proof_facts

        print_json(proof_facts(table))
    else:
        _print_table(table)
    if arguments.report:
        _write_report(table, Path(arguments.report))
    return _code(table)


def _found(arguments: argparse.Namespace) -> "ProofTable":
    """The table of new trials, here or on workers, or of those in files."""
    from qbench.tracking import join_proof

    if arguments.merge:
        return _merged(arguments)
    if not (arguments.cluster or arguments.executor):
        _check_alone(arguments)
        return _proven(arguments)
    _check(arguments)
    lines, lacking = prove_on_workers(arguments, _options(arguments))
    return _table(arguments, lines, join_proof(lines).pending, lacking)


def _reports(arguments: argparse.Namespace) -> dict[str, str | None]:
    """What --report writes, to be checked before anything runs."""
    if not arguments.report:
        return {}
    folder = Path(arguments.report)
    folder.mkdir(parents=True, exist_ok=True)
    return {f"--report {name}": str(folder / name) for name in (_PAGE, _MARKDOWN)}


# Trials.


def _check_alone(arguments: argparse.Namespace) -> None:
    """Check that nothing is said of workers that are not named.

    Raises:
        InputError: something is.
    """
    given = {"--jobs": arguments.jobs, "--worker-folder": arguments.worker_folder}
    named = [option for option, value in given.items() if value]
    if named:
        raise InputError(
            "Proving a suite",
            found=f"{named[0]} without --cluster and --executor",
            expected="it next to one of them",
            remedy=f"Add --cluster local:2, or leave {named[0]} out.",
        )


def _check(arguments: argparse.Namespace) -> None:
    """Check that a suite is named.

    Raises:
        InputError: none is.
    """
    if arguments.suite is None:
        raise InputError(
            "Proving a suite",
            found="no SUITE, and no --merge",
            expected="a suite whose gates are tried, or files of trials to join",
            remedy="Name a suite: qbench prove suites/NAME.qbench.toml.",
        )


def _options(arguments: argparse.Namespace) -> "ProofOptions":
    from qbench.suite import ProofOptions, choose_share

    return ProofOptions(
        baselines=Path(arguments.baselines),
        select=arguments.select,
        shard=choose_share(arguments.shard, os.environ),
        faults=names_of(arguments.faults),
        seed=arguments.seed,
        places=arguments.places,
        new_class=arguments.new_class,
        cache=choose_cache(arguments.cache),
    )


def _proven(arguments: argparse.Namespace) -> "ProofTable":
    from qbench.suite import ProvenSuite
    from qbench.tracking import ProofEnd, ProofStart

    _check(arguments)
    began = time.monotonic()
    path, options = suite_path(arguments.suite), _options(arguments)
    with hinted(arguments.extension):
        proven = ProvenSuite(path, options)
    files = _file_of(arguments, proven.suite.name, path)
    kept = _kept(arguments, files, proven)

    def is_over() -> bool:
        return arguments.budget is not None and time.monotonic() - began > arguments.budget

    lines: list[ProofLine] = [proven.plan.start]
    files.add(proven.plan.start)
    run = proven.run(kept, is_over=is_over, most=arguments.trials)
    with working(f"proving {arguments.suite}") as step:
        for line in run.lines():
            lines.append(line)
            if isinstance(line, ProofStart | ProofEnd) or not line.kept:
                files.add(line)
                _tell(line)
            step.done = run.done
    files.add(ProofEnd(made=proven.plan.made, is_whole=run.is_whole))
    try:
        return _table(arguments, lines, run.untried)
    except InputError:
        if not kept.trials:
            files.path.unlink(missing_ok=True)  # else it refuses the next proof
        raise


def _file_of(arguments: argparse.Namespace, suite: str, path: Path) -> "ResultFile[ProofLine]":
    from qbench.tracking import proof_file

    output = Path(arguments.output or f"prove-{suite}.jsonl")
    outputs = {"--output": str(output), **_reports(arguments)}
    check_outputs(f"Proving '{arguments.suite}'", outputs, (str(path),))
    return proof_file(output)


def _kept(
    arguments: argparse.Namespace, files: "ResultFile[ProofLine]", proven: "ProvenSuite"
) -> "Proof":
    """The cells and trials of the file, where these are asked for."""
    from qbench.tracking import Proof, join_proof, lines_of_one

    found = files.read()  # also where they are not taken: nothing is added to another file
    if not arguments.resume:
        if found:
            raise InputError(
                f"Proving '{arguments.suite}'",
                found=f"results of an earlier run in '{files.path}'",
                expected="a new file, or --resume",
                remedy="Go on with --resume, or name another file: -o FILE.",
            )
        say(f"trials: {files.path} (--resume goes on from there)")
        return Proof()
    doing = f"Resuming the proof in '{files.path}'"
    kept = join_proof(lines_of_one([(files.path, found)], proven.plan.made, doing))
    say(f"trials: {files.path}, of which {counted(len(kept.trials), 'trial is', _MANY)} taken")
    return kept


_MANY = "trials are"


def _tell(line: "ProofLine") -> None:
    """One line about what is known by now, for a log."""
    from qbench.tracking import ProofCell, ProofTrial, TrialState

    if isinstance(line, ProofCell) and line.is_left_out:
        say(f"{line.cell} is left out: {line.outcome} without a fault: {line.headline}")
    if isinstance(line, ProofTrial) and line.state is TrialState.LET_THROUGH:
        say(f"{line.cell}: {line.fault} at {', '.join(line.sites)} is let through{_how(line)}")


def _how(trial: "ProofTrial") -> str:
    names = ", ".join(dict.fromkeys(one.name for one in trial.remedies))
    return f"; {names} would catch it" if names else ""


# Files of several machines.


def _merged(arguments: argparse.Namespace) -> "ProofTable":
    from qbench.tracking import (
        join_proof,
        lacking_of_proof,
        lines_of_one,
        proof_file,
        shares_ended,
    )

    doing = "Joining proofs"
    paths = [Path(text) for text in (arguments.suite, *arguments.merge) if text]
    for path in paths:
        if not path.is_file():
            raise InputError(
                doing,
                found=f"no file '{path}'",
                expected="files of trials that 'qbench prove' wrote",
                remedy="Check the path.",
            )
    outputs = {"--output": arguments.output, **_reports(arguments)}
    check_outputs(doing, outputs, map(str, paths))
    found = [(path, proof_file(path).read()) for path in paths]
    lines = lines_of_one(found, {}, doing)
    if not lines:
        raise InputError(
            doing,
            found="no trial in any of the files",
            expected="at least one",
            remedy="Check the paths.",
        )
    proof, ends = join_proof(lines), shares_ended(lines)
    if arguments.output:
        target = proof_file(Path(arguments.output))
        if target.read():
            raise InputError(
                doing,
                found=f"'{target.path}', which holds trials already",
                expected="a new file",
                remedy="Name another file: -o FILE.",
            )
        for line in _joined(proof, ends):
            target.add(line)
        say(f"wrote {target.path}")
    return _table(arguments, lines, proof.pending, lacking_of_proof(ends))


def _joined(proof: "Proof", ends: "Mapping[str, ProofEnd | None]") -> "Iterator[ProofLine]":
    """The lines of a file of ``proof``: the end of a share follows its start."""
    for start in proof.starts:
        yield start
        if (end := ends[start.shard]) is not None:
            yield end
    yield from proof.cells.values()
    yield from proof.trials


# What is shown.


def _table(
    arguments: argparse.Namespace,
    lines: "Sequence[ProofLine]",
    untried: tuple[str, ...],
    lacking: tuple[str, ...] = (),
) -> "ProofTable":
    """The table of ``lines``.

    Raises:
        InputError: no cell is green without a fault. A share may have none: all of them together
            have to have one.
    """
    from qbench.faults import CATALOGUE
    from qbench.reporting import proof_table
    from qbench.tracking import join_proof

    proof = join_proof(lines)
    measured = [one for one in proof.cells.values() if one.is_green is not None]
    if measured and not any(one.is_green for one in measured) and not arguments.shard:
        first = measured[0]
        raise InputError(
            f"Proving suite '{proof.starts[0].suite if proof.starts else arguments.suite}'",
            found=f"{counted(len(measured), 'cell')}, none of which is green without a fault; "
            f"{first.cell}: {first.outcome}: {first.headline}",
            expected="a green suite: what is red anyway shows nothing",
            remedy="Run the suite, and accept its results or correct it first.",
        )
    what = {name: fault.summary for name, fault in CATALOGUE.items()}
    return proof_table(proof, what, untried=untried, lacking=lacking, floor=arguments.detect)


def _print_table(table: "ProofTable") -> None:
    from qbench.reporting import PROOF_COLUMNS, how_text, proof_notes, share_sentence

    put(
        f"suite   {table.suite}: {table.green} of {counted(table.cells, 'cell')} used, green "
        "without a fault"
    )
    put(
        f"trials  {table.trials} of {counted(len(table.tallies), 'kind')} of faults, "
        f"{table.let_through} let through, {table.no_effect} without an effect on these samples"
    )
    put()
    if table.tallies:
        print_columns(
            [[column.text(one) for column in PROOF_COLUMNS] for one in table.tallies],
            [column.heading for column in PROOF_COLUMNS],
        )
        put()
    if table.remedies:
        put("what would catch what was let through, with one of the settings:")
        print_columns(
            [
                (f"  {one.name}", f"{count} of {table.let_through}", how_text(one), one.setting)
                for one, count in table.remedies
            ]
        )
        put()
    put(share_sentence(table))
    for note in proof_notes(table):
        put(f"note: {note}")


def _write_report(table: "ProofTable", folder: Path) -> None:
    from qbench.reporting import proof_markdown, proof_page

    write_text(folder / _PAGE, proof_page(table))
    write_text(folder / _MARKDOWN, proof_markdown(table))
    say(f"wrote {folder / _PAGE} and {folder / _MARKDOWN}")


def _code(table: "ProofTable") -> ExitCode:
    """4: shares are lacking, a kind was not tried once, or nothing shows the share that was asked
    for; 1: less was caught than asked for.
    """
    from qbench.reporting import share_sentence

    for words in table.lacking:
        say(f"not complete: {words}")
    if table.untried:
        say(
            f"not complete: {counted(len(table.untried), 'kind')} of faults not tried once "
            f"({', '.join(table.untried)}); --resume goes on"
        )
    if table.proves_nothing and table.floor is not None:
        say(f"not complete: {share_sentence(table)}")
        return ExitCode.INCOMPLETE
    if table.lacking or table.untried:
        return ExitCode.INCOMPLETE
    if table.is_below:
        return ExitCode.GATE_FAILED
    return ExitCode.FINE


COMMAND = Command(
    name="prove",
    summary="find which faults the gates of a suite let through, and what would help",
    example="qbench prove suites/smoke.qbench.toml --budget 10m --detect 0.9",
    declare=declare,
    execute=execute,
)
