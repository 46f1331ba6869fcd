"""Trained networks, counted here and by ONNX Runtime: every logit equal, as docs/arithmetics.md says."""

import numpy as np
import pytest

from qbench.backends import get_backend
from qbench.calibration import calibrate
from qbench.host import processor_features
from qbench.quantization import make_plan, quantize_model
from qbench.storage import Cache
from qbench.zoo import get_dataset, get_model, prepare_samples

SATURATES = not any("vnni" in feature for feature in processor_features())


@pytest.mark.slow
@pytest.mark.parametrize("schema", ["w8a8_asym_pc", "w8a8_asym_pt"])
@pytest.mark.parametrize("name", ["mobilenet_v2", "efficientnet_lite0"])
def test_every_logit_is_the_engines(name: str, schema: str) -> None:
    subject = get_model(name)
    samples = prepare_samples(get_dataset("photo_crops_128").take(16), subject.preprocess, Cache.default())
    feeds = next(samples.batches())
    feeds = {key: array[:8] for key, array in feeds.items()}
    (load,) = subject.graphs.values()
    model = load()
    quantized = quantize_model(model, make_plan(model, calibrate(model, [feeds]), schema))
    pairs = {"ort-cpu-precise": "ort-x64", "ort-cpu": "ort-x64-avx2" if SATURATES else "ort-x64"}
    for engine, machine in pairs.items():
        theirs, ours = (
            next(iter(get_backend(runner).prepare(quantized).run(feeds).values()))
            for runner in (engine, f"integer-{machine}")
        )
        assert theirs.size == 8000
        np.testing.assert_array_equal(ours, theirs)
