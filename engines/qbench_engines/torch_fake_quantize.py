"""Fake quantization with gradients: thresholds by TQT, scales by LSQ, roundings by AdaRound.

    x̂ = s · (clip(round(x / s) + z, qmin, qmax) − z)

    inside     ∂x̂/∂x = 1     ∂x̂/∂s = round(x / s) − x / s     ∂x̂/∂z = 0
    below      ∂x̂/∂x = 0     ∂x̂/∂s = qmin − z                 ∂x̂/∂z = −s
    above      ∂x̂/∂x = 0     ∂x̂/∂s = qmax − z                 ∂x̂/∂z = −s

Sources: Jain et al. 2020, Trained Quantization Thresholds (section 3.3: s = 2^⌈log₂ t⌉ / 2^(b−1),
so ∂s / ∂ log₂ t = s · ln 2 straight through the ceiling); Esser et al. 2020, Learned Step Size
Quantization (section 2.1, and 2.2: the gradient of s is divided by √(N · Qmax)); Nagel et al. 2020,
Up or Down? Adaptive Rounding (equations 23 and 24). The forward pass is
``numerics.fake_quantize`` bit for bit, and the gradients those of ``numerics.fake_quantize_grad``.
"""

import math
from typing import Any

import numpy as np
import torch
from torch import nn

from qbench.graph import Moving
from qbench.numerics import QParams

Tensor = Any
Context = Any


class FakeQuantize(torch.autograd.Function):  # type: ignore[misc]
    """The function above: ``scale`` and ``point`` broadcast against ``x``, all float32."""

    @staticmethod
    def forward(
        context: Context, x: Tensor, scale: Tensor, point: Tensor, ends: tuple[int, int]
    ) -> Tensor:
        """Real numbers of x's shape."""
        ratio = x / scale
        codes = torch.round(ratio) + point
        kept = torch.clamp(codes, *ends)
        context.save_for_backward(ratio, scale, point)
        context.ends = ends
        return (kept - point) * scale

    @staticmethod
    def backward(context: Context, upstream: Tensor) -> tuple[Any, ...]:
        """Gradients of x, scale and point; those of both are summed over what shares them."""
        ratio, scale, point = context.saved_tensors
        low, high = context.ends
        rounded = torch.round(ratio)
        codes = rounded + point
        below, above = codes < low, codes > high
        inside = ~(below | above)
        by_scale = torch.where(
            inside, rounded - ratio, torch.where(below, low - point, high - point)
        )
        needs = context.needs_input_grad
        x_grad = upstream * inside if needs[0] else None
        scale_grad = (upstream * by_scale).sum_to_size(scale.shape) if needs[1] else None
        point_grad = None
        if needs[2]:
            point_grad = (upstream * torch.where(inside, 0.0, -scale)).sum_to_size(point.shape)
        return x_grad, scale_grad, point_grad, None


class PowerOfTwo(torch.autograd.Function):  # type: ignore[misc]
    """The scale 2^⌈x⌉; its gradient is that of 2^⌈x⌉ with the ceiling passed straight through."""

    @staticmethod
    def forward(context: Context, exponent: Tensor) -> Tensor:
        """Powers of two, exact."""
        scale = torch.ldexp(torch.ones_like(exponent), torch.ceil(exponent))
        context.save_for_backward(scale)
        return scale

    @staticmethod
    def backward(context: Context, upstream: Tensor) -> Tensor:
        """The gradient of log₂ of a threshold: s · ln 2 times that of s."""
        (scale,) = context.saved_tensors
        return upstream * scale * math.log(2.0)


class Rescaled(torch.autograd.Function):  # type: ignore[misc]
    """Its argument; the gradient is multiplied by ``factor``."""

    @staticmethod
    def forward(context: Context, x: Tensor, factor: float) -> Tensor:
        """``x`` itself."""
        context.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(context: Context, upstream: Tensor) -> tuple[Tensor, None]:
        """The gradient of LSQ's step size."""
        return upstream * context.factor, None


class Straight(torch.autograd.Function):  # type: ignore[misc]
    """``x`` rounded; the gradient passes."""

    @staticmethod
    def forward(context: Context, x: Tensor) -> Tensor:  # noqa: ARG004 - autograd's form
        """Whole numbers."""
        return torch.round(x)

    @staticmethod
    def backward(context: Context, upstream: Tensor) -> Tensor:  # noqa: ARG004 - autograd's form
        """As it comes."""
        return upstream


_HALF = 0.5
"""Where in its band of powers of two a threshold begins: the first band in either direction is as
far.
"""


