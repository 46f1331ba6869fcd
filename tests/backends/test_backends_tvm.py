"""TVM: what it computes, what it refuses, and a compiler that is missing, broken,
crashes or hangs.
"""

from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import onnx.parser
import pytest

from qbench.backends import Backend, Executed, Executor, RemoteBackend, get_backend, versions_of
from qbench.errors import InputError, NotFetchedError, UnavailableError, UnsupportedError
from qbench.evaluation.executed_share import executed_share
from qbench.extension import install_command
from qbench.graph import Form
from qbench_engines.tvm import TvmBackend

HEAD = (
    '<ir_version: 10, opset_import: ["" : 21]> net (float[N, 1, 6, 6] x) => (float[N, 2, 4, 4] y) '
)
NET = HEAD + (
    "<float s = {0.5}, uint8 z = {7}, float t = {0.25}, int8 o = {0}, int8[2, 1, 3, 3] w = {1, 2, "
    "3, 4, -5, 6, 7, 8, "
    "9, -1, -2, -3, -4, 5, -6, -7, -8, -9}> { q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, "
    "s, z) "
    "v = DequantizeLinear(w, t, o) p = Conv(d, v) h = QuantizeLinear(p, s, z) y = "
    "DequantizeLinear(h, s, z) }"
)
FEEDS = {"x": np.linspace(-9, 9, 3 * 36, dtype=np.float32).reshape(3, 1, 6, 6)}

needs_tvm = pytest.mark.skipif(find_spec("tvm") is None, reason="needs the extra tvm")


def net(text=NET):
    model = onnx.parser.parse_model(text)
    for node in model.graph.node:
        node.name = f"{node.op_type}_{node.output[0]}"
    return model


@pytest.fixture
def fake_tvm(tmp_path, monkeypatch):
    """A package ``tvm`` that runs the given code when it is imported."""

    def make(code):
        (tmp_path / "tvm").mkdir()
        (tmp_path / "tvm" / "__init__.py").write_text(code)
        monkeypatch.syspath_prepend(tmp_path)

    return make


@pytest.mark.oracle
@needs_tvm
def test_it_computes_what_onnx_runtime_computes_without_fusion_at_any_batch_size():
    backend = get_backend("tvm")
    assert isinstance(backend, Backend)
    assert isinstance(backend, RemoteBackend)
    assert set(versions_of(backend)) == {"apache-tvm"}
    with backend.prepare(net()) as theirs, get_backend("ort-cpu-noopt").prepare(net()) as ours:
        assert isinstance(theirs, Executor)
        for rows in (3, 1):
            feeds = {"x": FEEDS["x"][:rows]}
            assert theirs.run(feeds)["y"].tobytes() == ours.run(feeds)["y"].tobytes()
        assert theirs.executed()["Conv_p"] == Executed("float32", "cpu")
        with pytest.raises(InputError, match="dtype float64"):
            theirs.run({"x": FEEDS["x"].astype(np.float64)})


@pytest.mark.oracle
@needs_tvm
def test_what_it_imports_quantized_is_float_after_import():
    from tvm.relax.frontend.onnx import from_onnx

    text = from_onnx(net(), keep_params_in_input=False).script()
    (line,) = (line for line in text.splitlines() if "conv2d" in line)
    assert 'dtype="float32"' in line
    assert "int32" not in text


@pytest.mark.oracle
@needs_tvm
def test_an_operator_that_it_lacks_is_unsupported_with_its_reason():
    text = (
        '<ir_version: 10, opset_import: ["" : 21]> net (float[N, 4, 4] x) => (float[N] y) '
        "{ y = Det(x) }"
    )
    with pytest.raises(UnsupportedError) as caught:
        get_backend("tvm").prepare(net(text))
    assert "not supported for frontend ONNX: Det" in caught.value.found


@pytest.mark.oracle
@needs_tvm
def test_results_keep_their_order_and_a_default_input_is_not_replaced():
    text = (
        '<ir_version: 10, opset_import: ["" : 21]> net (float[2, 4] x, float[4] b) => (float[2, 3] '
        "v, float[2, 1] u) "
        "<float[4] b = {1, 2, 3, 4}, int64[2] parts = {1, 3}> { a = Add(x, b) "
        "u, v = Split<axis = 1>(a, parts) }"
    )
    feeds = {"x": np.arange(8, dtype=np.float32).reshape(2, 4)}
    with get_backend("tvm").prepare(net(text)) as theirs:
        found = theirs.run(feeds)
        assert {name: array.tolist() for name, array in found.items()} == {
            "v": [[3, 5, 7], [7, 9, 11]],
            "u": [[1], [5]],
        }
        with pytest.raises(InputError, match="default value"):
            theirs.run({**feeds, "b": np.zeros(4, np.float32)})


def test_without_the_package_the_reason_says_what_to_install(monkeypatch):
    monkeypatch.setattr("qbench_engines.tvm.find_spec", lambda _: None)
    with pytest.raises(NotFetchedError) as caught:
        get_backend("tvm").prepare(net())
    assert install_command("tvm") in caught.value.remedy


@pytest.mark.slow
def test_an_installation_that_does_not_load_is_not_installed(fake_tvm):
    fake_tvm("raise OSError('libtvm.so: cannot open')")
    with pytest.raises(NotFetchedError, match=r"libtvm\.so"):
        get_backend("tvm").prepare(net())


@pytest.mark.slow
def test_a_compiler_that_crashes_ends_one_cell(fake_tvm):
    fake_tvm("import os; os.abort()")
    with pytest.raises(UnavailableError, match="SIGABRT"):
        get_backend("tvm").prepare(net())


@pytest.mark.slow
def test_a_compiler_that_hangs_is_ended(fake_tvm):
    fake_tvm("import time; time.sleep(1e6)")
    with pytest.raises(UnavailableError, match="no answer in 1 s"):
        TvmBackend(seconds=1).prepare(net())


def test_taps_are_refused():
    backend = get_backend("tvm")
    assert Form.QDQ in backend.capabilities.forms
    assert not backend.capabilities.taps
    if find_spec("tvm") is not None:
        with pytest.raises(UnsupportedError, match="a tap on 'p'"):
            backend.prepare(net(), taps=("p",))


def test_nodes_whose_precision_is_not_known_give_no_share():
    plan = SimpleNamespace(
        macs=10, node_macs={"conv": 10}, integer_nodes=frozenset({"conv"}), decisions={}
    )
    quantized = SimpleNamespace(plans={"": plan})

    def share(precision):
        return executed_share(
            {"": SimpleNamespace(executed=lambda: {"conv": Executed(precision, "npu")})}, quantized
        ).share

    assert [share(precision) for precision in ("", "uint8", "float32")] == [None, 1, 0]
