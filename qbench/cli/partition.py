"""qbench partition: which islands of a quantized model a device takes."""

import argparse
from collections import Counter
from typing import TYPE_CHECKING, Any

from qbench.cli.command import Command, ExitCode
from qbench.cli.options import declare_json
from qbench.cli.printing import print_columns, print_json, put
from qbench.number_text import counted, rough_percent

if TYPE_CHECKING:
    from qbench.passes import Costs, Device, Section

_SHOWN = 6


def declare(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``qbench partition``."""
    parser.add_argument("model", metavar="MODEL", help="a quantized ONNX file, in QDQ form")
    parser.add_argument(
        "--device",
        metavar="D",
        required=True,
        help="the device: a name (docs/passes.md) or a .toml",
    )
    declare_json(parser)


def execute(arguments: argparse.Namespace) -> ExitCode:
    """Print the islands, what crosses their borders, and why each other node is off the device.

    Raises:
        QbenchError: the model or the device is wrong, or the device takes nothing of it.
    """
    from qbench.passes import partition_costs, partition_model
    from qbench.subjects import read_graph

    costs = partition_costs(partition_model(read_graph(arguments.model), _device(arguments.device)))
    if arguments.json:
        print_json(_table(arguments, costs))
    else:
        _print(arguments, costs)
    return ExitCode.FINE


def _device(text: str) -> "Device":
    from qbench.passes import get_device, load_device

    return load_device(text) if text.endswith(".toml") else get_device(text)


def _print(arguments: argparse.Namespace, costs: "Costs") -> None:
    partition = costs.partition
    islands, conversions = partition.islands, partition.conversions
    nodes, macs = sum(len(island.nodes) for island in islands), costs.macs_on + costs.macs_off
    share = (
        f", {rough_percent(costs.macs_on / macs)} of {macs} multiply-accumulates" if macs else ""
    )
    where = f"{arguments.model} on {partition.device.name}"
    put(f"{where}: {counted(len(islands), 'island')}, {counted(nodes, 'node')}{share}")
    put(
        f"conversions at its borders: {conversions.quantize} quantized, {conversions.dequantize} "
        "dequantized, "
        f"{conversions.requantize} requantized; {costs.bytes_crossing} bytes per sample cross"
    )
    put()
    rows = [
        (
            str(number),
            str(len(island.nodes)),
            str(costs.macs_of(island)),
            str(costs.bytes_into(island)),
            str(costs.bytes_out_of(island)),
            _operators(island),
        )
        for number, island in enumerate(islands, 1)
    ]
    print_columns(rows, ("island", "nodes", "macs", "bytes in", "bytes out", "operators"))
    if partition.off:
        put()
        put(f"off the device: {counted(len(partition.off), 'node')}")
        print_columns([(name, reason) for name, reason in partition.off.items()])


def _operators(island: "Section") -> str:
    """``12 Conv, 3 Add, …``: the commonest first."""
    from qbench.passes import float_name

    counts = Counter(float_name(node) for node in island.nodes).most_common()
    shown = ", ".join(f"{count} {name}" for name, count in counts[:_SHOWN])
    return shown + (", …" if len(counts) > _SHOWN else "")


def _table(arguments: argparse.Namespace, costs: "Costs") -> dict[str, Any]:
    from qbench.storage import plain

    partition = costs.partition
    return {
        "model": arguments.model,
        "device": partition.device.name,
        "digests": dict(partition.device.digests),
        "macs_on": costs.macs_on,
        "macs_off": costs.macs_off,
        "conversions": plain(partition.conversions),
        "bytes_crossing": costs.bytes_crossing,
        "islands": [_island(costs, island) for island in partition.islands],
        "off": dict(partition.off),
    }


def _island(costs: "Costs", island: "Section") -> dict[str, Any]:
    from qbench.graph import node_key

    return {
        "nodes": [node_key(node) for node in island.nodes],
        "macs": costs.macs_of(island),
        "reads": {value.name: costs.sizes.get(value.name or "") for value in island.reads},
        "gives": {value.name: costs.sizes.get(value.name or "") for value in island.gives},
    }


COMMAND = Command(
    name="partition",
    summary="find the islands of a quantized model that a device can run",
    example="qbench partition int8.onnx --device conv-engine",
    declare=declare,
    execute=execute,
)
