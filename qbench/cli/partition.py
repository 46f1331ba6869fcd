"""qbench partition: which islands of a quantized model a device takes, and files of them."""

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbench.cli.command import Command, ExitCode
from qbench.cli.options import (
    choose_cache,
    declare_count,
    declare_data,
    declare_json,
    read_samples,
)
from qbench.cli.printing import print_columns, print_json, put
from qbench.errors import InputError, QbenchError
from qbench.number_text import counted, rough_percent

if TYPE_CHECKING:
    import onnx_ir as ir

    from qbench.backends import Array, Feeds
    from qbench.passes import Costs, Device, PartitionFiles, Section

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
    parser.add_argument(
        "-o",
        "--output",
        metavar="DIR",
        help="write each island as an ONNX file, the host graph that calls them, and a manifest",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="run the files and the whole model, and compare every bit; exit code 1 if one differs",
    )
    declare_data(parser, "samples for --check (default: random numbers)")
    declare_count(parser, _SAMPLES)
    declare_json(parser)


def execute(arguments: argparse.Namespace) -> ExitCode:
    """Print the islands, what crosses their borders, and why each other node is off the device.

    Raises:
        QbenchError: the model or the device is wrong, or the device takes nothing of it.
    """
    from qbench.passes import partition_costs, partition_files, partition_model, write_partition
    from qbench.subjects import read_graph

    _refuse_idle(arguments)
    device = _device(arguments.device)
    costs = partition_costs(partition_model(read_graph(arguments.model), device))
    files, checked = None, None
    if arguments.output:
        files = partition_files(costs.partition, Path(arguments.model).name)
        write_partition(files, Path(arguments.output))
        checked = _check(arguments, device) if arguments.check else None
    if arguments.json:
        print_json(_table(arguments, costs) | _written_facts(arguments, files, checked))
    else:
        _print(arguments, costs)
        _print_written(arguments, files, checked)
    return ExitCode.GATE_FAILED if checked and checked.differing else ExitCode.FINE


def _refuse_idle(arguments: argparse.Namespace) -> None:
    """Refuse options that another one is missing for.

    Raises:
        InputError: there is one.
    """
    for option, is_given, needed in (
        ("--check", arguments.check and not arguments.output, "-o"),
        ("--data", arguments.data and not arguments.check, "--check"),
    ):
        if is_given:
            raise InputError(
                f"Partitioning '{arguments.model}'",
                found=f"{option} without {needed}",
                expected=f"{option} next to {needed}",
                remedy=f"Add {needed}.",
            )


# ``--check``: the files, the whole model on the same device, and the host graph in an ONNX Runtime
# that does not know the islands.

_SAMPLES = 16
_RUNTIME = "ort-cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Checked:
    """What was compared: ``samples``, ``elements`` of outputs, how many are ``differing``;
    ``runtime``: what a plain ONNX Runtime does with the host graph, in words.
    """

    samples: int
    elements: int
    differing: int
    runtime: str


def _check(arguments: argparse.Namespace, device: "Device") -> _Checked:
    from contextlib import ExitStack, closing

    from qbench.backends import PartitionedBackend, open_partition

    samples = elements = differing = 0
    whole = PartitionedBackend(accelerator=device)
    runtime = _Runtime(Path(arguments.output))
    with ExitStack() as stack:
        ours = stack.enter_context(
            closing(open_partition(arguments.output, arithmetic=device.arithmetic))
        )
        theirs = stack.enter_context(closing(whole.prepare(arguments.model)))
        stack.enter_context(closing(runtime))
        for feeds in _batches(arguments):
            one, other = ours.run(feeds), theirs.run(feeds)
            samples += len(next(iter(feeds.values())))
            elements += sum(array.size for array in other.values())
            differing += _unequal(one, other)
            runtime.compare(feeds, other)
    return _Checked(
        samples=samples, elements=elements, differing=differing, runtime=runtime.words(elements)
    )


