"""ONNX models from and to disk and bytes; the one gate for files of strangers."""

import copy
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy.typing as npt
import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from qbench.errors import InputError, UnsupportedError, require_type
from qbench.graph.large_constants import SMALL, lightened, put_back
from qbench.graph.model_check import ExternalFiles, check_message, check_tensor, read_message
from qbench.storage import staged_files, write_bytes

# ONNX models from and to disk and bytes; a file of another kind is one clear sentence.
#
# A constant larger than what protobuf can hold (2 GB in one message) is in a file next to the
# model; ``load_model`` maps it, ``save_model`` writes it, and whatever is refused is refused before
# anything is computed.

MESSAGE_LIMIT = 2_000_000_000
"""Bytes a protobuf message may hold: 2^31 - 1, less room for the structure around the constants."""


def load_model(path: Path | str) -> ir.Model:
    """The model at ``path``, constants in external files mapped.

    Raises:
        InputError: no such file, an empty or truncated one, one that is not a valid ONNX model or
            exceeds a limit, or external data that are missing, too short or outside the model's
            folder.
    """
    require_type(
        "Loading a model",
        path,
        (str, os.PathLike),
        expected="a path",
        remedy="Give the path of an ONNX file.",
    )
    path = Path(path)
    doing = f"Loading the model '{path}'"
    proto = _parsed(read_message(path, doing), doing)
    check_message(proto, doing)
    light, heavy = lightened(proto)
    model = _built(light, doing)
    put_back(model, heavy)
    ExternalFiles(path.parent, doing).attach(model)
    return model


def model_of_message(proto: onnx.ModelProto) -> ir.Model:
    """The model that the message ``proto`` holds; it shares no memory that could be written
    with it.

    Raises:
        InputError: it is not a valid ONNX model, exceeds a limit, or has external data.
    """
    doing = f"Reading the model '{proto.graph.name}'"
    check_message(proto, doing)
    model = _built(proto, doing)
    ExternalFiles(None, doing).attach(model)
    return model


def load_tensor(path: Path | str) -> npt.NDArray[Any]:
    """The numbers of the file at ``path``, which holds one ONNX tensor.

    Raises:
        InputError: no such file, one that is not a whole tensor, exceeds a limit, or has its
            numbers elsewhere.
    """
    doing = f"Loading the tensor '{path}'"
    tensor = onnx.TensorProto()
    try:
        tensor.ParseFromString(read_message(Path(path), doing))
    except DecodeError as error:
        raise InputError(
            doing,
            found="no ONNX message",
            expected="a tensor",
            remedy="Fetch or make the file again.",
        ) from error
    check_tensor(tensor, doing)
    return onnx.numpy_helper.to_array(tensor)


def save_model(model: ir.Model, path: Path | str) -> None:
    """Write ``model`` to ``path`` whole or not at all.

    Beyond 2 GB, constants go to ``<name>.data`` next to it.

    Raises:
        InputError: it is not a model. StoreError: the folder cannot be written.
    """
    remedy = "Give the model first, then the path: save_model(model, path)."
    require_type("Saving a model", model, ir.Model, expected="an onnx_ir.Model", remedy=remedy)
    require_type("Saving a model", path, (str, os.PathLike), expected="a path", remedy=remedy)
    path = Path(path)
    if constant_bytes(model) < MESSAGE_LIMIT:
        write_bytes(path, model_bytes(model))
        return
    outside, location = model.clone(), f"{path.name}.data"
    with staged_files(path) as folder:
        ir.external_data.unload_from_model(outside, folder, location, size_threshold_bytes=SMALL)
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
            remedy="Save it with save_model, which puts constants into a file next to it.",
        )
    if any(isinstance(value.const_value, ir.ExternalTensor) for value in _initializers(model)):
        model = model.clone()
        ir.external_data.load_to_model(model)
    data: bytes = ir.to_proto(model).SerializeToString()
    return data


def constant_bytes(model: ir.Model) -> int:
    """Bytes of all initializers of every graph of ``model``."""
    return sum(
        value.const_value.nbytes for value in _initializers(model) if value.const_value is not None
    )


def _initializers(model: ir.Model) -> Iterator[ir.Value]:
    return (value for graph in model.graphs() for value in graph.initializers.values())


