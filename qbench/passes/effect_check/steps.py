"""One step of a value: how far it moves at most when everything that it is made of moves by one step of its grid.

    levels: 1      DQ: its scale, the largest of several      moved, Concat, Neg, Relu, Clip, Max, …: the largest of all
    Add, Sub, Sum: the sum of all      constants, inputs: 0, for they do not move      anything else: it has none

Grids are those of the graph before: a requantize that a pass drops gave the step that it may be off by.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.graph import constant_value, is_constant, operator_facts

_HOPS = 40
"""Nodes looked back at."""
_NO_FARTHER = frozenset(
    {"Abs", "Atan", "Clip", "Concat", "Cos", "Max", "Min", "Neg", "Relu", "Sigmoid", "Sin", "Softplus", "Tanh"}
)
"""Their slope is one at most in any operand, and one operand alone decides."""
_SUMS = frozenset({"Add", "Sub", "Sum"})


def step_of(value: ir.Value) -> float | None:
    """One step of ``value``, an output of the graph before; None where it has none."""
    return _step(value, _HOPS, {}) or None


def _step(value: ir.Value, hops: int, known: dict[ir.Value, float | None]) -> float | None:
    if value.dtype is not None and value.dtype.is_integer():
        return 1.0
    node = value.producer()
    if node is None or is_constant(value):
        return 0.0
    if value not in known:
        known[value] = _of_node(node, hops, known)
    return known[value]


def _of_node(node: ir.Node, hops: int, known: dict[ir.Value, float | None]) -> float | None:
    if node.op_type == "DequantizeLinear" and node.domain == "":
        scale = _scale(node)
        return None if scale is None or not scale.size else float(scale.max())
    moved = operator_facts(node).moved
    if not hops or not (moved or (node.domain == "" and node.op_type in _NO_FARTHER | _SUMS)):
        return None
    read = [one for place, one in enumerate(node.inputs) if one is not None and (not moved or place in moved)]
    steps = [_step(one, hops - 1, known) for one in read]
    if any(step is None for step in steps):
        return None
    whole = [step for step in steps if step is not None]
    return sum(whole) if node.op_type in _SUMS and not moved else max(whole, default=None)


def _scale(node: ir.Node) -> npt.NDArray[Any] | None:
    scale = constant_value(node.inputs[1])
    return None if scale is None else np.abs(scale)
