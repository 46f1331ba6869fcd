"""Fashion-MNIST: split as ruled, read by the two committed networks,
whose graphs the builders write.
"""

import gzip
import importlib.util
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from qbench.backends import get_backend
from qbench.errors import InputError, StoreError, UnavailableError
from qbench.passes import canonicalize
from qbench.storage import Cache
from qbench.subjects import fetch_package, get_dataset, get_model, prepare_samples
from qbench_zoo import fashion
from qbench_zoo.networks.parameters import Parameters
from qbench_zoo.networks.pictures import build_fashion_mobile, build_preactivation
from qbench_zoo.packages import FASHION_MNIST

WEIGHTS = Path(fashion.__file__).parent / "weights"
BUILDERS = {"fashion_preact": build_preactivation, "fashion_mobile": build_fashion_mobile}
RIGHT = {"fashion_preact": 9201, "fashion_mobile": 9041}
"""Of 10,000, by onnxruntime 1.31 on an AVX2 processor."""


@pytest.fixture(scope="module")
def package() -> Path:
    try:
        return fetch_package(FASHION_MNIST)
    except UnavailableError as error:
        pytest.skip(str(error))


@pytest.mark.slow
@pytest.mark.usefixtures("package")
def test_a_thousand_of_each_class_are_scored_and_none_is_calibrated_on() -> None:
    test, calibration = get_dataset("fashion_test"), get_dataset("fashion_calibration")
    assert test.labels is not None
    assert calibration.labels is not None
    assert Counter(test.labels) == {(label,): 1000 for label in range(10)}
    assert len(calibration) == 1000
    assert set(Counter(calibration.labels)) == {(label,) for label in range(10)}
    assert not {*test.sources} & {*calibration.sources}
    assert (test.sample_ids[-1], calibration.sample_ids[1]) == ("test09999", "train00060")
    assert test.labels[:3] == ((9,), (2,), (1,))  # a boot, a pullover, trousers
    picture = test.load(0)
    assert (picture.shape, picture.dtype, int(picture.max())) == ((1, 28, 28), np.uint8, 255)


@pytest.mark.slow_but(1)
@pytest.mark.usefixtures("package")
@pytest.mark.parametrize("name", RIGHT)
def test_the_committed_networks_read_the_pictures(name: str) -> None:
    model, data = get_model(name), get_dataset("fashion_test").take(2000)
    samples = prepare_samples(data, model.preprocess, Cache.default())
    with get_backend("ort-cpu").prepare(model.graphs["model"]()) as executor:
        answers = model.task.answer({"model": executor}, samples)
    assert data.labels is not None
    right = sum(answers.ids[i, 0] in label for i, label in enumerate(data.labels))
    assert right / 2000 == pytest.approx(RIGHT[name] / 10_000, abs=0.012)  # every fifth picture


@pytest.mark.parametrize("name", RIGHT)
def test_the_committed_graph_is_what_the_builder_writes(name: str) -> None:
    path = WEIGHTS / f"{name}.onnx"
    assert path.stat().st_size < 500_000
    proto = onnx.load(path)
    onnx.checker.check_model(proto, full_check=True)
    known = {i.name: onnx.numpy_helper.to_array(i) for i in proto.graph.initializer}
    built = ir.to_proto(BUILDERS[name](Parameters(name, _state(known)), name))
    assert [(n.op_type, n.name, *n.input) for n in built.graph.node] == [
        (n.op_type, n.name, *n.input) for n in proto.graph.node
    ]
    for initializer in built.graph.initializer:
        np.testing.assert_array_equal(
            onnx.numpy_helper.to_array(initializer), known[initializer.name]
        )


def _state(known: dict[str, Any]) -> dict[str, Any]:
    """The graph's constants under the names that checkpoints use."""
    theirs = {
        ".bn.scale": ".bn.weight",
        ".bn.mean": ".bn.running_mean",
        ".bn.variance": ".bn.running_var",
    }
    state = {}
    for name, array in known.items():
        ending = next((end for end in theirs if name.endswith(end)), "")
        state[name.removesuffix(ending) + theirs[ending] if ending else name] = array
    return state | {
        name.replace("classifier.", "dense."): array
        for name, array in known.items()
        if "classifier" in name
    }


def test_a_checkpoint_of_another_network_is_refused() -> None:
    with pytest.raises(InputError, match="stem"):
        build_preactivation(
            Parameters("other", {"stem.weight": np.zeros((16, 3, 3, 3), np.float32)}), "other"
        )


def test_other_weights_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fashion_preact.onnx").write_bytes(
        (WEIGHTS / "fashion_preact.onnx").read_bytes() + b"\0"
    )
    monkeypatch.setattr(fashion, "_WEIGHTS", tmp_path)
    with pytest.raises(StoreError, match="SHA-256"):
        get_model("fashion_preact").graphs["model"]()


@pytest.mark.parametrize(
    "content",
    [b"\0\0\x08\x01\0\0\0\x03ab", b"\0\0\x0d\x01\0\0\0\x02ab", b"\x01\0\x08\x01\0\0\0\x02ab"],
)
def test_a_file_that_is_no_idx_of_bytes_is_a_sentence(
    content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fashion, "open_member", lambda *_: gzip.compress(content))
    with pytest.raises(UnavailableError, match="IDX"):
        fashion.fashion_arrays(test=True)


def test_the_residual_network_counts_in_integers_but_for_its_end() -> None:
    """bn₂ is folded, bn₁ becomes a convolution: no normalization is left,
    and every sum is one of two values.
    """
    graph = canonicalize(get_model("fashion_preact").graphs["model"]()).graph
    kinds = Counter(node.op_type for node in graph)
    assert kinds["BatchNormalization"] == 0
    assert kinds["Conv"] == 21 + 10  # convolutions, and the normalizations before blocks and head
    assert kinds["Add"] == 9


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed (the extra 'oracle')"
)
@pytest.mark.parametrize("name", RIGHT)
def test_the_graph_that_is_trained_is_the_graph_that_runs(name: str) -> None:
    import torch

    from qbench_zoo.training.fashion import TorchGraph

    model = get_model(name).graphs["model"]()
    x = np.random.default_rng(0).random((4, 1, 28, 28)).astype(np.float32)
    with torch.no_grad():
        expected = TorchGraph(model)(torch.from_numpy(x), training=False).numpy()
    with get_backend("ort-cpu").prepare(model) as executor:
        np.testing.assert_allclose(executor.run({"x": x})["logits"], expected, atol=1e-4)
