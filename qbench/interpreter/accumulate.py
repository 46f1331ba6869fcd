"""Accumulators: Σ (x − z_x)(w − z_w), and what saturating registers make of them."""

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.interpreter.arrays import Array, BatchError, broadcast
from qbench.interpreter.gemm import (
    DEEPEST,
    EXACT,
    Operands,
    Pairs,
    engine_gemm,
    engine_run,
    pairs_here,
    saturating_gemm,
)
from qbench.interpreter.kernel import Counters, KernelContext, Means

# Pairs of products that can saturate, and what sums lose where they do.
#
# Intel's vpmaddubsw sums two neighbouring raw products x · w in 16 bits before it widens. Only
# pairs whose weights have one sign and |w₀| + |w₁| ≥ 129 can saturate, as 255 · 129 > 2¹⁵ − 1. So
# exact sums are computed for all pairs, and a correction is added for those that can saturate.

Places = tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]
"""(pair, column): neighbours 2 · pair and 2 · pair + 1 along K."""
PairCorrection = Callable[[npt.NDArray[Any], Array], int]
"""Corrects exact sums (M, N) of codes (M, K), in place, for what their pairs lose by saturation,
and gives the number of pairs that saturated.
"""

PROCESSORS = 16
"""The bits in which processors with vpmaddubsw sum pairs."""
_LARGEST = 255
"""The largest unsigned code."""
_HEAVIEST = 128
"""The largest magnitude of a signed weight."""


