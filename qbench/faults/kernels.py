"""Faults of kernels that stop early."""

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from qbench.faults.fault import (
    Array,
    Fault,
    Kernel,
    KernelFault,
    Random,
    Story,
    changed,
    has_weight,
    is_requantized,
    of_type,
    reads_codes,
    shape_of,
    window_of,
)
from qbench.interpreter import KernelFunction
from qbench.judging import Cause

_WIDTH = 8
"""Lanes of the vectors whose remainder is forgotten."""
_BLOCK = 16
"""Channels that a kernel writes at once."""


def _is_image(axis: int) -> Callable[[ir.Node], bool]:
    """Whether it is a convolution of images whose result is longer than one along ``axis``,
    where that is known.
    """

    def fits(node: ir.Node) -> bool:
        if not (has_weight(node) and is_requantized(node) and len(window_of(node)) == 2):
            return False
        sizes = shape_of(node.outputs[0])
        return len(sizes) == 4 and sizes[axis] != 1

    return of_type("Conv", also=fits)


def _has_last_block(node: ir.Node) -> bool:
    sizes = shape_of(node.outputs[0])
    return (
        has_weight(node)
        and is_requantized(node)
        and len(sizes) > 1
        and sizes[1] is not None
        and sizes[1] > 1
    )


def _has_remainder(node: ir.Node) -> bool:
    sizes = shape_of(node.outputs[0])[1:]
    return (
        is_requantized(node)
        and reads_codes(node, 0)
        and all(size is not None for size in sizes)
        and int(np.prod([size or 0 for size in sizes])) % _WIDTH > 0
    )


def _last(axis: int) -> Callable[[Kernel, Random], KernelFunction]:
    """Nothing is written in the last eighth along ``axis``, one at least."""

    def stop(array: Array) -> Array:
        length = array.shape[axis]
        index = [slice(None)] * array.ndim
        index[axis] = slice(length - max(1, length // 8), None)
        return _blank(array, tuple(index))

    return lambda kernel, _: changed(kernel.run, stop)


def _last_block(kernel: Kernel, _: Random) -> KernelFunction:
    def stop(array: Array) -> Array:
        written = (array.shape[1] - 1) // _BLOCK * _BLOCK or array.shape[1] // 2
        return _blank(array, (slice(None), slice(written, None)))

    return changed(kernel.run, stop)


def _remainder(kernel: Kernel, _: Random) -> KernelFunction:
    def stop(array: Array) -> Array:
        flat = np.array(array, order="C").reshape(len(array), -1)
        flat[:, flat.shape[1] - flat.shape[1] % _WIDTH :] = 0
        return flat.reshape(array.shape)

    return changed(kernel.run, stop)


def _blank(array: Array, index: tuple[slice, ...]) -> Array:
    copy = np.array(array)
    copy[index] = 0
    return copy


FAULTS = (
    Fault(
        "last-rows-skipped",
        "A convolution does not compute its last rows.",
        Story(
            "ARM-software/CMSIS-NN#233",
            "A convolution left a whole row unwritten where padding and stride differ.",
        ),
        KernelFault(_last(2)),
        _is_image(2),
        (Cause.NOT_WRITTEN,),
    ),
    Fault(
        "last-columns-skipped",
        "A convolution does not compute its last columns.",
        Story(
            "ARM-software/ComputeLibrary#78",
            "Windows of even width gave wrong numbers in the right border column.",
        ),
        KernelFault(_last(3)),
        _is_image(3),
        (Cause.NOT_WRITTEN,),
    ),
    Fault(
        "last-channel-block-not-written",
        "The last, incomplete block of channels is not written.",
        Story(
            "openxla/xla#49123", "An int8 convolution in groups got its last output channel wrong."
        ),
        KernelFault(_last_block),
        _has_last_block,
        (Cause.NOT_WRITTEN,),
    ),
    Fault(
        "remainder-not-written",
        "Elements behind the last full vector are not written.",
        Story(
            "ml-explore/mlx#3912",
            "Lengths that are no multiple of 32 corrupted what a quantized product gave.",
        ),
        KernelFault(_remainder),
        _has_remainder,
        (Cause.NOT_WRITTEN,),
    ),
)