def _built(proto: onnx.ModelProto, doing: str) -> ir.Model:
    try:
        return ir.from_proto(proto)
    except Exception as error:  # onnx_ir raises many kinds for what the checker lets pass
        raise InputError(
            doing,
            found=f"a graph that does not hang together ({_innermost(error)})",
            expected="a well-formed ONNX graph",
            remedy="Export the model again; onnx.checker names the place.",
        ) from error


def _parsed(data: bytes, doing: str) -> onnx.ModelProto:
    found = "an empty file" if not data else ""
    proto = onnx.ModelProto()
    if data:
        try:
            proto.ParseFromString(data)
        except DecodeError:
            found = (
                f"{len(data):,} bytes that are no ONNX message: truncated, or another kind of file"
            )
        else:
            # Protobuf takes many foreign bytes for an empty message with unknown fields.
            if not proto.ir_version or not proto.opset_import or not proto.HasField("graph"):
                found = "a message without ONNX's version, opset or graph"
    if found:
        raise InputError(
            doing,
            found=found,
            expected="a binary ONNX model",
            remedy="Fetch or export the file again.",
        )
    return proto


def _innermost(error: BaseException) -> str:
    """The first line of the error that began the chain: what was raised last names only a
    function of onnx_ir.
    """
    while error.__cause__ is not None:
        error = error.__cause__
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


# A model in any form (in memory, as ONNX's own message, as a file), and copies that share nothing
# that is written.

AnyModel = ir.Model | onnx.ModelProto | Path | str


def as_model(model: AnyModel) -> ir.Model:
    """``model`` itself, or what the message or the file holds.

    Raises:
        InputError: it is none of these, is not a valid ONNX model, or takes or gives something else
            than tensors.
    """
    if isinstance(model, ir.Model):
        _refuse_unusable(model)
        return model
    if isinstance(model, onnx.ModelProto):
        return model_of_message(model)
    if isinstance(model, str | os.PathLike):
        return load_model(model)
    raise InputError(
        "Reading a model",
        found=f"something of type {type(model).__name__}",
        expected="an onnx_ir.Model, an onnx.ModelProto, or the path of an ONNX file",
        remedy="Load it with qbench.load_model.",
    )


def _refuse_unusable(model: ir.Model) -> None:
    """Check what onnx-ir lets pass when it reads a message that ``load_model`` would have
    refused.
    """
    doing = f"Reading the model '{model.graph.name}'"
    for value in (*model.graph.inputs, *model.graph.outputs):
        if isinstance(value.type, ir.SequenceType | ir.OptionalType | ir.SparseTensorType):
            raise InputError(
                doing,
                found=f"the input or output '{value.name}' of {value.type}",
                expected="tensors as inputs and outputs of the model",
                remedy="Export the model with tensors there; sequences may be used inside.",
            )
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        for read in node.inputs:
            if (
                read is None
                or read.producer() is not None
                or read.is_graph_input()
                or read.is_initializer()
            ):
                continue
            raise InputError(
                doing,
                found=(
                    f"the value '{read.name}' of '{node.name or node.op_type}', which nothing gives"
                ),
                expected=(
                    "a graph input, a dense constant, or the output of a node for every value that "
                    "is read"
                ),
                remedy="Load the file with qbench.load_model, which names what is wrong with it.",
            )


def own_copy(model: ir.Model) -> ir.Model:
    """A copy of ``model`` that may be edited; numbers of constants are shared.

    ``ir.Model.clone`` shares tensors, and renaming a value renames its tensor: in the caller's
    model, and, where that was read from an ``onnx.ModelProto``, in the caller's message, which is
    then invalid.
    """
    made = model.clone()
    for body in (*made.graphs(), *made.functions.values()):
        for value in body.initializers.values() if isinstance(body, ir.Graph) else ():
            if value.const_value is not None:
                value.const_value = _own_tensor(value.const_value)
        for node in body:
            attribute = node.attributes.get("value")
            if (
                attribute is not None
                and attribute.type is ir.AttributeType.TENSOR
                and not attribute.is_ref()
            ):
                node.attributes["value"] = ir.AttrTensor(
                    "value", _own_tensor(attribute.as_tensor())
                )
    return made


def _own_tensor(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    if isinstance(tensor, ir.TensorProtoTensor):  # its name is that of the message
        return ir.LazyTensor(lambda: tensor, tensor.dtype, tensor.shape, name=tensor.name)
    return copy.copy(tensor)
