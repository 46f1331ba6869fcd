"""Our own range methods against independent computations: Fractions, loops, exhaustive scans."""

import itertools
import math
import statistics
from collections.abc import Iterator
from fractions import Fraction

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given, settings

from qbench.calibration import Distribution, Statistics, get_range_method
from qbench.calibration.ranges.entropy import WindowSums, divergences, even_edges
from qbench.calibration.ranges.least_error import ErrorOfPoints, ErrorOfRows
from qbench.numerics import QParamsKind, QType, dequantize, quantize

REAL = [
    QParamsKind(QType.parse(qtype), symmetry, narrow_range=narrow)
    for qtype, symmetry, narrow in [
        ("int8", "symmetric", True),
        ("uint8", "asymmetric", False),
        ("uint8", "symmetric_unsigned", False),
        ("int4", "symmetric", False),
        ("uint4", "asymmetric", False),
        ("int2", "symmetric", False),
    ]
]
POW2 = [
    QParamsKind(QType.parse(qtype), symmetry, scale_kind=scale_kind)
    for qtype, symmetry in [
        ("int8", "symmetric"),
        ("uint8", "asymmetric"),
        ("int4", "symmetric"),
        ("int4", "asymmetric"),
    ]
    for scale_kind in ("pow2", "pow2_nearest")
]
KINDS = REAL + POW2


def tensors(count: int = 1500) -> dict[str, np.ndarray]:
    rng = np.random.RandomState(5)
    wide = rng.standard_normal(count)
    found = {
        "gauss": wide,
        "heavy": rng.standard_t(2, size=count),
        "relu": np.maximum(wide, 0),
        "swish": 2 * wide / (1 + np.exp(-3 * wide)),
        "outlier": np.append(wide, 90.0),
        "few": wide[:25],
        "minus": -np.abs(rng.laplace(size=count)),
    }
    return {name: values.astype(np.float32) for name, values in found.items()}


def error(values: np.ndarray, kind: QParamsKind, low: float, high: float, exponent: float) -> float:
    grid = kind.choose(low, high)
    return float(
        (
            np.abs(dequantize(quantize(values, grid), grid).astype(np.float64) - values) ** exponent
        ).sum()
    )


def least_of_all(values: np.ndarray, kind: QParamsKind, exponent: float) -> float:
    """The least error of an exhaustive scan:
    ratios of either end (of one scale where the grid is symmetric).
    """
    low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
    if kind.scale_kind != "real":
        return least_of_powers_of_two(values, kind, exponent, low, high)
    if kind.symmetry == "asymmetric" and low < 0 < high:
        ratios = np.linspace(0.04, 1, 40)
        pairs = list(itertools.product(ratios, ratios))
    else:
        pairs = [(r, r) for r in np.linspace(0.005, 1, 300)]
    return min(error(values, kind, low * a, high * b, exponent) for a, b in pairs)


