"""qbench fit: thresholds, scales or roundings of a schema fitted on samples, before the float model
is quantized with them.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbench.cli.command import Command, ExitCode, count_from_one
from qbench.cli.options import (
    check_outputs,
    choose_cache,
    choose_own_schema,
    declare_cache,
    declare_calibration_data,
    declare_count,
    declare_json,
    declare_model,
    declare_ranges,
    declare_threads,
    read_samples,
    with_ranges_by_hand,
)
from qbench.cli.printing import print_json, put, say
from qbench.errors import InputError
from qbench.number_text import counted

if TYPE_CHECKING:
    import numpy as np

    from qbench.graph import FitSettings, Fitter
    from qbench.quantization import FittedModel
    from qbench.subjects import Samples

    Feeds = dict[str, np.ndarray[Any, Any]]


def declare(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``qbench fit``."""
    declare_model(parser)
    declare_calibration_data(parser, "the samples to fit on")
    declare_count(parser)
    parser.add_argument(
        "--schema", metavar="S", required=True, help="where fitting begins: a name or a .toml"
    )
    parser.add_argument(
        "--method",
        metavar="M",
        required=True,
        help=(
            "tqt: thresholds of powers of two; lsq: scales; adaround: roundings of weights; "
            "blocks: scales and biases, block by block"
        ),
    )
    parser.add_argument(
        "--equalize",
        action="store_true",
        help="first even out the weights of neighbours, past Clips whose upper end stays unused",
    )
    parser.add_argument("--weights", action="store_true", help="fit weights and biases, too")
    parser.add_argument(
        "--labels",
        action="store_true",
        help="fit to the labels of the samples (default: to what the float model gives)",
    )
    parser.add_argument(
        "--steps",
        metavar="N",
        type=count_from_one,
        default=200,
        help="steps of gradient descent, of adaround for each layer (default: 200)",
    )
    parser.add_argument(
        "--batch",
        metavar="N",
        type=count_from_one,
        default=16,
        help="samples of a step (default: 16)",
    )
    parser.add_argument(
        "--rate", metavar="X", type=_rate, help="size of a step (default: the method's own)"
    )
    parser.add_argument(
        "--seed",
        metavar="N",
        type=int,
        default=0,
        help="of the order of samples: the same seed gives the same result (default: 0)",
    )
    declare_threads(parser)
    declare_ranges(parser)
    parser.add_argument("-o", "--output", metavar="OUT.onnx", help="the quantized model to write")
    parser.add_argument(
        "--save-ranges",
        metavar="R.toml",
        help="also write the fitted parameters, which --ranges reads wherever a plan is made",
    )
    parser.add_argument(
        "--save-float",
        metavar="F.onnx",
        help=(
            "also write the float model with the fitted weights, whose nearest codes they are; "
            "quantize it with --ranges"
        ),
    )
    declare_cache(parser)
    declare_json(parser)


def execute(arguments: argparse.Namespace) -> ExitCode:
    """Fit, write, print the loss before and after.

    Raises:
        QbenchError: the model, the samples, the schema or the method is wrong or missing, or they
            do not fit together.
    """
    from qbench.evaluation import are_inputs, fed_arrays
    from qbench.graph import save_model
    from qbench.quantization import fit_model, insert_qdq, ranges_text
    from qbench.storage import write_text
    from qbench.subjects import only_graph

    outputs = {
        "--output": arguments.output,
        "--save-ranges": arguments.save_ranges,
        "--save-float": arguments.save_float,
    }
    _check(arguments, outputs)
    schema = with_ranges_by_hand(
        choose_own_schema(arguments.schema, f"Fitting '{arguments.model}'"), arguments
    )
    _check_method(arguments.method)
    network, samples = read_samples(
        arguments.model, arguments.data, arguments.count, choose_cache(arguments.cache)
    )
    labels = _labels(arguments, samples) if arguments.labels else None
    if arguments.labels and not are_inputs(network, samples):
        raise _not_labelled(arguments, f"samples that the task of '{network.id}' makes others of")
    graph = only_graph(network)
    remedy = "Give every input that axis, or quantize the model unfitted, by 'qbench quantize'."
    feeds = fed_arrays(network, samples, f"Fitting '{arguments.model}'", remedy)
    count = len(next(iter(feeds.values())))
    if count != len(samples):
        _tell_shapes(arguments, count, len(samples))
    fitter = _fitter(arguments.method)  # last: its extra is large, and no use to a wrong input
    done = fit_model(
        graph,
        feeds,
        schema,
        fitter,
        _settings(arguments),
        labels=labels,
        equalize=arguments.equalize,
    )
    if arguments.output:
        save_model(insert_qdq(done.model, done.plan), arguments.output)
    if arguments.save_ranges:
        notes = [f"{arguments.model} under {schema.name}, fitted by {arguments.method}"]
        write_text(Path(arguments.save_ranges), ranges_text(done.ranges, notes))
    if arguments.save_float:
        save_model(done.model, arguments.save_float)
    _print(arguments, done, count)
    return ExitCode.FINE


