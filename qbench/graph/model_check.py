"""The gate of every ONNX message: what is not a valid model, too large, or reads files that are
not its own is refused.

The message is checked as it came, before anything is built from it, in an order in which no step
can be led astray by what a later one refuses: sizes and nesting first, then tensors, then ONNX's
checker and strict type inference on a copy without large constants. What passes is a graph that
onnx-ir, the passes and every engine can take for granted.
"""

import math
import os
import stat
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from mmap import ACCESS_READ, mmap
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx.inliner
import onnx_ir as ir

from qbench.errors import InputError
from qbench.graph.large_constants import SMALL
from qbench.graph.shapes import inferred
from qbench.storage import LimitName, current_limits, factor_admitting, too_large

_DEFAULT_DOMAINS = ("", "ai.onnx")
_DEFAULTS = "qbench.defaults"
_GRAPH_AS_NODES = 10
"""Nodes that a graph inside a node counts as: a small file can hold very many, and each is read
by every step.
"""
_DATA_TYPES = frozenset(onnx.TensorProto.DataType.values()) - {onnx.TensorProto.UNDEFINED}
_FIELDS: Mapping[int, str] = MappingProxyType(
    {
        onnx.TensorProto.FLOAT: "float_data",
        onnx.TensorProto.COMPLEX64: "float_data",
        onnx.TensorProto.DOUBLE: "double_data",
        onnx.TensorProto.COMPLEX128: "double_data",
        onnx.TensorProto.INT64: "int64_data",
        onnx.TensorProto.UINT32: "uint64_data",
        onnx.TensorProto.UINT64: "uint64_data",
        onnx.TensorProto.STRING: "string_data",
    }
)
"""Data type → the field that holds its elements where they are not raw bytes; all others are in
``int32_data``.
"""

_GROWING = frozenset(
    {"ConstantOfShape", "EyeLike", "Expand", "OneHot", "Pad", "Range", "Resize", "Tile", "Upsample"}
)
"""Operators whose result can be of any size, whatever the size of their inputs."""

_TEXT_BYTES = ("s", "strings")
"""Fields of an attribute that are bytes to protobuf and text to ONNX."""


def read_message(path: Path, doing: str) -> bytes:
    """The bytes of the model file at ``path``.

    Raises:
        InputError: it cannot be read, is not a regular file, or is too large.
    """
    try:
        # Without O_NONBLOCK, opening a fifo waits for a writer.
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                found = "a directory" if stat.S_ISDIR(status.st_mode) else "a special file"
                raise InputError(
                    doing, found=found, expected="a readable ONNX file", remedy="Check the path."
                )
            if status.st_size > current_limits().file_bytes:
                raise too_large(doing, "a file", status.st_size, "file_bytes")
            return file.read()
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        found = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise InputError(
            doing, found=found, expected="a readable ONNX file", remedy="Check the path."
        ) from error


def check_message(proto: onnx.ModelProto, doing: str) -> None:
    """Check everything about ``proto`` that can be checked without its external files; it is
    not changed.

    Raises:
        InputError: it exceeds a limit, or is not a valid model; what is wrong is named.
    """
    _Check(proto, doing).run()


def check_tensor(tensor: onnx.TensorProto, doing: str) -> None:
    """Check that the numbers of ``tensor`` are in it and fit its type and dims.

    Raises:
        InputError: they do not, or it exceeds a limit.
    """
    check = _Check(onnx.ModelProto(), doing)
    check.check_tensor(tensor, f"the tensor '{tensor.name}'", may_be_external=False)
    check.refuse_excess()


