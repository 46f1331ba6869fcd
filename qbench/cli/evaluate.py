"""qbench eval: one model on one's own data."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbench.cli.command import Command, ExitCode
from qbench.cli.options import (
    choose_backend,
    choose_cache,
    choose_schema,
    declare_backend,
    declare_cache,
    declare_calibration,
    declare_json,
    declare_metrics,
    declare_model,
    declare_output,
    declare_threads,
    names_of,
    refuse_idle_rules,
    say_content_notes,
    say_notes,
    say_output,
)
from qbench.cli.printing import print_columns, print_json, put
from qbench.errors import InputError
from qbench.number_text import MINUS, change_text, counted, rough_percent

if TYPE_CHECKING:
    import onnx_ir as ir

    from qbench.backends import Backend, Counting, Executor
    from qbench.evaluation import RecordingTask, SubjectArtifacts
    from qbench.graph import Capabilities
    from qbench.interpreter import Counters
    from qbench.judging import LossParts, Measurement, Part
    from qbench.metrics import Score
    from qbench.numerics import Arithmetic
    from qbench.subjects import Dataset


# ``qbench eval --parts``: what the schema costs, and what the backend's way of counting adds.


def count_parts(
    shared: "SubjectArtifacts", graphs: "Mapping[str, ir.Model]", kept: "RecordingTask", *, threads: int
) -> "tuple[LossParts, ...]":
    """The two parts of every metric against labels.

    Args:
        shared: of a subject with one data set. graphs: its quantized graphs. kept: holds the backend's answers to it.
        threads: of the engine.

    Raises:
        InputError: no metric is against labels. QbenchError: the graphs do not run on the ideal machine.
    """
    from qbench.backends import get_backend
    from qbench.judging import IDEAL, parts_of_scores
    from qbench.metrics import Against, score

    ((name, data),) = shared.subject.data.items()
    uses = [use for use in shared.subject.metrics if use.metric.against is Against.LABELS]
    if not uses:
        raise InputError(
            f"Splitting the loss of '{shared.subject.model.id}' into parts",
            found="no metric against labels",
            expected="at least one: agreement with fp32 cannot be split into parts",
            remedy="Use labelled data, or leave --parts out.",
        )
    measured, reference = kept.last, shared.reference()[name]
    assert measured is not None
    ideal = shared.answer(get_backend(IDEAL), graphs, data, threads=threads)
    return tuple(
        parts_of_scores(
            score(use.metric, ideal, labels=data.labels, reference=reference, name=use.name),
            score(use.metric, measured, labels=data.labels, reference=ideal, name=use.name),
        )
        for use in uses
    )


def print_parts(parts: "Sequence[LossParts]", backend: str) -> None:
    """One line a step of every metric."""
    put()
    rows = [
        row
        for one in parts
        for row in (
            (one.metric, "fp32", _value(one.schema.before, one.schema, one.unit), "", "", ""),
            ("", "schema: integer-ideal", *_step(one.schema, one.unit)),
            ("", f"counting: {backend}", *_step(one.counting, one.unit)),
        )
    ]
    print_columns(rows, ("metric", "part", "value", "change", "losses", "gains"))


def _step(part: "Part", unit: str) -> tuple[str, str, str, str]:
    scale, word, digits = (100, "pp", ".2f") if unit == "%" else (1, unit, ".4f")
    change = round(scale * part.change, int(digits[1])) + 0.0  # what rounds to nothing has no sign of its own
    return (
        _value(part.after, part, unit),
        f"{change:+{digits}} {word}".rstrip().replace("-", MINUS),
        str(part.losses),
        str(part.gains),
    )


def _value(hits: int, part: "Part", unit: str) -> str:
    """``97.50 %  351/360``; of another unit than percent the value alone, ``1.8432 nats``."""
    if unit == "%":
        return f"{100 * hits / part.out_of:.2f} %  {hits}/{part.out_of}"
    return f"{hits / part.out_of:.4f} {unit}".rstrip()


# ``qbench eval --counters``: what an integer machine clipped, wrapped and saturated, node by node.


@dataclass(frozen=True, slots=True)
class CountedBackend:
    """``machine``, keeping the counters of what it prepared."""

    machine: "Backend"
    prepared: "list[tuple[str, Counting]]" = field(default_factory=list)

    @property
    def name(self) -> str:
        """The machine's own: it gives the same numbers."""
        return self.machine.name

    @property
    def capabilities(self) -> "Capabilities":
        """What graphs it takes."""
        return self.machine.capabilities

    @property
    def arithmetic(self) -> "Arithmetic | None":
        """By which it counts."""
        from qbench.backends import arithmetic_of

        return arithmetic_of(self.machine)

    @property
    def packages(self) -> tuple[str, ...]:
        """The distributions whose versions it counts with."""
        return self.machine.packages

    @property
    def digests(self) -> Mapping[str, str]:
        """What it counts by."""
        from qbench.backends import HasRuleDigests

        return self.machine.digests if isinstance(self.machine, HasRuleDigests) else {}

    def prepare(self, model: "ir.Model | Path | str", *, taps: Sequence[str] = (), threads: int = 1) -> "Executor":
        """What the machine prepares.

        Raises:
            QbenchError: what the machine raises.
        """
        from qbench.backends import Counting

        executor = self.machine.prepare(model, taps=taps, threads=threads)
        assert isinstance(executor, Counting)
        graph = model.graph.name if not isinstance(model, Path | str) else str(model)
        self.prepared.append((graph or f"graph {len(self.prepared)}", executor))
        return executor

    @property
    def counters(self) -> "dict[str, Mapping[str, Counters]]":
        """Graph → node → what happened there."""
        return {graph: executor.counters for graph, executor in self.prepared}