def least_of_powers_of_two(
    values: np.ndarray, kind: QParamsKind, exponent: float, low: float, high: float
) -> float:
    """Every power-of-two scale from far too fine to covering, and every fourth zero point where
    there is a choice.
    """
    steps = kind.code_count - 1
    middle = kind.qtype.middle - kind.qmin
    points = range(0, steps + 1, max(1, steps // 60)) if kind.symmetry == "asymmetric" else [middle]
    top = math.ceil(math.log2(max(-low, high) / min(middle, steps - middle)))
    scales = [2.0**k for k in range(top - 9, top + 1)]
    return min(
        error(values, kind, -p * s, (steps - p) * s, exponent) for s in scales for p in points
    )


@pytest.mark.slow_but(2)
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize(
    ("text", "exponent"),
    [
        ("mse", 2.0),
        pytest.param("lp(1)", 1.0, marks=pytest.mark.slow),
        pytest.param("lp(2.4)", 2.4, marks=pytest.mark.slow),
        pytest.param("lp(4)", 4.0, marks=pytest.mark.slow),
    ],
)
def test_least_error_is_that_of_an_exhaustive_scan(
    kind: QParamsKind, text: str, exponent: float
) -> None:
    for name, values in tensors().items() if exponent == 2 else list(tensors().items())[:3]:
        found = get_range_method(text).of_distribution(Distribution.of(values), kind)
        assert found.low <= 0 <= found.high
        got = error(values, kind, float(found.low), float(found.high), exponent)
        assert (
            got <= (1.03 if exponent == 1 else 1.01) * least_of_all(values, kind, exponent) + 1e-12
        ), name


@pytest.mark.parametrize("kind", REAL, ids=str)
def test_searches_win_against_min_and_max_on_heavy_tails(kind: QParamsKind) -> None:
    values = np.random.RandomState(2).standard_t(4, size=200_000).astype(np.float32)
    found = get_range_method("mse").of_distribution(Distribution.of(values), kind)
    whole = error(values, kind, float(values.min()), float(values.max()), 2)
    assert error(values, kind, float(found.low), float(found.high), 2) < 0.9 * whole


@pytest.mark.parametrize("kind", [*REAL, QParamsKind(QType.parse("int16"), "asymmetric")], ids=str)
@pytest.mark.parametrize("exponent", [1.0, 2.0, 2.4])
def test_errors_of_many_grids_are_those_of_each(kind: QParamsKind, exponent: float) -> None:
    values = np.unique(tensors(300)["heavy"])
    counts = np.arange(1, len(values) + 1)
    lows, highs = np.array([-9.0, -1.0, -0.3]), np.array([9.0, 2.0, 0.2])
    grids = kind.choose(lows, highs, axis=0)
    scales, points = grids.scale[:, None].astype(float), grids.zero_point[:, None].astype(float)
    distribution = Distribution(float(values[0]), float(values[-1]), values.astype(float), counts)
    by_points = ErrorOfPoints.of(distribution, 0.5, kind, exponent)(scales / 0.5, points)
    rows = np.repeat(values, counts)[None]
    by_rows = ErrorOfRows.of(rows, np.array([0.5]), kind, exponent)(scales / 0.5, points)
    for i in range(3):
        expected = sum(
            c * abs((np.clip(np.rint(v / s) + p, kind.qmin, kind.qmax) - p) * s - v) ** exponent
            for v, c in zip(values.astype(float), counts, strict=True)
            for s, p in [(scales[i, 0], points[i, 0])]
        )
        assert by_points[i, 0] * 0.5**exponent == pytest.approx(expected, rel=1e-9)
        assert by_rows[i, 0] * 0.5**exponent == pytest.approx(expected, rel=1e-4)


@settings(max_examples=80)
@given(
    st.lists(st.integers(-1000, 1000), min_size=1, max_size=60),
    st.sampled_from([1, 5, 50, 90, 99, 99.9, 100]),
    st.sampled_from(["symmetric", "asymmetric", "symmetric_unsigned"]),
)
def test_percentile_is_the_order_statistic(values: list[int], p: float, symmetry: str) -> None:
    ascending = sorted(values)
    share = (100 - Fraction(str(p))) / 100
    low, high = ascending[0], ascending[-1]
    if symmetry == "asymmetric" and low < 0 < high:
        cut = math.floor(len(values) * share / 2)
        expected = (ascending[cut], ascending[len(values) - 1 - cut])
    else:
        threshold = sorted(abs(v) for v in values)[
            len(values) - 1 - math.floor(len(values) * share)
        ]
        expected = (max(low, -threshold), min(high, threshold))
    method = get_range_method(f"percentile({p})")
    kind = QParamsKind(QType.parse("int8"), symmetry)  # type: ignore[arg-type]
    array = np.array(values, np.float32)
    alone = method.of_distribution(Distribution.of(array), kind)
    row = method.of_rows(array[None], kind)
    assert (float(alone.low), float(alone.high)) == expected
    assert (row.low[0], row.high[0]) == expected


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_percentile_100_is_min_and_max(kind: QParamsKind) -> None:
    for values in tensors().values():
        for distribution in (Distribution.of(values), Statistics.of(values).distribution()):
            found = get_range_method("percentile(100)").of_distribution(distribution, kind)
            assert (float(found.low), float(found.high)) == (
                float(values.min()),
                float(values.max()),
            )
        rows = get_range_method("percentile(100)").of_rows(values[None], kind)
        assert rows == get_range_method("minmax").of_rows(values[None], kind)


def test_percentile_counts_decimals_as_they_are_written() -> None:
    values = np.arange(-1000, 1000, dtype=np.float32) + 0.5
    found = get_range_method("percentile(99.9)").of_distribution(Distribution.of(values), REAL[1])
    assert (float(found.low), float(found.high)) == (-998.5, 998.5)


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.floats(-10, 0), st.floats(0, 10)), min_size=1, max_size=12),
    st.floats(0.01, 1),
)
@example([(-1.5, 0.0), (0.0, 0.0)], 0.99999)
@example([(0.0, 5e-324), (0.0, 1.5e-323)], 0.3)
def test_moving_average_replays_the_samples(
    extremes: list[tuple[float, float]], constant: float
) -> None:
    lows, highs = np.array(extremes).T
    distribution = Distribution(
        float(lows.min()),
        float(highs.max()) + 1,
        np.array([0.0]),
        np.array([3]),
        lows.copy(),
        highs.copy(),
    )
    found = get_range_method(f"moving_average({constant!r})").of_distribution(distribution, REAL[0])
    for end, series in ((found.low, lows), (found.high, highs)):
        average = Fraction(float(series[0]))
        for value in series[1:]:
            average += Fraction(constant) * (Fraction(float(value)) - average)
        # each step rounds three times: by half a bit of what it adds up, or of the smallest number
        # there is
        half_a_bit = Fraction(float(np.abs(series).max())) / 2**53 + Fraction(1, 2**1075)
        rounding = 3 * len(series) * half_a_bit
        assert abs(Fraction(float(end)) - average) <= rounding


