"""Fake quantization with gradients: forward bit for bit that of ``numerics``, backward its
gradients and the formulas of the papers in cases computed by hand.
"""

import math
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from qbench.graph import Moving
from qbench.numerics import QParams, fake_quantize, fake_quantize_grad

pytestmark = pytest.mark.oracle

QPARAMS = {
    "signed": QParams(0.037, 0, "int8", narrow_range=True),
    "unsigned": QParams(0.0213, 97, "uint8"),
    "four-bits": QParams(0.41, 0, "int4"),
    "pow2": QParams(2.0**-4, 0, "int8"),
    "channels": QParams(np.array([0.02, 0.3, 0.011], np.float32), 0, "int8", axis=1),
}


def numbers() -> npt.NDArray[np.float32]:
    """Inside, on ties, at both clips and beyond them."""
    random = np.random.default_rng(3)
    x = random.standard_normal((4, 3, 40)).astype(np.float32) * 4
    x[0, :, :8] = np.arange(-4, 4) * 0.5 * 0.037
    return x


def grid_of(qparams: QParams, **settings: Any) -> Any:
    from qbench_engines.torch_fake_quantize import FakeQuantizer

    pow2 = settings.pop("pow2", False)
    point = bool(qparams.zero_point.any())
    moving = Moving(name="x", qparams=qparams, pow2=pow2, zero_point=point)
    return FakeQuantizer(moving, **settings)


@pytest.mark.parametrize("name", QPARAMS)
def test_forward_is_that_of_numerics(torch: ModuleType, name: str) -> None:
    x, qparams = numbers(), QPARAMS[name]
    found = grid_of(qparams)(torch.from_numpy(x)).detach().numpy()
    assert np.array_equal(found, fake_quantize(x, qparams))


@pytest.mark.parametrize("name", QPARAMS)
def test_gradients_are_those_of_numerics(torch: ModuleType, name: str) -> None:
    x, qparams = numbers(), QPARAMS[name]
    upstream = np.random.default_rng(5).standard_normal(x.shape).astype(np.float32)
    grid, real = grid_of(qparams), torch.from_numpy(x).requires_grad_(True)
    grid(real).backward(torch.from_numpy(upstream))
    expected = fake_quantize_grad(x, qparams, upstream)
    assert np.array_equal(real.grad.numpy(), expected.x)
    np.testing.assert_allclose(grid.raw.grad.numpy(), expected.scale, rtol=2e-4, atol=2e-3)
    if grid.point.requires_grad:
        np.testing.assert_allclose(grid.point.grad.numpy(), expected.zero_point, rtol=1e-5)


def test_the_gradient_of_a_threshold_is_that_of_numerics(torch: ModuleType) -> None:
    x, qparams = numbers(), QPARAMS["pow2"]
    grid = grid_of(qparams, pow2=True)
    grid(torch.from_numpy(x)).sum().backward()
    expected = fake_quantize_grad(x, qparams).log2_threshold
    np.testing.assert_allclose(grid.raw.grad.numpy(), expected, rtol=1e-4)


@pytest.mark.parametrize(
    ("x", "by_threshold", "by_x"),
    [
        (0.3, 1 - 1.2, 1.0),  # inside: round(x / s) − x / s
        (0.25, 0.0, 1.0),  # on a code
        (5.0, 7.0, 0.0),  # above: p
        (-5.0, -8.0, 0.0),  # below: n
    ],
)
def test_thresholds_have_the_gradients_of_tqt(
    torch: ModuleType, x: float, by_threshold: float, by_x: float
) -> None:
    """Jain et al. 2020, equations 6 to 8, for int4 with s = 1/4: n = −8, p = 7; the gradient by
    log₂ t is s · ln 2 times what the case says.
    """
    grid = grid_of(QParams(0.25, 0, "int4"), pow2=True)
    real = torch.tensor([x], requires_grad=True)
    grid(real).sum().backward()
    expected = 0.25 * math.log(2) * by_threshold
    assert float(grid.raw.grad) == pytest.approx(expected, abs=1e-6)
    assert float(real.grad) == by_x


def test_a_threshold_is_a_power_of_two_rounded_up(torch: ModuleType) -> None:
    from qbench_engines.torch_fake_quantize import PowerOfTwo

    exponents = torch.arange(-120.0, 120.0)
    expected = np.ldexp(np.float32(1), np.arange(-120, 120))
    assert np.array_equal(PowerOfTwo.apply(exponents).numpy(), expected)
    below = torch.nextafter(exponents, torch.full_like(exponents, -math.inf))
    assert np.array_equal(PowerOfTwo.apply(below).numpy(), expected)
    above = exponents + 0.01
    assert np.array_equal(PowerOfTwo.apply(above).numpy(), expected * 2)


def test_the_gradient_of_a_step_size_is_that_of_lsq(torch: ModuleType) -> None:
    """Esser et al. 2020, equation 3 and section 2.2: Σ / √(N · Qp), here N = 3 and Qp = 7."""
    grid = grid_of(QParams(0.5, 0, "int4"), lsq=True)
    grid(torch.tensor([0.6, 100.0, -100.0])).sum().backward()
    whole = (1 - 1.2) + 7 - 8
    assert float(grid.raw.grad) == pytest.approx(whole / math.sqrt(3 * 7), rel=1e-5)


def test_a_rounding_is_the_rectified_sigmoid_of_adaround(torch: ModuleType) -> None:
    """Nagel et al. 2020, equations 23 and 24: ζ = 1.1, γ = −0.1; it begins at the weight itself."""
    from qbench_engines.torch_fake_quantize import Rounding

    weight = torch.tensor([0.3, -0.4, 1.0, 0.125])
    rounding = Rounding(grid_of(QParams(0.25, 0, "int4"), learned=False), weight)
    np.testing.assert_allclose(rounding().detach().numpy(), weight.numpy(), atol=1e-4)
    with torch.no_grad():
        rounding.v.copy_(torch.tensor([0.0, -10.0, 10.0, math.log(3.0)]))
    up = [0.5, 0.0, 1.0, 0.75 * 1.2 - 0.1]
    np.testing.assert_allclose(rounding.up().detach().numpy(), up, atol=1e-6)
    expected = sum(1 - abs(2 * one - 1) ** 3 for one in up)
    assert float(rounding.penalty(3.0).detach()) == pytest.approx(expected, abs=1e-6)
    rounding.is_hard = True
    codes = (rounding() / 0.25).detach().numpy()
    assert codes.tolist() == [2.0, -2.0, 5.0, 1.0]


def test_a_frozen_grid_learns_nothing(torch: ModuleType) -> None:
    grid = grid_of(QPARAMS["unsigned"], learned=False)
    real = torch.from_numpy(numbers()).requires_grad_(True)
    grid(real).sum().backward()
    assert grid.raw.grad is None
    assert grid.point.grad is None
    assert grid.result() == QPARAMS["unsigned"]
