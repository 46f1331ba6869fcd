"""An engine that declares to sum pairs in 16 bits: that is the cause, for every batch and
number of samples.
"""

from dataclasses import dataclass

import numpy as np
import pytest

from qbench import save_model
from qbench.backends import get_backend
from qbench.diagnosis import LocalizeOptions, localize
from qbench.diagnosis import localize_graph as localized_graph
from qbench.diagnosis.hypotheses import NamedCause
from qbench.evaluation import build_subject
from qbench.graph import Form, as_model, form_of
from qbench.judging import Cause
from qbench.subjects import GraphBuilder, digits_arrays

PAIRS = "ort-x64-avx2"


@dataclass(frozen=True)
class Outside:
    """An engine that is no interpreter of ours, and counts by the arithmetic that it declares."""

    name: str = "outside"
    arithmetic: str = PAIRS
    packages: tuple[str, ...] = ()

    @property
    def capabilities(self):
        return get_backend("ort-cpu").capabilities

    def prepare(self, model, *, taps=(), threads=1):
        name = "ort-cpu" if form_of(as_model(model)) is Form.FLOAT else f"integer-{PAIRS}"
        return get_backend(name).prepare(model, taps=taps, threads=threads)


def network(batch):
    """Three convolutions and a Gemm whose weights lie to one side,
    so that sums of pairs are large.
    """
    random, graph = np.random.default_rng(0), GraphBuilder("cnn")

    def layer(x, name, shape, stride=1):
        size = np.prod(shape[1:])
        weight = random.uniform(-1, 1, shape) * np.sqrt(3 / size) + 0.6 * np.sqrt(1 / size)
        bias = 0.1 * random.normal(size=shape[:1])
        inputs = [
            x,
            *(
                graph.constant(f"{name}.{k}", v.astype(np.float32))
                for k, v in (("w", weight), ("b", bias))
            ),
        ]
        rule = {"kernel_shape": [3, 3], "pads": [1] * 4, "strides": [stride] * 2}
        return graph.node("Relu", [graph.node("Conv", inputs, name, rule)], f"{name}.relu")

    x = graph.input("x", (batch, 1, 8, 8))
    x = layer(
        layer(layer(x, "conv0", (8, 1, 3, 3)), "conv1", (16, 8, 3, 3), 2), "conv2", (16, 16, 3, 3)
    )
    x = graph.node("Flatten", [graph.node("GlobalAveragePool", [x], "pool")], "flat")
    last = [random.normal(size=(16, 10)), np.zeros(10)]
    constants = [graph.constant(f"last.{i}", one.astype(np.float32)) for i, one in enumerate(last)]
    return graph.model({"logits": graph.node("Gemm", [x, *constants], "last")})


@pytest.fixture
def subject(tmp_path):
    for name, test in (("val", True), ("calib", False)):
        pictures, labels = digits_arrays(test=test)
        x = pictures[:96].reshape(-1, 1, 8, 8).astype(np.float32) / 16
        np.savez(tmp_path / f"{name}.npz", x=x, y=labels[:96])

    def made(batch):
        save_model(network(batch), tmp_path / "net.onnx")
        data = (str(tmp_path / f"{name}.npz") for name in ("val", "calib"))
        return build_subject(str(tmp_path / "net.onnx"), *data, ["agreement"], 64)

    return made


CASES = pytest.mark.parametrize(
    ("batch", "samples", "nodes"),
    [
        ("N", 32, {"conv0", "conv1", "conv2", "last"}),
        ("N", 1, {"conv0", "conv2", "last"}),
        (1, 32, {"conv0", "conv1", "conv2", "last"}),
        (8, 32, {"conv0", "conv1", "conv2", "last"}),
    ],
)


@pytest.mark.slow_but(1)
@CASES
def test_pairs_are_the_cause_for_every_batch_and_number_of_samples(subject, batch, samples, nodes):
    options = LocalizeOptions(samples=samples, repairs=False)
    found = localize(subject(batch), Outside(), "w8a8_asym_pc", options=options)
    assert {one.node: one.cause for one in found.suspects} == dict.fromkeys(
        nodes, Cause.PAIR_SATURATION
    )
    assert all(node.claimed.differing == 0 for node in found.nodes if node.claimed is not None)


@pytest.mark.slow
@pytest.mark.parametrize("cause", [None, Cause.WRONG_KERNEL])
def test_nothing_is_called_other_than_its_arithmetic_where_nothing_differs(
    subject, monkeypatch, cause
):
    """Whatever is captured: neither where no cause is found, nor where a search calls it so."""
    monkeypatch.setattr(
        localized_graph,
        "name_cause",
        lambda *_, **__: NamedCause(cause=cause, evidence="", weight=0.5),
    )
    options = LocalizeOptions(samples=8, repairs=False)
    for backend in (Outside(), f"integer-{PAIRS}")[
        : 1 if cause else 2
    ]:  # of the second a search would know more
        found = localize(subject("N"), backend, "w8a8_asym_pc", options=options)
        assert found.suspects
        claimed = {node.node: node.claimed for node in found.nodes}
        wrong = [one.node for one in found.suspects if one.cause is Cause.WRONG_KERNEL]
        assert not [name for name in wrong if claimed[name] is None or not claimed[name].differing]
