"""Digits with their labels, and what a fitted network simulates of them, for tests of fitting."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.quantization import FittedModel, fit_task, get_schema
from qbench.storage import Cache
from qbench.subjects import get_dataset, get_model, prepare_samples

Array = npt.NDArray[Any]


def digits(count: int = 24) -> tuple[ir.Model, dict[str, Array], Array]:
    network = get_model("digits_cnn")
    data = get_dataset("digits_train").take(count)
    samples = prepare_samples(data, network.preprocess, Cache.default())
    batches = list(samples.batches())
    feeds = {name: np.concatenate([one[name] for one in batches]) for name in batches[0]}
    labels = np.array([np.ravel(one)[0] for one in samples.whole_labels or ()])
    return network.graphs["model"](), feeds, labels


def simulated(done: FittedModel, schema: str, feeds: Mapping[str, Array]) -> dict[str, Array]:
    import torch

    from qbench_engines.torch_simulation import Simulation

    chosen = get_schema(schema).with_ranges(done.ranges)
    with torch.no_grad():
        found = Simulation(fit_task(done.model, done.plan, chosen)).run(feeds)
    return {name: one.numpy() for name, one in found.items()}
