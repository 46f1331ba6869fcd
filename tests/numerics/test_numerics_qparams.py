import numpy as np
import pytest

from qbench.numerics import Interval, QParams, QType, parameter_shape

INT8 = QType.parse("int8")


def test_parameters_are_float32_and_read_only() -> None:
    q = QParams(0.1, 3, INT8)
    assert q.scale.dtype == np.float32
    assert q.scale.shape == ()
    assert int(q.zero_point) == 3
    with pytest.raises(ValueError, match="read-only"):
        q.scale[...] = 1
    with pytest.raises(AttributeError):
        q.axis = 1  # type: ignore[misc]


@pytest.mark.parametrize("scale", [0.0, -1.0, np.inf, np.nan, 1e-60, 1e60])
def test_a_scale_is_positive_and_finite_in_float32(scale: float) -> None:
    with pytest.raises(ValueError, match="positive and finite"):
        QParams(scale, 0, INT8)


@pytest.mark.parametrize("point", [-129, 128])
def test_a_zero_point_lies_inside_the_grid(point: int) -> None:
    with pytest.raises(ValueError, match="zero point lies"):
        QParams(1.0, point, INT8)


def test_a_zero_point_is_an_integer_and_a_narrow_grid_lacks_its_lowest_level() -> None:
    with pytest.raises(ValueError, match="integer"):
        QParams(1.0, 0.5, INT8)
    with pytest.raises(ValueError, match="zero point lies"):
        QParams(1.0, -128, INT8, narrow_range=True)


def test_granularity_and_shape_agree() -> None:
    with pytest.raises(ValueError, match="axis"):
        QParams([1.0, 2.0], 0, INT8)
    with pytest.raises(ValueError, match="1-d"):
        QParams([[1.0, 2.0]], 0, INT8, axis=0)
    with pytest.raises(ValueError, match="one shape"):
        QParams([1.0, 2.0], [0, 0, 0], INT8, axis=0)
    with pytest.raises(ValueError, match="axis"):
        QParams(1.0, 0, INT8, block_size=4)
    with pytest.raises(ValueError, match="outside"):
        QParams([1.0], 0, INT8, axis=1, block_size=4)
    assert QParams([1.0, 2.0], 0, INT8, axis=0).zero_point.tolist() == [0, 0]


def test_equality_is_of_content() -> None:
    assert QParams(0.5, 1, INT8) == QParams(np.float32(0.5), np.int8(1), INT8)
    assert hash(QParams(0.5, 1, INT8)) == hash(QParams(0.5, 1, INT8))
    assert QParams(0.5, 1, INT8) != QParams(0.5, 1, QType.parse("int16"))
    assert QParams([0.5], 1, INT8, axis=0) != QParams(0.5, 1, INT8)


def test_expanding_a_channel_axis_and_blocks() -> None:
    scale, _ = QParams([1.0, 2.0, 3.0], 0, INT8, axis=-2).expanded((5, 3, 7))
    assert scale.shape == (1, 3, 1)
    blocks, _ = QParams([[1.0, 2.0]], [[0, 5]], INT8, axis=1, block_size=4).expanded((1, 6))
    assert blocks.tolist() == [[1, 1, 1, 1, 2, 2]]
    with pytest.raises(ValueError, match="do not fit"):
        QParams([1.0, 2.0], 0, INT8, axis=0).expanded((3, 2))
    with pytest.raises(ValueError, match="do not tile"):
        QParams([[1.0, 2.0]], 0, INT8, axis=1, block_size=4).expanded((1, 9))


def test_parameter_shapes() -> None:
    assert parameter_shape((4, 6), None) == ()
    assert parameter_shape((4, 6), -1) == (6,)
    assert parameter_shape((4, 6), -1, 4) == (4, 2)


def test_intervals() -> None:
    a, b = Interval(1.0, 3.0), Interval(-2.0, 2.0)  # type: ignore[arg-type]
    assert a.union(b) == Interval(-2.0, 3.0)  # type: ignore[arg-type]
    assert b.union(a).mirrored() == Interval(-3.0, 3.0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="does not exceed"):
        Interval(1.0, 0.0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="finite"):
        Interval(0.0, np.inf)  # type: ignore[arg-type]
