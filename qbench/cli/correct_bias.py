"""``qbench quantize --correct-bias``: the calibration samples once more, for the biases of what was written."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from qbench.cli.command import count_from_one
from qbench.errors import InputError

if TYPE_CHECKING:
    import onnx_ir as ir

    from qbench.quantization import Plan


def declare_correction(parser: argparse.ArgumentParser) -> None:
    """The arguments that are about it."""
    parser.add_argument(
        "--correct-bias",
        action="store_true",
        help="move every bias by the mean error that quantization leaves on --data (implied by some schemas)",
    )
    parser.add_argument("--data", metavar="D", help="samples to correct biases on, as 'qbench profile' takes them")
    parser.add_argument(
        "--count", metavar="N", type=count_from_one, help="that many of them, spread evenly (default: all)"
    )
    parser.add_argument("--cache", metavar="DIR", help="folder of the cache (default: the user's)")


def wants_correction(arguments: argparse.Namespace, *, by_schema: bool) -> bool:
    """Whether biases are to be corrected; ``by_schema``: the schema says so.

    Raises:
        InputError: there are no samples to do it with, or samples and nothing to do with them; or the model came
            quantized, with no float graph to compare it with.
    """
    doing = f"Quantizing '{arguments.model}'"
    wanted = bool(arguments.correct_bias) or by_schema
    if wanted and arguments.read:
        raise InputError(
            doing,
            found="--correct-bias beside --read",
            expected="a float model, whose means the quantized one is to meet",
            remedy="Leave --correct-bias out, or quantize the float model.",
        )
    if wanted and not arguments.data:
        raise InputError(
            doing,
            found=f"{'a schema that corrects biases' if by_schema else '--correct-bias'} without --data",
            expected="samples to take means from",
            remedy="Add --data, the samples that the profile is of.",
        )
    if arguments.data and not wanted:
        raise InputError(
            doing,
            found="--data without --correct-bias",
            expected="samples only where biases are corrected: ranges come from the profile",
            remedy="Add --correct-bias, or leave --data out.",
        )
    return wanted


def corrected_on_samples(
    arguments: argparse.Namespace, model: "ir.Model", quantized: "ir.Model", plan: "Plan"
) -> "ir.Model":
    """``quantized`` with biases corrected on the samples that ``arguments`` name.

    Raises:
        QbenchError: the data is wrong or does not fit the model.
    """
    from qbench.cli.own_subject import read_network
    from qbench.quantization import correct_biases
    from qbench.storage import Cache
    from qbench.subjects import dataset_from_text, prepare_samples

    data, preprocess = dataset_from_text(arguments.data)
    if arguments.count is not None:
        data = data.take(min(arguments.count, len(data)))
    network = read_network(arguments.model, data, preprocess)
    cache = Cache(Path(arguments.cache)) if arguments.cache else Cache.default()
    samples = prepare_samples(data, network.preprocess, cache)
    return correct_biases(model, quantized, plan, samples.batches())
