"""The shape of a convolution's sums, as engines look at it when they choose a kernel.

depthwise        one filter a channel
fast_depthwise   8 | channels, one or two filters each; square windows of 3, 5 or 7 (in space their depth likewise),
                 padded by half on every side, strides of 1 or 2, no dilation          FBGEMM, takeDepthWiseFastPath
"""

import onnx_ir as ir

from qbench.graph import int_attribute
from qbench.interpreter.windows import Windows
from qbench.numerics import SumShape


def sum_shape(node: ir.Node, weight: tuple[int, ...]) -> SumShape:
    """That of a Conv, quantized or not, with a weight of shape (filters, channels a group, …)."""
    groups, windows = int_attribute(node, "group", 1), Windows.of(node, weight[2:])
    return SumShape(
        depthwise=weight[:2] == (groups, 1),
        fast_depthwise=weight[1] == 1 and weight[0] in (groups, 2 * groups) and _fast(windows, groups),
    )


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


def _halved(windows: Windows) -> bool:
    """Whether windows are undilated and padded by half of their size on every side."""
    halves = tuple(size // 2 for size in windows.sizes)
    alike = all(stride == 1 for stride in windows.strides)  # SAME pads so too
    pads = halves * 2 if windows.pads is None and alike else windows.pads
    return pads == halves * 2 and all(gap == 1 for gap in windows.dilations)
