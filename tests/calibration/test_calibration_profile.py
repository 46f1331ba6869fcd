"""Profiles do not depend on batch size, order or splitting, bit for bit;
and say what they are of.
"""

import functools
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbench.backends import get_backend
from qbench.calibration import (
    PROFILE_VERSION,
    Histogram,
    Profile,
    Statistics,
    calibrate,
    data_of,
    prepare_watch,
    units_of,
    watched_values,
)
from qbench.errors import InputError
from qbench.passes import canonicalize

Array = np.ndarray[Any, Any]

MODEL = ir.from_onnx_text("""<ir_version: 10, opset_import: ["" : 21]>
subject (float[N,3] x) => (float[N,3] z)
<float[3,3] w = {1.0, 0.5, -2.0, 0.25, -1.0, 4.0, 1.0, 1.0, -0.5}, float[3] b = {0.5, -0.25, 1.0}> {
  p = MatMul(x, w)
  s = Add(p, b)
  y = Relu(s)
  n = Neg(y)
  z = Softmax(n)
}""")


class Exact:
    """Runs MODEL in float64 on dyadic inputs, so that no batch size changes a bit."""

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        w = np.array([[1.0, 0.5, -2.0], [0.25, -1.0, 4.0], [1.0, 1.0, -0.5]])
        y = np.maximum(feeds["x"].astype(np.float64) @ w + [0.5, -0.25, 1.0], 0).astype(np.float32)
        return {"y": y, "n": -y, "z": np.exp(-y) / 4, "s": y}

    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


def batches(x: Array, size: int) -> list[dict[str, Array]]:
    return [{"x": x[i : i + size]} for i in range(0, len(x), size)]


dyadic = st.integers(-64, 64).map(lambda n: n / 16)
tables = st.lists(st.tuples(dyadic, dyadic, dyadic), min_size=1, max_size=12).map(
    lambda r: np.array(r, np.float32)
)


@given(x=tables, size=st.integers(1, 5), seed=st.integers(0, 9))
@settings(max_examples=25)
def test_batch_size_and_order_do_not_matter(x: Array, size: int, seed: int) -> None:
    one = calibrate(MODEL, batches(x, 1), executor=Exact())
    order = np.random.default_rng(seed).permutation(len(x))
    other = calibrate(MODEL, batches(x[order], size), executor=Exact())
    assert other == one
    assert other.digest == one.digest
    assert other.data == one.data


@given(x=tables, cut=st.integers(1, 11), size=st.integers(1, 3))
@settings(max_examples=25)
def test_merging_is_profiling_together(x: Array, cut: int, size: int) -> None:
    if cut >= len(x):
        return
    parts = [calibrate(MODEL, batches(part, size), executor=Exact()) for part in (x[:cut], x[cut:])]
    whole = calibrate(MODEL, batches(x, 4), executor=Exact())
    assert parts[0].merge(parts[1]) == parts[1].merge(parts[0]) == whole


@given(x=tables)
@settings(max_examples=25)
def test_statistics_are_those_of_the_scalar_loop(x: Array) -> None:
    ids = [f"s{i:02}" for i in range(len(x))]
    profile = calibrate(MODEL, batches(x, 3), executor=Exact(), sample_ids=ids)
    assert profile.rows == len(x)
    assert list(profile.samples) == ids
    values = {"x": x, **Exact().run({"x": x})}
    for name in ("x", "y", "n", "z"):
        found, rows = profile.values[name], values[name].tolist()
        flat = [v for row in rows for v in row]
        assert (found.low, found.high) == (min(flat), max(flat))
        assert (found.count, found.zeros) == (len(flat), sum(v == 0 for v in flat))
        assert found.sample_lows is not None
        assert found.sample_highs is not None
        assert found.sample_lows.tolist() == [min(row) for row in rows]
        assert found.sample_highs.tolist() == [max(row) for row in rows]
        assert math.copysign(1, found.low) == 1 or found.low < 0


def test_results_of_units_are_watched_and_nothing_inside_them() -> None:
    assert [value.name for value in watched_values(canonicalize(MODEL))] == ["x", "y", "n", "z"]
    assert all(value.sample_axis == 0 for value in watched_values(canonicalize(MODEL)))
    assert [value.name for value in watched_values(MODEL, ["s", "p"])] == ["p", "s"]
    with pytest.raises(InputError, match="unknown value 'q'"):
        watched_values(MODEL, ["q"])