class ExternalFiles:
    """The files below one folder that constants of a model are in; each is opened once and mapped.

    Args:
        folder: the model's; None: a message in memory, which has none.
        doing: what errors begin with.
    """

    def __init__(self, folder: Path | None, doing: str) -> None:
        self._folder = folder
        self._doing = doing
        self._maps: dict[str, mmap | bytes] = {}

    def attach(self, model: ir.Model) -> None:
        """Give every initializer of ``model`` that lies in a file its numbers, mapped.

        Raises:
            InputError: a file that is missing, too short, outside the folder (by its name or by a
                symbolic link), or not a regular one.
        """
        for graph in model.graphs():
            for value in graph.initializers.values():
                if isinstance(value.const_value, ir.ExternalTensor):
                    value.const_value = self._mapped(value.const_value)

    def _mapped(self, tensor: ir.ExternalTensor) -> ir.TensorProtocol:
        location = os.fspath(tensor.location)
        if location not in self._maps:
            self._maps[location] = self._open(location, tensor.name)
        data, offset, size = self._maps[location], tensor.offset or 0, tensor.nbytes
        if offset < 0 or offset + max(tensor.length or size, size) > len(data):
            raise self._refusal(f"constant '{tensor.name}' past the end of '{location}'")
        if tensor.length is not None and tensor.length != size:
            raise self._refusal(
                f"constant '{tensor.name}' of {size:,} bytes in {tensor.length:,} of '{location}'"
            )
        if tensor.dtype.bitwidth < 8:
            packed = np.frombuffer(data, np.uint8, size, offset)
            return ir.PackedTensor(packed, tensor.dtype, shape=tensor.shape, name=tensor.name)
        dtype = np.dtype(tensor.dtype.numpy()).newbyteorder("<")
        array = np.frombuffer(data, dtype, tensor.size, offset).reshape(tensor.shape.numpy())
        return ir.Tensor(array, tensor.dtype, name=tensor.name)

    def _open(self, location: str, name: str) -> mmap | bytes:
        if self._folder is None:
            raise self._refusal(
                f"constant '{name}' in '{location}', of a model in memory, which has no folder"
            )
        folder = os.path.realpath(self._folder)
        path = os.path.realpath(os.path.join(folder, location)) if "\0" not in location else folder
        parts = Path(os.path.relpath(path, folder)).parts
        outside = os.path.isabs(location) or ".." in Path(location).parts or ".." in parts
        if outside or not location:
            raise self._refusal(f"constant '{name}' in '{location}', outside the model's folder")
        try:
            # One folder after the other, so that a link that is put there meanwhile is refused,
            # too.
            at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            for number, part in enumerate(parts, start=1):
                flags = os.O_DIRECTORY if number < len(parts) else os.O_NONBLOCK
                try:
                    inner = os.open(
                        part, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags, dir_fd=at
                    )
                finally:
                    os.close(at)
                at = inner
            with open(at, "rb") as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode):
                    raise self._refusal(
                        f"constant '{name}' in '{location}', which is not a regular file"
                    )
                return mmap(file.fileno(), 0, access=ACCESS_READ) if status.st_size else b""
        except FileNotFoundError as error:
            raise self._refusal(f"constant '{name}' in '{location}', which is not there") from error
        except OSError as error:
            raise self._refusal(
                f"constant '{name}' in '{location}': {error.strerror or error}"
            ) from error

    def _refusal(self, found: str) -> InputError:
        return InputError(
            self._doing,
            found=found,
            expected="every constant in a whole, regular file below the model's folder",
            remedy="Copy the model with its data files into one folder.",
        )


