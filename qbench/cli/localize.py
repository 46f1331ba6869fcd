"""qbench localize: which node of a quantized model goes wrong, why, and what repairs it."""

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbench.cli.command import Command, ExitCode, count_from_one
from qbench.cli.options import (
    check_outputs,
    choose_backend,
    choose_cache,
    choose_schema,
    declare_backend,
    declare_cache,
    declare_calibration,
    declare_data,
    declare_json,
    declare_metrics,
    declare_model,
    declare_output,
    declare_ranges,
    declare_threads,
    names_of,
    refuse_idle_rules,
    say_content_notes,
    say_notes,
    say_output,
    with_ranges_by_hand,
)
from qbench.cli.printing import print_columns, print_json, put, say
from qbench.errors import InputError
from qbench.number_text import MINUS, counted, rough_percent

if TYPE_CHECKING:
    from qbench.diagnosis import RepeatableCell
    from qbench.judging import (
        Errors,
        Finding,
        Measurement,
        MovedRange,
        NodeErrors,
        Repair,
        Verdict,
    )
    from qbench.quantization import Schema
    from qbench.subjects import ZooModel


# ``qbench localize``: from the arguments to a finding; nothing is printed here.


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalizedCell:
    """A cell that was run, judged and examined."""

    measurement: "Measurement"
    verdict: "Verdict"
    finding: "Finding"
    recalibration: "Recalibration | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalibration:
    """How the calibration of a cell differs from the accepted one.

    ``moved``: the values whose range is another one, in the order of the graph. ``now`` and
    ``before``: the samples of both in words; empty: not known.
    """

    moved: "tuple[MovedRange, ...]"
    now: str
    before: str


def localize_model(arguments: argparse.Namespace, report: Callable[[str], None]) -> LocalizedCell:
    """The finding on one model under one schema on one backend.

    Raises:
        QbenchError: the model, the data or the names are wrong, or the backend does not run it.
    """
    from qbench.diagnosis import (
        Budget,
        LocalizeOptions,
        check_replay,
        localize_verdict,
        samples_that_moved,
    )

    cell = _cell(arguments)
    if arguments.replay:
        check_replay(Path(arguments.replay), cell.identity())
    report("running the cell")
    measurement = cell.measured(cell.request.schema)
    say_content_notes(cell.request.shared)
    refuse_idle_rules(arguments.schema or "", arguments.model, measurement.idle_rules)
    _require_quantized(arguments, cell)
    recalibration = _recalibration(arguments, measurement)
    verdict = cell.judge(measurement)
    if recalibration is not None:
        verdict = replace(verdict, moved=recalibration.moved)
    options = LocalizeOptions(
        samples=arguments.samples,
        first=samples_that_moved(measurement),
        suspects=arguments.top,
        replay=Path(arguments.replay) if arguments.replay else None,
        output=arguments.output or "",
        in_float=measurement.executed_in_float,
        override=Path(arguments.overrides).stem if arguments.overrides else "",
    )
    # the budget begins here: it does not include the time of the cell itself
    budget = Budget.begin(arguments.budget, time.perf_counter)
    finding = localize_verdict(cell, verdict, budget, options=options, progress=report)
    return LocalizedCell(
        measurement=measurement, verdict=verdict, finding=finding, recalibration=recalibration
    )


