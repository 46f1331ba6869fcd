"""``module:factory`` in place of a model file, with an exporter of a library that is not there."""

import onnx_ir as ir
import pytest

from qbench.errors import InputError, NotFetchedError
from qbench.extension import Extension, named_also
from qbench.subjects import model_from_file

NETS = """
class Net: pass

def net(): return Net(), "two samples"
def alone(): return Net()
def other(): return 3, "two samples"
def broken(): raise RuntimeError("no weights")
"""


class Exporter:
    """Gives a graph whose input is named after the example."""

    def export(self, module, example, doing):
        assert type(module).__name__ == "Net"
        x = ir.Value(name="x", shape=ir.Shape(["n", 4]), type=ir.TensorType(ir.DataType.FLOAT))
        node = ir.node("Relu", [x], name=f"relu of {example}")
        (y,) = node.outputs
        y.name, y.shape, y.type = "y", ir.Shape(["n", 4]), ir.TensorType(ir.DataType.FLOAT)
        graph = ir.Graph([x], [y], nodes=[node], opset_imports={"": 21}, name="net")
        return ir.Model(graph, ir_version=10)


@pytest.fixture
def nets(tmp_path, monkeypatch):
    """The name of a module in the current folder; each test has its own."""
    name = f"nets_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(NETS)
    monkeypatch.chdir(tmp_path)
    with named_also(lambda: (Extension(name="mine", exporters={name: Exporter}),)):
        yield name


def test_the_exporter_of_the_library_of_the_module_gives_the_graph(nets):
    model = model_from_file(f"{nets}:net", name="mine")
    (graph,) = model.loaded().values()
    assert model.id == "mine"
    assert [node.name for node in graph.graph] == ["relu of two samples"]


@pytest.mark.parametrize(
    ("factory", "says"),
    [
        ("alone", "returns a Net"),
        ("other", "found a int"),
        ("broken", "RuntimeError: no weights"),
        ("none", "has no attribute 'none'"),
    ],
)
def test_what_is_no_module_with_an_example_is_a_sentence(nets, factory, says):
    with pytest.raises(InputError, match=says):
        model_from_file(f"{nets}:{factory}")


def test_a_module_that_is_not_there_is_a_sentence(nets):
    with pytest.raises(InputError, match="ModuleNotFoundError"):
        model_from_file("nowhere.at_all:net")


def test_a_module_of_that_name_from_another_folder_is_refused(nets, tmp_path, monkeypatch):
    model_from_file(f"{nets}:net", name="mine").loaded()
    other = tmp_path / "other"
    other.mkdir()
    (other / f"{nets}.py").write_text(NETS)
    monkeypatch.chdir(other)
    with pytest.raises(InputError, match="was loaded as"):
        model_from_file(f"{nets}:net", name="mine").loaded()


def test_a_package_that_the_code_imports_is_named_and_is_no_fault_of_the_code(nets, tmp_path):
    (tmp_path / f"{nets}_more.py").write_text("import qbench_has_no_such_package.deep\n")
    with pytest.raises(NotFetchedError) as caught:
        model_from_file(f"{nets}_more:net")
    assert "no package 'qbench_has_no_such_package'" in caught.value.found
    assert "Correct that code" not in caught.value.remedy
