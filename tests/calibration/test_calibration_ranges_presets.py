"""The rules of others: against scalar computations from their descriptions, ONNX Runtime, and
torch.

The expected ranges of torch were made with torch 2.13.0 on one thread:
``HistogramObserver(bins=2048, dtype=torch.quint8)`` saw the tensor once, then
``_non_linear_param_search()``.
"""

import itertools
import math

import numpy as np
import pytest
from onnxruntime.quantization.calibrate import HistogramCollector

from qbench.calibration import Distribution, Statistics, get_range_method
from qbench.calibration.ranges.glow import rescaled
from qbench.calibration.ranges.tvm import Curve
from qbench.numerics import QParamsKind, QType

INT8 = QParamsKind(QType.parse("int8"), "symmetric")
UINT8 = QParamsKind(QType.parse("uint8"), "asymmetric")
SYMU8 = QParamsKind(QType.parse("uint8"), "symmetric_unsigned")
INT4 = QParamsKind(QType.parse("int4"), "symmetric")
UINT4 = QParamsKind(QType.parse("uint4"), "asymmetric")


def tensor(name: str, seed: int, count: int = 20_000) -> np.ndarray:
    rng = np.random.RandomState(seed)
    made = {
        "gauss": lambda: rng.standard_normal(count),
        "laplace": lambda: rng.laplace(size=count),
        "t3": lambda: rng.standard_t(3, size=count),
        "relu": lambda: np.maximum(rng.standard_normal(count), 0),
        "uniform": lambda: rng.uniform(-1, 3, size=count),
        "outlier": lambda: np.append(rng.standard_normal(count), 50.0),
        "shifted": lambda: rng.standard_normal(count) + 6,
    }
    return made[name]().astype(np.float32)


NAMES = ("gauss", "laplace", "t3", "relu", "uniform", "outlier", "shifted")


# --- torch ---

TORCH = {
    ("gauss", 0): (-4.446632385253906, 3.596259117126465),
    ("gauss", 1): (-3.656440019607544, 4.026755332946777),
    ("laplace", 0): (-8.839471817016602, 9.476339340209961),
    ("laplace", 1): (-9.269471168518066, 8.005719184875488),
    ("t3", 0): (-130.2340850830078, 25.470367431640625),
    ("t3", 1): (-26.575096130371094, 27.76919174194336),
    ("relu", 0): (0.0, 3.5974695682525635),
    ("relu", 1): (0.0, 4.0256524085998535),
    ("uniform", 0): (-0.999710202217102, 2.9979586601257324),
    ("outlier", 1): (-3.656440019607544, 49.97380065917969),
    ("shifted", 0): (1.5533677339553833, 9.596259117126465),
}


@pytest.mark.parametrize(("name", "seed"), TORCH)
@pytest.mark.parametrize("profiled", [False, True])
def test_torch_histogram_ends_where_torch_does(name: str, seed: int, profiled: bool) -> None:
    values = tensor(name, seed)
    seen = Statistics.of(values).distribution() if profiled else Distribution.of(values)
    found = get_range_method("torch_histogram").of_distribution(seen, UINT8)
    low, high = TORCH[name, seed]
    assert float(found.low) == pytest.approx(low, abs=0.02 * (high - low))
    assert float(found.high) == pytest.approx(high, abs=0.02 * (high - low))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_torch_histogram_against_torch_itself(name: str) -> None:
    torch = pytest.importorskip("torch")
    observers = pytest.importorskip("torch.ao.quantization.observer")
    values = tensor(name, 7)
    observer = observers.HistogramObserver(bins=2048, dtype=torch.quint8)
    observer(torch.from_numpy(values))
    low, high = map(float, observer._non_linear_param_search())
    found = get_range_method("torch_histogram").of_distribution(Distribution.of(values), UINT8)
    assert float(found.low) == pytest.approx(low, abs=0.02 * (high - low))
    assert float(found.high) == pytest.approx(high, abs=0.02 * (high - low))


# --- ONNX Runtime ---


def by_onnxruntime(
    values: np.ndarray, method: str, symmetric: bool, bins: int, levels: int, p: float
) -> list[float]:
    collector = HistogramCollector(method, symmetric, bins, levels, p, "same")
    collector.collect({"x": [values]})
    low, high = collector.compute_collection_result()["x"][:2]
    return [min(float(low), 0.0), max(float(high), 0.0)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("p", "bins"), [(99.999, 2048), (99, 2048), (90, 300), (100, 64)])
