"""Products of two computed operands, both known at run time only: batch by batch, with broadcasting.

    Σ_k (a[…, m, k] − z_a) (b[…, k, n] − z_b[n])

By ONNX Runtime's MatMulInteger where that is there, else by BLAS, whose float products are exact while
K · max|a − z_a| · max|b − z_b| ≤ 2²⁴ in float32, 2⁵³ in float64; deeper ones are split. The engine's precise mode moves
constant weights only: where pairs would saturate, signed levels are moved to unsigned ones here.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.interpreter.accumulate import processor_saturates, saturates
from qbench.interpreter.arrays import Array
from qbench.interpreter.batch_error import BatchError, broadcast
from qbench.interpreter.by_steps import summed_by_steps
from qbench.interpreter.engine import Pairs, engine_run, pairs_here
from qbench.interpreter.gemm import DEEPEST, EXACT, engine_gemm
from qbench.interpreter.kernel import Making
from qbench.interpreter.saturation import mender

_SHALLOW = 64
"""Parts of K shorter than this are not worth a float32 product each."""


def multiplied(a: Array, b: Array, zeros: tuple[int, Array], pair_bits: int, making: Making) -> npt.NDArray[Any]:
    """Accumulators of ``a`` times ``b``, not yet held in a register.

    Args:
        a: (…, M, K) levels of 8 or 16 bits.
        b: (…, K, N) levels of 8 or 16 bits; the dimensions in front broadcast.
        zeros: z_a, and z_b as one number or one a column, (1,) or (N,).
        pair_bits: to which neighbouring products saturate; applies to unsigned ``a`` times signed ``b``.
        making: with what it is computed; saturated pairs are counted there, unless the processor does it by itself.

    Returns:
        (…, M, N) int32, or int64 where int32 could overflow or where a register saturates at each product.

    Raises:
        BatchError: shapes that are no product.
    """
    if a.shape[-1] != b.shape[-2]:
        raise BatchError(f"{a.shape[-1]} levels a row and {b.shape[-2]} a column")
    broadcast(a.shape[:-2], b.shape[:-2])
    register = making.arithmetic.accumulator
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
    left, right = np.broadcast_to(a, (*lead, *a.shape[-2:])), np.broadcast_to(b, (*lead, *b.shape[-2:]))
    for index in np.ndindex(lead):
        mend = mender(right[index], pair_bits, compiled=means.compiled)
        making.counters.saturated += 0 if mend is None else mend(sums[index], left[index])
    return sums


def largest_sum(
    depth: int, left: "np.dtype[Any]", right: "np.dtype[Any]", zeros: tuple[int, Array], pair_bits: int
) -> int:
    """What no sum of ``depth`` products exceeds in magnitude; each pair that saturates takes up to 2^``pair_bits``."""
    (zero, points), lost = zeros, (depth // 2) << pair_bits if pair_bits else 0
    return depth * _span(left, zero, zero) * _span(right, int(points.min()), int(points.max())) + lost


def _span(dtype: "np.dtype[Any]", low: int, high: int) -> int:
    """What no level of ``dtype`` less a zero point between the two exceeds in magnitude."""
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
        sums += (left[..., start : start + step] @ right[..., start : start + step, :]).astype(dtype)
    return np.asarray(sums)


def _by_engine(a: Array, b: Array, zeros: tuple[int, Array], *, exact: bool = True) -> npt.NDArray[Any]:
    """It takes one zero point of ``b``; those of columns are corrected for: Σ a (b − z_b) = Σ a b − z_b · Σ a."""
    zero, points = zeros
    if exact and a.dtype == np.uint8 and b.dtype == np.int8 and pairs_here() is not Pairs.EXACT:
        b, points = np.ascontiguousarray(b).view(np.uint8) ^ np.uint8(128), points + 128
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
