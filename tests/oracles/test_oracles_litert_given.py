"""TFLite files that are given: their cells answer
as the ONNX file does that they were written from.
"""

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from qbench.backends import executed_by, get_backend
from qbench.cli import main
from qbench.errors import InputError, UnsupportedError
from qbench.evaluation import build_subject, measure_cell, subject_artifacts
from qbench.graph import Form, form_of, format_held_by, save_model
from qbench.quantization import as_schema, read_plan
from qbench.storage import Cache
from qbench.subjects import get_dataset, get_model, prepare_samples
from qbench_engines import load_tflite, write_tflite

pytestmark = [pytest.mark.oracle, pytest.mark.usefixtures("litert")]
NAMES = ("litert-reference", "litert-builtin", "litert-xnnpack")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Float and quantized digits as ONNX, the latter as TFLite, and their test samples."""
    folder = tmp_path_factory.mktemp("given")
    subject = build_subject("digits_cnn", "digits_test", "digits_train", ["agreement"], 64)
    shared = subject_artifacts(subject, get_backend("ort-cpu"))
    capabilities = get_backend("litert-builtin").capabilities
    (quantized,) = shared.quantized(as_schema("w8a8_asym_pc"), capabilities).models.values()
    save_model(shared.graphs["model"], folder / "float.onnx")
    save_model(quantized, folder / "quantized.onnx")
    (folder / "net.tflite").write_bytes(write_tflite(quantized).data)
    data = get_dataset("digits_test")
    (feeds,) = prepare_samples(data, get_model("digits_cnn").preprocess, Cache.default()).batches(
        len(data)
    )
    np.savez(
        folder / "test.npz",
        x=next(iter(feeds.values())),
        y=np.array([label[0] for label in data.labels]),
    )
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_a_file_answers_as_the_graph_that_it_was_written_from(files, name) -> None:
    x = np.load(files / "test.npz")["x"]
    model = load_tflite(files / "net.tflite")
    with (
        get_backend(name).prepare(model) as given,
        get_backend(name).prepare(files / "quantized.onnx") as written,
    ):
        (ours,) = given.run({str(model.graph.inputs[0].name): x}).values()
        (theirs,) = written.run({str(model.graph.inputs[0].name): x}).values()
        (once,) = given.run({str(model.graph.inputs[0].name): x[:1]}).values()
    assert np.array_equal(ours, theirs)
    assert np.array_equal(once, theirs[:1])


@pytest.mark.parametrize("name", NAMES)
def test_planned_and_executed_shares_are_known(files, name) -> None:
    subject = build_subject(
        str(files / "float.onnx"),
        str(files / "test.npz"),
        None,
        ["top1"],
        None,
        given=str(files / "net.tflite"),
    )
    measured = measure_cell(subject, name, None)
    assert measured.cell.schema == "given"
    assert measured.score("top1").value > 0.95
    assert measured.integer_macs == measured.executed_macs == 1.0
    model = load_tflite(files / "net.tflite")
    assert (form_of(model), format_held_by(model)) == (Form.FILE, "tflite")
    assert read_plan(model).macs == subject_artifacts(subject, get_backend("ort-cpu")).macs


def test_the_command_measures_it_and_other_backends_and_localize_refuse_it(files, capsys) -> None:
    words = [
        str(files / "net.tflite"),
        "--fp32",
        str(files / "float.onnx"),
        "--data",
        str(files / "test.npz"),
    ]
    assert main(["eval", *words, "--backend", "litert-xnnpack"]) == 0
    assert "100.0 % were executed in integers" in capsys.readouterr().out
    assert main(["eval", *words, "--backend", "ort-cpu"]) != 0
    assert "Running a '.tflite' file on 'ort-cpu'" in capsys.readouterr().err
    assert main(["localize", *words, "--backend", "litert-builtin"]) != 0
    assert "of which no engine returns the values inside" in capsys.readouterr().err


def test_a_damaged_file_is_refused(files, tmp_path) -> None:
    data = (files / "net.tflite").read_bytes()
    (tmp_path / "cut.tflite").write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError) as refused:
        load_tflite(tmp_path / "cut.tflite")
    assert refused.value.found == "a damaged file"


def test_the_products_of_a_file_alone_are_counted(files, capsys) -> None:
    printed = []
    for name in ("net.tflite", "float.onnx"):
        assert (
            main(
                [
                    "eval",
                    str(files / name),
                    "--data",
                    str(files / "test.npz"),
                    "--backend",
                    "litert-builtin",
                ]
            )
            == 0
        )
        printed.append(capsys.readouterr().out.splitlines()[0].partition("  (")[2])
    assert printed[0] == printed[1]
    assert not printed[0].startswith("0 ")


def test_inner_values_cannot_be_tapped(files) -> None:
    with pytest.raises(UnsupportedError):
        get_backend("litert-builtin").prepare(load_tflite(files / "net.tflite"), taps=["relu1"])


def codes_graph() -> ir.Model:
    """A convolution between uint8 ends: the file has a quantized input and output."""
    rng = np.random.default_rng(7)
    weight = rng.integers(-127, 128, (4, 3, 3, 3)).astype(np.int8)
    constants = {
        "s": np.float32(0.02),
        "z": np.uint8(100),
        "w": weight,
        "sw": np.float32(0.01),
        "zw": np.int8(0),
        "so": np.float32(0.05),
        "zo": np.uint8(120),
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["real"], "in"),
        helper.make_node("DequantizeLinear", ["w", "sw", "zw"], ["weight"], "of_weight"),
        helper.make_node("Conv", ["real", "weight"], ["product"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("QuantizeLinear", ["product", "so", "zo"], ["y"], "out"),
    ]
    ends = [
        helper.make_tensor_value_info("x", TensorProto.UINT8, [1, 3, 6, 5]),
        helper.make_tensor_value_info("y", TensorProto.UINT8, [1, 4, 6, 5]),
    ]
    tensors = [
        helper.make_tensor(
            name,
            helper.np_dtype_to_tensor_dtype(np.asarray(one).dtype),
            np.shape(one),
            np.asarray(one).reshape(-1),
        )
        for name, one in constants.items()
    ]
    made = helper.make_graph(nodes, "g", ends[:1], ends[1:], tensors)
    return ir.from_proto(
        helper.make_model(made, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    )


def test_codes_at_the_ends_are_reals_outside(tmp_path) -> None:
    """The very codes go in, and the codes that come out are those of the graph, at their scale."""
    model = codes_graph()
    (tmp_path / "net.tflite").write_bytes(write_tflite(model).data)
    given = load_tflite(tmp_path / "net.tflite")
    codes = np.random.default_rng(1).integers(0, 256, (4, 3, 6, 5)).astype(np.uint8)
    with get_backend("litert-builtin").prepare(given) as executor:
        reals = np.float32(0.02) * (codes.astype(np.float32) - 100)
        found = np.concatenate(
            [array for one in reals for array in executor.run({"x": one[None]}).values()]
        )
        assert [one.precision for one in executed_by(executor).values()][1] == "int8"
    with get_backend("integer-litert-x64").prepare(model) as interpreter:
        expected = np.concatenate([interpreter.run({"x": one[None]})["y"] for one in codes])
    assert np.array_equal(found, np.float32(0.05) * (expected.astype(np.float32) - 120))
