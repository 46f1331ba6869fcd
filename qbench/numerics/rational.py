"""Sigmoid and tanh as quotients of polynomials in float32, which is how ONNX Runtime's kernels compute them.

    x' = clamp(x, ±bound)     p = x' · P(x'²)     q = Q(x'²)     tanh = p / q     sigmoid = max(p / q + ½, 0)

Both polynomials by Horner's rule, every step one multiply-add: fused where the processor has it. Source: ONNX Runtime
1.31, MLAS logistic and tanh; the coefficients are theirs (after Eigen), every result was compared with theirs.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from qbench.numerics.multiply_add import MultiplyAdd, Single, separate_multiply_add


@dataclass(frozen=True, slots=True)
class _Quotient:
    """Bound of the argument; coefficients, those of the highest power first."""

    bound: float
    upper: tuple[float, ...]
    lower: tuple[float, ...]


_SIGMOID = _Quotient(
    18.0,
    (4.37031012579801e-11, 1.15627324459942e-07, 6.08574864600143e-05, 8.51377133304701e-03, 2.48287947061529e-01),
    (
        *(6.10247389755681e-13, 5.76102136993427e-09, 6.29106785017040e-06),
        *(1.70198817374094e-03, 1.16817656904453e-01, 9.93151921023180e-01),
    ),
)
_TANH = _Quotient(
    9.0,
    (
        *(-2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08),
        *(1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03),
    ),
    (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03),
)


def rational_sigmoid(x: npt.ArrayLike, multiply_add: MultiplyAdd) -> Single:
    """Sigmoid of float32 ``x``, of its shape; by fused steps up to 1 + 2⁻²³, which only the other kernel cuts off."""
    value = _divided(_SIGMOID, np.asarray(x, np.float32), multiply_add) + np.float32(0.5)
    highest = np.float32(1 if multiply_add is separate_multiply_add else 2)
    return np.asarray(np.clip(value, np.float32(0), highest), np.float32)


def rational_tanh(x: npt.ArrayLike, multiply_add: MultiplyAdd) -> Single:
    """Hyperbolic tangent of float32 ``x``, of its shape."""
    return _divided(_TANH, np.asarray(x, np.float32), multiply_add)


def _divided(quotient: _Quotient, x: Single, multiply_add: MultiplyAdd) -> Single:
    held = np.clip(x, np.float32(-quotient.bound), np.float32(quotient.bound))
    square = held * held
    upper, lower = (_polynomial(square, parts, multiply_add) for parts in (quotient.upper, quotient.lower))
    return np.asarray(upper * held / lower, np.float32)


def _polynomial(x: Single, coefficients: tuple[float, ...], multiply_add: MultiplyAdd) -> Single:
    total = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        total = multiply_add(total, x, np.float32(coefficient))
    return total
