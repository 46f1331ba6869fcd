"""Range methods by name, their settings, bad input, and what they all have in common."""

import inspect
import re
import warnings
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from qbench.calibration import Distribution, Statistics, get_range_method
from qbench.calibration.ranges import FewBinsWarning, MinMax, RangeMethod, range_method_catalogue
from qbench.errors import InputError
from qbench.extension import Extension
from qbench.numerics import Interval, QParamsKind, QType

INT8 = QParamsKind(QType.parse("int8"), "symmetric")
UINT8 = QParamsKind(QType.parse("uint8"), "asymmetric")
KINDS = [
    INT8,
    UINT8,
    QParamsKind(QType.parse("uint8"), "symmetric_unsigned"),
    QParamsKind(QType.parse("int4"), "symmetric", narrow_range=True),
    QParamsKind(QType.parse("int4"), "asymmetric"),
    QParamsKind(QType.parse("int8"), "symmetric", scale_kind="pow2"),
    QParamsKind(QType.parse("uint4"), "asymmetric", scale_kind="pow2_nearest"),
]
NAMES = range_method_catalogue().names()


QUICK = {
    "fixed": "fixed(-1.5, 2.5)",
    "tvm_kl": "tvm_kl(601)",
    "glow_kl": "glow_kl(300)",
    "tqt_klj": "tqt_klj(300)",
}


def spelled(name: str) -> str:
    """With the settings that it needs, and bins that suffice for 8 bits but do not take long."""
    return QUICK.get(name, name)


def test_minmax_is_what_was_seen() -> None:
    seen = MinMax().of_distribution(Statistics.of(np.array([-1.5, 0.25, 3])).distribution(), INT8)
    assert (float(seen.low), float(seen.high)) == (-1.5, 3)
    rows = MinMax().of_rows(np.array([[1, -2], [0, 5]], np.float32), INT8)
    assert rows.low.tolist() == [-2, 0]
    assert rows.high.tolist() == [1, 5]


def test_the_methods_there_are() -> None:
    asked = {"minmax", "moving_average", "percentile", "entropy", "mse", "lp", "sigma", "fixed"}
    presets = {
        "glow_kl",
        "tvm_kl",
        "tvm_global",
        "tvm_percentile",
        "tqt_klj",
        "tqt_3sd",
        "torch_histogram",
    }
    assert set(NAMES) == asked | presets | {"ort_percentile", "ort_entropy"}


def test_an_unknown_method_is_told_the_nearest() -> None:
    with pytest.raises(InputError, match="Did you mean 'minmax'"):
        get_range_method("maxmin")


@pytest.mark.parametrize("name", NAMES)
def test_a_method_spells_itself(name: str) -> None:
    method = get_range_method(spelled(name))
    assert isinstance(method, RangeMethod)
    assert get_range_method(str(method)) == method
    assert str(method).split("(")[0] == name


numbers = st.floats(0.1, 99.0) | st.integers(1, 99)


@given(numbers, numbers, st.integers(2, 4000))
def test_any_settings_are_read_back(a: float, b: float, bins: int) -> None:
    spellings = [
        f"percentile({a!r})",
        f"sigma(k={a!r})",
        f"lp({a!r})",
        f"fixed({-a!r}, {b!r})",
        f"fixed(low={-a!r},high={b})",
    ]
    spellings += [
        f"entropy({bins})",
        f"tvm_kl(bins={2 * bins + 1})",
        f"ort_percentile({a!r}, bins={bins})",
    ]
    for text in (*spellings, f"moving_average({a / 100!r})", f"tvm_global({b!r})"):
        method = get_range_method(text)
        assert get_range_method(str(method)) == method


