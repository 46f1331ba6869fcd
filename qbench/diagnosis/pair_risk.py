"""Which weight pairs can saturate where two neighbouring products are summed in 16 bits, and what that costs at most.

    a pair is lost to saturation when    high · (|w₀| + |w₁|) > 2¹⁵ − 1        (2¹⁵ where both are negative)
    worst loss of a column             = max(Σ excess of its positive pairs, Σ excess of its negative ones)

Both sums are reached: the levels of one kind at their highest, of the other at 0. Of an unsigned left operand and a
signed right one only (Intel's vpmaddubsw); with 8-bit levels on the left the first line reads |w₀| + |w₁| ≥ 129, with
8-bit weights there (``interpreter.sum_order``) and the lowest level w₀ + w₁ ≥ 257.
"""

from dataclasses import dataclass

import numpy as np

from qbench.diagnosis.integer_products import IntegerProduct

BITS = 16
"""In which processors with vpmaddubsw sum pairs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRisk:
    """The pairs of one product.

    Args:
        pairs: neighbours that are summed. risky: those that can saturate.
        worst: the largest |w₀| + |w₁| of weights of one sign (of two: the larger of both).
        outputs: columns with such a pair.
        loss: what the worst column can lose, in units of the accumulator.
        loss_steps: in steps of the result, of which it has no more than its grid; None where it is no level.
        why_not: what keeps every pair from saturating, in words; empty where some can.
    """

    pairs: int
    risky: int = 0
    worst: int = 0
    outputs: int = 0
    loss: int = 0
    loss_steps: float | None = None
    why_not: str = ""

    @property
    def share(self) -> float:
        """Of the pairs, those that can saturate."""
        return self.risky / self.pairs if self.pairs else 0.0


def pair_risk(product: IntegerProduct, bits: int = BITS) -> PairRisk:
    """What can happen to ``product`` where pairs are summed in ``bits`` bits."""
    weight = product.weight
    pairs = len(weight) // 2 * weight.shape[1]
    if not product.order.in_pairs(product.levels, product.weights):
        sides = (product.weights, product.levels) if product.order.weights_left else (product.levels, product.weights)
        return PairRisk(pairs=pairs, why_not=f"{' × '.join(sides)} is not summed in pairs")
    first, second, top = weight[0 : 2 * (len(weight) // 2) : 2], weight[1::2], (1 << (bits - 1)) - 1
    most, least = (end(first, 0) + end(second, 0) for end in (np.maximum, np.minimum))
    low, high = min(product.low, 0), max(product.high, 0)
    excess = np.stack([high * most + low * least - top, -high * least - low * most - top - 1]).clip(0)
    losses = excess.sum(axis=1).max(axis=0)
    worst = int(np.maximum(most, -least).max(initial=0))
    if not losses.any():
        return PairRisk(pairs=pairs, worst=worst, why_not=_why_not(product, worst))
    steps = None
    if product.scales is not None and product.output is not None:
        x, w, y = product.scales
        steps = min(float((losses * (x * w / y)).max()), float(product.output.qmax - product.output.qmin))
    return PairRisk(
        pairs=pairs,
        risky=int(np.count_nonzero(excess.any(axis=0))),
        worst=worst,
        outputs=int(np.count_nonzero(losses)),
        loss=int(losses.max()),
        loss_steps=steps,
    )


def _why_not(product: IntegerProduct, worst: int) -> str:
    if len(product.weight) < 2:
        return "one product a sum"
    if product.order.weights_left:
        return f"levels end at {product.low} and {product.high}" if worst > 256 else f"no pair above {worst}"
    if product.high <= 128:  # 128 · 256 = 2¹⁵, of negative weights alone
        return f"levels end at {product.high}"
    if np.abs(product.weight).max(initial=0) <= 64:
        return "weights have 7 bits or fewer"
    return f"no pair of one sign above {worst}"