class FakeQuantizer(nn.Module):  # type: ignore[misc]
    """One set of quantization parameters as a module: those of ``moving``, or fixed ones.

    Args:
        moving: what may change.
        lsq: the gradient of the scale is divided by √(N · Qmax).
        learned: whether it changes at all.
    """

    def __init__(self, moving: Moving, *, lsq: bool = False, learned: bool = True) -> None:
        super().__init__()
        qparams = moving.qparams
        self.pow2, self.lsq, self.qparams = moving.pow2, lsq, qparams
        self.is_on = True
        self.low, self.high, self.axis = qparams.qmin, qparams.qmax, qparams.axis
        scale = torch.from_numpy(np.array(qparams.scale, np.float32))
        point = torch.from_numpy(np.array(qparams.zero_point, np.float32))
        if moving.pow2:
            scale = torch.log2(scale) - _HALF
        self.raw = nn.Parameter(scale, requires_grad=learned)
        self.point = nn.Parameter(point, requires_grad=learned and moving.zero_point)

    def scale(self) -> Tensor:
        """The scale of now, positive: 0-d, or one per channel."""
        return PowerOfTwo.apply(self.raw) if self.pow2 else self.raw

    def zero_point(self) -> Tensor:
        """The zero point of now, a whole number in the type."""
        if not self.point.requires_grad:
            return self.point
        return Straight.apply(torch.clamp(self.point, self.low, self.high))

    def spread(self, parameter: Tensor, x: Tensor) -> Tensor:
        """``parameter`` in a form that broadcasts against ``x``."""
        if self.axis is None:
            return parameter
        axis = self.axis % x.dim()
        return parameter.reshape([-1 if one == axis else 1 for one in range(x.dim())])

    def forward(self, x: Tensor) -> Tensor:
        """``x`` quantized and dequantized; itself where it is off."""
        if not self.is_on:
            return x
        scale, point = self.scale(), self.zero_point()
        if self.pow2 and self.axis is None and not torch.is_grad_enabled():
            # one pass over x; the product by 1 / s, which it takes, is exact for powers of two
            ends = (self.low, self.high)
            return torch.fake_quantize_per_tensor_affine(x, float(scale), int(point), *ends)
        if self.lsq:
            count = x.numel() / max(scale.numel(), 1)
            reach = max(self.high - int(self.qparams.zero_point.min()), 1)
            scale = Rescaled.apply(scale, 1.0 / math.sqrt(count * reach))
        return FakeQuantize.apply(
            x, self.spread(scale, x), self.spread(point, x), (self.low, self.high)
        )

    def result(self) -> QParams:
        """The parameters of now."""
        with torch.no_grad():
            scale, point = self.scale().numpy(), self.zero_point().numpy()
        return QParams(
            scale,
            np.rint(point).astype(np.int64),
            self.qparams.qtype,
            axis=self.qparams.axis,
            narrow_range=self.qparams.narrow_range,
        )


_INT32 = (-(2**31), 2**31 - 1)


class BiasQuantizer(nn.Module):  # type: ignore[misc]
    """The parameters of a bias: int32 at the scale of data times that of weights.

    Args:
        data, weight: whose scales they are; not its own parameters.
        axis: of the bias, that output channels run along.
    """

    def __init__(self, data: FakeQuantizer, weight: FakeQuantizer, axis: int) -> None:
        super().__init__()
        self.parts = (data, weight)
        self.axis, self.is_on = axis, True

    def forward(self, x: Tensor) -> Tensor:
        """``x`` quantized and dequantized; itself where it is off. No scale learns from a bias."""
        if not self.is_on:
            return x
        data, weight = self.parts
        scale = (data.scale() * weight.scale()).detach()
        if scale.dim():
            scale = scale.reshape([-1 if one == self.axis else 1 for one in range(x.dim())])
        return FakeQuantize.apply(x, scale, torch.zeros(()), _INT32)


_ZETA, _GAMMA = 1.1, -0.1


class Rounding(nn.Module):  # type: ignore[misc]
    """AdaRound of one constant: each code is the floor, or one more where h is 1.

        ŵ = s · clip(⌊w / s⌋ + h(V) + z, qmin, qmax) − …     h(V) = clip(σ(V) · (ζ − γ) + γ, 0, 1)

    Args:
        quantizer: its parameters, which stay.
        weight: float32; V begins where h is what the floor leaves, so that ŵ = w inside.
    """

    def __init__(self, quantizer: FakeQuantizer, weight: Tensor) -> None:
        super().__init__()
        self.quantizer, self.is_hard = quantizer, False
        with torch.no_grad():
            scale, point = (
                quantizer.spread(one, weight) for one in (quantizer.scale(), quantizer.zero_point())
            )
            ratio = weight / scale
            self.floor, self.scale, self.zero = torch.floor(ratio), scale, point
            rest = torch.clamp(ratio - self.floor, 1e-4, 1 - 1e-4)
            start = torch.log((rest - _GAMMA) / (_ZETA - rest))
        self.v = nn.Parameter(start)

    def up(self) -> Tensor:
        """The function h: how far each code is above the floor; 0 or 1 once it is hard."""
        soft = torch.clamp(torch.sigmoid(self.v) * (_ZETA - _GAMMA) + _GAMMA, 0.0, 1.0)
        return (soft >= 0.5).to(soft.dtype) if self.is_hard else soft

    def forward(self) -> Tensor:
        """The dequantized weight of now."""
        codes = torch.clamp(
            self.floor + self.up() + self.zero, self.quantizer.low, self.quantizer.high
        )
        return (codes - self.zero) * self.scale

    def penalty(self, beta: float) -> Tensor:
        """The sum of 1 − |2h − 1|^β: 0 where every h is 0 or 1."""
        return (1.0 - (2.0 * self.up() - 1.0).abs().pow(beta)).sum()
