"""Loading and saving: what is read is what was written,
and whatever is no model is refused in one sentence.
"""

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from qbench.errors import InputError
from qbench.graph import constant_bytes, graph_digest, load_model, model_bytes, save_model

TEXT = """
<ir_version: 10, opset_import: ["" : 21]>
net (float[N, 3] x) => (float[N, 2] y) <float[3, 2] w = {1, 2, 3, 4, 5, 6}> {
  [fc] h = MatMul(x, w)
  y = Relu(h)
}
"""


def model():
    return ir.from_onnx_text(TEXT)


def with_outside_data(folder, array):
    net = onnx.parser.parse_model(TEXT)
    del net.graph.initializer[:]
    net.graph.initializer.append(onnx.numpy_helper.from_array(array, "w"))
    path = folder / "net.onnx"
    onnx.save(net, path, save_as_external_data=True, location="net.data", size_threshold=0)
    return path


def test_round_trip(tmp_path):
    path = tmp_path / "deep" / "net.onnx"
    save_model(model(), path)
    again = load_model(str(path))
    assert graph_digest(again) == graph_digest(model())
    assert [node.op_type for node in again.graph] == ["MatMul", "Relu"]
    assert [p.name for p in path.parent.iterdir()] == ["net.onnx"]


def test_outside_data_is_read_and_taken_in(tmp_path):
    array = np.arange(6, dtype=np.float32).reshape(3, 2)
    path = with_outside_data(tmp_path, array)
    loaded = load_model(path)
    assert constant_bytes(loaded) == array.nbytes
    inside = onnx.load_model_from_string(model_bytes(loaded))
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(inside.graph.initializer[0]), array)
    np.testing.assert_array_equal(loaded.graph.initializers["w"].const_value.numpy(), array)


def test_beyond_one_message_constants_go_beside_the_model(tmp_path, monkeypatch):
    from qbench.graph import model_files

    monkeypatch.setattr(model_files, "MESSAGE_LIMIT", 10)
    big = model()
    big.graph.initializers["w"].const_value = ir.tensor(np.ones((3, 200), np.float32), name="w")
    save_model(big, tmp_path / "big.onnx")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["big.onnx", "big.onnx.data"]
    np.testing.assert_array_equal(
        load_model(tmp_path / "big.onnx").graph.initializers["w"].const_value.numpy(),
        np.ones((3, 200)),
    )
    with pytest.raises(Exception, match="save_model"):
        model_bytes(big)


def broken(path, content):
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        load_model(path)
    assert str(path) in str(caught.value)
    return caught.value.found


def test_refusals(tmp_path):
    path = tmp_path / "x.onnx"
    whole = model_bytes(model())
    with pytest.raises(InputError, match="No such file"):
        load_model(path)
    assert "empty" in broken(path, b"")
    assert "truncated" in broken(path, whole[:-7])
    assert broken(path, b"\x89PNG\r\n\x1a\n" + bytes(100))
    assert broken(path, b"hello, this is text\n")
    assert "without ONNX's version" in broken(
        path, onnx.ModelProto(producer_name="x").SerializeToString()
    )
    with pytest.raises(InputError, match="directory"):
        load_model(tmp_path)


@pytest.mark.parametrize("length", [1, 17, 60, 90])
def test_every_truncation_is_an_input_error(tmp_path, length):
    path = tmp_path / "x.onnx"
    path.write_bytes(model_bytes(model())[:length])
    with pytest.raises(InputError):
        load_model(path)


def test_versions_of_the_future(tmp_path):
    proto = onnx.load_model_from_string(model_bytes(model()))
    proto.opset_import[0].version = 999
    assert broken(tmp_path / "a.onnx", proto.SerializeToString()) == "opset 999"
    proto.opset_import[0].version, proto.ir_version = 21, 99
    assert broken(tmp_path / "b.onnx", proto.SerializeToString()) == "IR version 99"


def test_outside_data_missing_short_or_elsewhere(tmp_path):
    path = with_outside_data(tmp_path, np.ones((3, 2), np.float32))
    data = (tmp_path / "net.data").read_bytes()
    (tmp_path / "net.data").write_bytes(data[:-1])
    with pytest.raises(InputError, match="past the end"):
        load_model(path)
    (tmp_path / "net.data").unlink()
    with pytest.raises(InputError, match="not there"):
        load_model(path)
    proto = onnx.load(path, load_external_data=False)
    proto.graph.initializer[0].external_data[0].value = "../secret"
    assert "outside the model's folder" in broken(path, proto.SerializeToString())


def test_large_constants_of_one_message_are_arrays_that_are_there_once(tmp_path):
    array = np.random.default_rng(0).normal(size=(600, 600)).astype(np.float32)
    halves = array.astype(np.float16).repeat(2, axis=0)
    net = onnx.parser.parse_model(
        TEXT.replace("float[N, 3] x", "float[N, 600] x").replace("float[N, 2] y", "float[N, 600] y")
    )
    net.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(array, "w"))
    net.graph.initializer.append(onnx.numpy_helper.from_array(halves, "half"))
    net.graph.initializer.append(
        onnx.helper.make_tensor("t", onnx.TensorProto.FLOAT, [2], [1.5, 2])
    )
    onnx.save(net, tmp_path / "net.onnx")
    loaded = load_model(tmp_path / "net.onnx")
    plain = ir.from_proto(net)
    assert graph_digest(loaded) == graph_digest(plain)
    for name, expected in (("w", array), ("half", halves)):
        tensor = loaded.graph.initializers[name].const_value
        assert isinstance(tensor, ir.Tensor)
        assert tensor.numpy() is tensor.numpy()
        np.testing.assert_array_equal(tensor.numpy(), expected)
    save_model(loaded, tmp_path / "again.onnx")
    assert graph_digest(load_model(tmp_path / "again.onnx")) == graph_digest(plain)


def test_a_large_constant_of_the_wrong_size_is_refused(tmp_path):
    net = onnx.parser.parse_model(TEXT)
    net.graph.initializer[0].CopyFrom(
        onnx.numpy_helper.from_array(np.ones((600, 600), np.float32), "w")
    )
    net.graph.initializer[0].dims[0] = 7
    assert "'w' of shape 7×600" in broken(tmp_path / "net.onnx", net.SerializeToString())


def test_outside_data_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    from qbench.graph import model_files

    monkeypatch.setattr(model_files, "MESSAGE_LIMIT", 10)
    big = model()
    big.graph.initializers["w"].const_value = ir.tensor(np.ones((3, 200), np.float32), name="w")
    path = tmp_path / "big.onnx"
    save_model(big, path)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    again = load_model(path)
    save_model(again, path)  # over the very file its constants are mapped from
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before
    big.graph.initializers["w"].const_value = ir.tensor(np.zeros((3, 200), np.float32), name="w")
    monkeypatch.setattr(model_files.ir, "to_proto", lambda _: (_ for _ in ()).throw(MemoryError))
    with pytest.raises(MemoryError):
        save_model(big, path)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before