def test_units_take_bias_and_clip_only_from_a_value_that_nothing_else_reads() -> None:
    units = units_of(canonicalize(MODEL).graph)
    assert [[node.op_type for node in unit.nodes] for unit in units] == [
        ["MatMul", "Add", "Relu"],
        ["Neg"],
        ["Softmax"],
    ]
    branching = ir.from_onnx_text("""<ir_version: 10, opset_import: ["" : 21]>
    g (float[N,3,4,4] x, float[3,3,1,1] w) => (float[N,3,4,4] z, float[N,3,4,4] c) {
      c = Conv(x, w)
      d = Conv(x, w)
      r = Relu(c)
      m = Max(r, d)
      z = Clip(m)
    }""")
    assert [len(unit.nodes) for unit in units_of(branching.graph)] == [1, 1, 1, 1, 1]


def test_an_engine_makes_the_same_profile() -> None:
    x = (np.arange(24).reshape(8, 3) % 7 - 3).astype(np.float32)
    real = calibrate(MODEL, batches(x, 4))
    exact = calibrate(MODEL, batches(x, 4), executor=Exact())
    assert (real.graph, real.data) == (exact.graph, exact.data)
    for name in ("x", "y", "n"):
        assert real.values[name] == exact.values[name]


def test_a_watch_gives_the_graph_s_own_outputs() -> None:
    x = np.ones((2, 3), np.float32)
    with prepare_watch(MODEL, get_backend("ort-cpu"), values=["y"]) as watch:
        assert list(watch.run({"x": x})) == ["z"]
        watch.run({"x": 2 * x})
        profile = watch.profile()
    assert list(profile.values) == ["y"]
    assert profile.rows == 4
    assert len(profile.samples) == 2  # two pairs of equal rows
    assert dict(profile.repeats) == dict.fromkeys(profile.samples, 2)


