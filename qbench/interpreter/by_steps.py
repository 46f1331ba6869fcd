"""Sums in a register that saturates at every product, along K.

acc ← 0;   for k: acc ← clamp(acc + left[m, k] · right[k, n], −2^(bits − 1), 2^(bits − 1) − 1)
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.interpreter.kernel import Counters


def summed_by_steps(
    left: npt.NDArray[Any], right: npt.NDArray[Any], bits: int, counters: Counters
) -> npt.NDArray[np.int64]:
    """What such a register holds at the end; every product that it could not take whole is counted as an overflow.

    Args:
        left: (…, M, K) levels less their zero points.
        right: (…, K, N) likewise; the dimensions in front broadcast.
        bits: of the register, 2 … 63 at which no sum of two wraps in int64.
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
