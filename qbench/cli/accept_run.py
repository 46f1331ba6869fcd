"""qbench accept: results of finished runs into the baselines."""

import argparse
import fnmatch
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbench.cli.command import Command, ExitCode
from qbench.cli.history_files import RUN_NAMES, declare_history, find_run
from qbench.cli.options import declare_baselines, declare_json
from qbench.cli.printing import print_columns, print_json, put, say
from qbench.errors import InputError, unknown_name
from qbench.number_text import counted
from qbench.storage import sweep_work_folder

if TYPE_CHECKING:
    from qbench.judging import Measurement
    from qbench.suite import Suite
    from qbench.tracking import Acceptance, AcceptedRow, Accepting, Baseline, Run

_NO = ("", "0", "false")
_NAMED = 3
"""Cells that one note names."""


@dataclass(frozen=True, slots=True)
class _Measured:
    """The measurements of one model in one run."""

    run: "Run"
    suite: "Suite"
    measurements: "list[Measurement]"


def declare(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``qbench accept``."""
    parser.add_argument("runs", nargs="*", metavar="RUN", help=f"each {RUN_NAMES}")
    parser.add_argument(
        "--rename",
        nargs=2,
        metavar=("OLD", "NEW"),
        help="move the accepted result of a renamed test with qbench_check: both node ids, as in "
        "'tests/test_net.py::test_int8'",
    )
    parser.add_argument(
        "--cell",
        metavar="GLOB",
        default="*",
        help="accept only cells that match, as in 'mobilenet_v2::ort-cpu+*'",
    )
    parser.add_argument(
        "--what",
        choices=("new", "improved", "changed", "all"),
        default="new",
        help="accept cells without an accepted result (new, default), better results, changed "
        "results, or new and changed (all)",
    )
    parser.add_argument(
        "--any-class",
        action="store_true",
        help="accept the results for every environment class that has no result of its own",
    )
    parser.add_argument(
        "--reason",
        metavar="TEXT",
        default="",
        help="why the results are accepted; required when a result is replaced",
    )
    declare_baselines(parser)
    parser.add_argument(
        "--suites", metavar="DIR", default="suites", help="folder of the suites (default: suites)"
    )
    declare_history(parser)
    declare_ci(parser)
    parser.add_argument("--dry-run", action="store_true", help="show the table and write nothing")
    declare_json(parser)


def declare_ci(parser: argparse.ArgumentParser) -> None:
    """Whether baselines may be written by a job."""
    parser.add_argument("--in-ci", action="store_true", help="accept although CI is set")


def execute(arguments: argparse.Namespace) -> ExitCode:
    """Work out every new baseline first, then write them all, each by what is there by then;
    print old → new.

    GATE_FAILED when a result that was asked for was refused; the others are accepted all the same.
    A cell that is listed as known bad is left out on purpose, unless ``--cell`` names it.

    Raises:
        IncompleteError: a run was interrupted, damaged or limited.
        InputError: a model has no baseline, a reason is missing, no cell is meant, or this is CI.
    """
    from qbench.tracking import Accepting, Scope

    _refuse_runs_and_names(arguments)
    refuse_in_ci(arguments.in_ci, os.environ)
    if arguments.rename:
        return _rename(arguments)
    accepting = Accepting(
        scope=Scope(arguments.what), reason=arguments.reason, for_any=arguments.any_class
    )
    folder = Path(arguments.baselines)
    measured: dict[tuple[str, str], list[_Measured]] = {}
    for text in arguments.runs:
        run = find_run(text, arguments.history)
        _note_ungated(run, arguments.cell)
        known = _suite(Path(arguments.suites), run)
        for model, measurements in _measured(run, arguments.cell).items():
            measured.setdefault((run.suite, model), []).append(_Measured(run, known, measurements))
    done = {
        key: _worked_out(folder, key[1], several, accepting) for key, several in measured.items()
    }
    for suite in {suite for suite, _ in measured}:
        sweep_work_folder(folder / suite)
    if not arguments.dry_run:
        for key, results in done.items():
            if any(result.rows for result in results):
                done[key] = _written(folder, *key, measured[key], accepting)
    _show(done, as_json=arguments.json)
    is_named = not set("*?[") & set(arguments.cell)
    results = [result for several in done.values() for result in several]
    every = (one for result in results for one in result.refusals)
    return (
        ExitCode.GATE_FAILED
        if any(is_named or not one.is_listed for one in every)
        else ExitCode.FINE
    )


def _refuse_runs_and_names(arguments: argparse.Namespace) -> None:
    """Refuse a command that names neither runs nor a renamed test, or both."""
    if bool(arguments.runs) == bool(arguments.rename):
        raise InputError(
            "Accepting results",
            found="runs and --rename" if arguments.runs else "no run",
            expected="runs whose results are accepted, or --rename OLD NEW",
            remedy="Name one of the two.",
        )


def _rename(arguments: argparse.Namespace) -> ExitCode:
    """Move the baseline of a test that was renamed.

    Raises:
        InputError: no baseline of the old name, or one of the new name.
        StoreError: it cannot be read or written.
    """
    from qbench.judging import CHECKS
    from qbench.suite import check_name
    from qbench.tracking import baseline_path, baselines_of_tests, move_baseline

    old, new = arguments.rename
    folder = Path(arguments.baselines)
    known = {one.test: one.path for one in baselines_of_tests(folder / CHECKS)}
    doing = f"Moving the accepted result of '{old}'"
    if old not in known:
        raise unknown_name(doing, "accepted test", old, known)
    if old == new:
        raise InputError(
            doing, found="the same name twice", expected="the new one", remedy="Name it second."
        )
    name = check_name(new)
    target = baseline_path(folder, CHECKS, name)
    if not arguments.dry_run:
        move_baseline(known[old], target, model=name, test=new)
    if arguments.json:
        print_json([{"old": old, "new": new, "from": str(known[old]), "to": str(target)}])
    else:
        put(f"moved {known[old]} to {target}")
    return ExitCode.FINE


def _note_ungated(run: "Run", pattern: str) -> None:
    """Say which results would be accepted although no gate judges them."""
    ungated = [
        cell
        for record in run.cells
        if record.ungated and fnmatch.fnmatchcase(cell := str(record.cell), pattern)
    ]
    if ungated:
        named = ", ".join(ungated[:_NAMED]) + (
            f" and {len(ungated) - _NAMED} more" if len(ungated) > _NAMED else ""
        )
        say(
            f"note: no gate judges the answers of {counted(len(ungated), 'cell')} of run {run.id}: "
            f"{named}"
        )


def _note_carried(run: "Run", pattern: str) -> None:
    """Say which results are not accepted because another run measured them."""
    carried = [
        one
        for one in run.cells
        if one.carried is not None and fnmatch.fnmatchcase(str(one.cell), pattern)
    ]
    runs = sorted({one.carried.run for one in carried if one.carried is not None})
    if carried:
        named = ", ".join(runs[:_NAMED]) + (
            f" and {len(runs) - _NAMED} more" if len(runs) > _NAMED else ""
        )
        say(
            f"note: {counted(len(carried), 'cell')} of run {run.id} carried over and not accepted: "
            f"accept them from the runs that measured them ({named})"
        )


def refuse_in_ci(allowed: bool, environment: Mapping[str, str]) -> None:
    """Check that this is not a job of continuous integration.

    Raises:
        InputError: it is, and that is not ``allowed``.
    """
    if not allowed and environment.get("CI", "").lower() not in _NO:
        raise InputError(
            "Accepting results",
            found="the environment variable CI",
            expected="a user, not a job of continuous integration",
            remedy="Add --in-ci to accept here.",
        )


def _measured(run: "Run", pattern: str) -> "Mapping[str, list[Measurement]]":
    """Model → the measurements of ``run`` whose cell ``pattern`` matches.

    Raises:
        IncompleteError: the run is not whole. InputError: the pattern matches no measured cell.
    """
    from qbench.tracking import demand_whole

    demand_whole(run)
    found: dict[str, list[Measurement]] = {}
    _note_carried(run, pattern)
    for record in run.cells:
        measurement = None if record.is_carried else record.measurement()
        if measurement is not None and fnmatch.fnmatchcase(str(measurement.cell), pattern):
            found.setdefault(measurement.cell.model, []).append(measurement)
    if not found:
        raise InputError(
            f"Accepting results of run '{run.id}'",
            found=f"no measured cell that matches '{pattern}' among {len(run.cells)}",
            expected="at least one",
            remedy=(
                "Cells are written model::backend+schema; 'qbench compare' and the report list "
                "them."
            ),
        )
    return found


def _worked_out(
    folder: Path, model: str, measured: "Sequence[_Measured]", accepting: "Accepting"
) -> "list[Acceptance]":
    """What the runs, one after the other, make of the baseline of ``model`` that is there."""
    results: list[Acceptance] = []
    baseline = _stored(folder, measured[0].run, model, measured[0].suite)
    for one in measured:
        results.append(_accept(baseline, one.measurements, accepting, one.suite))
        baseline = results[-1].baseline
    return results


def _written(
    folder: Path, suite: str, model: str, measured: "Sequence[_Measured]", accepting: "Accepting"
) -> "list[Acceptance]":
    """The same while no other process changes it, and written."""
    from qbench.tracking import baseline_path, changing_baseline

    with changing_baseline(baseline_path(folder, suite, model)) as change:
        results = _worked_out(folder, model, measured, accepting)
        if any(result.rows for result in results):
            change.save(results[-1].baseline)
    return results


def _suite(folder: Path, run: "Run") -> "Suite":
    from qbench.judging import CHECKS
    from qbench.suite import SUFFIX, check_suite, load_suite

    if run.suite == CHECKS:
        return check_suite()
    return load_suite(folder / f"{run.suite}{SUFFIX}")


def _stored(folder: Path, run: "Run", model: str, suite: "Suite") -> "Baseline":
    from qbench.suite import StoredBaselines

    baseline = StoredBaselines(folder, suite, replacing=False).get(model)
    if baseline is None:
        reference = suite.partners[model].id if model in suite.partners else model
        raise InputError(
            f"Accepting results of '{model}' from run '{run.id}'",
            found=f"no baseline of '{reference}' in '{folder / suite.name}'",
            expected="a stored fp32 reference, which a run file does not hold",
            remedy=f"Run {_reference_command(run.suite, _node(run, reference), 'new')}.",
        )
    return baseline


def _node(run: "Run", model: str) -> str:
    """What commands call ``model``: its test, where it is a check."""
    return next((one.test for one in run.cells if one.model == model and one.test), model)


def _accept(
    baseline: "Baseline", measured: "list[Measurement]", accepting: "Accepting", suite: "Suite"
) -> "Acceptance":
    from qbench.host import utc_today
    from qbench.tracking import accept_measurements

    try:
        return accept_measurements(
            baseline,
            measured,
            accepting=accepting,
            rules=suite.rules(baseline.model),
            quarantine=suite.quarantine,
            today=utc_today(),
            criterion=suite.criterion,
        )
    except InputError as error:  # its remedy names the option of pytest, not of this verb
        raise InputError(
            error.doing, found=error.found, expected=error.expected, remedy='Add --reason "…".'
        ) from error


def _show(done: "Mapping[tuple[str, str], list[Acceptance]]", *, as_json: bool) -> None:
    results = [result for several in done.values() for result in several]
    for notice in dict.fromkeys(text for result in results for text in result.notices):
        say(notice)
    for (suite, model), several in done.items():
        named = next((one.baseline.test for one in several), "") or model
        for refusal in (one for result in several for one in result.refusals):
            word = "left out" if refusal.is_listed else "not accepted"
            say(
                f"{word}: {model}::{refusal.cell}: "
                f"{_with_whole_command(refusal.reason, suite, named)}"
            )
    rows = []
    for (suite, model), several in done.items():
        rows += [(suite, model, row) for one in several for row in one.rows]
    if as_json:
        print_json([_facts(*row) for row in rows])
    else:
        _print_table([(model, row) for _, model, row in rows], results)


def _facts(suite: str, model: str, row: "AcceptedRow") -> dict[str, Any]:
    return {
        "suite": suite,
        "cell": f"{model}::{row.cell}",
        "environment_class": row.environment_class,
        "metric": row.metric,
        "old": row.old,
        "new": row.new,
        "out_of": row.out_of,
        "unit": row.unit,
    }


def _print_table(rows: "list[tuple[str, AcceptedRow]]", results: "list[Acceptance]") -> None:
    """Old → new, and how many were refused, left out, or are for another ``--what``."""
    from qbench.tracking import parts_text

    listed = sum(one.is_listed for result in results for one in result.refusals)
    refused = sum(len(result.refusals) for result in results) - listed
    new = sum(result.left_new for result in results)
    changed = sum(result.left_changed for result in results)
    if rows:
        table = [
            (
                f"{model}::{row.cell}",
                row.environment_class,
                row.metric,
                parts_text(row, row.old),
                parts_text(row, row.new),
            )
            for model, row in rows
        ]
        print_columns(table, ("cell", "class", "metric", "old", "new"))
    elif not refused:
        put(
            "nothing accepted"
            if new or changed
            else "nothing to accept: no result differs from its baseline"
        )
    _show_left(new, changed)
    if refused:
        what = "the others" if rows else "nothing"
        put(f"{what} accepted, {counted(refused, 'cell')} refused (the reasons are above)")
    if listed:
        put(f"{counted(listed, 'cell')} left out: listed as known bad")


def _with_whole_command(reason: str, suite: str, model: str) -> str:
    """``reason`` with a whole command where it names an option of pytest, which this command
    does not have.
    """
    return reason.replace(
        "(--qbench-accept-fp32)", f'({_reference_command(suite, model, "all")} --qbench-reason "…")'
    )


def _reference_command(suite: str, model: str, scope: str) -> str:
    from qbench.judging import CHECKS

    if suite == CHECKS:
        return f'pytest "{model}" --qbench-accept-fp32 --qbench-accept={scope}'
    return (
        f'pytest "suites/{suite}.qbench.toml::{model}" --qbench-accept-fp32 --qbench-accept={scope}'
    )


def _show_left(new: int, changed: int) -> None:
    """What another ``--what`` would take."""
    if new:
        put(f"{counted(new, 'result')} without an accepted result not accepted: use --what new")
    if changed:
        put(
            f"{counted(changed, 'result')} changed and not accepted: use --what changed --reason "
            '"…"'
        )


COMMAND = Command(
    name="accept",
    summary="write the results of finished runs into the baselines",
    example="qbench accept ci-artifact/run.jsonl --what new",
    declare=declare,
    execute=execute,
)
