"""What an engine runs in integers though the plan has it in float is named: an error of ours. Types
of floats stay simulated where one product of theirs is not summed as the arithmetic declares it.
"""

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx_ir as ir
import pytest
from onnx import numpy_helper, parser
from onnxruntime import quantization

from qbench.backends import Executed, IntegerBackend, get_backend
from qbench.calibration import calibrate
from qbench.evaluation.executed_share import executed_share
from qbench.judging import Cell, EnvironmentClass, Measurement
from qbench.numerics import FloatSums, Override, get_arithmetic
from qbench.quantization import get_schema, make_plan, quantize_model, read_plan


def engine(**precisions: str) -> SimpleNamespace:
    found = {node: Executed(precision, "cpu") for node, precision in precisions.items()}
    return SimpleNamespace(executed=lambda: found)


def plan(*integer: str, **macs: int) -> SimpleNamespace:
    return SimpleNamespace(
        macs=sum(macs.values()), node_macs=macs, integer_nodes=frozenset(integer), decisions={}
    )


def test_products_that_the_plan_missed_are_named() -> None:
    quantized = SimpleNamespace(plans={"": plan("conv", conv=30, fc=60, head=10)})
    runners = {"": engine(conv="float32", fc="uint8", head="float32")}
    found = executed_share(runners, quantized)
    assert found.share == 0.6
    assert found.unplanned == ("fc",)
    assert found.in_float == ("conv in float32 (30 %)", "head in float32 (10 %, as planned)")


def test_of_several_graphs_the_graph_is_named_too() -> None:
    quantized = SimpleNamespace(plans={"encoder": plan(fc=60), "decoder": plan("fc", fc=40)})
    runners = {"encoder": engine(fc="uint8"), "decoder": engine(fc="uint8")}
    assert executed_share(runners, quantized).unplanned == ("encoder::fc",)


def test_a_report_without_the_products_in_integers_is_no_report() -> None:
    quantized = SimpleNamespace(plans={"": plan("conv", conv=90, norm=10)})
    assert executed_share({"": engine(norm="float32")}, quantized).share is None


@pytest.mark.parametrize("name", ["ort-cpu", "integer-ideal"])
def test_products_quantized_at_run_time_ran_in_integers(name: str, tmp_path: Path) -> None:
    ir.save(run_time_network(), tmp_path / "float.onnx")
    quantization.quantize_dynamic(tmp_path / "float.onnx", tmp_path / "int8.onnx")
    model = ir.load(tmp_path / "int8.onnx")
    made = read_plan(model)
    with get_backend(name).prepare(model) as runner:
        found = executed_share({"": runner}, SimpleNamespace(plans={"": made}))
    assert found.share == made.integer_macs < 1
    assert found.in_float == ("norm in float32 (4.8 %, as planned)",)
    assert found.unplanned == ()


def run_time_network() -> ir.Model:
    """A convolution, a BatchNormalization behind it, and a product of matrices."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[1, 2, 3, 3] x) => (float[1, 4, 3, 2] z) {
        [conv] a = Conv<pads = [1, 1, 1, 1]> (x, w)
        [norm] n = BatchNormalization (a, scale, bias, bias, scale)
        [matmul] z = MatMul (n, v)
    }"""
    model = parser.parse_model(text)
    random = np.random.default_rng(3)
    for name, shape in {"w": (4, 2, 3, 3), "scale": (4,), "bias": (4,), "v": (3, 2)}.items():
        array = random.uniform(0.5, 1.0, shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return ir.serde.deserialize_model(model)


def measured(*unplanned: str, planned: float = 0.4) -> Measurement:
    return Measurement(
        cell=Cell("s", "m", "b", "given"),
        environment=EnvironmentClass("x64"),
        scores=(),
        digests={},
        integer_macs=planned,
        executed_macs=0.6,
        executed_unplanned=unplanned,
    )


def test_the_note_names_the_nodes_that_the_reading_missed() -> None:
    assert "takes 'fc' for float" in measured("fc").misread
    assert "takes 'a', 'b', 'c' and 2 more for float" in measured(*"abcde").misread
    assert measured("fc", planned=0.7).misread == ""


def network(second: str) -> ir.Model:
    """A product called ``a``, and then ``second``, called ``b``."""
    proto = parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 21]>
        net (float[N,2,3,3] x) => (float[N,2,p,q] y) {{
        [a] h = Conv(x, v)
        [b] y = {second}(h, w)
        }}"""
    )
    random = np.random.default_rng(5)
    for name in ("v", "w"):
        array = random.standard_normal((2, 2, 1, 1)).astype(np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    return ir.from_proto(proto)


FLOAT16 = get_arithmetic("floats-float16")
ONE_NODE = replace(get_arithmetic("ideal"), overrides=(Override(names=("a",), floats=FloatSums()),))


@pytest.mark.parametrize(
    ("arithmetic", "schema", "second", "summed"),
    [
        (get_arithmetic("ideal"), "wf8e4m3af8e4m3_sym_pt", "Conv", set()),
        (FLOAT16, "wf8e4m3af8e4m3_sym_pt", "Conv", {"float8e4m3fn"}),
        (FLOAT16, "wf8e4m3af8e4m3_sym_pt", "ConvTranspose", set()),
        (FLOAT16, "wf8e5m2af8e4m3_sym_pt", "Conv", {"float8e5m2", "float8e4m3fn"}),
        (ONE_NODE, "wf8e4m3af8e4m3_sym_pt", "Conv", set()),
    ],
)
def test_types_all_products_of_which_are_summed(arithmetic, schema, second, summed) -> None:
    model, feeds = network(second), {"x": np.ones((1, 2, 3, 3), np.float32)}
    made = make_plan(model, calibrate(model, [feeds]), get_schema(schema))
    backend = IntegerBackend(arithmetic=arithmetic)
    assert "float8e4m3fn" in backend.capabilities.simulated
    assert backend.capabilities.sums_floats == (
        arithmetic.name != "ideal" or arithmetic is ONE_NODE
    )
    with ExitStack() as stack:
        runner = stack.enter_context(backend.prepare(quantize_model(model, made)))
        executed = runner.executed()
        found = executed_share({"": runner}, SimpleNamespace(plans={"": made}))
    assert found.summed_types == summed
    assert executed["a"].is_summed == (arithmetic.name != "ideal" or arithmetic is ONE_NODE)
    assert executed["b"].is_summed == bool(summed)
