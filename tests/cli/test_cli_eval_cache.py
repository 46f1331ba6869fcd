"""``eval`` of a decoder with a quantized cache, and as a reference, which it cannot be."""

from pathlib import Path

import numpy as np
import pytest

from qbench.calibration import calibrate
from qbench.graph import save_model
from qbench.passes import plannable
from qbench.quantization import insert_qdq, make_plan
from qbench.subjects import decoder_form
from qbench_zoo.networks.decoder import DecoderSize, build_decoder, parameter_shapes

SIZE = DecoderSize(words=30, width=16, heads=2, kept_heads=1, layers=1, places=16)
NAMES = ("input_ids", "past_key_values.0.key", "past_key_values.0.value")
DEVICE = 'source = "a data sheet"\narithmetic = "gemmlowp"\noperators = ["MatMul"]\n'


@pytest.fixture
def decoder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    shapes = parameter_shapes(SIZE).items()
    arrays = {name: rng.normal(0, 0.6, shape).astype(np.float32) for name, shape in shapes}
    model = build_decoder(arrays, SIZE)
    save_model(model, "decoder.onnx")
    for name in ("windows", "others"):
        np.savez(f"{name}.npz", input_ids=rng.integers(SIZE.words, size=(6, 12)))
    return model


def test_eval_says_what_the_cache_holds_and_refuses_it_in_a_reference(decoder, qbench):
    command = ("eval", "decoder.onnx", "--data", "windows.npz", "--calib", "others.npz")
    code, out, err = qbench(*command, "--schema", "kv4h", "--metrics", "token_kl,token_top1")
    assert code == 0, err
    assert "the cache holds 2 keys and values in int4" in out
    assert "none of its multiply-accumulates is quantized" not in out
    assert "; nothing else is quantized" in out
    assert "by quantized weights" not in out
    form = decoder_form(decoder)
    feeds = {"input_ids": np.load("others.npz")["input_ids"]}
    feeds |= {one.past: one.nothing(6) for one in form.cache}
    plan = make_plan(decoder, calibrate(decoder, [feeds], channels=True), "kv4h")
    save_model(insert_qdq(plannable(decoder, "default"), plan), "kept.onnx")
    code, _, err = qbench("eval", "decoder.onnx", "--fp32", "kept.onnx", "--data", "windows.npz")
    assert code == 2
    assert "a cache that is quantized" in err
    assert "present.0.key" in err


