"""Running graphs by the rules of any arithmetic: programs of kernels, which are compiled once."""

from typing import TYPE_CHECKING

from qbench.lazy import open_on_use

if TYPE_CHECKING:
    from qbench.interpreter.accumulate import RAISE as RAISE
    from qbench.interpreter.accumulate import risky_pairs as risky_pairs
    from qbench.interpreter.arrays import BatchError as BatchError
    from qbench.interpreter.float_kernels.evaluator import own_operators as own_operators
    from qbench.interpreter.float_kernels.evaluator import refusal as refusal
    from qbench.interpreter.gemm import float_gemm as float_gemm
    from qbench.interpreter.kernel import Counters as Counters
    from qbench.interpreter.kernel import KernelContext as KernelContext
    from qbench.interpreter.kernel import KernelFunction as KernelFunction
    from qbench.interpreter.kernel import KernelWrapper as KernelWrapper
    from qbench.interpreter.kernel import Means as Means
    from qbench.interpreter.program import KERNELS as KERNELS
    from qbench.interpreter.program import Program as Program
    from qbench.interpreter.program import best_means as best_means
    from qbench.interpreter.program import counting_means as counting_means
    from qbench.interpreter.program import float_operator as float_operator
    from qbench.interpreter.program import make_kernel as make_kernel
    from qbench.interpreter.program import require_known_operators as require_known_operators
    from qbench.interpreter.summed_products import SUMMED as SUMMED
    from qbench.interpreter.windows import Summing as Summing
    from qbench.interpreter.windows import Windows as Windows
    from qbench.interpreter.windows import sum_shape as sum_shape
    from qbench.interpreter.windows import summing as summing
    from qbench.interpreter.windows import with_gaps as with_gaps
else:
    __getattr__, __dir__, __all__ = open_on_use(__name__, __file__)
