"""``qbench quantize --read``: what a model that is quantized already says about itself, as a plan."""

import argparse
from typing import TYPE_CHECKING

from qbench.cli.idle_settings import refuse_idle_settings
from qbench.errors import InputError

if TYPE_CHECKING:
    import onnx_ir as ir

    from qbench.quantization import Plan

_OF_PLANNING = ("profile", "schema", "backend")


def read_given_plan(arguments: argparse.Namespace) -> "tuple[ir.Model, Plan]":
    """The model and the plan read out of it.

    Raises:
        InputError: settings of planning are given too, the file is no model, or the model is float.
    """
    from qbench.cli.own_subject import read_graph
    from qbench.graph import Form, form_of
    from qbench.quantization import read_plan

    doing = f"Reading the quantized model '{arguments.model}'"
    refuse_idle_settings(arguments, _OF_PLANNING, beside="read", doing=doing)
    model = read_graph(arguments.model)
    if form_of(model) is Form.FLOAT:
        raise InputError(
            doing,
            found="a float model",
            expected="one with Q/DQ pairs or integer operators",
            remedy="Quantize it first: --profile, --schema and -o.",
        )
    return model, read_plan(model)
