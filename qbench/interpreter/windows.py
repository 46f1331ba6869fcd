"""Windows of a convolution or a pool: padding, strides, dilations, and the rows that a product sums over.

    rows[(n, oy, ox), (ky, kx, c)] = x[n, c, oy · stride_y + ky · dilation_y − pad_top, …]

Any number of spatial axes. Channels lie last, so that a 1 × 1 window of unit stride is a view.
"""

import math
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from numpy.lib.stride_tricks import as_strided

from qbench.graph import int_attribute, ints_attribute, word_attribute
from qbench.interpreter.arrays import Array
from qbench.interpreter.batch_error import BatchError


@dataclass(frozen=True, slots=True)
class Windows:
    """Kernel sizes, strides and dilations of every spatial axis, and either fixed pads or a rule for them."""

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
        given = ints_attribute(node, "pads", (0,) * (2 * rank))
        pads = given if word == "NOTSET" else (0,) * (2 * rank) if word == "VALID" else None
        strides, dilations = (
            ints_attribute(node, "strides", (1,) * rank),
            ints_attribute(node, "dilations", (1,) * rank),
        )
        ceil = bool(int_attribute(node, "ceil_mode", 0))
        return cls(sizes, strides, dilations, pads, word != "SAME_LOWER", ceil)

    def spans(self) -> tuple[int, ...]:
        """What a window covers along every axis."""
        return tuple((size - 1) * gap + 1 for size, gap in zip(self.sizes, self.dilations, strict=True))

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
        for size, (before, after), span, stride in zip(spatial, pads, self.spans(), self.strides, strict=True):
            free = size + before + after - span
            count = (math.ceil(free / stride) if self.ceil else free // stride) + 1
            # A window that would begin in the padding behind the input is none.
            counts.append(count - 1 if self.ceil and (count - 1) * stride >= size + before else count)
        if min(counts, default=1) < 1:
            raise BatchError(f"no window of {self.spans()} in {spatial} with its padding")
        return tuple(counts)

    @property
    def trivial(self) -> bool:
        """Whether every window is one element and all elements have one."""
        ones = all(size == stride == 1 for size, stride in zip(self.sizes, self.strides, strict=True))
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
        widths = [(0, 0), *((before, after) for (before, _), after in zip(pads, reach, strict=True)), (0, 0)]
        if not any(side for pair in widths for side in pair):
            return x
        shape = tuple(size + before + after for size, (before, after) in zip(x.shape, widths, strict=True))
        whole = np.full(shape, fill, x.dtype)
        whole[tuple(slice(before, before + size) for size, (before, _) in zip(x.shape, widths, strict=True))] = x
        return whole

    def tap(self, padded: Array, offset: tuple[int, ...], counts: tuple[int, ...]) -> Array:
        """What element ``offset`` of every window sees: a view (N, counts…, C)."""
        cut = [slice(None)]
        for place, count, stride, gap in zip(offset, counts, self.strides, self.dilations, strict=True):
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
