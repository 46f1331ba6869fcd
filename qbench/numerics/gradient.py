"""Gradients of fake quantization by straight-through rules."""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from qbench.errors import unknown_name
from qbench.numerics.affine import FloatArray
from qbench.numerics.qparams import QParams

Rule = Literal["tqt", "fakequant"]


@dataclass(frozen=True, slots=True, eq=False)
class FakeQuantizeGrad:
    """Gradients of a loss: ``x`` in x's shape, the others in the shape of the parameters; float32."""

    x: FloatArray
    scale: FloatArray
    zero_point: FloatArray
    log2_threshold: FloatArray


def fake_quantize_grad(
    x: npt.ArrayLike, qparams: QParams, upstream: npt.ArrayLike | None = None, *, rule: Rule = "tqt"
) -> FakeQuantizeGrad:
    """What ``fake_quantize(x, qparams)`` passes back.

    Args:
        x: real array, taken as float32.
        qparams: the grid, per tensor or per channel.
        upstream: gradient of the loss by x̂, of x's shape; None: ones.
        rule: ``tqt`` (TQT and LSQ), or ``fakequant``.

    Raises:
        InputError: an unknown rule.
        ValueError: the parameters or ``upstream`` do not fit the shape, or the parameters are per block.
    """
    if rule not in get_args(Rule):
        raise unknown_name("Differentiating a fake quantization", "gradient rule", rule, get_args(Rule))
    if qparams.block_size is not None:
        raise ValueError("gradients are given per tensor and per channel, not per block")
    real = np.asarray(x, np.float32).astype(np.float64)
    back = np.ones_like(real) if upstream is None else np.asarray(upstream, np.float64)
    if back.shape != real.shape:
        raise ValueError(f"upstream has x's shape {real.shape}, not {back.shape}")
    scale, point = (part.astype(np.float64) for part in qparams.expanded(real.shape))
    # The division is the forward pass's own, in float32: the band that passes is the one that did not saturate.
    with np.errstate(over="ignore"):
        ratio = np.divide(real.astype(np.float32), scale.astype(np.float32), dtype=np.float32)
    level = np.rint(ratio) + point
    below, above = level < qparams.qmin, level > qparams.qmax
    inside = ~(below | above)
    rounding = np.rint(ratio) - real / scale if rule == "tqt" else 0.0
    by_scale = np.where(inside, rounding, np.where(below, qparams.qmin - point, qparams.qmax - point))
    by_point = np.where(inside, 0.0, -scale)
    scale_grad = _reduced(back * by_scale, qparams)
    return FakeQuantizeGrad(
        x=np.asarray(back * inside, np.float32),
        scale=scale_grad.astype(np.float32),
        zero_point=_reduced(back * by_point, qparams).astype(np.float32),
        log2_threshold=(scale_grad * qparams.scale.astype(np.float64) * np.log(2.0)).astype(np.float32),
    )


def _reduced(gradient: npt.NDArray[np.float64], qparams: QParams) -> npt.NDArray[np.float64]:
    """Summed over everything that shares a pair of parameters."""
    if qparams.axis is None:
        return np.asarray(gradient.sum())
    axis = qparams.axis % gradient.ndim
    return np.asarray(gradient.sum(axis=tuple(i for i in range(gradient.ndim) if i != axis)))
