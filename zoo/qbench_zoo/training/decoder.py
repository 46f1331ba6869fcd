"""Trains ``gloss_decoder`` in four minutes: ``python -m qbench_zoo.training.decoder OUT.npz``.

Needs torch (``pip install torch==2.13.0``; the extra ``oracle``). The pairs of the vocabulary are
those of the training documents. Cross entropy of the next token over windows of 256, AdamW, a rate
that rises for a tenth of the steps and falls to nothing by a cosine. One thread and a seed: the
same machine gives the same bytes, another one sums in another order, which is why the file is
committed and its digest checked.
"""

import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from qbench_zoo.byte_pairs import learn_merges
from qbench_zoo.gloss_texts import documents, training_documents
from qbench_zoo.networks.decoder import DecoderSize, parameter_shapes

SEED, STEPS, WINDOWS, RATE, DECAY = 7, 700, 8, 3e-3, 0.05
_SHOWN = 50
_RISING = 0.1

Tensors = Mapping[str, Any]


def torch_logits(tensors: Tensors, tokens: Any, size: DecoderSize) -> Any:  # noqa: ANN401 - tensors
    """The decoder by torch: ``tokens`` (N, T) → logits (N, T, words)."""
    depth = size.width // size.heads
    x = tensors["words"][tokens] + tensors["places"][: tokens.shape[1]]
    for layer in range(size.layers):
        normal = _normal(tensors, x, f"{layer}.attention.norm")
        query, key, value = (
            functional.linear(
                normal, tensors[f"{layer}.{role}.weight"], tensors[f"{layer}.{role}.bias"]
            )
            .unflatten(2, (-1, depth))
            .transpose(1, 2)
            for role in ("query", "key", "value")
        )
        key, value = (
            part.repeat_interleave(size.heads // size.kept_heads, dim=1) for part in (key, value)
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        mixed = mixed.transpose(1, 2).flatten(2)
        x = x + functional.linear(
            mixed, tensors[f"{layer}.mixed.weight"], tensors[f"{layer}.mixed.bias"]
        )
        normal = _normal(tensors, x, f"{layer}.wide.norm")
        wide = functional.gelu(
            functional.linear(
                normal, tensors[f"{layer}.wide.weight"], tensors[f"{layer}.wide.bias"]
            )
        )
        x = x + functional.linear(
            wide, tensors[f"{layer}.narrow.weight"], tensors[f"{layer}.narrow.bias"]
        )
    return _normal(tensors, x, "last.norm") @ tensors["words"].T


def _normal(tensors: Tensors, x: Any, name: str) -> Any:  # noqa: ANN401 - tensors
    scale, shift = tensors[f"{name}.scale"], tensors[f"{name}.shift"]
    return functional.layer_norm(x, x.shape[-1:], scale, shift, 1e-5)


def first_arrays(size: DecoderSize, generator: Any) -> dict[str, Any]:  # noqa: ANN401 - of torch
    """The parameters before the first step: normal numbers of deviation 0.02, those that write into
    the sum less by the root of their number, as in GPT-2.
    """
    found = {}
    for name, shape in parameter_shapes(size).items():
        if name.endswith(".scale"):
            tensor = torch.ones(shape)
        elif name.endswith((".bias", ".shift")):
            tensor = torch.zeros(shape)
        else:
            writes = name.endswith(("mixed.weight", "narrow.weight"))
            deviation = 0.02 / math.sqrt(2 * size.layers) if writes else 0.02
            tensor = torch.randn(shape, generator=generator) * deviation
        found[name] = tensor.requires_grad_()
    return found


def train(tokens: npt.NDArray[np.int64], size: DecoderSize) -> dict[str, npt.NDArray[np.float32]]:
    """The parameters after ``STEPS`` steps over windows of ``tokens``, drawn at random."""
    generator = torch.Generator().manual_seed(SEED)
    text = torch.from_numpy(tokens)
    tensors = first_arrays(size, generator)
    decayed = [tensor for tensor in tensors.values() if tensor.dim() > 1]
    others = [tensor for tensor in tensors.values() if tensor.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}],
        lr=RATE,
        betas=(0.9, 0.98),
    )
    span = torch.arange(size.places + 1)
    for step in range(STEPS):
        rising = (step + 1) / (_RISING * STEPS)
        falling = 0.5 * (1 + math.cos(math.pi * step / STEPS))
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(rising, 1.0) * falling
        starts = torch.randint(len(text) - size.places - 1, (WINDOWS, 1), generator=generator)
        window = text[starts + span]
        logits = torch_logits(tensors, window[:, :-1], size)
        loss = functional.cross_entropy(logits.flatten(0, 1), window[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(tensors.values()), 1.0)
        optimizer.step()
        if step % _SHOWN == 0 or step + 1 == STEPS:
            print(f"step {step}: {float(loss.detach()):.3f} nats", flush=True)  # noqa: T201 - a script
    return {name: tensor.detach().numpy() for name, tensor in tensors.items()}


def main(out: Path) -> None:
    """Write the vocabulary and the parameters to ``out``."""
    torch.set_num_threads(1)
    size = DecoderSize()
    texts = [documents()[number] for number in training_documents()]
    pairs = learn_merges(texts, size.words - 256)
    tokens = np.array([token for text in texts for token in pairs.encode(text)], np.int64)
    print(f"{len(tokens):,} tokens of {sum(map(len, texts)):,} characters", flush=True)  # noqa: T201
    arrays = train(tokens, size)
    stored: dict[str, Any] = {"merges": np.array(pairs.merges, np.uint16), **arrays}
    np.savez_compressed(out, **stored)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