def test_ort_percentile_is_that_of_onnxruntime(name: str, p: float, bins: int) -> None:
    values = tensor(name, 3)
    found = get_range_method(f"ort_percentile({p}, {bins})").of_distribution(
        Distribution.of(values), UINT8
    )
    expected = by_onnxruntime(values, "percentile", True, bins, 128, p)
    assert [float(found.low), float(found.high)] == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow_but(7)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("bins", "levels"), [(128, 128), (300, 128), (301, 30)])
def test_ort_entropy_is_that_of_onnxruntime(name: str, bins: int, levels: int) -> None:
    values = tensor(name, 3)
    found = get_range_method(f"ort_entropy({bins}, {levels})").of_distribution(
        Distribution.of(values), UINT8
    )
    expected = by_onnxruntime(values, "entropy", False, bins, levels, 0)
    got = [min(float(found.low), 0.0), max(float(found.high), 0.0)]
    assert got == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_ort_entropy_by_default_is_min_and_max() -> None:
    values = tensor("t3", 4)
    found = get_range_method("ort_entropy").of_distribution(Distribution.of(values), UINT8)
    assert found == get_range_method("minmax").of_distribution(Distribution.of(values), UINT8)


# --- MXNet's divergence, in plain Python ---


def divergence_by_loops(
    histogram: list[int],
    first: int,
    last: int,
    groups: int,
    skips_first: bool = False,
    real: type = float,
) -> float:
    """Smoothed KL of one window, bin by bin as in C++, in ``real``;
    NaN stands for a window without counts.
    """
    p = [real(count) for count in histogram[first : last + 1]]
    window = list(p)
    p[0] = p[0] + real(sum(histogram[:first]))
    p[-1] = p[-1] + real(sum(histogram[last + 1 :]))
    if skips_first:
        window[0] = real(0)
    width = len(p) // groups
    q = [real(0)] * len(p)
    for group in range(groups):
        start = group * width
        end = len(p) if group == groups - 1 else start + width
        filled = sum(count != 0 for count in window[start:end])
        for i in range(start, end):
            if filled and p[i] != 0:
                q[i] = real(sum(window[start:end])) / real(filled)
    if not any(q):
        return math.nan
    smoothed = []
    for values in (p, q):
        empty = sum(v == 0 for v in values)
        part = real(1e-4) * real(empty) / real(len(values) - empty)
        smoothed.append([v - part if v else real(1e-4) for v in values])
    shares = []
    for values in smoothed:
        total = real(0)
        for v in values:
            total = total + v
        shares.append([v / total for v in values])
    found = real(0)
    for a, b in zip(*shares, strict=True):
        found = found + a * real(math.log(a / b))
    return float(found)


@pytest.mark.parametrize("name", ["gauss", "t3", "relu", "outlier"])
@pytest.mark.parametrize(("bins", "groups"), [(61, 7), (201, 15), (400, 255)])
@pytest.mark.parametrize("skips_first", [False, True])
def test_divergences_in_float32_are_those_of_loops(
    name: str, bins: int, groups: int, skips_first: bool
) -> None:
    """To the last bit: on a flat curve float32 decides which window is the least."""
    histogram = np.histogram(tensor(name, 2, 3000), bins)[0]
    curve = Curve(histogram, groups, skips_first=skips_first, of_empty=np.nan)
    half = (bins - groups) // 2
    for first, last in ((0, bins - 1), (0, groups + 4), (3, bins - 5), (half, half + groups)):
        expected = divergence_by_loops(
            histogram.tolist(), first, last, groups, skips_first, np.float32
        )
        assert curve.at(first, last) == pytest.approx(expected, rel=0, abs=0, nan_ok=True)
        exact = divergence_by_loops(histogram.tolist(), first, last, groups, skips_first)
        assert expected == pytest.approx(exact, rel=1e-4, abs=1e-5, nan_ok=True)


# --- TVM ---


