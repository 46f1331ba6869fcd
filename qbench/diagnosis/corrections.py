"""Whether what moved a node's constants corrects it: it is nearer to fp32 than fp32's own constants would bring it."""

from qbench.judging import NodeErrors

_NEARER = 0.98
"""Of the error that fp32's constants leave on the same grids: chance moves it by less."""


def is_corrected(node: NodeErrors) -> bool:
    """As of a bias that was corrected for rounded weights."""
    alone, ideal = node.isolated, node.explained
    return alone is not None and ideal is not None and alone.relative < _NEARER * ideal.relative
