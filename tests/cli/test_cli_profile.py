"""``qbench profile``: merging, checking, channels, and histograms for other tools."""

import csv
import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from qbench.calibration import Profile


@pytest.fixture
def halves(blobs_files):
    """The samples of train.npz in two files."""
    x = np.load("train.npz")["x"]
    np.savez("first.npz", x=x[:20])
    np.savez("second.npz", x=x[20:])
    return blobs_files


def profile(qbench, data, *more):
    return qbench("profile", "net.onnx", "--data", data, *more)


def test_profiles_add_up(halves, qbench):
    assert profile(qbench, "train.npz", "-o", "whole.json")[0] == 0
    assert profile(qbench, "first.npz", "-o", "first.json")[0] == 0
    code, out, err = profile(
        qbench, "second.npz", "-o", "both.json", "--add", "first.json", "--json"
    )
    assert (code, err) == (0, "")
    facts = json.loads(out)
    assert (facts["samples"], facts["infinite"]) == (48, {})
    whole, both = (Profile.load(name) for name in ("whole.json", "both.json"))
    assert {name: seen.histogram for name, seen in both.values.items()} == {
        name: seen.histogram for name, seen in whole.values.items()
    }


def test_a_profile_is_checked_against_model_and_data(halves, qbench):
    profile(qbench, "first.npz", "-o", "p.json")
    code, out, _ = profile(qbench, "first.npz", "--check", "p.json")
    assert code == 0
    assert "over 20 samples" in out
    for data, more in [("second.npz", ()), ("first.npz", ("--count", "19"))]:
        code, _, err = profile(qbench, data, "--check", "p.json", *more)
        assert code == 2
        assert "found a profile of other samples" in err
        assert len(err.splitlines()) == 1
    table = json.loads(Path("p.json").read_text())
    table["graph"] = "0" * 64
    Path("p.json").write_text(json.dumps(table))
    code, _, err = profile(qbench, "first.npz", "--check", "p.json")
    assert code == 2
    assert "a profile of another graph" in err


DECODER = """<ir_version: 10, opset_import: ["" : 21]>
decoder (int64[N,T] input_ids, float[N,1,P,8] past_key, float[N,1,P,8] past_value)
    => (float[N,T,16] logits, float[N,1,U,8] present_key, float[N,1,U,8] present_value)
    <int64[2] flat = {-1,8}, int64[1] one = {1}> {
  e = Gather<axis=0>(table, input_ids)
  f = Reshape(e, flat)
  k = Gemm<alpha=0.3, beta=0.7>(f, wk, bk)
  shape = Shape(e)
  k3 = Reshape(k, shape)
  k4 = Unsqueeze(k3, one)
  present_key = Concat<axis=2>(past_key, k4)
  v = MatMul(e, wv)
  v4 = Unsqueeze(v, one)
  present_value = Concat<axis=2>(past_value, v4)
  q = MatMul(e, wq)
  q4 = Unsqueeze(q, one)
  turned = Transpose<perm=[0,1,3,2]>(present_key)
  scores = MatMul(q4, turned)
  shares = Softmax<axis=-1>(scores)
  read = MatMul(shares, present_value)
  joined = Squeeze(read, one)
  logits = MatMul(joined, wo)
}"""
"""Canonical passes take alpha and beta of its key into the weights, which changes last bits."""


def save_decoder() -> None:
    """``decoder.onnx``, and ``windows.npz`` of its tokens."""
    rng = np.random.default_rng(0)
    model = onnx.parser.parse_model(DECODER)
    shapes = {"table": (16, 8), "bk": (8,), "wo": (8, 16)}
    shapes |= dict.fromkeys(("wk", "wv", "wq"), (8, 8))
    for name, shape in shapes.items():
        array = rng.normal(size=shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.save(model, "decoder.onnx")
    np.savez("windows.npz", input_ids=rng.integers(0, 16, (6, 12)))


def test_a_profile_of_a_decoder_is_checked_with_the_past_that_its_own_graph_makes(
    tmp_path, monkeypatch, qbench
):
    monkeypatch.chdir(tmp_path)
    save_decoder()
    command = ("profile", "decoder.onnx", "--data", "windows.npz")
    assert qbench(*command, "-o", "p.json")[0] == 0
    assert Profile.load("p.json").values["past_key"].high > 0
    code, _, err = qbench(*command, "--check", "p.json")
    assert code == 0, err
    code, _, err = qbench(*command, "--count", "5", "--check", "p.json")
    assert code == 2
    assert "a profile of other samples" in err


def test_calibration_samples_are_named_as_elsewhere(halves, qbench):
    code, _, err = qbench("profile", "net.onnx", "--calib", "first.npz", "-o", "p.json")
    assert (code, err) == (0, "")
    assert profile(qbench, "first.npz", "--check", "p.json")[0] == 0


@pytest.mark.parametrize("more", [(), ("-o", "p.json", "--check", "q.json")])
def test_one_of_writing_and_checking(halves, qbench, more):
    assert profile(qbench, "first.npz", *more)[0] == 2


def test_channels_and_bins(halves, qbench):
    code, _, err = profile(qbench, "first.npz", "-o", "p.json", "--channels", "--bins", "bins.csv")
    assert (code, err) == (0, "")
    seen = Profile.load("p.json").values["x"]
    x = np.load("first.npz")["x"]
    assert seen.channel_lows.tolist() == x.min(axis=0).tolist()
    assert profile(qbench, "first.npz", "-o", "p.json", "--bins", "bins.json")[0] == 0
    with Path("bins.csv").open() as file:
        head, *rows = csv.reader(file)
    assert (head[:3], len(head)) == (["value", "low", "high"], 2003)
    table = json.loads(Path("bins.json").read_text())
    for name, low, high, *counts in rows:
        assert table[name] == {
            "low": float(low),
            "high": float(high),
            "counts": [int(count) for count in counts],
        }
    assert sum(table["x"]["counts"]) == x.size
    assert (table["x"]["low"], table["x"]["high"]) == (x.min(), x.max())


def test_bins_of_an_unknown_kind_are_refused_before_the_work(halves, qbench):
    code, _, err = profile(qbench, "first.npz", "-o", "p.json", "--bins", "bins.xls")
    assert code == 2
    assert "expected '.csv' or '.json'" in err
    assert not Path("p.json").exists()


def test_canonical_passes_by_name(halves, qbench):
    assert profile(qbench, "first.npz", "-o", "p.json", "--canonical", "split_bias")[0] == 0
    assert profile(qbench, "first.npz", "--check", "p.json", "--canonical", "split_bias")[0] == 0
    code, _, err = profile(qbench, "first.npz", "-o", "p.json", "--canonical", "splitbias")
    assert code == 2
    assert "Did you mean 'split_bias'" in err
