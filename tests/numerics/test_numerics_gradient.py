"""Gradients against values derived by hand and against differences
of the function the rule pretends to see.
"""

import numpy as np
import pytest

from qbench.errors import InputError
from qbench.numerics import QParams, QType, fake_quantize, fake_quantize_grad

UINT4 = QType.parse("uint4")


def test_values_derived_by_hand() -> None:
    """s = 0.5, z = 2 on 0 … 15: x = 0.6 → q = 1 + 2, x̂ = 0.5; x = 9 saturates above,
    x = −4 below.
    """
    params = QParams(0.5, 2, UINT4)
    for x, by_x, by_scale, by_point in [
        (0.6, 1, (0.5 - 0.6) / 0.5, 0),
        (9.0, 0, 13, -0.5),
        (-4.0, 0, -2, -0.5),
    ]:
        got = fake_quantize_grad(x, params)
        assert got.x == by_x
        assert got.scale == pytest.approx(by_scale, rel=1e-6)
        assert got.zero_point == pytest.approx(by_point)
        assert got.log2_threshold == pytest.approx(by_scale * 0.5 * np.log(2), rel=1e-6)


def test_the_band_that_passes_is_that_of_the_rounded_value() -> None:
    """−1.25 rounds to −2 (even) and passes, 6.75 rounds to 14 and does not."""
    params = QParams(0.5, 2, UINT4)
    assert fake_quantize_grad([-1.25, 6.75], params).x.tolist() == [1, 0]


def test_the_older_rule_forgets_the_rounding() -> None:
    params = QParams(0.5, 2, UINT4)
    old = fake_quantize_grad([0.6, 9.0], params, rule="fakequant")
    assert old.scale == 13
    assert fake_quantize_grad([0.6], params, rule="fakequant").scale == 0


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_sums_run_over_what_shares_a_parameter(axis: int | None) -> None:
    rng = np.random.default_rng(3)
    x, back = rng.normal(size=(2, 3, 4)).astype(np.float32)
    count = 1 if axis is None else x.shape[axis]
    scale = rng.uniform(0.05, 0.2, count)
    params = QParams(scale[0], 7, UINT4) if axis is None else QParams(scale, 7, UINT4, axis=axis)
    got = fake_quantize_grad(x, params, back)
    rows = np.zeros((count, 2))
    for i in range(3):
        for j in range(4):
            c = 0 if axis is None else (i, j)[axis]
            one = fake_quantize_grad(x[i, j], QParams(scale[c], 7, UINT4), back[i, j])
            rows[c] += float(one.scale), float(one.zero_point)
            assert one.x == got.x[i, j]
    assert np.allclose(np.atleast_1d(got.scale), rows[:, 0], rtol=1e-5)
    assert np.allclose(np.atleast_1d(got.zero_point), rows[:, 1], rtol=1e-5)


def test_with_the_levels_held_still_the_scale_gradient_is_a_difference_quotient() -> None:
    """Inside, x̂ = s·(round(x/s)) with round taken as x/s + c: ∂x̂/∂s = c,
    the rounding error in levels.
    """
    params, x = QParams(0.25, 8, UINT4), np.float32(0.9)
    error = float(fake_quantize(x, params)) - float(x)
    assert float(fake_quantize_grad(x, params).scale) == pytest.approx(error / 0.25, rel=1e-5)


def test_refusals() -> None:
    with pytest.raises(InputError, match="gradient rule"):
        fake_quantize_grad(1.0, QParams(0.5, 2, UINT4), rule="ste")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="per block"):
        fake_quantize_grad([1.0], QParams([0.5], 2, UINT4, axis=0, block_size=1))