def test_settings_arrive() -> None:
    assert get_range_method("percentile(99.9)").p == 99.9  # type: ignore[attr-defined]
    assert get_range_method(" sigma( k = 2 ) ").k == 2  # type: ignore[attr-defined]
    assert get_range_method("fixed(-1, 6)").high == 6  # type: ignore[attr-defined]
    assert get_range_method("lp(2)") != get_range_method("lp")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("percentile(0)", "p = 0, which is not in"),
        ("percentile(100.1)", "p = 100.1"),
        ("percentile(1, 2)", "too many positional"),
        ("sigma(-1)", "k = -1, which is not positive"),
        ("sigma(nan)", "k = nan"),
        ("sigma(j=3)", "unexpected keyword argument 'j'"),
        ("sigma(k=1, k=2)", "'k' twice"),
        ("sigma(three)", "the setting 'three'; expected numbers"),
        ("lp(0)", "p = 0, which is not in"),
        ("fixed(3, 1)", "low = 3, which is not at most high = 1"),
        ("fixed(-inf, 1)", "low = -inf, which is not finite"),
        ("fixed", "missing a required argument: 'low'"),
        ("fixed(1)", "missing a required argument: 'high'"),
        ("minmax(3)", "takes \\(none\\)"),
        ("moving_average(0)", "constant = 0"),
        ("moving_average(1.5)", "constant = 1.5"),
        ("entropy(1)", "bins = 1, which is not a whole number of at least 2"),
        ("entropy(2.5)", "bins = 2.5"),
        ("tvm_kl(8000)", "bins = 8000, which is not an odd number"),
        ("tvm_kl(20001)", "bins = 20001"),
        ("tvm_global(0)", "scale = 0"),
        ("tvm_percentile(0)", "p = 0"),
        ("tqt_3sd(0)", "k = 0"),
        ("tqt_klj(0)", "bins = 0"),
        ("glow_kl(10000)", "bins = 10000"),
        ("torch_histogram(1)", "bins = 1"),
        ("ort_percentile(101)", "p = 101"),
        ("ort_entropy(128, 1)", "levels = 1"),
        ("Percentile(99)", "no name with settings in brackets"),
        ("percentile(99", "no name with settings in brackets"),
        ("", "no name with settings in brackets"),
    ],
)
def test_bad_settings_are_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as caught:
        get_range_method(text)
    assert f"Reading the range method '{text}'" in str(caught.value)


class TheirMethod:
    def __init__(self, share: float = 0.5) -> None:
        self.share = share

    def of_distribution(self, distribution: Distribution, kind: QParamsKind) -> Interval:
        return Interval(
            np.asarray(distribution.low * self.share), np.asarray(distribution.high * self.share)
        )

    def of_rows(self, rows: np.ndarray, kind: QParamsKind) -> Interval:
        return Interval(rows.min(axis=1) * self.share, rows.max(axis=1) * self.share)


def test_an_extension_gives_a_value_or_a_maker() -> None:
    theirs = Extension(
        name="x",
        range_methods={
            "half": TheirMethod,
            "share": lambda: TheirMethod,
            "wrong": lambda: lambda: 3,
        },
    )
    seen = Distribution.of(np.array([-2.0, 4.0]))
    assert float(get_range_method("half", [theirs]).of_distribution(seen, INT8).high) == 2
    assert float(get_range_method("share(0.25)", [theirs]).of_distribution(seen, INT8).high) == 1
    assert float(get_range_method("share", [theirs]).of_distribution(seen, INT8).low) == -1
    with pytest.raises(InputError, match="takes none"):
        get_range_method("half(0.25)", [theirs])
    with pytest.raises(InputError, match="'x' makes a int of it; expected a range method"):
        get_range_method("wrong", [theirs])
    with pytest.raises(InputError, match="one owner per name"):
        range_method_catalogue([Extension(name="y", range_methods={"mse": TheirMethod})])


def distributions() -> dict[str, Distribution]:
    return {
        "zeros": Distribution.of(np.zeros(7)),
        "one": Distribution.of(np.array([2.5])),
        "minus": Distribution.of(np.full(4, -3.0)),
        "two": Distribution.of(np.array([-1.0, 5.0])),
        "three": Distribution.of(np.array([-1.0, 0.0, 0.0, 5.0])),
        "far": Distribution.of(np.array([100.0, 100.5, 101.0])),
        "below": Distribution.of(np.array([-7.0, -6.5, -6.0])),
        "tiny": Distribution.of(np.array([-1e-38, 3e-38])),
        "huge": Distribution.of(np.array([-3e38, 1e38, 3e38])),
    }


@pytest.mark.slow_but(19)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_degenerate_tensors_have_a_range_and_a_grid(name: str, kind: QParamsKind) -> None:
    method = get_range_method(spelled(name))
    for what, distribution in distributions().items():
        found = method.of_distribution(distribution, kind)
        assert found.low.shape == () == found.high.shape, what
        assert found.low <= found.high, what
        assert kind.choose(found.low, found.high).scale > 0, what


KEEP_EXTREMES = ["minmax", "moving_average", "percentile", "mse", "lp", "entropy", "sigma"]


@pytest.mark.slow_but(19)
@pytest.mark.parametrize("name", KEEP_EXTREMES)
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("value", [0.0, 2.5, -3.0])
def test_of_a_constant_nothing_is_lost(name: str, kind: QParamsKind, value: float) -> None:
    method = get_range_method(name)
    zero = Interval(np.asarray(0.0), np.asarray(0.0))
    found = method.of_distribution(Distribution.of(np.full(50, value)), kind).union(zero)
    seen = Interval(np.asarray(value), np.asarray(value)).union(zero)
    if kind.scale_kind == "real":
        assert found == seen
    else:
        assert found.low <= seen.low
        assert found.high >= seen.high


