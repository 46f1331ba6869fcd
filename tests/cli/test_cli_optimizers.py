"""``qbench optimizers`` on a file that ``qbench quantize`` wrote,
and on the catalogue of known differences.
"""

import json
from dataclasses import replace

import pytest


@pytest.fixture
def quantized(blobs_files, qbench):
    assert qbench("profile", "net.onnx", "--data", "train.npz", "-o", "p.json")[0] == 0
    assert (
        qbench(
            "quantize",
            "net.onnx",
            "--profile",
            "p.json",
            "--schema",
            "w8a8_asym_pt",
            "-o",
            "q.onnx",
        )[0]
        == 0
    )
    return blobs_files


@pytest.mark.slow
def test_every_optimizer_that_changes_the_graph_and_what_moves(quantized, qbench):
    code, out, err = qbench(
        "optimizers", "q.onnx", "--data", "test.npz", "--count", "5", "--precise", "--json"
    )
    assert (code, err) == (0, "")
    facts = json.loads(out)
    effects = {one["name"]: one["effect"] for one in facts["effects"]}
    fused = effects["QDQSelectorActionTransformer"]
    assert fused["before"]["QuantizeLinear"] > fused["after"].get("QuantizeLinear", 0)
    (output,) = fused["outputs"]
    assert output["differences"]["elements"] == 5 * 3
    assert [one["node"] for one in fused["values"]][1:] == ["first"]
    assert [one["level"] for one in facts["levels"]] == ["basic", "extended", "all"]
    text = qbench("optimizers", "q.onnx", "--data", "test.npz", "--count", "5", "--precise")[1]
    assert "QDQSelectorActionTransformer (level 2)" in text
    assert f"{facts['asked']} optimizers tried" in text.splitlines()[0]
    assert "none → basic" in text
    assert "values" in text


def test_without_data_it_says_that_graphs_alone_were_compared(quantized, qbench):
    code, out, _ = qbench("optimizers", "q.onnx", "--level", "basic")
    assert code == 0
    assert "QDQSelectorActionTransformer" not in out
    assert "only graphs were compared" in out


def test_the_catalogue_can_fail(monkeypatch, qbench):
    import qbench.diagnosis as room

    first, *_ = room.optimizer_cases()
    monkeypatch.setattr(room, "optimizer_cases", lambda: (first,))
    measured = room.measure_case(first).measured
    expected = replace(first, expected=measured)
    monkeypatch.setattr(room, "optimizer_cases", lambda: (expected,))
    code, out, err = qbench("optimizers", "--check-expected")
    assert (code, err) == (0, "")
    assert "1 of 1 case as expected" in out
    wrong = replace(first, expected=replace(measured, elements=1))
    monkeypatch.setattr(room, "optimizer_cases", lambda: (wrong,))
    code, out, _ = qbench("optimizers", "--check-expected", "--json")
    assert code == 1
    (fact,) = json.loads(out)
    assert not fact["as_expected"]
    assert fact["measured"]["causes"]["elements"] == measured.elements


@pytest.mark.slow_but(1)
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "no MODEL"),
        (("q.onnx", "--check-expected"), "--check-expected with MODEL"),
        (("net.onnx",), "a float model"),
    ],
)
def test_mistakes_are_one_sentence(quantized, qbench, arguments, sentence):
    code, out, err = qbench("optimizers", *arguments)
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1
