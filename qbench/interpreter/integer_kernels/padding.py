"""Pad with a constant: negative pads, which numpy refuses, crop first; the rest is ONNX's own evaluator."""

from collections.abc import Sequence

import numpy as np

from qbench.interpreter.arrays import Array
from qbench.interpreter.batch_error import BatchError
from qbench.interpreter.float_kernels.reference import reference
from qbench.interpreter.kernel import Making, Run

_PADS_ARE_INPUTS = 11
"""The opset since which they are."""


def pad(making: Making) -> Run:
    """Pad, of levels or of reals, by any pads in the mode constant, by positive ones in the others.

    Raises:
        ValueError: constant pads that are negative in another mode.
    """
    attribute, known = making.node.attributes.get("mode"), making.constant(1)
    mode, whole = "constant" if attribute is None else attribute.as_string(), reference(making)
    if making.opset < _PADS_ARE_INPUTS:
        return whole
    if mode != "constant" and known is not None and (known < 0).any():
        raise ValueError(f"negative pads in the mode '{mode}'")

    def run(inputs: Sequence[Array | None]) -> Sequence[Array]:
        data, pads, *rest = inputs
        assert data is not None
        assert pads is not None
        if (pads >= 0).all():
            return whole(inputs)
        if mode != "constant":
            raise BatchError(f"negative pads in the mode '{mode}'")
        axes = rest[1] if len(rest) > 1 and rest[1] is not None else np.arange(data.ndim)
        cut = [slice(None)] * data.ndim
        for axis, before, behind in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True):
            cut[axis] = slice(max(-before, 0), max(data.shape[axis] + min(behind, 0), 0))
        return whole([data[tuple(cut)], np.maximum(pads, 0), *rest])

    return run