def counted_backend(backend: "Backend") -> CountedBackend:
    """``backend`` with every event counted.

    Raises:
        InputError: it is not an integer backend, so it counts no events.
    """
    from qbench.backends import CountsEvents

    if not isinstance(backend, CountsEvents):
        raise InputError(
            f"Counting what happens in '{backend.name}'",
            found="a backend that counts no events",
            expected="an integer backend",
            remedy="Choose integer-… (qbench list backends), or leave --counters out.",
        )
    return CountedBackend(backend.counting_events())


def counters_table(counted: CountedBackend) -> dict[str, dict[str, dict[str, int]]]:
    """Graph → node → event → how often, plain; nodes that count nothing are left out."""
    from qbench.storage import plain

    every: dict[str, Any] = plain(counted.counters)
    return {
        graph: {node: events for node, events in nodes.items() if any(events.values())}
        for graph, nodes in every.items()
    }


def print_counters(counted: CountedBackend) -> None:
    """One line per node that clipped, overflowed or saturated, worst first."""
    table, arithmetic = counters_table(counted), counted.arithmetic
    overflow = "" if arithmetic is None else arithmetic.accumulator.overflow.value
    verb = {"wrap": "sums wrapped", "saturate": "sums saturated"}.get(overflow, "sums overflowed")
    for graph, nodes in table.items():
        seen = {node: events for node, events in nodes.items() if any(_badness(events))}
        where = f" of '{graph}'" if len(table) > 1 else ""
        put()
        put(f"counted{where}: {len(seen)} of {len(nodes)} nodes clipped, overflowed or saturated")
        if seen:
            ordered = sorted(seen.items(), key=lambda item: _badness(item[1]), reverse=True)
            header = ("node", "results", "pairs saturated", verb, "clipped high", "clipped low")
            print_columns([_line(node, events) for node, events in ordered], header)
    put(
        "clipped low includes the values that a Relu clips; nodes without counters (tables, pools, "
        "moves) are not listed"
    )


def _badness(events: Mapping[str, int]) -> tuple[int, int, int]:
    return events["saturated"] + events["overflowed"], events["clipped_high"], events["clipped_low"]


