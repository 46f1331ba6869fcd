"""Execution providers of libraries: their declaration, the path of a session, and what is
skipped with which reason.
"""

import os
import shutil
import subprocess
from importlib.util import find_spec

import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest

from qbench.backends import (
    Backend,
    Executed,
    Executor,
    RemoteBackend,
    get_backend,
    load_provider,
    versions_of,
)
from qbench.backends.venv.another_python import with_batch
from qbench.errors import InputError, NotFetchedError, UnavailableError, UnsupportedError
from qbench.graph import declare_dims

NET = (
    '<ir_version: 10, opset_import: ["" : 21]> net (float[N, 2] x) => (float[N, 2] y) '
    "<float s = {0.5}, int8 z = {0}, int8[2, 2] w = {1, 2, 3, 4}> { q = QuantizeLinear(x, s, z) "
    "d = DequantizeLinear(q, s, z) v = DequantizeLinear(w, s, z) p = MatMul(d, v) "
    "h = QuantizeLinear(p, s, z) y = DequantizeLinear(h, s, z) }"
)
FEEDS = {"x": np.array([[1, 100], [2, 3.3], [-7, 0.25]], np.float32)}
CPU = 'provider = "CPUExecutionProvider"\n'


def net(text=NET, *, named=True):
    model = onnx.parser.parse_model(text)
    for node in model.graph.node if named else ():
        node.name = f"{node.op_type}_{node.output[0]}"
    return model


@pytest.fixture
def declared(tmp_path):
    def declare(text, name="mine"):
        path = tmp_path / f"{name}.toml"
        path.write_text(text)
        return load_provider(path)

    return declare


def test_a_session_on_the_devices_of_a_provider_gives_the_bits_of_that_provider(declared):
    backend = declared(CPU)
    assert isinstance(backend, Backend)
    assert isinstance(backend, RemoteBackend)
    with backend.prepare(net()) as far, get_backend("ort-cpu").prepare(net()) as near:
        assert isinstance(far, Executor)
        assert far.run(FEEDS)["y"].tobytes() == near.run(FEEDS)["y"].tobytes()
        assert far.executed()["MatMul_p"] == Executed("", "CPUExecutionProvider")


def test_a_given_batch_size_fixes_the_shape_and_batches_of_any_size_run(declared):
    free, fixed = declared(CPU), declared(CPU + "batch = 2\n")
    with free.prepare(net()) as whole, fixed.prepare(net()) as sliced:
        for rows in (1, 2, 3):
            feeds = {"x": FEEDS["x"][:rows]}
            assert sliced.run(feeds)["y"].tobytes() == whole.run(feeds)["y"].tobytes()


