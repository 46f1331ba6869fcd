"""The factors of a Gemm, folded into its constants.

    Y = α·A·B + β·C        →        Y = A·(α·B) + (β·C)

A constant operand of the product takes α, the weight first; a constant C takes β. Computed in float64, rounded to the
constant's type once; an integer machine then has a weight and a bias like any other.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.graph import constant_value, float_attribute, is_pinned
from qbench.passes.constants import add_constant
from qbench.passes.effect import LOSSY, Effect
from qbench.passes.naming import NameScope


@dataclass(frozen=True, slots=True)
class FoldGemmFactors:
    """Requires: constants are initializers. Ensures: α and β are 1 wherever a constant could take them.

    Left alone: a factor whose operands are all computed, a constant that came with a grid of its own, a product that
    leaves the range of its type. A β without C is dropped.
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


def _takes(node: ir.Node, factor: str, indices: tuple[int, ...], graph: ir.Graph, names: NameScope) -> bool:
    """Multiply the first constant among the inputs ``indices`` by ``factor``, and that becomes 1."""
    value = float_attribute(node, factor, 1.0)
    if value == 1.0:
        return False
    for index in indices:
        operand = node.inputs[index]
        array = None if operand is None or is_pinned(operand) else constant_value(operand)
        multiplied = None if array is None else _times(array, value)
        if operand is not None and multiplied is not None:
            node.replace_input_with(index, add_constant(graph, f"{operand.name}_times_{factor}", multiplied, names))
            del node.attributes[factor]
            return True
    return False


def _times(array: npt.NDArray[Any], factor: float) -> npt.NDArray[Any] | None:
    """``array`` · ``factor`` in its type; None of integers, or where a finite number would become an infinite one."""
    if array.dtype.kind != "f":
        return None
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        product = (array.astype(np.float64) * np.float64(factor)).astype(array.dtype)
    return product if np.array_equal(np.isfinite(product), np.isfinite(array)) else None