def _line(node: str, events: Mapping[str, int]) -> tuple[str, ...]:
    def share(count: int) -> str:
        return f"{count} ({rough_percent(count / events['levels'])})" if count and events["levels"] else str(count)

    ends = (share(events[name]) for name in ("clipped_high", "clipped_low"))
    return node, str(events["levels"]), str(events["saturated"]), str(events["overflowed"]), *ends


# ``qbench eval``: from the arguments to measurements; nothing is printed here.


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """The measurements, fp32 first, with what else was asked for; a quantized model without its float one is alone."""

    shared: "SubjectArtifacts"
    measured: "list[Measurement]"
    parts: "tuple[LossParts, ...]" = ()
    counted: "CountedBackend | None" = None


def measure_model(arguments: argparse.Namespace) -> Evaluated:
    """The fp32 measurement, and that of the quantized model when a schema is named or the model came quantized."""
    from qbench.evaluation import RecordingTask, build_subject, environment_here, measure_cell, subject_artifacts
    from qbench.judging import FP32, GIVEN, RECORDED, Cell

    backend = choose_backend(arguments.backend, arguments.python)
    counted = counted_backend(backend) if arguments.counters else None
    backend = backend if counted is None else counted
    schema = choose_schema(arguments.schema) if arguments.schema else None
    metrics = names_of(arguments.metrics)
    subject = build_subject(
        arguments.fp32 or arguments.model,
        arguments.data,
        arguments.calib,
        metrics,
        arguments.calib_count,
        given=arguments.model if arguments.fp32 else None,
        output=arguments.output,
    )
    say_notes(subject.model, next(iter(subject.data.values())))
    say_output(subject.model)
    kept = RecordingTask(subject.model.task)
    subject = replace(subject, model=replace(subject.model, task=kept))
    cache = choose_cache(arguments.cache)
    shared = subject_artifacts(subject, backend, cache)
    is_recorded = arguments.backend.startswith("answers:")
    if schema is not None or arguments.fp32 or is_recorded:
        shared.require_float()
    if schema is not None:
        refuse_idle_rules(schema.name, arguments.model, shared.quantized(schema, backend.capabilities).idle_rules)
    measured = []
    more = [(schema.name, schema)] if schema is not None else [(GIVEN, None)] if arguments.fp32 else []
    more = [(RECORDED, None)] if is_recorded else more
    for name, one in [(FP32, None), *more]:
        runner = shared.fp32_backend if name == FP32 and more else backend
        cell = Cell("eval", subject.model.id, runner.name, name)
        measured.append(
            measure_cell(
                shared, runner, one, cell=cell, environment=environment_here(runner), threads=arguments.threads
            )
        )
    say_content_notes(shared)
    if len(measured) == 1 and any(_came_quantized(load()) for load in subject.model.graphs.values()):
        (alone,) = measured
        measured = [replace(alone, cell=replace(alone.cell, schema=GIVEN))]
    parts: tuple[LossParts, ...] = ()
    if arguments.parts:
        made = shared.given if schema is None else shared.quantized(schema, backend.capabilities)
        parts = count_parts(shared, made.models, kept, threads=arguments.threads)
    return Evaluated(shared=shared, measured=measured, parts=parts, counted=counted)


def _came_quantized(model: "ir.Model") -> bool:
    from qbench.graph import Form, form_of

    if form_of(model) is Form.FLOAT:
        return False
    from qbench.quantization import is_quantized  # loaded only for the few models that may be

    return is_quantized(model)


# ``qbench eval``: one model on one's own data: fp32, and under a schema what quantization costs.

REFUSALS_SHOWN = 10

_MILLION = 1_000_000


