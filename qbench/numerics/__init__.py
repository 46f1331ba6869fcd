"""Arrays of quantized numbers: qparams, quantizing, its gradients, and the arithmetics of
engines.
"""

from typing import TYPE_CHECKING

from qbench.lazy import open_on_use

if TYPE_CHECKING:
    from qbench.numerics.accumulator import Accumulator as Accumulator
    from qbench.numerics.accumulator import Overflow as Overflow
    from qbench.numerics.accumulator import PairsAlong as PairsAlong
    from qbench.numerics.accumulator import PairsIn as PairsIn
    from qbench.numerics.accumulator import SumShape as SumShape
    from qbench.numerics.accumulator import held as held
    from qbench.numerics.affine import SMALLEST_SCALE as SMALLEST_SCALE
    from qbench.numerics.affine import FakeQuantizeGrad as FakeQuantizeGrad
    from qbench.numerics.affine import QParamsKind as QParamsKind
    from qbench.numerics.affine import ScaleKind as ScaleKind
    from qbench.numerics.affine import Symmetry as Symmetry
    from qbench.numerics.affine import choose_qparams as choose_qparams
    from qbench.numerics.affine import clip_codes as clip_codes
    from qbench.numerics.affine import dequantize as dequantize
    from qbench.numerics.affine import fake_quantize as fake_quantize
    from qbench.numerics.affine import fake_quantize_grad as fake_quantize_grad
    from qbench.numerics.affine import quantize as quantize
    from qbench.numerics.arithmetic import Adding as Adding
    from qbench.numerics.arithmetic import AddScheme as AddScheme
    from qbench.numerics.arithmetic import Arithmetic as Arithmetic
    from qbench.numerics.arithmetic import Averaging as Averaging
    from qbench.numerics.arithmetic import BiasScheme as BiasScheme
    from qbench.numerics.arithmetic import Dequantizing as Dequantizing
    from qbench.numerics.arithmetic import Functions as Functions
    from qbench.numerics.arithmetic import MultiplierForm as MultiplierForm
    from qbench.numerics.arithmetic import NotANumber as NotANumber
    from qbench.numerics.arithmetic import Override as Override
    from qbench.numerics.arithmetic import Quantizing as Quantizing
    from qbench.numerics.arithmetic import Remainder as Remainder
    from qbench.numerics.arithmetic import Scaling as Scaling
    from qbench.numerics.arithmetic import Softmax as Softmax
    from qbench.numerics.arithmetic import Stage as Stage
    from qbench.numerics.arithmetic import ZeroPoint as ZeroPoint
    from qbench.numerics.arithmetic import catalogue as catalogue
    from qbench.numerics.arithmetic import get_arithmetic as get_arithmetic
    from qbench.numerics.arithmetic import list_arithmetics as list_arithmetics
    from qbench.numerics.arithmetic import load_arithmetic as load_arithmetic
    from qbench.numerics.block_format import BLOCK_FORMATS as BLOCK_FORMATS
    from qbench.numerics.block_format import BlockFormat as BlockFormat
    from qbench.numerics.elementwise import add_quantized as add_quantized
    from qbench.numerics.elementwise import divide_quantized as divide_quantized
    from qbench.numerics.elementwise import subtract_quantized as subtract_quantized
    from qbench.numerics.float_accumulator import NO_EXPONENT as NO_EXPONENT
    from qbench.numerics.float_accumulator import FloatSums as FloatSums
    from qbench.numerics.float_accumulator import Register as Register
    from qbench.numerics.float_accumulator import ScaledPart as ScaledPart
    from qbench.numerics.float_accumulator import exponents_of as exponents_of
    from qbench.numerics.float_accumulator import float_sums as float_sums
    from qbench.numerics.float_accumulator import rounded_sums as rounded_sums
    from qbench.numerics.float_format import FLOAT_FORMATS as FLOAT_FORMATS
    from qbench.numerics.float_format import FloatFormat as FloatFormat
    from qbench.numerics.functions import averager as averager
    from qbench.numerics.functions import hard_swish_in_16_bits as hard_swish_in_16_bits
    from qbench.numerics.functions import rational_sigmoid as rational_sigmoid
    from qbench.numerics.functions import rational_tanh as rational_tanh
    from qbench.numerics.functions import softmax_of_codes as softmax_of_codes
    from qbench.numerics.multiplier import FloatOrder as FloatOrder
    from qbench.numerics.multiplier import Onward as Onward
    from qbench.numerics.multiplier import Ranges as Ranges
    from qbench.numerics.multiplier import Scales as Scales
    from qbench.numerics.multiplier import exact_multipliers as exact_multipliers
    from qbench.numerics.multiplier import float_steps as float_steps
    from qbench.numerics.multiplier import range_factors as range_factors
    from qbench.numerics.multiplier import real_multiplier as real_multiplier
    from qbench.numerics.multiplier import shift_steps as shift_steps
    from qbench.numerics.multiplier import short_multiplier as short_multiplier
    from qbench.numerics.multiplier import short_steps as short_steps
    from qbench.numerics.own_bias import OwnBias as OwnBias
    from qbench.numerics.qparams import Interval as Interval
    from qbench.numerics.qparams import QParams as QParams
    from qbench.numerics.qparams import parameter_shape as parameter_shape
    from qbench.numerics.qtype import QType as QType
    from qbench.numerics.requantization import centred_rescaler as centred_rescaler
    from qbench.numerics.requantization import requantize as requantize
    from qbench.numerics.requantization import rescale_quantized as rescale_quantized
    from qbench.numerics.requantization import rescaler as rescaler
    from qbench.numerics.requantization import scaler as scaler
    from qbench.numerics.requantization import scaling_of_codes as scaling_of_codes
    from qbench.numerics.residual import residual_steps as residual_steps
    from qbench.numerics.rounding import Rounding as Rounding
    from qbench.numerics.rounding import fused_multiply_add as fused_multiply_add
    from qbench.numerics.rounding import separate_multiply_add as separate_multiply_add
else:
    __getattr__, __dir__, __all__ = open_on_use(__name__, __file__)
