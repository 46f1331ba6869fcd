"""What an engine runs in integers though the plan has it in float is named: an error of ours."""

from types import SimpleNamespace

from qbench.backends import Executed
from qbench.evaluation.artifacts import executed_share
from qbench.judging import Cell, EnvironmentClass, Measurement


def engine(**precisions: str) -> SimpleNamespace:
    found = {node: Executed(precision, "cpu") for node, precision in precisions.items()}
    return SimpleNamespace(executed=lambda: found)


def plan(*integer: str, **macs: int) -> SimpleNamespace:
    return SimpleNamespace(
        macs=sum(macs.values()), node_macs=macs, integer_nodes=frozenset(integer)
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
