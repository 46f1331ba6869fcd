"""What of a spec a backend, or ONNX, cannot do: a sentence for each limit.

A grid of a width that ONNX has no type for is stored in a wider one, so a backend takes it that takes either.
"""

import onnx_ir as ir

from qbench.graph import Capabilities, ZeroPoints
from qbench.numerics import QParams
from qbench.quantization.spec import Granularity, Spec
from qbench.quantization.written_types import activation_dtype, constant_dtype


def beyond_activations(spec: Spec, capabilities: Capabilities, *, moved: bool) -> str | None:
    """What of ``spec`` for values cannot be had; ``moved``: for an operator that only moves them."""
    if not _known(spec, activation_dtype(spec.kind.qtype), capabilities.activation_qtypes):
        return f"the backend has no {spec.qtype} activations"
    if spec.dynamic:
        return _beyond_dynamic(spec, capabilities)
    if spec.granularity is Granularity.BLOCK:
        return "activations have no blocks"
    if spec.granularity is Granularity.CHANNEL:
        if not capabilities.activation_per_channel:
            return "the backend has no activations per channel: theirs is one grid a tensor"
        if moved:
            return "a grid per channel does not follow values that are moved"
    return None


def beyond_weights(spec: Spec, capabilities: Capabilities) -> str | None:
    """What of ``spec`` for weights cannot be had."""
    if spec.granularity is Granularity.CHANNEL and not capabilities.weight_per_channel:
        return "the backend has no weights per channel"
    if spec.granularity is Granularity.BLOCK and not capabilities.weight_per_block:
        return "the backend has no weights per block"
    known = _known(spec, constant_dtype(spec.kind.qtype), capabilities.weight_qtypes)
    return None if known else f"the backend has no {spec.qtype} weights"


def beyond_zero_point(qparams: QParams, capabilities: Capabilities) -> str | None:
    """Why the backend cannot count with the zero points of ``qparams`` (of a value); None when it can."""
    if capabilities.zero_points is ZeroPoints.ANY:
        return None
    lowest = capabilities.zero_points is ZeroPoints.ZERO_OR_QMIN
    allowed = {0, qparams.qtype.qmin} if lowest else {0}
    beyond = sorted({int(point) for point in qparams.zero_point.reshape(-1)} - allowed)
    if not beyond:
        return None
    return f"its zero point is {beyond[0]}, and the backend counts with {capabilities.zero_points.value} only"


def _beyond_dynamic(spec: Spec, capabilities: Capabilities) -> str | None:
    if not capabilities.dynamic:
        return "the backend has no parameters that are computed at run time"
    if (spec.qtype, spec.symmetry, spec.scale_kind, spec.narrow_range) == ("uint8", "asymmetric", "real", False):
        return None
    return f"DynamicQuantizeLinear makes uint8 asymmetric, not {spec}"


def _known(spec: Spec, stored_as: ir.DataType, names: frozenset[str]) -> bool:
    return spec.qtype in names or stored_as.name.lower() in names
