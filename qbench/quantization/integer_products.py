"""Whether a backend multiplies the operands of a unit in integers, or runs it in floats between their grids.

What an engine lacks a kernel for it computes all the same, from dequantized numbers: the accuracy is that of the grids,
the speed that of floats, and a share "in integers" that counted it would be a promise nobody keeps.
"""

from collections.abc import Mapping

from qbench.quantization.decision import Decision, Derived, Dynamic, KeptFloat, qparams_of
from qbench.quantization.slot import Role, Slot


def counted_in_integers(slots: Mapping[Slot, Decision], integer_products: frozenset[tuple[str, str]] | None) -> bool:
    """Whether a unit whose operands are all on grids is multiplied in integers.

    Args:
        slots: of the unit.
        integer_products: of the backend's capabilities; None: it multiplies whatever is on grids.
    """
    if integer_products is None:
        return True
    operands = [decision for slot, decision in slots.items() if slot.role in (Role.INPUT, Role.WEIGHT)]
    biases = [decision for slot, decision in slots.items() if slot.role is Role.BIAS]
    grids = [qparams_of(decision) for decision in operands]
    if any(isinstance(decision, Dynamic) for decision in operands) or any(
        grid is None or grid.block_size is not None for grid in grids
    ):
        return False
    names = tuple(grid.qtype.name for grid in grids if grid is not None)
    on_the_product = all(isinstance(decision, Derived | KeptFloat) for decision in biases)
    return on_the_product and names in integer_products