def _recalibration(
    arguments: argparse.Namespace, measurement: "Measurement"
) -> Recalibration | None:
    """How the calibrated ranges of ``measurement`` differ from those of ``--baseline``; None:
    nothing is compared.

    Raises:
        InputError: the baseline has no ranges of this calibration.
    """
    from qbench.judging import Rules, moved_ranges
    from qbench.tracking import load_baseline

    if arguments.baseline is None:
        return None
    now, path = measurement.calibrated, Path(arguments.baseline)
    baseline = load_baseline(path)
    variant = arguments.variant or ""
    key = "" if now is None else "+".join(filter(None, (now.key, variant)))
    if now is None or key not in baseline.calibrations:
        known = ", ".join(f"'{name}'" for name in baseline.calibrations) or "none"
        raise InputError(
            f"Localising '{arguments.model}' by the baseline '{path}'",
            found=f"no accepted ranges of the calibration '{key}' in it (it has {known})",
            expected="a baseline of this model in which the calibration of the schema is accepted",
            remedy="Leave --baseline out, or name the --variant that has its own calibration.",
        )
    named = measurement.cell
    slug = "+".join(filter(None, (named.backend, named.schema, variant)))
    held = baseline.cells.get(slug)
    # results of every class of environment have the same calibration
    results = () if held is None else held.accepted.values()
    samples = (one.made["calibration"] for one in results if "calibration" in one.made)
    return Recalibration(
        moved=moved_ranges(baseline.calibrations[key], now.ranges, Rules().ranges),
        now=now.samples,
        before=next(samples, ""),
    )


_OF_SCHEMA = ("calib", "ranges", "overrides", "replay")


def _cell(arguments: argparse.Namespace) -> "RepeatableCell":
    from qbench.diagnosis import cell_without_suite
    from qbench.evaluation import build_subject, subject_artifacts
    from qbench.judging import Tolerance

    backend, schema = choose_backend(arguments.backend), None
    if arguments.schema:
        schema = with_ranges_by_hand(choose_schema(arguments.schema), arguments)
        _require_samples(arguments, schema)
    elif idle := [name for name in _OF_SCHEMA if getattr(arguments, name)]:
        raise InputError(
            f"Localising '{arguments.model}'",
            found=f"--fp32 with --{idle[0]}",
            expected=(
                "no settings of quantizing: the model is quantized already, and no schema can "
                "repair it"
            ),
            remedy=f"Leave --{idle[0]} out.",
        )
    subject = build_subject(
        arguments.fp32 or arguments.model,
        arguments.data,
        arguments.calib,
        names_of(arguments.metrics),
        arguments.calib_count,
        given=arguments.model if arguments.fp32 else None,
        output=arguments.output,
    )
    if subject.given is not None:
        subject = replace(subject, given=_in_pairs(subject.given, arguments.model))
    say_notes(subject.model, next(iter(subject.data.values())))
    say_output(subject.model)
    cache = choose_cache(arguments.cache)
    tolerance = (
        None if arguments.tolerance is None else Tolerance(arguments.tolerance, "--tolerance")
    )
    artifacts = subject_artifacts(subject, backend, cache)
    return cell_without_suite(
        artifacts, backend, schema, tolerance=tolerance, threads=arguments.threads
    )


def _in_pairs(given: "ZooModel", path: str) -> "ZooModel":
    """``given`` with Q/DQ pairs around each operator, by which its values are compared one by
    one.
    """
    from qbench.graph import Form, form_of
    from qbench.quantization import quantize_model, read_plan

    graphs = {name: load() for name, load in given.graphs.items()}
    if not {form_of(model) for model in graphs.values()} & {Form.QOPERATOR, Form.INTEGER}:
        return given
    say(f"'{path}' is in operator form and is converted to Q/DQ pairs first")
    made = {name: quantize_model(model, read_plan(model)) for name, model in graphs.items()}
    return replace(given, graphs={name: partial(made.__getitem__, name) for name in made})


def _require_samples(arguments: argparse.Namespace, schema: "Schema") -> None:
    if schema.needs_samples and not arguments.calib:
        raise InputError(
            f"Localising '{arguments.model}'",
            found="--schema without --calib",
            expected="calibration samples, which this schema needs",
            remedy="Name calibration data that are not scored, with --calib.",
        )


def _require_quantized(arguments: argparse.Namespace, cell: "RepeatableCell") -> None:
    schema = cell.request.schema
    # what came quantized, or another quantizer wrote, was checked when it was read
    if schema is None or schema.made_by is not None:
        return
    plans = cell.request.shared.quantized(schema, cell.request.backend.capabilities).plans
    if not any(plan.quantized_units for plan in plans.values()):
        raise InputError(
            f"Localising '{arguments.model}'",
            found=f"nothing of it is quantized under schema '{schema.name}'",
            expected=(
                "at least one quantized operator, because only changes by quantization are "
                "localized"
            ),
            remedy=(
                "Name another schema or model; 'qbench quantize --why' says why each operator "
                "stays in float."
            ),
        )


