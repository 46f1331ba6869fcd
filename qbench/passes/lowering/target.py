"""What the machine that a graph is lowered for has: operators on integers, by domain and name.

Only operators that lowering brings in are asked for. Those that merely move integers (``movers``) are the graph's own.
"""

from dataclasses import dataclass

from qbench.graph import INTEGER_DOMAIN
from qbench.passes.lowering.operands import Operand

__all__ = ["ENGINE_DOMAIN", "INTEGER_DOMAIN", "ONNX_RUNTIME", "Target"]

ENGINE_DOMAIN = "com.microsoft"


@dataclass(frozen=True, slots=True)
class Target:
    """The integer operators of one machine.

    Args:
        operators: (domain, operator), as in ``("", "QLinearConv")``.
        computed_products: whether its matrix products take any second operand, or a constant matrix alone.
    """

    operators: frozenset[tuple[str, str]]
    computed_products: bool = True

    def lacks(self, operator: str, domain: str = "") -> str | None:
        """Why ``operator`` cannot stand in its graphs; None when it can."""
        return None if (domain, operator) in self.operators else f"the target has no {operator}"

    def lacks_product(self, operator: str, weight: Operand, domain: str = "") -> str | None:
        """Why the matrix product ``operator`` by ``weight`` cannot; None when it can."""
        if problem := self.lacks(operator, domain):
            return problem
        if self.computed_products or (weight.is_constant and weight.rank == 2):
            return None
        return f"the target has {operator} by a constant matrix alone"


_STANDARD = ("ConvInteger", "MatMulInteger", "QLinearConv", "QLinearMatMul")
_OF_THE_ENGINE = (
    "MatMulIntegerToFloat",
    "QGemm",
    "QLinearAdd",
    "QLinearAveragePool",
    "QLinearConcat",
    "QLinearGlobalAveragePool",
    "QLinearLeakyRelu",
    "QLinearMul",
    "QLinearSigmoid",
    "QLinearSoftmax",
)
ONNX_RUNTIME = Target(
    frozenset([*(("", name) for name in _STANDARD), *((ENGINE_DOMAIN, name) for name in _OF_THE_ENGINE)])
)
"""ONNX Runtime 1.31 on the CPU: whatever lowering knows."""
