"""Model files of a format that an extension brings: read as one node, run by the backends that
take them, written.
"""

import numpy as np
import onnx_ir as ir
import pytest

from qbench import extension
from qbench.backends import Closing, get_backend
from qbench.cli import main
from qbench.errors import InputError, UnsupportedError
from qbench.evaluation.artifacts import prepare_runners
from qbench.extension import Extension, named_also
from qbench.graph import (
    Capabilities,
    FileProduct,
    Form,
    WrittenFile,
    file_held_by,
    file_products,
    form_of,
    form_text,
    format_held_by,
    format_of_path,
    graph_of_file,
    save_model,
)
from qbench.quantization import is_quantized, read_plan

PRODUCTS = (FileProduct("a", 30, True), FileProduct("b", 10, False))


def value(name):
    return ir.val(name, ir.DataType.FLOAT, ir.Shape(["N", 2]))


class AbcFormat:
    """Files that hold a factor as text."""

    def read(self, path):
        return graph_of_file(
            "abc",
            path.read_bytes(),
            name=path.stem,
            inputs=[value("x")],
            outputs=[value("y")],
            products=PRODUCTS,
        )

    def write(self, model):
        return WrittenFile(b"3", operators=len(list(model.graph)), in_float=1)


class AbcBackend:
    """Multiplies by the factor of the file."""

    name = "abc-engine"
    packages = ()
    capabilities = Capabilities(file_formats=frozenset({"abc"}))

    def prepare(self, model, *, taps=(), threads=1):
        return AbcExecutor(float(file_held_by(model)))


class AbcExecutor(Closing):
    def __init__(self, factor):
        self.factor = factor

    def run(self, feeds):
        return {"y": feeds["x"] * np.float32(self.factor)}

    def close(self):
        pass


@pytest.fixture
def known(monkeypatch):
    mine = Extension(name="mine", formats={"abc": AbcFormat}, backends={"abc-engine": AbcBackend})
    monkeypatch.setattr(extension, "read_entry_points", lambda: (mine,))


@pytest.fixture
def model(known, tmp_path):
    (tmp_path / "net.abc").write_text("2")
    return format_of_path(tmp_path / "net.ABC", "Loading").read(tmp_path / "net.abc")


def test_the_graph_holds_the_file_and_its_products(model):
    assert (form_of(model), form_text(model), format_held_by(model)) == (Form.FILE, "abc", "abc")
    assert file_held_by(model) == b"2"
    assert file_products(model) == PRODUCTS
    plan = read_plan(model)
    assert (plan.macs, plan.integer_mac_count, plan.integer_nodes) == (40, 30, {"a"})
    assert is_quantized(model)
    assert [(node.domain, node.op_type) for node in model.graph] == [("qbench.abc", "AbcFile")]


def test_an_onnx_model_holds_no_file():
    node = ir.node("Relu", [x := value("x")])
    model = ir.Model(
        ir.Graph([x], node.outputs, nodes=[node], opset_imports={"": 21}), ir_version=10
    )
    assert (format_held_by(model), file_held_by(model), file_products(model)) == (None, None, ())
    assert form_text(model) == "float"


def test_only_backends_of_the_format_run_it(model):
    from contextlib import ExitStack

    with ExitStack() as stack:
        runners = prepare_runners(get_backend("abc-engine"), {"main": model}, stack, threads=1)
        assert (
            runners["main"].run({"x": np.ones((3, 2), np.float32)})["y"].tolist()
            == [[2.0, 2.0]] * 3
        )
    with ExitStack() as stack, pytest.raises(UnsupportedError) as caught:
        prepare_runners(get_backend("ort-cpu"), {"main": model}, stack, threads=1)
    assert "abc-engine" in caught.value.expected
    assert "'.abc'" in caught.value.doing


def test_a_model_is_exported_to_the_format(known, tmp_path, capsys):
    node = ir.node("Relu", [x := value("x")])
    node.outputs[0].name, node.outputs[0].dtype = "y", ir.DataType.FLOAT
    model = ir.Model(
        ir.Graph([x], node.outputs, nodes=[node], opset_imports={"": 21}, name="g"), ir_version=10
    )
    save_model(model, tmp_path / "m.onnx")
    assert main(["export", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "m.abc")]) == 0
    assert (tmp_path / "m.abc").read_bytes() == b"3"
    assert "1 operators, 1 of them in float32" in capsys.readouterr().err
    assert main(["export", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "m.xyz")]) == 2
    assert ".abc" in capsys.readouterr().err


def test_a_format_has_both_functions():
    with (
        named_also(lambda: (Extension(name="mine", formats={"abc": dict}),)),
        pytest.raises(InputError, match="a dict"),
    ):
        format_of_path("net.abc", "Loading")
