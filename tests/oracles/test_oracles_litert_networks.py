"""Whole graphs on LiteRT, written as TFLite files:
every code as the arithmetic of the kernels gives it.
"""

import numpy as np
import onnx_ir as ir
import pytest
from litert_models import MACHINES, Kernels
from onnx import TensorProto, helper

from qbench.backends import executed_by, get_backend
from qbench.calibration import calibrate
from qbench.cli import main
from qbench.errors import UnsupportedError
from qbench.graph import save_model
from qbench.passes import lower_to_integers
from qbench.quantization import make_plan, quantize_model
from qbench.storage import Cache
from qbench.subjects import get_dataset, get_model, prepare_samples
from qbench.subjects.operator_graphs import operator_feeds, operator_graph
from qbench.subjects.operators import get_operator, list_operators
from qbench_engines import write_tflite

pytestmark = [pytest.mark.oracle, pytest.mark.usefixtures("litert")]
NAMES = {Kernels.REFERENCE: "reference", Kernels.OPTIMIZED: "builtin", Kernels.XNNPACK: "xnnpack"}
REFUSED = {"Div", "Gelu"}


def integers_of(model: ir.Model) -> list[str]:
    """The computed codes of the lowered graph."""
    values = [value for node in lower_to_integers(model).graph for value in node.outputs]
    return [
        str(value.name) for value in values if value.dtype in {ir.DataType.INT8, ir.DataType.UINT8}
    ]


def quantized_digits(schema: str) -> tuple[ir.Model, dict[str, np.ndarray]]:
    subject = get_model("digits_cnn")
    samples = prepare_samples(
        get_dataset("digits_test").take(64), subject.preprocess, Cache.default()
    )
    (feeds,) = samples.batches(64)
    graph = subject.graphs["model"]()
    return quantize_model(graph, make_plan(graph, calibrate(graph, [feeds]), schema)), dict(feeds)


@pytest.mark.parametrize("kernels", list(Kernels))
@pytest.mark.parametrize(
    "name", [one for one in list_operators() if "one_dimension" in one or "convtranspose" in one]
)
def test_signals_and_transposed_convolutions(name, kernels) -> None:
    model, feeds = operator_graph(get_operator(name)), dict(operator_feeds(get_operator(name)))
    with get_backend(f"litert-{NAMES[kernels]}").prepare(model) as engine:
        theirs = engine.run(feeds)
        assert {one.precision for one in executed_by(engine).values()} >= {"int8"}
    with get_backend(f"integer-{MACHINES[kernels]}").prepare(model) as interpreter:
        ours = interpreter.run(feeds)
    assert all(np.array_equal(ours[key], theirs[key]) for key in ours)


def transposed(**attributes) -> ir.Model:
    """A float transposed convolution of pictures of 4×5, with these attributes."""
    weight = np.random.default_rng(3).normal(size=(2, 3, 3, 3)).astype(np.float32)
    nodes = [helper.make_node("ConvTranspose", ["x", "w"], ["y"], "up", **attributes)]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", ["N", 2, 4, 5]), ("y", None))
    ]
    tensors = [helper.make_tensor("w", TensorProto.FLOAT, weight.shape, weight.reshape(-1))]
    made = helper.make_graph(nodes, "g", ends[:1], ends[1:], tensors)
    return ir.from_proto(
        helper.make_model(made, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    )


@pytest.mark.parametrize(
    "attributes",
    [
        {"strides": [2, 2]},
        {"strides": [2, 3], "pads": [1, 0, 0, 2]},
        {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]},
    ],
)
def test_a_float_transposed_convolution_is_onnxs(attributes) -> None:
    model, x = (
        transposed(**attributes),
        np.random.default_rng(5).normal(size=(3, 2, 4, 5)).astype(np.float32),
    )
    with (
        get_backend("litert-builtin").prepare(model) as engine,
        get_backend("ort-cpu").prepare(model) as expected,
    ):
        np.testing.assert_allclose(
            engine.run({"x": x})["y"], expected.run({"x": x})["y"], rtol=1e-5, atol=1e-5
        )
        np.testing.assert_allclose(
            engine.run({"x": x[:1]})["y"], expected.run({"x": x[:1]})["y"], rtol=1e-5, atol=1e-5
        )


@pytest.mark.parametrize(
    "attributes", [{"dilations": [2, 2]}, {"output_padding": [1, 1], "strides": [2, 2]}]
)
def test_a_transposed_convolution_that_tflite_lacks_is_refused(attributes) -> None:
    with pytest.raises(UnsupportedError):
        write_tflite(transposed(**attributes))


@pytest.mark.parametrize("kernels", [Kernels.REFERENCE, Kernels.XNNPACK])
def test_every_operator_of_the_suite(kernels) -> None:
    differing, refused, equal = set(), set(), 0
    for name in list_operators():
        model, feeds = operator_graph(get_operator(name)), dict(operator_feeds(get_operator(name)))
        try:
            with get_backend(f"litert-{NAMES[kernels]}").prepare(model) as engine:
                theirs = engine.run(feeds)
        except UnsupportedError as error:
            refused.add(error.found.split()[0])
            continue
        with get_backend(f"integer-{MACHINES[kernels]}").prepare(model) as interpreter:
            ours = interpreter.run(feeds)
        if all(np.array_equal(ours[key], theirs[key]) for key in ours):
            equal += 1
        else:
            differing.add(name)
    assert differing == set()
    assert refused > REFUSED
    assert equal >= 130


