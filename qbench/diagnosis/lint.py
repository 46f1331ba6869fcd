"""Lint of a quantized graph: before anything runs, which layers can saturate, overflow, or not be represented.

Facts of the graph (pairs, sums, multipliers) for every layer, and for each machine that is asked about what it lacks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from qbench.diagnosis.integer_products import IntegerProduct, integer_products
from qbench.diagnosis.machine_limits import bits_for, machine_limits, reach
from qbench.diagnosis.pair_risk import PairRisk, pair_risk
from qbench.errors import InputError
from qbench.graph import Form, form_of
from qbench.numerics import Arithmetic
from qbench.passes import lower_to_machines

REGISTER = 32
"""Bits of the accumulators that nearly all machines have."""
_NEAR = 2**30
"""Half of what an int32 holds: a bias beyond it leaves its sums less room than it takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerLint:
    """One layer.

    Args:
        node, operator: its name, and what it is called in a float graph. depthwise: one filter a channel.
        levels, weights: their types.
        pairs: what can happen where pairs are summed in 16 bits.
        sum_bits: width of a register that holds every sum it can have.
        bias: the largest in magnitude.
        multiplier: the largest; None where the result is no level.
        machines: machine → what it cannot represent here.
    """

    node: str
    operator: str
    depthwise: bool
    levels: str
    weights: str
    pairs: PairRisk
    sum_bits: int
    bias: int
    multiplier: float | None
    machines: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is unusual whatever the machine."""
        found = []
        if self.sum_bits > REGISTER:
            found.append(f"sums need {self.sum_bits} bits")
        if self.bias >= _NEAR:
            found.append(f"a bias of {self.bias} is near the end of int32")
        if self.multiplier is not None and self.multiplier >= 1:
            found.append(f"a multiplier of {self.multiplier:.4g} shifts to the left")
        return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLint:
    """A graph: its ``layers`` in order, and the names of products that are ``unjudged``."""

    layers: tuple[LayerLint, ...]
    unjudged: tuple[str, ...] = ()

    @property
    def risky(self) -> bool:
        """Whether something can saturate or overflow: on the machines asked about, or, if none was, on some machine."""
        if any(layer.machines for layer in self.layers):
            return any(found for layer in self.layers for found in layer.machines.values())
        return any(layer.pairs.risky or layer.sum_bits > REGISTER for layer in self.layers)


def lint_products(model: ir.Model, machines: Sequence[Arithmetic] = ()) -> ModelLint:
    """What can go wrong in the products of a quantized ``model``, and what ``machines`` cannot represent of them.

    Raises:
        InputError: the model is not quantized, or a Q or DQ means nothing.
    """
    if form_of(model) is Form.FLOAT:
        raise InputError(
            f"Looking for saturation in '{model.graph.name}'",
            found="a float model",
            expected="a quantized one, whose weights are levels",
            remedy="Name a schema to quantize it with.",
        )
    products, unjudged = integer_products(lower_to_machines(model))
    return ModelLint(layers=tuple(_layer(product, machines) for product in products), unjudged=unjudged)


def _layer(product: IntegerProduct, machines: Sequence[Arithmetic]) -> LayerLint:
    risk = pair_risk(product)
    multiplier = None
    if product.scales is not None:
        x, w, y = product.scales
        multiplier = float((x * w / y).max())
    return LayerLint(
        node=product.node,
        operator=product.operator,
        depthwise=product.depthwise,
        levels=product.levels,
        weights=product.weights,
        pairs=risk,
        sum_bits=bits_for(*reach(product)),
        bias=int(np.abs(product.bias).max(initial=0)),
        multiplier=multiplier,
        machines={machine.name: machine_limits(product, machine) for machine in machines},
    )