@pytest.mark.slow_but(19)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_rows_agree_with_distributions(name: str, kind: QParamsKind) -> None:
    rng = np.random.default_rng(3)
    rows = rng.standard_t(3, size=(9, 41)).astype(np.float32)
    rows[1], rows[2], rows[3], rows[4], rows[5] = (
        np.abs(rows[1]),
        -np.abs(rows[2]),
        0,
        1.5,
        rows[5] * 1e30,
    )
    method = get_range_method(spelled(name))
    whole = method.of_rows(rows, kind)
    assert whole.low.shape == whole.high.shape == (9,)
    for i, row in enumerate(rows):
        alone = method.of_distribution(Distribution.of(row), kind)
        if name in {"mse", "lp"}:
            exponent = 2.0 if name == "mse" else 2.4
            errors = [
                (np.abs(_represented(row, kind, low, high) - row / _largest(row)) ** exponent).sum()
                for low, high in ((whole.low[i], whole.high[i]), (alone.low, alone.high))
            ]
            assert errors[0] == pytest.approx(errors[1], rel=1e-3, abs=1e-12)
        else:
            size = 1e-12 * _largest(row)
            assert whole.low[i] == pytest.approx(float(alone.low), rel=1e-12, abs=size)
            assert whole.high[i] == pytest.approx(float(alone.high), rel=1e-12, abs=size)


def _largest(row: np.ndarray) -> float:
    return float(np.abs(row.astype(np.float64)).max()) or 1.0


def _represented(row: np.ndarray, kind: QParamsKind, low: float, high: float) -> np.ndarray:
    """Fake-quantized, in float64, in units of the largest magnitude."""
    grid = kind.choose(low, high)
    scale, point = float(grid.scale), int(grid.zero_point)
    levels = np.clip(np.rint(row.astype(np.float64) / scale) + point, kind.qmin, kind.qmax)
    return (levels - point) * scale / _largest(row)


@pytest.mark.parametrize("name", NAMES)
def test_no_rows(name: str) -> None:
    found = get_range_method(spelled(name)).of_rows(np.zeros((0, 5), np.float32), INT8)
    assert found.low.shape == found.high.shape == (0,)


@settings(max_examples=60)
@given(
    st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=30),
    st.sampled_from(KINDS),
    st.sampled_from(
        [
            "percentile(90)",
            "sigma(1)",
            "mse",
            "lp(1)",
            "entropy(64)",
            "torch_histogram(32)",
            "ort_percentile",
        ]
    ),
)
def test_ranges_stay_inside_what_was_seen(
    values: list[float], kind: QParamsKind, text: str
) -> None:
    distribution = Distribution.of(np.array(values, np.float32))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewBinsWarning)
        found = get_range_method(text).of_distribution(distribution, kind)
    slack = 1e-9 * distribution.absmax
    if kind.scale_kind == "real":
        assert found.low >= min(distribution.low, 0.0) - slack
        assert found.high <= max(distribution.high, 0.0) + slack


def test_text_of_warnings() -> None:
    sixteen = QParamsKind(QType.parse("int16"), "asymmetric")
    values = Distribution.of(np.linspace(-1, 2, 50))
    for text in ("entropy", "tvm_kl", "tqt_klj"):
        with pytest.warns(
            FewBinsWarning, match=f"'{text}.*fewer|'{text}.*found .* bins; expected at least the"
        ):
            found = get_range_method(text).of_distribution(values, sixteen)
        assert float(found.high) == 2
    with pytest.warns(FewBinsWarning, match="found 10 bins; expected at least the 255 groups"):
        assert float(get_range_method("glow_kl(10)").of_distribution(values, UINT8).high) == 2
    with pytest.warns(FewBinsWarning, match="found 64 bins; expected at least the 128 groups"):
        assert float(get_range_method("ort_entropy(64)").of_distribution(values, UINT8).high) == 2


DOCUMENT = Path(__file__).parents[2] / "docs" / "ranges.md"


def test_the_document_lists_the_methods_with_their_settings_and_defaults() -> None:
    rows = re.findall(
        r"^\| `([a-z0-9_]+)(?:\(([^)]*)\))?` \| ([^|]*) \|",
        DOCUMENT.read_text("utf8"),
        re.MULTILINE,
    )
    assert sorted(name for name, _, _ in rows) == list(NAMES)
    for name, settings_named, defaults in rows:
        made = range_method_catalogue().get(name)
        parameters = inspect.signature(made).parameters  # type: ignore[arg-type]
        assert [*filter(None, settings_named.split(", "))] == list(parameters), name
        known = [p.default for p in parameters.values() if p.default is not inspect.Parameter.empty]
        assert [float(number) for number in re.findall(r"[0-9.]+", defaults)] == known, name
