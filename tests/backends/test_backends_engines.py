"""Every backend through one door: numbers, taps, feeds, closing, refusals; and onnxruntime's
options compared.
"""

import subprocess
import sys
import types

import numpy as np
import onnx_ir as ir
import pytest

from qbench.backends import (
    Backend,
    Executed,
    Executor,
    OrtBackend,
    arithmetic_of,
    catalogue,
    executed_by,
    get_backend,
    integer_backends,
    recording,
    runs_as_written,
)
from qbench.errors import InputError, NotFetchedError, UnsupportedError
from qbench.extension import Extension, install_command, installed_extensions
from qbench.graph import check_convention, graph_digest, save_model
from qbench.host import DotProduct, probe_dot_product
from qbench.numerics import list_arithmetics
from qbench.passes import list_devices

NAMES = ("onnx-reference", "ort-cpu", "ort-cpu-noopt", "ort-cpu-precise", "ort-cpu-qoperator")
ORT = NAMES[1:]


def constant(name, array):
    tensor = ir.tensor(np.asarray(array), name=name)
    return ir.val(name, tensor.dtype, tensor.shape, const_value=tensor)


def float_net(seed=0):
    """x (N, 3, 8, 8) → conv 8 → relu → conv 8 → mean → linear 5, weights in [-1, 1]."""
    return cnn(seed, quantized=False)


def qdq_net(seed=0, weight_limit=127):
    """The same with uint8 activations and int8 weights of at most ``weight_limit``."""
    return cnn(seed, quantized=True, weight_limit=weight_limit)


def cnn(seed, *, quantized, weight_limit=127):
    rng = np.random.default_rng(seed)
    nodes, constants = [], {}

    def const(name, array):
        return constants.setdefault(name, constant(name, array))

    def add(op, inputs, name, **attributes):
        node = ir.node(op, inputs, attributes, name=name)
        node.outputs[0].name = name
        nodes.append(node)
        return node.outputs[0]

    def activation(value, name, scale):
        if not quantized:
            return value
        grid = [const(f"{name}.s", np.float32(scale)), const(f"{name}.z", np.uint8(0))]
        return add(
            "DequantizeLinear",
            [add("QuantizeLinear", [value, *grid], f"{name}.q"), *grid],
            f"{name}.dq",
        )

    def weight(name, shape):
        integers = rng.integers(-weight_limit, weight_limit + 1, shape).astype(np.int8)
        if not quantized:
            return const(name, integers.astype(np.float32) / 127)
        grid = [const("w.s", np.float32(1 / 127)), const("w.z", np.int8(0))]
        return add("DequantizeLinear", [const(name, integers), *grid], f"{name}.dq")

    x = ir.val("x", ir.DataType.FLOAT, ir.Shape(["N", 3, 8, 8]))
    a = activation(x, "x", 1 / 255)
    a = add("Conv", [a, weight("w1", (8, 3, 3, 3))], "conv1", pads=[1, 1, 1, 1])
    a = activation(add("Relu", [a], "relu1"), "relu1", 4 / 255)
    a = activation(add("Conv", [a, weight("w2", (8, 8, 1, 1))], "conv2"), "conv2", 6 / 255)
    a = activation(add("GlobalAveragePool", [a], "mean"), "mean", 4 / 255)
    a = add("Flatten", [a], "flat")
    y = add("Gemm", [a, weight("w3", (8, 5))], "y")
    y.dtype = ir.DataType.FLOAT
    graph = ir.Graph(
        [x],
        [y],
        nodes=nodes,
        initializers=list(constants.values()),
        opset_imports={"": 21},
        name="cnn",
    )
    return ir.Model(graph, ir_version=10)


def batch(n=16, seed=1):
    return np.random.default_rng(seed).random((n, 3, 8, 8), np.float32)


def run(name, model, feeds=None, **options):
    with get_backend(name).prepare(model, **options) as executor:
        return executor.run(feeds or {"x": batch()})


