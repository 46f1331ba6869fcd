"""Cross-layer equalization: factors move between neighbouring linear operators until their weights have like ranges.

    y = B·f(A·x + a) + b    =    (B·S) · f((S⁻¹·A)·x + S⁻¹·a) + b        f positively homogeneous, S diagonal, > 0

A weight on one grid a tensor loses those channels that are small beside the largest; afterwards none is smaller than
need be. The function is the same but for rounding; the values between are not: a profile is taken behind this pass.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from qbench.graph import constant_value, forget_lineage, node_key
from qbench.passes.canonical.equalizing_scales import Doubles, SharedChannels, equalizing_scales
from qbench.passes.canonical.linear_blocks import blocks_of, weight_of_blocks
from qbench.passes.canonical.linear_pairs import linear_pairs
from qbench.passes.constants import set_constant_operand
from qbench.passes.effect import LOSSY, Effect
from qbench.passes.naming import NameScope


@dataclass(frozen=True, slots=True)
class Equalize:
    """Requires: constants are initializers, nodes are named, normalizations are folded, no weight is shared.

    Ensures: in every pair of linear operators that ``linear_pairs`` finds, both weights have the same range in every
    channel that they share, to a thousandth. Left alone: pairs with a Clip between them, weights of other types than
    float32, weights and values that came with a grid. Begins a new lineage, as values change under their names.

    Raises (from ``run``):
        UnsupportedError: a chain of operators is so long that its factors do not settle.
    """

    name: str = "equalize"
    effect: ClassVar[Effect] = LOSSY

    def run(self, model: ir.Model) -> bool:
        """Equalize; True when any weight had to change."""
        pairs = linear_pairs(model.graph)
        nodes = {node_key(node): node for pair in pairs for node in (pair.first, pair.second)}
        magnitudes = {key: np.abs(_blocks(node)).max(axis=3) for key, node in nodes.items()}
        shared = [SharedChannels(node_key(p.first), node_key(p.second), p.columns) for p in pairs]
        scales = equalizing_scales(magnitudes, shared)
        if scales is None:
            return False
        factors = {key: _Factors() for key in nodes}
        for pair, scale in zip(shared, scales, strict=True):
            factors[pair.first].made = scale
            factors[pair.second].read = np.repeat(scale, pair.columns)
        names = NameScope.of_values(model)
        for key, node in nodes.items():
            _scale(node, factors[key], names)
        forget_lineage(model)
        return True


@dataclass(slots=True)
class _Factors:
    """By what the output channels of an operator are divided, and its input channels multiplied; None: 1."""

    made: Doubles | None = None
    read: Doubles | None = None


def _blocks(node: ir.Node) -> Doubles:
    weight = constant_value(node.inputs[1])
    assert weight is not None
    return blocks_of(node, weight.astype(np.float64))


def _scale(node: ir.Node, factors: _Factors, names: NameScope) -> None:
    weight, blocks = constant_value(node.inputs[1]), _blocks(node)
    assert weight is not None
    if factors.read is not None:
        blocks = blocks * factors.read.reshape(blocks.shape[0], 1, blocks.shape[2], 1)
    if factors.made is not None:
        blocks = blocks / factors.made.reshape(*blocks.shape[:2], 1, 1)
    set_constant_operand(node, 1, weight_of_blocks(node, blocks, weight.shape).astype(weight.dtype), names)
    bias = constant_value(node.inputs[2]) if len(node.inputs) > 2 else None
    if bias is not None and factors.made is not None:
        # The last axis of a bias runs over channels, or is one number for all of them.
        set_constant_operand(node, 2, (bias.astype(np.float64) / factors.made).astype(bias.dtype), names)
