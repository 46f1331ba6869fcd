"""A bias that is missing, doubled, of another channel, or at another scale."""

from collections.abc import Iterator

import numpy as np

from qbench.diagnosis.hypotheses.arithmetic import solved
from qbench.diagnosis.hypotheses.hypothesis import Explanation, Product, UnitEvidence
from qbench.diagnosis.hypotheses.interior import Floats
from qbench.judging import Cause
from qbench.numerics import Accumulator, Overflow, held

_FITTED = 0.97
"""Factor of the weight of an explanation with a fitted number."""


def biases(facts: UnitEvidence) -> Iterator[Explanation | None]:
    """Another bias with the same sums, of a product with a bias."""
    product = Product.of(facts)
    if product is None or product.bias is None:
        return
    bias = product.bias
    sums, cause = facts.real - bias, Cause.WRONG_BIAS
    flat = bias.reshape(-1)
    others = {
        "a bias that is left out": 0 * flat,
        "a bias that is added twice": 2 * flat,
        "a bias with the other sign": -flat,
        "a bias of the next channel": np.roll(flat, -1),
        "a bias of the channel before": np.roll(flat, 1),
        "the first channel's bias in all": np.full_like(flat, flat[0]),
        "the last channel's bias in all": np.full_like(flat, flat[-1]),
        "biases in the opposite order": flat[::-1],
    }
    for words, other in others.items():
        yield facts.weigh_reals(cause, words, sums + facts.along(other))
    units = bias / product.unit
    for words, shift in (("next channel", -1), ("channel before", 1)):
        rolled = np.roll(np.broadcast_to(units, bias.shape).reshape(-1), shift)
        said = f"the integers of the bias of the {words}"
        yield facts.weigh_reals(cause, said, sums + facts.along(rolled) * product.unit)
    first = np.full_like(flat, units.reshape(-1)[0])
    words = "the integer of the first channel's bias in all"
    yield facts.weigh_reals(cause, words, sums + facts.along(first) * product.unit)
    scales = product.scales
    if scales.size > 1:
        for words, one in (("first", scales[0]), ("last", scales[-1]), ("largest", scales.max())):
            yield facts.weigh_reals(
                cause,
                f"a bias at the {words} channel's scale",
                sums + facts.along(flat * one / scales),
            )
            yield facts.weigh_reals(
                cause,
                f"a bias counted at the {words} channel's scale",
                sums + facts.along(flat * scales / one),
            )
    if flat.any():
        factor = 1 + solved(facts, np.broadcast_to(bias, facts.found.shape))
        yield facts.weigh_reals(
            cause, f"a bias {factor:.4g} times as large", sums + factor * bias, _FITTED
        )
    yield from _narrow(facts, product, bias)


def _narrow(facts: UnitEvidence, product: Product, bias: Floats) -> Iterator[Explanation | None]:
    codes = np.rint(bias / product.unit).astype(np.int64)
    widest = int(np.abs(codes).max(initial=0)).bit_length()
    for bits in range(min(widest, 31), 6, -1):
        for overflow in Overflow:
            other = held(codes, Accumulator(bits=bits, overflow=overflow)) * product.unit
            words = f"a bias of {widest + 1} bits that {overflow.value} in {bits}"
            yield facts.weigh_reals(Cause.BIAS_SATURATION, words, facts.real - bias + other)
