"""The parameters of quantized values, r = scale · (q − zero_point), per tensor, per channel or
block; intervals.
"""

from __future__ import annotations  # help() shows npt.ArrayLike, and not the union behind it

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from qbench.numerics.float_format import FLOAT_FORMATS, FloatFormat
from qbench.numerics.qtype import QType, qtype_of

# The parameters of quantized values, r = scale · (q − zero_point), per tensor, per channel or per
# block.
#
# Granularity lies in the shape of ``scale``: 0-d per tensor; 1-d along ``axis`` per channel; with
# ``block_size`` B the shape of the tensor, its ``axis`` divided by B and rounded up (ONNX
# QuantizeLinear-21).
#
# Types of floats have no zero point: r = scale · number of the code. Scales of blocks may be
# numbers of a type of scales: powers of two (e8m0, OCP MX), or e4m3fn times a scale of the tensor
# (NVFP4).


@dataclass(frozen=True, slots=True, eq=False)
class QParams:
    """Scale (float32) and zero point (int64) of one shape, read-only, for codes of ``qtype``.

    Args:
        scale: positive and finite as float32; a number or an array.
        zero_point: between qmin and qmax, of floats 0; a number applies to every channel.
        qtype: the type of the codes, or its name.
        axis: of the tensor, that the parameters run along; None: one pair for the tensor.
        block_size: consecutive elements along ``axis`` that share a pair.
        narrow_range: leave out the lowest code, so that a signed type is symmetric (−127 … 127).
        scale_type: the type that stores the scales, ``float8e8m0`` or ``float8e4m3fn``, or its
            name; None: float32.
        tensor_scale: what the numbers of ``float8e4m3fn`` are multiplied by, float32; None: 1.

    Raises:
        ValueError: an invariant above does not hold.
    """

    scale: npt.NDArray[np.float32]
    zero_point: npt.NDArray[np.int64]
    qtype: QType
    axis: int | None = None
    block_size: int | None = None
    narrow_range: bool = False
    scale_type: FloatFormat | None = None
    tensor_scale: float | None = None

    def __init__(
        self,
        scale: npt.ArrayLike,
        zero_point: npt.ArrayLike,
        qtype: QType | str,
        *,
        axis: int | None = None,
        block_size: int | None = None,
        narrow_range: bool = False,
        scale_type: FloatFormat | str | None = None,
        tensor_scale: float | None = None,
    ) -> None:
        with np.errstate(over="ignore", under="ignore"):
            scales = np.array(scale, np.float32)
        points = np.array(zero_point)
        if points.dtype.kind not in "iu":
            raise ValueError(f"a zero point is an integer, not {points.dtype}")
        if points.ndim and points.shape != scales.shape:
            raise ValueError(
                f"scale and zero point have one shape, not {scales.shape} and {points.shape}"
            )
        points = np.array(np.broadcast_to(points.astype(np.int64), scales.shape))
        for name, value in (
            ("scale", scales),
            ("zero_point", points),
            ("qtype", qtype_of(qtype)),
            ("axis", axis),
            ("block_size", block_size),
            ("narrow_range", narrow_range),
            ("scale_type", _scale_type(scale_type)),
            ("tensor_scale", None if tensor_scale is None else float(np.float32(tensor_scale))),
        ):
            object.__setattr__(self, name, value)
        scales.setflags(write=False)
        points.setflags(write=False)
        self._check()

    def _check(self) -> None:
        if not (np.isfinite(self.scale).all() and (self.scale > 0).all()):
            raise ValueError("a scale is positive and finite as float32")
        if self.scale_type is not None or self.tensor_scale is not None:
            self._check_stored_scales()
        if self.qtype.floating is not None:
            if self.zero_point.any() or self.narrow_range:
                raise ValueError(f"{self.qtype} has neither zero points nor a narrow range")
        elif ((self.zero_point < self.qmin) | (self.zero_point > self.qmax)).any():
            raise ValueError(
                f"a zero point lies in {self.qmin} … {self.qmax}, not {self.zero_point}"
            )
        if self.axis is None:
            if self.scale.ndim or self.block_size is not None:
                raise ValueError("parameters per channel or per block need an axis")
        elif self.block_size is None and self.scale.ndim != 1:
            raise ValueError(f"parameters per channel are 1-d, not {self.scale.ndim}-d")
        elif self.block_size is not None:
            if self.block_size < 1:
                raise ValueError(f"a block has at least one element, not {self.block_size}")
            if not -self.scale.ndim <= self.axis < self.scale.ndim:
                raise ValueError(
                    f"axis {self.axis} is outside parameters of {self.scale.ndim} dimensions"
                )

    def _check_stored_scales(self) -> None:
        whole = 1.0 if self.tensor_scale is None else self.tensor_scale
        if self.scale_type is None or not (0 < whole < np.inf):
            raise ValueError(
                f"a scale of the tensor, {self.tensor_scale}, is positive and finite, and comes "
                "with a type of the other scales"
            )
        if not np.array_equal(
            self.scale_type.decode(self.scale_codes) * np.float32(whole), self.scale
        ):
            raise ValueError(f"a scale is no number of {self.scale_type.name}")

    @property
    def scale_codes(self) -> npt.NDArray[np.uint8]:
        """The codes of the scales in their type, which they have (``scale_type``)."""
        assert self.scale_type is not None
        whole = np.float32(1.0 if self.tensor_scale is None else self.tensor_scale)
        return self.scale_type.encode(self.scale / whole)

    @property
    def qmin(self) -> int:
        """The lowest code in use."""
        return self.qtype.qmin + int(self.narrow_range)

    @property
    def qmax(self) -> int:
        """The highest code in use."""
        return self.qtype.qmax

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, QParams):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[object, ...]:
        arrays = (self.scale.shape, self.scale.tobytes(), self.zero_point.tobytes())
        scales = (self.scale_type, self.tensor_scale)
        return (*arrays, self.qtype, self.axis, self.block_size, self.narrow_range, *scales)

    def expanded(
        self, shape: tuple[int, ...]
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        """Scale and zero point in a form that broadcasts against a tensor of ``shape``.

        Raises:
            ValueError: the parameters do not fit the shape.
        """
        if self.axis is None:
            return self.scale, self.zero_point
        if not -len(shape) <= self.axis < len(shape):
            raise ValueError(f"axis {self.axis} is outside a tensor of shape {shape}")
        axis = self.axis % len(shape)
        if self.block_size is None:
            if len(self.scale) != shape[axis]:
                raise ValueError(f"{len(self.scale)} channels do not fit axis {axis} of {shape}")
            spread = tuple(-1 if i == axis else 1 for i in range(len(shape)))
            return self.scale.reshape(spread), self.zero_point.reshape(spread)
        if self.scale.shape != parameter_shape(shape, axis, self.block_size):
            raise ValueError(
                f"parameters of shape {self.scale.shape} do not tile {shape} by blocks of "
                f"{self.block_size}"
            )
        keep = (slice(None),) * axis + (slice(shape[axis]),)
        scale = np.repeat(self.scale, self.block_size, axis)[keep]
        return scale, np.repeat(self.zero_point, self.block_size, axis)[keep]


def _scale_type(found: FloatFormat | str | None) -> FloatFormat | None:
    if not isinstance(found, str):
        return found
    if found not in FLOAT_FORMATS:
        raise ValueError(f"{found!r}, which is no type of scales")
    return FLOAT_FORMATS[found]


def parameter_shape(
    shape: tuple[int, ...], axis: int | None, block_size: int | None = None
) -> tuple[int, ...]:
    """The shape of the parameters of a tensor of ``shape`` at this granularity."""
    if axis is None:
        return ()
    if block_size is None:
        return (shape[axis],)
    axis %= len(shape)
    return (*shape[:axis], -(-shape[axis] // block_size), *shape[axis + 1 :])


# Real intervals [low, high]: what a range method gives and quantized values have to represent: one,
# or one per channel.

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Interval:
    """Ends of one interval (0-d) or of many (any shape), float64, read-only.

    Raises:
        ValueError: an end is not finite, ``low`` exceeds ``high``, or the shapes differ.
    """

    low: Floats
    high: Floats

    def __post_init__(self) -> None:
        low, high = np.array(self.low, np.float64), np.array(self.high, np.float64)
        if low.shape != high.shape:
            raise ValueError(
                f"the ends of an interval have one shape, not {low.shape} and {high.shape}"
            )
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            raise ValueError("the ends of an interval are finite")
        if (low > high).any():
            raise ValueError("an interval's low end does not exceed its high end")
        low.setflags(write=False)
        high.setflags(write=False)
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Interval):
            return NotImplemented
        return np.array_equal(self.low, other.low) and np.array_equal(self.high, other.high)

    def __hash__(self) -> int:
        return hash((self.low.tobytes(), self.high.tobytes()))

    def union(self, other: Interval) -> Interval:
        """The smallest interval that holds both."""
        return Interval(np.minimum(self.low, other.low), np.maximum(self.high, other.high))

    def mirrored(self) -> Interval:
        """The smallest interval [−a, a] that holds it."""
        ends = np.maximum(np.abs(self.low), np.abs(self.high))
        return Interval(-ends, ends)
