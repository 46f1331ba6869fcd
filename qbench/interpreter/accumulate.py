"""Accumulators: Σ (x − z_x)(w − z_w), and what a machine without wide dot products makes of them.

A machine that sums pairs in 16 bits saturates each Σ of two neighbouring raw products x · w before it widens (Intel's
vpmaddubsw); zero points are corrected for in 32 bits afterwards. Only pairs whose weights have one sign and
|w₀| + |w₁| ≥ 129 can: the exact sums are taken for all, and mended at those, unless the processor does so by itself.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.interpreter.arrays import Array
from qbench.interpreter.gemm import DEEPEST, Gemm, Operands, Pairs, engine_gemm, pairs_here, saturating_gemm
from qbench.interpreter.kernel import Counters

Accumulate = Callable[[Array], npt.NDArray[Any]]
"""(M, K) levels → (M, N) accumulators, not yet held in a register: int32, or int64 where that could overflow."""

_PART = DEEPEST // 2 * 2
"""Even, so that no pair is cut."""

RISKY = 129
"""|w₀| + |w₁| from which 255 · (|w₀| + |w₁|) exceeds an int16."""


def accumulator(operands: Operands, pair_bits: int, gemm: Gemm, counters: Counters) -> Accumulate:
    """What accumulates levels against a constant weight; deeper than an int32 holds, part by part in int64.

    Args:
        operands: of the product.
        pair_bits: to which neighbouring products saturate; applies to unsigned levels times signed weights.
        gemm: makes exact products.
        counters: pairs that saturated are counted here, where they are mended one by one.
    """
    depth = len(operands.weight)
    if depth <= DEEPEST:
        return _shallow(operands, pair_bits, gemm, counters)
    cuts = [slice(start, min(start + _PART, depth)) for start in range(0, depth, _PART)]
    parts = [_shallow(replace(operands, weight=operands.weight[cut]), pair_bits, gemm, counters) for cut in cuts]

    def accumulate(x: Array) -> npt.NDArray[Any]:
        total = np.zeros((len(x), operands.weight.shape[1]), np.int64)
        for cut, part in zip(cuts, parts, strict=True):
            total += part(np.ascontiguousarray(x[:, cut]))
        return total

    return accumulate


def _shallow(operands: Operands, pair_bits: int, gemm: Gemm, counters: Counters) -> Accumulate:
    weight = operands.weight
    if not pair_bits or operands.levels != np.uint8 or weight.dtype != np.int8:
        return gemm(operands)
    pair, column = risky_pairs(weight)
    if not len(pair):
        return gemm(operands)
    if gemm is engine_gemm and pairs_here() is Pairs.SATURATE:
        return saturating_gemm(operands)
    return _mended(gemm(operands), weight, (pair, column), pair_bits, counters)


def risky_pairs(weight: Array) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """(pair, column) of the neighbours along K whose products can exceed 16 bits, for some unsigned levels."""
    even = weight[: len(weight) // 2 * 2].astype(np.int32)
    first, second = even[0::2], even[1::2]
    risky = (np.sign(first) == np.sign(second)) & (np.abs(first + second) >= RISKY)
    pair, column = np.nonzero(risky)
    return pair, column


def _mended(
    product: Accumulate,
    weight: Array,
    pairs: tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]],
    bits: int,
    counters: Counters,
) -> Accumulate:
    """Exact sums, less what the risky pairs lose by saturating."""
    top = (1 << (bits - 1)) - 1
    places = list(zip(*(part.tolist() for part in pairs), strict=True))

    def accumulate(x: Array) -> npt.NDArray[Any]:
        sums = product(x)
        for pair, column in places:
            first, second = int(weight[2 * pair, column]), int(weight[2 * pair + 1, column])
            both = x[:, 2 * pair].astype(np.int32) * first + x[:, 2 * pair + 1].astype(np.int32) * second
            excess = both - np.clip(both, -top - 1, top)
            counters.overflowed += int(np.count_nonzero(excess))
            sums[:, column] -= excess
        return sums

    return accumulate
