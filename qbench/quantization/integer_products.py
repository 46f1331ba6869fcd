"""Whether a backend multiplies the operands of a unit in integers, or runs it in floats between their grids.

What an engine lacks a kernel for it computes all the same, from dequantized numbers: the accuracy is that of the grids,
the speed that of floats, and a share "in integers" that counted it would be a promise nobody keeps.
"""

from collections.abc import Mapping

from qbench.calibration import Unit
from qbench.graph import Capabilities
from qbench.quantization.decision import Decision, Derived, Dynamic, KeptFloat, qparams_of
from qbench.quantization.slot import Role, Slot

_DYNAMIC = "uint8"
"""What DynamicQuantizeLinear gives."""
_ON_DYNAMIC_DATA = frozenset({"Conv", "Gemm", "MatMul"})
"""What ConvInteger and MatMulInteger stand for."""


def counted_in_integers(unit: Unit, slots: Mapping[Slot, Decision], limits: Capabilities) -> bool:
    """Whether a unit whose operands are all on grids is multiplied in integers.

    Args:
        unit: a product and what belongs to it.
        slots: of the unit.
        limits: of the backend.
    """
    if unit.head.op_type in limits.float_products:
        return False
    if limits.integer_products is None:
        return True
    operands = [decision for slot, decision in slots.items() if slot.role in (Role.INPUT, Role.WEIGHT)]
    biases = [decision for slot, decision in slots.items() if slot.role is Role.BIAS]
    dynamic = limits.dynamic_products and unit.head.op_type in _ON_DYNAMIC_DATA
    if any(isinstance(decision, Dynamic) for decision in operands) and not dynamic:
        return False
    names = tuple(_DYNAMIC if isinstance(decision, Dynamic) else _grid_name(decision) for decision in operands)
    on_the_product = all(isinstance(decision, Derived | KeptFloat) for decision in biases)
    return on_the_product and names in limits.integer_products


def _grid_name(decision: Decision) -> str | None:
    """The name of its grid; None where it has none, or one a block."""
    grid = qparams_of(decision)
    return None if grid is None or grid.block_size is not None else grid.qtype.name
