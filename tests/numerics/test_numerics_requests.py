"""What callers hand to ``requantize`` and its neighbours is right,
or one sentence says what is not.
"""

import numpy as np
import pytest

from qbench.errors import InputError
from qbench.numerics import (
    QParams,
    add_quantized,
    divide_quantized,
    list_arithmetics,
    requantize,
    rescale_quantized,
    subtract_quantized,
)

NAMES = list_arithmetics()
GRID = QParams(0.5, 3, "int8")
TWO = (add_quantized, subtract_quantized, divide_quantized)


@pytest.mark.slow_but(71)
@pytest.mark.parametrize("machine", NAMES)
@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan, np.inf])
def test_scales_are_positive_and_finite(machine, place, scale):
    scales = [1.0, 0.5, 1.0]
    scales[place] = scale
    name = ("input", "weight", "output")[place]
    with pytest.raises(
        InputError, match=f"found a scale of .* of the {name}; expected one that is positive"
    ):
        requantize([1], tuple(scales), 0, "int8", machine)


@pytest.mark.parametrize(
    ("machine", "refused"), [("onednn", True), ("ort-x64", True), ("ideal", False)]
)
@pytest.mark.parametrize("tiny", [1e-60, 1e60])
def test_scales_that_float32_has_not(machine, refused, tiny):
    """A machine that reads scales as float32 makes 0 or infinity of them;
    exact ones count with what they are.
    """
    scales = (tiny, 1.0, tiny)
    if refused:
        with pytest.raises(InputError, match="as float32"):
            requantize([5], scales, 0, "int8", machine)
    else:
        assert requantize([5], scales, 0, "int8", machine).tolist() == [5]


@pytest.mark.parametrize("machine", NAMES)
def test_ratios_that_no_float_holds_are_a_sentence(machine):
    for scales in ((1.0, 1.0, 1e-45), (1e38, 1e38, 1.0), (1e38, 1.0, 1e-38), (1e-45, 1e-45, 1.0)):
        try:
            levels = requantize([1], scales, 0, "int8", machine)
        except InputError:
            continue
        assert levels.tolist() in ([127], [0], [-127])


@pytest.mark.parametrize(
    ("acc", "words"),
    [
        ([5.5], "accumulators of float64"),
        ([True], "accumulators of bool"),
        (np.array([2**63], np.uint64), "accumulators up to 9223372036854775808"),
        ([2**70], "accumulators of object"),
        (["5"], "accumulators of <U1"),
    ],
)
def test_accumulators_are_integers(acc, words):
    with pytest.raises(InputError, match=words):
        requantize(acc, (1.0, 1.0, 1.0), 0, "int8", "ideal")
    assert requantize(np.array([7], np.uint64), (1.0, 1.0, 1.0), 0, "int8", "ideal").tolist() == [7]


@pytest.mark.parametrize("zero_point", [1000, -129, 0.5, True, [0], np.nan])
def test_zero_points_are_levels(zero_point):
    with pytest.raises(InputError, match=r"the zero point .*; expected a code of int8: -128 … 127"):
        requantize([1], (1.0, 1.0, 1.0), zero_point, "int8", "ideal")
    assert requantize([1], (1.0, 1.0, 1.0), np.int64(-128), "int8", "ideal").tolist() == [-127]


@pytest.mark.parametrize(
    ("limits", "words"),
    [((5, -5), "limits 5 … -5"), ((-200, 5), "limit -200"), ((0, 128), "limit 128")],
)
def test_limits_are_levels_in_order(limits, words):
    with pytest.raises(InputError, match=words):
        requantize([1], (1.0, 1.0, 1.0), 0, "int8", "ideal", limits=limits)
    assert requantize([-9, 9], (1.0, 1.0, 1.0), 0, "int8", "ideal", limits=(0, 6)).tolist() == [
        0,
        6,
    ]


@pytest.mark.parametrize("machine", NAMES)
def test_shapes_stay_as_they_are(machine):
    """One number, none, and two axes: 3 · ½ is a tie, under which two levels are right."""
    for acc in (3, np.int32(3), [], [[3], [3]]):
        levels = requantize(acc, (1.0, 0.5, 1.0), 0, "int8", machine)
        assert isinstance(levels, np.ndarray)
        assert levels.shape == np.shape(acc)
        assert np.isin(levels, (1, 2)).all()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"axis": 2}, "axis 2"),
        ({"axis": 0}, "axis 0"),
        ({"axis": -3}, "axis -3"),
        ({"bias": [1, 2]}, "a bias of shape"),
        ({"bias": [1.5, 2.0, 3.0]}, "a bias of float64"),
        ({"bias": np.zeros((1, 3), np.int64)}, "a bias of shape"),
    ],
)
def test_channels_fit_their_axis(more, words):
    sums, weight = np.ones((2, 3), np.int64), np.array([0.5, 1, 2])
    with pytest.raises(InputError, match=words):
        requantize(sums, (1.0, weight, 1.0), 0, "int8", "ideal", **more)
    assert (
        requantize(sums, (1.0, weight, 1.0), 0, "int8", "ideal", bias=[1, 2, 3], axis=-1).tolist()
        == [[1, 3, 8]] * 2
    )
    with pytest.raises(InputError, match="scales of the weight"):
        requantize(1, (1.0, weight, 1.0), 0, "int8", "ideal")
    with pytest.raises(InputError, match="scales of the input of shape"):
        requantize(sums, (weight, 1.0, 1.0), 0, "int8", "ideal")


@pytest.mark.parametrize("face", TWO)
@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        ([1.5], [1], "'a' of float64"),
        ([1], [True], "'b' of bool"),
        ([128], [1], "'a' of 128 … 128"),
        ([1], [-129], "'b' of -129 … -129"),
        ([1, 2], [1, 2, 3], r"'a' of shape \(2,\) and 'b' of shape \(3,\)"),
    ],
)
def test_two_operands(face, a, b, words):
    for machine in ("ideal", "gemmlowp", "ort-x64", "glow-interpreter"):
        with pytest.raises(InputError, match=words):
            face(a, b, GRID, GRID, GRID, machine)


def test_levels_that_are_brought_to_another_grid():
    other = QParams(0.25, 0, "int8")
    assert rescale_quantized([3, 4], GRID, other, "ideal").tolist() == [0, 2]
    for levels in ([1.5], [200]):
        with pytest.raises(InputError, match="Counting with quantized arrays: found codes of"):
            rescale_quantized(levels, GRID, other, "ideal")


def test_whole_floats_are_integers():
    whole = requantize(np.array([5.0, -15.0]), (0.1, 1.0, 1.0), 0, "int8", "gemmlowp")
    np.testing.assert_array_equal(
        whole, requantize([5, -15], (0.1, 1.0, 1.0), 0, "int8", "gemmlowp")
    )
    for unfit in (np.nan, np.inf, 2.0**60):
        with pytest.raises(InputError, match="accumulators of float64"):
            requantize(np.array([unfit]), (0.1, 1.0, 1.0), 0, "int8", "gemmlowp")
