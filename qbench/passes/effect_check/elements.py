"""Whether a region treats every element alike, so that its cases can stand side by side in one array.

A constant with channels needs their dimension in every case; everything else shrinks to one element.
"""

import math
from collections.abc import Iterator
from collections.abc import Set as AbstractSet

import onnx_ir as ir

from qbench.graph import constant_value, int_attribute, is_constant, is_pointwise
from qbench.passes.effect_check.regions import Region

BORDERS = frozenset({"QuantizeLinear", "DequantizeLinear"})
_ALIKE = BORDERS | {"Cast", "Identity", "Max", "Min"}


def dims_of_a_case(region: Region, ranks: AbstractSet[int]) -> tuple[int, ...] | None:
    """The dimensions behind the first that a case needs, the first being free to hold cases.

    Args:
        ranks: of the inputs of the region.

    Returns:
        None where an element depends on others, or where the first dimension is not free.
    """
    sizes: dict[int, int] = {}
    for model in (region.before, region.after):
        for node, fixed in _computed(model):
            if _is_table(node, fixed):
                continue
            if not is_pointwise(node) and (node.domain or node.op_type not in _ALIKE):
                return None
            for index, value in fixed:
                dims = _along(node, index, value, ranks)
                if dims is None:
                    return None
                for place, size in enumerate(reversed(dims)):
                    if size > 1 and sizes.setdefault(place, size) != size:
                        return None
    rank = max(ranks, default=1)
    if any(place >= rank - 1 for place in sizes):
        return None
    return tuple(sizes.get(place, 1) for place in range(rank - 2, -1, -1))


def _computed(model: ir.Model) -> Iterator[tuple[ir.Node, list[tuple[int, ir.Value]]]]:
    """The nodes whose results are others in every run, each with those of its inputs that are not."""
    fixed: set[ir.Value] = set()
    for node in model.graph:
        given = [(index, value) for index, value in enumerate(node.inputs) if value is not None]
        still = [(index, value) for index, value in given if value in fixed or is_constant(value)]
        if len(still) == len(given):
            fixed.update(node.outputs)
        else:
            yield node, still


def _is_table(node: ir.Node, fixed: list[tuple[int, ir.Value]]) -> bool:
    """Whether ``node`` looks each element up in one list."""
    if node.domain or node.op_type != "Gather" or [index for index, _ in fixed] != [0]:
        return False
    shape = fixed[0][1].shape
    return shape is not None and len(shape) == 1


def _along(node: ir.Node, index: int, value: ir.Value, ranks: AbstractSet[int]) -> tuple[int, ...] | None:
    """The dimensions of a fixed operand, as they lie along those of a case; None: it cannot be said."""
    constant = constant_value(value)
    shape = constant.shape if constant is not None else value.shape
    if shape is None or not all(isinstance(dim, int) for dim in shape):
        return None
    dims = tuple(int(dim) for dim in shape)  # type: ignore[arg-type]
    if math.prod(dims) == 1:
        return ()
    if node.op_type not in BORDERS or not index:
        return dims
    if len(ranks) != 1 or len(dims) != 1 or int_attribute(node, "block_size", 0):
        return None
    (rank,) = ranks
    behind = rank - 1 - int_attribute(node, "axis", 1) % rank
    return (dims[0], *(1 for _ in range(behind)))
