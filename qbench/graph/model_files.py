"""ONNX models from and to disk and bytes, with one clear sentence for every file that is none.

A constant larger than what protobuf can hold (2 GB in one message) lives in a file beside the model; ``load_model``
maps it, ``save_model`` writes it, and whatever is refused is refused before anything is computed.
"""

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from qbench.errors import InputError, UnsupportedError
from qbench.graph.heavy_constants import lightened, put_back
from qbench.storage import staged_files, write_bytes

MESSAGE_LIMIT = 2_000_000_000
"""Bytes a protobuf message may hold: 2^31 - 1, less room for the structure around the constants."""

_DEFAULT_DOMAINS = ("", "ai.onnx")
_SMALL = 1024
"""Bytes up to which a constant stays inside: what says a shape or a scale is read by shape inference."""


def load_model(path: Path | str) -> ir.Model:
    """The model at ``path``, constants in outside files mapped lazily.

    Raises:
        InputError: no such file, an empty or truncated one, one that is no ONNX model, one of a newer IR version or
            opset than the installed onnx knows, or with outside data that is missing, too short or out of its folder.
    """
    path = Path(path)
    doing = f"Loading the model '{path}'"
    proto, heavy = lightened(_parsed(path, doing))
    _check_versions(proto, doing)
    try:
        model = ir.from_proto(proto)
        put_back(model, heavy)
    except Exception as error:  # onnx_ir raises many kinds for a malformed graph
        raise InputError(
            doing,
            found=f"a graph that does not hang together ({_first_line(error)})",
            expected="a well-formed ONNX graph",
            remedy="Export the model again; onnx.checker names the place.",
        ) from error
    _attach_outside_data(model, path.parent, doing)
    return model


def save_model(model: ir.Model, path: Path | str) -> None:
    """Write ``model`` to ``path`` whole or not at all; beyond 2 GB, constants go to ``<name>.data`` beside it.

    Raises:
        StoreError: the folder cannot be written.
    """
    path = Path(path)
    if constant_bytes(model) < MESSAGE_LIMIT:
        write_bytes(path, model_bytes(model))
        return
    outside, location = model.clone(), f"{path.name}.data"
    with staged_files(path) as folder:
        ir.external_data.unload_from_model(outside, folder, location, size_threshold_bytes=_SMALL)
        (folder / path.name).write_bytes(ir.to_proto(outside).SerializeToString())


def model_bytes(model: ir.Model) -> bytes:
    """``model`` as one self-contained ONNX message; outside constants are read in.

    Raises:
        UnsupportedError: its constants do not fit into one message.
    """
    size = constant_bytes(model)
    if size >= MESSAGE_LIMIT:
        raise UnsupportedError(
            f"Serializing the model '{model.graph.name}'",
            found=f"{size / 1e9:.1f} GB of constants",
            expected=f"under {MESSAGE_LIMIT / 1e9:.0f} GB, the most one message holds",
            remedy="Save it with save_model, which puts constants into a file beside it.",
        )
    if any(isinstance(value.const_value, ir.ExternalTensor) for value in _initializers(model)):
        model = model.clone()
        ir.external_data.load_to_model(model)
    data: bytes = ir.to_proto(model).SerializeToString()
    return data


def constant_bytes(model: ir.Model) -> int:
    """Bytes of all initializers of every graph of ``model``."""
    return sum(value.const_value.nbytes for value in _initializers(model) if value.const_value is not None)


def _initializers(model: ir.Model) -> Iterator[ir.Value]:
    return (value for graph in model.graphs() for value in graph.initializers.values())


def _parsed(path: Path, doing: str) -> onnx.ModelProto:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(
            doing, found=error.strerror or str(error), expected="a readable ONNX file", remedy="Check the path."
        ) from error
    found = "an empty file" if not data else ""
    proto = onnx.ModelProto()
    if data:
        try:
            proto.ParseFromString(data)
        except DecodeError:
            found = f"{len(data):,} bytes that are no ONNX message: truncated, or another kind of file"
        else:
            # Protobuf takes many foreign bytes for an empty message with unknown fields.
            if not proto.ir_version or not proto.opset_import or not proto.HasField("graph"):
                found = "a message without ONNX's version, opset or graph"
    if found:
        raise InputError(doing, found=found, expected="a binary ONNX model", remedy="Fetch or export the file again.")
    return proto


def _check_versions(proto: onnx.ModelProto, doing: str) -> None:
    newest_opset = onnx.defs.onnx_opset_version()
    opset = max((o.version for o in proto.opset_import if o.domain in _DEFAULT_DOMAINS), default=1)
    for what, found, newest in (("IR version", proto.ir_version, onnx.IR_VERSION), ("opset", opset, newest_opset)):
        if not 1 <= found <= newest:
            raise InputError(
                doing,
                found=f"{what} {found}",
                expected=f"{what} 1 to {newest}, which the installed onnx {onnx.__version__} knows",
                remedy="Export the model for an older one, or install a newer onnx.",
            )


def _attach_outside_data(model: ir.Model, folder: Path, doing: str) -> None:
    for graph in model.graphs():
        for value in graph.initializers.values():
            if isinstance(value.const_value, ir.ExternalTensor):
                _check_outside(value.const_value, folder, doing)
        ir.external_data.set_base_dir(graph, folder)


def _check_outside(tensor: ir.ExternalTensor, folder: Path, doing: str) -> None:
    location = os.fspath(tensor.location)
    problem = ""
    if PurePosixPath(location).is_absolute() or ".." in PurePosixPath(location).parts:
        problem = f"constant '{tensor.name}' in '{location}', outside the model's folder"
    elif not (folder / location).is_file():
        problem = f"constant '{tensor.name}' in '{location}', which is not there"
    elif (folder / location).stat().st_size < (tensor.offset or 0) + (tensor.length or tensor.nbytes):
        problem = f"constant '{tensor.name}' past the end of '{location}'"
    if problem:
        raise InputError(
            doing,
            found=problem,
            expected="every constant in a whole file beside the model",
            remedy="Copy the model with its data files.",
        )


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]
