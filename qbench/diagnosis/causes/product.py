"""The convolution or matrix product of a unit: its weights, bias and scales, and what one unit of its sums is in steps.

t = Σ (x − z_x)(w − z_w) · u + b,    u = s_x · s_w / s_y,    b in steps
"""

from dataclasses import dataclass

import numpy as np

from qbench.diagnosis.causes.scene import Floats, Scene


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Product:
    """One product, and nothing but a Relu or Clip behind it.

    Args:
        weight: its name among the operands.
        values: the real weights. scales: of the weights, one a channel or one. zero_point: of them, likewise.
        unit: u, which broadcasts against the levels. bias: in steps, likewise; None: it has none.
        x: the name of the operand in front. x_scale, x_zero: its grid.
    """

    weight: str
    values: Floats
    scales: Floats
    zero_point: Floats
    unit: Floats
    bias: Floats | None
    x: str
    x_scale: float
    x_zero: int

    @classmethod
    def of(cls, scene: Scene) -> "Product | None":
        """None where there is no product by constant weights, or an operator between it and the grid."""
        inner = scene.interior
        if inner is None or not scene.is_product or inner.node.outputs[0].name != inner.output:
            return None
        x, weight = inner.operand(0), inner.operand(1)
        if x is None or weight is None or x.grid is None or weight.grid is None or weight.levels is None:
            return None
        if np.size(x.grid.scale) != 1 or weight.grid.block_size:
            return None
        scales = np.asarray(weight.grid.scale, np.float64).reshape(-1)
        if scales.size not in (1, scene.found.shape[scene.axis]):
            return None
        bias = inner.constant(2)
        return cls(
            weight=weight.name,
            values=scene.operands[weight.name],
            scales=scales,
            zero_point=np.asarray(weight.grid.zero_point, np.float64).reshape(-1),
            unit=scene.along(float(x.grid.scale) * scales / inner.scale),
            bias=None if bias is None else scene.along(bias.astype(np.float64) / inner.scale),
            x=x.name,
            x_scale=float(x.grid.scale),
            x_zero=int(x.grid.zero_point),
        )