def by_numpy(model, x):
    w1, w2, w3 = (
        model.graph.initializers[n].const_value.numpy().astype(np.float64)
        for n in ("w1", "w2", "w3")
    )
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    h = np.maximum(np.einsum("nchwij,ocij->nohw", windows, w1), 0)
    return np.einsum("nchw,oc->nohw", h, w2[:, :, 0, 0]).mean((2, 3)) @ w3


@pytest.mark.parametrize("name", NAMES)
def test_float_numbers(name):
    model = float_net()
    np.testing.assert_allclose(
        run(name, model)["y"], by_numpy(model, batch()), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_protocol_and_paths(name, tmp_path):
    backend = get_backend(name)
    assert isinstance(backend, Backend)
    assert backend.name == name
    assert backend == get_backend(name)
    save_model(float_net(), tmp_path / "net.onnx")
    with backend.prepare(tmp_path / "net.onnx") as executor:
        assert isinstance(executor, Executor)
        from_path = executor.run({"x": batch()})
    np.testing.assert_array_equal(from_path["y"], run(name, float_net())["y"])
    np.testing.assert_array_equal(run(name, str(tmp_path / "net.onnx"))["y"], from_path["y"])
    with pytest.raises(RuntimeError, match="closed"):
        executor.run({"x": batch()})


@pytest.mark.parametrize(
    ("name", "integers"),
    [(name, name != "onnx-reference" and "noopt" not in name) for name in NAMES],
)
def test_executors_report_the_nodes_that_really_run(name, integers):
    with get_backend(name).prepare(float_net()) as executor:
        assert {one.precision for one in executor.executed().values()} <= {"float32", ""}
    with get_backend(name).prepare(qdq_net()) as executor:
        found = executor.executed()
        run_before = executor.run({"x": batch()})
    assert {one.device for one in found.values()} == {"cpu"}
    convolutions = {
        found[node].precision for node in found if node.startswith("conv") and "." not in node
    }
    assert ("uint8" in convolutions) == integers
    np.testing.assert_array_equal(run_before["y"], run(name, qdq_net())["y"])


@pytest.mark.parametrize("name", ORT)
def test_a_recording_session_knows_how_it_runs_and_its_numbers_are_equal(name):
    backend = get_backend(name)
    with backend.prepare(qdq_net()) as plain, recording(backend).prepare(qdq_net()) as recorded:
        assert recorded.executed() == plain.executed()
        assert {"conv1", "conv2"} <= recorded.executed().keys()
        np.testing.assert_array_equal(
            recorded.run({"x": batch()})["y"], plain.run({"x": batch()})["y"]
        )


def test_words_for_types_of_integers():
    integers = [
        word
        for word in ("uint8", "int4", "u8", "i8", "float32", "f16", "bf16", "")
        if Executed(word, "cpu").in_integers
    ]
    assert integers == ["uint8", "int4", "u8", "i8"]


def test_islands_run_on_the_device():
    with get_backend("partitioned-conv-engine").prepare(qdq_net()) as executor:
        found = {(one.precision, one.device) for one in executor.executed().values()}
    assert ("uint8", "conv-engine") in found
    assert ("float32", "cpu") in found


def test_backends_and_executors_from_before_arithmetic_and_executed_were_declared():
    class Old:
        name, capabilities, packages = "old", get_backend("ort-cpu").capabilities, ()

    assert arithmetic_of(Old()) is None
    assert executed_by(Old()) == {}
    assert not runs_as_written(Old())
    assert arithmetic_of(get_backend("onnx-reference")).name == "ideal"


@pytest.mark.parametrize("name", NAMES)
def test_taps_come_behind_the_outputs_and_leave_the_model_alone(name):
    model = float_net()
    before = graph_digest(model)
    found = run(name, model, taps=["relu1", "x", "w1", "y", "relu1"])
    assert list(found) == ["y", "relu1", "x", "w1"]
    assert found["relu1"].shape == (16, 8, 8, 8)
    assert found["relu1"].min() == 0
    np.testing.assert_array_equal(found["x"], batch())
    assert graph_digest(model) == before
    with pytest.raises(InputError, match="Did you mean 'relu1'"):
        get_backend(name).prepare(model, taps=["relu"])


@pytest.mark.parametrize("name", ORT)
def test_a_tap_behind_an_operator_that_onnx_does_not_know(name):
    text = """<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
    net (float[N, 4] x) => (float[N, 4] y) { h = com.microsoft.Gelu(x) y = Relu(h) }"""
    found = run(name, ir.from_onnx_text(text), {"x": np.ones((1, 4), np.float32)}, taps=["h"])
    np.testing.assert_array_equal(found["h"], found["y"])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("feeds", "words"),
    [
        ({}, "no input 'x'"),
        ({"x": batch(), "xx": batch()}, "unknown input 'xx'"),
        ({"x": batch().astype(np.float64)}, "dtype float64 where the graph takes float32"),
        ({"x": batch()[0]}, "shape 3×8×8 where the graph takes ?×3×8×8"),
        ({"x": batch()[:, :2]}, "shape ?×2×8×8 where the graph takes ?×3×8×8"),
    ],
)
def test_feeds_that_do_not_fit(name, feeds, words):
    with get_backend(name).prepare(float_net()) as executor, pytest.raises(InputError) as caught:
        executor.run(feeds)
    assert words in str(caught.value)
    assert name in str(caught.value)


