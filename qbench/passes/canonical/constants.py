"""Computing what depends on constants only."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
from onnx_ir.passes.common import LiftConstantsToInitializersPass, RemoveInitializersFromInputsPass

from qbench.graph import constant_value, float_attribute, is_constant, is_pinned, is_qdq, opset
from qbench.interpreter import own_operators, refusal
from qbench.passes.contract import EXACT, LOSSY, Effect
from qbench.passes.editing import NameScope, add_constant

# Computing now what depends on constants only, by the onnx evaluator.
#
# Left alone: what the evaluator does not compute as ONNX defines it, Dropout, control flow,
# operators of other domains, QuantizeLinear and its kin (a folded weight would be float again),
# graph outputs, and results that are much larger than what they are made from (a tile, an
# expansion).

_GROWING: Mapping[str, int] = MappingProxyType({"ConstantOfShape": 0, "Expand": 1, "Tile": 1})
"""Operators that can make a gigabyte out of a shape, with the input that holds the size."""

_GROWTH = 4
_SMALL = 1 << 16


@dataclass(frozen=True, slots=True)
class FoldConstants:
    """Requires: constants are initializers. Ensures: no node of the main graph has constant
    inputs only, but the above.

    A folded value keeps its name as that of the initializer.
    """

    name: str = "fold-constants"
    effect: ClassVar[Effect] = EXACT

    def run(self, model: ir.Model) -> bool:
        """Fold in graph order, so that one sweep reaches all; True when anything was folded."""
        folded = False
        version = opset(model)
        names = NameScope.of_values(model)
        for node in list(model.graph):
            if not _foldable(node, version):
                continue
            results = _computed(node, version)
            if results is None:
                continue
            for value, array in zip(node.outputs, results, strict=True):
                if value.name:
                    wanted, value.name = value.name, None
                    names.release(wanted)
                    value.replace_all_uses_with(add_constant(model.graph, wanted, array, names))
            model.graph.remove(node, safe=True)
            folded = True
        return folded


def _foldable(node: ir.Node, version: int) -> bool:
    if (
        node.domain
        or node.op_type == "Dropout"
        or is_qdq(node)
        or not node.inputs
        or refusal(node, version)
    ):
        return False
    if any(value.is_graph_output() for value in node.outputs):
        return False
    if any(
        a.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
        for a in node.attributes.values()
    ):
        return False
    if any(is_pinned(value) for value in node.inputs):
        return False
    return (
        all(value is None or is_constant(value) for value in node.inputs)
        and _announced_size(node) <= _SMALL
    )


def _announced_size(node: ir.Node) -> int:
    """How many values ``node`` will make out of few; 0 for operators that do not make more of
    them.
    """
    if node.op_type not in _GROWING:
        return 0
    counts = constant_value(node.inputs[_GROWING[node.op_type]])
    if counts is None:
        return 0
    base = constant_value(node.inputs[0]) if node.op_type == "Tile" else None
    repeats = math.prod(int(count) for count in counts.ravel())
    return repeats if base is None else repeats * base.size


def _computed(node: ir.Node, version: int) -> Sequence[npt.NDArray[Any]] | None:
    """The results of ``node``, or None where the evaluator has none or they are too large to be
    worth keeping.
    """
    from onnx.reference import ReferenceEvaluator

    feeds = {
        f"i{i}": constant_value(value) for i, value in enumerate(node.inputs) if value is not None
    }
    proto = ir.to_proto(node)
    del proto.input[:], proto.output[:]
    proto.input.extend("" if value is None else f"i{i}" for i, value in enumerate(node.inputs))
    proto.output.extend(f"o{i}" if value.name else "" for i, value in enumerate(node.outputs))
    outputs = [name for name in proto.output if name]
    graph = onnx.helper.make_graph(
        [proto],
        "constant",
        [onnx.helper.make_empty_tensor_value_info(name) for name in feeds],
        [onnx.helper.make_empty_tensor_value_info(name) for name in outputs],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", version)])
    try:
        with np.errstate(all="ignore"):
            evaluator = ReferenceEvaluator(model, new_ops=own_operators([node.op_type], version))
            found = dict(zip(outputs, evaluator.run(None, feeds), strict=True))
    except Exception:  # kernels raise whatever numpy raises; the node then stays as it is
        return None
    if not all(_is_numeric(result) for result in found.values()):
        return None
    results = [np.asarray(found[name]) if name else np.empty(0) for name in proto.output]
    limit = max(
        _SMALL, _GROWTH * sum(array.nbytes for array in feeds.values() if array is not None)
    )
    return None if sum(array.nbytes for array in results) > limit else results


def _is_numeric(result: object) -> bool:
    """Whether ``result`` is a tensor of numbers: no sequence, no optional, no text."""
    return isinstance(result, np.ndarray | np.generic) and result.dtype.kind not in "OSU"


# One spelling for constants: initializers that cannot be fed.
#
# Constant nodes become initializers, and initializers that old exporters list among the graph
# inputs leave them: a profile and a quantized weight mean nothing if a caller may feed another
# weight.


@dataclass(frozen=True, slots=True)
class LiftConstants:
    """Requires nothing. Ensures: no Constant node, and no initializer is a graph input."""

    name: str = "lift-constants"
    effect: ClassVar[Effect] = EXACT

    def run(self, model: ir.Model) -> bool:
        """Lift and detach them; True when there were any."""
        lifted = LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(
            model
        ).modified
        detached = RemoveInitializersFromInputsPass()(model).modified
        return lifted or detached


# The factors of a Gemm, folded into its constants.
#
#     Y = α·A·B + β·C        →        Y = A·(α·B) + (β·C)
#
# A constant operand of the product takes α, the weight first; a constant C takes β. Computed in
# float64, rounded to the constant's type once; an integer arithmetic then has a weight and a bias
# like any other.


@dataclass(frozen=True, slots=True)
class FoldGemmFactors:
    """Requires: constants are initializers. Ensures: α and β are 1 wherever a constant could
    take them.

    Left alone: a factor whose operands are all computed, a constant that came with qparams of its
    own, a product that leaves the range of its type. A β without C is dropped.
    """

    name: str = "fold-gemm-factors"
    effect: ClassVar[Effect] = LOSSY

    def run(self, model: ir.Model) -> bool:
        """Fold them; True when there were any."""
        names = NameScope.of_values(model)
        gemms = [node for node in model.graph if node.domain == "" and node.op_type == "Gemm"]
        return sum(_folded(node, model.graph, names) for node in gemms) > 0


def _folded(node: ir.Node, graph: ir.Graph, names: NameScope) -> bool:
    product = _takes(node, "alpha", (1, 0), graph, names)
    biased = len(node.inputs) > 2 and node.inputs[2] is not None
    if biased:
        return _takes(node, "beta", (2,), graph, names) or product
    if float_attribute(node, "beta", 1.0) == 1.0:
        return product
    del node.attributes["beta"]
    return True


def _takes(
    node: ir.Node, factor: str, indices: tuple[int, ...], graph: ir.Graph, names: NameScope
) -> bool:
    """Multiply the first constant among the inputs ``indices`` by ``factor``, and that becomes
    1.
    """
    value = float_attribute(node, factor, 1.0)
    if value == 1.0:
        return False
    for index in indices:
        operand = node.inputs[index]
        array = None if operand is None or is_pinned(operand) else constant_value(operand)
        multiplied = None if array is None else _times(array, value)
        if operand is not None and multiplied is not None:
            node.replace_input_with(
                index, add_constant(graph, f"{operand.name}_times_{factor}", multiplied, names)
            )
            del node.attributes[factor]
            return True
    return False


def _times(array: npt.NDArray[Any], factor: float) -> npt.NDArray[Any] | None:
    """``array`` · ``factor`` in its type; None of integers, or where a finite number would
    become an infinite one.
    """
    if array.dtype.kind != "f":
        return None
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        product = (array.astype(np.float64) * np.float64(factor)).astype(array.dtype)
    return product if np.array_equal(np.isfinite(product), np.isfinite(array)) else None
