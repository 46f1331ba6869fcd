"""``qbench run``: measure and judge the cells of a suite, the same road as pytest, and write one run file."""

import argparse
import contextlib
import secrets
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbench.cli.command import Command, ExitCode
from qbench.cli.draw_report import KINDS, declare_output
from qbench.cli.history_files import declare_history
from qbench.cli.named_extensions import declare_extensions, hinted, named_extensions
from qbench.cli.printing import print_json, print_tones, put, say
from qbench.errors import InputError, QbenchError

if TYPE_CHECKING:
    from qbench.suite import Bench, PlannedCell, Settings, Suite
    from qbench.tracking import Run, RunWriter


def declare(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``qbench run``."""
    parser.add_argument("suite", metavar="SUITE", help="a suite file, suites/<name>.qbench.toml")
    parser.add_argument(
        "--select", metavar="E", default="", help="cells by axis: 'model=mobilenet_v2 backend=ort-*,onnx-reference'"
    )
    parser.add_argument("--shard", metavar="I/N", default="", help="the models of the I-th of N equal machines only")
    declare_extensions(parser)
    parser.add_argument("--baselines", metavar="DIR", default="baselines", help="folder of baselines")
    parser.add_argument("--cache", metavar="DIR", help="folder of the cache (default: the user's)")
    parser.add_argument("--limit", metavar="N", type=int, help="at most N samples of each data set; never accepted")
    declare_history(parser)
    parser.add_argument("--report", action="append", choices=KINDS, default=[], help="write a report; repeatable")
    declare_output(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")


def execute(arguments: argparse.Namespace) -> ExitCode:
    """Run, remember, report; INCOMPLETE after Ctrl-C, with everything kept that was measured.

    Raises:
        QbenchError: the suite is wrong, nothing is selected, or the history cannot be written.
    """
    from qbench.suite import Bench, Selection, Shard, expand, gather, load_suite
    from qbench.tracking import read_run

    shard = Shard.parse(arguments.shard)
    path = Path(arguments.suite)
    suite = load_suite(path)
    catalogues = gather(named_extensions(arguments.extension), suites=path.parent)
    with hinted(arguments.extension):
        planned = expand(suite, catalogues)
    selection = Selection.parse(arguments.select)
    chosen = [one for one in planned if selection.covers(one.cell) and shard.holds(one.cell.model)]
    if not chosen and planned and shard.text:
        say(f"nothing to run: no model that is selected falls to shard {shard.text}")
        return ExitCode.FINE
    if not chosen:
        raise InputError(
            f"Running '{path}'",
            found=f"no cell that '{arguments.select}' selects among {len(planned)}" if planned else "no cells",
            expected="at least one",
            remedy="Mend the selection; 'qbench doctor' lists what a suite holds.",
        )
    bench = Bench(suite, catalogues, _settings(arguments))
    with _opened(arguments, suite, len(planned), len(chosen)) as writer:
        _note_leftovers(suite, planned, Path(arguments.baselines), writer)
        code = _measure(bench, chosen, writer, planned=planned, limited=arguments.limit is not None)
    run = read_run(writer.path)
    _show(run, code, as_json=arguments.json)
    if arguments.report:
        _draw(arguments)
    return code


def _draw(arguments: argparse.Namespace) -> None:
    """Write the reports that were asked for, as ``qbench report`` writes them."""
    from qbench.cli.trend_files import equivalents_of
    from qbench.host import first_parents, utc_now
    from qbench.reporting import front_pages, read_memory, recent_runs, write_reports
    from qbench.tracking import ANNOTATIONS_FILE

    history, folder = Path(arguments.history), Path(arguments.output)
    recent = recent_runs(history, now=utc_now())
    parents = first_parents(".")
    same = equivalents_of({run.suite for run in recent.runs}, Path("suites"))
    notes = history / ANNOTATIONS_FILE
    memory = read_memory(recent.runs, Path(arguments.baselines), notes, parents=parents, equivalents=same)
    written = write_reports(recent.runs, folder, arguments.report, problems=recent.problems, memory=memory)
    for page in front_pages(written, folder):
        say(f"wrote {page}")


def _settings(arguments: argparse.Namespace) -> "Settings":
    from qbench.host import utc_today
    from qbench.storage import Cache
    from qbench.suite import Settings

    if arguments.limit is not None and arguments.limit < 1:
        raise InputError(
            "Reading --limit", found=str(arguments.limit), expected="a whole number from 1", remedy="Mend the option."
        )
    return Settings(
        baselines=Path(arguments.baselines),
        suite_path=arguments.suite,
        today=utc_today(),
        cache=Cache(Path(arguments.cache)) if arguments.cache else Cache.default(),
        limit=arguments.limit,
    )


def _opened(arguments: argparse.Namespace, suite: "Suite", planned: int, selected: int) -> "RunWriter":
    """The run file, begun with its ``run`` and ``environment`` lines.

    Raises:
        StoreError: the history cannot be written; better now than after an hour.
    """
    from qbench.host import utc_now
    from qbench.suite import Extent, Shard, describe_start

    start = describe_start(
        Extent(
            suite=suite.name,
            planned=planned,
            selected=selected,
            select=arguments.select,
            limit=arguments.limit,
            shard=Shard.parse(arguments.shard).text,
        ),
        Path(),
        started=utc_now(),
        token=secrets.token_hex(3),
    )
    return start.open(Path(arguments.history))


def _note_leftovers(suite: "Suite", planned: "Sequence[PlannedCell]", baselines: Path, writer: "RunWriter") -> None:
    from qbench.suite import SUFFIX
    from qbench.tracking import find_leftovers, leftover_notes, orphan_notes

    found = find_leftovers(baselines, suite.name, (one.cell for one in planned))
    for text in leftover_notes(found, str(suite.path)) + orphan_notes(baselines, suite.path.parent, SUFFIX):
        writer.write({"type": "note", "text": text})


def _measure(
    bench: "Bench",
    chosen: "Sequence[PlannedCell]",
    writer: "RunWriter",
    *,
    planned: "Sequence[PlannedCell]",
    limited: bool,
) -> ExitCode:
    """Every chosen cell, each written down as soon as it is judged; behind them, rules and entries without a use.

    ``planned``: every cell of the suite. ``limited``: over a part of the samples, which does not tell of entries.
    """
    from qbench.cli.progress import cell_progress
    from qbench.suite import idle_rule_errors, outgrown_entry_errors

    is_red = False
    lines = []
    try:
        _fetch(chosen)
        names = [f"{one.cell.suite}::{one.cell}" for one in chosen]
        with cell_progress(names, writer.path.parent) as progress:
            for one in chosen:
                progress.begin(str(one.cell))
                line, red = _one(bench, one)
                writer.write(line)
                lines.append(line)
                is_red = is_red or red
                progress.end(line, is_red=red)
    except KeyboardInterrupt:
        writer.write({"type": "note", "text": f"interrupted after {writer.cells} of {len(chosen)} selected cells"})
        say(f"interrupted; {writer.cells} of {len(chosen)} cells are kept in {writer.path}")
        return ExitCode.INCOMPLETE
    idle = idle_rule_errors(lines) if len(chosen) == len(planned) else ()
    if not limited:
        idle += outgrown_entry_errors(bench.suite, (one.cell for one in planned), lines)
    for sentence in idle:
        writer.write({"type": "note", "text": sentence})
        say(sentence)
        is_red = True
    code = ExitCode.GATE_FAILED if is_red else ExitCode.FINE
    writer.close(exit_code=code)
    return code


def _fetch(chosen: "Sequence[PlannedCell]") -> None:
    """Download what the cells need before they start, so that two bars never share a terminal."""
    from qbench.subjects import fetch_package, needed_packages

    names = {name for one in chosen for name in (one.model.id, one.model.data, one.calibration.data)}
    names |= {metric.partition("@")[2] for one in chosen for metric in one.model.metrics}
    for package in needed_packages(sorted(names)):
        with contextlib.suppress(QbenchError):  # the cells that need it say so, the others run
            fetch_package(package)


def _one(bench: "Bench", planned: "PlannedCell") -> tuple[dict[str, Any], bool]:
    """The line of one cell and whether it is red; a fault of ours is a red cell with its traceback, not the end."""
    from qbench.suite import JudgedCell

    try:
        judged = bench.run(planned)
    except Exception as error:  # the cells after it deserve their run
        traceback.print_exc()
        judged = JudgedCell.unmeasured(planned, error)
    return judged.line, judged.verdict.outcome.is_red


def _show(run: "Run", code: ExitCode, *, as_json: bool) -> None:
    if as_json:
        print_json({"run": run.id, "path": run.path, "exit_code": int(code), "cells": list(run.cells)})
    else:
        from qbench.reporting import styled_lines

        print_tones(lambda width, unicode: styled_lines(run, width, unicode=unicode))
        put(f"run file: {run.path}")


COMMAND = Command(
    name="run",
    summary="measure and judge the cells of a suite, the same road as pytest",
    example="qbench run suites/smoke.qbench.toml --select 'backend=ort-*' --report html",
    declare=declare,
    execute=execute,
)
