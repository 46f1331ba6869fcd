"""qbench sweep: one model on several backends under several schemas: one table, and its fronts."""

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from qbench.cli.command import Command, ExitCode
from qbench.cli.options import (
    check_outputs,
    choose_backend,
    choose_cache,
    choose_schema,
    declare_backends,
    declare_cache,
    declare_calibration,
    declare_data,
    declare_json,
    declare_metrics,
    declare_model,
    declare_output,
    declare_ranges,
    declare_threads,
    duration,
    names_of,
    say_content_notes,
    say_notes,
    say_output,
    values_of,
    with_ranges_by_hand,
)
from qbench.cli.printing import print_columns, print_json, put, say
from qbench.cli.sweep_suite import PARETO, SuiteFiles, chosen_cells, mixture_files
from qbench.errors import InputError
from qbench.number_text import counted
from qbench.storage import write_bytes, write_text
from qbench.working import working

if TYPE_CHECKING:
    from qbench.backends import Backend
    from qbench.evaluation import SweepPlan
    from qbench.quantization import Schema
    from qbench.reporting import SweepTable
    from qbench.tracking import ResultFile, SweepCell

_SORTS = ("loss", "size", "time", "executed", "agreement", "name")
_COSTS = ("both", "bytes", "time", "integers")
"""Of ``diagnosis.mixed``, which is loaded where mixtures are asked for."""
_SCHEMAS = "w8a8_asym_pt,w8a8_asym_pc,w8a8_sym_pc,w8_sym_pc"
"""Without --schema."""


