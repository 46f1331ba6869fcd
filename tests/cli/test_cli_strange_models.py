"""Model files from unknown sources at the command line: refused before anything is written."""

import numpy as np
import onnx
import pytest

from qbench.cli.program import main

PRIVATE = b"an account and its password, which is not a weight of any model."
TEXT = """
<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
net (float[N, 16] x) => (float[N, 4] y) { h = local.linear(x) y = Relu(h) }
<domain: "local", opset_import: ["" : 21]>
linear (X) => (Y) { W = Constant <value = float {1}> () Y = MatMul(X, W) }
"""


def test_quantize_copies_no_file_into_its_output(tmp_path, capsys):
    private = tmp_path / "private"
    private.write_bytes(PRIVATE * 5)
    proto = onnx.parser.parse_model(TEXT)
    tensor = proto.functions[0].node[0].attribute[0].t
    tensor.Clear()
    tensor.data_type, tensor.data_location = onnx.TensorProto.FLOAT, onnx.TensorProto.EXTERNAL
    tensor.dims.extend([16, 4])
    tensor.external_data.add(key="location", value=str(private))
    (tmp_path / "model").mkdir()
    path, out = tmp_path / "model" / "net.onnx", tmp_path / "out.onnx"
    path.write_bytes(proto.SerializeToString())
    assert main(["quantize", str(path), "--schema", "w8_sym_pc", "-o", str(out)]) == 2
    assert not out.exists()
    assert PRIVATE.decode() not in "".join(capsys.readouterr())


def looping(trips, folder):
    proto = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
    net (float[2] x) => (float[2] y) <bool yes = {1}> {
      y = Loop (trips, yes, x)
      <body = again (int64 n, bool go, float[2] v) => (bool go2, float[2] u) {
        go2 = Identity(go)
        u = Relu(v)
      }>
    }""")
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array(trips, np.int64), "trips"))
    path = folder / "net.onnx"
    path.write_bytes(proto.SerializeToString())
    return str(path)


def test_one_option_raises_the_limits(tmp_path):
    path = looping(1_500_000, tmp_path)
    out = ["-o", str(tmp_path / "out.onnx")]
    assert main(["quantize", path, "--schema", "w8_sym_pc", *out]) == 2
    assert not (tmp_path / "out.onnx").exists()
    main(["--size-limits", "2", "quantize", path, "--schema", "w8_sym_pc", *out])
    assert (tmp_path / "out.onnx").exists()


@pytest.mark.parametrize("factor", ["0", "-1", "1.5", "many"])
def test_the_factor_is_a_whole_number_from_one(factor, capsys):
    assert main(["--size-limits", factor, "lint", "net.onnx"]) == 2
    assert "--size-limits" in capsys.readouterr().err


@pytest.mark.parametrize(("key", "text"), [("qbench.dims", "{"), ("qbench.dims", '{"N": "3"}')])
def test_damaged_metadata_of_our_own_are_one_sentence(key, text, tmp_path, capsys):
    path = looping(3, tmp_path)
    proto = onnx.load(path)
    proto.metadata_props.add(key=key, value=text)
    onnx.save(proto, path)
    assert main(["quantize", path, "--schema", "w8_sym_pc", "-o", str(tmp_path / "out.onnx")]) == 2
    assert key in capsys.readouterr().err
