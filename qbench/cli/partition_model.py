"""``qbench partition``: what of a quantized model a device takes, in which islands, what crosses, and why the rest."""

import argparse
from collections import Counter
from typing import TYPE_CHECKING, Any

from qbench.cli.command import Command, ExitCode
from qbench.cli.printing import counted, print_columns, print_json, rough_percent

if TYPE_CHECKING:
    from qbench.passes import Device, Partition, Section

_SHOWN = 6


def declare(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``qbench partition``."""
    parser.add_argument("model", metavar="MODEL", help="a quantized ONNX file, in QDQ form")
    parser.add_argument(
        "--device", metavar="D", required=True, help="what takes the islands: a name (docs/partition.md) or a .toml"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def execute(arguments: argparse.Namespace) -> ExitCode:
    """Print the islands, what crosses their borders, and why each other node is off the device.

    Raises:
        QbenchError: the model or the device is wrong, or the device takes nothing of it.
    """
    from qbench.cli.own_subject import read_graph
    from qbench.passes import partition_model

    partition = partition_model(read_graph(arguments.model), _device(arguments.device))
    if arguments.json:
        print_json(_table(arguments, partition))
    else:
        _print(arguments, partition)
    return ExitCode.FINE


def _device(text: str) -> "Device":
    from qbench.passes import get_device, load_device

    return load_device(text) if text.endswith(".toml") else get_device(text)


def _print(arguments: argparse.Namespace, partition: "Partition") -> None:
    islands, conversions = partition.islands, partition.conversions
    nodes, macs = sum(len(island.nodes) for island in islands), partition.macs_on + partition.macs_off
    share = f", {rough_percent(partition.macs_on / macs)} of {macs} multiply-accumulates" if macs else ""
    where = f"{arguments.model} on {partition.device.name}"
    print(f"{where}: {counted(len(islands), 'island')}, {counted(nodes, 'node')}{share}")
    print(
        f"at its borders {conversions.quantize} quantized, {conversions.dequantize} dequantized, "
        f"{conversions.requantize} requantized; {partition.bytes_crossing} bytes a sample cross\n"
    )
    rows = [
        (
            str(number),
            str(len(island.nodes)),
            str(partition.macs_of(island)),
            str(partition.bytes_into(island)),
            str(partition.bytes_out_of(island)),
            _operators(island),
        )
        for number, island in enumerate(islands, 1)
    ]
    print_columns(rows, ("island", "nodes", "macs", "bytes in", "bytes out", "operators"))
    if partition.off:
        print(f"\noff the device: {counted(len(partition.off), 'node')}")
        print_columns([(name, reason) for name, reason in partition.off.items()])


def _operators(island: "Section") -> str:
    """``12 Conv, 3 Add, …``: the commonest first."""
    from qbench.passes import float_name

    counts = Counter(float_name(node) for node in island.nodes).most_common()
    shown = ", ".join(f"{count} {name}" for name, count in counts[:_SHOWN])
    return shown + (", …" if len(counts) > _SHOWN else "")


def _table(arguments: argparse.Namespace, partition: "Partition") -> dict[str, Any]:
    from qbench.storage import plain

    return {
        "model": arguments.model,
        "device": partition.device.name,
        "digests": dict(partition.device.digests),
        "macs_on": partition.macs_on,
        "macs_off": partition.macs_off,
        "conversions": plain(partition.conversions),
        "bytes_crossing": partition.bytes_crossing,
        "islands": [_island(partition, island) for island in partition.islands],
        "off": dict(partition.off),
    }


def _island(partition: "Partition", island: "Section") -> dict[str, Any]:
    from qbench.graph import node_key

    return {
        "nodes": [node_key(node) for node in island.nodes],
        "macs": partition.macs_of(island),
        "reads": {value.name: partition.sizes.get(value.name or "") for value in island.reads},
        "gives": {value.name: partition.sizes.get(value.name or "") for value in island.gives},
    }


COMMAND = Command(
    name="partition",
    summary="say what of a quantized model a device takes, in which islands, and why not the rest",
    example="qbench partition int8.onnx --device conv-engine",
    declare=declare,
    execute=execute,
)