@pytest.mark.parametrize("name", ORT)
def test_threads_do_not_change_the_numbers(name):
    for model in (float_net(), qdq_net()):
        one, two = (run(name, model, threads=threads)["y"] for threads in (1, 2))
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("name", NAMES)
def test_running_twice_and_in_pieces_gives_the_same_integers(name):
    model = qdq_net()
    whole = run(name, model)["y"]
    np.testing.assert_array_equal(run(name, model)["y"], whole)
    with get_backend(name).prepare(model) as executor:
        pieces = [executor.run({"x": batch()[i : i + 4]})["y"] for i in range(0, 16, 4)]
    # The last Gemm stays in float, where the order of sums may depend on the batch.
    np.testing.assert_allclose(np.concatenate(pieces), whole, rtol=1e-6, atol=1e-6)


def test_quantized_runs_agree_within_a_step_where_nothing_saturates():
    model = qdq_net(
        weight_limit=64
    )  # pairs stay under 2·255·64 = 32,640: no 16-bit saturation anywhere
    assert check_convention(model) == ()
    found = {name: run(name, model)["y"] for name in NAMES}
    step = 4 / 255 * 8  # one step of the mean's grid, through eight weights of at most one
    for name in NAMES:
        assert np.abs(found[name] - found["onnx-reference"]).max() < step, name
    np.testing.assert_array_equal(found["ort-cpu"], found["ort-cpu-precise"])


def test_precise_differs_exactly_where_the_probe_saturates():
    model = saturating_net()
    feeds = {"x": np.ones((1, 16), np.float32)}
    exact = 16 * 127 * 255
    found = {name: float(run(name, model, feeds)["y"][0, 0]) for name in NAMES}
    for name in ("onnx-reference", "ort-cpu-noopt", "ort-cpu-precise"):
        assert found[name] == pytest.approx(exact, rel=1e-3), name
    match probe_dot_product():
        case DotProduct.EXACT:
            assert found["ort-cpu"] == found["ort-cpu-precise"]
        case DotProduct.SATURATING:
            assert found["ort-cpu"] == pytest.approx(8 * 32767, rel=1e-3)
        case DotProduct.UNKNOWN:
            pytest.fail("the probe saw neither number")


