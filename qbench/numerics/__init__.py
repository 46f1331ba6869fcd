"""Numbers, and arrays of them: integer grids, their parameters, quantizing and its gradients."""

from qbench.numerics.affine import ScaleKind, Symmetry, choose_qparams, dequantize, fake_quantize, quantize
from qbench.numerics.gradient import FakeQuantizeGrad, fake_quantize_grad
from qbench.numerics.grid import clip_levels
from qbench.numerics.interval import Interval
from qbench.numerics.qparams import QParams, parameter_shape
from qbench.numerics.qtype import QType

__all__ = [
    "FakeQuantizeGrad",
    "Interval",
    "QParams",
    "QType",
    "ScaleKind",
    "Symmetry",
    "choose_qparams",
    "clip_levels",
    "dequantize",
    "fake_quantize",
    "fake_quantize_grad",
    "parameter_shape",
    "quantize",
]
