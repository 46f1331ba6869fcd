"""qbench eval: one model on one's own data: fp32, and under schemas what quantization costs."""

import argparse
from collections.abc import Sequence
from typing import Any

from qbench.cli.command import Command, ExitCode
from qbench.cli.model_measurement import Evaluated, Refused, measure_models
from qbench.cli.model_report import evaluated_table, print_evaluated, refused_table
from qbench.cli.options import (
    choose_schema,
    declare_backends,
    declare_cache,
    declare_calibration,
    declare_json,
    declare_metrics,
    declare_model,
    declare_output,
    declare_ranges,
    declare_threads,
    values_of,
)
from qbench.cli.printing import print_json, put
from qbench.errors import InputError


def declare(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``qbench eval``."""
    declare_model(parser)
    parser.add_argument(
        "--data",
        metavar="D",
        required=True,
        help="a folder of pictures, one folder per class "
        "('PATH?resize=256&crop=224&mean=…&std=…&classes=labels.txt'); an .npz with an array for "
        "each input (or a lone x) and labels y, or a folder of these, one per sample; a .jsonl "
        "with a sample in each line; or the name of a data set",
    )
    declare_backends(parser, "; or answers:PATH, answers that were recorded elsewhere")
    parser.add_argument(
        "--python",
        metavar="VENV",
        help=(
            "run the model with the onnxruntime of another Python: a program or the folder of an "
            "environment"
        ),
    )
    parser.add_argument(
        "--schema",
        metavar="S,…",
        action="joined",
        help="measure the model quantized with these schemas too: names or .toml files",
    )
    declare_calibration(parser)
    declare_ranges(parser)
    parser.add_argument(
        "--fp32",
        metavar="MODEL",
        help="the float model that MODEL, which is quantized already, is compared with",
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
    """Measure and print. Nothing is judged: a loss is a fact here and not a failure.

    Raises:
        QbenchError: the model, the data or the names are wrong, or the backend does not run the
            model.
    """
    _refuse_with_answers(arguments)
    _refuse_two_models(arguments)
    _refuse_without_samples(arguments)
    _refuse_ranges_alone(arguments)
    _refuse_parts_of_float(arguments)
    done: list[tuple[argparse.Namespace, Evaluated | Refused]] = []
    for cell, found in measure_models(arguments):
        if not arguments.json:
            if done:
                put()
            _print_cell(cell, found)
        done.append((cell, found))
    if arguments.json:
        tables = [_table(*one) for one in done]
        print_json(tables if len(tables) > 1 else tables[0])
    _refuse_all_refused(arguments, [found for _, found in done])
    return ExitCode.FINE


def _print_cell(arguments: argparse.Namespace, found: Evaluated | Refused) -> None:
    if isinstance(found, Evaluated):
        print_evaluated(arguments, found)
    else:
        put(f"backend  {arguments.backend}")
        if arguments.schema:
            put(f"schema   {arguments.schema}")
        put(f"not measured: {found.error}")


def _table(arguments: argparse.Namespace, found: Evaluated | Refused) -> dict[str, Any]:
    """The facts of one cell as plain values."""
    if isinstance(found, Evaluated):
        return evaluated_table(arguments, found)
    return refused_table(arguments, found)


def _refuse_all_refused(arguments: argparse.Namespace, done: Sequence[Evaluated | Refused]) -> None:
    """Refuse where none of several cells can run: the sentence of the first says why."""
    refused = [one for one in done if isinstance(one, Refused)]
    if len(refused) == len(done):
        raise InputError(
            f"Evaluating '{arguments.model}'",
            found=f"{len(refused)} cells, none of which can run; the first: {refused[0].error}",
            expected="a cell that can run",
            remedy="Name other backends or schemas: qbench list backends, qbench list schemas.",
        )


def _refuse_with_answers(arguments: argparse.Namespace) -> None:
    """Refuse an option that runs a model together with answers that were recorded elsewhere."""
    options = ("schema", "calib", "ranges", "fp32", "python", "parts", "counters")
    given = next((name for name in options if getattr(arguments, name)), None)
    texts = values_of("backend", arguments.backend)
    if given is not None and any(text.startswith("answers:") for text in texts):
        raise InputError(
            f"Evaluating '{arguments.model}'",
            found=f"--{given} with answers that were recorded elsewhere ({arguments.backend})",
            expected="the float model, its data and the answers alone",
            remedy=f"Leave --{given} out.",
        )


def _refuse_two_models(arguments: argparse.Namespace) -> None:
    """Refuse a model that came quantized (``--fp32``) and is to be quantized, too."""
    if arguments.fp32 and (arguments.schema or arguments.calib):
        raise InputError(
            f"Evaluating '{arguments.model}'",
            found="--fp32 with --schema or --calib",
            expected="only one of them: a model that is quantized already is measured as it is",
            remedy="Leave --fp32 out to quantize a float model.",
        )


def _refuse_without_samples(arguments: argparse.Namespace) -> None:
    """Refuse a schema that needs calibration samples without them, and samples without a schema."""
    if arguments.schema:
        schemas = [choose_schema(name) for name in values_of("schema", arguments.schema)]
        if arguments.calib or not any(one.needs_samples for one in schemas):
            return
        found = "--schema without --calib"
        remedy = "This schema needs samples to take ranges from: name both."
    elif arguments.calib:
        found = "--calib without --schema"
        remedy = "Samples are for the ranges of a schema: name both."
    else:
        return
    raise InputError(
        f"Evaluating '{arguments.model}'",
        found=found,
        expected="both, or neither",
        remedy=remedy,
    )


def _refuse_ranges_alone(arguments: argparse.Namespace) -> None:
    """Refuse ranges by hand without a schema that takes them."""
    if arguments.ranges and not arguments.schema:
        raise InputError(
            f"Evaluating '{arguments.model}'",
            found="--ranges without --schema",
            expected="both: ranges by hand take the place of calibrated ones under a schema",
            remedy="Name the schema, or leave --ranges out.",
        )


def _refuse_parts_of_float(arguments: argparse.Namespace) -> None:
    """Refuse ``--parts`` of a model that is not quantized."""
    if arguments.parts and not (arguments.schema or arguments.fp32):
        raise InputError(
            f"Evaluating '{arguments.model}'",
            found="--parts of a float model",
            expected="a quantized model: only its loss has parts",
            remedy="Name --schema and --calib, or --fp32.",
        )


COMMAND = Command(
    name="eval",
    summary="measure an ONNX file on your own data, in float and quantized",
    example="qbench eval net.onnx --data test.npz --schema w8a8_asym_pc --calib train.npz",
    declare=declare,
    execute=execute,
)
