"""Transposed convolutions, which no engine counts in integers: an operator of our own.

    QLinearConvTranspose   x s_x z_x w s_w z_w s_y z_y [bias]             (qbench.integer), attributes of ConvTranspose

    acc[n, o, i · stride + k · dilation − pad] += Σ_c (x[n, c, i] − z_x) (w[c, o, k] − z_w)

Each element is multiplied by every tap of the window, channels summed (pairs of neighbours are pairs of channels), and
the products are added where they fall. Weights, (C_in, C_out / groups, …), have one scale or one an output channel.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from qbench.graph import int_attribute, ints_attribute, word_attribute
from qbench.interpreter.arrays import Array
from qbench.interpreter.batch_error import BatchError
from qbench.interpreter.integer_kernels.sums import accumulating, finishing, optional, reach, zero_points
from qbench.interpreter.kernel import Making, Run
from qbench.interpreter.windows import channels_first, channels_last
from qbench.numerics import SumShape


@dataclass(frozen=True, slots=True)
class Spread:
    """Where products of a transposed convolution fall; the rules for its sizes are those of ONNX's ConvTranspose-11."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    added: tuple[int, ...]
    shape: tuple[int, ...] | None
    mode: str

    @classmethod
    def of(cls, node: ir.Node, sizes: tuple[int, ...]) -> "Spread":
        """Of a node with windows of ``sizes``."""
        rank = len(sizes)
        ones, zeros = (1,) * rank, (0,) * rank
        return cls(
            sizes=sizes,
            strides=ints_attribute(node, "strides", ones),
            dilations=ints_attribute(node, "dilations", ones),
            pads=ints_attribute(node, "pads", zeros * 2),
            added=ints_attribute(node, "output_padding", zeros),
            shape=ints_attribute(node, "output_shape") or None,
            mode=word_attribute(node, "auto_pad", "NOTSET"),
        )

    def full(self, spatial: tuple[int, ...]) -> tuple[int, ...]:
        """How far products of an input of these sizes reach along every axis."""
        spans = [(size - 1) * gap + 1 for size, gap in zip(self.sizes, self.dilations, strict=True)]
        return tuple((count - 1) * step + span for count, step, span in zip(spatial, self.strides, spans, strict=True))

    def cut(self, spatial: tuple[int, ...]) -> tuple[slice, ...]:
        """What of that, and of the padding behind it, is the output."""
        rank, cuts = len(spatial), []
        for axis, (length, more) in enumerate(zip(self.full(spatial), self.added, strict=True)):
            before, after = self.pads[axis], self.pads[axis + rank]
            size = length + more - before - after
            if self.mode == "VALID" and self.shape is None:
                before, size = 0, length + more
            elif self.mode.startswith("SAME") or self.shape is not None:
                size = spatial[axis] * self.strides[axis] if self.shape is None else self.shape[axis]
                total = max(length + more - size, 0)
                before = total // 2 if self.mode == "SAME_UPPER" else total - total // 2
            cuts.append(slice(before, before + size))
        return tuple(cuts)


def conv_transpose(making: Making) -> Run:
    """QLinearConvTranspose with any groups."""
    weight, x = making.needed(3), making.grid(1, 2)
    levels, zero = x.qtype.storage_dtype, int(x.zero_point)
    groups, (depth, each), window = int_attribute(making.node, "group", 1), weight.shape[:2], tuple(weight.shape[2:])
    spread, taps = Spread.of(making.node, window), [tuple(int(i) for i in tap) for tap in np.ndindex(*window)]
    depth //= groups
    zeros, scales = (_by_channel(found, each, groups) for found in (zero_points(making, 5), making.scales(4)))
    pairs = making.arithmetic.accumulator.pairs(SumShape(depthwise=depth == 1 < groups))
    parts = [channels_last(weight[g * depth : (g + 1) * depth]).reshape(depth, -1, each) for g in range(groups)]
    points = np.broadcast_to(zeros, (groups * each,)).reshape(groups, each)
    whole = np.concatenate([part.reshape(-1, each) for part in parts], axis=1)
    largest = reach(whole, zeros, levels, pairs)
    if making.arithmetic.accumulator.by_steps(largest):
        raise ValueError(
            "a transposed convolution, whose taps meet in no one order, and sums that saturate at each step"
        )
    accumulates = [
        accumulating(making, part.reshape(depth, -1), np.tile(own, len(taps)), (levels, zero), pairs)
        for part, own in zip(parts, points, strict=True)
    ]
    grids = (x, scales, making.grid(6, 7))
    finished = finishing(making, grids, optional(making, 8), columns=groups * each, largest=largest)
    kind = np.int32 if largest < 1 << 31 else np.int64

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        assert inputs[0] is not None
        last = channels_last(inputs[0])
        if last.shape[-1] != len(weight):
            raise BatchError(f"{last.shape[-1]} channels where the filters have {len(weight)}")
        spatial = last.shape[1:-1]
        cuts = spread.cut(spatial)
        room = [max(full, cut.stop) for full, cut in zip(spread.full(spatial), cuts, strict=True)]
        sums = np.zeros((len(last), *room, groups * each), kind)
        for group, accumulate in enumerate(accumulates):
            rows = np.ascontiguousarray(last[..., group * depth : (group + 1) * depth]).reshape(-1, depth)
            products = accumulate(rows).reshape(*last.shape[:-1], len(taps), each)
            for index, tap in enumerate(taps):
                places = tuple(
                    slice(at * gap, at * gap + (count - 1) * step + 1, step)
                    for at, gap, count, step in zip(tap, spread.dilations, spatial, spread.strides, strict=True)
                )
                sums[(slice(None), *places, slice(group * each, (group + 1) * each))] += products[..., index, :]
        kept = sums[(slice(None), *cuts)]
        return (channels_first(finished(kept.reshape(-1, kept.shape[-1])).reshape(kept.shape)),)

    return run


def _by_channel(values: Array, each: int, groups: int) -> Array:
    """One value an output channel: those of the weight's axis 1 serve every group alike."""
    flat = values.reshape(-1)
    return np.tile(flat, groups) if groups > 1 and flat.size == each > 1 else flat