def test_moving_average_starts_exactly_and_passes_over_samples_without_numbers() -> None:
    nothing = np.inf
    lows, highs = np.array([nothing, -1.0, -3.0]), np.array([-nothing, 2.0, 4.0])
    distribution = Distribution(-3.0, 4.0, np.array([0.0]), np.array([1]), lows, highs)
    found = get_range_method("moving_average").of_distribution(distribution, REAL[0])
    assert (float(found.low), float(found.high)) == (-1 + 0.01 * -2, 2 + 0.01 * 2)
    last = get_range_method("moving_average(1)").of_distribution(distribution, REAL[0])
    assert (float(last.low), float(last.high)) == (-3, 4)
    without = Distribution(-3.0, 4.0, np.array([0.0]), np.array([1]))
    assert float(get_range_method("moving_average").of_distribution(without, REAL[0]).high) == 4


def test_sigma_is_the_mean_and_its_surroundings() -> None:
    for values in tensors(200).values():
        mean = statistics.fmean(values.tolist())
        deviation = statistics.pstdev(values.astype(float).tolist())
        for k in (0.5, 1.0, 3.0):
            found = get_range_method(f"sigma({k})").of_distribution(
                Distribution.of(values), REAL[0]
            )
            assert float(found.low) == pytest.approx(
                max(mean - k * deviation, values.min()), rel=1e-9
            )
            assert float(found.high) == pytest.approx(
                min(mean + k * deviation, values.max()), rel=1e-9
            )