class _Check:
    """The steps of ``check_message``, each of which may rely on those before it."""

    def __init__(self, proto: onnx.ModelProto, doing: str) -> None:
        self._proto = proto
        self._doing = doing
        self._limits = current_limits()
        self._excess: list[tuple[str, int, LimitName]] = []
        self._functions = {(f.domain, f.name, f.overload): f for f in proto.functions}

    def run(self) -> None:
        self._check_versions()
        self._check_nesting()
        self._check_interface()
        bodies: list[onnx.GraphProto | onnx.FunctionProto] = []
        size = 0
        for owner in (self._proto.graph, *self._proto.functions):
            is_main = owner is self._proto.graph
            known = (
                () if is_main else (*owner.attribute, *(one.name for one in owner.attribute_proto))
            )
            for body in (owner, *_inner_graphs(_nodes_of(owner))):
                if isinstance(body, onnx.GraphProto):
                    size += self._check_constants(body, may_be_external=is_main)
                    self._check_values(body)
                size += sum(self._check_attributes(node, known) for node in _nodes_of(body))
                bodies.append(body)
        self._limit("constants", size, "data_bytes")
        for field in _undecoded(self._proto):
            raise self._invalid(f"bytes that are not UTF-8 in a field '{field}', which is text")
        self._check_validity(_without_large_constants(self._proto))
        for body in bodies:
            for node in body.node:
                if node.op_type == "Loop" and node.domain in _DEFAULT_DOMAINS:
                    self._check_loop(node, body)
        self.refuse_excess()

    def refuse_excess(self) -> None:
        """Refuse what is too large, by what needs the largest factor: that factor admits the
        rest as well.
        """
        if self._excess:
            raise too_large(
                self._doing,
                *max(self._excess, key=lambda one: factor_admitting(*one[1:]) or math.inf),
            )

    def _limit(self, what: str, size: int, limit: LimitName) -> None:
        """Note ``what`` where its ``size`` exceeds ``limit``."""
        if size > getattr(self._limits, limit):
            self._excess.append((what, size, limit))

    def _check_versions(self) -> None:
        imports = [o.version for o in self._proto.opset_import if o.domain in _DEFAULT_DOMAINS]
        if len(set(imports)) > 1:
            raise self._invalid("the default operator set imported twice")
        known = (
            ("IR version", self._proto.ir_version, onnx.IR_VERSION),
            ("opset", imports[0] if imports else 1, onnx.defs.onnx_opset_version()),
        )
        for what, found, newest in known:
            if not 1 <= found <= newest:
                raise InputError(
                    self._doing,
                    found=f"{what} {found}",
                    expected=(
                        f"{what} 1 to {newest}, which the installed onnx {onnx.__version__} knows"
                    ),
                    remedy="Export the model for an older one, or install a newer onnx.",
                )

    def _check_nesting(self) -> None:
        """Count nodes, every call of a function as the nodes of its body, and their depth;
        refuse a call of itself.
        """
        if len(self._functions) < len(self._proto.functions):
            raise self._invalid("a function that is defined twice")
        known: dict[tuple[str, str, str], tuple[int, int]] = {}
        calling: list[tuple[str, str, str]] = []

        def measured(nodes: Iterable[onnx.NodeProto], depth: int) -> tuple[int, int]:
            """The number of nodes, and the depth below."""
            self._check_depth(depth)
            total, height = 0, 0
            for node in nodes:
                key = (node.domain, node.op_type, node.overload)
                parts = [called(key, depth + 1)] if key in self._functions else [(1, 0)]
                parts += [measured(graph.node, depth + 1) for graph in _graphs_of(node)]
                total += sum(count for count, _ in parts) + _GRAPH_AS_NODES * (len(parts) - 1)
                height = max(height, *(depth for _, depth in parts))
            return total, height + 1

        def called(key: tuple[str, str, str], depth: int) -> tuple[int, int]:
            if key in calling:
                raise self._invalid(f"the function '{key[1]}', which calls itself")
            if key not in known:
                calling.append(key)
                known[key] = measured(_nodes_of(self._functions[key]), depth)
                calling.pop()
            count, height = known[key]
            self._check_depth(depth + height - 1)
            return count, height

        bodies = [measured(self._proto.graph.node, 0), *(called(key, 0) for key in self._functions)]
        self._limit(
            "a nesting of graphs and functions", max(height for _, height in bodies) - 1, "depth"
        )
        self._limit("a graph", sum(count for count, _ in bodies), "nodes")
        self.refuse_excess()  # what follows takes time with every node

    def _check_depth(self, depth: int) -> None:
        """Refuse a depth that no factor admits; up to there, the whole depth has to be known to
        say which does.
        """
        if factor_admitting(depth, "depth") is None:
            raise too_large(self._doing, "a nesting of graphs and functions", depth, "depth")

    def _check_interface(self) -> None:
        for word, values in (
            ("input", self._proto.graph.input),
            ("output", self._proto.graph.output),
        ):
            for value in values:
                kind = value.type.WhichOneof("value")
                if kind != "tensor_type":
                    raise InputError(
                        self._doing,
                        found=(
                            f"the {word} '{value.name}' of {(kind or 'no type').replace('_', ' ')}"
                        ),
                        expected="tensors as inputs and outputs of the model",
                        remedy="Export the model with tensors there; sequences may be used inside.",
                    )
                if value.type.tensor_type.elem_type not in _DATA_TYPES:
                    raise self._invalid(
                        f"the {word} '{value.name}' of element type "
                        f"{value.type.tensor_type.elem_type}"
                    )
                if any(
                    d.HasField("dim_value") and d.dim_value < 0
                    for d in value.type.tensor_type.shape.dim
                ):
                    raise self._invalid(f"the {word} '{value.name}' with a negative dimension")

    def _check_values(self, graph: onnx.GraphProto) -> None:
        """Refuse a tensor that a graph declares without an element type, which ONNX demands."""
        for value in graph.value_info:
            kind = value.type.tensor_type.elem_type
            if value.type.HasField("tensor_type") and kind not in _DATA_TYPES:
                raise self._invalid(f"the value '{value.name}' of element type {kind}")

    def _check_constants(self, graph: onnx.GraphProto, *, may_be_external: bool) -> int:
        """Check the initializers of ``graph``; their bytes."""
        for sparse in graph.sparse_initializer:
            raise self._sparse(f"the constant '{sparse.values.name}'")
        seen: set[str] = set()
        size = 0
        for tensor in graph.initializer:
            if not tensor.name or tensor.name in seen:
                raise self._invalid(
                    f"two constants called '{tensor.name}'"
                    if tensor.name
                    else "an unnamed constant"
                )
            seen.add(tensor.name)
            size += self.check_tensor(
                tensor, f"the constant '{tensor.name}'", may_be_external=may_be_external
            )
        return size

    def _check_attributes(self, node: onnx.NodeProto, known: Container[str]) -> int:
        """Check the attributes of ``node``; the bytes of the tensors in them.

        Args:
            known: names of the attributes of the function that the node is in.
        """
        seen: set[str] = set()
        size = 0
        for attribute in node.attribute:
            where = f"the attribute '{attribute.name}' of the node '{node.name or node.op_type}'"
            if attribute.name in seen:
                raise self._invalid(f"{where} twice")
            seen.add(attribute.name)
            if attribute.ref_attr_name and attribute.ref_attr_name not in known:
                raise self._invalid(
                    f"{where} that refers to '{attribute.ref_attr_name}', which no function around "
                    "it has"
                )
            if attribute.HasField("sparse_tensor") or attribute.sparse_tensors:
                raise self._sparse(where)
            tensors = (*([attribute.t] if attribute.HasField("t") else []), *attribute.tensors)
            size += sum(
                self.check_tensor(tensor, where, may_be_external=False) for tensor in tensors
            )
        return size

    def check_tensor(self, tensor: onnx.TensorProto, what: str, *, may_be_external: bool) -> int:
        """Check that ``tensor`` holds what its type and dims say; its bytes."""
        if tensor.data_type not in _DATA_TYPES:
            raise self._invalid(f"{what} of element type {tensor.data_type}")
        if any(dim < 0 for dim in tensor.dims):
            raise self._invalid(f"{what} with a negative dimension")
        size, is_text = _bytes_of(tensor), tensor.data_type == onnx.TensorProto.STRING
        self._limit(what, size, "tensor_bytes")
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            if not may_be_external or is_text:
                raise InputError(
                    self._doing,
                    found=f"external data in {what}",
                    expected="external data of numbers in initializers of graphs, and nowhere else",
                    remedy=(
                        "If you trust the file, load it with onnx.load and save it with all data "
                        "inside."
                    ),
                )
            self._check_extent(tensor, what)
            return size
        if tensor.HasField("segment"):
            raise self._invalid(f"{what} in segments")
        if tensor.HasField("raw_data"):
            found, needed = len(tensor.raw_data), -1 if is_text else size
        else:
            dtype = ir.DataType(tensor.data_type)
            found = len(getattr(tensor, _FIELDS.get(tensor.data_type, "int32_data")))
            packed = not is_text and dtype.bitwidth < 8
            needed = (
                size if packed else math.prod(tensor.dims) * (1 + dtype.name.startswith("COMPLEX"))
            )
        if found != needed:
            dims = "×".join(map(str, tensor.dims)) or "scalar"
            raise self._invalid(f"{what} of shape {dims}, whose data do not have that size")
        return sum(map(len, tensor.string_data)) if is_text else size

    def _check_extent(self, tensor: onnx.TensorProto, what: str) -> None:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        for key in ("offset", "length"):
            text = entries.get(key, "0")
            if not (
                isinstance(text, str) and text.isascii() and text.isdecimal() and len(text) < 19
            ):
                raise self._invalid(f"{what} with the {key} '{text[:40]!r}' of its external data")
        if not isinstance(entries.get("location"), str):
            raise self._invalid(f"{what} with external data in an unnamed file")
        for key in set(entries) - {"location", "offset", "length", "checksum"}:
            raise self._invalid(f"{what} with an unknown entry '{key}' of its external data")

    def _check_validity(self, light: onnx.ModelProto) -> None:
        """ONNX's checker, its strict inference of types and shapes, and the sizes that the
        inference finds.
        """
        unknown = [
            value for value in light.graph.input if not value.type.tensor_type.HasField("shape")
        ]
        for value in (*unknown, *light.graph.output):
            # the checker wants one, though it may be left out
            value.type.tensor_type.shape.SetInParent()
        try:
            onnx.checker.check_model(light)
            for graph in (light.graph, *_inner_graphs(light.graph.node)):
                for value in (*unknown, *graph.output, *graph.value_info):
                    if value.type.HasField("tensor_type"):
                        # where others are declared, engines only warn
                        value.type.tensor_type.ClearField("shape")
            found = inferred(light, strict=True)
            if light.functions and not self._excess:
                # the values inside their calls have no shapes otherwise
                found = inferred(onnx.inliner.inline_local_functions(light), strict=False)
        except MemoryError as error:
            raise InputError(
                self._doing,
                found=(
                    "computed constants so large that inferring the shapes of the graph takes more "
                    "than 1 GiB"
                ),
                expected="a model whose shapes depend on small constants",
                remedy="Export the model with such values as constants.",
            ) from error
        except Exception as error:  # both raise many kinds
            raise self._invalid(_first_line(error)) from error
        sizes: dict[str, int] = {}
        for graph in (found.graph, *_inner_graphs(found.graph.node)):
            for value in (*graph.value_info, *graph.output):
                sizes[value.name] = max(sizes.get(value.name, 0), self._check_size(value))
        constants = frozenset(tensor.name for tensor in self._proto.graph.initializer)
        made = sum(sizes.get(name, 0) for name in _grown(found.graph, constants))
        self._limit("values that operators make large out of constants", made, "made_bytes")

    def _check_size(self, value: onnx.ValueInfoProto) -> int:
        """Note ``value`` where it is too large; its bytes as far as its shape says them."""
        kind = value.type.tensor_type
        if not value.type.HasField("tensor_type") or kind.elem_type not in _DATA_TYPES:
            return 0
        count = math.prod(d.dim_value for d in kind.shape.dim if d.HasField("dim_value"))
        size = int(
            count
            if kind.elem_type == onnx.TensorProto.STRING
            else count * _bits(kind.elem_type) // 8
        )
        self._limit(f"the value '{value.name}'", size, "tensor_bytes")
        return size

    def _check_loop(
        self, node: onnx.NodeProto, outer: onnx.GraphProto | onnx.FunctionProto
    ) -> None:
        """Refuse a Loop whose condition never ends it and that has no other end, or one that is
        too far away.
        """
        body = next(_graphs_of(node), None)
        if body is None or not body.output or not _always_true(body):
            return
        what = f"the loop '{node.name or node.output[0]}'"
        if not (node.input and node.input[0]):
            raise self._invalid(f"{what}, which never ends")
        trips = _constant(node.input[0], outer, self._proto.graph)
        if trips is not None and trips.size == 1:
            self._limit(what, int(trips.flat[0]), "iterations")

    def _sparse(self, what: str) -> InputError:
        return InputError(
            self._doing,
            found=f"{what} as a sparse tensor",
            expected="dense constants",
            remedy="Export the model with dense constants.",
        )

    def _invalid(self, found: str) -> InputError:
        return InputError(
            self._doing,
            found=found,
            expected="a valid ONNX model",
            remedy="Export the model again; onnx.checker may show more.",
        )


