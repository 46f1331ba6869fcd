"""What every product of integers does around its sums: its bias, how large they can be, a register of int32, levels.

reach = max_n Σ_k |w[k, n] − z_w[n]| · (qmax − qmin of x)
"""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.interpreter.accumulate import Accumulate, accumulator
from qbench.interpreter.arrays import Array
from qbench.interpreter.batch_error import BatchError
from qbench.interpreter.by_steps import summed_by_steps
from qbench.interpreter.epilogue import Epilogue, Finish
from qbench.interpreter.finish import finish
from qbench.interpreter.gemm import Operands
from qbench.interpreter.kernel import Making
from qbench.numerics import QParams, held

Ints64 = npt.NDArray[np.int64]

_REGISTER = 32
"""Bits of the integers that ONNX's integer products give."""


def optional(making: Making, index: int) -> Array | None:
    """The constant at input ``index``; None where it is left out.

    Raises:
        ValueError: it is computed.
    """
    return None if making.absent(index) else making.needed(index)


def zero_points(making: Making, index: int) -> Ints64:
    """The constant zero points at input ``index``, 1-d; 0 where they are left out.

    Raises:
        ValueError: they are computed.
    """
    found = optional(making, index)
    return np.zeros(1, np.int64) if found is None else found.astype(np.int64).reshape(-1)


def accumulating(
    making: Making, weight: Array, zeros: Ints64, data: tuple["np.dtype[Any]", int], pairs: int
) -> Accumulate:
    """What accumulates levels against a constant ``weight``, (K, N), less ``zeros``.

    Args:
        making: of the node.
        weight: levels.
        zeros: (N,) or (1,).
        data: dtype and zero point of the levels.
        pairs: bits to which neighbouring products saturate, or 0.
    """
    levels, zero = data
    register = making.arithmetic.accumulator
    if register.by_steps(reach(weight, zeros, levels, 0)):
        centred = weight.astype(np.int64) - zeros

        def by_steps(x: Array) -> npt.NDArray[Any]:
            if x.shape[1] != len(centred):
                raise BatchError(f"{x.shape[1]} levels a row where the weight has {len(centred)}")
            return summed_by_steps(x.astype(np.int64) - zero, centred, register.bits, making.counters)

        return by_steps
    operands = Operands(np.ascontiguousarray(weight), zeros, zero, levels)
    return accumulator(operands, pairs, making.means, making.counters)


def reach(weight: Array, zeros: Ints64, levels: "np.dtype[Any]", pairs: int) -> int:
    """What no sum of ``levels`` less a zero point against ``weight``, (K, N), less ``zeros`` exceeds in magnitude.

    Pairs that saturate take up to 2^``pairs`` each from an exact sum.
    """
    ends = np.iinfo(levels)
    sizes = np.abs(weight.astype(np.int64) - zeros).sum(axis=0)
    lost = (len(weight) // 2) << pairs if pairs else 0
    return int(sizes.max(initial=0)) * (int(ends.max) - int(ends.min)) + lost


def finishing(
    making: Making, scales: tuple[QParams, Array, QParams], bias: Array | None, *, columns: int, largest: int
) -> Finish:
    """What makes levels of sums.

    Args:
        making: of the node.
        scales: the grid of the data, the scale or scales of the weight, the grid of the result.
        bias: a number or one a column, int32 at s_x · s_w.
        columns: N.
        largest: what no exact sum exceeds in magnitude.
    """
    x, weight, y = scales
    each = weight.astype(np.float64)
    epilogue = Epilogue(
        scales=(x.scale, each.reshape(-1) if each.size > 1 else each.reshape(()), y.scale),
        output=y,
        bias=None if bias is None else bias.astype(np.int64).reshape(-1),
        limits=making.arithmetic.limits(y),
        columns=columns,
        largest=largest,
    )
    return finish(epilogue, making.arithmetic, making.counters, compiled=making.means.compiled)


def in_register(making: Making, sums: npt.NDArray[Any], largest: int) -> npt.NDArray[np.int32]:
    """``sums`` as an int32 of this machine: a register of its width, or of 32 bits where that is wider."""
    register = making.arithmetic.accumulator
    register = replace(register, bits=min(register.bits, _REGISTER))
    if largest < 1 << (register.bits - 1):
        return np.asarray(sums, np.int32)
    total = sums.astype(np.int64)
    kept = held(total, register)
    making.counters.overflowed += int(np.count_nonzero(kept != total))
    return kept.astype(np.int32)