def divergence_by_loops(histogram: list[int], first: int, last: int, edges: list[int]) -> float:
    """KL(P‖Q) of one window, bin by bin, from the definition; 1e-4 is the sum of a group that
    has saturated alone.
    """
    p = list(map(float, histogram[first : last + 1]))
    p[0] += sum(histogram[:first])
    p[-1] += sum(histogram[last + 1 :])
    q = [0.0] * len(p)
    for start, end in itertools.pairwise(edges):
        inside = range(start - first, end - first)
        filled = [i for i in inside if p[i] > 0]
        for i in filled:
            q[i] = (sum(histogram[start:end]) or 1e-4) / len(filled)
    if not sum(histogram[first : last + 1]):
        return math.inf
    return sum(
        a / sum(p) * math.log(a / sum(p) * sum(q) / b) for a, b in zip(p, q, strict=True) if a > 0
    )


@settings(max_examples=60)
@given(st.lists(st.integers(0, 9), min_size=12, max_size=40), st.integers(2, 8), st.data())
def test_divergences_of_windows_are_those_of_loops(
    histogram: list[int], groups: int, data: st.DataObject
) -> None:
    if not sum(histogram):
        return
    first = data.draw(st.integers(0, len(histogram) - groups - 1))
    last = data.draw(st.integers(first + groups - 1, len(histogram) - 1))
    edges = even_edges(np.array([first]), np.array([last]), groups)
    assert edges[0, 0] == first
    assert edges[0, -1] == last + 1
    sums = WindowSums.of(np.array(histogram))
    got = float(divergences(sums, np.array([first]), np.array([last]), groups)[0])
    assert got == pytest.approx(
        divergence_by_loops(histogram, first, last, edges[0].tolist()), rel=1e-9, abs=1e-12
    )


def divergence_of_range(
    values: np.ndarray, kind: QParamsKind, low: float, high: float, bins: int
) -> float:
    """The divergence that the entropy method weighs when it takes [low, high], recomputed from
    raw values by loops.
    """
    nonzero = values[values != 0].astype(np.float64)
    start, end = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
    groups = kind.code_count
    mirrored = kind.symmetry == "symmetric" or (kind.symmetry == "symmetric_unsigned" and start < 0)
    if mirrored or not start < 0 < end:
        groups = kind.qmax - kind.qtype.middle + 1 if mirrored else kind.code_count
        nonzero, start, end = np.abs(nonzero), 0.0, max(-start, end)
        low, high = 0.0, max(-low, high)
    width = (end - start) / bins
    histogram = np.bincount(
        np.clip(((nonzero - start) / width).astype(int), 0, bins - 1), minlength=bins
    ).tolist()
    first, last = round((low - start) / width), round((high - start) / width) - 1
    edges = even_edges(np.array([first]), np.array([last]), groups)[0].tolist()
    return divergence_by_loops(histogram, first, last, edges)


@pytest.mark.parametrize("kind", [k for k in REAL if k.qtype.bits == 4], ids=str)
def test_entropy_takes_the_least_of_all_windows(kind: QParamsKind) -> None:
    for name, values in tensors(4000).items():
        if name == "few" or (kind.symmetry == "asymmetric" and values.min() < 0 < values.max()):
            continue
        bins = 90
        found = get_range_method(f"entropy({bins})").of_distribution(Distribution.of(values), kind)
        got = divergence_of_range(values, kind, float(found.low), float(found.high), bins)
        largest = float(np.abs(values).max())
        groups = (
            kind.qmax - kind.qtype.middle + 1 if kind.symmetry == "symmetric" else kind.code_count
        )
        thresholds = [i / bins * largest for i in range(groups, bins + 1)]
        ranges = [(-t, 0.0) if values.max() <= 0 else (0.0, t) for t in thresholds]
        every = [divergence_of_range(values, kind, *ends, bins) for ends in ranges]
        assert got == pytest.approx(min(every), rel=1e-9, abs=1e-12), name


