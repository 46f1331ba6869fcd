"""``qbench eval``: one model on one's own data: fp32, and under a schema what quantization costs."""

import argparse
from typing import TYPE_CHECKING, Any

from qbench.cli.chosen_schema import choose_schema
from qbench.cli.command import Command, ExitCode, count_from_one
from qbench.cli.loss_parts import print_parts
from qbench.cli.measured_model import measure_model
from qbench.cli.node_counters import counters_table, print_counters
from qbench.cli.printing import print_columns, print_json, put
from qbench.errors import InputError

if TYPE_CHECKING:
    from qbench.cli.measured_model import Evaluated
    from qbench.evaluation import SharedWork
    from qbench.judging import Measurement
    from qbench.metrics import Score

REFUSALS_SHOWN = 10

_MILLION = 1_000_000


def declare(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``qbench eval``."""
    parser.add_argument("model", metavar="MODEL", help="an ONNX file, or a model of the zoo (qbench list models)")
    parser.add_argument(
        "--data",
        metavar="D",
        required=True,
        help="'folder:PATH?resize=256&crop=224&mean=…&std=…' (pictures sorted into a folder a class), "
        "'PATH.npz' with x and y, or a data set of the zoo",
    )
    parser.add_argument(
        "--backend",
        metavar="B",
        default="ort-cpu",
        help="what runs it: a name, or a .toml that spells an arithmetic (default: ort-cpu)",
    )
    parser.add_argument(
        "--python", metavar="VENV", help="another Python, or the folder of its environment, whose onnxruntime runs it"
    )
    parser.add_argument("--schema", metavar="S", help="quantize with this schema, too: a name or a .toml")
    parser.add_argument("--calib", metavar="D2", help="data to take ranges from; never the scored samples")
    parser.add_argument("--calib-count", metavar="N", type=int, help="that many of them, spread evenly (default: all)")
    parser.add_argument(
        "--fp32", metavar="MODEL", help="MODEL is quantized already: the float model it is judged against"
    )
    parser.add_argument("--metrics", metavar="M,…", default="", help="such as top1,top5,agreement")
    parser.add_argument(
        "--threads", metavar="N", type=count_from_one, default=1, help="threads of the engine (default: 1)"
    )
    parser.add_argument(
        "--parts", action="store_true", help="what the schema costs, and what the backend's counting adds"
    )
    parser.add_argument(
        "--counters", action="store_true", help="of an integer machine: what was clipped, wrapped, saturated, by node"
    )
    parser.add_argument("--cache", metavar="DIR", help="folder of the cache (default: the user's)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def execute(arguments: argparse.Namespace) -> ExitCode:
    """Measure and print; nothing is judged, so that a loss is a fact here and no failure.

    Raises:
        QbenchError: the model, the data or the names are wrong, or the backend does not run it.
    """
    if arguments.fp32 and (arguments.schema or arguments.calib):
        raise InputError(
            f"Evaluating '{arguments.model}'",
            found="--fp32 with --schema or --calib",
            expected="one of them: a model that is quantized already is measured as it is",
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
            expected="a quantized one: a loss has parts",
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


def _backend(arguments: argparse.Namespace, measured: "list[Measurement]") -> str:
    """What was asked for; under another Python, how results call it."""
    return measured[-1].cell.backend if arguments.python else str(arguments.backend)


def _macs(count: int) -> str:
    return f"{count / _MILLION:.4g} million" if count >= _MILLION else str(count)


def _print(arguments: argparse.Namespace, shared: "SharedWork", measured: "list[Measurement]") -> None:
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
    else:
        _print_values(fp32)
    seconds = ", ".join(f"{one.seconds.get('inference', 0):.2f} s {one.cell.schema}" for one in measured)
    put()
    put(f"inference took {seconds}")
    for one in measured:
        for name, ties in one.ties.items():
            if ties:
                put(f"{one.cell.schema}: {ties} samples of '{name}' had equal best scores; the lowest class was taken")
    if quantized:
        _print_plan(*quantized)


def _print_plan(quantized: "Measurement") -> None:
    came = "" if quantized.cell.is_given else "planned "
    put()
    put(f"{100 * quantized.integer_macs:.1f} % of the multiply-accumulates are {came}in integers")
    if quantized.refusals:
        put("left in float:")
        for refusal in quantized.refusals[:REFUSALS_SHOWN]:
            put(f"  {refusal}")
        if len(quantized.refusals) > REFUSALS_SHOWN:
            put(f"  and {len(quantized.refusals) - REFUSALS_SHOWN} more (--json lists them all)")


def _print_values(fp32: "Measurement") -> None:
    """What the float model scores; against itself it has nothing to say."""
    from qbench.judging import valued

    rows = [
        (score.metric, valued(score, score.value), f"{score.hits}/{score.out_of}")
        for score in fp32.scores
        if _against_labels(score)
    ]
    if rows:
        print_columns(rows, ("metric", "fp32", "of"))
    else:
        put("nothing to score: these metrics compare with fp32; name --schema and --calib")


def _print_cost(fp32: "Measurement", quantized: "Measurement") -> None:
    """One line a metric, float beside quantized."""
    header = ("metric", "fp32", "quantized", "of", "change", "95 % interval", "losses", "gains")
    pairs = zip(fp32.scores, quantized.scores, strict=True)
    print_columns([_line(before, after) for before, after in pairs], header)
    put("change and interval in percentage points: minus is a loss")


def _line(before: "Score", after: "Score") -> tuple[str, ...]:
    from qbench.judging import valued

    interval = _interval(after)
    is_own = _against_labels(after)  # agreement with fp32: fp32 itself has none, and no change either
    return (
        after.metric,
        valued(before, before.value) if is_own else "",
        valued(after, after.value),
        str(after.out_of),
        _change(after) if is_own else "",
        "" if interval is None else f"{_points(interval[0])} … {_points(interval[1])}",
        str(after.losses),
        str(after.gains),
    )


def _change(after: "Score") -> str:
    change = -after.drop / after.out_of
    return f"{_points(change)} pp" if after.unit == "%" else f"{change:+.5g} {after.unit}".rstrip()


def _points(share: float) -> str:
    return f"{100 * share:+.2f}".replace("-0.00", "+0.00")


def _against_labels(score: "Score") -> bool:
    from qbench.metrics import Against

    return score.against is Against.LABELS


def _interval(score: "Score") -> tuple[float, float] | None:
    """Tango's interval, for shares against labels: agreement has no change to speak of, an error rate no pairs."""
    from qbench.judging import paired_interval

    if not score.proportion or not _against_labels(score):
        return None
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
        "fp32": one(measured[0]),
        "quantized": one(measured[1]) if len(measured) > 1 else None,
        **more,
    }


COMMAND = Command(
    name="eval",
    summary="score an ONNX file on your own data, as it is and quantized",
    example="qbench eval net.onnx --data test.npz --schema w8a8_asym_pc --calib train.npz",
    declare=declare,
    execute=execute,
)
