"""What the machine that a graph is lowered for has: operators on integers, by domain and name.

Only operators that lowering brings in are asked for. Those that merely move integers (``movers``) are the graph's own.
"""

from dataclasses import dataclass

from qbench.graph import INTEGER_DOMAIN

__all__ = ["ENGINE_DOMAIN", "INTEGER_DOMAIN", "ONNX_RUNTIME", "Target"]

ENGINE_DOMAIN = "com.microsoft"


@dataclass(frozen=True, slots=True)
class Target:
    """The integer operators of one machine.

    Args:
        operators: (domain, operator), as in ``("", "QLinearConv")``.
        any_grids: whether its products take any integers of 8 bits or 16 by 8, give any of 8 or 16, and take a zero
            point a channel, or only what ONNX Runtime has kernels of.
        outside: whether it looks up functions that extensions define.
    """

    operators: frozenset[tuple[str, str]]
    any_grids: bool = False
    outside: bool = False

    def lacks(self, operator: str, domain: str = "") -> str | None:
        """Why ``operator`` cannot stand in its graphs; None when it can."""
        return None if (domain, operator) in self.operators else f"the target has no {operator}"


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
