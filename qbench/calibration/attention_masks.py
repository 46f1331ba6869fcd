"""Attention masks: numbers so far below all others that a Softmax makes them 0, and the values that hold them.

    scores + (0 | −1e9)      Where(keep, scores, −Inf)      Min(scores, mask)      scores − (1 − keep) · 1e9

A range that covers such numbers leaves all others less than one step, so a value that holds them is better in float.
Calibration shows which values these are, among those that are added, chosen or moved on their way into a Softmax:

    −Inf, or numbers below −50 under a gap that is at least twice as wide as everything above it

Calibration on samples without padding shows no masked entries. So two more are taken for masks: a computed or fed
operand that was 0 throughout, and a Where that chooses between scores and a constant below −50.
"""

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from qbench.calibration.statistics import Statistics
from qbench.graph import constant_value, is_constant, node_key, op_spec

_FORGETTING = frozenset({"Exp", "LogSoftmax", "Softmax"})
"""Operators of whose result nothing of a masked entry is left, but 0 (of LogSoftmax: the masked entry itself)."""
_ON_THE_WAY = frozenset({"Add", "Cast", "Clip", "Div", "Max", "Min", "Mul", "Neg", "Sub", "Sum", "Where"})
_BELOW = 50.0
"""exp(−50) is 2e-22: nothing on a grid of 16 bits, nor compared with 1 in float32."""
_GAP = 2.0


def score_nodes(graph: ir.Graph) -> dict[ir.Node, str]:
    """The nodes whose results are added, chosen or moved on their way into a Softmax, in graph order, and its name."""
    found: dict[ir.Value, str] = {}
    nodes = list(graph)
    for node in reversed(nodes):
        if node.domain == "" and node.op_type in _FORGETTING and node.inputs[0] is not None:
            found.setdefault(node.inputs[0], node_key(node))
            if node.op_type == "LogSoftmax":
                found.setdefault(node.outputs[0], node_key(node))
        elif name := next((found[v] for v in node.outputs if v in found), ""):
            found.update({value: name for value in _operands(node) if value not in found})
    return {node: name for node in nodes if (name := next((found[v] for v in node.outputs if v in found), ""))}


def score_inputs(graph: ir.Graph) -> frozenset[str]:
    """The names of the graph's inputs that are added to scores, where −Inf is a mask and not a mistake."""
    read = {value for node in score_nodes(graph) for value in _operands(node)}
    return frozenset(value.name or "" for value in graph.inputs if value in read)


def masked_values(graph: ir.Graph, seen: Mapping[str, Statistics]) -> dict[str, str]:
    """The names of values that hold an attention mask, and how that shows.

    Args:
        graph: canonical.
        seen: value name → what calibration saw.
    """
    found: dict[str, str] = {}
    hidden: dict[ir.Value, str] = {}
    for node, softmax in score_nodes(graph).items():
        operands = [value for value in _operands(node) if not is_constant(value)]
        for value in (*operands, *node.outputs):
            statistics = seen.get(value.name or "")
            if statistics is not None and (how := _mask_in(statistics)):
                found[value.name or ""] = f"'{value.name}' holds an attention mask, {how}, which '{softmax}' makes 0"
            if statistics is not None and statistics.count and statistics.low == 0 == statistics.high:
                hidden.setdefault(value, f"'{value.name}' was 0 throughout calibration")
        if why := next((hidden[value] for value in operands if value in hidden), "") or _masking_constant(node):
            hidden.update({value: why for value in node.outputs if value not in hidden})
    for value, why in hidden.items():
        found.setdefault(value.name or "", f"'{value.name}' can hold an attention mask: {why}")
    return found


def _operands(node: ir.Node) -> list[ir.Value]:
    """What ``node`` adds, chooses between or moves; nothing of other operators."""
    if node.domain:
        return []
    moves = op_spec(node).moved == (0,)
    found = node.inputs[:1] if moves else node.inputs if node.op_type in _ON_THE_WAY else ()
    return [value for value in found if value is not None]


def _mask_in(statistics: Statistics) -> str:
    """What of ``statistics`` shows masked entries; empty where nothing does."""
    if statistics.negative_infinite:
        return f"−Inf {statistics.negative_infinite:,} times"
    if not statistics.count or statistics.low > -_BELOW:
        return ""
    points = statistics.distribution().points
    lower, upper = points[:-1], points[1:]
    gaps = (lower <= -_BELOW) & (upper - lower >= np.maximum(_BELOW, _GAP * (points[-1] - upper)))
    return f"numbers down to {statistics.low:.4g}" if gaps.any() else ""


def _masking_constant(node: ir.Node) -> str:
    """Which constant of a Where is a mask, in words; empty where none is."""
    if node.op_type != "Where":
        return ""
    for value in node.inputs[1:]:
        array = constant_value(value)
        if array is not None and array.size and array.dtype.kind == "f" and array.min() <= -_BELOW:
            return f"'{node_key(node)}' writes {float(array.min()):.4g} into it"
    return ""
