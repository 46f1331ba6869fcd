"""Families of random graphs that each engine runs, and how its outputs are compared with those
of its arithmetic.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from operator_cases.graphs import Array, Family, RandomGraph

FLOATS = 1e-5
"""Of the largest element: what differs by less is a last bit of a float."""
_TFLITE = ("Sigmoid", "Tanh", "LeakyRelu", "HardSwish", "Clip")
_FUNCTIONS = (
    "Sigmoid",
    "Tanh",
    "LeakyRelu",
    "HardSwish",
    "Softplus",
    "Abs",
    "Neg",
    "Exp",
    "HardSigmoid",
    "Clip",
)
_UNSIGNED = {"Sigmoid": (1 / 256, 0), "Softmax": (1 / 256, 0), "Tanh": (1 / 128, 128)}
_SIGNED = {"Sigmoid": (1 / 256, -128), "Softmax": (1 / 256, -128), "Tanh": (1 / 128, 0)}
_SIX = ("Add", "Mul", "Sub", "Max", "Min", "Concat")
_LITERT = (
    Family(functions=_TFLITE, pairs=_SIX, fixed=_UNSIGNED, same_grid=True, quantized_ends=True),
    Family(
        codes="int8",
        functions=_TFLITE,
        pairs=_SIX,
        fixed=_SIGNED,
        same_grid=True,
        quantized_ends=True,
    ),
)
_ALL = (Family(functions=_FUNCTIONS), Family(codes="int8", functions=_FUNCTIONS))
_UNBIASED = Family(functions=_FUNCTIONS, biased=0.0, quantized_ends=True)
_TORCH = (
    Family(functions=_TFLITE, pairs=("Add", "Mul", "Concat"), fixed=_UNSIGNED, quantized_ends=True),
)
FAMILIES: Mapping[str, tuple[Family, ...]] = MappingProxyType(
    {
        "ort-cpu": _ALL[:1],
        "ort-cpu-qoperator": _ALL[1:],
        "openvino": (*_ALL, _UNBIASED),
        "litert-reference": _LITERT,
        "litert-builtin": _LITERT,
        "litert-xnnpack": _LITERT,
        "torch-fbgemm": _TORCH,
        "torch-qnnpack": _TORCH,
        "torch-onednn": _TORCH,
    }
)
"""Engine → families of graphs, in turn."""


@dataclass(frozen=True, slots=True)
class Case:
    """One graph: its ``model``, one batch, its operators, and the steps of the outputs behind a
    DequantizeLinear.
    """

    model: ir.Model
    feeds: dict[str, Array]
    operators: str
    steps: Mapping[str, float]


def drawn(engine: str, seed: int) -> Case:
    """The graph of ``seed`` for ``engine``; every second one of a family has a free batch."""
    families = FAMILIES[engine]
    graph = RandomGraph(seed, family=families[seed % len(families)])
    model = _free_batch(graph.model) if seed // len(families) % 2 else graph.model
    operators = " ".join(f"{step.operator}{step.clip and '+' + step.clip}" for step in graph.steps)
    return Case(model, graph.feeds, operators, _steps_of(model))


def _free_batch(model: ir.Model) -> ir.Model:
    proto = ir.to_proto(model)
    del proto.graph.value_info[:]
    first = proto.graph.input[0].type.tensor_type.shape.dim[0]
    first.Clear()
    first.dim_param = "N"
    for value in proto.graph.output:
        value.type.tensor_type.ClearField("shape")
    return ir.from_proto(onnx.shape_inference.infer_shapes(proto))


def _steps_of(model: ir.Model) -> dict[str, float]:
    """Output → the scale of the DequantizeLinear that gives it."""
    found = {}
    for value in model.graph.outputs:
        node = value.producer()
        if node is not None and node.op_type == "DequantizeLinear" and node.inputs[1] is not None:
            scale = node.inputs[1].const_value
            found[str(value.name)] = 0.0 if scale is None else float(scale.numpy().reshape(-1)[0])
    return found


def compared(
    theirs: Mapping[str, Array], ours: Mapping[str, Array], steps: Mapping[str, float]
) -> dict[str, Any]:
    """Elements, how many differ, by how many steps at most,
    and how many outputs have another shape.
    """
    found: dict[str, Any] = {"elements": 0, "differ": 0, "most": 0.0, "shapes": 0}
    for name, array in ours.items():
        if theirs[name].shape != array.shape:
            found["shapes"] += 1
            continue
        away = np.abs(theirs[name].astype(np.float64) - array)
        wrong = away > FLOATS * np.abs(array).max(initial=0)
        found["elements"] += array.size
        found["differ"] += int(wrong.sum())
        if wrong.any():
            found["most"] = max(
                found["most"], round(float(away[wrong].max()) / (steps.get(name) or 1.0), 3)
            )
    return found