def declare(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``qbench sweep``."""
    declare_model(parser)
    declare_data(parser, "samples that cells are scored on", is_required=True)
    declare_calibration(parser)
    declare_backends(parser)
    parser.add_argument(
        "--schema",
        metavar="S,…",
        action="joined",
        default="",
        help=f"schemas to quantize with: names or .toml files (default: {_SCHEMAS})",
    )
    parser.add_argument(
        "--mixed",
        metavar="N",
        type=int,
        help="mix the schemas and float unit by unit, by what localization measures of each, and "
        "measure N such mixtures, too: --schema w4a8_asym_pc,w8a8_asym_pc",
    )
    parser.add_argument(
        "--mixed-cost",
        choices=_COSTS,
        default=_COSTS[0],
        help="what mixtures save: bytes of weights, time (bits times multiply-accumulates), both, "
        "or integers: as few multiply-accumulates in float as possible (default: both)",
    )
    parser.add_argument(
        "--mixed-drop",
        metavar="D",
        type=_drop,
        help="look for the coarsest mixture whose loss is at most D (percentage points of a share, "
        "else the unit of the metric), in at most N evaluations",
    )
    parser.add_argument(
        "--write-mixed",
        metavar="FOLDER",
        help="write each mixture as a schema file there, which quantize, eval and suites take",
    )
    declare_ranges(parser)
    declare_metrics(parser)
    declare_output(parser, "the graph's first")
    declare_threads(parser)
    parser.add_argument(
        "--sort", choices=_SORTS, default="loss", help="order of the rows (default: loss)"
    )
    parser.add_argument(
        "--budget",
        metavar="TIME",
        type=duration,
        help="begin no cell after so long: 90s, 15m, 2h; what is not measured is named, exit code "
        "4 (default: no limit)",
    )
    parser.add_argument(
        "--results",
        metavar="FILE",
        help="keep the result of each finished cell in this file (default: sweep-MODEL.jsonl)",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="take the results of finished cells out of that file and measure the others",
    )
    parser.add_argument("--plot", metavar="OUT.png", help="draw loss against size and time")
    parser.add_argument("--html", metavar="OUT.html", help="write charts and table as a page")
    parser.add_argument(
        "--write-suite",
        metavar="OUT.qbench.toml",
        help="write a suite of the chosen cells, and what it needs, that pytest runs",
    )
    parser.add_argument(
        "--choose",
        metavar="C,…",
        action="joined",
        default="",
        help="cells of --write-suite: pareto, pareto-size, pareto-time, pareto-float, all, or "
        f"names and patterns such as ort-cpu+w8a8_* (default: {PARETO})",
    )
    declare_cache(parser)
    declare_json(parser)


def _drop(text: str) -> float:
    """A number that is not below 0.

    Raises:
        ArgumentTypeError: it is none.
    """
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"found '{text}'; expected a number from 0 on")
    return number


def execute(arguments: argparse.Namespace) -> ExitCode:
    """Measure every cell once, print the table, write what is asked for.

    Raises:
        QbenchError: the model, the data or a name is wrong, or no cell can run.
    """
    began = time.monotonic()
    _refuse_mixed(arguments)
    files = _files(arguments)
    plan, drop = _plan(arguments, files)
    mixtures = _mixture_files(arguments, plan.schemas)
    suite = SuiteFiles(arguments, plan, mixtures) if arguments.write_suite else None
    made = plan.made()
    kept = _kept(arguments, files, made)
    if drop is not None:
        kept |= drop.taken(plan)
    cells = _measured(arguments, plan, (made, kept), files, began)
    say_content_notes(plan.shared)
    _refuse_all_refused(arguments, cells)
    table = _table(arguments, cells)
    if arguments.json:
        from qbench.reporting import sweep_facts

        facts = sweep_facts(table)
        if drop is not None:
            facts["coarsest_within_drop"] = drop.best_name
        print_json(facts)
    else:
        _print_table(table)
    _write_pictures(arguments, table)
    if suite is not None:
        for line in suite.write(chosen_cells(arguments.choose or PARETO, table)):
            say(line)
    return _code(table, files)


def _doing(arguments: argparse.Namespace) -> str:
    return f"Sweeping '{arguments.model}'"


def _files(arguments: argparse.Namespace) -> "ResultFile[SweepCell]":
    """The file of results; every file that is to be written is checked before anything runs."""
    from qbench.tracking import sweep_file

    stem = Path(arguments.model).stem or "model"
    path = Path(arguments.results or f"sweep-{stem}.jsonl")
    if arguments.plot and not arguments.plot.endswith(".png"):
        raise InputError(
            _doing(arguments),
            found=f"--plot '{arguments.plot}'",
            expected="a file that ends in .png",
            remedy="Rename it; --html FILE writes a page.",
        )
    if arguments.choose and not arguments.write_suite:
        raise InputError(
            _doing(arguments),
            found="--choose without --write-suite",
            expected="both: the cells that are chosen are those of a suite",
            remedy="Name the suite: --write-suite suites/NAME.qbench.toml.",
        )
    inputs = (arguments.model, arguments.data, arguments.calib, arguments.ranges)
    outputs = {
        "--results": str(path),
        "--plot": arguments.plot,
        "--html": arguments.html,
        "--write-suite": arguments.write_suite,
    }
    check_outputs(_doing(arguments), outputs, inputs)
    return sweep_file(path)


def _plan(
    arguments: argparse.Namespace, files: "ResultFile[SweepCell]"
) -> "tuple[SweepPlan, _Drop | None]":
    """The cells, whose names are all known, and what a search for a mixture within a drop
    measured; the subject is read once.
    """
    import qbench
    from qbench.backends import get_backend
    from qbench.evaluation import (
        FLOAT_BACKEND,
        SubjectArtifacts,
        SweepPlan,
        build_subject,
        environment_here,
    )

    backends = [choose_backend(text) for text in _backend_texts(arguments)]
    schemas = [
        with_ranges_by_hand(choose_schema(text), arguments) for text in _schema_texts(arguments)
    ]
    _refuse_same_name(arguments, "backend", [one.name for one in backends])
    _refuse_same_name(arguments, "schema", [one.name for one in schemas])
    _refuse_without_samples(arguments, schemas)
    subject = build_subject(
        arguments.model,
        arguments.data,
        arguments.calib,
        names_of(arguments.metrics),
        arguments.calib_count,
        output=arguments.output,
    )
    say_notes(subject.model, next(iter(subject.data.values())))
    say_output(subject.model)
    floats = get_backend(FLOAT_BACKEND)
    shared = SubjectArtifacts(
        subject, choose_cache(arguments.cache), floats, str(environment_here(floats))
    )
    shared.require_float()
    plan = SweepPlan(
        shared=shared,
        backends=backends,
        schemas=schemas,
        version=qbench.__version__,
        threads=arguments.threads,
    )
    if not arguments.mixed:
        return plan, None
    drop = None
    if arguments.mixed_drop is not None:
        drop = _Drop(plan, files, arguments)
    mixtures = _mixtures(arguments, plan, drop)
    return replace(plan, schemas=[*schemas, *mixtures]), drop


CellKey = tuple[str, str | None]
"""The names of a backend and of a schema; None: the float model. No two cells of a sweep have the
same.
"""


def _cell_key(backend: "Backend", schema: "Schema | None") -> CellKey:
    return backend.name, None if schema is None else schema.name


_ROUNDING = 1e-9
"""Of a loss in percentage points: 0.3 is 0.30000000000000004."""


class _Drop:
    """Whether a schema loses at most what ``--mixed-drop`` says, on the first backend.

    Args:
        plan: of the sweep, without mixtures.
        files: each result is added to it; with ``--resume`` those in it are taken.

    Raises:
        InputError: every metric is a distance to fp32.
    """

    def __init__(
        self, plan: "SweepPlan", files: "ResultFile[SweepCell]", arguments: argparse.Namespace
    ) -> None:
        self._plan, self._files, self._arguments = plan, files, arguments
        self._refuse_distances()
        self._tried: dict[CellKey, SweepCell] = {}
        """What was measured or taken."""
        self.best_name: str | None = None
        """The cell of the last schema that was accepted: each is coarser than those before it."""

    def taken(self, plan: "SweepPlan") -> "dict[int, SweepCell]":
        """Place among the cells of ``plan`` → its result, of those that were tried."""
        keys = enumerate(_cell_key(*cell) for cell in plan.cells)
        return {place: self._tried[key] for place, key in keys if key in self._tried}

    def accepts(self, schema: "Schema") -> bool:
        """Whether ``schema`` loses at most so much; one that cannot run does not."""
        cell = self._cell(schema)
        if cell.loss is None:
            return False
        scale = 100 if cell.unit == "%" else 1
        is_within = bool(scale * cell.loss <= self._arguments.mixed_drop + _ROUNDING)
        if is_within:
            self.best_name = cell.name
        return is_within

    def _refuse_distances(self) -> None:
        """Refuse metrics none of which has a loss, before anything is measured."""
        uses = self._plan.shared.subject.metrics
        if all(use.metric.is_distance for use in uses):
            raise InputError(
                _doing(self._arguments),
                found=f"--mixed-drop with '{uses[0].name}', a distance to fp32",
                expected="a metric that has a loss",
                remedy="Score data with labels, or leave the option out.",
            )

    def _cell(self, schema: "Schema") -> "SweepCell":
        from qbench.evaluation import sweep_cell
        from qbench.tracking import kept_results

        plan = replace(self._plan, backends=self._plan.backends[:1], schemas=[schema])
        made = plan.made()[-1]
        found = self._files.read()  # also without --resume: nothing is added to another file
        kept = kept_results(found, [made], self._files.path) if self._arguments.resume else {}
        cell = kept[0] if kept else sweep_cell(plan, len(plan.cells) - 1, made)
        plan.shared.forget(schema, plan.backends[0].capabilities)
        say(f"mixed precision: {cell.name}: {_words(cell)}")
        if cell.is_measured and not kept:
            self._files.add(cell)
        self._tried[_cell_key(*plan.cells[-1])] = cell
        return cell


def _mixtures(
    arguments: argparse.Namespace, plan: "SweepPlan", drop: _Drop | None
) -> "list[Schema]":
    """The schemas of a search over precisions."""
    from qbench.diagnosis import mixed_schemas

    with working(f"measuring the units of {arguments.model}"):
        found = mixed_schemas(
            plan.shared,
            plan.schemas,
            plan.backends[0],
            points=arguments.mixed,
            cost=arguments.mixed_cost,
            accepts=None if drop is None else drop.accepts,
        )
    made = counted(len(found.schemas), "mixture")
    say(
        f"mixed precision: {counted(found.units, 'unit')}, {counted(found.runs, 'partial run')} "
        f"for their sensitivity, {made} to evaluate"
    )
    if drop is not None:
        best = drop.best_name or "none that was measured"
        say(f"the coarsest that loses at most {arguments.mixed_drop:g}: {best}")
    return list(found.schemas)


def _mixture_files(arguments: argparse.Namespace, schemas: "Sequence[Schema]") -> dict[str, str]:
    """Name → text of the file of each mixture among ``schemas``; written where files are asked
    for.
    """
    given = len(_schema_texts(arguments))
    if not arguments.mixed:
        return {}
    files = mixture_files(schemas[:given], schemas[given:])
    if arguments.write_mixed:
        folder = Path(arguments.write_mixed)
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            write_text(folder / name, text)
        say(f"wrote {counted(len(files), 'schema')} to {folder}")
    return files


def _refuse_mixed(arguments: argparse.Namespace) -> None:
    """Refuse mixtures without samples, fewer than one, and next to ranges by hand."""
    has_drop = arguments.mixed_drop is not None
    mixes = arguments.write_mixed or arguments.mixed_cost != _COSTS[0] or has_drop
    given = arguments.mixed is not None
    if not given and not mixes:
        return
    problems = (
        (not given, f"{_option(arguments)} without --mixed", "a number of mixtures"),
        (given and arguments.mixed < 1, f"--mixed {arguments.mixed}", "1 or more mixtures"),
        (not arguments.calib, "--mixed without --calib", "samples that sensitivity is taken from"),
        (bool(arguments.ranges), "--mixed with --ranges", "ranges of the profile"),
        (
            has_drop and arguments.budget is not None,
            "--mixed-drop with --budget",
            "one of both: the search ends after N evaluations",
        ),
    )
    for is_wrong, found, expected in problems:
        if is_wrong:
            raise InputError(
                _doing(arguments),
                found=found,
                expected=expected,
                remedy="See 'qbench sweep --help'; files of --write-mixed are schemas for suites.",
            )


def _option(arguments: argparse.Namespace) -> str:
    if arguments.mixed_drop is not None:
        return "--mixed-drop"
    return "--write-mixed" if arguments.write_mixed else "--mixed-cost"


def _backend_texts(arguments: argparse.Namespace) -> tuple[str, ...]:
    texts = values_of("backend", arguments.backend)
    recorded = next((text for text in texts if text.startswith("answers:")), None)
    if recorded is not None:
        raise InputError(
            _doing(arguments),
            found=f"--backend '{recorded}', answers that were recorded elsewhere",
            expected="backends that run the model under every schema",
            remedy="Judge recorded answers with 'qbench eval'.",
        )
    return texts


def _schema_texts(arguments: argparse.Namespace) -> tuple[str, ...]:
    return values_of("schema", arguments.schema or _SCHEMAS)


def _refuse_same_name(arguments: argparse.Namespace, kind: str, names: Sequence[str]) -> None:
    """Refuse two values that have one name, such as a schema and a file called like it."""
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(
            _doing(arguments),
            found=f"two of --{kind} that are called '{twice}'",
            expected="different names: rows are told apart by them",
            remedy="Leave one out, or rename its file.",
        )


def _refuse_without_samples(arguments: argparse.Namespace, schemas: "Sequence[Schema]") -> None:
    """Refuse schemas that need calibration samples without them."""
    needing = [one.name for one in schemas if one.needs_samples]
    if needing and not arguments.calib:
        raise InputError(
            _doing(arguments),
            found=f"no --calib, which '{needing[0]}' takes ranges from",
            expected="calibration samples that are not scored",
            remedy="Name them: --calib D2; schemas of weights alone, such as w8_sym_pc, need none.",
        )


def _kept(
    arguments: argparse.Namespace, files: "ResultFile[SweepCell]", made: Sequence[dict[str, str]]
) -> "dict[int, SweepCell]":
    """Place → the result of an earlier run of the same cell, where these are asked for."""
    from qbench.tracking import kept_results

    found = files.read()  # also where they are not taken: nothing is added to another file
    if not arguments.resume:
        say(f"results: {files.path} (--resume takes finished cells from there)")
        return {}
    kept = kept_results(found, made, files.path)
    say(f"results: {files.path}, of which {counted(len(kept), 'finished cell is', _MANY)} taken")
    return kept


_FRONT = "front: no other quantized cell has both less loss and less size, less time, or less float"
_MANY = "finished cells are"


def _measured(
    arguments: argparse.Namespace,
    plan: "SweepPlan",
    known: "tuple[Sequence[dict[str, str]], dict[int, SweepCell]]",
    files: "ResultFile[SweepCell]",
    began: float,
) -> "list[SweepCell]":
    """The result of each cell; each is in the file of results as soon as it is known."""
    from qbench.evaluation import sweep_cells

    made, kept = known

    def is_over() -> bool:
        return arguments.budget is not None and time.monotonic() - began > arguments.budget

    found = []
    with working(f"sweeping {arguments.model}", len(made), "cells") as step:
        for step.done, cell in enumerate(sweep_cells(plan, made, kept, is_over=is_over), 1):
            found.append(cell)
            if step.done - 1 in kept:
                continue
            if cell.is_measured:
                files.add(cell)
            say(f"{step.done} of {len(made)}: {cell.name}: {_words(cell)}")
    return found


def _words(cell: "SweepCell") -> str:
    """What is said of a cell as soon as it is known."""
    from qbench.reporting import loss_text, time_text

    if not cell.is_measured:
        return f"{cell.state.value}: {cell.reason}"
    name = cell.metric if cell.is_distance else f"loss of {cell.metric}"
    return f"{name} {loss_text(cell)}, {time_text(cell.ms)} ms of a sample"


def _refuse_all_refused(arguments: argparse.Namespace, cells: "Sequence[SweepCell]") -> None:
    """Refuse where no quantized cell can run."""
    from qbench.tracking import SweepState

    quantized = [one for one in cells if not one.is_float]
    refused = [one for one in quantized if one.state is SweepState.UNSUPPORTED]
    if len(refused) == len(quantized):
        raise InputError(
            _doing(arguments),
            found=f"{counted(len(refused), 'cell')}, none of which can run; "
            f"{refused[0].name}: {refused[0].reason.rstrip('.')}",
            expected="a backend that runs one of the schemas",
            remedy="Name others: qbench list backends, qbench list schemas.",
        )


def _table(arguments: argparse.Namespace, cells: "Sequence[SweepCell]") -> "SweepTable":
    from qbench.reporting import sweep_table

    return sweep_table(
        cells,
        model=arguments.model,
        data=arguments.data,
        calibration=arguments.calib or "",
        sort=arguments.sort,
    )


def _print_table(table: "SweepTable") -> None:
    """The head, the rows, what the columns mean, and the cells without a result."""
    from qbench.reporting import SORTED_BY, sweep_columns

    put(f"model    {table.model}")
    scored = f"  ({counted(table.samples, 'sample')})" if table.samples else ""
    put(f"data     {table.data}{scored}")
    if table.calibration:
        put(f"calib    {table.calibration}")
    lead = table.lead
    if lead is not None:
        put()
        columns = sweep_columns(table)
        print_columns(
            [[column.text(row) for column in columns] for row in table.rows],
            [column.heading for column in columns],
        )
        put()
        put(f"sorted by {SORTED_BY[table.sort]} (--sort)")
        put(_loss_words(lead))
        put(_FRONT)
    if table.others:
        put()
        put("without a result:")
    for cell in table.others:
        put(f"  {cell.name}: {cell.state.value}: {cell.reason}")


def _loss_words(lead: "SweepCell") -> str:
    """What the loss is of."""
    if lead.is_distance:
        return f"no labels: {lead.metric} is the distance to fp32"
    if lead.metric.startswith("agreement"):
        return f"no labels: the loss is the share that fp32 answers otherwise ({lead.metric})"
    return f"loss: how much worse than fp32 in {lead.metric}; below zero it is a gain"


def _write_pictures(arguments: argparse.Namespace, table: "SweepTable") -> None:
    from qbench.reporting import sweep_page, sweep_png

    if arguments.plot:
        write_bytes(Path(arguments.plot), sweep_png(table))
        say(f"wrote {arguments.plot}")
    if arguments.html:
        write_text(Path(arguments.html), sweep_page(table))
        say(f"wrote {arguments.html}")


def _code(table: "SweepTable", files: "ResultFile[SweepCell]") -> ExitCode:
    """4: the budget left cells out."""
    if not table.left:
        return ExitCode.FINE
    names = ", ".join(cell.name for cell in table.left)
    say(
        f"the budget was used up: {counted(len(table.left), 'cell')} not measured ({names}); the "
        f"same command with --resume goes on from '{files.path}'"
    )
    return ExitCode.INCOMPLETE


COMMAND = Command(
    name="sweep",
    summary="measure a model on several backends under several schemas; find the best",
    example="qbench sweep net.onnx --data test.npz --calib train.npz --html sweep.html",
    declare=declare,
    execute=execute,
)
