"""Counting by float bits: against the scalar definition, compiled against numpy, any split
against the whole.
"""

import base64
import math
import struct
import sys
import zlib
from dataclasses import fields
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbench.calibration import Histogram, Statistics
from qbench.calibration.float_bins import (
    MAGNITUDES,
    MOST,
    Counter,
    compiled,
    count_with_numpy,
    exponents_of,
    keys_of,
    new_table,
    signs_of,
    tops_of,
    unpacked,
)
from qbench.calibration.observer import Observer
from qbench.calibration.statistics import packed_histogram, unpacked_histogram
from qbench.calibration.watched import WatchedValue
from qbench.errors import InputError

Array = np.ndarray[Any, Any]

EDGES = [
    0.0,
    -0.0,
    1e-45,
    -1e-45,
    1.1754944e-38,
    -1.1754942e-38,
    2.0**-136,
    1.0,
    -1.0,
    6.0,
    3.4028235e38,
    -3.4028235e38,
]
floats = st.one_of(
    st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.sampled_from(EDGES),
    st.floats(-8, 8, width=32),
)
tensors = st.lists(floats, min_size=1, max_size=70).map(lambda values: np.array(values, np.float32))


def scalar_key(value: float) -> int:
    (bits,) = struct.unpack("<I", struct.pack("<f", abs(value)))
    return ~(bits >> 13) if value < 0 else bits >> 13


def counted(array: Array, *, compiled_too: bool = False) -> tuple[Array, Array, Array, int]:
    table = new_table()
    if compiled_too:
        loops = compiled()
        assert loops is not None
        loops.fold(array.view(np.uint32), table, np.empty(2, np.int32))
    else:
        count_with_numpy(array.view(np.uint32), table)
    return unpacked(table, array.size)


@given(tensors)
@settings(max_examples=120)
def test_cells_are_those_of_the_scalar_definition(x: Array) -> None:
    cells: dict[int, list[float]] = {}
    for value in x.tolist():
        cells.setdefault(scalar_key(value), []).append(value)
    found = Histogram.of(x)
    assert found.keys.tolist() == sorted(cells)
    assert found.counts.tolist() == [len(cells[key]) for key in sorted(cells)]
    assert found.exact_sum == sum(map(Fraction, x.tolist()))
    assert found.sum == math.fsum(x.tolist())
    for key, point in zip(sorted(cells), found.points().tolist(), strict=True):
        mean = sum(map(Fraction, cells[key])) / len(cells[key])
        assert min(cells[key]) <= point <= max(cells[key])
        assert abs(Fraction(point) - mean) <= abs(mean) * Fraction(1, 1 << 52)


@given(tensors)
@settings(max_examples=40)
def test_a_cell_s_key_tells_its_numbers(x: Array) -> None:
    keys = keys_of(x)
    least = np.ldexp(signs_of(keys) * tops_of(keys).astype(float), exponents_of(keys))
    above = np.ldexp(signs_of(keys) * (tops_of(keys) + (1 << 13)).astype(float), exponents_of(keys))
    assert ((np.abs(least) <= np.abs(x)) & (np.abs(x) < np.abs(above))).all()
    order = np.argsort(x, kind="stable")
    assert (np.diff(keys[order]) >= 0).all()


@given(tensors, st.integers(0, 9))
@settings(max_examples=40)
def test_tables_hold_what_the_definition_says(x: Array, repeat: int) -> None:
    many = np.tile(x, repeat + 1)
    keys, counts, lows, zeros = counted(many)
    assert Histogram(keys, counts, lows) == Histogram.of(many)
    assert zeros == int((many == 0).sum())


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 1000, 40000])
def test_the_compiled_loop_gives_the_same_bits(size: int) -> None:
    if compiled() is None:
        pytest.skip("numba is not installed")
    rng = np.random.default_rng(size)
    x = np.concatenate(
        [rng.normal(size=size), np.maximum(rng.normal(size=size), 0), rng.choice(EDGES, size)]
    )
    x = rng.permutation(x.astype(np.float32))
    slow, fast = counted(x), counted(x, compiled_too=True)
    assert all(np.array_equal(a, b) for a, b in zip(slow, fast, strict=True))


@given(tensors)
@settings(max_examples=50)
def test_the_compiled_loop_gives_the_same_bits_on_any_numbers(x: Array) -> None:
    if compiled() is None:
        pytest.skip("numba is not installed")
    slow, fast = counted(x), counted(x, compiled_too=True)
    assert all(np.array_equal(a, b) for a, b in zip(slow, fast, strict=True))


