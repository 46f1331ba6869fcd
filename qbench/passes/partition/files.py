"""A cut as files: a host graph that calls the islands, an ONNX file for each, and a manifest.

::

    partition.json     what each island reads and gives, with type, shape, scale and zero point
    host.onnx          x ── QuantizeLinear ── qbench.island::island_1 ── DequantizeLinear ── … ── y
    island_1.onnx      integer operators alone, integers in and out

In ``host.onnx`` an island is a node of the domain ``qbench.island``, and a function of that name
holds what it computes. A compiler takes the node for its own operator; a runtime that does not know
it computes the function, by its own arithmetic.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx_ir as ir

from qbench.errors import InputError
from qbench.graph import (
    is_mover,
    load_model,
    node_key,
    node_qparams,
    own_copy,
    save_model,
    shapes_alone,
)
from qbench.numerics import QParams
from qbench.passes.canonical.cleanup import RemoveDead
from qbench.passes.partition.marking import Place
from qbench.passes.partition.partitioning import Costs, Partition, partition_costs
from qbench.passes.partition.sections import Section, sections_of
from qbench.storage import read_json, refuse_newer, write_text

DOMAIN = "qbench.island"
MANIFEST, HOST = "partition.json", "host.onnx"
FORMAT = "qbench-partition/1"
PLACE = "qbench.place"
"""Metadata of a node of the host graph: its ``Place``; at a ``border`` the device's arithmetic
converts.
"""
FILE = "qbench.file"
"""Metadata of the call of an island: its file."""
QPARAMS = ("qbench.qtype", "qbench.scale", "qbench.zero_point")
"""Metadata of an input or output of an island."""
_NAME = re.compile(r"island_[0-9]+")
_IR_VERSION = 10
"""The first whose nodes have metadata."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Boundary:
    """A value that crosses the border of an island.

    Args:
        name: of the value, in every file.
        dtype: of its integers. shape: where it is known; a name is a free dimension.
        qparams: of its integers; None: they are not known, as of indices.
        bytes: of one sample, where they are known.
    """

    name: str
    dtype: str
    shape: tuple[int | str | None, ...] | None
    qparams: QParams | None
    bytes: int | None

    @property
    def facts(self) -> dict[str, Any]:
        """For the manifest."""
        shape = None if self.shape is None else list(self.shape)
        known = {"name": self.name, "dtype": self.dtype, "shape": shape, "bytes": self.bytes}
        if self.qparams is None:
            return known | dict.fromkeys(("qtype", "scale", "zero_point", "axis"))
        return known | {
            "qtype": self.qparams.qtype.name,
            "scale": self.qparams.scale.tolist(),
            "zero_point": self.qparams.zero_point.tolist(),
            "axis": self.qparams.axis,
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class IslandFile:
    """One island: its ``name``, its ``model`` and the values at its border."""

    name: str
    model: ir.Model
    section: Section
    reads: tuple[Boundary, ...]
    gives: tuple[Boundary, ...]

    @property
    def file(self) -> str:
        """The name of its file."""
        return f"{self.name}.onnx"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PartitionFiles:
    """The files of one cut: ``host``, ``islands``, and the ``manifest``."""

    host: ir.Model
    islands: tuple[IslandFile, ...]
    manifest: Mapping[str, Any]


def partition_files(partition: Partition, model: str = "") -> PartitionFiles:
    """The files of ``partition``, of the model called ``model``."""
    costs, borders = partition_costs(partition), _Borders(partition)
    islands = tuple(
        _island(f"island_{number}", section, partition, costs, borders)
        for number, section in enumerate(partition.islands, 1)
    )
    return PartitionFiles(
        host=_host(partition, islands),
        islands=islands,
        manifest=_manifest(partition, islands, costs, model),
    )


def write_partition(files: PartitionFiles, folder: Path) -> None:
    """Write ``files`` into ``folder``, the manifest last: until then an empty one says that the
    files are not whole.

    Raises:
        InputError: the folder holds something else, which might be taken for a part of it.
        StoreError: a file cannot be written.
    """
    require_free(folder)
    write_text(folder / MANIFEST, "{}\n")
    for island in files.islands:
        save_model(island.model, folder / island.file)
    save_model(files.host, folder / HOST)
    write_text(folder / MANIFEST, json.dumps(files.manifest, indent=1, ensure_ascii=False) + "\n")


def require_free(folder: Path) -> None:
    """Check that ``folder`` is new, empty, or holds an earlier partition.

    Raises:
        InputError: it is not.
    """
    is_other = folder.exists() and not folder.is_dir()
    if is_other or (
        folder.is_dir() and any(folder.iterdir()) and not (folder / MANIFEST).is_file()
    ):
        raise InputError(
            f"Writing a partition to '{folder}'",
            found="a file" if is_other else "files of something else in it",
            expected="a new or empty folder, or one of an earlier partition",
            remedy="Name another folder.",
        )
    if folder.is_dir():
        for old in (*folder.glob("island_*.onnx"), *folder.glob("island_*.onnx.data")):
            old.unlink()


class _Borders:
    """What is known of the values of a cut: shapes, and qparams by the Q and DQ around them."""

    def __init__(self, partition: Partition) -> None:
        self._shapes = {value.name: value.shape for value in _values(partition.before)}
        sized = shapes_alone(partition.before, free_dims=1)
        self._ranks = {value.name: value.shape for value in _values(sized)}
        self._qparams: dict[str, QParams] = {}
        for model in (partition.before, partition.model):
            for node in model.graph:
                if node.domain or node.op_type not in ("QuantizeLinear", "DequantizeLinear"):
                    continue
                value = node.outputs[0] if node.op_type == "QuantizeLinear" else node.inputs[0]
                qparams = node_qparams(node)
                if value is not None and value.name and qparams is not None:
                    self._qparams.setdefault(value.name, qparams)

    def of(self, value: ir.Value, costs: Costs) -> Boundary:
        """The facts about ``value``."""
        name = value.name or ""
        shape = value.shape or self._shapes.get(name) or self._free(name)
        return Boundary(
            name=name,
            dtype="unknown" if value.dtype is None else value.dtype.name.lower(),
            shape=None if shape is None else tuple(_dim(dim) for dim in shape),
            qparams=self._known(value),
            bytes=costs.sizes.get(name),
        )

    def _free(self, name: str) -> ir.Shape | None:
        """The shape whose first axis runs over samples, where sizes were inferred for one."""
        shape = self._ranks.get(name)
        return None if shape is None else ir.Shape([None, *list(shape)[1:]])

    def _known(self, value: ir.Value | None) -> QParams | None:
        """The qparams of ``value``; what only moves codes passes theirs on."""
        while value is not None:
            if value.name in self._qparams:
                return self._qparams[value.name]
            maker = value.producer()
            value = maker.inputs[0] if maker is not None and is_mover(maker) else None
        return None


def _values(model: ir.Model) -> Iterator[ir.Value]:
    yield from model.graph.inputs
    for node in model.graph:
        yield from node.outputs


def _dim(dim: int | ir.SymbolicDim) -> int | str | None:
    return dim if isinstance(dim, int) else dim.value


def _island(
    name: str, section: Section, partition: Partition, costs: Costs, borders: _Borders
) -> IslandFile:
    reads = tuple(borders.of(value, costs) for value in section.reads)
    gives = tuple(borders.of(value, costs) for value in section.gives)
    model = section.model(partition.model)
    model.graph.name = name
    for value, one in zip(
        (*model.graph.inputs, *model.graph.outputs), (*reads, *gives), strict=True
    ):
        if one.shape is not None:
            value.shape = ir.Shape(list(one.shape))
        if one.qparams is not None:
            words = (one.qparams.qtype.name, one.facts["scale"], one.facts["zero_point"])
            value.metadata_props.update(zip(QPARAMS, map(str, words), strict=True))
    return IslandFile(name=name, model=model, section=section, reads=reads, gives=gives)


def _host(partition: Partition, islands: tuple[IslandFile, ...]) -> ir.Model:
    """The whole graph, in which each island is one call."""
    host = own_copy(partition.model)
    place_of = {
        node.outputs[0].name: section.place
        for section in partition.sections
        for node in section.nodes
    }
    for node in host.graph:
        node.metadata_props[PLACE] = place_of.get(node.outputs[0].name, Place.STORED).value
    host.ir_version = max(host.ir_version, _IR_VERSION)
    for island in islands:
        _call(host, island)
        host.functions[(DOMAIN, island.name, "")] = _function(island)
    host.graph.sort()
    RemoveDead().run(host)
    host.opset_imports[DOMAIN] = 1
    for function in host.functions.values():  # what they call is imported by the model, too
        for domain, version in function.opset_imports.items():
            host.opset_imports.setdefault(domain, version)
    return host


def _call(host: ir.Model, island: IslandFile) -> None:
    """Put one call in place of the nodes of ``island``."""
    graph = host.graph
    inside = {node.outputs[0].name for node in island.section.nodes}
    nodes = [node for node in graph if node.outputs[0].name in inside]
    made = {value.name: value for node in nodes for value in node.outputs}
    known = {value.name: value for value in _values(host)}
    call = ir.Node(
        DOMAIN,
        island.name,
        [known[one.name] for one in island.reads],
        num_outputs=len(island.gives),
        name=island.name,
        metadata_props={FILE: island.file, PLACE: Place.DEVICE.value},
    )
    for value, one in zip(call.outputs, island.gives, strict=True):
        old = made[one.name]
        value.type, value.shape = old.type, old.shape
        ir.convenience.replace_all_uses_with(old, value, replace_graph_outputs=True)
        old.name, value.name = f"{one.name}_inside", one.name
    graph.insert_after(nodes[-1], call)
    graph.remove(nodes, safe=True)


def _function(island: IslandFile) -> ir.Function:
    """What ``island`` computes: its nodes, with constants as nodes, which functions have in place
    of initializers.
    """
    graph = island.model.clone().graph
    for value in list(graph.initializers.values()):
        constant = ir.node("Constant", [], {"value": value.const_value}, name=f"{value.name}_value")
        graph.insert_before(graph[0], constant)
        value.replace_all_uses_with(constant.outputs[0])
        del graph.initializers[str(value.name)]
        constant.outputs[0].name = value.name
    return ir.Function(DOMAIN, island.name, graph=graph, attributes=[])


def _manifest(
    partition: Partition, islands: tuple[IslandFile, ...], costs: Costs, model: str
) -> dict[str, Any]:
    device, graph = partition.device, partition.model.graph
    return {
        "format": FORMAT,
        "model": model,
        "device": device.name,
        "arithmetic": device.arithmetic.name,
        "digests": dict(device.digests),
        "host": HOST,
        "inputs": [value.name for value in graph.inputs],
        "outputs": [value.name for value in graph.outputs],
        "islands": [
            {
                "name": one.name,
                "file": one.file,
                "nodes": [node_key(node) for node in one.section.nodes],
                "macs": costs.macs_of(one.section),
                "inputs": [value.facts for value in one.reads],
                "outputs": [value.facts for value in one.gives],
            }
            for one in islands
        ],
        "off": dict(partition.off),
    }


# Reading them again: the sections of the host graph, in each of which an island is one node.


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReadPartition:
    """A folder that ``write_partition`` wrote.

    Args:
        manifest: of the folder.
        host: the host graph without what the islands compute.
        sections: of it; those on the device hold calls.
        islands: name → model, of their files.
    """

    manifest: Mapping[str, Any]
    host: ir.Model
    sections: tuple[Section, ...]
    islands: Mapping[str, ir.Model]


def read_partition(folder: Path | str) -> ReadPartition:
    """The files in ``folder``.

    Raises:
        InputError: it holds no partition, one of a newer qbench, or a file is missing or wrong.
    """
    folder = Path(folder)
    doing = f"Reading the partition '{folder}'"
    manifest = read_json(folder / MANIFEST, doing)
    refuse_newer(doing, manifest.get("format"), FORMAT)
    if manifest.get("format") != FORMAT:
        raise InputError(
            doing,
            found=f"the format {manifest.get('format')!r}",
            expected=f"'{FORMAT}'",
            remedy="Name a folder that 'qbench partition -o' wrote.",
        )
    host = load_model(folder / HOST)
    calls = [node for node in host.graph if node.domain == DOMAIN]
    for node in calls:
        if not _NAME.fullmatch(node.op_type):  # it names a file
            raise InputError(
                doing,
                found=f"a call of {node.op_type!r} in '{HOST}'",
                expected="islands by number, as in 'island_1'",
                remedy="Write the partition again.",
            )
        host.functions.pop((DOMAIN, node.op_type, ""), None)
    return ReadPartition(
        manifest=manifest,
        host=host,
        sections=sections_of(host.graph, _places_of(host, doing)),
        islands={node.op_type: load_model(folder / f"{node.op_type}.onnx") for node in calls},
    )


def _places_of(host: ir.Model, doing: str) -> dict[ir.Node, Place]:
    """The place of each node of ``host``; calls of islands, and no others, are on the device.

    Raises:
        InputError: a node says otherwise.
    """
    known, found = {place.value: place for place in Place}, {}
    for node in host.graph:
        word = node.metadata_props.get(PLACE, Place.HOST.value)
        place = known.get(word)
        if place is None or (place is Place.DEVICE) != (node.domain == DOMAIN):
            raise InputError(
                doing,
                found=f"{PLACE} = {word!r} at '{node_key(node)}' in '{HOST}'",
                expected=f"'{Place.DEVICE.value}' at calls of islands, and another place elsewhere",
                remedy="Write the partition again.",
            )
        found[node] = place
    return found