def declare(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``qbench eval``."""
    declare_model(parser)
    parser.add_argument(
        "--data",
        metavar="D",
        required=True,
        help="a folder of pictures, one folder per class ('PATH?resize=256&crop=224&mean=…&std=…&classes=labels.txt'); "
        "an .npz with an array for each input (or a lone x) and labels y, or a folder of these, one per sample; a "
        ".jsonl with a sample in each line; or the name of a data set",
    )
    declare_backend(parser, "; or answers:PATH, answers that were recorded elsewhere")
    parser.add_argument(
        "--python",
        metavar="VENV",
        help="run the model with the onnxruntime of another Python: a program or the folder of an environment",
    )
    parser.add_argument(
        "--schema", metavar="S", help="measure the model quantized with this schema too: a name or a .toml"
    )
    declare_calibration(parser)
    parser.add_argument(
        "--fp32", metavar="MODEL", help="the float model that MODEL, which is quantized already, is compared with"
    )
    declare_metrics(parser)
    declare_output(parser, "the graph's first")
    declare_threads(parser)
    parser.add_argument(
        "--parts",
        action="store_true",
        help="split the loss into that of the schema and that of the backend's arithmetic",
    )
    parser.add_argument(
        "--counters",
        action="store_true",
        help="count clipped, wrapped and saturated values per node (integer-… backends only)",
    )
    declare_cache(parser)
    declare_json(parser)


def execute(arguments: argparse.Namespace) -> ExitCode:
    """Measure and print; nothing is judged, so that a loss is a fact here and no failure.

    Raises:
        QbenchError: the model, the data or the names are wrong, or the backend does not run it.
    """
    _refuse_with_answers(arguments)
    if arguments.fp32 and (arguments.schema or arguments.calib):
        raise InputError(
            f"Evaluating '{arguments.model}'",
            found="--fp32 with --schema or --calib",
            expected="only one of them: a model that is quantized already is measured as it is",
            remedy="Leave --fp32 out to quantize a float model.",
        )
    schema = choose_schema(arguments.schema) if arguments.schema else None
    needs_samples = schema is not None and (schema.needs_profile or schema.bias_correction)
    if (needs_samples and not arguments.calib) or (arguments.calib and schema is None):
        missing, given = ("--calib", "--schema") if arguments.schema else ("--schema", "--calib")
        raise InputError(
            f"Evaluating '{arguments.model}'",
            found=f"{given} without {missing}",
            expected="both, or neither",
            remedy="This schema needs samples to take ranges from: name both."
            if schema is not None
            else "Samples are for the ranges of a schema: name both.",
        )
    if arguments.parts and not (arguments.schema or arguments.fp32):
        raise InputError(
            f"Evaluating '{arguments.model}'",
            found="--parts of a float model",
            expected="a quantized model: only its loss has parts",
            remedy="Name --schema and --calib, or --fp32.",
        )
    evaluated = measure_model(arguments)
    if arguments.json:
        print_json(_table(arguments, evaluated))
        return ExitCode.FINE
    _print(arguments, evaluated.shared, evaluated.measured)
    if evaluated.parts:
        print_parts(evaluated.parts, evaluated.measured[-1].cell.backend)
    if evaluated.counted is not None:
        print_counters(evaluated.counted)
    return ExitCode.FINE


def _refuse_with_answers(arguments: argparse.Namespace) -> None:
    """Refuse what runs a model together with answers that were recorded elsewhere."""
    asked = ("schema", "calib", "fp32", "python", "parts", "counters")
    given = next((name for name in asked if getattr(arguments, name)), None)
    if given is not None and arguments.backend.startswith("answers:"):
        raise InputError(
            f"Evaluating '{arguments.model}'",
            found=f"--{given} with answers that were recorded elsewhere ({arguments.backend})",
            expected="the float model, its data and the answers alone",
            remedy=f"Leave --{given} out.",
        )


def _backend(arguments: argparse.Namespace, measured: "list[Measurement]") -> str:
    """What was asked for; under another Python, how results call it."""
    return measured[-1].cell.backend if arguments.python else str(arguments.backend)


def _macs(count: int) -> str:
    return f"{count / _MILLION:.4g} million" if count >= _MILLION else str(count)


def _print(arguments: argparse.Namespace, shared: "SubjectArtifacts", measured: "list[Measurement]") -> None:
    subject = shared.subject
    (data,) = subject.data.values()
    put(f"model    {arguments.model}  ({_macs(shared.macs)} multiply-accumulates a sample)")
    if arguments.fp32:
        put(f"fp32     {arguments.fp32}")
    put(f"data     {arguments.data}  ({len(data)} samples)")
    put(f"backend  {_backend(arguments, measured)}  ({measured[-1].environment})")
    if arguments.schema:
        put(f"schema   {arguments.schema}")
        if arguments.calib:
            put(f"calib    {arguments.calib}  ({len(subject.calibration)} samples)")
    put()
    fp32, *quantized = measured
    if quantized:
        _print_cost(fp32, *quantized)
        task = getattr(subject.model.task, "__wrapped__", subject.model.task)
        usual: Sequence[str] = getattr(task, "usual_metrics", ())
        if data.labels is None and usual and not arguments.metrics:
            put(f"no labels: {_no_labels(data)}, so that nothing is counted against them")
    else:
        _print_values(fp32, data)
    seconds = ", ".join(
        f"{one.seconds.get('inference', 0):.2f} s {_kind(one) if one.cell.is_given else one.cell.schema}"
        for one in measured
    )
    put()
    put(f"inference took {seconds}")
    for one in measured:
        for name, ties in one.ties.items():
            if ties:
                put(f"{one.cell.schema}: {ties} samples of '{name}' had equal best scores; the lowest class was taken")
    if quantized and not quantized[0].cell.is_recorded:
        _print_plan(*quantized)


def _print_plan(quantized: "Measurement") -> None:
    came = "" if quantized.cell.is_given else "planned "
    put()
    left = counted(len(quantized.refusals), "unit")
    behind = f", {left} left in float" if quantized.refusals else ""
    put(f"{100 * quantized.integer_macs:.1f} % of the multiply-accumulates are {came}in integers{behind}")
    if quantized.executed_macs is not None:
        put(f"{100 * quantized.executed_macs:.1f} % were executed in integers by {quantized.cell.backend}")
    differ = quantized.executed_macs is not None and quantized.executed_macs < quantized.integer_macs
    for words, listed in (
        ("executed in float, with their share:", quantized.executed_in_float if differ else ()),
        ("left in float:", quantized.refusals),
        (f"run in float by {quantized.cell.backend}, between their qparams:", quantized.run_in_float),
    ):
        if listed:
            put(words)
        for one in listed[:REFUSALS_SHOWN]:
            put(f"  {one}")
        if len(listed) > REFUSALS_SHOWN:
            put(f"  and {len(listed) - REFUSALS_SHOWN} more (--json lists them all)")


def _kind(measurement: "Measurement") -> str:
    """How a table calls what was measured alone."""
    return "quantized" if measurement.cell.is_given else "fp32"


def _no_labels(data: "Dataset") -> str:
    """Why the data has none."""
    if data.kind == "picture":
        return f"no class folders found in '{data.id.removeprefix('folder:')}'"
    return f"no classes found in '{data.id}' (an array y, or 'label' in each line)"


def _print_values(alone: "Measurement", data: "Dataset") -> None:
    """What one model scores; against itself it has nothing to say."""
    from qbench.judging import valued

    rows = [
        (score.metric, valued(score, score.value), f"{score.hits}/{score.out_of}" if score.proportion else str(score.n))
        for score in alone.scores
        if _against_labels(score)
    ]
    compared = "--fp32 with the float model" if alone.cell.is_given else "--schema and --calib"
    if rows:
        print_columns(rows, ("metric", _kind(alone), "of"))
    elif data.labels is None:
        put(f"nothing to score: {_no_labels(data)}; add them, or")
        put(f"compare with fp32: {compared}")
    else:
        put(f"nothing to score: these metrics compare with fp32; add {compared}")


def _print_cost(fp32: "Measurement", quantized: "Measurement") -> None:
    """One line per metric: float, quantized, change."""
    from qbench.judging import excluded_text

    header = (
        "metric",
        "fp32",
        "recorded" if quantized.cell.is_recorded else "quantized",
        "of",
        "change",
        "95 % interval",
        "losses",
        "gains",
    )
    pairs = zip(fp32.scores, quantized.scores, strict=True)
    print_columns([_score_row(before, after) for before, after in pairs], header)
    put("minus is a loss; shares change by percentage points")
    known = {(score.n, score.clusters.sources) for score in quantized.scores if score.clusters}
    for n, sources in sorted(known):
        proves = "one source proves nothing about others"
        if sources > 1:
            proves = f"the interval is that of the sources; {excluded_text(sources)}"
        put(f"{n} samples from {counted(sources, 'source')}: {proves}")


def _score_row(before: "Score", after: "Score") -> tuple[str, ...]:
    from qbench.judging import valued

    is_own = _against_labels(after)  # agreement with fp32: fp32 itself has none, and no change either
    return (
        after.metric,
        valued(before, before.value) if is_own else "",
        valued(after, after.value),
        str(after.out_of if after.proportion else after.n),
        change_text(-after.drop / after.out_of, after.unit) if is_own else "",
        _interval_text(after),
        *((str(after.losses), str(after.gains)) if is_own or after.proportion else ("", "")),
    )


def _interval_text(score: "Score") -> str:
    """The ends of the interval of the change; of a value that is no share that of the bootstrap, which holds 90 %."""
    from qbench.metrics import Direction

    interval, note = _interval(score), ""
    if interval is None and _against_labels(score) and not score.proportion and score.interval is not None:
        low, high = score.interval
        interval, note = ((low, high) if score.direction is Direction.HIGHER else (-high, -low)), " (90 %)"
    if interval is None:
        return ""
    return " … ".join(change_text(end, score.unit, digits=3).removesuffix(" pp") for end in interval) + note


def _against_labels(score: "Score") -> bool:
    from qbench.metrics import Against

    return score.against is Against.LABELS


def _interval(score: "Score") -> tuple[float, float] | None:
    """Tango's interval, or that of the sources, for shares against labels; negative is worse.

    Agreement has no change to speak of, an error rate no pairs.
    """
    from qbench.judging import paired_interval
    from qbench.metrics import Direction

    if not score.proportion or not _against_labels(score):
        return None
    if score.clusters is not None:
        low, high = score.clusters.shown
        return (low, high) if score.direction is Direction.HIGHER else (-high, -low)
    return paired_interval(score.losses, score.gains, score.n)


def _table(arguments: argparse.Namespace, evaluated: "Evaluated") -> dict[str, Any]:
    from qbench.storage import plain

    shared, measured = evaluated.shared, evaluated.measured
    more: dict[str, Any] = {"parts": plain(evaluated.parts)} if evaluated.parts else {}
    if evaluated.counted is not None:
        more["counters"] = counters_table(evaluated.counted)

    def one(measurement: "Measurement") -> dict[str, Any]:
        table: dict[str, Any] = plain(measurement)
        for score, entry in zip(measurement.scores, table["scores"], strict=True):
            interval = _interval(score)
            entry.update(value=score.value, drop=score.drop, drop_pp=100 * score.drop / score.out_of)
            if interval is not None:
                entry["interval"] = list(interval)
        return table

    return {
        "model": arguments.model,
        "data": arguments.data,
        "samples": len(next(iter(shared.subject.data.values()))),
        "backend": _backend(arguments, measured),
        "environment_class": str(measured[0].environment),
        "fp32": None if measured[0].cell.is_given else one(measured[0]),
        "quantized": one(measured[-1]) if len(measured) > 1 or measured[0].cell.is_given else None,
        **more,
    }


COMMAND = Command(
    name="eval",
    summary="measure an ONNX file on your own data, in float and quantized",
    example="qbench eval net.onnx --data test.npz --schema w8a8_asym_pc --calib train.npz",
    declare=declare,
    execute=execute,
)
