import numpy as np
import pytest

from qbench.calibration import Statistics, get_range_method
from qbench.calibration.ranges import MinMax, catalogue
from qbench.errors import InputError
from qbench.extension import Extension
from qbench.numerics import QType

INT8 = QType.parse("int8")


def test_minmax_is_what_was_seen() -> None:
    seen = MinMax().of_statistics(Statistics(-1.5, 3, 10, 0), INT8, "symmetric")
    assert (float(seen.low), float(seen.high)) == (-1.5, 3)
    rows = MinMax().of_rows(np.array([[1, -2], [0, 5]], np.float32), INT8, "symmetric")
    assert rows.low.tolist() == [-2, 0]
    assert rows.high.tolist() == [1, 5]


def test_nothing_seen_is_no_range() -> None:
    with pytest.raises(InputError, match="no elements"):
        MinMax().of_statistics(Statistics(np.inf, -np.inf, 0, 0), INT8, "symmetric")


def test_methods_by_name() -> None:
    assert get_range_method("minmax") == MinMax()
    with pytest.raises(InputError, match="Did you mean 'minmax'"):
        get_range_method("maxmin")
    assert "theirs" in catalogue([Extension(name="x", range_methods={"theirs": MinMax})]).names()