# ``qbench localize``: which node of a quantized model goes wrong, why, and what repairs it.

_HEADER = (
    "node",
    "in the run dB",
    "alone dB",
    "gain dB",
    "steps rms",
    "clipped",
    "ties",
    "operators",
)


def declare(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``qbench localize``."""
    declare_model(parser, "an ONNX file, float or with --fp32 quantized already")
    declare_backend(parser)
    quantized = parser.add_mutually_exclusive_group(required=True)
    quantized.add_argument(
        "--schema", metavar="S", help="quantize the model with this schema: a name or a .toml"
    )
    quantized.add_argument(
        "--fp32",
        metavar="MODEL",
        help="the float model that MODEL, which is quantized already, is compared with",
    )
    declare_data(parser, "scored samples", is_required=True)
    declare_calibration(parser)
    declare_ranges(parser)
    declare_metrics(parser)
    declare_output(parser, "the graph's first is judged, and noise is counted in all")
    parser.add_argument(
        "--baseline",
        metavar="FILE.json",
        help="the baseline of the model in its suite: which calibrated ranges are not as accepted",
    )
    parser.add_argument(
        "--variant",
        metavar="V",
        help="with --baseline, the variant of the suite, where it has its own calibration",
    )
    parser.add_argument(
        "--tolerance",
        metavar="R",
        type=_tolerance,
        help="largest loss relative to fp32 that passes (default: 0.005)",
    )
    parser.add_argument(
        "--samples",
        "--count",
        dest="samples",
        metavar="N",
        type=count_from_one,
        default=64,
        help="examine the nodes on N samples (default: 64)",
    )
    parser.add_argument(
        "--budget",
        metavar="SECONDS",
        type=_seconds,
        help="stop after so many seconds, not counting the run of the cell, and report what was "
        "found (default: no limit)",
    )
    parser.add_argument(
        "--top",
        metavar="K",
        type=count_from_one,
        default=5,
        help="number of nodes and causes in the report (default: 5)",
    )
    parser.add_argument(
        "--overrides",
        metavar="OUT.toml",
        help="write the schema that repairs the model to this file",
    )
    parser.add_argument(
        "--html", metavar="OUT.html", help="write the finding to this file as a page, node by node"
    )
    parser.add_argument(
        "--replay",
        metavar="FILE",
        help="keep in this file which nodes were tried in float, to continue later",
    )
    declare_threads(parser)
    declare_cache(parser)
    declare_json(parser)


def execute(arguments: argparse.Namespace) -> ExitCode:
    """Run, judge, examine, name causes, search a repair; print, and write the override file.

    Raises:
        QbenchError: the model, the data or the names are wrong, or the backend does not run it.
    """
    outputs = {
        "--overrides": arguments.overrides,
        "--html": arguments.html,
        "--replay": arguments.replay,
    }
    check_outputs(f"Localising '{arguments.model}'", outputs, (arguments.model, arguments.schema))
    if arguments.overrides and Path(arguments.overrides).suffix != ".toml":
        say("note: 'qbench eval --schema' takes a file whose name ends in .toml")
    found = localize_model(arguments, say)
    repair = found.finding.repair
    if arguments.overrides and repair is not None and repair.restores:
        from qbench.storage import write_text

        write_text(Path(arguments.overrides), repair.overrides)
    if arguments.html:
        _draw(found, Path(arguments.html))
    if arguments.json:
        print_json(_table(found))
    else:
        _print(found, arguments)
    return _code(found)


def _tolerance(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"found '{text}'; expected a number from 0 to below 1")
    return value


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"found '{text}'; expected seconds above 0")
    return value


def _code(found: "LocalizedCell") -> ExitCode:
    """0: the cell passed, whatever is suspected; 1: it failed, or was calibrated otherwise than
    accepted; 4: the budget ran out before a cause was found.
    """
    finding = found.finding
    repaired = finding.repair is not None and finding.repair.restores
    if (
        not finding.complete
        and not repaired
        and not any(suspect.remedy for suspect in finding.suspects)
    ):
        return ExitCode.INCOMPLETE
    is_recalibrated = found.recalibration is not None and bool(found.recalibration.moved)
    return ExitCode.GATE_FAILED if _fails(found) or is_recalibrated else ExitCode.FINE


def _fails(found: "LocalizedCell") -> bool:
    return found.verdict.outcome.is_red


def _draw(found: "LocalizedCell", path: Path) -> None:
    from qbench.judging import Cell
    from qbench.reporting import Found, finding_page
    from qbench.storage import write_text

    finding, verdict = found.finding, found.verdict
    page = finding_page(
        Found(
            key=Cell.as_written("", finding.model, finding.backend, finding.schema),
            finding=finding,
            outcome=verdict.outcome.value,
            is_red=verdict.outcome.is_red,
            judged=verdict.headline,
        )
    )
    write_text(path, page)


def _table(found: "LocalizedCell") -> dict[str, Any]:
    from qbench.storage import plain

    table: dict[str, Any] = plain(found.finding)
    judged = found.verdict
    verdict = {"outcome": judged.outcome.value, "headline": judged.headline, "rule": judged.rule}
    facts = {"verdict": verdict | {"ungated": judged.ungated}, "finding": table}
    if found.recalibration is not None:
        facts["calibration"] = plain(found.recalibration)
    return facts


def _print(found: "LocalizedCell", arguments: argparse.Namespace) -> None:
    finding, verdict = found.finding, found.verdict
    put(f"{finding.model} on {finding.backend} under {finding.schema}: {_judged(verdict)}")
    put(f"  {verdict.headline}")
    if found.recalibration is not None:
        _print_recalibration(found.recalibration, arguments.top)
    first, others = _important_notes(finding)
    for note in first:
        put(f"  {note}")
    put(f"examined on {counted(finding.samples, 'sample')}; {finding.matched}")
    put()
    worst: dict[str, NodeErrors] = {}
    for node in sorted(finding.nodes, key=lambda node: _order(node, finding)):
        worst.setdefault(node.node, node)  # the worst of several values of one node
    if worst:
        print_columns([_row(node) for node in list(worst.values())[: arguments.top]], _HEADER)
        put("steps: 0.289 is the error of ideal rounding")
        put()
    _print_suspects(finding)
    if finding.repair is not None and finding.repair.restores:
        _print_repair(found.measurement, finding.repair, arguments.overrides)
    if finding.unaligned:
        put()
        put(f"not compared with fp32: {counted(len(finding.unaligned), 'value')}")
        print_columns(
            [(f"  {one.value}", one.reason) for one in finding.unaligned[: arguments.top]]
        )
    for note in (*others, *_unwritten(found, arguments)):
        put(f"note: {note}")


def _print_recalibration(found: Recalibration, most: int) -> None:
    """Which calibrated ranges are not as accepted, before → after, and what to do."""
    moved = found.moved
    if not moved:
        put("calibrated ranges: as accepted")
        return
    put(f"calibration changed: {counted(len(moved), 'range')} moved since they were accepted")
    print_columns([(f"  {one.value}", one.text) for one in moved[:most]])
    if len(moved) > most:
        put(f"  and {len(moved) - most} more")
    both = found.now and found.before
    data = f" ({found.before}; now {found.now})" if both else ""
    put(f"  next: restore the accepted calibration data{data}, or accept the new ranges: run the")
    put('  suite with --qbench-accept=changed --qbench-reason "…"')


def _judged(verdict: "Verdict") -> str:
    """The outcome; where no gate judges the answers of the cell, the words say so and not that it
    passed.
    """
    if verdict.ungated and not verdict.outcome.is_red:
        return (
            "not judged: its metrics have no limit here, so nothing says whether these answers are "
            "good"
        )
    return verdict.outcome.value


def _important_notes(finding: "Finding") -> tuple[list[str], list[str]]:
    """The notes on what the whole answer rests on, and the others."""
    grave = ("the budget ran out", "WARNING")
    first = [note for note in finding.notes if note.startswith(grave)]
    return first, [note for note in finding.notes if note not in first]


def _unwritten(found: "LocalizedCell", arguments: argparse.Namespace) -> Iterator[str]:
    """The files that were asked for and that nothing was put into, and why."""
    repair, failed = found.finding.repair, _fails(found)
    why = (
        "no set of nodes is known to repair it"
        if failed
        else "the cell holds: there is nothing to repair"
    )
    if arguments.overrides and (repair is None or not repair.restores):
        yield f"--overrides: nothing was written; {why}"
    if arguments.replay and repair is None:
        yield f"--replay: nothing was written; {why}"


def _order(node: "NodeErrors", finding: "Finding") -> tuple[int, float, float, float]:
    """Suspects in their order, then what the engine counts otherwise, then what gives most in
    float, or is noisiest.
    """
    names = [suspect.node for suspect in finding.suspects]
    place = names.index(node.node) if node.node in names else len(names)
    alone = node.isolated or node.cumulative
    parted = 0.0 if node.claimed is None else node.claimed.rms_steps
    return (
        place,
        -parted,
        -(node.gain_db or 0.0),
        alone.sqnr_db if alone is not None else float("inf"),
    )


def _row(node: "NodeErrors") -> tuple[str, ...]:
    steps = None if node.isolated is None else node.isolated.steps
    # no qparams: nothing is clipped, and nothing is a tie
    is_real = node.isolated is not None and steps is None
    return (
        node.node,
        _decibels(node.cumulative),
        _decibels(node.isolated),
        "" if node.gain_db is None else f"{node.gain_db:+.2f}".replace("-", MINUS),
        "" if steps is None else f"{steps:.3f}",
        _clipped(node, is_real=is_real),
        "" if is_real else rough_percent(node.ties),
        " ".join(node.operators),
    )


def _clipped(node: "NodeErrors", *, is_real: bool) -> str:
    """The share of values beyond the codes of the result, and of weights beyond theirs where any
    are.
    """
    values = "" if is_real else rough_percent(node.clipped_low + node.clipped_high)
    weights = f"weights {rough_percent(node.clipped_weights)}" if node.clipped_weights else ""
    return ", ".join(filter(None, (values, weights)))


def _decibels(errors: "Errors | None") -> str:
    return "" if errors is None else f"{errors.sqnr_db:.1f}"


def _print_suspects(finding: "Finding") -> None:
    if not finding.suspects:
        put(finding.headline if finding.complete else "no node is suspected so far")
        return
    for suspect in finding.suspects:
        put(f"{suspect.node}: {suspect.cause.value}")
        put(f"  {suspect.evidence}")
        if suspect.remedy:
            put(f"  {suspect.remedy}")


def _print_repair(measurement: "Measurement", repair: "Repair", path: str | None) -> None:
    smallest = "no fewer do" if repair.smallest else "fewer may do"
    put()
    put(
        f"repaired by {counted(len(repair.nodes), 'operator')} in float ({smallest}): "
        f"{', '.join(repair.nodes)}"
    )
    share, tried = rough_percent(repair.macs_share), counted(repair.probes, "set")
    if not measurement.planned_share:
        left = f"{measurement.cell.backend} runs the multiply-accumulates in float already"
    elif measurement.weight_macs is None:
        left = f"{share} of the multiply-accumulates leave integers"
    else:
        left = f"{share} of the multiply-accumulates have weights of full precision again"
    put(f"  {left}; {tried} tried")
    put(f"  {repair.verdict}")
    if path:
        put(f"  wrote {path}: qbench eval … --schema {path}")
    else:
        put("  --overrides OUT.toml writes the schema")


COMMAND = Command(
    name="localize",
    summary="find the node that goes wrong when quantized, its cause, and a repair",
    example="qbench localize net.onnx --schema w8a8_asym_pt --data a.npz --calib b.npz",
    declare=declare,
    execute=execute,
)
