"""What the integer machines of the interpreter have operators for."""

from qbench.interpreter import KERNELS
from qbench.passes.lowering.target import Target

INTEGER_MACHINES = Target(frozenset(KERNELS), any_grids=True, outside=True)
"""Whatever the interpreter counts: engines have no more."""
