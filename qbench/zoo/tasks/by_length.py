"""Sequences of one length run together, so that no graph sees padding and none needs a mask.

feeds x (n, T), x_length (n,)  →  batches of one length t, x (m, t), with the places of their samples
"""

from collections.abc import Iterator, Mapping

import numpy as np

from qbench.zoo.samples import BATCH, Samples
from qbench.zoo.tasks.reading import Array


def batches_by_length(
    samples: Samples, sequence: str, length: str, batch: int = BATCH
) -> Iterator[tuple[list[int], Array]]:
    """Places of the samples of a batch, and what stands in ``sequence`` there without padding, shortest first.

    Args:
        sequence, length: feeds of ``samples``: (n, T) and how many of the T count. batch: samples in one run at most.
    """
    feeds = _together(samples, sequence, length)
    lengths = feeds[length].reshape(-1)
    for one in np.unique(lengths):
        places = np.flatnonzero(lengths == one)
        for start in range(0, len(places), batch):
            chosen = places[start : start + batch]
            yield chosen.tolist(), feeds[sequence][chosen, : int(one)]


def _together(samples: Samples, *names: str) -> Mapping[str, Array]:
    parts = [{name: feeds[name] for name in names} for feeds in samples.batches()]
    return {name: np.concatenate([part[name] for part in parts]) for name in names}
