"""Windows of a convolution or a pool, and the shape and order of the sums."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
from numpy.lib.stride_tricks import as_strided

from qbench.graph import OF_REALS, int_attribute, ints_attribute, op_spec, word_attribute
from qbench.interpreter.arrays import Array, BatchError
from qbench.numerics import Onward, SumShape

# Windows of a convolution or a pool: padding, strides, dilations, and the rows that a product sums
# over.
#
#     rows[(n, oy, ox), (ky, kx, c)] = x[n, c, oy · stride_y + ky · dilation_y − pad_top, …]
#
# Any number of spatial axes. Channels lie last, so that a 1 × 1 window of unit stride is a view.


@dataclass(frozen=True, slots=True)
class Windows:
    """Kernel sizes, strides and dilations of every spatial axis, and either fixed pads or a
    rule for them.
    """

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...] | None
    upper: bool = True
    ceil: bool = False

    @classmethod
    def of(cls, node: ir.Node, sizes: tuple[int, ...]) -> "Windows":
        """Those of a Conv or a pool with windows of ``sizes``."""
        rank = len(sizes)
        word = word_attribute(node, "auto_pad", "NOTSET")
        unpadded = (0,) * (2 * rank)
        pads: tuple[int, ...] | None = None
        if word == "NOTSET":
            pads = ints_attribute(node, "pads", unpadded)
        elif word == "VALID":
            pads = unpadded
        strides = ints_attribute(node, "strides", (1,) * rank)
        dilations = ints_attribute(node, "dilations", (1,) * rank)
        ceil = bool(int_attribute(node, "ceil_mode", 0))
        return cls(sizes, strides, dilations, pads, word != "SAME_LOWER", ceil)

    def spans(self) -> tuple[int, ...]:
        """What a window covers along every axis."""
        return tuple(
            (size - 1) * gap + 1 for size, gap in zip(self.sizes, self.dilations, strict=True)
        )

    def pads_for(self, spatial: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
        """(before, after) along every axis, for an input of these sizes."""
        rank = len(self.sizes)
        if self.pads is not None:
            return tuple((self.pads[axis], self.pads[axis + rank]) for axis in range(rank))
        found = []
        for size, span, stride in zip(spatial, self.spans(), self.strides, strict=True):
            total = max((math.ceil(size / stride) - 1) * stride + span - size, 0)
            small, large = total // 2, total - total // 2
            found.append((small, large) if self.upper else (large, small))
        return tuple(found)

    def outputs_for(self, spatial: tuple[int, ...]) -> tuple[int, ...]:
        """How many windows there are along every axis.

        Raises:
            BatchError: there is none.
        """
        pads, counts = self.pads_for(spatial), []
        for size, (before, after), span, stride in zip(
            spatial, pads, self.spans(), self.strides, strict=True
        ):
            free = size + before + after - span
            count = (math.ceil(free / stride) if self.ceil else free // stride) + 1
            # A window that would begin in the padding behind the input is none.
            counts.append(
                count - 1 if self.ceil and (count - 1) * stride >= size + before else count
            )
        if min(counts, default=1) < 1:
            raise BatchError(f"no window of {self.spans()} in {spatial} with its padding")
        return tuple(counts)

    @property
    def trivial(self) -> bool:
        """Whether every window is one element and all elements have one."""
        ones = all(
            size == stride == 1 for size, stride in zip(self.sizes, self.strides, strict=True)
        )
        return ones and self.pads is not None and not any(self.pads)

    def padded(self, x: Array, fill: float) -> Array:
        """``x``, (N, …, C) with channels last, with ``fill`` around it, as far as windows reach."""
        spatial = x.shape[1:-1]
        pads, counts = self.pads_for(spatial), self.outputs_for(spatial)
        reach = [
            max(after, (count - 1) * stride + span - size - before)
            for size, (before, after), count, stride, span in zip(
                spatial, pads, counts, self.strides, self.spans(), strict=True
            )
        ]
        widths = [
            (0, 0),
            *((before, after) for (before, _), after in zip(pads, reach, strict=True)),
            (0, 0),
        ]
        if not any(side for pair in widths for side in pair):
            return x
        shape = tuple(
            size + before + after for size, (before, after) in zip(x.shape, widths, strict=True)
        )
        whole = np.full(shape, fill, x.dtype)
        whole[
            tuple(
                slice(before, before + size)
                for size, (before, _) in zip(x.shape, widths, strict=True)
            )
        ] = x
        return whole

    def tap(self, padded: Array, offset: tuple[int, ...], counts: tuple[int, ...]) -> Array:
        """What element ``offset`` of every window sees: a view (N, counts…, C)."""
        cut = [slice(None)]
        for place, count, stride, gap in zip(
            offset, counts, self.strides, self.dilations, strict=True
        ):
            cut.append(slice(place * gap, place * gap + (count - 1) * stride + 1, stride))
        return padded[tuple(cut)]

    def offsets(self) -> list[tuple[int, ...]]:
        """The elements of a window, last axis fastest."""
        return [tuple(int(i) for i in offset) for offset in np.ndindex(*self.sizes)]

    def rows(self, x: Array, fill: int) -> tuple[Array, tuple[int, ...]]:
        """(N · windows, elements · C) and the numbers of windows; ``x`` is (N, …, C)."""
        if self.trivial:
            return x.reshape(-1, x.shape[-1]), x.shape[1:-1]
        counts, padded = self.outputs_for(x.shape[1:-1]), self.padded(x, fill)
        if padded.strides[-1] != padded.itemsize:
            padded = np.ascontiguousarray(padded)
        first, *along, channel = padded.strides
        steps = (step * stride for step, stride in zip(along, self.strides, strict=True))
        gaps = (step * gap for step, gap in zip(along, self.dilations, strict=True))
        shape = (len(x), *counts, *self.sizes, x.shape[-1])
        seen = as_strided(padded, shape, (first, *steps, *gaps, channel), writeable=False)
        # One copy, of runs as long as the last axis of a window lets them be.
        return seen.reshape(-1, math.prod(self.sizes) * x.shape[-1]), counts


def channels_last(x: Array) -> Array:
    """(N, C, …) → (N, …, C), a view."""
    return np.moveaxis(x, 1, -1)


def channels_first(x: Array) -> Array:
    """(N, …, C) → (N, C, …), a view."""
    return np.moveaxis(x, -1, 1)


# The shape of a convolution's sums, as engines look at it when they choose a kernel.
#
# depthwise        one filter a channel
# fast_depthwise   8 | channels, one or two filters each; square windows of 3, 5 or 7 (in space
#                  their depth likewise), padded by half on every side, strides of 1 or 2, no
#                  dilation (FBGEMM, takeDepthWiseFastPath)
# channels         of one tap, where there is one group
# pointwise        one group, windows of one tap, no padding; strides alone that divide one or two
#                  sizes of the data (oneDNN, rtus_prepare of jit_uni_1x1_conv_utils.hpp)
# clipped          data are codes behind a Clip: OpenVINO, which keeps such codes signed
# transposed       a transposed convolution: OpenVINO, which runs it in floats on AVX2


def sum_shape(node: ir.Node, weight: tuple[int, ...]) -> SumShape:
    """That of a Conv, quantized or not, with a weight of shape (filters, channels a group, …)."""
    groups, windows = int_attribute(node, "group", 1), Windows.of(node, weight[2:])
    return SumShape(
        depthwise=weight[:2] == (groups, 1),
        fast_depthwise=weight[1] == 1
        and weight[0] in (groups, 2 * groups)
        and _fast(windows, groups),
        channels=weight[1] if groups == 1 else 0,
        taps=math.prod(weight[2:]),
        pointwise=groups == 1 and _pointwise(windows, node.inputs[0]),
        clipped=behind_clip(node),
    )


def behind_clip(node: ir.Node) -> bool:
    """Whether the data of ``node`` come from a Clip that is written on codes, moved or not."""
    data = node.inputs[0]
    while data is not None and (producer := data.producer()) is not None:
        if _clips_codes(producer):
            return True
        if not op_spec(producer).is_mover:
            return False
        data = producer.inputs[0]
    return False


def onward(node: ir.Node) -> Onward:
    """Where the codes of ``node`` go; limits of reals, which are in front of the quantizer, are
    part of ``node``.
    """
    (result,) = node.outputs[:1]
    readers = [use.node for use in result.uses()]
    if len(readers) == 1 and OF_REALS in readers[0].metadata_props:
        return onward(readers[0])
    if any(_clips_codes(reader) for reader in readers):
        return Onward.CLIP
    if (
        not readers
        or result.is_graph_output()
        or any(reader.op_type == "DequantizeLinear" for reader in readers)
    ):
        return Onward.REALS
    return Onward.CODES


def _clips_codes(node: ir.Node) -> bool:
    return node.op_type == "Clip" and OF_REALS not in node.metadata_props


def _fast(windows: Windows, groups: int) -> bool:
    sizes = windows.sizes
    return (
        groups % 8 == 0
        and len(sizes) > 1
        and sizes[-1] == sizes[-2]
        and all(size in (3, 5, 7) for size in sizes)
        and all(stride in (1, 2) for stride in windows.strides)
        and _halved(windows)
    )


def _pointwise(windows: Windows, data: ir.Value | None) -> bool:
    """A size that is not known until the batch comes is taken for a multiple of its stride."""
    if math.prod(windows.sizes) > 1 or any(windows.pads or ()):
        return False
    if max(windows.strides) == 1:
        return True
    known = () if data is None or data.shape is None else tuple(data.shape)[2:]
    sizes = zip(known, windows.strides, strict=False)
    return len(windows.sizes) <= _REDUCED and all(
        size % stride == 0 for size, stride in sizes if isinstance(size, int)
    )


_REDUCED = 2
"""Dimensions of data of which oneDNN takes what strides leave."""


def _halved(windows: Windows) -> bool:
    """Whether windows are undilated and padded by half of their size on every side."""
    halves = tuple(size // 2 for size in windows.sizes)
    alike = all(stride == 1 for stride in windows.strides)  # SAME pads so too
    pads = halves * 2 if windows.pads is None and alike else windows.pads
    return pads == halves * 2 and all(gap == 1 for gap in windows.dilations)


# How an arithmetic sums a product by constant weights: which operand is on the left, and in what
# order.
#
#     acc[n] = Σ_k left[k] · right[k]
#     pairs are k = 0 and 1, 2 and 3, …, and saturate where left is unsigned
#
# Convolutions run along the window, rows first, channels fastest; matrix products along K; data are
# on the left. A ConvInteger is ONNX Runtime's own operator, and has the weights on the left and
# channels slowest (1.31 on AVX2); it has no kernel of its own for one filter a channel.

_UNSIGNED, _SIGNED = "uint8", "int8"


@dataclass(frozen=True, slots=True)
class Summing:
    """The sums of one node.

    Args:
        shape: as engines look at it when they choose a kernel.
        weights_left: whether the weights are the left operand.
        convolves: whether weights are (filters, channels a group, …), or else (K, N).
        transposed: whether they are (N, K).
    """

    shape: SumShape
    weights_left: bool = False
    convolves: bool = False
    transposed: bool = False

    def columns(self, weight: Array) -> Array:
        """``weight`` as (K, N) in the order of the sums."""
        if not self.convolves:
            return weight.T if self.transposed else weight
        rows = weight if self.weights_left else np.moveaxis(weight, 1, -1)
        return rows.reshape(len(weight), -1).T

    def in_pairs(self, codes: str, weights: str, *, raised: bool = False) -> bool:
        """Whether products of data and weights of these types are summed in pairs where an
        arithmetic has such sums.

        ``raised``: signed data become unsigned before that.
        """
        left, right = (weights, codes) if self.weights_left else (codes, weights)
        return right == _SIGNED and (
            left == _UNSIGNED or (raised and left == _SIGNED and not self.weights_left)
        )


def with_gaps(rows: Array, channels: int, fill: npt.ArrayLike) -> Array:
    """``rows``, (K, N), with one of ``fill`` (a number, or one per column) behind every
    ``channels`` of them.
    """
    taps = rows.reshape(-1, channels, rows.shape[1])
    gaps = np.broadcast_to(np.asarray(fill, rows.dtype), (len(taps), 1, rows.shape[1]))
    return np.concatenate([taps, gaps], axis=1).reshape(-1, rows.shape[1])


def summing(node: ir.Node, weight: tuple[int, ...]) -> Summing:
    """That of a product of integers with a weight of this shape."""
    if node.op_type == "ConvInteger":
        return Summing(SumShape(), weights_left=True, convolves=True)
    if node.op_type.endswith("Conv"):
        return Summing(sum_shape(node, weight), convolves=True)
    shape = SumShape(transposed=node.op_type.endswith("ConvTranspose"))
    return Summing(
        shape, transposed=node.op_type == "QGemm" and bool(int_attribute(node, "transB", 0))
    )
