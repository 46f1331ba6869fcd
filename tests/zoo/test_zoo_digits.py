"""The digits: split as ruled, read by the committed network, whose training can be rerun; its
layers learn rightly.
"""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from qbench.errors import StoreError
from qbench.storage import Cache
from qbench.subjects import digits, get_dataset, get_model, prepare_samples
from qbench.subjects.digits import WEIGHTS, digits_arrays
from qbench_zoo.networks.pictures import digits_network
from qbench_zoo.training.digits import (
    BatchNorm,
    Conv3x3,
    Dense,
    Flatten,
    Layer,
    MaxPool,
    Relu,
    softmax_gradient,
    train,
)


class Engine:
    """onnxruntime."""

    def __init__(self, model: ir.Model) -> None:
        self.session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString())

    def run(self, feeds: Any) -> dict[str, Any]:
        return {"logits": self.session.run(["logits"], dict(feeds))[0]}


# -- data and network


def test_every_fifth_digit_is_scored_and_none_was_learned_from() -> None:
    test, learned = get_dataset("digits_test"), get_dataset("digits_train")
    assert (len(test), len(learned)) == (360, 1437)
    assert sorted((*test.sample_ids, *learned.sample_ids)) == [f"digit{i:04d}" for i in range(1797)]
    assert test.sample_ids[:3] == ("digit0000", "digit0005", "digit0010")
    assert not {*test.sources} & {*learned.sources}
    assert test.labels is not None
    assert test.labels[:3] == ((0,), (5,), (0,))  # the set begins 0 1 2 3 4 5 6 7 8 9 0 …
    picture = test.load(7)
    assert (picture.shape, picture.dtype, picture.max()) == ((1, 8, 8), np.uint8, 16)


def test_the_committed_network_reads_the_digits() -> None:
    model, data = get_model("digits_cnn"), get_dataset("digits_test")
    samples = prepare_samples(data, model.preprocess, Cache.default())
    (feeds, *_) = samples.batches()
    np.testing.assert_array_equal(feeds["x"] * 16, np.stack([data.load(i) for i in range(8)]))
    answers = model.task.answer({"model": Engine(model.graphs["model"]())}, samples)
    assert data.labels is not None
    right = sum(answers.ids[i, 0] in label for i, label in enumerate(data.labels))
    assert right == pytest.approx(357, abs=1)
    assert answers.ids.shape == (360, 5)


def test_the_committed_file_is_small_valid_and_says_nothing_of_a_machine() -> None:
    assert WEIGHTS.stat().st_size < 500_000
    proto = onnx.load(WEIGHTS)
    onnx.checker.check_model(proto, full_check=True)
    assert proto.producer_name == "qbench"
    assert [node.op_type for node in proto.graph.node] == [
        *("Conv", "BatchNormalization", "Relu", "Conv", "BatchNormalization", "Relu"),
        *("MaxPool", "Flatten", "Gemm", "Relu", "Gemm"),
    ]
    assert b"/" not in b"".join(
        node.doc_string.encode() + node.name.encode() for node in proto.graph.node
    )


def test_other_weights_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "digits_cnn.onnx"
    other.write_bytes(WEIGHTS.read_bytes() + b"\0")
    monkeypatch.setattr(digits, "WEIGHTS", other)
    with pytest.raises(StoreError, match="SHA-256"):
        get_model("digits_cnn").graphs["model"]()


# -- training


@pytest.mark.slow
def test_four_epochs_learn_most_of_it() -> None:
    pictures, labels = digits_arrays(test=False)
    weights = train(pictures.astype(np.float32) / np.float32(16), labels, epochs=4)
    assert all(
        array.dtype == np.float32
        for array in (*weights.convolutions, *weights.norms[0], *weights.dense[0])
    )
    x, y = digits_arrays(test=True)
    logits = Engine(digits_network(weights)).run({"x": x.astype(np.float32) / np.float32(16)})[
        "logits"
    ]
    assert (logits.argmax(axis=1) == y).mean() > 0.9


def layers() -> list[tuple[Layer, tuple[int, ...]]]:
    random = np.random.default_rng(3)
    return [
        (Relu(), (2, 3, 4, 4)),
        (MaxPool(), (2, 3, 4, 4)),
        (Flatten(), (2, 3, 4, 4)),
        (Dense(5, 4, random), (3, 5)),
        (Conv3x3(2, 3, random), (2, 2, 4, 5)),
        (BatchNorm(3), (4, 3, 2, 2)),
    ]


@pytest.mark.parametrize(("layer", "shape"), layers(), ids=lambda value: type(value).__name__)
def test_gradients_are_the_slopes(layer: Layer, shape: tuple[int, ...]) -> None:
    """∂(Σ c∘y)/∂x and ∂/∂w against central differences,
    in float64 so that the differences mean something.
    """
    random = np.random.default_rng(4)
    layer.weights = {name: array.astype(np.float64) for name, array in layer.weights.items()}
    x = (
        random.permutation(np.prod(shape)).reshape(shape) / 10 - 1.03
    )  # no equals to pool, nothing at zero
    factors = random.normal(size=layer.forward(x, training=True).shape)

    def total() -> float:
        return float((factors * layer.forward(x, training=True)).sum())

    dx = layer.backward(factors)
    gradients = dict(layer.gradients)
    assert set(gradients) == set(layer.weights)
    for array, gradient in (
        (x, dx),
        *((layer.weights[name], gradients[name]) for name in gradients),
    ):
        for index in list(np.ndindex(array.shape))[:40]:
            kept, step = array[index], 1e-5
            array[index] = kept + step
            above = total()
            array[index] = kept - step
            slope = (above - total()) / (2 * step)
            array[index] = kept
            assert gradient[index] == pytest.approx(slope, rel=1e-3, abs=1e-4)


def test_the_loss_gradient_is_softmax_less_the_right_class() -> None:
    logits = np.log(np.array([[1, 2, 1], [3, 1, 1]], np.float32))
    expected = np.array([[0.25, 0.5 - 1, 0.25], [0.6 - 1, 0.2, 0.2]]) / 2
    np.testing.assert_allclose(softmax_gradient(logits, np.array([1, 0])), expected, atol=1e-7)
