"""OpenVINO as a backend: numbers, executed precision, refusals with its reason;
without it, what to install.
"""

import re
import sys

import numpy as np
import onnx_ir as ir
import pytest
from test_backends_engines import batch, float_net, qdq_net, run

from qbench.backends import catalogue, get_backend, in_slices, isolated, versions_of
from qbench.errors import InputError, NotFetchedError, UnsupportedError
from qbench.evaluation import build_subject, environment_of, subject_artifacts
from qbench.extension import install_command, installed_extensions
from qbench_engines import openvino, torch_quantized

NAMES = ("openvino", "openvino-bf16")
needs_engine = pytest.mark.oracle


@pytest.fixture(autouse=True)
def fresh_core():
    openvino._core.cache_clear()


@pytest.fixture
def engine():
    reason = (
        "openvino cannot be imported here; `make test-oracles` installs it with the extra 'oracle'"
    )
    return pytest.importorskip("openvino", reason=reason, exc_type=ImportError)


def test_a_long_message_ends_with_a_whole_word():
    found = openvino._sentence("unsupported operator " * 40)
    assert len(found) <= 300
    assert found.split()[-2:] in (["unsupported", "…"], ["operator", "…"])


def one_node(op, inputs, outputs=("y",), version=21, domain="", **attributes):
    """A graph of one node; ``inputs``: name → (dtype, shape)."""
    values = [ir.val(name, dtype, ir.Shape(shape)) for name, (dtype, shape) in inputs.items()]
    node = ir.node(
        op, values, attributes, name="node/of.it", domain=domain, num_outputs=len(outputs)
    )
    for value, name in zip(node.outputs, outputs, strict=True):
        value.name, value.dtype = name, ir.DataType.FLOAT
    opsets = {"": version} | ({domain: 1} if domain else {})
    return ir.Model(
        ir.Graph(values, node.outputs, nodes=[node], opset_imports=opsets, name="one"),
        ir_version=10,
    )


PAIR = {"x": (ir.DataType.FLOAT, ["N", 4])}


@pytest.mark.parametrize(
    ("name", "arithmetics", "classes"),
    [
        ("openvino", ("openvino-vnni", "openvino-amx"), ("", "+onednn-amx")),
        ("openvino-bf16", ("openvino-vnni", "openvino-amx"), ("", "+onednn-amx")),
        ("torch-onednn", ("onednn", None), ("", "+onednn-amx")),
        ("torch-fbgemm", ("fbgemm", "fbgemm"), ("", "")),
        ("torch-qnnpack", ("qnnpack", "qnnpack"), ("", "")),
        ("litert-builtin", ("litert-x64", "litert-x64"), ("", "")),
    ],
)
@pytest.mark.parametrize("amx", [False, True])
def test_amx_has_an_arithmetic_and_a_class_of_its_own(monkeypatch, name, arithmetics, classes, amx):
    """Processors with VNNI have it or not, under one word."""
    for module in (openvino, torch_quantized):
        monkeypatch.setattr(module, "has_amx", lambda: amx)
        monkeypatch.setattr(module, "processor_class", lambda: "x64-avx512-vnni")
    backend = isolated(get_backend(name))
    assert get_backend(name).arithmetic == arithmetics[amx]
    found = str(environment_of(backend, "x64-avx512-vnni"))
    assert found.startswith(f"x64-avx512-vnni{classes[amx]}")
    assert ("onednn" in found) == bool(classes[amx])


def test_every_backend_has_a_class():
    names = catalogue(installed_extensions()).names()
    assert {"litert-builtin", "tvm", "torch-fbgemm", "openvino"} <= set(names)
    for name in names:
        found = str(environment_of(isolated(get_backend(name)), "x64-sse"))
        assert found.startswith("x64-sse"), name


@pytest.mark.parametrize("name", NAMES)
def test_without_the_package_cells_report_what_to_install(name, monkeypatch):
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(NotFetchedError, match=re.escape(install_command("openvino"))):
        get_backend(name).prepare(float_net())


def test_the_float_reference_is_of_a_backend_that_gives_values_inside_a_graph():
    subject = build_subject("digits_cnn", "digits_test", None, None, None)
    assert subject_artifacts(subject, get_backend("openvino")).fp32_backend.name == "ort-cpu"
    assert (
        subject_artifacts(subject, get_backend("ort-cpu-noopt")).fp32_backend.name
        == "ort-cpu-noopt"
    )


