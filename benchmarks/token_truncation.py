"""Measure how closely the k best log-probabilities of a token bound its divergence, on a
decoder with 50,363 tokens.

    python benchmarks/token_truncation.py [--samples N] [--schema S]

Whisper tiny.en hears N prompts; its float decoder writes greedily, and the same tokens are fed to
the decoder with quantized weights. Of every token both whole distributions are known, hence the
exact divergence; the bounds see the k best of each, and the floor of the quantized one.
"""

import argparse
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.backends import get_backend
from qbench.metrics.token_streams import TokenStreams, kl_bounds
from qbench.passes import DEFAULT, plannable
from qbench.quantization import get_schema, insert_qdq, make_plan
from qbench.storage import Cache
from qbench.subjects import dataset_catalogue, prepare_samples
from qbench_zoo.whisper import whisper_tiny_en

WIDTHS = (1, 5, 10, 20, 50, 100, 1000)
Array = npt.NDArray[Any]


class Kept:
    """A decoder that feeds ``others`` the tokens that the task feeds it,
    and keeps the logits of all.
    """

    def __init__(self, own: Any, other: Any) -> None:  # noqa: ANN401 - executors
        self.own, self.other = own, other
        self.logits: list[tuple[Array, Array]] = []
        self._memory: dict[str, Array] = {}

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """One step of both; each remembers its own past."""
        past = {name: array for name, array in feeds.items() if name.startswith(("key_", "value_"))}
        starts = all(array.size == 0 for array in past.values())
        mine: dict[str, Array] = self.own.run(feeds)
        theirs = self.other.run({**feeds, **({} if starts else self._memory)})
        self._memory = {
            name.removeprefix("next_"): theirs[name] for name in theirs if name.startswith("next_")
        }
        self.logits.append((mine["logits"], theirs["logits"]))
        return mine


def log_shares(rows: Array) -> Array:
    """Logits (n, tokens) as log-probabilities."""
    wide = rows.astype(np.float64)
    wide -= wide.max(axis=1, keepdims=True)
    found: Array = wide - np.log(np.exp(wide).sum(axis=1, keepdims=True))
    return found


def streams(logs: Array, width: int) -> TokenStreams:
    """The ``width`` best tokens of every row."""
    top = np.argpartition(-logs, width - 1, axis=1)[:, :width]
    return TokenStreams(
        lengths=np.array([len(logs)], np.int64),
        realised=logs.max(axis=1),
        top=top.astype(np.int64),
        logprobs=np.take_along_axis(logs, top, axis=1),
        floor=logs.min(axis=1),
    )


def quantized(model: ir.Model, schema: str) -> ir.Model:
    """``model`` under a schema of weights alone."""
    ready = plannable(model, DEFAULT)
    found: ir.Model = insert_qdq(ready, make_plan(ready, None, get_schema(schema)))
    return found


def main() -> None:
    """Print a table: k, what it lists of the mass, and both bounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--schema", default="w4_sym_b32")
    parser.add_argument("--data", default="speech_prompts")
    arguments = parser.parse_args()
    network = whisper_tiny_en()
    from qbench.extension import known_extensions

    data = dataset_catalogue(known_extensions()).get(arguments.data).take(arguments.samples)
    samples = prepare_samples(data, network.preprocess, Cache.default())
    backend = get_backend("ort-cpu")
    graphs = {name: load() for name, load in network.graphs.items()}
    encoder, decoder = network.task.graphs
    with (
        backend.prepare(graphs[encoder]) as hears,
        backend.prepare(graphs[decoder]) as writes,
        backend.prepare(quantized(graphs[decoder], arguments.schema)) as other,
    ):
        kept = Kept(writes, other)
        # one sample a batch: no row waits for others, so that every row of logits is of a token
        for feeds in samples.batches(1):
            lone = _Lone(feeds, samples)
            network.task.answer({encoder: hears, decoder: kept}, lone)
    p, q = (log_shares(np.concatenate([pair[side] for pair in kept.logits])) for side in (0, 1))
    exact = (np.exp(p) * (p - q)).sum(axis=1)
    print(f"{len(p)} tokens of {p.shape[1]}, {arguments.schema}: exact KL {exact.mean():.6f} nats")
    print(
        "| k | mass outside | at least | at most | at most, without floor |\n|---|---|---|---|---|"
    )
    for width in WIDTHS:
        ours, theirs = streams(q, width), streams(p, width)
        low, high = kl_bounds(theirs, ours)
        assert (low <= exact + 1e-9).all()
        assert (exact <= high + 1e-9).all()
        outside = 1 - np.exp(theirs.logprobs).sum(axis=1).mean()
        bare = TokenStreams(
            ours.lengths, ours.realised, ours.top, ours.logprobs, np.full(len(q), -math.inf)
        )
        open_ = kl_bounds(theirs, bare)[1].mean()
        print(
            f"| {width} | {outside:.2g} | {low.mean():.6f} | {high.mean():.6f} | {open_:.3g} |",
            flush=True,
        )


class _Lone:
    """One batch as samples, for a task."""

    def __init__(self, feeds: Mapping[str, Array], whole: Any) -> None:  # noqa: ANN401 - samples
        self.data, self.ids, self.labels, self.classes = whole.data, ("one",), None, None
        self._feeds = dict(feeds)

    def batches(self, size: int = 1) -> Any:  # noqa: ANN401, ARG002 - as of samples
        """The batch."""
        yield self._feeds


if __name__ == "__main__":
    main()
