"""Profiles do not depend on batch size, order or splitting, bit for bit; and say what they are of."""

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
from qbench.calibration import Profile, Statistics, calibrate, prepare_watch, units_of, watched_values
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
tables = st.lists(st.tuples(dyadic, dyadic, dyadic), min_size=1, max_size=12).map(lambda r: np.array(r, np.float32))


@given(x=tables, size=st.integers(1, 5), seed=st.integers(0, 9))
@settings(max_examples=40, deadline=None)
def test_batch_size_and_order_do_not_matter(x: Array, size: int, seed: int) -> None:
    one = calibrate(MODEL, batches(x, 1), executor=Exact())
    order = np.random.default_rng(seed).permutation(len(x))
    other = calibrate(MODEL, batches(x[order], size), executor=Exact())
    assert other == one
    assert other.digest == one.digest
    assert other.data == one.data


@given(x=tables, cut=st.integers(1, 11), size=st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_merging_is_profiling_together(x: Array, cut: int, size: int) -> None:
    if cut >= len(x):
        return
    parts = [calibrate(MODEL, batches(part, size), executor=Exact()) for part in (x[:cut], x[cut:])]
    whole = calibrate(MODEL, batches(x, 4), executor=Exact())
    assert parts[0].merge(parts[1]) == parts[1].merge(parts[0]) == whole


@given(x=tables)
@settings(max_examples=40, deadline=None)
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
    assert all(value.per_sample for value in watched_values(canonicalize(MODEL)))
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


def test_a_profile_as_text_is_one_value_a_line_and_reads_back_equal(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    profile = calibrate(MODEL, batches(x, 2), sample_ids=["e", "d", "c", "b", "a"])
    profile.dump(tmp_path / "p.json")
    again = Profile.load(tmp_path / "p.json")
    assert again == profile
    assert again.digest == profile.digest
    text = (tmp_path / "p.json").read_text()
    assert json.loads(text)["version"] == 1
    assert text.count("\n") == 3 + len(profile.values)
    profile.dump(tmp_path / "q.json")
    assert (tmp_path / "q.json").read_bytes() == (tmp_path / "p.json").read_bytes()


def test_ids_do_not_change_what_the_data_is() -> None:
    x = np.eye(3, dtype=np.float32)
    named = calibrate(MODEL, batches(x, 3), sample_ids=["a", "b", "c"])
    assert named.data == calibrate(MODEL, batches(x[::-1], 2)).data
    assert named.data != calibrate(MODEL, batches(2 * x, 3)).data


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_none_name_their_sample(bad: float) -> None:
    x = np.ones((5, 3), np.float32)
    x[3, 1] = bad
    with pytest.raises(InputError, match="calibration sample 'cat'"):
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


def test_an_executor_without_the_taps_is_refused() -> None:
    with (
        get_backend("ort-cpu").prepare(canonicalize(MODEL)) as executor,
        pytest.raises(InputError, match="every watched value as a tap"),
    ):
        calibrate(MODEL, [{"x": np.ones((1, 3), np.float32)}], executor=executor)


def test_one_sample_and_constant_tensors_are_fine() -> None:
    profile = calibrate(MODEL, [{"x": np.zeros((1, 3), np.float32)}])
    assert (profile.values["x"].low, profile.values["x"].high, profile.values["x"].zeros) == (0, 0, 3)


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
    "text", ["", "[]", "{}", '{"format": "qbench-profile", "version": 2}', '{"format": "qbench-profile", "version": 1}']
)
def test_damaged_profiles(text: str, tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text(text)
    with pytest.raises(InputError, match="Loading the profile"):
        Profile.load(path)
    with pytest.raises(InputError, match="No such file"):
        Profile.load(tmp_path / "none.json")


def test_statistics_that_contradict_themselves() -> None:
    with pytest.raises(ValueError, match="zeros"):
        Statistics(0, 1, 3, 4)
    with pytest.raises(ValueError, match="finite"):
        Statistics(2, 1, 3, 0)
