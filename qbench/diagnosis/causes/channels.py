"""Which axis of a result its channels run along: as its product has it, else as its rank or its neighbours have it.

Behind a convolution it is the second, behind a matrix product the last. A sum of rank 3 may be either, [N, C, L] or
[N, T, C]: the nearest neighbours with weights tell, and where there are none it is the last.
"""

from collections.abc import Iterator

import onnx_ir as ir

from qbench.diagnosis.causes.interior import Interior
from qbench.graph import values_by_name

_SECOND = frozenset({"Conv", "ConvTranspose", "BatchNormalization", "InstanceNormalization", "GroupNormalization"})
_LAST = frozenset({"Gemm", "MatMul", "LayerNormalization", "RMSNormalization"})
_MOVING = frozenset({"Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze"})
_AMBIGUOUS = 3
_NEAR = 64
"""Neighbours that are asked at most."""


def axis_of_channels(rank: int, interior: Interior | None, original: ir.Model | None, value: str) -> int:
    """The axis, from 0.

    Args:
        rank: of the result. interior: the operators that make it, where there are any.
        original: the float graph, where it is at hand. value: the result by its name there.
    """
    last = max(rank - 1, 0)
    operator = "" if interior is None else interior.node.op_type
    if rank < _AMBIGUOUS or operator in _LAST:
        return last
    if rank > _AMBIGUOUS or operator in _SECOND:
        return 1
    known = {} if original is None else values_by_name(original)
    near = next(_weighted(known[value]), "") if value in known else ""
    return 1 if near in _SECOND else last


def _weighted(value: ir.Value) -> Iterator[str]:
    """The operators around ``value`` that say which axis is which, the nearest first."""
    reached, asked = [value], {value}
    while reached and len(asked) <= _NEAR:
        one = reached.pop(0)
        maker = one.producer()
        for node in (*([] if maker is None else [maker]), *(use.node for use in one.uses())):
            if node.op_type in _SECOND | _LAST:
                yield node.op_type
            elif node.op_type not in _MOVING:
                fresh = [
                    v
                    for v in (*node.inputs, *node.outputs)
                    if v is not None and v.const_value is None and v not in asked
                ]
                reached += fresh
                asked.update(fresh)
