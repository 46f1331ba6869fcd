"""Batch normalization outside training as what it is, one factor and one shift a channel.

BN(y) = s·y + t,    s = γ / √(σ² + ε),    t = β − μ·s
"""

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.graph import constant_value, float_attribute, int_attribute, is_constant

Doubles = npt.NDArray[np.float64]

_EPSILON = 1e-5


def is_constant_normalization(node: ir.Node) -> bool:
    """Whether ``node`` is a BatchNormalization with constant parameters, outside training."""
    if node.domain or node.op_type != "BatchNormalization" or int_attribute(node, "training_mode", 0):
        return False
    return len(node.outputs) == 1 and all(is_constant(value) for value in node.inputs[1:5])


def affine_of(norm: ir.Node) -> tuple[Doubles, Doubles]:
    """(s, t) of ``norm``, each of shape [channels], computed in float64."""
    gamma, beta, mean, variance = (np.asarray(constant_value(v), np.float64) for v in norm.inputs[1:5])
    scale = gamma / np.sqrt(variance + float_attribute(norm, "epsilon", _EPSILON))
    return scale, beta - mean * scale
