"""Whether a fault changes anything on given data: seen by running, never declared."""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from qbench.backends import Array, Backend, Feeds


def is_equivalent(
    healthy: tuple[Backend, ir.Model], faulty: tuple[Backend, ir.Model], feeds: Sequence[Feeds], *, twice: bool = True
) -> bool:
    """Whether two pairs of a backend and its graph give the same outputs for all ``feeds``, to the last bit.

    Args:
        healthy, faulty: what runs what. feeds: batches, in order.
        twice: run them all again, for faults that hold on to earlier results.

    Raises:
        QbenchError: one of the two does not run the graph, or a batch.
    """
    batches = [*feeds, *feeds[::-1]] if twice else list(feeds)
    with healthy[0].prepare(healthy[1]) as right, faulty[0].prepare(faulty[1]) as wrong:
        return all(_equal(right.run(batch), wrong.run(batch)) for batch in batches)


def _equal(ours: dict[str, Array], theirs: dict[str, Array]) -> bool:
    return ours.keys() == theirs.keys() and all(
        np.array_equal(ours[name], theirs[name], equal_nan=ours[name].dtype.kind == "f") for name in ours
    )