def _check(arguments: argparse.Namespace, outputs: dict[str, str | None]) -> None:
    doing = f"Fitting '{arguments.model}'"
    if not any(outputs.values()):
        raise InputError(
            doing,
            found="no file to write",
            expected=f"at least one of {', '.join(outputs)}",
            remedy="Add -o OUT.onnx, the quantized model.",
        )
    read = (arguments.model, arguments.data, arguments.schema, arguments.ranges)
    check_outputs(doing, outputs, read)


def _check_method(method: str) -> None:
    """Check that ``method`` is one of those that extensions name, if they name any.

    Raises:
        InputError: it is not; the nearest is suggested.
    """
    from qbench.extension import known_extensions
    from qbench.graph import fitter_catalogue

    catalogue = fitter_catalogue(known_extensions())
    if catalogue.names() and not catalogue.knows(method):
        raise catalogue.unknown(method, f"Fitting by '{method}'")


def _fitter(method: str) -> "Fitter":
    """The method of that name.

    Raises:
        InputError: there is none, or the extra that brings them is not installed.
    """
    from qbench.extension import install_command, known_extensions
    from qbench.graph import fitter_catalogue

    catalogue = fitter_catalogue(known_extensions())
    if not catalogue.names():
        raise InputError(
            f"Fitting by '{method}'",
            found="no method of fitting: what brings them is not installed",
            expected="the extra 'train' to be installed",
            remedy=f"Install it: {install_command('train')}.",
        )
    return catalogue.get(method)


def _settings(arguments: argparse.Namespace) -> "FitSettings":
    from qbench.graph import FitSettings

    return FitSettings(
        steps=arguments.steps,
        batch=arguments.batch,
        rate=arguments.rate,
        weights=arguments.weights,
        seed=arguments.seed,
        threads=arguments.threads,
    )


def _tell_shapes(arguments: argparse.Namespace, count: int, samples: int) -> None:
    """Say that ``count`` rows are fitted on, where the task makes others than ``samples``.

    Raises:
        InputError: labels are fitted to, one for each sample.
    """
    found = f"{counted(samples, 'sample')} that the task feeds in other numbers or several shapes"
    if arguments.labels:
        raise _not_labelled(arguments, found)
    say(f"note: {found}: fitted on {count} of the most frequent shape")


def _not_labelled(arguments: argparse.Namespace, found: str) -> InputError:
    return InputError(
        f"Fitting '{arguments.model}' by labels",
        found=found,
        expected="samples that are fed as they are, one class for each",
        remedy="Leave --labels out: the aim is then what the float model gives.",
    )


def _labels(arguments: argparse.Namespace, samples: "Samples") -> "np.ndarray[Any, Any]":
    """The class of every sample.

    Raises:
        InputError: the samples have none, or more than one each.
    """
    import numpy as np

    labels = samples.whole_labels
    each = [] if labels is None else [np.ravel(one) for one in labels]
    if not each or any(one.size != 1 for one in each):
        raise _not_labelled(arguments, f"samples of '{arguments.data}' without a class each")
    return np.concatenate(each).astype(np.int64)


def _rate(text: str) -> float:
    """A number above 0.

    Raises:
        ArgumentTypeError: it is not.
    """
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"found '{text}'; expected a number above 0")
    return number


def _print(arguments: argparse.Namespace, done: "FittedModel", count: int) -> None:
    before, after = done.loss
    if arguments.json:
        facts = {
            "model": arguments.model,
            "schema": done.plan.schema,
            "method": arguments.method,
            "samples": count,
            "loss_before": before,
            "loss_after": after,
            "fitted": len(done.ranges.names),
            "output": arguments.output,
            "ranges": arguments.save_ranges,
            "float": arguments.save_float,
        }
        print_json(facts)
        return
    kept = " (nothing better was found: as calibrated)" if after >= before else ""
    put(
        f"{arguments.model} under {done.plan.schema}: {len(done.ranges.names)} parameters fitted "
        f"on {count} samples by {arguments.method}"
    )
    put(f"  loss {before:.4g} → {after:.4g}{kept}")


COMMAND = Command(
    name="fit",
    summary="fit thresholds, scales or roundings of a schema on samples",
    example="qbench fit net.onnx --calib d.npz --schema S --method tqt -o q.onnx",
    declare=declare,
    execute=execute,
)