@needs_engine
def test_numbers_and_the_nodes_that_really_run(engine):
    model = qdq_net(weight_limit=64)  # sums are exact on every processor
    with get_backend("openvino").prepare(model) as executor:
        theirs, found = executor.run({"x": batch()})["y"], executor.executed()
    np.testing.assert_allclose(theirs, run("ort-cpu-precise", model)["y"], rtol=1e-5, atol=1e-5)
    assert {found[node].precision for node in ("conv1", "conv2", "y")} == {"uint8"}
    assert found["x.q"].precision == "float32"
    assert {one.device for one in found.values()} == {"cpu"}
    with get_backend("openvino").prepare(float_net()) as executor:
        np.testing.assert_allclose(
            executor.run({"x": batch()})["y"], run("ort-cpu", float_net())["y"], atol=1e-5
        )
        assert {one.precision for one in executor.executed().values()} == {"float32"}


@needs_engine
def test_pairs_saturate_as_the_arithmetic_of_this_processor_says(engine):
    arithmetic = get_backend("openvino").arithmetic
    if arithmetic is None:
        pytest.skip("no arithmetic is declared for this class of processor")
    theirs = run("openvino", qdq_net())["y"]
    np.testing.assert_allclose(
        theirs, run(f"integer-{arithmetic}", qdq_net())["y"], rtol=1e-5, atol=1e-5
    )
    saturates = arithmetic == "openvino-avx2"
    assert (np.abs(theirs - run("ort-cpu-precise", qdq_net())["y"]).max() > 0.01) == saturates


@needs_engine
def test_float_operators_are_never_computed_in_bf16_unasked(engine):
    core = engine.Core()
    offered = "BF16" in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    if not offered:
        with pytest.raises(UnsupportedError, match="bf16"):
            get_backend("openvino-bf16").prepare(float_net())
        return
    with get_backend("openvino-bf16").prepare(float_net()) as executor:
        assert {one.precision for one in executor.executed().values()} == {"bfloat16"}
    assert (run("openvino-bf16", float_net())["y"] != run("openvino", float_net())["y"]).any()


@needs_engine
def test_batches_of_any_size_threads_and_repeated_runs(engine):
    fixed = qdq_net()
    fixed.graph.inputs[0].shape = ir.Shape([4, 3, 8, 8])
    whole = run("openvino", qdq_net())["y"]
    with get_backend("openvino").prepare(fixed) as executor:
        np.testing.assert_array_equal(in_slices(executor, fixed).run({"x": batch()})["y"], whole)
        with pytest.raises(InputError, match="shape"):
            executor.run({"x": batch()})
    with get_backend("openvino").prepare(qdq_net(), threads=2) as executor:
        for count in (16, 1, 3, 16):
            np.testing.assert_array_equal(executor.run({"x": batch()[:count]})["y"], whole[:count])
    with pytest.raises(RuntimeError, match="closed"):
        executor.run({"x": batch()})


@needs_engine
def test_several_inputs_and_outputs(engine):
    inputs = {"a": (ir.DataType.FLOAT, ["N", 4]), "b": (ir.DataType.FLOAT, ["N", 4])}
    model = one_node("Add", inputs, ("y",))
    model.graph.outputs.append(model.graph.inputs[1])
    feeds = {
        "b": np.asfortranarray(np.arange(12, dtype=np.float32).reshape(3, 4)),
        "a": np.ones((3, 4), np.float32),
    }
    with get_backend("openvino").prepare(model) as executor:
        found = executor.run(feeds)
        kept = found["y"].copy()
        executor.run({name: array * 2 for name, array in feeds.items()})
        assert executor.executed()["node/of.it"].precision == "float32"
        with pytest.raises(InputError, match="no input 'a'"):
            executor.run({"b": feeds["b"]})
    np.testing.assert_array_equal(found["y"], feeds["a"] + feeds["b"])
    np.testing.assert_array_equal(found["b"], feeds["b"])
    np.testing.assert_array_equal(found["y"], kept)


@needs_engine
def test_refusals_have_the_engines_reason(engine):
    backend = get_backend("openvino")
    with pytest.raises(UnsupportedError, match=r"No conversion rule found for operations: my\.Own"):
        backend.prepare(one_node("Own", PAIR, domain="my"))
    with pytest.raises(UnsupportedError, match="tap on 'conv1'"):
        backend.prepare(qdq_net(), taps=("conv1",))
    with pytest.raises(InputError, match="threads"):
        backend.prepare(qdq_net(), threads=0)
    assert versions_of(backend).keys() == {"openvino"}