@pytest.mark.parametrize(
    ("worth_loading", "blocks"), [(0, 512), (1 << 40, 0)], ids=["compiled", "numpy"]
)
@pytest.mark.parametrize("wrong", [np.inf, -np.inf, np.nan, -np.float32(np.nan)])
def test_folding_stops_before_what_is_not_finite(
    worth_loading: int, blocks: int, wrong: float
) -> None:
    if blocks and compiled() is None:
        pytest.skip("numba is not installed")
    x = np.random.default_rng(3).normal(size=1000).astype(np.float32)
    x[700] = wrong
    table = new_table()
    counted, low, high = Counter(worth_loading).fold(x, table)
    assert counted == blocks  # whole blocks of 256 before the 700th number, or none
    assert low == x[:counted].min(initial=np.inf)
    assert high == x[:counted].max(initial=-np.inf)
    keys, counts, lows, _ = unpacked(table, counted)
    assert Histogram(keys, counts, lows) == Histogram.of(x[:counted])


def test_without_numba_numpy_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    assert compiled.__wrapped__() is None


@pytest.mark.slow
def test_where_compiled_code_cannot_be_kept_it_is_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    numba = pytest.importorskip("numba")
    jit = numba.njit

    def homeless(*signature: object, cache: bool = False, **settings: object) -> object:
        if cache:
            raise RuntimeError("no locator available")
        return jit(*signature, **settings)  # numba loads parts of itself late, which call it too

    monkeypatch.setattr(numba, "njit", homeless)
    loops = compiled.__wrapped__()
    assert loops is not None
    table = new_table()
    loops.fold(np.ones(3, np.float32).view(np.uint32), table, np.empty(2, np.int32))
    assert unpacked(table, 3)[1].tolist() == [3]


def test_a_table_takes_as_many_numbers_as_it_says() -> None:
    table = new_table()
    cell = 0xFF7FFFFF >> 13
    table[cell] = MOST * ((1 << 38) + 0xFF7FFFFF)  # what MOST additions of the worst number come to
    assert table[cell] > 0
    keys, counts, lows, zeros = unpacked(table, MOST)
    assert (keys.tolist(), counts.tolist(), lows.tolist(), zeros) == (
        [~(0x7F7FFFFF >> 13)],
        [MOST],
        [MOST * 8191],
        0,
    )


@given(tensors, tensors)
@settings(max_examples=40)
def test_merging_is_counting_together(x: Array, y: Array) -> None:
    both = Histogram.of(np.concatenate([x, y]))
    assert Histogram.of(x).merge(Histogram.of(y)) == Histogram.of(y).merge(Histogram.of(x)) == both
    assert both.merge(Histogram.empty()) == Histogram.empty().merge(both) == both
    assert Histogram.of(x).merge(Histogram.of(y)).digest == both.digest


@given(tensors)
@settings(max_examples=40)
def test_squares_keep_their_bound(x: Array) -> None:
    normal = x[np.abs(x) >= 2.0**-126]
    if not normal.size or np.abs(normal).max() > 1e30:
        return
    true = sum(Fraction(value) ** 2 for value in normal.tolist())
    found = Fraction(Histogram.of(normal).square_sum)
    assert (
        true * (1 - Fraction(1, 1 << 22) - Fraction(1, 1 << 45))
        <= found
        <= true * (1 + Fraction(1, 1 << 45))
    )


@given(tensors)
@settings(max_examples=40)
def test_a_histogram_as_text_reads_back(x: Array) -> None:
    assert unpacked_histogram(packed_histogram(Histogram.of(x))) == Histogram.of(x)


