"""The voice encoder as a graph: the recurrence by its formula in numpy, two engines,
others' weights.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator

from qbench.errors import InputError
from qbench_zoo.networks.sequences import FRAMES, LAYERS, MELS, STATE, resemblyzer_network

Arrays = dict[str, npt.NDArray[Any]]
SHAPES = {
    **{
        f"lstm.weight_ih_l{layer}": (4 * STATE, STATE if layer else MELS) for layer in range(LAYERS)
    },
    **{f"lstm.weight_hh_l{layer}": (4 * STATE, STATE) for layer in range(LAYERS)},
    **{
        f"lstm.bias_{side}_l{layer}": (4 * STATE,)
        for layer in range(LAYERS)
        for side in ("ih", "hh")
    },
    "linear.weight": (STATE, STATE),
    "linear.bias": (STATE,),
}


def weights() -> Arrays:
    random = np.random.default_rng(0)
    arrays = {
        name: random.normal(0, 0.06, shape).astype(np.float32) for name, shape in SHAPES.items()
    }
    return {
        **arrays,
        "similarity_weight": np.ones(1, np.float32),
        "similarity_bias": np.ones(1, np.float32),
    }


def sigmoid(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return 1 / (1 + np.exp(-x))


def formula(arrays: Arrays, mel: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """float64, gates by name in the checkpoint's order."""
    wide = {name: array.astype(np.float64) for name, array in arrays.items()}
    value = mel.astype(np.float64)
    for layer in range(LAYERS):
        w, r = wide[f"lstm.weight_ih_l{layer}"], wide[f"lstm.weight_hh_l{layer}"]
        bias = wide[f"lstm.bias_ih_l{layer}"] + wide[f"lstm.bias_hh_l{layer}"]
        h = c = np.zeros((len(mel), STATE))
        states = []
        for t in range(value.shape[1]):
            i, f, g, o = np.split(value[:, t] @ w.T + h @ r.T + bias, 4, axis=1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
            states.append(h)
        value = np.stack(states, axis=1)
    raw = np.maximum(value[:, -1] @ wide["linear.weight"].T + wide["linear.bias"], 0)
    return np.asarray(raw / np.linalg.norm(raw, axis=1, keepdims=True))


def run_ort(model: ir.Model, mel: npt.NDArray[Any]) -> npt.NDArray[Any]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString(), options)
    return np.asarray(session.run(["embedding"], {"mel": mel})[0])


def run_reference(model: ir.Model, mel: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.asarray(ReferenceEvaluator(ir.to_proto(model)).run(["embedding"], {"mel": mel})[0])


@pytest.mark.slow_but(1)
@pytest.mark.parametrize("engine", [run_ort, run_reference])
def test_the_graph_is_the_formula(engine: Any) -> None:
    arrays = weights()
    mel = np.random.default_rng(1).gamma(0.5, 0.3, (3, FRAMES, MELS)).astype(np.float32)
    found = engine(resemblyzer_network(arrays), mel)
    np.testing.assert_allclose(found, formula(arrays, mel), rtol=0, atol=2e-6)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=1e-6)


def test_an_embedding_of_nothing_is_finite() -> None:
    arrays = {**weights(), "linear.bias": np.full(STATE, -100, np.float32)}
    np.testing.assert_array_equal(
        run_ort(resemblyzer_network(arrays), np.zeros((1, FRAMES, MELS), np.float32)), 0
    )


def test_the_graph_is_valid_named_and_free_in_its_batch() -> None:
    model = resemblyzer_network(weights())
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    names = [node.name for node in model.graph]
    assert len(set(names)) == len(names)
    assert sum(node.op_type == "LSTM" for node in model.graph) == LAYERS
    assert [str(value.shape) for value in (*model.graph.inputs, *model.graph.outputs)] == [
        f"[N,{FRAMES},{MELS}]",
        f"[N,{STATE}]",
    ]


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_weights_of_another_network_are_refused(name: str) -> None:
    arrays: Mapping[str, npt.NDArray[Any]] = weights()
    with pytest.raises(InputError, match=f"'{name}'"):
        resemblyzer_network({**arrays, name: arrays[name][1:]})
    with pytest.raises(InputError, match="'more'"):
        resemblyzer_network({**arrays, "more": arrays[name]})