def test_precise_takes_shared_weights_and_zero_points():
    text = """<ir_version: 10, opset_import: ["" : 21]> net (float[N, 4] x) => (float[N, 2] y)
    <float s = {0.1}, uint8 z = {0}, float ws = {1}, int8 wz = {0},
     int8[4, 2] w = {127, -127, 127, 3, 4, 127, 127, 127}> {
      q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) e = DequantizeLinear(q, s, z)
      v = DequantizeLinear(w, ws, wz) u = DequantizeLinear(w, ws, wz)
      a = MatMul(d, v) b = MatMul(e, u) y = Add(a, b)
    }"""
    model = ir.from_onnx_text(text)
    before = graph_digest(model)
    feeds = {"x": np.full((3, 4), 25.5, np.float32)}
    found = run("ort-cpu-precise", model, feeds)["y"]
    np.testing.assert_allclose(found, run("onnx-reference", model, feeds)["y"], rtol=1e-5)
    assert graph_digest(model) == before


def saturating_net():
    """[255]·16 times [127]·16, scales one: 518,160 exactly, 262,136 when each pair saturates."""
    grid = "xs, xz"
    text = f"""<ir_version: 10, opset_import: ["" : 21]> net (float[N, 16] x) => (float[N, 4] y)
    <float xs = {{0.00392156862745098}}, uint8 xz = {{0}}, float ws = {{1}}, int8 wz = {{0}},
     float s = {{255}}> {{
      q = QuantizeLinear(x, {grid}) d = DequantizeLinear(q, {grid})
      w = DequantizeLinear(wq, ws, wz) m = MatMul(d, w) y = Mul(m, s)
    }}"""
    text = text.replace("float[N, 16] x)", "float[N, 16] x, int8[16, 4] wq)")
    model = ir.from_onnx_text(text)
    value = model.graph.inputs[1]
    model.graph.inputs.remove(value)
    value.const_value = ir.tensor(np.full((16, 4), 127, np.int8), name="wq")
    model.graph.register_initializer(value)
    return model


@pytest.mark.parametrize("name", NAMES)
def test_an_operator_the_engine_lacks_is_unsupported(name):
    text = """<ir_version: 10, opset_import: ["" : 21, "com.example" : 1]>
    net (float[N, 4] x) => (float[N, 4] y) { y = com.example.Secret(x) }"""
    with pytest.raises(UnsupportedError) as caught:
        get_backend(name).prepare(ir.from_onnx_text(text))
    assert "Secret" in caught.value.found or "com.example" in caught.value.found


def test_an_opset_of_the_future_is_unsupported_and_a_wrong_graph_an_error():
    text = (
        '<ir_version: 10, opset_import: ["" : 21]> net (float[2, 4] x) => (float[2, 4] y) '
        "{ y = Relu(x) }"
    )
    newer = ir.from_onnx_text(text)
    newer.graph.opset_imports[""] = 99
    with pytest.raises(UnsupportedError, match="guarantees") as caught:
        get_backend("ort-cpu").prepare(newer)
    assert "onnxruntime_src" not in str(caught.value)
    wrong = ir.from_onnx_text(text.replace("float[2, 4] y", "int8[2, 4] y"))
    with pytest.raises(InputError, match="Type Error"):
        get_backend("ort-cpu").prepare(wrong)


def test_a_batch_the_graph_cannot_compute():
    text = (
        '<ir_version: 10, opset_import: ["" : 21]> net (float[N] x, float[M] z) '
        "=> (float[K] y) { y = Add(x, z) }"
    )
    feeds = {"x": np.ones(3, np.float32), "z": np.ones(4, np.float32)}
    for name in NAMES:
        with (
            get_backend(name).prepare(ir.from_onnx_text(text)) as executor,
            pytest.raises(InputError, match="Running"),
        ):
            executor.run(feeds)


def test_capabilities_and_packages():
    assert get_backend("ort-cpu").packages == ("onnxruntime",)
    reference = get_backend("onnx-reference")
    assert reference.packages == ("onnx", "numpy")
    assert reference.capabilities.max_macs is not None
    assert get_backend("ort-cpu").capabilities.max_macs is None


def test_extensions_add_backends_and_names_are_suggested():
    added = Extension(
        name="mine", backends={"ort-mine": lambda: OrtBackend(name="ort-mine", precise=True)}
    )
    found = catalogue([added])
    assert found.names() == tuple(sorted((*catalogue().names(), "ort-mine")))
    assert set(NAMES) <= set(catalogue().names())
    assert found.get("ort-mine").name == "ort-mine"
    with pytest.raises(InputError, match="Did you mean 'ort-cpu'"):
        get_backend("ort_cpu")


