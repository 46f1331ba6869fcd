"""An engine that leaves its arithmetic where several nodes are run together: it is the first
suspect, with the node.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from qbench.backends import IntegerBackend, arithmetic_of, get_backend
from qbench.diagnosis import localize
from qbench.errors import UnsupportedError
from qbench.evaluation import build_subject
from qbench.faults import CATALOGUE, Placed
from qbench.faults.faulty_backend import with_fault
from qbench.graph import PRODUCTS, Capabilities, as_model, node_key
from qbench.judging import Cause
from qbench.numerics import Arithmetic, get_arithmetic

INTEGERS = IntegerBackend(arithmetic=get_arithmetic("ort-x64"))


@dataclass(frozen=True)
class Together:
    """An engine that is its arithmetic node by node, and wrong at ``site`` in a graph of
    several products.
    """

    site: str
    fault: str = "output-channels-shifted"
    name: str = "together"
    packages: Sequence[str] = ()
    arithmetic: Arithmetic = field(default_factory=lambda: get_arithmetic("ort-x64"))

    @property
    def capabilities(self) -> Capabilities:
        return INTEGERS.capabilities

    def prepare(self, model, *, taps=(), threads=1):
        graph = as_model(model).graph
        is_whole = sum(node.op_type in PRODUCTS for node in graph) > 1
        if is_whole and self.site in {node_key(node) for node in graph}:
            placed = Placed(fault=CATALOGUE[self.fault], sites=(self.site,), seed=1)
            return with_fault(INTEGERS, placed).prepare(model, taps=taps, threads=threads)
        return INTEGERS.prepare(model, taps=taps, threads=threads)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("site", "fault"),
    [
        ("conv2", "output-channels-shifted"),
        ("dense1", "signed-read-as-unsigned"),
        ("dense2", "output-channels-shifted"),
    ],
)
def test_the_node_where_an_engine_leaves_its_arithmetic_is_the_first_suspect(site, fault):
    subject = build_subject("digits_cnn", "digits_test", "digits_train", [], 32)
    found = localize(subject, Together(site, fault), "w8a8_asym_pc")
    first = found.suspects[0]
    assert first.node == site
    assert first.cause is Cause.WRONG_KERNEL
    assert "'together'" in first.evidence
    assert found.repair is None or found.repair.macs_share < 0.99


@pytest.mark.slow
def test_an_engine_that_is_its_arithmetic_is_not_suspected():
    subject = build_subject("digits_cnn", "digits_test", "digits_train", [], 32)
    found = localize(subject, Together("nowhere"), "w8a8_asym_pc")
    assert found.suspects == ()
    assert "bit for bit" in found.matched


def products(path, batch, *, biased):
    """Two matrix products in a row, the value between them with a zero point that is not 0."""
    rng = np.random.default_rng(3)
    held = {
        "w": rng.normal(size=(16, 20)) / 4,
        "v": rng.normal(size=(20, 20)) / 4,
        "c": rng.normal(size=20),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="first"),
        *([helper.make_node("Add", ["a", "c"], ["d"], name="bias")] if biased else []),
        helper.make_node("MatMul", ["d" if biased else "a", "v"], ["y"], name="second"),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 20])],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in held.items()],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path
    )
    for name, count in (("scored", 32), ("calibration", 64)):
        np.savez(path.parent / f"{name}.npz", x=rng.normal(size=(count, 16)).astype(np.float32))


def test_a_product_and_its_bias_are_named_by_the_product(tmp_path):
    products(tmp_path / "net.onnx", 4, biased=True)
    files = [str(tmp_path / name) for name in ("net.onnx", "scored.npz", "calibration.npz")]
    found = localize(build_subject(*files, [], 64), Together("nowhere"), "w8a8_asym_pc")
    assert [node.node for node in found.nodes if node.operators] == ["first", "second"]
    assert found.nodes[-2].operators == ("MatMul", "Add")


@pytest.mark.slow
@pytest.mark.parametrize("schema", ["w8a8_asym_pc", "w8a8_asym_pt"])
def test_two_products_without_biases_in_openvino(tmp_path, schema):
    """What the engine counts wrong on this processor is refused before it runs,
    by the name of the node.
    """
    pytest.importorskip("openvino")
    products(tmp_path / "net.onnx", 4, biased=False)
    files = [str(tmp_path / name) for name in ("net.onnx", "scored.npz", "calibration.npz")]
    arithmetic = arithmetic_of(get_backend("openvino"))
    if arithmetic is not None and arithmetic.name == "openvino-avx2":
        assert localize(build_subject(*files, [], 64), "openvino", schema).suspects == ()
        return
    with pytest.raises(UnsupportedError, match="'first': a matrix product without a bias"):
        localize(build_subject(*files, [], 64), "openvino", schema)


def residuals(path):
    """Two residual blocks, whose sums OpenVINO takes of convolutions that are not rounded."""
    rng = np.random.default_rng(0)
    nodes, held = [], {}
    value, width = "x", 3
    for block in range(3):
        name = f"conv{block}"
        held[f"{name}_w"] = rng.normal(size=(8, width, 3, 3)) / np.sqrt(9 * width)
        nodes.append(
            helper.make_node("Conv", [value, f"{name}_w"], [name], name=name, pads=[1] * 4)
        )
        summed = f"add{block}" if block else name
        if block:
            nodes.append(helper.make_node("Add", [name, value], [summed], name=summed))
        value, width = summed, 8
    nodes.append(helper.make_node("GlobalAveragePool", [value], ["y"], name="mean"))
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 8, 1, 1])],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in held.items()],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path
    )
    for name, count in (("scored", 8), ("calibration", 16)):
        np.savez(
            path.parent / f"{name}.npz", x=rng.normal(size=(count, 3, 8, 8)).astype(np.float32)
        )


@pytest.mark.slow
@pytest.mark.parametrize("schema", ["w7a8_asym_pt", "w8a8_asym_pt"])
def test_sums_that_openvino_fuses_are_compared_as_they_run_alone(tmp_path, schema):
    """No fusion is suspected; what remains are pairs that saturate, which 8 bits do on
    processors without VNNI.
    """
    pytest.importorskip("openvino")
    residuals(tmp_path / "net.onnx")
    files = [str(tmp_path / name) for name in ("net.onnx", "scored.npz", "calibration.npz")]
    found = localize(build_subject(*files, [], 16), "openvino", schema)
    has_pairs = bool(arithmetic_of(get_backend("openvino")).accumulator.pair_bits)
    saturating = {
        node.node for node in found.nodes if node.counting is not None and node.counting.beyond
    }
    if has_pairs and schema == "w8a8_asym_pt":
        assert saturating
        assert {one.node for one in found.suspects} <= saturating
        assert {one.cause for one in found.suspects} == {Cause.PAIR_SATURATION}
    else:
        assert found.suspects == ()
    sums = [node for node in found.nodes if node.node in ("add1", "add2")]
    assert len(sums) == 2
    assert all(node.claimed is not None and node.claimed.rms_steps < 0.05 for node in sums)
