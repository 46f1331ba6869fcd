"""``qbench lint`` on a network of the zoo and on files, quantized here or before."""

import json

import onnx.parser
import pytest

DIGITS = ("lint", "digits_cnn", "--data", "digits_train", "--count", "32")


@pytest.fixture(scope="module")
def digits_facts(tmp_path_factory):
    """What it says of the digits network under two schemas."""
    import contextlib
    import io

    from qbench.cli import main

    found, cache = {}, str(tmp_path_factory.mktemp("cache"))
    for schema in ("w8a8_asym_pc", "w7a8_asym_pc", "w8a7_asym_pc", "w8a8_sym_pc"):
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            assert main([*DIGITS, "--schema", schema, "--json", "--cache", cache]) == 0
        found[schema] = json.loads(text.getvalue())
    return found


@pytest.mark.slow
def test_layers_of_8_bit_weights_can_saturate(digits_facts):
    facts = digits_facts["w8a8_asym_pc"]
    assert facts["risky"]
    for layer in facts["layers"]:
        pairs = layer["pairs"]
        assert 0 < pairs["risky"] <= pairs["pairs"]
        assert pairs["share"] == pytest.approx(pairs["risky"] / pairs["pairs"])
        assert 129 <= pairs["worst"] <= 254
        assert layer["sum_bits"] <= 32


def test_layers_of_7_bit_weights_cannot(digits_facts):
    facts = digits_facts["w7a8_asym_pc"]
    assert not facts["risky"]
    assert {layer["pairs"]["why_not"] for layer in facts["layers"]} == {
        "weights have 7 bits or fewer"
    }


def test_layers_of_7_bit_or_signed_levels_cannot(digits_facts):
    assert not digits_facts["w8a8_sym_pc"]["risky"]
    assert {layer["levels"] for layer in digits_facts["w8a8_sym_pc"]["layers"]} == {"int8"}
    assert {one["pairs"]["why_not"] for one in digits_facts["w8a7_asym_pc"]["layers"]} == {
        "codes end at 127"
    }


@pytest.fixture
def quantized(blobs_files, qbench):
    assert qbench("profile", "net.onnx", "--data", "train.npz", "-o", "p.json")[0] == 0
    for schema in ("w8a8_asym_pc", "w7a8_asym_pc"):
        arguments = ("--profile", "p.json", "--schema", schema, "-o", f"{schema}.onnx")
        assert qbench("quantize", "net.onnx", *arguments)[0] == 0
    return blobs_files


@pytest.mark.slow
def test_a_file_that_is_quantized_already(quantized, qbench):
    code, out, err = qbench("lint", "w8a8_asym_pc.onnx")
    assert (code, err) == (0, "")
    assert "2 layers" in out.splitlines()[0]
    lines = {line.split()[0] for line in out.splitlines() if line}
    assert {"first", "second"} <= lines
    made_here = qbench(
        "lint", "net.onnx", "--schema", "w8a8_asym_pc", "--data", "train.npz", "--json"
    )[1]
    assert (
        json.loads(made_here)["layers"]
        == json.loads(qbench("lint", "w8a8_asym_pc.onnx", "--json")[1])["layers"]
    )


@pytest.mark.slow_but(1)
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("w8a8_asym_pc.onnx", "--strict"), 1),
        (("w7a8_asym_pc.onnx", "--strict"), 0),
        (("w8a8_asym_pc.onnx", "--strict", "--arithmetic", "ort-x64"), 0),
        (("w8a8_asym_pc.onnx", "--strict", "--arithmetic", "ort-x64-avx2"), 1),
        (("w8a8_asym_pc.onnx", "--arithmetic", "ort-x64-avx2"), 0),
    ],
)
def test_exit_codes(quantized, qbench, arguments, code):
    assert qbench("lint", *arguments)[0] == code


def test_machines_by_name_and_by_file(quantized, qbench):
    text = 'source = "a data sheet"\nscaling = { form = "float32" }\naccumulator = { bits = 12 }\n'
    (quantized / "mine.toml").write_text(text)
    out = qbench(
        "lint", "w8a8_asym_pc.onnx", "--arithmetic", "gemmlowp", "--arithmetic", "mine.toml"
    )[1]
    assert "gemmlowp: represents every layer" in out
    assert "mine: 2 of 2 layers" in out
    assert "wrap in an accumulator of 12" in out


RESIDUAL = """
<ir_version: 10, opset_import: ["": 21]>
residual (float[n,4,5,5] x) => (float[n,4,5,5] y)
<float s = {0.1}, uint8 z = {3}, float[4,4,1,1] k = {1,0,0,0, 0,1,0,0, 0,0,1,0, 0,0,0,1}>
{
    c = Conv (x, k)
    r = Relu (c)
    q = QuantizeLinear (r, s, z)
    d = DequantizeLinear (q, s, z)
    e = Conv (d, k)
    y = Add (e, r)
}
"""


def test_what_kernels_store_and_compute_again(tmp_path, qbench, golden):
    path = tmp_path / "residual.onnx"
    onnx.save(onnx.parser.parse_model(RESIDUAL), path)
    code, out, err = qbench("lint", str(path), "--storage")
    assert (code, err) == (0, "")
    golden("output/lint-storage.txt", out.replace(str(path), path.name))
    storage = json.loads(qbench("lint", str(path), "--storage", "--json")[1])["storage"]
    # r in 32 bits for the sum, its codes for the product; or its codes alone, and c and r again
    rows = [(row["name"], row["dtype"], row["bytes"]) for row in storage["stored"]["values"]]
    assert sorted(rows) == [("q", "uint8", 100), ("r", "float", 400), ("y", "float", 400)]
    assert storage["stored"]["bytes_written"] == 900
    assert storage["stored"]["recomputed"] == {}
    assert storage["recomputed"]["bytes_written"] == 500
    assert sorted(storage["recomputed"]["recomputed"].values()) == [1, 1]
    assert "storage" not in json.loads(qbench("lint", str(path), "--json")[1])


@pytest.mark.slow_but(1)
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("net.onnx",), "Name a schema to quantize it with"),
        (("net.onnx", "--schema", "w8a8_asym_pc"), "--schema without --data"),
        (("w8a8_asym_pc.onnx", "--data", "train.npz"), "--data without --schema"),
        (("w8a8_asym_pc.onnx", "--arithmetic", "gemlowp"), "Did you mean 'gemmlowp'?"),
        (("w8a8_asym_pc.onnx", "--schema", "w8a8_asym_pc", "--data", "train.npz"), "already"),
    ],
)
def test_mistakes_are_one_sentence(quantized, qbench, arguments, sentence):
    code, out, err = qbench("lint", *arguments)
    assert (code, out) == (2, "")
    assert sentence in err
