"""A model in any form (in memory, as ONNX's own message, as a file), and copies that share nothing that is written."""

import copy
import os
from pathlib import Path

import onnx
import onnx_ir as ir

from qbench.errors import InputError
from qbench.graph.model_files import load_model, model_of_message

AnyModel = ir.Model | onnx.ModelProto | Path | str


def as_model(model: AnyModel) -> ir.Model:
    """``model`` itself, or what the message or the file holds.

    Raises:
        InputError: it is none of these, is not a valid ONNX model, or takes or gives something else than tensors.
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
    """Check what onnx-ir lets pass when it reads a message that ``load_model`` would have refused."""
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
            if read is None or read.producer() is not None or read.is_graph_input() or read.is_initializer():
                continue
            raise InputError(
                doing,
                found=f"the value '{read.name}' of '{node.name or node.op_type}', which nothing gives",
                expected="a graph input, a dense constant, or the output of a node for every value that is read",
                remedy="Load the file with qbench.load_model, which names what is wrong with it.",
            )


def own_copy(model: ir.Model) -> ir.Model:
    """A copy of ``model`` that may be edited: nodes and values are its own, numbers of constants are shared.

    ``ir.Model.clone`` shares tensors, and renaming a value renames its tensor: in the caller's model, and, where that
    was read from an ``onnx.ModelProto``, in the caller's message, which is then invalid.
    """
    made = model.clone()
    for body in (*made.graphs(), *made.functions.values()):
        for value in body.initializers.values() if isinstance(body, ir.Graph) else ():
            if value.const_value is not None:
                value.const_value = _own_tensor(value.const_value)
        for node in body:
            attribute = node.attributes.get("value")
            if attribute is not None and attribute.type is ir.AttributeType.TENSOR and not attribute.is_ref():
                node.attributes["value"] = ir.AttrTensor("value", _own_tensor(attribute.as_tensor()))
    return made


def _own_tensor(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    if isinstance(tensor, ir.TensorProtoTensor):  # its name is that of the message
        return ir.LazyTensor(lambda: tensor, tensor.dtype, tensor.shape, name=tensor.name)
    return copy.copy(tensor)