def curve_of_tvm(values: np.ndarray, bins: int, groups: int) -> dict[float, float]:
    """Threshold → divergence in float64, of every window."""
    largest = float(np.abs(values).max())
    histogram = np.histogram(values, bins, range=(-largest, largest))[0].tolist()
    middle = bins // 2
    return {
        (2 * i + 1) / bins * largest: divergence_by_loops(
            histogram, middle - i, middle + i, groups, skips_first=True
        )
        for i in range(groups // 2, middle + 1)
    }


@pytest.mark.parametrize("name", ["gauss", "laplace", "t3", "relu", "uniform", "outlier"])
@pytest.mark.parametrize("kind", [INT4, UINT4], ids=str)
def test_tvm_kl_has_the_least_divergence(name: str, kind: QParamsKind) -> None:
    values = tensor(name, 6, 4000)
    unsigned = kind is UINT4 and name == "relu"
    curve = curve_of_tvm(values, 301, 31 if unsigned else 15)
    found = get_range_method("tvm_kl(301)").of_distribution(Distribution.of(values), kind)
    assert float(found.low) == (0.0 if name == "relu" else -float(found.high))
    nearest = min(curve, key=lambda threshold: abs(threshold - float(found.high)))
    assert float(found.high) == pytest.approx(nearest, rel=1e-9)
    finite = [value for value in curve.values() if not math.isnan(value)]
    assert curve[nearest] == pytest.approx(min(finite), rel=1e-4, abs=1e-6)


@pytest.mark.parametrize(("kind", "groups"), [(INT8, 255), (UINT8, 511)], ids=["255", "511"])
def test_tvm_kl_of_a_rectified_gaussian(kind: QParamsKind, groups: int) -> None:
    """The divergence at our threshold is the least of float64, to within the noise of float32."""
    values = tensor("relu", 10)
    curve = curve_of_tvm(values, 801, groups)
    for sample in (Distribution.of(values), Statistics.of(values).distribution()):
        found = float(get_range_method("tvm_kl(801)").of_distribution(sample, kind).high)
        nearest = min(curve, key=lambda threshold: abs(threshold - found))
        assert curve[nearest] == pytest.approx(min(curve.values()), rel=0.01)
        assert 0.5 * values.max() < found <= values.max()


def test_tvm_percentile_is_an_order_statistic() -> None:
    for name, p in itertools.product(NAMES, (50, 99, 99.999, 100)):
        values = tensor(name, 8, 5000)
        expected = np.sort(np.abs(values))[min(int(len(values) * (p / 100)), len(values) - 1)]
        found = get_range_method(f"tvm_percentile({p})").of_distribution(
            Distribution.of(values), INT8
        )
        assert float(found.high) == expected


def test_tvm_global_is_one_range_for_all() -> None:
    both, none_below = (
        Distribution.of(np.array([-0.1, 0.1])),
        Distribution.of(np.array([0.0, 100.0])),
    )
    found = get_range_method("tvm_global").of_distribution(both, INT8)
    assert (float(found.low), float(found.high)) == (-8, 8)
    found = get_range_method("tvm_global(4)").of_distribution(none_below, SYMU8)
    assert (float(found.low), float(found.high)) == (0, 4)
    assert float(INT8.choose(0.0, 8.0).scale) == float(INT8.choose(-8.0, 8.0).scale)


# --- TQT ---


def test_tqt_3sd_is_mean_and_three_deviations() -> None:
    for name in ("gauss", "shifted", "relu", "uniform"):
        values = tensor(name, 1).astype(np.float64)
        found = get_range_method("tqt_3sd").of_distribution(Distribution.of(values), INT8)
        assert float(found.high) == pytest.approx(abs(values.mean()) + 3 * values.std(), rel=1e-9)


def threshold_by_klj(values: np.ndarray, bins: int, levels: int) -> float:
    """KL-J from its description, bin by bin."""
    largest = float(np.abs(values).max())
    counts = np.histogram(np.abs(values), bins, range=(0, largest))[0].tolist()
    cumulative = [sum(counts[: i + 1]) / len(values) for i in range(bins)]
    best, least = 0, math.inf
    for last in range(levels + 1, bins):
        forced = [*cumulative[:last], *[1.0] * (bins - last)]
        kept = []
        for level in range(levels):
            place = level * last / (levels - 1)
            left = min(int(place), last - 1)
            kept.append(forced[left] + (place - left) * (forced[left + 1] - forced[left]))
        j = 0.0
        for i, p in enumerate(cumulative):
            q = 1.0
            if i < last:
                place = i * (levels - 1) / last
                left = min(int(place), levels - 2)
                q = kept[left] + (place - left) * (kept[left + 1] - kept[left])
            if p > 0 and q > 0:
                j += (p - q) * math.log2(p / q)
        if j < least - 1e-15:
            best, least = last, j
    return (best + 0.5) * largest / bins


@pytest.mark.parametrize("name", ["gauss", "laplace", "t3", "relu", "outlier"])
@pytest.mark.parametrize("bins", [64, 150])
def test_tqt_klj_is_that_of_its_description(name: str, bins: int) -> None:
    values = tensor(name, 9, 6000)
    found = get_range_method(f"tqt_klj({bins})").of_distribution(Distribution.of(values), INT4)
    levels = 16 if name == "relu" else 8
    assert float(found.high) == pytest.approx(threshold_by_klj(values, bins, levels), rel=1e-9)
    assert float(found.low) == (0.0 if name == "relu" else -float(found.high))


# --- Glow ---


def rescaled_by_loops(
    histogram: list[int], source: tuple[float, float], target: tuple[float, float]
) -> list[int]:
    """Every bin spread over the bins of ``target`` that it overlaps: shares rounded half away
    from zero, capped.
    """
    bins = len(histogram)
    narrow, wide = (source[1] - source[0]) / bins, (target[1] - target[0]) / bins
    found = [0] * bins
    for i, count in enumerate(histogram):
        left = count
        begin, end = source[0] + i * narrow, source[0] + (i + 1) * narrow
        for j in range(bins):
            overlap = min(end, target[0] + (j + 1) * wide) - max(begin, target[0] + j * wide)
            if overlap > 0 and left:
                share = min(math.floor(overlap / narrow * count + 0.5), left)
                found[j] += share
                left -= share
    return found


def glow_by_loops(values: np.ndarray, symmetric: bool, bins: int) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    histogram = np.histogram(values, bins)[0].tolist()
    if symmetric:
        step = max(min(low, 0.0) / -128, max(high, 0.0) / 127)
        wide = (-128 * step, 127 * step)
    else:
        wide = (min(low, 0.0), max(high, 0.0))
    h = rescaled_by_loops(histogram, (low, high), wide)
    width = (wide[1] - wide[0]) / bins
    first, last = 0, bins - 1
    least, best = math.inf, wide
    while last - first + 1 >= 255:
        found = divergence_by_loops(h, first, last, 255, real=np.float32)
        found = 0.0 if math.isnan(found) else found
        if found < least:
            least, best = found, (wide[0] + first * width, wide[0] + (last + 1) * width)
        both, left, right = h[first] + h[last], h[first] + h[first + 1], h[last] + h[last - 1]
        if symmetric or both <= min(left, right):
            first, last = first + 1, last - 1
        elif left <= right:
            first += 2
        else:
            last -= 2
    if symmetric:
        ratio = max(best[0] / wide[0], best[1] / wide[1])
        best = (wide[0] * ratio, wide[1] * ratio)
    return best


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gauss", "laplace", "t3", "relu", "uniform", "shifted"])
@pytest.mark.parametrize("kind", [INT8, UINT8], ids=["symmetric", "asymmetric"])
def test_glow_kl_is_that_of_its_description(name: str, kind: QParamsKind) -> None:
    values = tensor(name, 11)
    found = get_range_method("glow_kl(330)").of_distribution(Distribution.of(values), kind)
    low, high = glow_by_loops(values, kind is INT8, 330)
    assert float(found.low) == pytest.approx(low, abs=0.01 * (high - low))
    assert float(found.high) == pytest.approx(high, abs=0.01 * (high - low))


def test_glow_moves_a_histogram_as_described() -> None:
    rng = np.random.RandomState(0)
    histogram = rng.randint(0, 50, 40)
    for source, target in (
        ((-1.0, 2.0), (-2.5, 2.0)),
        ((0.5, 2.0), (0.0, 2.0)),
        ((-3.0, -1.0), (-3.0, 2.9765625)),
    ):
        moved = rescaled(histogram, source, target)
        assert moved.sum() == histogram.sum()
        assert moved.tolist() == rescaled_by_loops(histogram.tolist(), source, target)


@pytest.mark.slow
def test_glow_kl_is_symmetric_where_the_grid_is() -> None:
    values = np.concatenate([tensor("gauss", 1), [-30.0]]).astype(np.float32)
    for kind in (INT8, SYMU8):
        found = get_range_method("glow_kl").of_distribution(Distribution.of(values), kind)
        assert float(found.low) / float(found.high) == pytest.approx(-128 / 127)
        assert float(found.high) < 10
    unsigned = get_range_method("glow_kl").of_distribution(Distribution.of(np.abs(values)), SYMU8)
    assert float(unsigned.low) >= 0
