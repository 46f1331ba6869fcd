"""qbench samples: which samples a cell lost and gained, with the answers to each."""

import argparse
import fnmatch
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbench.cli.command import Command, ExitCode, count_from_one
from qbench.cli.history_files import (
    RUN_NAMES,
    declare_history,
    find_run,
    folder_around,
    open_history,
)
from qbench.cli.model_measurement import measure_model
from qbench.cli.options import (
    declare_backend,
    declare_cache,
    declare_calibration,
    declare_json,
    declare_metrics,
    declare_output,
    declare_ranges,
    declare_threads,
)
from qbench.cli.printing import print_json, put, say
from qbench.errors import InputError, unknown_name
from qbench.number_text import counted, percent, points
from qbench.storage import MOST_LISTED

if TYPE_CHECKING:
    from qbench.judging import Cell, ChangedSample, SampleChanges
    from qbench.metrics import AnswerPart
    from qbench.storage import Preview
    from qbench.tracking import Run

_PREVIEW = 120
"""Characters of what a sample is that a line shows."""


def declare(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``qbench samples``."""
    parser.add_argument(
        "cell",
        metavar="CELL",
        help="model::backend+schema[+variant] of the history, a pattern such as 'my_net::*', or a "
        "test with qbench_check such as 'tests/test_net.py::test_int8'; with --data an ONNX file "
        "or a model, which is measured now",
    )
    parser.add_argument(
        "--run",
        metavar="A",
        help=f"the run whose answers are shown: {RUN_NAMES} (default: the newest that measured the "
        "cell)",
    )
    parser.add_argument(
        "--with",
        dest="other",
        metavar="B",
        help="another run, whose answers are shown next to those of A",
    )
    parser.add_argument(
        "--most",
        metavar="N",
        type=count_from_one,
        help="show at most N samples of each data set, the largest change first (default: all that "
        "the run lists; 10 where the model is measured now)",
    )
    declare_history(parser)
    parser.add_argument(
        "--data", metavar="D", help="measure now, on these samples, as 'qbench eval' does"
    )
    declare_backend(parser)
    parser.add_argument(
        "--schema", metavar="S", help="with --data: the schema that is compared with fp32"
    )
    declare_calibration(parser)
    declare_ranges(parser)
    parser.add_argument(
        "--fp32", metavar="MODEL", help="with --data: the float model of one that came quantized"
    )
    declare_metrics(parser)
    declare_output(parser, "the graph's first")
    declare_threads(parser)
    declare_cache(parser)
    declare_json(parser)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listed:
    """The samples of one cell, ``run``: in words; ``other``: the run next to it and its samples."""

    cell: str
    run: str
    data: "Mapping[str, SampleChanges]"
    previews: "Mapping[tuple[str, str], Preview]" = field(default_factory=dict)
    other: str = ""
    other_data: "Mapping[str, SampleChanges]" = field(default_factory=dict)


def execute(arguments: argparse.Namespace) -> ExitCode:
    """Print the samples; nothing is judged.

    Raises:
        QbenchError: there is no such cell or run, or the model cannot be measured.
    """
    _refuse_idle(arguments)
    listed = [_measured(arguments)] if arguments.data else list(_remembered(arguments))
    if arguments.json:
        print_json([_table(one, arguments.most or MOST_LISTED) for one in listed])
        return ExitCode.FINE
    for number, one in enumerate(listed):
        if number:
            put()
        for line in _lines(one, arguments.most or MOST_LISTED):
            put(line)
    return ExitCode.FINE


_OF_RUNS = {"--run": "run", "--with": "other"}
_OF_MEASURING = {f"--{name}": name for name in ("schema", "calib", "ranges", "fp32", "metrics")}


def _refuse_idle(arguments: argparse.Namespace) -> None:
    """Refuse options of runs where the model is measured now, and those of measuring elsewhere."""
    idle, other = (_OF_RUNS, "with") if arguments.data else (_OF_MEASURING, "without")
    option = next((name for name, held in idle.items() if getattr(arguments, held)), None)
    if option is not None:
        raise InputError(
            f"Listing the lost and gained samples of '{arguments.cell}'",
            found=f"{option} {other} --data",
            expected="options of the history, or --data and options of measuring",
            remedy=f"Leave {option} out, or {'leave out' if arguments.data else 'add'} --data.",
        )


# Measured now.

_NOW = 10


def _measured(arguments: argparse.Namespace) -> _Listed:
    from qbench.evaluation import previews_of

    if not (arguments.schema or arguments.fp32):
        raise InputError(
            f"Listing the lost and gained samples of '{arguments.cell}'",
            found="--data without --schema or --fp32",
            expected="what is compared with fp32: a schema, or the float model of a quantized one",
            remedy="Name --schema, with --calib where it needs samples, or --fp32.",
        )
    values = {**vars(arguments), "model": arguments.cell, "python": None}
    values |= {"parts": False, "counters": False}
    values["most_samples"] = min(arguments.most or _NOW, MOST_LISTED)
    evaluated = measure_model(argparse.Namespace(**values))
    measured = evaluated.measured[-1]
    made = previews_of(evaluated.shared.subject, measured.samples, lambda *_: False)
    for problem in made.problems:
        say(problem)
    return _Listed(
        cell=str(measured.cell),
        run="measured now",
        data=measured.samples,
        previews={(digest, sample): preview for digest, sample, preview in made.found},
    )


# Out of the history.


def _remembered(arguments: argparse.Namespace) -> Iterator[_Listed]:
    doing = f"Listing the lost and gained samples of '{arguments.cell}'"
    if "::" not in arguments.cell:
        raise InputError(
            doing,
            found="the name of no cell, and no --data",
            expected="model::backend+schema of a history, or a model with --data and --schema",
            remedy="Name the cell ('qbench history list' shows runs), or add --data.",
        )
    pattern = _pattern(arguments.cell)
    run = _run_of(arguments, pattern, doing)
    other = None if arguments.other is None else find_run(arguments.other, arguments.history)
    samples = _samples_of(run)
    others = {} if other is None else _samples_of(other)
    reports = folder_around(arguments.history)
    for cell in _chosen(run, pattern, doing):
        data = samples.get(cell, {})
        yield _Listed(
            cell=str(cell),
            run=f"run {run.id}",
            data=data,
            previews=_kept_previews(reports, data),
            other="" if other is None else f"run {other.id}",
            other_data=others.get(cell, {}),
        )


def _pattern(written: str) -> str:
    """``written`` as a pattern of cells: those of a test, where it is the node id of one."""
    from qbench.suite import check_name

    return f"{check_name(written)}::*" if written.partition("::")[0].endswith(".py") else written


def _run_of(arguments: argparse.Namespace, pattern: str, doing: str) -> "Run":
    """The run that is named, else the newest that measured the cell."""
    if arguments.run is not None:
        return find_run(arguments.run, arguments.history)
    history = open_history(arguments.history)
    known: set[str] = set()
    for run in history.each(reversed(history.nights())):
        names = {str(record.cell) for record in run.cells if record.metrics}
        if any(fnmatch.fnmatchcase(name, pattern) for name in names):
            return run
        known |= names
    raise unknown_name(doing, "cell", arguments.cell, known)


def _samples_of(run: "Run") -> "Mapping[Cell, Mapping[str, SampleChanges]]":
    from qbench.tracking import read_samples

    found, unread = read_samples(run.samples)
    if unread:
        say(f"{counted(unread, 'line')} of samples of run {run.id} could not be read")
    return found


def _chosen(run: "Run", pattern: str, doing: str) -> "list[Cell]":
    cells = {str(record.cell): record.cell for record in run.cells if record.metrics}
    found = [cell for name, cell in cells.items() if fnmatch.fnmatchcase(name, pattern)]
    if not found:
        raise unknown_name(doing, "cell", pattern, cells)
    return found


def _kept_previews(
    reports: Path, data: "Mapping[str, SampleChanges]"
) -> "dict[tuple[str, str], Preview]":
    from qbench.storage import read_preview

    wanted = [
        (changes.digest, sample.id)
        for changes in data.values()
        if not changes.private
        for sample in changes.samples
    ]
    found = {one: read_preview(reports, *one) for one in wanted}
    return {one: preview for one, preview in found.items() if preview is not None}


# As text and as JSON.


def _lines(one: _Listed, most: int) -> Iterator[str]:
    if not one.data:
        yield (
            f"{one.cell}, {one.run}: no sample is listed: none was lost or gained, or the run "
            "listed none (--qbench-samples=0)"
        )
    for name, changes in one.data.items():
        yield (
            f"{one.cell} on {name}, {one.run}: {changes.lost} lost, {changes.gained} gained by "
            f"{changes.metric}; {counted(changes.changed, 'other answer')} in all"
        )
        if changes.private:
            yield "  private: samples have ids alone"
        for sample in changes.samples[:most]:
            yield from _sample_lines(one, name, changes, sample)
        left = changes.of_effect - min(len(changes.samples), most)
        if left > 0:
            yield f"  and {left} more"


def _sample_lines(
    one: _Listed, name: str, changes: "SampleChanges", sample: "ChangedSample"
) -> Iterator[str]:
    label = f", label {sample.label}" if sample.label else ""
    yield f"  {sample.effect} {sample.id}{label}{_change_words(changes, sample)}"
    preview = one.previews.get((changes.digest, sample.id))
    if preview is not None:
        text = " ".join(preview.text.split())
        yield f"    sample     {text[:_PREVIEW]}{'…' * (len(text) > _PREVIEW)}"
    rows = [("fp32", sample.fp32), ("quantized", sample.quantized)]
    for title, parts in rows:
        if parts:
            yield f"    {title:10} {_parts_text(parts)}"
    if one.other:
        there = one.other_data.get(name)
        same = (
            next((each for each in there.samples if each.id == sample.id), None) if there else None
        )
        words = "neither lost nor gained, or not listed"
        yield f"    {one.other}: {_parts_text(same.quantized) if same else words}"


def _change_words(changes: "SampleChanges", sample: "ChangedSample") -> str:
    if sample.values is not None:
        return f", {changes.metric} {sample.values[0]:.4g} → {sample.values[1]:.4g}"
    return "" if sample.change is None else f", {points(sample.change, 1)}"


def _parts_text(parts: "Iterable[AnswerPart]") -> str:
    return ", ".join(
        part.text if part.probability is None else f"{part.text} {percent(part.probability, 1)}"
        for part in parts
    )


def _table(one: _Listed, most: int) -> dict[str, Any]:
    def of(data: "Mapping[str, SampleChanges]") -> dict[str, Any]:
        return {
            name: asdict(changes) | {"samples": _rows(one, changes, changes.samples[:most])}
            for name, changes in data.items()
        }

    table = {"cell": one.cell, "run": one.run, "data": of(one.data)}
    if one.other:
        table |= {"other_run": one.other, "other_data": of(one.other_data)}
    return table


def _rows(
    one: _Listed, changes: "SampleChanges", samples: "Sequence[ChangedSample]"
) -> list[dict[str, Any]]:
    found = []
    for sample in samples:
        preview = one.previews.get((changes.digest, sample.id))
        found.append(asdict(sample) | {"preview": None if preview is None else preview.text})
    return found


COMMAND = Command(
    name="samples",
    summary="list the samples that a cell lost and gained, with the answers to each",
    example="qbench samples my_net::ort-cpu+w8a8_asym_pc --with previous",
    declare=declare,
    execute=execute,
)