def risky_pairs(weight: Array, bits: int = PROCESSORS, *, compiled: bool = False) -> Places:
    """(pair, column) of the neighbours along K whose products can exceed ``bits`` bits, for
    some unsigned codes.

    Args:
        weight: (K, N) signed codes.
        bits: width to which the sums of pairs saturate.
        compiled: whether numba compiles the kernels.
    """
    half = 1 << (bits - 1)
    most, least = -(-half // _LARGEST), -(half // _LARGEST) - 1
    if compiled:
        from qbench.interpreter.compiled import find_pairs

        pair, column = find_pairs(np.ascontiguousarray(weight), most, least)
        return pair, column
    even = weight[: len(weight) // 2 * 2].astype(np.int16)
    first, second = even[0::2], even[1::2]
    above = np.maximum(first, 0) + np.maximum(second, 0)
    below = np.minimum(first, 0) + np.minimum(second, 0)
    pair, column = np.nonzero((above >= most) | (below <= least))
    return pair, column


def pair_correction(weight: Array, bits: int, *, compiled: bool) -> PairCorrection | None:
    """What corrects exact sums of unsigned codes times ``weight``; None where no pair can saturate.

    Args:
        weight: (K, N) signed codes.
        bits: width to which the sums of pairs saturate.
        compiled: whether numba compiles the kernels.
    """
    places, top = risky_pairs(weight, bits, compiled=compiled), (1 << (bits - 1)) - 1
    if not places[0].size:
        return None
    return (_in_blocks if compiled else _pair_by_pair)(weight, places, top)


def _in_blocks(weight: Array, places: Places, top: int) -> PairCorrection:
    from qbench.interpreter.compiled import correct_pairs

    pair, columns = places
    pairs, starts = np.unique(pair, return_index=True)
    ends, least = np.append(starts, len(pair)), -(-(top + 1) // _HEAVIEST)
    first, second = (weight[2 * pair + side, columns].astype(np.int32) for side in (0, 1))

    def correct(sums: npt.NDArray[Any], x: Array) -> int:
        codes = np.ascontiguousarray(x)
        return int(
            correct_pairs(sums, codes, pairs, ends, columns, first, second, least, np.int32(top))
        )

    return correct


def _pair_by_pair(weight: Array, places: Places, top: int) -> PairCorrection:
    order, starts = np.unique(places[0], return_index=True)
    columns = np.split(places[1], starts[1:])

    def correct(sums: npt.NDArray[Any], x: Array) -> int:
        lost = 0
        for pair, where in zip(order.tolist(), columns, strict=True):
            first = weight[2 * pair, where].astype(np.int32)
            second = weight[2 * pair + 1, where].astype(np.int32)
            both = x[:, 2 * pair, None] * first + x[:, 2 * pair + 1, None] * second
            excess = both - np.clip(both, -top - 1, top)
            lost += int(np.count_nonzero(excess))
            sums[:, where] -= excess
        return lost

    return correct


# Accumulators: Σ (x − z_x)(w − z_w), and what an arithmetic without wide dot products makes of
# them.
#
# An arithmetic that sums pairs in 16 bits saturates each Σ of two neighbouring raw products x · w
# before it widens; zero points are corrected for in 32 bits afterwards. Exact sums are corrected
# where that can happen (``saturation``), unless the processor does so by itself.

Accumulate = Callable[[Array], npt.NDArray[Any]]
"""(M, K) codes → (M, N) accumulators, not yet held in a register: int32, or int64 where that
could overflow.
"""

_PART = DEEPEST // 2 * 2
"""Even, so that no pair is cut."""


def accumulator(operands: Operands, pair_bits: int, means: Means, counters: Counters) -> Accumulate:
    """A function that accumulates codes times a constant weight. Sums that an int32 cannot hold
    are taken in parts, which are added in int64.

    Args:
        operands: of the product.
        pair_bits: width to which sums of two neighbouring products saturate; it applies to unsigned
            codes times signed weights of 8 bits.
        means: what it is computed with.
        counters: pairs that saturated are counted here, unless the processor saturates by itself.
    """
    depth = len(operands.weight)
    accumulate = _any_depth(operands, pair_bits, means, counters)

    def checked(x: Array) -> npt.NDArray[Any]:
        if x.shape[1] != depth:
            raise BatchError(f"{x.shape[1]} values per row where the weight has {depth}")
        return accumulate(x)

    return checked


def _any_depth(operands: Operands, pair_bits: int, means: Means, counters: Counters) -> Accumulate:
    depth = len(operands.weight)
    if operands.wide or depth <= DEEPEST:
        return _shallow(operands, pair_bits, means, counters)
    cuts = [slice(start, min(start + _PART, depth)) for start in range(0, depth, _PART)]
    parts = [
        _shallow(replace(operands, weight=operands.weight[cut]), pair_bits, means, counters)
        for cut in cuts
    ]

    def accumulate(x: Array) -> npt.NDArray[Any]:
        total = np.zeros((len(x), operands.weight.shape[1]), np.int64)
        for cut, part in zip(cuts, parts, strict=True):
            total += part(np.ascontiguousarray(x[:, cut]))
        return total

    return accumulate


def _shallow(operands: Operands, pair_bits: int, means: Means, counters: Counters) -> Accumulate:
    weight = operands.weight
    if not saturates(operands.codes, weight.dtype, pair_bits):
        return means.gemm(operands)
    correct = pair_correction(weight, pair_bits, compiled=means.compiled)
    if correct is None:
        return means.gemm(operands)
    if processor_saturates(means, pair_bits):
        return saturating_gemm(operands)
    product = means.gemm(operands)

    def accumulate(x: Array) -> npt.NDArray[Any]:
        sums = product(x)
        counters.saturated += correct(sums, x)
        return sums

    return accumulate


def saturates(left: "np.dtype[Any]", right: "np.dtype[Any]", pair_bits: int) -> bool:
    """Whether pairs of such products can saturate: those of unsigned times signed codes, 8 bits
    each.
    """
    return bool(pair_bits) and left == np.uint8 and right == np.int8


def processor_saturates(means: Means, pair_bits: int) -> bool:
    """Whether the instructions that ``means`` multiply with saturate pairs on this processor as
    the arithmetic does.
    """
    return pair_bits == PROCESSORS and means.gemm is engine_gemm and pairs_here() is Pairs.SATURATE


RAISE = 128
"""From int8 codes to the uint8 ones of the same numbers; zero points are raised with them."""


def both_signed(left: "np.dtype[Any]", right: "np.dtype[Any]") -> bool:
    """Whether data and weights are int8; some arithmetics raise such data by 128."""
    return left == np.int8 and right == np.int8


def raised(x: Array) -> Array:
    """int8 codes as uint8 ones, 128 higher."""
    return np.ascontiguousarray(x).view(np.uint8) ^ np.uint8(RAISE)


# Sums in a register that saturates at every product, along K.
#
# acc ← 0;   for k: acc ← clamp(acc + left[m, k] · right[k, n], −2^(bits − 1), 2^(bits − 1) − 1)


def summed_by_steps(
    left: npt.NDArray[Any], right: npt.NDArray[Any], bits: int, counters: Counters
) -> npt.NDArray[np.int64]:
    """What such a register holds at the end; every product that it could not take whole is
    counted as an overflow.

    Args:
        left: (…, M, K) codes less their zero points.
        right: (…, K, N) likewise; the dimensions in front broadcast.
        bits: width of the register, 2 … 63: no sum of two such numbers wraps in int64.
        counters: of the node.
    """
    half, (a, b) = 1 << (bits - 1), (left.astype(np.int64), right.astype(np.int64))
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    total = np.zeros((*lead, a.shape[-2], b.shape[-1]), np.int64)
    for k in range(a.shape[-1]):
        total += a[..., :, k, None] * b[..., None, k, :]
        counters.overflowed += int(np.count_nonzero((total < -half) | (total >= half)))
        np.clip(total, -half, half - 1, out=total)
    return total


# Products of two computed operands, both known at run time only: batch by batch, with broadcasting.
#
#     Σ_k (a[…, m, k] − z_a) (b[…, k, n] − z_b[n])
#
# By ONNX Runtime's MatMulInteger where that is there, else by BLAS, whose float products are exact
# while K · max|a − z_a| · max|b − z_b| ≤ 2²⁴ in float32, 2⁵³ in float64; deeper ones are split. The
# engine's precise mode moves constant weights only: where pairs would saturate, signed codes are
# moved to unsigned ones here.

_SHALLOW = 64
"""Parts of K shorter than this are not worth a float32 product each."""


def multiplied(
    a: Array, b: Array, zeros: tuple[int, Array], pair_bits: int, making: KernelContext
) -> npt.NDArray[Any]:
    """Accumulators of ``a`` times ``b``, not yet held in a register.

    Args:
        a: (…, M, K) codes of 8 or 16 bits.
        b: (…, K, N) codes of 8 or 16 bits; the dimensions in front broadcast.
        zeros: z_a, and z_b as one number or one per column, (1,) or (N,).
        pair_bits: width to which sums of two neighbouring products saturate; it applies to unsigned
            ``a`` times signed ``b``.
        making: with what it is computed; saturated pairs are counted there, unless the processor
            does it by itself.

    Returns:
        (…, M, N) int32, or int64 where int32 could overflow or where a register saturates at each
        product.

    Raises:
        BatchError: shapes that are no product.
    """
    if a.shape[-1] != b.shape[-2]:
        raise BatchError(f"{a.shape[-1]} values per row and {b.shape[-2]} per column")
    broadcast(a.shape[:-2], b.shape[:-2])
    register = making.arithmetic.accumulator
    if pair_bits and register.raised and both_signed(a.dtype, b.dtype):
        a, zeros = raised(a), (zeros[0] + RAISE, zeros[1])
    if register.by_steps(largest_sum(a.shape[-1], a.dtype, b.dtype, zeros, 0)):
        left, right = a.astype(np.int64) - zeros[0], b.astype(np.int64) - zeros[1]
        return summed_by_steps(left, right, register.bits, making.counters)
    means, eight = making.means, max(a.dtype.itemsize, b.dtype.itemsize) == 1
    by_engine = eight and means.gemm is engine_gemm and a.shape[-1] <= DEEPEST
    if not saturates(a.dtype, b.dtype, pair_bits):
        return _by_engine(a, b, zeros) if by_engine else _by_floats(a, b, zeros)
    if by_engine and processor_saturates(means, pair_bits):
        return _by_engine(a, b, zeros, exact=False)
    sums = _by_engine(a, b, zeros) if by_engine else _by_floats(a, b, zeros)
    lead = sums.shape[:-2]
    left = np.broadcast_to(a, (*lead, *a.shape[-2:]))
    right = np.broadcast_to(b, (*lead, *b.shape[-2:]))
    for index in np.ndindex(lead):
        correct = pair_correction(right[index], pair_bits, compiled=means.compiled)
        making.counters.saturated += 0 if correct is None else correct(sums[index], left[index])
    return sums


def largest_sum(
    depth: int,
    left: "np.dtype[Any]",
    right: "np.dtype[Any]",
    zeros: tuple[int, Array],
    pair_bits: int,
) -> int:
    """A bound on the magnitude of a sum of ``depth`` products; each pair that saturates adds up to
    2^``pair_bits`` to it.
    """
    (zero, points), lost = zeros, (depth // 2) << pair_bits if pair_bits else 0
    return (
        depth * _span(left, zero, zero) * _span(right, int(points.min()), int(points.max())) + lost
    )


def _span(dtype: "np.dtype[Any]", low: int, high: int) -> int:
    """The largest magnitude of a code of ``dtype`` less a zero point between the two."""
    ends = np.iinfo(dtype)
    return max(int(ends.max) - low, high - int(ends.min))


def _by_floats(a: Array, b: Array, zeros: tuple[int, Array]) -> npt.NDArray[Any]:
    (zero, points), depth = zeros, a.shape[-1]
    one = largest_sum(1, a.dtype, b.dtype, zeros, 0)
    real: Any = np.float32 if EXACT[np.float32] // one >= min(depth, _SHALLOW) else np.float64
    step = EXACT[real] // one
    left, right = a.astype(real), b.astype(real)
    left -= real(zero)
    right -= points.astype(real)
    dtype: Any = np.int32 if depth * one < 1 << 31 else np.int64
    if depth <= step:
        return np.asarray((left @ right).astype(dtype))
    sums = (left[..., :step] @ right[..., :step, :]).astype(dtype)
    for start in range(step, depth, step):
        sums += (left[..., start : start + step] @ right[..., start : start + step, :]).astype(
            dtype
        )
    return np.asarray(sums)


def _by_engine(
    a: Array, b: Array, zeros: tuple[int, Array], *, exact: bool = True
) -> npt.NDArray[Any]:
    """It takes one zero point of ``b``; those of columns are corrected for: Σ a (b − z_b) = Σ a
    b − z_b · Σ a.
    """
    zero, points = zeros
    if exact and a.dtype == np.uint8 and b.dtype == np.int8 and pairs_here() is not Pairs.EXACT:
        b, points = raised(b), points + RAISE
    single = points.size == 1
    feeds = {
        "a": np.ascontiguousarray(a),
        "b": np.ascontiguousarray(b),
        "za": np.asarray(zero, a.dtype),
        "zb": np.asarray(points, b.dtype).reshape(()) if single else np.zeros((), b.dtype),
    }
    sums = _engine(a.dtype.name, b.dtype.name)(feeds)
    if single:
        return sums
    centred = a.sum(axis=-1, dtype=np.int32, keepdims=True) - np.int32(a.shape[-1] * zero)
    return np.asarray(sums - centred * points.astype(np.int32))


@functools.cache
def _engine(left: str, right: str) -> Callable[[dict[str, Array]], Array]:
    """One MatMulInteger of operands and zero points that it is fed."""
    from onnx import TensorProto, helper

    kinds = {"uint8": TensorProto.UINT8, "int8": TensorProto.INT8}
    inputs = [
        helper.make_tensor_value_info("a", kinds[left], None),
        helper.make_tensor_value_info("b", kinds[right], None),
        helper.make_tensor_value_info("za", kinds[left], []),
        helper.make_tensor_value_info("zb", kinds[right], []),
    ]
    node = helper.make_node("MatMulInteger", ["a", "b", "za", "zb"], ["y"])
    output = helper.make_tensor_value_info("y", TensorProto.INT32, None)
    return engine_run(helper.make_graph([node], "product", inputs, [output]))
