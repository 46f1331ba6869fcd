"""The zoo's networks as PyTorch has them: its own layers, the checkpoint's names, nothing of
our graphs.

Each function takes the checkpoint's tensors by name and gives a function of the same inputs as the
graph's; a tensor that no layer takes is an error, as in a strict ``load_state_dict``.
"""

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

Tensor = Any
Network = Callable[[Tensor], Tensor]


class State:
    """Tensors by name that are all to be taken."""

    def __init__(self, tensors: Mapping[str, Tensor], unused: tuple[str, ...] = ()) -> None:
        self._tensors = tensors
        self._left = {name for name in tensors if not name.endswith(unused)}

    def __getitem__(self, name: str) -> Tensor:
        self._left.discard(name)
        return self._tensors[name]

    def all_taken(self) -> None:
        assert not self._left, sorted(self._left)


def mobilenet_v2(torch: ModuleType, tensors: Mapping[str, Tensor]) -> Network:
    """torchvision's ``mobilenet_v2`` at inference (its models/mobilenetv2.py)."""
    functional = torch.nn.functional

    def run(x: Tensor) -> Tensor:
        state = State(tensors, (".num_batches_tracked",))

        def normalized(x: Tensor, key: str) -> Tensor:
            parts = [
                state[f"{key}.{role}"] for role in ("running_mean", "running_var", "weight", "bias")
            ]
            return functional.batch_norm(x, *parts)

        def unit(x: Tensor, key: str, stride: int = 1) -> Tensor:
            weight = state[f"{key}.0.weight"]
            groups = weight.shape[0] if weight.shape[1] == 1 else 1
            x = functional.conv2d(x, weight, None, stride, (weight.shape[-1] - 1) // 2, 1, groups)
            return functional.relu6(normalized(x, f"{key}.1"))

        x, block = unit(x, "features.0", 2), 1
        for expansion, _, repeats, first in (
            (1, 16, 1, 1),
            (6, 24, 2, 2),
            (6, 32, 3, 2),
            (6, 64, 4, 2),
            (6, 96, 3, 1),
            (6, 160, 3, 2),
            (6, 320, 1, 1),
        ):
            for repeat in range(repeats):
                key, y, at = f"features.{block}.conv", x, 0
                if expansion != 1:
                    y, at = unit(y, f"{key}.0"), 1
                y = unit(y, f"{key}.{at}", first if repeat == 0 else 1)
                y = normalized(
                    functional.conv2d(y, state[f"{key}.{at + 1}.weight"]), f"{key}.{at + 2}"
                )
                x = x + y if x.shape == y.shape else y
                block += 1
        x = unit(x, f"features.{block}").mean([2, 3])
        x = functional.linear(x, state["classifier.1.weight"], state["classifier.1.bias"])
        state.all_taken()
        return x

    return run


def squeezenet(torch: ModuleType, tensors: Mapping[str, Tensor]) -> Network:
    """SqueezeNet 1.1 of weights (height, width, inputs, outputs),
    its first convolution padded behind.
    """
    functional = torch.nn.functional

    def run(x: Tensor) -> Tensor:
        state = State(tensors)

        def conv(x: Tensor, key: str, stride: int = 1, padding: int = 0) -> Tensor:
            return functional.conv2d(
                x, state[f"{key}.0"].permute(3, 2, 0, 1), state[f"{key}.1"], stride, padding
            )

        def fire(x: Tensor, number: int) -> Tensor:
            key = f"fire{number}"
            s = functional.relu(conv(x, f"{key}/squeeze1x1"))
            return functional.relu(
                torch.cat(
                    [conv(s, f"{key}/expand1x1"), conv(s, f"{key}/expand3x3", padding=1)], dim=1
                )
            )

        x = functional.relu(conv(functional.pad(x, (0, 1, 0, 1)), "conv1", stride=2))
        for number in range(2, 10):
            x = functional.max_pool2d(x, 3, 2) if number in (2, 4, 6) else x
            x = fire(x, number)
        x = conv(x, "conv10").mean([2, 3])
        state.all_taken()
        return x

    return run


def minilm(torch: ModuleType, tensors: Mapping[str, Tensor]) -> Network:
    """Six of PyTorch's own encoder layers, which normalize behind each sum,
    and the mean of all tokens.
    """
    state = State(tensors, ("position_ids", "pooler.dense.weight", "pooler.dense.bias"))
    layers = [_encoder_layer(torch, state, f"encoder.layer.{index}") for index in range(6)]
    words, places, kinds = (
        state[f"embeddings.{name}_embeddings.weight"] for name in ("word", "position", "token_type")
    )
    norm = state["embeddings.LayerNorm.weight"], state["embeddings.LayerNorm.bias"]
    state.all_taken()

    def run(ids: Tensor) -> Tensor:
        x = words[ids] + places[: ids.shape[1]] + kinds[0]
        x = torch.nn.functional.layer_norm(x, (384,), *norm, eps=1e-12)
        for layer in layers:
            x = layer(x)
        return torch.nn.functional.normalize(x.mean(dim=1), dim=1)

    return run


def _encoder_layer(torch: ModuleType, state: State, key: str) -> Network:
    layer = torch.nn.TransformerEncoderLayer(
        384, 12, 1536, dropout=0.0, activation="gelu", layer_norm_eps=1e-12, batch_first=True
    )
    roles, renamed = ("weight", "bias"), {}
    for role in roles:
        parts = [state[f"{key}.attention.self.{part}.{role}"] for part in ("query", "key", "value")]
        renamed[f"self_attn.in_proj_{role}"] = torch.cat(parts)
    for theirs, ours in (
        ("self_attn.out_proj", "attention.output.dense"),
        ("linear1", "intermediate.dense"),
        ("linear2", "output.dense"),
        ("norm1", "attention.output.LayerNorm"),
        ("norm2", "output.LayerNorm"),
    ):
        renamed |= {f"{theirs}.{role}": state[f"{key}.{ours}.{role}"] for role in roles}
    layer.load_state_dict(renamed)
    layer.eval()
    return layer  # type: ignore[no-any-return]


def resemblyzer(torch: ModuleType, tensors: Mapping[str, Tensor]) -> Network:
    """PyTorch's LSTM and linear layer, as ``resemblyzer/voice_encoder.py`` puts them together."""
    lstm, linear = torch.nn.LSTM(40, 256, 3, batch_first=True), torch.nn.Linear(256, 256)
    for name, module in (("lstm", lstm), ("linear", linear)):
        module.load_state_dict(
            {key.partition(".")[2]: t for key, t in tensors.items() if key.startswith(f"{name}.")}
        )

    def run(mel: Tensor) -> Tensor:
        _, (hidden, _) = lstm(mel)
        raw = torch.relu(linear(hidden[-1]))
        return raw / torch.norm(raw, dim=1, keepdim=True)

    return run


def g2p_words(
    torch: ModuleType, tensors: Mapping[str, Tensor]
) -> Callable[[list[int], int, int], list[int]]:
    """Letters, start token and end token → phonemes, one word at a time, by PyTorch's GRU cells
    (the greedy loop of ``g2p_en/g2p.py``).
    """
    steps = {part: g2p_step(torch, tensors, part) for part in ("enc", "dec")}

    def run(letters: list[int], start: int, end: int) -> list[int]:
        h, token, said = torch.zeros(1, 256), start, []
        for letter in letters:
            h = steps["enc"](torch.tensor([letter]), h)
        for _ in range(20):
            h = steps["dec"](torch.tensor([token]), h)
            token = int(torch.nn.functional.linear(h, tensors["fc_w"], tensors["fc_b"]).argmax())
            if token == end:
                break
            said.append(token)
        return said

    return run


def g2p_step(
    torch: ModuleType, tensors: Mapping[str, Tensor], part: str
) -> Callable[[Tensor, Tensor], Tensor]:
    """Tokens and states before → states behind, by PyTorch's GRU cell."""
    cell = torch.nn.GRUCell(256, 256)
    cell.load_state_dict(
        {
            f"{word}_{side}": tensors[f"{part}_{word[0]}_{side}"]
            for word in ("weight", "bias")
            for side in ("ih", "hh")
        }
    )
    return lambda tokens, h: cell(tensors[f"{part}_emb"][tokens], h)