@settings(max_examples=30)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(["gauss", "laplace", "t2"]),
    st.sampled_from([0, 1, 3]),
    st.data(),
)
def test_entropy_never_misses_its_own_least(
    seed: int, name: str, outliers: int, data: st.DataObject
) -> None:
    """Every window of the search by scalar loops:
    first 8 of 15 sets with outliers ended above the least.
    """
    rng = np.random.RandomState(seed)
    draws = {
        "gauss": rng.standard_normal,
        "laplace": lambda n: rng.laplace(size=n),
        "t2": lambda n: rng.standard_t(2, n),
    }
    far = rng.uniform(10, 90, outliers) * rng.choice([-1, 1], outliers)
    values = np.append(draws[name](400), far).astype(np.float32)
    kind, bins = data.draw(st.sampled_from([REAL[3], REAL[4], REAL[5]])), 120
    found = get_range_method(f"entropy({bins})").of_distribution(Distribution.of(values), kind)
    got = divergence_of_range(values, kind, float(found.low), float(found.high), bins)
    if kind.symmetry == "symmetric":
        largest = float(np.abs(values).max())
        ends = [
            (0.0, i / bins * largest) for i in range(kind.qmax - kind.qtype.middle + 1, bins + 1)
        ]
    else:
        ends = list(shrinking(values, kind.code_count, bins))
    every = [divergence_of_range(values, kind, *window, bins) for window in ends]
    assert got == pytest.approx(min(every), rel=1e-9, abs=1e-12)


def shrinking(values: np.ndarray, least: int, bins: int) -> Iterator[tuple[float, float]]:
    """The ranges of an asymmetric search: each without the cheaper end of the one before,
    never past zero.
    """
    low, high = float(values.min()), float(values.max())
    width = (high - low) / bins
    counts = np.bincount(
        np.clip(((values - low) / width).astype(int), 0, bins - 1), minlength=bins
    ).tolist()
    first, last, zero = 0, bins - 1, min(int(-low / (high - low) * bins), bins - 1)
    yield low, high
    while last - first + 1 > least:
        if last == zero or (first < zero and counts[first] <= counts[last]):
            first += 1
        else:
            last -= 1
        yield low + first * width, low + (last + 1) * width


def test_one_outlier_does_not_hold_the_range_of_entropy() -> None:
    values = np.append(np.random.RandomState(3).standard_normal(50_000), 90.0).astype(np.float32)
    for kind in REAL[:3]:
        assert (
            float(get_range_method("entropy").of_distribution(Distribution.of(values), kind).high)
            < 12
        )


@pytest.mark.parametrize("kind", REAL[:3], ids=str)
def test_entropy_differs_from_min_and_max_on_heavy_tails(kind: QParamsKind) -> None:
    values = np.random.RandomState(1).standard_t(2.5, size=200_000).astype(np.float32)
    for sign in (values, np.abs(values)) if kind.symmetry != "asymmetric" else (np.abs(values),):
        found = get_range_method("entropy").of_distribution(Distribution.of(sign), kind)
        assert found.low <= 0 <= found.high
        assert found.high < 0.7 * np.abs(sign).max()
        assert found.high > 5
        whole = divergence_of_range(sign, kind, min(sign.min(), 0), sign.max(), 2048)
        assert (
            divergence_of_range(sign, kind, float(found.low), float(found.high), 2048) < 0.5 * whole
        )


def test_zeros_say_nothing_to_entropy() -> None:
    values = np.abs(np.random.RandomState(1).standard_normal(20_000)).astype(np.float32)
    method, kind = get_range_method("entropy"), REAL[2]
    alone = method.of_distribution(Distribution.of(values), kind)
    among = method.of_distribution(
        Distribution.of(np.append(values, np.zeros(20_000, np.float32))), kind
    )
    assert alone.high == among.high


