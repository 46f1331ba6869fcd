"""Running graphs by the rules of any machine: programs of kernels, compiled once, that count as it counts."""

from qbench.interpreter.batch_error import BatchError
from qbench.interpreter.float_kernels.evaluator import own_operators, refusal
from qbench.interpreter.gemm import float_gemm
from qbench.interpreter.kernel import Around, Counters, Making, Means, Run
from qbench.interpreter.kernel_table import KERNELS, float_operator, make_kernel, require_known_operators
from qbench.interpreter.program import Program, best_means, counting_means
from qbench.interpreter.saturation import risky_pairs
from qbench.interpreter.sum_order import Summing, summing
from qbench.interpreter.sum_shapes import sum_shape

__all__ = [
    "KERNELS",
    "Around",
    "BatchError",
    "Counters",
    "Making",
    "Means",
    "Program",
    "Run",
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