@pytest.mark.parametrize(
    ("data", "arrays"),
    [
        ("scored.npz", ("input_ids",)),
        ("scored.npz?sources=document", ("input_ids", "document")),
        ("scored.npz", ("input_ids", "renumbered")),
    ],
)
def test_calibration_on_scored_windows_is_refused_whatever_is_next_to_them(
    decoder, qbench, data, arrays
):
    tokens = np.load("windows.npz")["input_ids"]
    np.savez("scored.npz", input_ids=tokens, document=np.arange(6) // 2)
    copied = {
        "input_ids": tokens[:4],
        "document": np.arange(4) // 2,
        "renumbered": np.arange(4) + 9,
    }
    np.savez("copied.npz", **{name: copied[name] for name in arrays})
    code, out, err = qbench(
        "eval", "decoder.onnx", "--data", data, "--calib", "copied.npz", "--schema", "kv8h"
    )
    assert (code, out) == (2, "")
    assert "found 4 samples that 'scored.npz" in err
    assert "never scored" in err


@pytest.mark.slow
def test_a_profile_of_tokens_alone_is_checked_against_them(decoder, qbench):
    assert qbench("profile", "decoder.onnx", "--data", "others.npz", "-o", "p.json")[0] == 0
    code, _, err = qbench("profile", "decoder.onnx", "--data", "others.npz", "--check", "p.json")
    assert (code, err) == (0, "")
    code, _, err = qbench("profile", "decoder.onnx", "--data", "windows.npz", "--check", "p.json")
    assert code == 2
    assert "a profile of other samples" in err


@pytest.mark.slow_but(1)
@pytest.mark.parametrize(
    "command",
    [
        ("lint", "decoder.onnx", "--schema", "w8a8_asym_pc"),
        ("partition", "kept.onnx", "--device", "device.toml", "-o", "parts", "--check"),
        ("optimizers", "kept.onnx"),
    ],
)
def test_verbs_that_run_samples_take_tokens_alone(decoder, qbench, command):
    Path("device.toml").write_text(DEVICE)
    quantize = ("quantize", "decoder.onnx", "--calib", "others.npz", "--schema", "w8a8_asym_pc")
    assert qbench(*quantize, "-o", "kept.onnx")[0] == 0
    code, _, err = qbench(*command, "--data", "others.npz", "--count", "2")
    assert (code, err) == (0, "")


def test_fitting_takes_tokens_alone(decoder, qbench, monkeypatch):
    class ReachedError(Exception):
        pass

    def fit(_model, feeds, *_more, **_others):
        assert {name: len(array) for name, array in feeds.items()} == dict.fromkeys(NAMES, 6)
        raise ReachedError

    monkeypatch.setattr("qbench.cli.fit._fitter", lambda _method: None)
    monkeypatch.setattr("qbench.quantization.fit_model", fit)
    command = ("fit", "decoder.onnx", "--calib", "others.npz", "--schema", "w8a8_asym_pc")
    with pytest.raises(ReachedError):
        qbench(*command, "--method", "tqt", "-o", "fitted.onnx")


def test_a_cache_that_the_engine_keeps_is_written_and_measured(decoder, qbench):
    command = ("quantize", "decoder.onnx", "--calib", "others.npz", "--form", "gqa")
    code, _, err = qbench(*command, "--schema", "kv8c", "-o", "kept.onnx")
    assert code == 0, err
    code, out, err = qbench("eval", "kept.onnx", "--fp32", "decoder.onnx", "--data", "windows.npz")
    assert code == 0, err
    assert "2 keys and values in int8, stored so by the engine" in out
    code, _, err = qbench(*command, "--schema", "w8_sym_pc", "-o", "other.onnx")
    assert code == 2
    assert err.count("\n") <= 2
    assert "keys and values are in floats" in err
    assert "such as 'kv8h' or 'w8_sym_pc_kv8h'" in err


def test_a_cache_that_the_engine_keeps_beside_weights_is_called_so_with_a_reference(
    decoder, qbench
):
    command = ("quantize", "decoder.onnx", "--calib", "others.npz", "--form", "gqa")
    assert qbench(*command, "--schema", "w8_sym_pc_kv8h", "-o", "kept.onnx")[0] == 0
    for reference in ((), ("--fp32", "decoder.onnx")):
        code, out, err = qbench("eval", "kept.onnx", *reference, "--data", "windows.npz")
        assert code == 0, err
        assert "2 keys and values in int8, stored so by the engine" in out


@pytest.mark.parametrize(
    ("form", "held"), [("qdq", "in int4"), ("gqa", "in int4, stored so by the engine")]
)
def test_a_file_of_a_quantized_cache_is_called_quantized(decoder, qbench, form, held):
    command = ("quantize", "decoder.onnx", "--calib", "others.npz", "--schema", "kv4c")
    assert qbench(*command, "--form", form, "-o", "kept.onnx")[0] == 0
    for reference in ((), ("--fp32", "decoder.onnx")):
        code, out, err = qbench("eval", "kept.onnx", *reference, "--data", "windows.npz")
        assert code == 0, err
        assert ("fp32" in out) == bool(reference)
        assert " s quantized" in out
        assert f"the cache holds 2 keys and values {held}, which" in out
        assert "; nothing else is quantized" in out
        assert "left in float" not in out


def test_quantize_counts_the_weights_beside_a_cache(decoder, qbench):
    command = ("quantize", "decoder.onnx", "--calib", "others.npz", "-o", "kept.onnx")
    code, out, err = qbench(*command, "--schema", "w4_sym_b32_kv4h")
    assert code == 0, err
    assert "and 2 keys and values quantized" in out
    assert "by quantized weights" in out
