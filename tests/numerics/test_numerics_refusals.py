"""What the numerics refuse, in one sentence; and names of grids where grids are taken."""

import numpy as np
import pytest

from qbench.errors import InputError
from qbench.numerics import (
    QParams,
    QType,
    choose_qparams,
    dequantize,
    fake_quantize_grad,
    requantize,
)

U4 = QParams(0.5, 8, QType.parse("uint4"))
I8 = QParams(0.5, 0, QType.parse("int8"))


def test_grids_by_name():
    assert choose_qparams(-1, 1, "uint8", symmetry="asymmetric") == choose_qparams(
        -1, 1, QType.parse("uint8"), symmetry="asymmetric"
    )
    assert QParams(0.5, 8, "uint4") == U4
    by_name, plain = (
        requantize([100], (0.5, 0.25, 1.0), 3, grid, "ideal")
        for grid in ("int8", QType.parse("int8"))
    )
    assert by_name.tolist() == plain.tolist()
    assert by_name.dtype == np.int8
    for wrong in ("uint9000", np.uint8, None, 8):
        with pytest.raises(InputError, match="name of a quantized type"):
            choose_qparams(-1, 1, wrong, symmetry="asymmetric")


@pytest.mark.parametrize("more", [{"axis": 0}, {"axis": 0, "block_size": 2}, {"block_size": 2}])
def test_one_range_has_no_axis(more):
    with pytest.raises(InputError, match="found one range with an axis or a block_size"):
        choose_qparams(-1, 1, "int8", symmetry="symmetric", **more)


@pytest.mark.parametrize(
    ("levels", "qparams", "words"),
    [
        ([1.5], I8, "integers, not float64"),
        ([True], I8, "integers, not bool"),
        ([128], I8, "-128 … 127, not 128 … 128"),
        (np.array([-1], np.int8), U4, "0 … 15, not -1 … -1"),
        (np.array([3, 16], np.uint8), U4, "0 … 15, not 3 … 16"),
    ],
)
def test_what_is_no_level(levels, qparams, words):
    with pytest.raises(ValueError, match=words):
        dequantize(levels, qparams)


def test_levels_at_the_ends_and_none():
    assert dequantize([0, 15], U4).tolist() == [-4.0, 3.5]
    assert dequantize(np.array([-128, 127], np.int64), I8).tolist() == [-64.0, 63.5]
    assert dequantize([], I8).shape == (0,)
    # The level that a narrow range leaves out is a level of the type: machines come upon it.
    assert dequantize([-128], QParams(1.0, 0, "int8", narrow_range=True)).tolist() == [-128.0]


@pytest.mark.parametrize("upstream", [1.0, [1.0, 2.0], [[1.0], [1.0]], [[1.0, 2.0, 3.0]]])
def test_a_gradient_of_another_shape(upstream):
    with pytest.raises(ValueError, match="upstream has x's shape"):
        fake_quantize_grad(np.zeros((2, 3), np.float32), I8, upstream)


def test_names_that_nobody_knows():
    with pytest.raises(InputError, match="Looking up an arithmetic"):
        requantize([1], (1.0, 1.0, 1.0), 0, "int8", "no such machine")
    with pytest.raises(InputError, match="one of the 3 that are known"):
        choose_qparams(-1, 1, "int8", symmetry="lopsided")


@pytest.mark.parametrize("multiplier", [1e12, 1e25, 1e200])
def test_exact_results_beyond_every_integer_saturate(multiplier):
    assert requantize([3, -3, 0], (multiplier, 1.0, 1.0), 5, "int8", "ideal").tolist() == [
        127,
        -128,
        5,
    ]
    assert requantize([2**31 - 1], (multiplier, 1.0, 1.0), 0, "int32", "ideal").tolist() == [
        2**31 - 1
    ]