def test_with_a_batch_size_the_usual_sizes_of_other_free_dimensions_are_fixed_too():
    model = ir.from_proto(
        onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        net (float[N, 3, H, W] x, float[N, K] k) => (float[N, 3, H, W] y) { y = Relu(x) }""")
    )
    declare_dims(model, {"H": 8, "W": 6})
    fixed = with_batch(model, 4)
    shapes = [
        [str(dim) for dim in value.shape] for value in (*fixed.graph.inputs, *fixed.graph.outputs)
    ]
    assert shapes == [["4", "3", "8", "6"], ["4", "K"], ["4", "3", "8", "6"]]
    assert not isinstance(model.graph.inputs[0].shape[0], int)


def test_what_it_declares_is_what_the_file_says(declared, tmp_path):
    given = (
        'library = "some_ep:path"\noptions = { device = "NPU" }\nfallback = true\ndevice = "npu"\n'
        "batch = 4\n"
    )
    backend = declared('provider = "SomeProvider"\n' + given)
    assert (backend.name, backend.provider, backend.library) == (
        "ep-mine",
        "SomeProvider",
        "some_ep:path",
    )
    assert (backend.options, backend.device, backend.fallback, backend.batch) == (
        (("device", "NPU"),),
        "npu",
        True,
        4,
    )
    assert backend.packages == ("onnxruntime", "some-ep")
    assert not backend.capabilities.taps
    assert declared('provider = "P"\nlibrary = "libs/p.so"\n').library == str(
        tmp_path / "libs/p.so"
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('library = "x.so"\n', "provider"),
        (CPU + 'libary = "x.so"\n', "libary"),
        (CPU + 'device = "tpu"\n', "tpu"),
        (CPU + "batch = 0\n", "batch=0"),
        (CPU + "options = { a = 1 }\n", "options"),
        (CPU + 'fallback = "no"\n', "fallback"),
    ],
)
def test_a_wrong_file_is_refused(declared, text, found):
    with pytest.raises(InputError) as caught:
        declared(text)
    assert found in str(caught.value)


def test_a_provider_without_a_device_is_unsupported_and_the_reason_lists_those_that_are_offered(
    declared,
):
    with pytest.raises(UnsupportedError) as caught:
        declared('provider = "OpenVINOExecutionProvider"\n').prepare(net())
    assert "CPUExecutionProvider (cpu)" in caught.value.found
    assert caught.value.expected == "a device of OpenVINOExecutionProvider"
    with pytest.raises(UnsupportedError) as caught:
        declared(CPU + 'device = "npu"\n').prepare(net())
    assert "npu" in caught.value.expected


def test_a_library_that_is_not_there_or_is_no_provider_is_skipped_with_the_loaders_reason(
    declared, tmp_path
):
    (tmp_path / "junk.so").write_bytes(b"junk")
    for library, words in (
        ("nowhere.so", "nowhere.so"),
        ("junk.so", "junk.so"),
        ("no_such_package:path", "no_such_package"),
        ("os:no_such_name", "no_such_name"),
    ):
        with pytest.raises(NotFetchedError) as caught:
            declared(f'provider = "P"\nlibrary = "{library}"\n').prepare(net())
        assert words in caught.value.found


def test_taps_are_refused_but_outputs_are_none(declared):
    backend = declared(CPU)
    with pytest.raises(UnsupportedError, match="a tap on 'p'"):
        backend.prepare(net(), taps=("p",))
    with backend.prepare(net(), taps=("y",)) as executor:
        assert set(executor.run(FEEDS)) == {"y"}


def test_an_invalid_graph_is_an_error_of_the_graph(declared):
    with pytest.raises(InputError):
        declared(CPU).prepare(net(NET.replace("MatMul(d, v)", "MatMul(d, nowhere)")))


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_a_library_that_ends_its_process_ends_one_cell(declared, tmp_path):
    source = tmp_path / "crash.c"
    source.write_text(
        "#include <stdlib.h>\n__attribute__((constructor)) static void start(void) { abort(); }\n"
    )
    done = subprocess.run(
        ["cc", "-shared", "-fPIC", "-o", tmp_path / "crash.so", source], check=False
    )
    assert done.returncode == 0
    with pytest.raises(UnavailableError, match="SIGABRT"):
        declared('provider = "P"\nlibrary = "crash.so"\n').prepare(net())


def test_suites_know_the_files_beside_them_and_load_no_library(tmp_path):
    from qbench.suite import gather

    (tmp_path / "engines").mkdir()
    (tmp_path / "engines/npu.toml").write_text('provider = "NpuProvider"\nlibrary = "nowhere.so"\n')
    backend = gather(suites=tmp_path).backends.get("ep-npu")
    assert "onnxruntime" in versions_of(backend)
    with pytest.raises(NotFetchedError):
        backend.prepare(net())


# Real plugins of packages, where they are installed.


def installed(package):
    return pytest.mark.skipif(find_spec(package) is None, reason=f"needs the package {package}")


@pytest.mark.oracle
@installed("onnxruntime_ep_openvino")
def test_openvino_runs_or_offers_no_device_here(declared):
    text = (
        'provider = "OpenVINOExecutionProvider"\n'
        'library = "onnxruntime_ep_openvino:get_library_path"\n'
    )
    backend = declared(text)
    assert "onnxruntime-ep-openvino" in versions_of(backend)
    try:
        executor = backend.prepare(net())
    except UnsupportedError as error:
        assert "CPUExecutionProvider" in error.found  # noqa: PT017 - a device may be there
        pytest.skip(str(error))
    with executor:
        assert executor.run(FEEDS)["y"].shape == (3, 2)


@pytest.mark.oracle
@installed("onnxruntime_qnn")
def test_the_nodes_that_qnn_declines_are_named_and_the_cpu_may_run_them(declared):
    import onnxruntime_qnn

    text = (
        'provider = "QNNExecutionProvider"\nlibrary = "onnxruntime_qnn:get_library_path"\n'
        "batch = 2\n"
    )
    text += f'options = {{ backend_path = "{onnxruntime_qnn.get_qnn_htp_path()}" }}\n'
    with pytest.raises(UnsupportedError) as caught:
        declared(text).prepare(
            net(NET.replace("MatMul(d, v)", "Erf(d)").replace("v = DequantizeLinear(w, s, z)", ""))
        )
    assert "QNNExecutionProvider declines" in caught.value.found
    with declared(text + "fallback = true\n").prepare(net()) as executor:
        assert executor.run(FEEDS)["y"].shape == (3, 2)
        assert "CPUExecutionProvider" in {how.device for how in executor.executed().values()}


def test_no_worker_is_left(declared):
    children = f"/proc/{os.getpid()}/task/{os.getpid()}/children"
    with open(children) as file:
        before = set(file.read().split())
    with pytest.raises(UnsupportedError):
        declared('provider = "P"\n').prepare(net())
    with open(children) as file:
        assert set(file.read().split()) <= before
