"""The right factor of a product of matrices in a declared accumulator, in parts of one scale each,
and what multiplies rows by it.
"""

from __future__ import annotations  # help() shows npt.ArrayLike, and not the union behind it

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from qbench.graph import constant_value
from qbench.interpreter.arrays import Array, BatchError
from qbench.interpreter.kernel import KernelContext, Means
from qbench.interpreter.summed_products import Reals64, SummedProduct
from qbench.numerics import FloatSums, QParams, exponents_of, float_sums, rounded_sums

# Rows X (M, K) by columns W (K, N), whose parts P of K have the scales s_P (N,):
#
#     y = float32(f_x · f_w · Σ_P s_P · Σ_(k in P) X[:, k] · W[k, :])
#
# with f_x and f_w the scales of the tensors, or of the columns. The parts are blocks of a weight,
# in the order in which they lie along K; where a convolution takes K along its window, one block of
# channels is a part for each place of the window.


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """A right factor.

    Args:
        numbers: (K, N), float64.
        parts: of K, in order, each with the scales (N,) of its sums; one without: none are scaled
            before they are added.
        factor: of the whole sums, float32, () or (N,).
    """

    numbers: Reals64
    parts: tuple[tuple[slice, Reals64 | None], ...]
    factor: npt.NDArray[np.float32]

    def some(self, part: slice) -> Columns:
        """Those of ``part``."""
        scaled = tuple((place, None if one is None else one[part]) for place, one in self.parts)
        factor = self.factor[part] if self.factor.ndim else self.factor
        return Columns(self.numbers[:, part], scaled, factor)


Multiplying = Callable[[Reals64, Columns, np.float32], npt.NDArray[np.float32]]
"""Rows (M, K) by columns, times the factor of the rows."""


def columns_of(numbers: Reals64, factor: np.float32) -> Columns:
    """Of a factor with one scale, ``factor``."""
    return Columns(numbers, ((slice(0, len(numbers)), None),), np.asarray(factor))


def columns_of_constant(product: SummedProduct, arrange: Callable[[Array], Array]) -> Columns:
    """Of the right factor, a constant; ``arrange`` makes (K, N) of its shape."""
    operand, scaled = product.right, product.scales_operands
    codes = constant_value(operand.value)
    assert codes is not None
    numbers = np.ascontiguousarray(arrange(operand.numbers(codes, scaled=scaled)))
    if scaled or not operand.has_parts:
        return columns_of(numbers, product.factor_of(operand))
    assert operand.qparams is not None
    own, of_tensor = _stored_scales(operand.qparams)
    places = _scale_places(operand.qparams, codes.shape)
    scales, places = arrange(own.reshape(-1)[places]), arrange(places)
    starts = np.flatnonzero(np.r_[True, (places[1:] != places[:-1]).any(axis=1)])
    if operand.qparams.block_size is None and len(starts) == 1:
        return replace(columns_of(numbers, np.float32(1)), factor=scales[0] * of_tensor)
    stops = np.append(starts[1:], len(numbers))
    parts = tuple(
        (slice(int(start), int(stop)), scales[start].astype(np.float64))
        for start, stop in zip(starts, stops, strict=True)
    )
    return Columns(numbers, parts, np.asarray(of_tensor))


def _stored_scales(qparams: QParams) -> tuple[npt.NDArray[np.float32], np.float32]:
    """The scales of blocks or channels as they are stored, and that of the tensor, which
    ``QParams.scale`` is multiplied by.
    """
    if qparams.tensor_scale is None:
        return qparams.scale, np.float32(1)
    assert qparams.scale_type is not None
    stored = qparams.scale_type.decode(qparams.scale_codes)
    return stored.astype(np.float32), np.float32(qparams.tensor_scale)


def _scale_places(qparams: QParams, shape: tuple[int, ...]) -> npt.NDArray[np.intp]:
    """The number of the scale of every element."""
    places = np.arange(qparams.scale.size).reshape(qparams.scale.shape)
    axis, size = qparams.axis, qparams.block_size
    assert axis is not None
    axis %= len(shape)
    if size is not None:
        places = np.repeat(places, size, axis)[(slice(None),) * axis + (slice(shape[axis]),)]
    else:
        places = places.reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return np.broadcast_to(places, shape)


def sums_by(rules: FloatSums, means: Means) -> Callable[[Reals64, Reals64], Reals64]:
    """``float_sums`` by the means that there are: compiled, or numpy."""
    if not means.compiled:
        return lambda left, right: float_sums(left, right, rules)
    from qbench.interpreter import compiled_floats

    numbers = (rules.significant, rules.least_exponent, rules.group, rules.kept_bits)
    ways = (rules.truncates, rules.joined)

    def sums(left: Reals64, right: Reals64) -> Reals64:
        rows, columns = np.ascontiguousarray(left), np.ascontiguousarray(right.T)
        found = np.empty((len(rows), len(columns)))
        exponents = (exponents_of(rows), exponents_of(columns))
        compiled_floats.float_sums(rows, columns, exponents, numbers, ways, rules.largest, found)
        return found

    return sums


def multiplier(rules: FloatSums, making: KernelContext) -> Multiplying:
    """What multiplies by ``rules`` and counts the infinities that sums came to."""
    sums = sums_by(rules, making.means)

    def multiply(left: Reals64, right: Columns, factor: np.float32) -> npt.NDArray[np.float32]:
        if left.shape[1] != len(right.numbers):
            raise BatchError(f"{left.shape[1]} values per row and {len(right.numbers)} per column")
        total = np.zeros((len(left), right.numbers.shape[1]))
        with np.errstate(over="ignore", invalid="ignore"):
            for part, scales in right.parts:
                found = sums(left[:, part], right.numbers[part])
                total = found if scales is None else rounded_sums(total, found * scales, rules)
            making.counters.overflowed += int(np.count_nonzero(np.isinf(total)))
            return np.asarray(total * (factor * right.factor), np.float32)

    return multiply
