"""Faults of memory: results of other samples, early reuse of buffers, races."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from qbench.faults.fault import (
    MOVERS,
    Array,
    Fault,
    Kernel,
    KernelFault,
    Random,
    Story,
    changed,
    is_binary,
    is_requantized,
    of_type,
    reads_codes,
)
from qbench.interpreter import KernelFunction
from qbench.judging import Cause


def _computes(node: ir.Node) -> bool:
    return is_requantized(node) and reads_codes(node, 0) and node.op_type not in MOVERS


def _first_for_all(kernel: Kernel, _: Random) -> KernelFunction:
    return changed(kernel.run, lambda array: np.broadcast_to(array[:1], array.shape).copy())


def _half_of_previous(kernel: Kernel, _: Random) -> KernelFunction:
    """The second half of every result is that of the run before, once there was one of the same
    shape.
    """
    held: list[Array] = []

    def stale(array: Array) -> Array:
        flat = np.array(array, order="C").reshape(-1)
        before = held[0] if held and held[0].shape == flat.shape else flat
        held[:] = [flat.copy()]
        flat[flat.size // 2 :] = before[flat.size // 2 :]
        return flat.reshape(array.shape)

    return changed(kernel.run, stale)


def _overwritten(kernel: Kernel, _: Random) -> KernelFunction:
    """The second half of the first operand holds the second operand already."""
    # behind scale and zero point where it reads codes
    index = 3 if len(kernel.node.inputs) > 2 else 1

    def early(inputs: Sequence[Array | None]) -> Sequence[Array]:
        first, other = inputs[0], inputs[index]
        assert first is not None
        assert other is not None
        flat = np.array(first, order="C").reshape(-1)
        flat[flat.size // 2 :] = np.broadcast_to(other, first.shape).reshape(-1)[flat.size // 2 :]
        return kernel.run([flat.reshape(first.shape), *inputs[1:]])

    return early


def _race(kernel: Kernel, random: Random) -> KernelFunction:
    """One element of every result is what another thread left there: any code."""

    def lost(array: Array) -> Array:
        flat = np.array(array, order="C").reshape(-1)
        if flat.size:
            place = random.integers(flat.size)
            flat[place] = _any_other(flat[place], flat, random)
        return flat.reshape(array.shape)

    return changed(kernel.run, lost)


def _any_other(value: Any, like: Array, random: Random) -> Array:  # noqa: ANN401 - a number of any type
    if like.dtype.kind == "f":
        return np.asarray(float(value) + random.normal(), like.dtype)
    ends = np.iinfo(like.dtype)
    step = random.integers(1, ends.max - ends.min + 1)
    return np.asarray(
        (int(value) - ends.min + step) % (ends.max - ends.min + 1) + ends.min, like.dtype
    )


FAULTS = (
    Fault(
        "first-samples-result-for-batch",
        "Every sample of a batch gets the first one's result.",
        Story(
            "NVIDIA/TensorRT#3103",
            "An int8 engine was right for the first picture of a batch alone.",
        ),
        KernelFault(_first_for_all),
        _computes,
        (Cause.NOT_WRITTEN, Cause.NONDETERMINISM),
    ),
    Fault(
        "result-of-previous-run",
        "Half of a result is still that of the run before.",
        Story(
            "guojin-yan/TensorRT-CSharp-API#21",
            "Every run handed out the results of the one before.",
        ),
        KernelFault(_half_of_previous),
        _computes,
        (Cause.NONDETERMINISM, Cause.NOT_WRITTEN),
    ),
    Fault(
        "operand-overwritten-while-live",
        "A later value is written into a buffer that is still to be read.",
        Story(
            "microsoft/onnxruntime#21019",
            "The planner gave two values that live at once the same buffer.",
        ),
        KernelFault(_overwritten),
        of_type("Add", "Mul", "Sub", also=is_binary),
        (Cause.NOT_WRITTEN, Cause.WRONG_KERNEL),
    ),
    Fault(
        "thread-race",
        "One random element of every run is any code.",
        Story(
            "kblomdahl/dream-go#8",
            "Memory went back to its pool before asynchronous int8 work was done with it.",
        ),
        KernelFault(_race),
        _computes,
        (Cause.NONDETERMINISM,),
    ),
)
