"""The hand-written networks: real weights give real answers, and every parameter has its place."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.errors import InputError
from qbench.storage import Cache
from qbench.subjects import ZooModel, get_dataset, get_model, prepare_samples
from qbench.subjects.operator_graphs import GraphBuilder
from qbench_zoo.networks.parameters import Parameters
from qbench_zoo.networks.pictures import (
    Layers,
    Unit,
    build_efficientnet_lite,
    build_mobilenet_v2,
    same_pads,
)

# Right at first and among the first five, of the 20 labelled pictures; and the number of trained
# parameters.
EXPECTED = {"mobilenet_v2": (18, 20, 3_504_872), "efficientnet_lite0": (18, 19, 4_652_008)}


class OneThread:
    """The real engine."""

    def __init__(self, model: ir.Model) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString(), options)

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return dict(
            zip(
                [o.name for o in self.session.get_outputs()],
                self.session.run(None, dict(feeds)),
                strict=True,
            )
        )


@pytest.fixture(scope="module", params=sorted(EXPECTED))
def real(request: pytest.FixtureRequest) -> tuple[ZooModel, ir.Model]:
    entry = get_model(request.param)
    return entry, entry.graphs["model"]()


@pytest.mark.slow
def test_real_photographs_are_recognized(real: tuple[ZooModel, ir.Model]) -> None:
    entry, model = real
    data = get_dataset("imagenet_photos")
    samples = prepare_samples(data, entry.preprocess, Cache.default())
    answers = entry.task.answer({"model": OneThread(model)}, samples)
    assert data.labels is not None
    top1 = sum(
        row[0] in right for row, right in zip(answers.ids.tolist(), data.labels, strict=True)
    )
    top5 = sum(
        bool({*row} & {*right})
        for row, right in zip(answers.ids.tolist(), data.labels, strict=True)
    )
    assert (top1, top5) == EXPECTED[entry.id][:2]


def test_every_parameter_is_in_the_graph_and_every_node_has_its_own_name(
    real: tuple[ZooModel, ir.Model],
) -> None:
    entry, model = real
    sizes = {
        name: value.const_value.size
        for name, value in model.graph.initializers.items()
        if value.const_value
    }
    trained = sum(
        size
        for name, size in sizes.items()
        if not name.endswith((".mean", ".variance", ".low", ".high"))
    )
    assert trained == EXPECTED[entry.id][2]
    names = [node.name for node in model.graph]
    assert len(set(names)) == len(names)
    assert {node.op_type for node in model.graph} == {
        *("Conv", "BatchNormalization", "Clip", "Add", "GlobalAveragePool", "Flatten", "Gemm")
    }


def test_the_model_is_valid_and_its_batch_is_free(real: tuple[ZooModel, ir.Model]) -> None:
    _, model = real
    proto = ir.to_proto(model)
    onnx.checker.check_model(proto, full_check=True)
    assert [(o.domain, o.version) for o in proto.opset_import] == [("", 21)]
    (feed,), (logits,) = model.graph.inputs, model.graph.outputs
    assert (feed.name, str(feed.shape), feed.dtype) == ("x", "[N,3,H,W]", ir.DataType.FLOAT)
    assert (logits.name, str(logits.shape), logits.dtype) == (
        "logits",
        "[N,1000]",
        ir.DataType.FLOAT,
    )
    assert all(value.shape is not None for node in model.graph for value in node.outputs)


@pytest.fixture(scope="module")
def shapes() -> dict[str, dict[str, tuple[int, ...]]]:
    """Parameter shapes of both networks, found by asking for them."""

    found: dict[str, dict[str, tuple[int, ...]]] = {}
    for name, build in (
        ("mobilenet_v2", build_mobilenet_v2),
        ("efficientnet_lite0", partial(build_efficientnet_lite, 0)),
    ):
        taken: dict[str, tuple[int, ...]] = {}

        def take(
            self: Parameters, key: str, shape: tuple[int, ...], taken: Any = taken
        ) -> np.ndarray:
            taken[key] = shape
            return np.zeros(shape, np.float32)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Parameters, "take", take)
            build({})
        found[name] = taken
    return found


BUILDERS = [
    ("mobilenet_v2", build_mobilenet_v2),
    ("efficientnet_lite0", partial(build_efficientnet_lite, 0)),
]


@pytest.mark.parametrize(("name", "build"), BUILDERS)
def test_a_checkpoint_of_another_network_is_refused(
    name: str, build: Any, shapes: dict[str, Any]
) -> None:
    state = {key: np.zeros(shape, np.float32) for key, shape in shapes[name].items()}
    counters = {"extra.num_batches_tracked": np.array(3)}
    assert build({**state, **counters}).graph.outputs[0].name == "logits"
    first = next(iter(state))
    with pytest.raises(InputError, match=f"no '{first}'"):
        build({key: array for key, array in state.items() if key != first})
    with pytest.raises(InputError, match=r"of shape \(1,\)"):
        build({**state, first: np.zeros(1, np.float32)})
    with pytest.raises(InputError, match=r"'classifier\.9' the first"):
        build({**state, "classifier.9": np.zeros(1, np.float32)})


@given(st.integers(1, 64), st.sampled_from([1, 3, 5, 7]), st.integers(1, 3))
def test_padding_is_the_least_that_keeps_the_size_with_the_odd_one_behind(
    side: int, kernel: int, stride: int
) -> None:
    top, left, bottom, right = same_pads(side, kernel, stride)
    assert (top, bottom) == (left, right)
    assert 0 <= bottom - top <= 1
    wanted = -(-side // stride)
    assert (side + top + bottom - kernel) // stride + 1 == wanted
    least = next(
        padding
        for padding in range(64)
        if side + padding >= kernel and (side + padding - kernel) // stride + 1 == wanted
    )
    assert top + bottom == least


@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2]), st.booleans())
def test_a_unit_counts_as_its_formula_says(seed: int, stride: int, clipped: bool) -> None:
    random = np.random.default_rng(seed)
    inputs, outputs = 2, 4
    state = {
        "c.weight": random.normal(size=(outputs, 1, 3, 3)).astype(np.float32),
        "n.weight": random.normal(size=outputs).astype(np.float32),
        "n.bias": random.normal(size=outputs).astype(np.float32),
        "n.running_mean": random.normal(size=outputs).astype(np.float32),
        "n.running_var": random.uniform(0.1, 2, outputs).astype(np.float32),
    }
    graph = GraphBuilder("unit")
    parameters = Parameters("unit", state)
    unit = Unit(
        name="unit", convolution="c", normalization="n", inputs=inputs, outputs=outputs, kernel=3,
        stride=stride, pads=(0, 0, 1, 1), groups=inputs, clipped=clipped,
    )  # fmt: skip
    x = graph.input("x", ("N", inputs, 5, 5))
    y = Layers(graph, parameters, epsilon=1e-3).unit(x, unit)
    feed = (random.normal(size=(2, inputs, 5, 5)) * 3).astype(np.float32)
    found = OneThread(graph.model({"y": y})).run({"x": feed})["y"]
    padded = np.pad(feed.astype(np.float64), ((0, 0), (0, 0), (0, 1), (0, 1)))
    side = (6 - 3) // stride + 1
    expected = np.zeros((2, outputs, side, side))
    for n, o, row, column in np.ndindex(*expected.shape):
        window = padded[
            n, o // 2, row * stride : row * stride + 3, column * stride : column * stride + 3
        ]
        value = (window * state["c.weight"][o, 0]).sum()
        value = (value - state["n.running_mean"][o]) / np.sqrt(state["n.running_var"][o] + 1e-3)
        value = value * state["n.weight"][o] + state["n.bias"][o]
        expected[n, o, row, column] = min(max(value, 0), 6) if clipped else value
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_one_name_is_one_constant() -> None:
    graph = GraphBuilder("g")
    assert graph.constant("c", np.zeros(2)) is graph.constant("c", np.zeros(2))
    with pytest.raises(ValueError, match="two constants 'c'"):
        graph.constant("c", np.ones(2))
