"""qbench stability: measure how far runs of the same code differ, once, and keep it with the
baselines.
"""

import argparse
import math
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbench.cli.accept_run import declare_ci, refuse_in_ci
from qbench.cli.command import Command, ExitCode
from qbench.cli.history_files import DEFAULT_HISTORY
from qbench.cli.options import declare_baselines, declare_cache, declare_json, suite_path
from qbench.cli.printing import print_columns, print_json, put, say
from qbench.cli.run import declare_selection, ended_early, options_of_plugin, show_progress
from qbench.errors import InputError
from qbench.number_text import counted, distance_text

if TYPE_CHECKING:
    from qbench.judging import Measurement, Repeats
    from qbench.suite import Suite
    from qbench.tracking import Run

_RUNS = 5


def declare(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``qbench stability``."""
    declare_selection(parser)
    parser.add_argument(
        "--repeats",
        metavar="N",
        type=int,
        default=_RUNS,
        help=(
            f"run each cell up to N times (default: {_RUNS}); twice where the second run gives the "
            "same answers"
        ),
    )
    declare_baselines(parser)
    declare_cache(parser)
    declare_ci(parser)
    parser.add_argument("--dry-run", action="store_true", help="show the table and write nothing")
    declare_json(parser)


def execute(arguments: argparse.Namespace) -> ExitCode:
    """Run every cell several times, and write what differs into the baselines of the models.

    GATE_FAILED where a cell could not be measured, or has no accepted result that its noise could
    be kept with.

    Raises:
        InputError: an impossible number of runs, nothing is selected, or this is CI.
        StoreError: a baseline cannot be written.
    """
    from qbench.plugin import run_suite
    from qbench.suite import Selection, Shard, load_suite

    if arguments.repeats < 2:
        raise InputError(
            "Reading --repeats",
            found=str(arguments.repeats),
            expected="a whole number from 2: one run alone shows no difference",
            remedy="Correct the option.",
        )
    if not arguments.dry_run:
        refuse_in_ci(arguments.in_ci, os.environ)
    Selection.parse(arguments.select)
    Shard.parse(arguments.shard)
    path = suite_path(arguments.suite)
    more = {"repeats": arguments.repeats, "history": "off", "missing": "warn", "localize": 0}
    options = options_of_plugin(arguments, more)
    done = run_suite(
        path, options, partial(show_progress, history=Path(DEFAULT_HISTORY)), Path.cwd()
    )
    if (code := ended_early(arguments, done)) is not None:
        return code
    assert done.run is not None
    if done.is_interrupted:
        say("interrupted; nothing was written")
        return ExitCode.INCOMPLETE
    return _kept(arguments, load_suite(path), done.run)


def _kept(arguments: argparse.Namespace, suite: "Suite", run: "Run") -> ExitCode:
    """Write what ``run`` measured into the baselines, and print it."""
    from qbench.judging import Outcome

    models: dict[str, list[Measurement]] = {}
    unmeasured = (Outcome.ERROR.value, Outcome.INFRA.value)
    broken = [record for record in run.cells if record.outcome in unmeasured]
    for record in run.cells:
        measurement = record.measurement()
        if measurement is not None and measurement.repeats is not None:
            models.setdefault(measurement.cell.model, []).append(measurement)
    refused: dict[str, str] = {}
    for model, measurements in models.items():
        refused |= _stored(
            Path(arguments.baselines), suite, model, measurements, writes=not arguments.dry_run
        )
    rows = [
        _facts(one, refused.get(str(one.cell), ""))
        for several in models.values()
        for one in several
    ]
    if arguments.json:
        print_json(rows)
    else:
        _print(rows, arguments)
    for record in broken:
        say(f"not measured: {record.model}::{record.backend}+{record.schema}: {record.headline}")
    return ExitCode.GATE_FAILED if broken or refused else ExitCode.FINE


def _stored(
    folder: Path, suite: "Suite", model: str, measurements: "list[Measurement]", *, writes: bool
) -> dict[str, str]:
    """Add the noise of ``measurements`` to the baseline of ``model``; cell → why its noise is
    not kept.
    """
    from qbench.suite import StoredBaselines
    from qbench.tracking import accept_noise

    stored = StoredBaselines(folder, suite, replacing=False)
    baseline = stored.own(model)
    if baseline is None or not writes:
        return accept_noise(baseline, measurements)[1]
    with stored.changing(model) as change:
        changed, refused = accept_noise(stored.own(model), measurements)
        if changed is not None:
            change.save(changed)
    return refused


def _facts(measurement: "Measurement", refused: str) -> dict[str, Any]:
    repeats = measurement.repeats
    assert repeats is not None
    return {
        "cell": str(measurement.cell),
        "environment_class": str(measurement.environment),
        "runs": repeats.runs,
        "differing": dict(repeats.differing),
        "flips": dict(repeats.flips),
        **_facts_of_metric(measurement, repeats),
        "kept": not refused,
        "why_not": refused,
    }


def _facts_of_metric(measurement: "Measurement", repeats: "Repeats") -> dict[str, Any]:
    """The counts of the first metric that was repeated; null where none was."""
    first = next((score for score in measurement.scores if score.metric in repeats.metrics), None)
    if first is None:
        return dict.fromkeys(("metric", "hits", "out_of", "deviation", "unit"))
    counts = repeats.metrics[first.metric]
    return {
        "metric": first.metric,
        "hits": list(counts.hits),
        "out_of": counts.out_of[0],
        "deviation": math.sqrt(counts.variance),
        "unit": first.unit,
    }


def _print(rows: list[dict[str, Any]], arguments: argparse.Namespace) -> None:
    table = [
        (row["cell"], str(row["runs"]), _differing(row), _spread(row), row["why_not"] or "yes")
        for row in rows
    ]
    print_columns(
        table, ("cell", "runs", "answers that differ", "standard deviation of a run", "kept")
    )
    noisy = sum(any(row["differing"].values()) for row in rows)
    kept = sum(row["kept"] for row in rows)
    where = "would be kept" if arguments.dry_run else "kept"
    put(
        f"{noisy} of {counted(len(rows), 'cell')} noisy; the noise of {kept} {where} in "
        f"'{arguments.baselines}'"
    )


def _differing(row: Mapping[str, Any]) -> str:
    found = [f"{count} of {data}" for data, count in row["differing"].items() if count]
    return ", ".join(found) or "none"


def _spread(row: Mapping[str, Any]) -> str:
    if row["metric"] is None:
        return "0"
    low, high = min(row["hits"]), max(row["hits"])
    return (
        f"{distance_text(row['deviation'], row['unit'])} ({row['metric']} {low} to {high} of "
        f"{row['out_of']})"
    )


COMMAND = Command(
    name="stability",
    summary="measure how far runs of a suite's cells differ, and keep it in the baselines",
    example="qbench stability suites/nightly.qbench.toml --select 'backend=my-engine'",
    declare=declare,
    execute=execute,
)
