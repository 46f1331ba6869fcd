"""The second executor and the search for the first node: loops of two graphs, taps that change
an engine, refusals.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from qbench.backends import Closing, get_backend
from qbench.errors import InputError, UnsupportedError
from qbench.evaluation import Comparator, Request
from qbench.evaluation.versus_backend import BackendComparison, first_divergence
from qbench.graph import Capabilities, set_origin
from qbench.judging import Cell, Criterion, EnvironmentClass, FirstNode

Array = np.ndarray[Any, Any]
HERE = EnvironmentClass("x64-test")

CHAIN = """<ir_version: 10, opset_import: ["" : 21]>
chain (float[n,4] x) => (float[n,4] y, float[n,4] r) <float s = {0.5}, uint8 z = {100}> {
[q_x] x_q = QuantizeLinear(x, s, z)
[d_x] a = DequantizeLinear(x_q, s, z)
[relu] b = Relu(a)
[q_b] b_q = QuantizeLinear(b, s, z)
[d_b] c = DequantizeLinear(b_q, s, z)
[neg] d = Neg(c)
[q_d] d_q = QuantizeLinear(d, s, z)
[d_d] y = DequantizeLinear(d_q, s, z)
[tanh] r = Tanh(c)
}"""


def chain() -> ir.Model:
    return ir.from_onnx_text(CHAIN)


@dataclass(frozen=True)
class Fake:
    """An engine without optimizations whose answers, by value name, are off by something."""

    name: str = "fake"
    off: Mapping[str, float] = field(default_factory=dict)
    tapped: Mapping[str, float] = field(default_factory=dict)
    refuses: bool = False
    capabilities: Capabilities = field(default_factory=Capabilities)
    packages: tuple[str, ...] = ()

    def prepare(self, model: ir.Model, *, taps: Sequence[str] = (), threads: int = 1) -> "Off":
        if self.refuses or (taps and "refuse" in self.tapped):
            raise UnsupportedError(
                "Loading it", found="a Relu", expected="no Relu", remedy="Use another."
            )
        executor = get_backend("ort-cpu-noopt").prepare(model, taps=taps)
        return Off(executor, self.tapped if taps and self.tapped else self.off)


class Off(Closing):
    def __init__(self, executor: Any, off: Mapping[str, float]) -> None:
        self.executor, self.off = executor, off

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        outputs = self.executor.run(feeds)
        for name in self.off.keys() & outputs.keys():
            outputs[name] = outputs[name].copy()
            outputs[name][1, 2] += np.array(self.off[name], outputs[name].dtype)
        return outputs

    def close(self) -> None:
        self.executor.close()


FEEDS = {"x": np.linspace(-9, 9, 12, dtype=np.float32).reshape(3, 4)}
GOOD = Fake("good")


def parted(other: Fake, ours: Fake = GOOD, model: ir.Model | None = None) -> FirstNode | None:
    graph = chain() if model is None else model
    runs = tuple((one, one.prepare(graph).run(FEEDS)) for one in (ours, other))
    return first_divergence(graph, FEEDS, runs, threads=1)


def test_the_first_integers_that_differ_name_their_node() -> None:
    found = parted(Fake(off={"d_q": 3, "b_q": 1, "y": 0.5}, tapped={"d_q": 3, "b_q": 1, "y": 0.5}))
    assert found == FirstNode(origin="relu", elements=1, steps=1.0)
    assert parted(Fake(off={"d_q": 3, "y": 1.5})) == FirstNode(origin="neg", elements=1, steps=3.0)


def test_the_fp32_node_that_is_written_is_the_one_that_is_named() -> None:
    model = chain()
    set_origin(next(node for node in model.graph if node.name == "q_b"), "features.7.relu")
    found = parted(Fake(off={"b_q": 2, "y": 1.0}), model=model)
    assert found == FirstNode(origin="features.7.relu", elements=1, steps=2.0)


def test_equal_integers_leave_the_floats_behind_them() -> None:
    assert parted(Fake(off={"r": 0.25})) == FirstNode(origin="tanh")


def test_taps_that_change_an_engine_are_told(words) -> None:
    found = parted(Fake("moody", off={"y": 1.0}, tapped={"b_q": 1, "y": 0.5}))
    assert found is not None
    assert (found.origin, found.elements) == ("relu", 1)
    words(found.note)
    cured = parted(Fake("moody", off={"y": 1.0}, tapped={"x": 0}))
    assert cured is not None
    assert cured.origin == ""
    assert cured.note.startswith(
        "the tapped runs do not differ; tapping changes what moody answers"
    )


def test_an_engine_that_takes_no_taps_says_why() -> None:
    assert parted(Fake(off={"y": 1.0}, tapped={"refuse": 1})) == FirstNode(
        origin="", note="its nodes could not be compared: found a Relu"
    )


def test_a_float_graph_has_no_integers_to_look_at() -> None:
    text = (
        '<ir_version: 10, opset_import: ["" : 21]> g (float[n,4] x) => (float[n,4] y) '
        "{ y = Relu(x) }"
    )
    assert parted(Fake(off={"y": 1.0}), model=ir.from_onnx_text(text)) is None


def comparison(
    other: Fake, stack: ExitStack, graphs: Mapping[str, ir.Model], **limits: float
) -> BackendComparison:
    cell = Cell("s", "m", "good", "w8a8_sym_pc")
    beside = Comparator(
        backend=other, criterion=Criterion(backend=other.name, **limits), environment=HERE
    )
    shared: Any = SimpleNamespace()
    request = Request(
        cell=cell,
        shared=shared,
        backend=GOOD,
        schema=None,
        reference={},
        environment=HERE,
        comparator=beside,
        timer=iter(range(10_000)).__next__,
    )
    return BackendComparison(request, graphs, stack)


def looped(other: Fake, *, rounds: int = 3, **limits: float) -> Any:
    """Two graphs in a loop, each feeding the other, as a decoder does."""
    graphs = {"encoder": chain(), "decoder": chain()}
    with ExitStack() as stack:
        compared = comparison(other, stack, graphs, **limits)
        runners = compared.paired(
            {name: stack.enter_context(GOOD.prepare(model)) for name, model in graphs.items()}
        )
        fed = dict(FEEDS)
        for _ in range(rounds):
            fed = {"x": runners["encoder"].run(fed)["y"]}
            fed = {"x": runners["decoder"].run(fed)["r"] * 8}
        return compared.finished(), fed


def test_a_loop_of_two_graphs_is_driven_by_the_cells_own_answers() -> None:
    same, ours = looped(Fake())
    assert (same.elements, same.differing, same.first) == (3 * 2 * 2 * 12, 0, None)
    found, fed = looped(Fake(off={"y": 0.5, "d_q": 1}))
    np.testing.assert_array_equal(fed["x"], ours["x"])  # what the other answers is never fed back
    assert (found.differing, found.steps, found.graph) == (3 * 2, 1.0, "encoder")
    assert found.first == FirstNode(origin="neg", elements=1, steps=1.0)


def test_no_node_is_looked_for_where_the_difference_is_admitted() -> None:
    found, _ = looped(Fake(off={"y": 0.5, "d_q": 1}), rounds=1, steps=1, relative=1e3)
    assert (found.differing, found.steps, found.first) == (2, 1.0, None)


def test_the_other_ones_time_is_apart() -> None:
    with ExitStack() as stack:
        compared = comparison(Fake(), stack, {"model": chain()})
        before = compared.seconds
        compared.paired({"model": stack.enter_context(GOOD.prepare(chain()))})["model"].run(FEEDS)
        assert compared.seconds == before + 1  # the clock ticks at every reading


def test_refusals_are_the_comparisons() -> None:
    with (
        ExitStack() as stack,
        pytest.raises(UnsupportedError, match=r"Comparing 'm::good.*' with 'fake': found a Relu"),
    ):
        comparison(Fake(refuses=True), stack, {"model": chain()})
    with (
        ExitStack() as stack,
        pytest.raises(InputError, match="output 'r', which comes out of no DequantizeLinear"),
    ):
        comparison(Fake(), stack, {"model": chain()}, steps=1)


def test_other_shapes_are_one_sentence() -> None:
    shorter = replace(GOOD, name="shorter")
    cut = (
        '<ir_version: 10, opset_import: ["" : 21]> g (float[n,4] x) => (float[n,4] r) '
        "{ r = Tanh(x) }"
    )
    with ExitStack() as stack:
        compared = comparison(shorter, stack, {"model": ir.from_onnx_text(cut)})
        pair = compared.paired({"model": Wide()})["model"]
        with pytest.raises(
            InputError, match=r"output 'r' of shape \(3, 5\) here, and one of shape \(3, 4\) there"
        ):
            pair.run(FEEDS)


class Wide(Closing):
    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        return {"r": np.zeros((3, 5), np.float32)}

    def close(self) -> None:
        pass