def _nodes_of(body: onnx.GraphProto | onnx.FunctionProto) -> Sequence[onnx.NodeProto]:
    """The nodes of ``body``; the default values of a function's attributes are checked as those
    of one more node.
    """
    nodes: Sequence[onnx.NodeProto] = body.node
    if isinstance(body, onnx.GraphProto) or not body.attribute_proto:
        return nodes
    return (
        *nodes,
        onnx.NodeProto(domain=_DEFAULTS, op_type=body.name, attribute=body.attribute_proto),
    )


def _graphs_of(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs in the attributes of ``node``."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _inner_graphs(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.GraphProto]:
    """The graphs in the attributes of ``nodes``, and those inside them."""
    for node in nodes:
        for graph in _graphs_of(node):
            yield graph
            yield from _inner_graphs(graph.node)


def _grown(graph: onnx.GraphProto, known: frozenset[str]) -> Iterator[str]:
    """The values that growing operators of ``graph`` and of the graphs inside it make out of
    constants alone.

    Args:
        known: constants around it.
    """
    constants = {*known, *(tensor.name for tensor in graph.initializer)}
    for node in graph.node:
        inner = tuple(_graphs_of(node))
        for one in inner:
            yield from _grown(one, frozenset(constants))
        if inner or not constants.issuperset(filter(None, node.input)):
            continue
        constants |= set(node.output)
        if node.op_type in _GROWING and node.domain in _DEFAULT_DOMAINS:
            yield from filter(None, node.output)


def _bytes_of(tensor: onnx.TensorProto) -> int:
    """The bytes that the type and the dims of ``tensor`` say; of text, the number of its
    elements.
    """
    count = int(math.prod(tensor.dims))
    return (
        count
        if tensor.data_type == onnx.TensorProto.STRING
        else -(-count * _bits(tensor.data_type) // 8)
    )


def _bits(data_type: int) -> int:
    return int(ir.DataType(data_type).bitwidth)


def _without_large_constants(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A copy in which constants that are large or external are inputs of the main graph."""
    light = onnx.ModelProto()
    for message, copy, apart in (
        (proto, light, ("graph", "training_info")),
        (proto.graph, light.graph, ("initializer",)),
    ):
        for field, value in message.ListFields():
            if field.name in apart:
                continue
            if isinstance(value, str | bytes | int):
                setattr(copy, field.name, value)
            else:
                getattr(copy, field.name).MergeFrom(value)
    inputs = {value.name for value in proto.graph.input}
    for tensor in proto.graph.initializer:
        if tensor.data_location != onnx.TensorProto.EXTERNAL and _bytes_of(tensor) <= SMALL:
            light.graph.initializer.append(tensor)
        elif tensor.name not in inputs:
            light.graph.input.append(_typed(tensor, tensor.name))
    for number, graph in enumerate(_inner_graphs(light.graph.node)):
        for tensor in [
            t for t in graph.initializer if t.data_location == onnx.TensorProto.EXTERNAL
        ]:
            outer = f"external constant {number} {tensor.name}"
            light.graph.input.append(_typed(tensor, outer))
            nodes = [onnx.helper.make_node("Identity", [outer], [tensor.name]), *graph.node]
            graph.initializer.remove(tensor)
            del graph.node[:]
            graph.node.extend(nodes)
    return light


def _typed(tensor: onnx.TensorProto, name: str) -> onnx.ValueInfoProto:
    return onnx.helper.make_tensor_value_info(name, tensor.data_type, list(tensor.dims))


def _undecoded(message: Any) -> Iterator[str]:  # noqa: ANN401 - any protobuf message
    """The names of text fields of ``message`` that are not UTF-8: protobuf gives them as bytes."""
    for field, value in message.ListFields():
        repeated = not isinstance(value, str | bytes | int | float) and not hasattr(
            value, "ListFields"
        )
        values = value if repeated else (value,)
        if field.type == field.TYPE_STRING or (
            message.DESCRIPTOR.name == "AttributeProto" and field.name in _TEXT_BYTES
        ):
            if any(isinstance(one, bytes) and not _is_text(one) for one in values):
                yield field.name
        elif field.type == field.TYPE_MESSAGE:
            for one in values:
                is_tensor = isinstance(one, onnx.TensorProto)
                yield from _undecoded_of_tensor(one) if is_tensor else _undecoded(one)


def _undecoded_of_tensor(tensor: onnx.TensorProto) -> Iterator[str]:
    """As ``_undecoded``; its numbers, which may be large, are not looked at."""
    for field in ("name", "doc_string"):
        text: str | bytes = getattr(tensor, field)
        if isinstance(text, bytes) and not _is_text(text):
            yield field
    for entry in tensor.external_data:
        yield from _undecoded(entry)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _always_true(body: onnx.GraphProto) -> bool:
    """Whether the condition that the ``body`` of a Loop gives is the one that it got, or a
    constant that is true.
    """
    makers = {name: node for node in body.node for name in node.output}
    name = body.output[0].name
    while name in makers and makers[name].op_type == "Identity":
        name = makers[name].input[0]
    if len(body.input) > 1 and name == body.input[1].name:
        return True
    value = _constant(name, body)
    return value is not None and bool(value.all())


def _constant(name: str, *bodies: onnx.GraphProto | onnx.FunctionProto) -> npt.NDArray[Any] | None:
    """The numbers of the constant ``name`` of one of ``bodies``, or None where it is computed
    or external.
    """
    for body in bodies:
        for tensor in getattr(body, "initializer", ()):
            if tensor.name == name and tensor.data_location != onnx.TensorProto.EXTERNAL:
                return onnx.numpy_helper.to_array(tensor)
        for node in body.node:
            if node.op_type == "Constant" and name in node.output and len(node.attribute) == 1:
                value = onnx.helper.get_attribute_value(node.attribute[0])
                return (
                    onnx.numpy_helper.to_array(value)
                    if isinstance(value, onnx.TensorProto)
                    else np.asarray(value)
                )
    return None


def _first_line(error: Exception) -> str:
    return next(
        (line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__
    )[:300]
