"""Running graphs by the rules of any machine: programs of kernels, compiled once, that count as it counts."""

from qbench.interpreter.accumulate import risky_pairs
from qbench.interpreter.arrays import BatchError
from qbench.interpreter.float_kernels.evaluator import own_operators, refusal
from qbench.interpreter.gemm import float_gemm
from qbench.interpreter.kernel import Counters, KernelContext, KernelFunction, KernelWrapper, Means
from qbench.interpreter.program import (
    KERNELS,
    Program,
    best_means,
    counting_means,
    float_operator,
    make_kernel,
    require_known_operators,
)
from qbench.interpreter.windows import Summing, sum_shape, summing

__all__ = [
    "KERNELS",
    "BatchError",
    "Counters",
    "KernelContext",
    "KernelFunction",
    "KernelWrapper",
    "Means",
    "Program",
    "Summing",
    "best_means",
    "counting_means",
    "float_gemm",
    "float_operator",
    "make_kernel",
    "own_operators",
    "refusal",
    "require_known_operators",
    "risky_pairs",
    "sum_shape",
    "summing",
]