@pytest.mark.parametrize("text", ["", "!!", "AAAA", packed_histogram(Histogram.empty())[:-4]])
def test_damaged_text(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        unpacked_histogram(text)


def test_a_histogram_of_more_cells_than_there_are_is_not_unpacked() -> None:
    with pytest.raises(ValueError, match="more than 12,5"):
        unpacked_histogram(base64.b64encode(zlib.compress(bytes(1 << 24))).decode())


def test_arrays_that_no_numbers_have() -> None:
    def ints(*values: int) -> Array:
        return np.array(values, np.int64)

    for keys, counts, lows in [
        (ints(1, 1), ints(1, 1), ints(0, 0)),
        (ints(2, 1), ints(1, 1), ints(0, 0)),
        (ints(255 << 10), ints(1), ints(0)),
        (ints(~(255 << 10)), ints(1), ints(0)),
        (ints(1), ints(0), ints(0)),
        (ints(1), ints(1), ints(8192)),
        (ints(1), ints(1), ints(-1)),
        (ints(1), ints(1, 1), ints(0)),
    ]:
        with pytest.raises(ValueError, match=r"cells|counts"):
            Histogram(keys, counts, lows)
    assert Histogram(ints((255 << 10) - 1), ints(1), ints(8191)).sum == float(
        np.finfo(np.float32).max
    )


@given(tensors)
@settings(max_examples=40)
def test_statistics_give_ordered_points_between_the_extremes(x: Array) -> None:
    seen = Statistics.of(x).distribution()
    assert (seen.low, seen.high, seen.count) == (float(x.min()), float(x.max()), x.size)
    assert seen.low <= seen.points[0]
    assert seen.points[-1] <= seen.high


@given(tensors, st.integers(1, 300))
@settings(max_examples=40)
def test_equal_width_bins_hold_every_number_once(x: Array, bins: int) -> None:
    seen = Statistics.of(x).equal_width(bins)
    assert len(seen) == bins
    assert seen.sum() == x.size
    assert (seen >= 0).all()


def test_what_lies_far_outside_is_in_the_bin_at_its_end() -> None:
    seen = Statistics.of(np.array([-3.4e38, 0.5, 3.4e38, 3.4e38], np.float32))
    assert seen.distribution().equal_width(4, 0.0, 1.0).tolist() == [1, 0, 1, 2]


def test_equal_width_bins_are_numpy_s_but_for_the_width_of_a_cell() -> None:
    x = np.random.default_rng(1).normal(size=200_000).astype(np.float32)
    seen = Statistics.of(x)
    counts, _ = np.histogram(x, 2000, (seen.low, seen.high))
    ours = seen.equal_width()
    assert (
        np.abs(np.cumsum(ours) - np.cumsum(counts)).max() <= 200
    )  # a thousandth of all, at any place
    assert not ((ours == 0) & (counts > 40)).any()


def observed(x: Array, size: int, *, worth_loading: int = 1 << 40, fed: bool = False) -> Observer:
    observer = Observer(WatchedValue("v", 0), Counter(worth_loading), fed=fed)
    for start in range(0, len(x), size):
        observer.fold(
            x[start : start + size], [f"s{i:04}" for i in range(start, min(len(x), start + size))]
        )
    return observer


@given(tensors, st.integers(1, 70), st.booleans())
@settings(max_examples=40)
def test_an_observer_sees_what_there_is(x: Array, size: int, fast: bool) -> None:
    names = [f"s{i:04}" for i in range(len(x))]
    found = observed(x, size, worth_loading=3 if fast else 1 << 40).statistics(names)
    whole = Statistics.of(x)
    assert (found.low, found.high, found.zeros, found.histogram) == (
        whole.low,
        whole.high,
        whole.zeros,
        whole.histogram,
    )
    assert found.sample_lows is not None
    assert found.sample_lows.tolist() == [value + 0.0 for value in x.tolist()]


def test_a_full_table_is_emptied_into_the_histogram(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qbench.calibration.observer.MOST", 100)
    x = np.random.default_rng(2).choice([*EDGES, 0.5, 0.25], (50, 7)).astype(np.float32)
    found = observed(x, 3).statistics([f"s{i:04}" for i in range(50)])
    assert found.histogram == Histogram.of(x)
    assert found.zeros == int((x == 0).sum())


def test_infinite_results_are_counted_and_left_out() -> None:
    x = np.array([[1, -np.inf, 2], [np.inf, -np.inf, -np.inf], [-3, 0, 4]], np.float32)
    found = observed(x, 2).statistics(["s0000", "s0001", "s0002"])
    assert (found.low, found.high, found.count, found.infinite, found.zeros) == (-3, 4, 5, 4, 1)
    assert found.sample_lows is not None
    assert found.sample_highs is not None
    assert found.sample_lows.tolist() == [1, np.inf, -3]
    assert found.sample_highs.tolist() == [2, -np.inf, 4]
    assert found.sum == 4
    with pytest.raises(InputError, match="'v' on calibration sample 's0000': found NaN or Inf"):
        observed(x, 2, fed=True)
    x[2, 2] = np.nan
    with pytest.raises(
        InputError, match="'v' on calibration sample 's0002': found NaN; expected numbers"
    ):
        observed(x, 2)


def test_cells_are_as_many_as_there_are_magnitudes() -> None:
    assert (
        keys_of(np.array([np.finfo(np.float32).max], np.float32))[0] == (255 << 10) - 1 < MAGNITUDES
    )


def test_the_arrays_that_statistics_are_made_of_stay_the_callers() -> None:
    ends = {
        name: np.array([1.0, 1.0])
        for name in ("sample_lows", "sample_highs", "channel_lows", "channel_highs")
    }
    made = Statistics(1.0, 1.0, 0, Histogram.of(np.ones(4, np.float32)), **ends)
    for name, array in ends.items():
        array[0] = 7.0
        kept = getattr(made, name)
        assert kept.tolist() == [1.0, 1.0]
        assert not kept.flags.writeable


def test_a_histogram_has_nothing_that_changes() -> None:
    histogram = Histogram.of(np.arange(5, dtype=np.float32))
    before = [getattr(histogram, field.name).tobytes() for field in fields(histogram)]
    assert histogram.digest == Histogram.of(np.arange(5, dtype=np.float32)).digest
    assert [getattr(histogram, field.name).tobytes() for field in fields(histogram)] == before
    assert all(not getattr(histogram, field.name).flags.writeable for field in fields(histogram))