def _unequal(one: "Mapping[str, Array]", other: "Mapping[str, Array]") -> int:
    from qbench.metrics import unequal

    return sum(int(unequal(one[name], array).sum()) for name, array in other.items())


class _Runtime:
    """The host graph in ONNX Runtime, which computes islands by the functions of that graph."""

    def __init__(self, folder: Path) -> None:
        from qbench.backends import get_backend

        self._why, self._differing, self._run = "", 0, None
        try:
            self._run = get_backend(_RUNTIME).prepare(folder / "host.onnx")
        except QbenchError as error:
            self._why = str(error)

    def compare(self, feeds: "Feeds", theirs: "Mapping[str, Array]") -> None:
        """Run one batch."""
        if self._run is not None:
            self._differing += _unequal(self._run.run(feeds), theirs)

    def words(self, elements: int) -> str:
        """What was found."""
        if self._run is None:
            return f"does not load host.onnx: {self._why}"
        if not self._differing:
            return "loads host.onnx, and gives the same bits"
        return (
            f"loads host.onnx; {self._differing} of {elements} outputs differ, because it computes "
            "the islands by its own arithmetic"
        )

    def close(self) -> None:
        """Close the engine."""
        if self._run is not None:
            self._run.close()


def _batches(arguments: argparse.Namespace) -> "Iterator[Feeds]":
    from qbench.evaluation import fed_batches
    from qbench.subjects import read_graph

    if arguments.data:
        yield from fed_batches(
            *read_samples(arguments.model, arguments.data, arguments.count, choose_cache(None))
        )
    else:
        yield _random(arguments, read_graph(arguments.model))


def _random(arguments: argparse.Namespace, model: "ir.Model") -> "Feeds":
    """One batch of standard normal numbers."""
    import numpy as np

    from qbench.graph import declared_dims, fixed_batch

    random, sizes = np.random.default_rng(0), declared_dims(model)
    count = fixed_batch(model) or arguments.count
    feeds = {}
    for value in model.graph.inputs:
        if value.dtype is None or value.dtype.name != "FLOAT" or value.shape is None:
            raise InputError(
                f"Checking the partition of '{arguments.model}'",
                found=f"no --data, and the input '{value.name}' is no array of floats",
                expected="samples for it",
                remedy="Add --data.",
            )
        shape = [
            dim if isinstance(dim, int) else sizes.get(str(dim.value), 1) for dim in value.shape
        ]
        shape[:1] = [count][: len(shape)]
        feeds[value.name or ""] = random.normal(size=shape).astype(np.float32)
    return feeds


def _print_written(
    arguments: argparse.Namespace, files: "PartitionFiles | None", checked: _Checked | None
) -> None:
    if files is None:
        return
    put()
    put(f"{arguments.output}: host.onnx, partition.json and {_names(files)}")
    if checked is None:
        return
    equal = (
        "equal to the whole model bit for bit"
        if not checked.differing
        else f"{checked.differing} outputs are not those of the whole model"
    )
    put(
        f"the files: {equal}, {checked.elements} outputs of {counted(checked.samples, 'sample')} "
        "compared"
    )
    put(f"plain ONNX Runtime {checked.runtime}")


def _names(files: "PartitionFiles") -> str:
    names: Sequence[str] = [island.file for island in files.islands]
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"


def _written_facts(
    arguments: argparse.Namespace, files: "PartitionFiles | None", checked: _Checked | None
) -> dict[str, Any]:
    from qbench.storage import plain

    if files is None:
        return {}
    return {
        "output": arguments.output,
        "files": ["partition.json", "host.onnx", *(island.file for island in files.islands)],
        "checked": None if checked is None else plain(checked),
    }


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
    summary="find, and write as files, the islands that a device can run",
    example="qbench partition int8.onnx --device conv-engine",
    declare=declare,
    execute=execute,
)
