"""Batches of the size that a graph of a fixed one takes, since its pieces take no other.

A batch that is too short is filled up with its last sample, which then counts as often as it stands there.
"""

import numpy as np
import onnx_ir as ir

from qbench.backends import Array, Feeds
from qbench.calibration import Rows
from qbench.graph import fixed_batch


def filled_up(model: ir.Model, feeds: Feeds) -> dict[str, Array]:
    """``feeds`` of as many samples as ``model`` takes: as they are where it takes any number, else the first of them.

    Args:
        model: the graph. feeds: its inputs by name, of one sample or more.
    """
    size = fixed_batch(model)
    if size is None:
        return dict(feeds)
    rows = Rows.of(model)
    count = rows.count(feeds)
    if count == size or not count:
        return dict(feeds)
    places = np.minimum(np.arange(size), count - 1)
    return {name: _taken(array, rows.inputs.get(name), places, count) for name, array in feeds.items()}


def _taken(array: Array, axis: int | None, places: Array, count: int) -> Array:
    if axis is None or array.ndim <= axis or array.shape[axis] != count:
        return array
    return np.ascontiguousarray(np.take(array, places, axis=axis))
