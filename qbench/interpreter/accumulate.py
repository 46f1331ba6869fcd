"""Accumulators: Σ (x − z_x)(w − z_w), and what a machine without wide dot products makes of them.

A machine that sums pairs in 16 bits saturates each Σ of two neighbouring raw products x · w before it widens; zero
points are corrected for in 32 bits afterwards. Exact sums are mended where that can happen (``saturation``), unless the
processor does so by itself.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.interpreter.arrays import Array
from qbench.interpreter.batch_error import BatchError
from qbench.interpreter.engine import Pairs, pairs_here
from qbench.interpreter.gemm import DEEPEST, Operands, engine_gemm, saturating_gemm
from qbench.interpreter.kernel import Counters, Means
from qbench.interpreter.saturation import PROCESSORS, mender

Accumulate = Callable[[Array], npt.NDArray[Any]]
"""(M, K) levels → (M, N) accumulators, not yet held in a register: int32, or int64 where that could overflow."""

_PART = DEEPEST // 2 * 2
"""Even, so that no pair is cut."""


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
    mend = mender(weight, pair_bits, compiled=means.compiled)
    if mend is None:
        return means.gemm(operands)
    if processor_saturates(means, pair_bits):
        return saturating_gemm(operands)
    product = means.gemm(operands)

    def accumulate(x: Array) -> npt.NDArray[Any]:
        sums = product(x)
        counters.saturated += mend(sums, x)
        return sums

    return accumulate


def saturates(left: "np.dtype[Any]", right: "np.dtype[Any]", pair_bits: int) -> bool:
    """Whether pairs of such products can saturate: those of unsigned times signed levels, 8 bits each."""
    return bool(pair_bits) and left == np.uint8 and right == np.int8


def processor_saturates(means: Means, pair_bits: int) -> bool:
    """Whether what ``means`` multiply with saturates pairs here, by itself, as the machine does."""
    return pair_bits == PROCESSORS and means.gemm is engine_gemm and pairs_here() is Pairs.SATURATE
