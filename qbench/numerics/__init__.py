"""Numbers, and arrays of them: integer grids, their parameters, quantizing, its gradients, and how machines count."""

from qbench.numerics.accumulation import Accumulator, Overflow, PairsIn, SumShape
from qbench.numerics.addition import add_quantized
from qbench.numerics.affine import ScaleKind, Symmetry, choose_qparams, dequantize, fake_quantize, quantize
from qbench.numerics.arithmetic import Arithmetic, Override
from qbench.numerics.averaging import averager
from qbench.numerics.division import divide_quantized
from qbench.numerics.float_scaling import FloatOrder, FloatSteps, float_steps
from qbench.numerics.gradient import FakeQuantizeGrad, fake_quantize_grad
from qbench.numerics.grid import clip_levels
from qbench.numerics.hard_swish import hard_swish_in_16_bits
from qbench.numerics.integer_scaling import shift_steps, short_steps
from qbench.numerics.interval import Interval
from qbench.numerics.kind import GridKind
from qbench.numerics.multiplier import Scales, exact_multipliers, fixed_multiplier, real_multiplier, short_multiplier
from qbench.numerics.multiply_add import fused_multiply_add, separate_multiply_add
from qbench.numerics.named import catalogue, get_arithmetic, list_arithmetics, load_arithmetic
from qbench.numerics.qparams import QParams, parameter_shape
from qbench.numerics.qtype import QType
from qbench.numerics.rational import rational_sigmoid, rational_tanh
from qbench.numerics.register import held
from qbench.numerics.requantization import requantize, scaler
from qbench.numerics.rescaling import centred_rescaler, rescale_quantized, rescaler, scaling_of_levels
from qbench.numerics.rounding import Rounding
from qbench.numerics.scaling import MultiplierForm, Scaling, Stage, ZeroPoint
from qbench.numerics.schemes import (
    Adding,
    AddScheme,
    Averaging,
    Dequantizing,
    Functions,
    NotANumber,
    Quantizing,
    Softmax,
)
from qbench.numerics.softmax import softmax_of_levels
from qbench.numerics.subtraction import subtract_quantized

__all__ = [
    "Accumulator",
    "AddScheme",
    "Adding",
    "Arithmetic",
    "Averaging",
    "Dequantizing",
    "FakeQuantizeGrad",
    "FloatOrder",
    "FloatSteps",
    "Functions",
    "GridKind",
    "Interval",
    "MultiplierForm",
    "NotANumber",
    "Overflow",
    "Override",
    "PairsIn",
    "QParams",
    "QType",
    "Quantizing",
    "Rounding",
    "ScaleKind",
    "Scales",
    "Scaling",
    "Softmax",
    "Stage",
    "SumShape",
    "Symmetry",
    "ZeroPoint",
    "add_quantized",
    "averager",
    "catalogue",
    "centred_rescaler",
    "choose_qparams",
    "clip_levels",
    "dequantize",
    "divide_quantized",
    "exact_multipliers",
    "fake_quantize",
    "fake_quantize_grad",
    "fixed_multiplier",
    "float_steps",
    "fused_multiply_add",
    "get_arithmetic",
    "hard_swish_in_16_bits",
    "held",
    "list_arithmetics",
    "load_arithmetic",
    "parameter_shape",
    "quantize",
    "rational_sigmoid",
    "rational_tanh",
    "real_multiplier",
    "requantize",
    "rescale_quantized",
    "rescaler",
    "scaler",
    "scaling_of_levels",
    "separate_multiply_add",
    "shift_steps",
    "short_multiplier",
    "short_steps",
    "softmax_of_levels",
    "subtract_quantized",
]