def test_a_profile_as_text_is_one_value_a_line_and_reads_back_equal(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    profile = calibrate(MODEL, batches(x, 2), sample_ids=["e", "d", "c", "b", "a"])
    profile.dump(tmp_path / "p.json")
    again = Profile.load(tmp_path / "p.json")
    assert again == profile
    assert again.digest == profile.digest
    text = (tmp_path / "p.json").read_text()
    assert json.loads(text)["version"] == PROFILE_VERSION
    assert text.count("\n") == 3 + len(profile.values)
    profile.dump(tmp_path / "q.json")
    assert (tmp_path / "q.json").read_bytes() == (tmp_path / "p.json").read_bytes()


def test_ids_do_not_change_what_the_data_is() -> None:
    x = np.eye(3, dtype=np.float32)
    named = calibrate(MODEL, batches(x, 3), sample_ids=["a", "b", "c"])
    assert named.data == calibrate(MODEL, batches(x[::-1], 2)).data
    assert named.data != calibrate(MODEL, batches(2 * x, 3)).data


@pytest.mark.parametrize(("name", "value"), [("x", np.nan), ("x", np.inf), ("x", -np.inf)])
def test_numbers_that_are_none_name_sample_and_value(name: str, value: float) -> None:
    x = np.ones((5, 3), np.float32)
    x[3, 1] = value
    with pytest.raises(InputError, match=f"value '{name}' on calibration sample 'cat'"):
        calibrate(MODEL, batches(x, 2), sample_ids=["a", "b", "c", "cat", "e"])


def test_bad_calibration_data() -> None:
    x = np.ones((3, 3), np.float32)
    x[1] = 2
    for given_batches, ids, words in [
        ([], None, "no samples"),
        ([{"x": x}], ["a", "b"], "more samples than ids"),
        ([{"x": x}], list("abcd"), "3 samples for 4 ids"),
        ([{"x": x}], ["a", "a", "b"], "different content"),
        ([{"y": x}], None, "a batch without 'x'"),
    ]:
        with pytest.raises(InputError, match=words):
            calibrate(MODEL, given_batches, executor=Exact(), sample_ids=ids)


@pytest.mark.parametrize("failing", ["value", "name"])
def test_after_a_batch_that_failed_halfway_there_is_no_profile(failing: str) -> None:
    x = np.ones((3, 3), np.float32)
    ids = ["a", "b", "b"] if failing == "name" else None
    with prepare_watch(MODEL, get_backend("ort-cpu-noopt"), sample_ids=ids) as watch:
        watch.run({"x": x[:1]})
        with pytest.raises(InputError):
            watch.run({"y": x[:1]})  # nothing of it is counted
        assert watch.profile().rows == 1
        bad = x[1:] * np.array([[1], [2 if failing == "name" else np.nan]], np.float32)
        with pytest.raises(InputError):
            watch.run({"x": bad})
        for _ in range(2):
            with pytest.raises(
                InputError,
                match=r"found a batch that failed after some of its numbers were counted",
            ):
                watch.profile()
            if failing == "value":
                watch.run({"x": 3 * x[:1]})


def test_an_executor_without_the_taps_is_refused() -> None:
    with (
        get_backend("ort-cpu").prepare(canonicalize(MODEL)) as executor,
        pytest.raises(InputError, match="every watched value as a tap"),
    ):
        calibrate(MODEL, [{"x": np.ones((1, 3), np.float32)}], executor=executor)


def test_one_sample_and_constant_tensors_are_fine() -> None:
    profile = calibrate(MODEL, [{"x": np.zeros((1, 3), np.float32)}])
    assert (profile.values["x"].low, profile.values["x"].high, profile.values["x"].zeros) == (
        0,
        0,
        3,
    )


def test_profiles_of_other_graphs_or_values_do_not_merge() -> None:
    x = np.ones((1, 3), np.float32)
    profile = calibrate(MODEL, [{"x": x}])
    stranger = Profile("0" * 64, profile.samples, 1, profile.values)
    with pytest.raises(InputError, match="profile of another graph"):
        profile.merge(stranger)
    with pytest.raises(InputError, match="different watched values"):
        profile.merge(Profile(profile.graph, profile.samples, 1, {}))
    other = Profile(profile.graph, dict.fromkeys(profile.samples, "else"), 1, profile.values)
    with pytest.raises(InputError, match="different content"):
        profile.merge(other)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"format": "qbench-profile", "version": 1}',
        '{"format": "qbench-profile", "version": 2}',
    ],
)
def test_damaged_profiles(text: str, tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text(text)
    with pytest.raises(InputError, match="Loading the profile"):
        Profile.load(path)
    with pytest.raises(InputError, match="No such file"):
        Profile.load(tmp_path / "none.json")


def test_statistics_that_contradict_themselves() -> None:
    seen = Histogram.of(np.array([0, 1, 1, 2], np.float32))
    for low, high, zeros, infinite, words in [
        (0, 2, 2, 0, "zeros"),
        (0, 2, -1, 0, "zeros"),
        (0, 2, 1, -1, "infinite"),
        (2, 0, 1, 0, "finite"),
        (-np.inf, 2, 1, 0, "finite"),
        (0, 3, 1, 0, "histogram's ends"),
    ]:
        with pytest.raises(ValueError, match=words):
            Statistics(low, high, zeros, seen, infinite)
    with pytest.raises(ValueError, match="together"):
        Statistics(0, 2, 1, seen, sample_lows=np.zeros(1))
    with pytest.raises(ValueError, match="different number"):
        Statistics(0, 2, 1, seen, channel_lows=np.zeros(1), channel_highs=np.zeros(2))


MIXED = ir.from_onnx_text("""<ir_version: 10, opset_import: ["" : 21]>
mixed (float[N,4,5] x, float[4] gain) => (float[N,4,5] y, float[N,3] s)
<float[5,3] w = {0.1,-0.7,0.3,0.9,-1.1,0.2,0.4,0.4,-0.3,0.6,-0.2,0.8,1.3,-0.5,0.7},
 int64[1] one = {1}, float[4] bound = {0.5, -1, 3, 0}, float[1] nil = {0}> {
  limit = Exp(gain)
  column = Unsqueeze(limit, one)
  y = Mul(x, column)
  turned = Transpose <perm = [1, 0, 2]> (y)
  h = MatMul(turned, w)
  hot = Relu(h)
  back = Transpose <perm = [1, 0, 2]> (hot)
  s = ReduceMax <keepdims = 0> (back, one)
}""")
"""Samples on the first axis, on the second, and on none."""

GAIN = np.array([0.5, -1, 2, 0], np.float32)


def mixed(x: Array, size: int) -> list[dict[str, Array]]:
    return [{"x": x[i : i + size], "gain": GAIN} for i in range(0, len(x), size)]


waves = st.tuples(st.integers(1, 9), st.integers(0, 99)).map(
    lambda drawn: np.random.default_rng(drawn[1]).normal(size=(drawn[0], 4, 5)).astype(np.float32)
)


@pytest.mark.slow
@given(
    x=waves,
    size=st.integers(1, 5),
    seed=st.integers(0, 9),
    workers=st.integers(1, 4),
    channels=st.booleans(),
)
@settings(max_examples=15)
def test_any_batches_any_order_any_workers_on_a_real_engine(
    x: Array, size: int, seed: int, workers: int, channels: bool
) -> None:
    whole = calibrate(MIXED, mixed(x, 4), channels=channels)
    order = np.random.default_rng(seed).permutation(len(x))
    parts = [part for part in np.array_split(x[order], workers) if len(part)]
    profiles = [calibrate(MIXED, mixed(part, size), channels=channels) for part in parts]
    merged = functools.reduce(Profile.merge, profiles)
    assert merged == whole
    assert (merged.digest, merged.data) == (whole.digest, whole.data)
    for seen in merged.values.values():
        assert seen.sample_lows is not None  # every run is of one sample, wherever its axis
        assert len(seen.sample_lows) == len(x)


def test_channels_are_kept_on_request() -> None:
    x = np.random.default_rng(0).normal(size=(6, 4, 5)).astype(np.float32)
    kept = calibrate(MIXED, mixed(x, 4), channels=True).values
    lows, highs = kept["x"].channel_lows, kept["x"].channel_highs
    assert lows is not None
    assert highs is not None
    assert lows.tolist() == x.min(axis=(0, 2)).tolist()
    assert highs.tolist() == x.max(axis=(0, 2)).tolist()
    assert kept["gain"].channel_lows is None  # one axis only
    assert kept["hot"].channel_lows is None  # its axis 1 runs over samples
    assert all(seen.channel_lows is None for seen in calibrate(MIXED, mixed(x, 4)).values.values())


def test_channels_merge_where_they_are_the_same() -> None:
    x = np.random.default_rng(0).normal(size=(6, 4, 5)).astype(np.float32)
    plain, kept = (
        calibrate(MIXED, mixed(x[:3], 1)),
        calibrate(MIXED, mixed(x[3:], 1), channels=True),
    )
    assert kept.merge(plain).values["x"].channel_lows is None


def test_a_sample_seen_twice_counts_twice_however_it_came() -> None:
    x = np.eye(3, dtype=np.float32)
    once = calibrate(MODEL, batches(x, 2))
    twice = calibrate(MODEL, batches(np.concatenate([x, x]), 4))
    assert once.merge(once) == twice
    assert twice.rows == 6
    assert twice.data != once.data
    one_more = calibrate(MODEL, batches(x[:1], 1)).merge(once)
    other_more = calibrate(MODEL, batches(x[1:2], 1)).merge(once)
    assert one_more.rows == other_more.rows == 4
    assert one_more.data != other_more.data
    with pytest.raises(ValueError, match="rows"):
        Profile(once.graph, once.samples, 4, once.values)
    with pytest.raises(ValueError, match="repeats"):
        Profile(once.graph, once.samples, 3, once.values, {"who": 2})


def test_a_profile_of_other_data_is_refused() -> None:
    x = np.eye(3, dtype=np.float32)
    profile = calibrate(MODEL, batches(x, 2))
    profile.require_data(calibrate(MODEL, batches(x[::-1], 1)).data, "the same, turned round")
    profile.require_data(data_of(MODEL, batches(x, 3)), "the same")
    with pytest.raises(
        InputError, match="calibration data 'brighter': found a profile of other samples"
    ):
        profile.require_data(data_of(MODEL, batches(2 * x, 2)), "brighter")


def test_masks_of_an_attention_are_counted() -> None:
    masked = ir.from_onnx_text("""<ir_version: 10, opset_import: ["" : 21]>
    masked (float[N,3] x) => (float[N,3] z, float[N,3] m) {
      l = Log(x)
      m = Neg(l)
      z = Softmax(l)
    }""")
    x = np.array([[1, 0, 2], [1, 1, 4]], np.float32)
    profile = calibrate(masked, batches(x, 2), values=["l", "m", "z"])
    assert [profile.values[name].infinite for name in ("l", "m", "z")] == [1, 1, 0]
    assert [profile.values[name].negative_infinite for name in ("l", "m", "z")] == [1, 0, 0]
    assert (profile.values["l"].low, profile.values["m"].high) == (0, 0)
    with pytest.raises(InputError, match="value 'l' on calibration sample 'bad': found NaN"):
        calibrate(masked, batches(-x, 1), sample_ids=["bad", "worse"], values=["l"])
    with pytest.raises(
        InputError, match="value 'x' on calibration sample 'worse': found NaN or Inf"
    ):
        calibrate(
            masked,
            batches(np.array([[1], [np.inf]], np.float32) * x, 2),
            sample_ids=["bad", "worse"],
            values=["l"],
        )


def test_a_graph_of_a_fixed_batch_is_the_same_in_any_slices() -> None:
    fixed = ir.from_onnx_text("""<ir_version: 10, opset_import: ["" : 21]>
    fixed (float[2,3] x) => (float[2,3] z) { z = Neg(x) }""")
    x = np.arange(15, dtype=np.float32).reshape(5, 3)
    one, other = (calibrate(fixed, batches(x, size)) for size in (4, 5))
    assert one.values["z"].histogram == other.values["z"].histogram
    assert one.values["z"].count == 15
    assert one.values["z"].sample_lows is not None
    assert sorted(one.values["z"].sample_lows.tolist()) == [-14, -11, -8, -5, -2]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("low", 5),
        ("low", None),
        ("zeros", 99),
        ("infinite", -1),
        ("not_negative", 1),
        ("not_negative", -1),
        ("count", 1),
        ("histogram", "AAAA"),
        ("histogram", 7),
        ("sample_lows", None),
        ("sample_lows", ["a"]),
        ("histogram", None),
    ],
)
def test_a_damaged_value_is_one_sentence(field: str, value: object, tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    calibrate(MODEL, batches(np.eye(3, dtype=np.float32), 2)).dump(path)
    table = json.loads(path.read_text())
    table["values"]["x"][field] = value
    path.write_text(json.dumps(table))
    with pytest.raises(InputError, match=r"Loading the profile .*a field missing or wrong"):
        Profile.load(path)


def test_infinities_and_channels_read_back(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    log = ir.from_onnx_text("""<ir_version: 10, opset_import: ["" : 21]>
    log (float[N,2] x) => (float[N,2] z) { z = Log(x) }""")
    x = np.array([[0, 0], [0, 1], [3, 2]], np.float32)
    profile = calibrate(log, batches(x, 2), channels=True)
    profile.dump(path)
    assert Profile.load(path) == profile
    assert profile.values["z"].infinite == 3
    assert (
        "not_negative" not in path.read_text()
    )  # profiles without +Inf keep their text and digest
    assert profile.values["z"].channel_lows is not None
    assert profile.values["z"].channel_lows.tolist() == [float(np.log(np.float32(3))), 0]


def test_positive_infinities_are_counted_apart(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    both = ir.from_onnx_text("""<ir_version: 10, opset_import: ["" : 21]>
    both (float[N,2] x) => (float[N,2] z) {
      l = Log(x)
      z = Reciprocal(l)
    }""")
    x = np.array([[0, 1], [1, 2], [0, 3]], np.float32)
    profile, again = (
        calibrate(both, batches(x[rows], 2)) for rows in (slice(None), slice(1, None))
    )
    profile.dump(path)
    assert Profile.load(path) == profile
    for one, log, z in (
        (profile, (2, 0), (2, 2)),
        (again, (1, 0), (1, 1)),
        (profile.merge(again), (3, 0), (3, 3)),
    ):
        assert (one.values["l"].infinite, one.values["l"].not_negative) == log
        assert (one.values["z"].infinite, one.values["z"].not_negative) == z
