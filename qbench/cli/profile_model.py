"""``qbench profile``: watch a float model at work and write down the statistics of its values."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from qbench.cli.command import Command, ExitCode, count_from_one
from qbench.cli.printing import print_json
from qbench.errors import InputError

if TYPE_CHECKING:
    import onnx_ir as ir

    from qbench.zoo import ZooModel


def declare(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``qbench profile``."""
    parser.add_argument("model", metavar="MODEL", help="an ONNX file, or a model of the zoo")
    parser.add_argument("--data", metavar="D", required=True, help="calibration samples, as 'qbench eval' takes them")
    parser.add_argument(
        "--count", metavar="N", type=count_from_one, help="that many of them, spread evenly (default: all)"
    )
    parser.add_argument("-o", "--output", metavar="P.json", required=True, help="the profile to write")
    parser.add_argument(
        "--threads", metavar="N", type=count_from_one, default=1, help="threads of the engine (default: 1)"
    )
    parser.add_argument("--cache", metavar="DIR", help="folder of the cache (default: the user's)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def execute(arguments: argparse.Namespace) -> ExitCode:
    """Calibrate and write.

    Raises:
        QbenchError: the model or the data is wrong, or a value is not finite (the sample is named).
    """
    from qbench.calibration import calibrate
    from qbench.cli.own_subject import read_network
    from qbench.storage import Cache
    from qbench.zoo import dataset_from_text, prepare_samples

    data, preprocess = dataset_from_text(arguments.data)
    if arguments.count is not None:
        data = data.take(min(arguments.count, len(data)))
    network = read_network(arguments.model, data, preprocess)
    cache = Cache(Path(arguments.cache)) if arguments.cache else Cache.default()
    samples = prepare_samples(data, network.preprocess, cache)
    profile = calibrate(only_graph(network), samples.batches(), sample_ids=samples.ids, threads=arguments.threads)
    profile.dump(arguments.output)
    facts = {
        "profile": arguments.output,
        "graph": profile.graph,
        "samples": profile.rows,
        "values": len(profile.values),
    }
    if arguments.json:
        print_json(facts)
    else:
        print(
            f"{arguments.output}: {facts['values']} values of graph {profile.graph[:12]}… over {profile.rows} samples"
        )
    return ExitCode.FINE


def only_graph(network: "ZooModel") -> "ir.Model":
    """The graph of a model that has one.

    Raises:
        InputError: it has several, which only its task can drive.
    """
    if len(network.graphs) != 1:
        raise InputError(
            f"Reading the model '{network.id}'",
            found=f"{len(network.graphs)} graphs ({', '.join(sorted(network.graphs))})",
            expected="one",
            remedy="Measure it with 'qbench eval' or a suite, which drive all its graphs.",
        )
    (load,) = network.graphs.values()
    return load()


COMMAND = Command(
    name="profile",
    summary="watch a float model on samples and write the statistics of its values",
    example="qbench profile net.onnx --data train.npz -o net.profile.json",
    declare=declare,
    execute=execute,
)
