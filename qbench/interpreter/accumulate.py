"""Accumulators: Σ (x − z_x)(w − z_w), and what a machine without wide dot products makes of them.

A machine that sums pairs in 16 bits saturates each Σ of two neighbouring raw products x · w before it widens (Intel's
vpmaddubsw); zero points are corrected for in 32 bits afterwards. Only pairs whose weights have one sign and
|w₀| + |w₁| ≥ 129 can, as 255 · 129 > 2¹⁵ − 1: the exact sums are taken for all, and mended at those, unless the
processor does so by itself.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.interpreter.arrays import Array
from qbench.interpreter.batch_error import BatchError
from qbench.interpreter.gemm import DEEPEST, Operands, Pairs, engine_gemm, pairs_here, saturating_gemm
from qbench.interpreter.kernel import Counters, Means

Accumulate = Callable[[Array], npt.NDArray[Any]]
"""(M, K) levels → (M, N) accumulators, not yet held in a register: int32, or int64 where that could overflow."""

Places = tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]
"""(pair, column): neighbours 2 · pair and 2 · pair + 1 along K."""

_PART = DEEPEST // 2 * 2
"""Even, so that no pair is cut."""

_LARGEST = 255
"""Of unsigned levels."""
_PROCESSORS = 16
"""The bits in which processors with vpmaddubsw sum pairs."""


def accumulator(operands: Operands, pair_bits: int, means: Means, counters: Counters) -> Accumulate:
    """What accumulates levels against a constant weight; deeper than an int32 holds, part by part in int64.

    Args:
        operands: of the product.
        pair_bits: to which neighbouring products saturate; applies to unsigned levels times signed weights of 8 bits.
        means: what it is computed with.
        counters: pairs that saturated are counted here, unless the processor saturates by itself.
    """
    depth = len(operands.weight)
    accumulate = _any_depth(operands, pair_bits, means, counters)

    def checked(x: Array) -> npt.NDArray[Any]:
        if x.shape[1] != depth:
            raise BatchError(f"{x.shape[1]} levels a row where the weight has {depth}")
        return accumulate(x)

    return checked


def _any_depth(operands: Operands, pair_bits: int, means: Means, counters: Counters) -> Accumulate:
    depth = len(operands.weight)
    if operands.wide or depth <= DEEPEST:
        return _shallow(operands, pair_bits, means, counters)
    cuts = [slice(start, min(start + _PART, depth)) for start in range(0, depth, _PART)]
    parts = [_shallow(replace(operands, weight=operands.weight[cut]), pair_bits, means, counters) for cut in cuts]

    def accumulate(x: Array) -> npt.NDArray[Any]:
        total = np.zeros((len(x), operands.weight.shape[1]), np.int64)
        for cut, part in zip(cuts, parts, strict=True):
            total += part(np.ascontiguousarray(x[:, cut]))
        return total

    return accumulate


def _shallow(operands: Operands, pair_bits: int, means: Means, counters: Counters) -> Accumulate:
    weight = operands.weight
    if not saturates(operands.levels, weight.dtype, pair_bits):
        return means.gemm(operands)
    places = risky_pairs(weight, pair_bits)
    if not places[0].size:
        return means.gemm(operands)
    if processor_saturates(means, pair_bits):
        return saturating_gemm(operands)
    product, rows = means.gemm(operands), np.ascontiguousarray(weight)

    def accumulate(x: Array) -> npt.NDArray[Any]:
        sums = product(x)
        counters.saturated += mend(sums, x, rows, places, pair_bits, compiled=means.compiled)
        return sums

    return accumulate


def saturates(left: "np.dtype[Any]", right: "np.dtype[Any]", pair_bits: int) -> bool:
    """Whether pairs of such products can saturate: those of unsigned times signed levels, 8 bits each."""
    return bool(pair_bits) and left == np.uint8 and right == np.int8


def processor_saturates(means: Means, pair_bits: int) -> bool:
    """Whether what ``means`` multiply with saturates pairs here, by itself, as the machine does."""
    return pair_bits == _PROCESSORS and means.gemm is engine_gemm and pairs_here() is Pairs.SATURATE


def risky_pairs(weight: Array, bits: int = _PROCESSORS) -> Places:
    """(pair, column) of the neighbours along K whose products can exceed ``bits`` bits, for some unsigned levels.

    Args:
        weight: (K, N) signed levels.
        bits: to which pairs saturate.
    """
    even = weight[: len(weight) // 2 * 2].astype(np.int32)
    first, second = even[0::2], even[1::2]
    most = np.maximum(first, 0) + np.maximum(second, 0)
    least = np.minimum(first, 0) + np.minimum(second, 0)
    half = 1 << (bits - 1)
    pair, column = np.nonzero((_LARGEST * most >= half) | (_LARGEST * least < -half))
    return pair, column


def mend(sums: npt.NDArray[Any], x: Array, weight: Array, places: Places, bits: int, *, compiled: bool) -> int:
    """Take from exact ``sums``, in place, what the risky pairs lose by saturating.

    Args:
        sums: (M, N) of ``x`` times ``weight``.
        x: (M, K) unsigned levels.
        weight: (K, N) signed levels.
        places: where pairs can saturate.
        bits: to which they do.
        compiled: by numba.

    Returns:
        How many pairs saturated.
    """
    top, (pair, column) = (1 << (bits - 1)) - 1, places
    if not pair.size:
        return 0
    if compiled:
        from qbench.interpreter.compiled_pairs import mend_pairs

        return int(mend_pairs(sums, np.ascontiguousarray(x), weight, pair, column, top))
    lost = 0
    order, starts = np.unique(pair, return_index=True)
    for place, columns in zip(order.tolist(), np.split(column, starts[1:]), strict=True):
        first, second = weight[2 * place, columns].astype(np.int32), weight[2 * place + 1, columns].astype(np.int32)
        both = x[:, 2 * place, None] * first + x[:, 2 * place + 1, None] * second
        excess = both - np.clip(both, -top - 1, top)
        lost += int(np.count_nonzero(excess))
        sums[:, columns] -= excess
    return lost
