"""Block formats: an element type, the number of elements that share a scale, and its type."""

from __future__ import annotations  # help() shows npt.ArrayLike, and not the union behind it

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from qbench.errors import InputError
from qbench.numerics.affine import QParamsKind, ScaleKind, dequantize, quantize
from qbench.numerics.qparams import QParams
from qbench.numerics.qtype import QType

# Block formats, as vendors name them.
#
#     MXFP8, MXFP6, MXFP4   floats in blocks of 32, their scale a power of two (e8m0)
#     NVFP4                 e2m1 in blocks of 16, their scale e4m3fn times a float32 of the tensor
#     INT8, INT4, INT2      signed integers in blocks of 32, their scale a float32
#
# Sources: OCP Microscaling Formats (MX) 1.0, sections 5 and 6; NVIDIA, "Introducing NVFP4 for
# Efficient and Accurate Low-Precision Inference", 2025. The rules of scales are in ``affine``.


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockFormat:
    """A named block format.

    Args:
        name: as vendors have it, in lower case.
        qtype: the name of the type of the elements.
        block_size: elements that share a scale.
        scale_kind: ``e8m0``, ``e4m3`` or ``real``.
    """

    name: str
    qtype: str
    block_size: int
    scale_kind: ScaleKind = "e8m0"

    @property
    def kind(self) -> QParamsKind:
        """What is decided of its qparams before a range is known."""
        return QParamsKind(QType.parse(self.qtype), "symmetric", scale_kind=self.scale_kind)

    def choose(self, x: npt.ArrayLike, axis: int = -1) -> QParams:
        """The qparams of ``x`` (real, finite, at least one element) in blocks along ``axis``.

        Raises:
            InputError: an axis whose length the block size does not divide, or numbers that are
                not finite.
        """
        real = np.asarray(x, np.float32)
        if not real.ndim or not real.size or real.shape[axis] % self.block_size:
            raise InputError(
                f"Dividing an array into the blocks of {self.name}",
                found=f"shape {real.shape} along axis {axis}",
                expected=f"a multiple of {self.block_size} elements",
                remedy="Choose another axis or format, or pad the array.",
            )
        axis %= real.ndim
        parts = (*real.shape[:axis], -1, self.block_size, *real.shape[axis + 1 :])
        blocks = real.reshape(parts)
        ends = (np.min(blocks, axis=axis + 1), np.max(blocks, axis=axis + 1))
        return self.kind.choose(*ends, axis=axis, block_size=self.block_size)

    def encode(self, x: npt.ArrayLike, axis: int = -1) -> tuple[npt.NDArray[Any], QParams]:
        """The codes of ``x``, and the qparams that hold the scales of its blocks.

        Raises:
            InputError: what ``choose`` refuses.
        """
        qparams = self.choose(x, axis)
        return quantize(x, qparams), qparams

    def decode(self, codes: npt.ArrayLike, qparams: QParams) -> npt.NDArray[np.float32]:
        """The real values of ``codes``."""
        return dequantize(codes, qparams)


_ROWS = (
    BlockFormat(name="mxfp8e4m3", qtype="float8e4m3fn", block_size=32),
    BlockFormat(name="mxfp8e5m2", qtype="float8e5m2", block_size=32),
    BlockFormat(name="mxfp6e2m3", qtype="float6e2m3", block_size=32),
    BlockFormat(name="mxfp6e3m2", qtype="float6e3m2", block_size=32),
    BlockFormat(name="mxfp4", qtype="float4e2m1", block_size=32),
    BlockFormat(name="nvfp4", qtype="float4e2m1", block_size=16, scale_kind="e4m3"),
    BlockFormat(name="int8", qtype="int8", block_size=32, scale_kind="real"),
    BlockFormat(name="int4", qtype="int4", block_size=32, scale_kind="real"),
    BlockFormat(name="int2", qtype="int2", block_size=32, scale_kind="real"),
)
BLOCK_FORMATS: Mapping[str, BlockFormat] = MappingProxyType({one.name: one for one in _ROWS})
"""By their names."""