@pytest.mark.slow_but(2)
@pytest.mark.parametrize("kind", REAL[:5], ids=str)
def test_a_profile_tells_what_raw_values_tell(kind: QParamsKind) -> None:
    """Cells of ten mantissa bits in place of values: what is found is as good on the raw ones,
    within 0.2 percent.
    """
    for name, values in tensors(60_000).items():
        raw, cells = Distribution.of(values), Statistics.of(values).distribution()
        if name not in {"few", "outlier"}:
            assert len(cells.points) < len(raw.points)
        for text in ("percentile(99)", "percentile(99.9)"):
            a, b = (get_range_method(text).of_distribution(d, kind) for d in (raw, cells))
            size = 2e-3 * float(a.high - a.low)
            assert float(b.low) == pytest.approx(float(a.low), abs=size)
            assert float(b.high) == pytest.approx(float(a.high), abs=size)
        for text, exponent in (("mse", 2.0), ("lp", 2.4)):
            a, b = (get_range_method(text).of_distribution(d, kind) for d in (raw, cells))
            errors = [error(values, kind, float(i.low), float(i.high), exponent) for i in (a, b)]
            assert errors[1] <= 1.002 * errors[0], (name, text)


@pytest.mark.slow_but(1)
@pytest.mark.parametrize("symmetry", ["symmetric", "asymmetric"])
@pytest.mark.parametrize(
    ("qtype", "bins", "within"), [("int4", 512, 0.0), ("int8", 512, 0.015), ("int8", 2048, 0.006)]
)
def test_entropy_of_a_profile_is_as_good(
    symmetry: str, qtype: str, bins: int, within: float
) -> None:
    """A profile's range loses at most ``within`` more than the least over the raw values; at 4
    bits it is the same.

    Around its least the divergence of 8 bits is flat where tails are light: the float bins of a
    profile move single counts between the bins of the search, and with them the position of the
    least. Heavy tails give the same range.
    """
    kind = QParamsKind(QType.parse(qtype), symmetry)  # type: ignore[arg-type]
    for name in ("gauss", "heavy", "relu"):
        values = tensors(400_000)[name]
        a, b = (
            get_range_method(f"entropy({bins})").of_distribution(d, kind)
            for d in (Distribution.of(values), Statistics.of(values).distribution())
        )
        found = [
            divergence_of_range(values, kind, float(i.low), float(i.high), bins) for i in (a, b)
        ]
        assert found[1] == pytest.approx(
            found[0], rel=0.0 if name == "heavy" else within, abs=1e-15
        ), name


def test_bins_narrower_than_cells_are_filled_evenly() -> None:
    """Uniform values, of which every cell holds hundreds,
    in bins a quarter as wide as the widest cells.
    """
    values = np.random.RandomState(0).uniform(-1.9, 1.9, size=600_000).astype(np.float32)
    cells, raw = Statistics.of(values).distribution(), Distribution.of(values)
    found, exact = (d.equal_width(8001, -1.9, 1.9) for d in (cells, raw))
    assert found.sum() == exact.sum() == 600_000
    assert found.min() > 0
    assert np.abs(np.cumsum(found) - np.cumsum(exact)).max() <= 0.002 * 600_000
    # A spike at the start of its cell, as a clip makes it, stays one bin.
    spike = Statistics.of(
        np.append(np.full(1000, 1.5), [0.0, 1.9]).astype(np.float32)
    ).distribution()
    assert spike.equal_width(8001, 0.0, 1.9).max() == 1000


@pytest.mark.slow
@pytest.mark.parametrize("text", ["mse", "lp", "percentile"])
def test_rows_of_a_large_network_are_searched_each_for_itself(text: str) -> None:
    """25 million elements in 26 thousand rows, as ResNet-50 has them."""
    rows = np.random.default_rng(0).normal(size=(26_000, 960)).astype(np.float32)
    every = get_range_method(text).of_rows(rows, REAL[0])
    few = get_range_method(text).of_rows(rows[::1000], REAL[0])
    assert np.array_equal(every.low[::1000], few.low)
    assert np.array_equal(every.high[::1000], few.high)