@pytest.mark.parametrize("name", ["nope", "tensorrt", "cuda", "foo"])
def test_nothing_is_suggested_for_a_name_that_resembles_none(name):
    with pytest.raises(InputError) as caught:
        get_backend(name)
    assert "Did you mean" not in caught.value.remedy


def test_every_arithmetic_is_a_backend_and_listing_them_loads_no_numerics():
    wanted = {f"integer-{name}" for name in list_arithmetics()} | {
        f"partitioned-{name}" for name in list_devices()
    }
    assert integer_backends() == wanted <= set(catalogue().names())
    quantized_only = {"torch-fbgemm", "torch-onednn", "torch-qnnpack"}
    assert integer_backends(installed_extensions()) == wanted | quantized_only
    code = (
        "import sys; from qbench.backends import catalogue; catalogue(); "
        "print('qbench.numerics' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("name", ["torch-fbgemm", "torch-qnnpack", "torch-onednn"])
def test_without_pytorch_its_backends_say_what_to_install(name, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(NotFetchedError) as caught:
        get_backend(name).prepare(qdq_net())
    assert install_command("torch") in caught.value.remedy
    assert get_backend(name).packages == ("torch",)


ENGINES = {
    "openvino": ("openvino.py", "openvino"),
    "litert-xnnpack": ("ai_edge_litert/interpreter.py", "litert"),
    "torch-fbgemm": ("torch.py", "torch"),
}


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize(
    "raised",
    [
        "OSError('libengine.so: undefined symbol')",
        "ImportError('numpy ABI')",
        "RuntimeError('no AVX')",
        "KeyError(1)",
    ],
)
def test_an_engine_that_does_not_load_is_skipped_with_its_reason(
    name, raised, monkeypatch, tmp_path
):
    """Whatever its import raises, cells are skipped:
    the error is that of a package that is not installed.
    """
    import qbench_engines.openvino

    file, extra = ENGINES[name]
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).with_name("__init__.py").touch()
    (tmp_path / file).write_text(f"raise {raised}")
    package = file.split("/")[0].removesuffix(".py")
    for module in [one for one in sys.modules if one.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.syspath_prepend(tmp_path)
    qbench_engines.openvino._core.cache_clear()
    with pytest.raises(NotFetchedError) as caught:
        get_backend(name).prepare(qdq_net())
    assert raised.partition("'")[2].strip("')") in caught.value.found
    assert install_command(extra) in caught.value.remedy


@pytest.mark.parametrize(
    ("name", "lacking"), [("openvino", "Core"), ("torch-fbgemm", "quantize_per_tensor")]
)
def test_an_empty_package_counts_as_one_that_is_not_installed(name, lacking, monkeypatch):
    """A folder of the engine's name, or a release without what the backend calls, imports
    without an error.
    """
    import qbench_engines.openvino

    package = name.partition("-")[0]
    monkeypatch.setitem(sys.modules, package, types.ModuleType(package))
    qbench_engines.openvino._core.cache_clear()
    with pytest.raises(NotFetchedError, match=f"has no attribute '{lacking}'.*pip install"):
        get_backend(name).prepare(qdq_net())


def test_a_mistyped_backend_of_another_python_is_suggested():
    from qbench.backends.venv.another_python import mirrored_backend

    with pytest.raises(InputError) as caught:
        mirrored_backend("ort-cpu-nopt", "Reading 'mine.toml'")
    assert caught.value.remedy == "Did you mean 'ort-cpu-noopt'?"
    with pytest.raises(InputError) as caught:
        mirrored_backend("integer-ideal", "Reading 'mine.toml'")
    assert "Did you mean" not in caught.value.remedy


def test_importing_the_room_loads_no_engine():
    code = (
        "import sys, qbench.backends; print([m for m in ('onnxruntime', "
        "'onnx.reference') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
