import ml_dtypes
import numpy as np
import pytest

from qbench.errors import InputError
from qbench.numerics import QParams, QType, choose_qparams, dequantize, quantize


@pytest.mark.parametrize("name", ["int8", "uint8", "int16", "uint16", "int32", "uint32"])
def test_grids_of_machine_types_are_those_of_numpy(name: str) -> None:
    info = np.iinfo(name)
    qtype = QType.parse(name)
    assert (qtype.qmin, qtype.qmax) == (info.min, info.max)
    assert qtype.storage_dtype == np.dtype(name)
    assert qtype.name == name


@pytest.mark.parametrize("name", ["int4", "uint4", "int2", "uint2"])
def test_narrow_grids_are_those_of_ml_dtypes(name: str) -> None:
    info = ml_dtypes.iinfo(name)
    qtype = QType.parse(name)
    assert (qtype.qmin, qtype.qmax) == (int(info.min), int(info.max))
    assert qtype.storage_dtype == np.dtype("int8" if qtype.signed else "uint8")


@pytest.mark.parametrize("bits", [*range(2, 17), 32])
def test_every_width_has_its_levels(bits: int) -> None:
    for signed in (True, False):
        qtype = QType(bits, signed)
        assert qtype.qmax - qtype.qmin + 1 == 2**bits
        assert QType.parse(qtype.name) == qtype
        assert np.iinfo(qtype.storage_dtype).min <= qtype.qmin <= qtype.middle <= qtype.qmax
        assert qtype.qmax <= np.iinfo(qtype.storage_dtype).max


@pytest.mark.parametrize("name", ["int1", "int17", "int64", "float8", "INT8", "int", "uint08x", ""])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="integer type"):
        QType.parse(name)


def test_an_impossible_width_is_refused() -> None:
    with pytest.raises(ValueError, match="not 17"):
        QType(17, signed=True)


@pytest.mark.parametrize(
    ("onnx", "other"),
    [("float8e4m3fn", "float8_e4m3fn"), ("float6e2m3", "float6_e2m3fn"), ("float4e2m1", None)],
)
def test_floats_go_by_the_names_of_onnx_and_of_ml_dtypes(onnx: str, other: str | None) -> None:
    qtype = QType.parse(onnx)
    assert (qtype.name, qtype.is_float, qtype.storage_dtype) == (onnx, True, np.dtype("uint8"))
    assert other is None or QType.parse(other) == qtype
    assert qtype != QType(qtype.bits, signed=True)
    for end in ("qmin", "qmax"):
        with pytest.raises(TypeError, match="no integers"):
            getattr(qtype, end)


def test_a_type_of_scales_holds_no_values() -> None:
    with pytest.raises(InputError, match="type of scales"):
        QType.parse("float8e8m0")
    with pytest.raises(ValueError, match="8 bits"):
        QType(4, signed=True, floating=QType.parse("float8e5m2").floating)


@pytest.mark.parametrize("name", ["float8e4m3fn", "float8e5m2", "float8e4m3fnuz", "float8e5m2fnuz"])
def test_quantizing_to_float8_is_that_of_onnx(name: str) -> None:
    from onnx.numpy_helper import saturate_cast

    x = np.random.default_rng(3).standard_normal(10_000).astype(np.float32) * 300
    qparams = QParams(0.37, 0, name)
    dtype = np.dtype(getattr(ml_dtypes, name.replace("8", "8_")))
    expected = saturate_cast(x / np.float32(0.37), dtype)
    codes = quantize(x, qparams)
    np.testing.assert_array_equal(codes, expected.view(np.uint8))
    np.testing.assert_array_equal(
        dequantize(codes, qparams), expected.astype(np.float32) * np.float32(0.37)
    )


def test_the_largest_of_a_range_is_the_largest_number() -> None:
    qparams = choose_qparams(-3.0, 7.0, "float8e4m3fn", symmetry="symmetric")
    assert qparams.scale == np.float32(7 / 448)
    assert quantize(7.0, qparams) == 0x7E
    assert choose_qparams(0.0, 0.0, "float8e5m2", symmetry="symmetric").scale == 1