@pytest.mark.parametrize("kernels", list(Kernels))
@pytest.mark.parametrize("schema", ["w8a8_asym_pc", "w8a8_sym_pt", "w4a8_sym_pc"])
def test_a_whole_network(kernels, schema) -> None:
    model, feeds = quantized_digits(schema)
    taps = integers_of(model)
    with get_backend(f"litert-{NAMES[kernels]}").prepare(model, taps=taps) as engine:
        theirs, few = (
            engine.run(feeds),
            engine.run({name: array[:3] for name, array in feeds.items()}),
        )
        executed = executed_by(engine)
    with get_backend(f"integer-{MACHINES[kernels]}").prepare(model, taps=taps) as interpreter:
        ours = interpreter.run(feeds)
    assert len(taps) >= 5
    for name in taps:
        np.testing.assert_array_equal(ours[name], theirs[name], strict=True)
        np.testing.assert_array_equal(few[name], theirs[name][:3])
    # the last layer has no QuantizeLinear behind it: LiteRT has no kernel that gives reals of
    # codes, so it is float
    np.testing.assert_allclose(theirs["logits"], ours["logits"], rtol=0, atol=1e-4)
    assert executed["conv1"].precision == executed["dense1"].precision == "int8"
    assert executed["dense2"].precision == "float32"


def test_a_float_network_with_its_normalizations() -> None:
    subject = get_model("digits_cnn")
    samples = prepare_samples(
        get_dataset("digits_test").take(8), subject.preprocess, Cache.default()
    )
    (feeds,) = samples.batches(8)
    found = {}
    for name in ("litert-reference", "litert-xnnpack", "ort-cpu-noopt"):
        with get_backend(name).prepare(subject.graphs["model"]()) as executor:
            found[name] = executor.run(dict(feeds))["logits"]
    for name in ("litert-reference", "litert-xnnpack"):
        np.testing.assert_allclose(found[name], found["ort-cpu-noopt"], rtol=0, atol=1e-4)


def test_a_model_is_exported_as_the_file_that_the_backends_run(tmp_path) -> None:
    model, _ = quantized_digits("w8a8_asym_pc")
    save_model(model, tmp_path / "m.onnx")
    assert main(["export", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "m.tflite")]) == 0
    assert (tmp_path / "m.tflite").read_bytes() == write_tflite(model).data


def test_the_file_holds_the_models_own_numbers() -> None:
    from ai_edge_litert.interpreter import Interpreter

    model, _ = quantized_digits("w8a8_asym_pc")
    written = write_tflite(model)
    interpreter = Interpreter(model_content=written.data)
    known = {detail["name"]: detail for detail in interpreter.get_tensor_details()}
    (conv,) = (node for node in lower_to_integers(model).graph if node.name == "conv2")
    weight, scale, bias = (conv.inputs[index].const_value.numpy() for index in (3, 4, 8))
    stored = known[conv.inputs[3].name]
    np.testing.assert_array_equal(
        interpreter.get_tensor(stored["index"]), weight.transpose(0, 2, 3, 1)
    )
    np.testing.assert_array_equal(stored["quantization_parameters"]["scales"], scale)
    added = known[f"{conv.outputs[0].name}_bias"]
    np.testing.assert_array_equal(interpreter.get_tensor(added["index"]), bias)
    out = known[conv.outputs[0].name]["quantization_parameters"]
    assert out["scales"][0] == conv.inputs[6].const_value.numpy()
    assert out["zero_points"][0] == int(conv.inputs[7].const_value.numpy()) - 128
    assert write_tflite(model).data == written.data


def test_a_softmax_that_would_end_the_process_is_refused_by_the_reference_kernels() -> None:
    ends = [helper.make_tensor(*spec) for spec in SOFTMAX]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["x_q"]),
        helper.make_node("DequantizeLinear", ["x_q", "s", "z"], ["x_dq"]),
        helper.make_node("Softmax", ["x_dq"], ["y"], "softmax", axis=-1),
        helper.make_node("QuantizeLinear", ["y", "t", "u"], ["y_q"]),
        helper.make_node("DequantizeLinear", ["y_q", "t", "u"], ["out"]),
    ]
    inputs, outputs = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 1000])]
        for name in ("x", "out")
    )
    graph = helper.make_graph(nodes, "long", inputs, outputs, ends)
    model = ir.from_proto(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    )
    x = np.random.default_rng(0).normal(size=(2, 1000)).astype(np.float32)
    with pytest.raises(UnsupportedError) as caught:
        get_backend("litert-reference").prepare(model)
    assert "SOFTMAX over 1000 elements" in caught.value.found
    with get_backend("litert-builtin").prepare(model) as engine:
        theirs = engine.run({"x": x})["out"]
    assert theirs.shape == (2, 1000)


SOFTMAX = (
    ("s", TensorProto.FLOAT, [], [0.05]),
    ("z", TensorProto.INT8, [], [0]),
    ("t", TensorProto.FLOAT, [], [1 / 256]),
    ("u", TensorProto.INT8, [], [-128]),
)
