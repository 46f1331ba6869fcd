import ml_dtypes
import numpy as np
import pytest

from qbench.errors import InputError
from qbench.numerics import QType


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
