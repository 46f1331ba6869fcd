"""An engine that breaks overnight: the right cells turn red, with the right words, and the step
shows in the report.
"""

import pytest

ENGINE = """
import dataclasses

from qbench.backends import get_backend


@dataclasses.dataclass(frozen=True)
class Engine:
    name: str = "my-engine"
    capabilities = get_backend("ort-cpu").capabilities
    packages = ("onnxruntime",)

    def prepare(self, model, *, taps=(), threads=1):
        model = damaged(model, os.environ.get("FAULT"))
        return get_backend("ort-cpu-precise").prepare(model, taps=taps)


def damaged(model, fault):
    model = model.clone()
    linear = [n for n in model.graph if n.op_type == "DequantizeLinear"]
    weights = [n for n in linear
               if n.inputs[0].const_value is not None
               and n.inputs[1].const_value.numpy().ndim == 1]
    if fault == "zero_point":  # of the first activation, off by eight
        node = next(n for n in model.graph if n.op_type == "QuantizeLinear")
        change(model, node, 2, node.inputs[2].const_value.numpy() ^ 8)
    if fault == "neighbour" and weights:  # every channel with the scale of the next
        change(model, weights[0], 1, np.roll(weights[0].inputs[1].const_value.numpy(), 1))
    return model


def change(model, node, index, array):
    value = ir.val(f"damaged_{index}", const_value=ir.Tensor(array, name=f"damaged_{index}"))
    value.dtype, value.shape = value.const_value.dtype, value.const_value.shape
    model.graph.register_initializer(value)
    node.replace_input_with(index, value)


MORE = {"backends": {"my-engine": Engine}}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "schemas"),
    [("zero_point", {"w8a8_asym_pc", "w8a8_asym_pt"}), ("neighbour", {"w8a8_asym_pc"})],
)
def test_the_right_cells_turn_red(project, monkeypatch, fault, schemas):
    project.write_conftest(more=ENGINE)
    text = project.suite_path.read_text().replace('"ort-cpu-noopt"', '"my-engine"')
    text = text.replace('["w8a8_asym_pc"]', '["w8a8_asym_pc", "w8a8_asym_pt"]').replace(
        "tolerance = 0.2", "tolerance = 0.05"
    )
    project.write_suite(text)
    project.accept()
    assert project.run().ret == 0
    monkeypatch.setenv("FAULT", fault)
    result = project.run("--qbench-report", "md")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    red = {cell for cell, outcome in project.outcomes().items() if outcome in ("failed", "drifted")}
    assert red == {
        f"{model}::my-engine+{schema}" for model in ("tiny_a", "tiny_b") for schema in schemas
    }
    result.stdout.fnmatch_lines(["*drift: *points*"])
    assert "Traceback" not in result.stdout.str()
    report = (project.path / "reports" / "report.md").read_text()
    assert all(
        cell.partition("::")[2].replace("+", " ") in report or cell in report for cell in red
    )
    monkeypatch.delenv("FAULT")
    assert project.run().ret == 0


@pytest.mark.slow
def test_an_engine_that_may_crash_and_cannot_leave_this_process_has_a_notice(project):
    members = (
        "    hang_s = 60.0\n\n    def __reduce__(self):\n"
        "        raise TypeError('not to be sent')\n\n"
    )
    project.write_conftest(more=ENGINE.replace("    name: str", f"{members}    name: str"))
    project.write_suite(project.suite_path.read_text().replace('"ort-cpu-noopt"', '"my-engine"'))
    project.accept()
    assert project.run().ret == 0
    cells = project.lines(kind="cell")
    notice = (
        "'my-engine' ran unprotected in this process, which its crash would end: "
        "it cannot be pickled"
    )
    fragile = [cell for cell in cells if cell["backend"] == "my-engine"]
    assert fragile
    assert all(cell["notices"].count(notice) == 1 for cell in fragile)
    assert not any(notice in cell.get("notices", ()) for cell in cells if cell not in fragile)
