"""The grid of a bias: the product's, or one of its own, and the weights that make room for it.

derived    q_b = round_half_even(b / (s_x · s_w)), int32          |q_b| ≤ 2³⁰: the other half of int32 is the products'
own        q_b = round_half_even(b / s_b) on a grid of its own width, s_b the smallest scale that covers max |b|

    finer chosen    s_x·s_w · q_xw + s_b · q_b: the sum stands on the finer of both grids, where nothing more is lost
    product         s_b := max(s_b, s_x·s_w): a bias finer than the product is rounded to the product's grid
    bias            round(s_x·s_w · q_xw / s_b) + q_b: the product is rounded to the bias's grid, int32

Where a bias that is added on the product's grid would not fit there, the weight's scale is raised until it does: a
weight that coarse is small beside its bias. A channel of zeros takes a scale from the others, so that its bias keeps
its precision: the scale that zeros themselves ask for is none.

Sources: TVM relay quantization (AddRealize, and the patch that gave biases 16 bits), Glow's channelwise rules.
"""

import numpy as np
import numpy.typing as npt

from qbench.numerics import QParams, QType
from qbench.quantization.bias_spec import BiasKind, BiasSpec, Finer

LIMIT = 2.0**30
_SMALLEST_PRODUCT = 2.0**-126
_DEAD_LEVELS = 20

Floats = npt.NDArray[np.float64]
INT32 = QType.parse("int32")


def added_on_product(spec: BiasSpec) -> bool:
    """Whether the sum of product and bias may stand on the product's grid, where the bias has to fit."""
    return spec.kind is BiasKind.DERIVED or (spec.kind is BiasKind.OWN and spec.finer is not Finer.BIAS)


def without_dead_channels(weight: QParams, dead: npt.NDArray[np.bool_]) -> QParams:
    """``weight`` with the scale of channels of zeros (``dead``, one flag a scale) replaced by the median of the others.

    Where all are dead nothing is known; ``raised_for_bias`` then gives them a scale from the bias.
    """
    if weight.axis is None or not dead.any() or dead.all():
        return weight
    living = np.sort(weight.scale[~dead])
    scale = np.where(dead, living[len(living) // 2], weight.scale)
    return _with_scale(weight, scale.astype(np.float64))


def raised_for_bias(
    weight: QParams, input_scale: float, bias: Floats, *, pow2: bool, dead: bool
) -> tuple[QParams, int]:
    """``weight`` with scales large enough for ``bias``, and how many of them were raised.

    Args:
        weight: per tensor or per channel.
        input_scale: s_x.
        bias: one value a channel, or any number of them per tensor.
        pow2: keep scales powers of two.
        dead: all weights are zero, so that their scale is free: 2²⁰ levels for the largest bias.
    """
    reach = np.abs(bias) if weight.axis is not None else np.abs(bias).max(initial=0.0)
    if dead and np.any(reach):
        top = np.log2(np.max(reach) / input_scale)
        weight = _with_scale(weight, np.full(weight.scale.shape, 2.0 ** (np.ceil(top) - _DEAD_LEVELS)))
    needed = np.maximum(reach / LIMIT, _SMALLEST_PRODUCT) / input_scale
    short = weight.scale < needed
    if not short.any():
        return weight, 0
    if pow2:
        needed = 2.0 ** np.ceil(np.log2(needed))
    # Half a unit in the last place may be lost on the way to float32; LIMIT leaves room for it.
    return _with_scale(weight, np.where(short, needed, weight.scale)), int(short.sum())


def bias_qparams(weight: QParams, input_scale: float, axis: int) -> QParams:
    """The int32 grid of a product: the float32 product of both scales, of many along ``axis`` of its bias."""
    product = np.float32(input_scale) * weight.scale
    return QParams(product, 0, INT32, axis=None if weight.axis is None else axis)


def own_qparams(spec: BiasSpec, bias: Floats) -> QParams:
    """The grid of a bias's own, one a tensor, that covers all of ``bias``."""
    return spec.grid_kind.choose(bias.min(), bias.max())


def no_finer_than(own: QParams, product: QParams) -> QParams:
    """``own`` with its scale raised to that of ``product`` where it is finer; per channel where the product is."""
    return QParams(np.maximum(own.scale, product.scale), 0, own.qtype, axis=product.axis)


def _with_scale(weight: QParams, scale: Floats) -> QParams:
    largest = float(np.finfo(np.float32).max)
    return QParams(
        np.clip(scale, _SMALLEST_PRODUCT, largest),
        weight.zero_point,
        weight.qtype,
        axis=weight.axis,
        narrow_range=weight.narrow_range,
    )
