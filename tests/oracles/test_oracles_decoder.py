"""The decoder that was trained here gives the perplexity that it has in PyTorch, to 10⁻⁵."""

from types import ModuleType

import numpy as np
import pytest

from qbench.backends import get_backend
from qbench.metrics import TokenStreams
from qbench.storage import Cache
from qbench.subjects import get_dataset, get_model, prepare_samples
from qbench_zoo.gloss_decoder import read_weights
from qbench_zoo.networks.decoder import DecoderSize

pytestmark = pytest.mark.oracle


def test_perplexity_is_that_of_torch(torch: ModuleType) -> None:
    from qbench_zoo.training.decoder import torch_logits

    model, data = get_model("gloss_decoder"), get_dataset("gloss_windows")
    samples = prepare_samples(data, model.preprocess, Cache.default()).picked(range(32))
    with get_backend("ort-cpu").prepare(model.graphs["model"]()) as executor:
        streams = model.task.answer({"model": executor}, samples)
    assert isinstance(streams, TokenStreams)
    tensors = {name: torch.tensor(array) for name, array in read_weights()[1].items()}
    surprises = []
    for feeds in samples.batches():
        window = torch.tensor(feeds["input_ids"])
        with torch.no_grad():
            logits = torch_logits(tensors, window[:, :-1], DecoderSize()).double()
        shares = torch.log_softmax(logits, dim=2)
        came = shares.gather(2, window[:, 1:, None])[:, 128:, 0]
        surprises.append(-came.numpy())
    expected = np.exp(np.concatenate(surprises).mean())
    assert abs(np.exp(-streams.realised.mean()) / expected - 1) <= 1e-5
