"""Whisper in PyTorch's own layers with the same weights: states and logits agree to 1e-4 of the
greatest of them.
"""

from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from qbench.backends import get_backend
from qbench.host import processor_features
from qbench_zoo.networks.transformers import WhisperSize, whisper_networks
from qbench_zoo.whisper import whisper_arrays

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

TOLERANCE = 1e-4
Arrays = dict[str, npt.NDArray[Any]]


class Layers:
    """The network out of ``torch.nn``: attention is MultiheadAttention, over the whole text at
    once, with a mask.
    """

    def __init__(self, torch: ModuleType, arrays: Arrays, size: WhisperSize) -> None:
        self.torch, self.size = torch, size
        self.arrays = {
            name: torch.from_numpy(array.astype(np.float32)) for name, array in arrays.items()
        }

    def states(self, mel: Any) -> Any:
        functional = self.torch.nn.functional
        x = mel
        for name, stride in (("conv1", 1), ("conv2", 2)):
            weight, bias = (self.arrays[f"encoder/{name}/{role}"] for role in ("weight", "bias"))
            x = functional.gelu(functional.conv1d(x, weight, bias, stride=stride, padding=1))
        x = x.transpose(1, 2)
        x = x + self.arrays["encoder/position_encodings/encodings"][: x.shape[1]]
        for index in range(self.size.layers):
            key = f"encoder/layer_{index}"
            normal = self.norm(x, f"{key}/self_attention/layer_norm")
            x = x + self.attention(f"{key}/self_attention", normal, normal, fused=True)
            x = x + self.forward(f"{key}/ffn", x)
        return self.norm(x, "encoder/layer_norm")

    def logits(self, tokens: Any, states: Any) -> Any:
        embedding, places = (
            self.arrays["decoder/embeddings/weight"],
            self.arrays["decoder/position_encodings/encodings"],
        )
        x = embedding[tokens] + places[: tokens.shape[1]]
        mask = self.torch.full((tokens.shape[1],) * 2, float("-inf")).triu(1)
        for index in range(self.size.layers):
            key = f"decoder/layer_{index}"
            normal = self.norm(x, f"{key}/self_attention/layer_norm")
            x = x + self.attention(f"{key}/self_attention", normal, normal, fused=True, mask=mask)
            x = x + self.attention(
                f"{key}/attention", self.norm(x, f"{key}/attention/layer_norm"), states, fused=False
            )
            x = x + self.forward(f"{key}/ffn", x)
        return self.norm(x, "decoder/layer_norm") @ embedding.T

    def norm(self, x: Any, key: str) -> Any:
        scale, shift = self.arrays[f"{key}/gamma"], self.arrays[f"{key}/beta"]
        return self.torch.nn.functional.layer_norm(x, (self.size.width,), scale, shift, 1e-5)

    def forward(self, key: str, x: Any) -> Any:
        functional, arrays = self.torch.nn.functional, self.arrays
        wide = functional.linear(
            self.norm(x, f"{key}/layer_norm"),
            arrays[f"{key}/linear_0/weight"],
            arrays[f"{key}/linear_0/bias"],
        )
        return functional.linear(
            functional.gelu(wide), arrays[f"{key}/linear_1/weight"], arrays[f"{key}/linear_1/bias"]
        )

    def attention(self, key: str, x: Any, states: Any, *, fused: bool, mask: Any = None) -> Any:
        torch, arrays = self.torch, self.arrays
        layer = torch.nn.MultiheadAttention(
            self.size.width, self.size.heads, batch_first=True
        ).eval()
        into = ("linear_0",) if fused else ("linear_0", "linear_1")
        out = "linear_1" if fused else "linear_2"
        layer.in_proj_weight.data = torch.cat([arrays[f"{key}/{name}/weight"] for name in into])
        layer.in_proj_bias.data = torch.cat([arrays[f"{key}/{name}/bias"] for name in into])
        layer.out_proj.weight.data = arrays[f"{key}/{out}/weight"]
        layer.out_proj.bias.data = arrays[f"{key}/{out}/bias"]
        return layer(x, states, states, need_weights=False, attn_mask=mask)[0]


@pytest.mark.parametrize("frames", [200, 1500, 3000])
def test_encoder_and_steps_are_those_of_torch(torch: ModuleType, frames: int) -> None:
    size, random, arrays = WhisperSize(), np.random.default_rng(frames), whisper_arrays()
    mel = random.normal(0, 0.4, (2, size.mels, frames)).astype(np.float32)
    tokens = np.array([[50257, 50362, 3406, 3802], [50257, 50362, 383, 4495]])
    layers, graphs, backend = (
        Layers(torch, arrays, size),
        whisper_networks(arrays, size),
        get_backend("ort-cpu"),
    )
    with torch.no_grad():
        states = layers.states(torch.from_numpy(mel))
        logits = layers.logits(torch.from_numpy(tokens), states).numpy()
    with backend.prepare(graphs["encoder"], taps=("states",)) as encoder:
        heard = encoder.run({"mel": mel})
    expected, apart = states.numpy(), heard.pop("states") - states.numpy()
    beyond = np.abs(apart) > TOLERANCE * np.abs(expected).max()
    assert np.linalg.norm(apart) <= TOLERANCE * np.linalg.norm(expected)
    # The order of sums depends on the processor. Of a million states, those that nearly cancel are
    # further apart: four with AVX2, none or one on two processors with AVX-512.
    assert beyond.sum() <= (1 if "avx512f" in processor_features() else 4)
    depth = size.width // size.heads
    feeds: Arrays = {**heard}
    for index in range(size.layers):
        feeds[f"key_{index}"] = np.zeros((2, size.heads, depth, 0), np.float32)
        feeds[f"value_{index}"] = np.zeros((2, size.heads, 0, depth), np.float32)
    with backend.prepare(graphs["decoder_step"]) as decoder:
        for place, token in enumerate(tokens.T):
            outputs = decoder.run({**feeds, "token": token[:, None]})
            expected = logits[:, place]
            np.testing.assert_allclose(
                outputs["logits"], expected, rtol=0, atol=TOLERANCE * np.abs(expected).max()
            )
            np.testing.assert_array_equal(outputs["logits"].argmax(axis=1), expected.argmax(axis=1))
            feeds |= {
                name.removeprefix("next_"): array
                for name, array in outputs.items()
                if name != "logits"
            }
