"""A model in whichever form somebody has it: in memory, as ONNX's own message, or as a file."""

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
        InputError: it is none of these, or the file is no ONNX model.
    """
    if isinstance(model, ir.Model):
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
