"""Shapes and types of the values inside a graph, and the sizes of free dimensions."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import onnx
import onnx_ir as ir

from qbench.graph.large_constants import SMALL
from qbench.graph.outside_operators import ask_rules, stood_in
from qbench.graph.query import read_entry

# The usual sizes of a graph's free dimensions, written into the model: ``{"H": 224, "W": 224}``.
#
# A network that takes pictures of any size has no cost until the user says which size is meant. The
# batch is never declared: costs are of one sample.

_KEY = "qbench.dims"
_LARGEST = (1 << 31) - 1


def declare_dims(model: ir.Model, dims: Mapping[str, int]) -> None:
    """Write the usual size of each named free dimension into ``model``.

    Raises:
        ValueError: a size is not positive.
    """
    if any(size < 1 for size in dims.values()):
        raise ValueError(f"the usual sizes {dict(dims)} are not all positive")
    model.metadata_props[_KEY] = json.dumps(dict(sorted(dims.items())))


def fixed_batch(model: ir.Model) -> int | None:
    """How many samples a run of ``model`` takes; None where its first input's batch is free."""
    inputs = [value for value in model.graph.inputs if value.name not in model.graph.initializers]
    shape = inputs[0].shape if inputs else None
    if shape is None or not len(shape) or not isinstance(shape[0], int) or shape[0] < 1:
        return None
    return shape[0]


def declared_dims(model: ir.Model) -> dict[str, int]:
    """Name of a free dimension → its usual size; empty for a graph that declares none.

    Raises:
        InputError: the metadata are not as ``declare_dims`` writes them.
    """
    return read_entry(model.metadata_props, _KEY, f"the model '{model.graph.name}'", _sizes) or {}


def _sizes(table: Mapping[str, int]) -> dict[str, int]:
    if not all(type(size) is int and 1 <= size <= _LARGEST for size in table.values()):
        raise ValueError("sizes that are not whole numbers from 1")
    return dict(table)


# Shapes and types of the values inside a graph, inferred by onnx from those of its inputs.

_INFERENCE_BYTES = 1 << 30


def with_shapes(model: ir.Model) -> ir.Model:
    """A copy of ``model`` whose values carry every shape and type that can be inferred."""
    copy = model.clone()
    infer_shapes(copy)
    return copy


def shapes_alone(model: ir.Model, *, free_dims: int) -> ir.Model:
    """A copy of ``model`` to read sizes from: large constants are inputs without numbers there.

    Args:
        model: left untouched.
        free_dims: the size that symbolic dimensions of graph inputs take, other than those the
            model declares a usual size for.
    """
    light = _skeleton(model)
    _fix_free_dims(light, model, free_dims)
    _write_inferred(light, light)
    return light


def infer_shapes(model: ir.Model) -> bool:
    """Write every shape and type that can be inferred into ``model``; True when any was new.

    Where inference fails as a whole (an impossible shape), the model stays as it is.
    """
    return _write_inferred(model, _skeleton(model))


def _write_inferred(model: ir.Model, light: ir.Model) -> bool:
    """Write into ``model`` what is inferred of ``light``, its skeleton; True when any was new."""
    light, modified, asked = stood_in(light), False, True
    while asked:
        modified |= _write_known(model, light)
        asked = ask_rules(model, light)
        modified |= asked
    return modified


def _write_known(model: ir.Model, light: ir.Model) -> bool:
    """Write into ``model`` what onnx infers of ``light``; True when any was new."""
    try:
        proto = inferred(ir.to_proto(light))
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError, MemoryError):
        return False
    modified = False
    for graph, found in zip(model.graphs(), _inferred(proto), strict=True):
        for value in (value for node in graph for value in node.outputs):
            if value.name in found:
                modified |= _take(value, found[value.name])
    return modified


def inferred(proto: onnx.ModelProto, *, strict: bool = False) -> onnx.ModelProto:
    """``proto`` with the types and shapes that onnx infers, computed sizes included, in at most
    1 GiB of memory.

    onnx keeps every element of a propagated value as a message of its own: a Range of 2²⁹ numbers
        took 22 GB.

    Raises:
        MemoryError: it takes more. InferenceError, RuntimeError, ValueError: the graph contradicts
            itself.
    """
    with _bounded_memory(_INFERENCE_BYTES):
        return onnx.shape_inference.infer_shapes(
            proto, check_type=strict, strict_mode=strict, data_prop=True
        )


@contextlib.contextmanager
def _bounded_memory(extra: int) -> Iterator[None]:
    """Let this process take ``extra`` bytes more than it has; nothing is bounded where the
    system cannot do that.
    """
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    except (ImportError, OSError):
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = pages * resource.getpagesize() + extra
    resource.setrlimit(
        resource.RLIMIT_AS, (most if soft == resource.RLIM_INFINITY else min(most, soft), hard)
    )
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _inferred(proto: onnx.ModelProto) -> list[dict[str | None, ir.Value]]:
    """Name → a value with type and shape, of every graph of ``proto`` in the order of
    ``ir.Model.graphs``.
    """
    inner = any(
        part.HasField("g") or part.graphs for node in proto.graph.node for part in node.attribute
    )
    if inner or proto.functions:
        graphs = ir.from_proto(proto).graphs()
        return [{value.name: value for node in graph for value in node.outputs} for graph in graphs]
    # nodes are known: parsing them again takes the longest
    infos = (*proto.graph.value_info, *proto.graph.output)
    return [{info.name: ir.serde.deserialize_value_info_proto(info, None) for info in infos}]


def _fix_free_dims(copy: ir.Model, model: ir.Model, free_dims: int) -> None:
    """Give the inputs of ``copy`` whole sizes, and forget what was inferred from names of sizes."""
    usual = declared_dims(model)
    for value in copy.graph.inputs:
        if value.shape is not None:
            value.shape = ir.Shape(
                d if isinstance(d, int) else usual.get(d.value or "", free_dims)
                for d in value.shape
            )
    for node in ir.traversal.RecursiveGraphIterator(copy.graph):
        for value in node.outputs:
            value.shape = None  # a stored symbolic shape would win over the inferred one


def _skeleton(model: ir.Model) -> ir.Model:
    """A copy in which large constants are inputs, so that their bytes are neither copied nor
    limited.
    """
    copy = model.clone()
    # before 4, a constant that is no input is not looked at
    copy.ir_version = max(copy.ir_version, 10)
    for value in list(copy.graph.initializers.values()):
        tensor = value.const_value
        if tensor is None or tensor.nbytes <= SMALL or value.name is None:
            continue
        value.dtype = tensor.dtype
        value.shape = ir.Shape(d if isinstance(d, int) else None for d in tensor.shape)
        del copy.graph.initializers[value.name]
        value.const_value = None
        if not value.is_graph_input():
            copy.graph.inputs.append(value)
    return copy


def _take(value: ir.Value, inferred: ir.Value) -> bool:
    modified = False
    if inferred.type is not None and value.type != inferred.type:
        value.type = inferred.type
        modified = True
    if inferred.shape is not None and value.shape != inferred.shape:
        value.shape = inferred.shape
        modified = True
    return modified
