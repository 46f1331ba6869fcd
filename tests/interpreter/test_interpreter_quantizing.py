"""Reals to levels by every machine's rule: one compiled pass gives the bits of numpy's steps,
whatever the layout.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbench.interpreter.integer_kernels.borders import quantizer
from qbench.numerics import QParams, QType, get_arithmetic, list_arithmetics, quantize

Array = np.ndarray[Any, Any]
MACHINES = [
    pytest.param(machine, id=f"{name}-{operator}")
    for name in list_arithmetics()
    for operator in ("QuantizeLinear", "Sigmoid")
    for machine in (get_arithmetic(name).at(operator, "any"),)
    if operator == "QuantizeLinear" or machine.quantizing != get_arithmetic(name).quantizing
]


def reals(scale: float, grid: QParams, random: np.random.Generator) -> Array:
    """Ties and what is next to them, the ends, everything that float32 has at its own ends."""
    levels = random.integers(grid.qmin - 3, grid.qmax + 4, 60) - int(grid.zero_point)
    ties = (np.float32(scale) * (levels + 0.5)).astype(np.float32)
    near = np.concatenate(
        [ties, np.nextafter(ties, np.float32(np.inf)), np.nextafter(ties, -np.float32(np.inf))]
    )
    odd = [
        np.nan,
        np.inf,
        -np.inf,
        0.0,
        -0.0,
        1e-45,
        -1e-45,
        3.4e38,
        -3.4e38,
        2.0**24 * scale,
        -(2.0**31) * scale,
    ]
    anything = random.normal(0, 100 * scale, 60)
    return np.concatenate([near, odd, anything]).astype(np.float32)


@pytest.mark.slow_but(4)
@pytest.mark.parametrize("machine", MACHINES)
@settings(max_examples=20)
@given(
    kind=st.sampled_from(["int8", "uint8", "int16", "uint16"]), exponent=st.integers(-20, 6),
    power=st.booleans(), place=st.sampled_from([0.0, 0.4, 0.5, 1.0]),
    seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_levels_are_those_of_the_steps(
    machine: Any, kind: str, exponent: int, power: bool, place: float, seed: int
) -> None:
    random, qtype = np.random.default_rng(seed), QType.parse(kind)
    scale = float(np.float32(2.0**exponent * (1 if power else random.uniform(1, 2))))
    grid = QParams(scale, int(qtype.qmin + place * (qtype.qmax - qtype.qmin)), qtype)
    x = reals(scale, grid, random)
    expected = quantize(x, grid, machine)
    found = quantizer(grid, machine, compiled=True)(x)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "layout",
    [
        lambda x: x, lambda x: np.moveaxis(x, 1, -1), lambda x: x[:, ::2], lambda x: x[:, :, ::-1],
        lambda x: x.T, lambda x: np.broadcast_to(x[:1], (4, *x.shape[1:])), lambda x: x[:0],
    ],
)  # fmt: skip
def test_arrays_of_any_layout(layout: Any) -> None:
    x = layout(np.random.default_rng(0).normal(0, 40, (2, 3, 5, 4)).astype(np.float32))
    grid = QParams(0.5, 3, "int8")
    np.testing.assert_array_equal(
        quantizer(grid, get_arithmetic("ort-x64"), compiled=True)(x), quantize(x, grid)
    )


@pytest.mark.parametrize(
    "grid", [QParams(2.0**-12, 5, "int32"), QParams([0.5, 0.25], [0, 3], "int8", axis=1)]
)
def test_grids_of_more_bits_and_per_channel(grid: QParams) -> None:
    x = np.random.default_rng(0).normal(0, 40, (3, 2)).astype(np.float32)
    np.testing.assert_array_equal(
        quantizer(grid, get_arithmetic("ort-x64"), compiled=True)(x), quantize(x, grid)
    )
