"""Random small networks, counted here and by ONNX Runtime under three kinds of session."""

import numpy as np
import pytest
from operator_cases.graphs import Array, RandomGraph

from qbench.backends import get_backend

FLOATS = 1e-5
"""Of the largest output: what float operators behind the last quantizer may differ by."""


def differing(engine: str, ours: str, seeds: range) -> dict[int, list[str]]:
    """Seed → operators of the graphs whose outputs differ."""
    found = {}
    for seed in seeds:
        graph = RandomGraph(seed)
        wanted, counted = (run(name, graph) for name in (engine, ours))
        if any(_apart(counted[name], array) for name, array in wanted.items()):
            found[seed] = [step.operator for step in graph.steps]
    return found


def run(backend: str, graph: RandomGraph) -> dict[str, Array]:
    with get_backend(backend).prepare(graph.model) as executor:
        return executor.run(graph.feeds)


def _apart(one: Array, other: Array) -> bool:
    return bool(np.abs(one - other).max(initial=0) > FLOATS * np.abs(other).max(initial=0))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(6))
def test_networks_count_as_precise_sessions_do(part: int) -> None:
    assert not differing("ort-cpu-precise", "integer-ort-x64", range(100 * part, 100 * part + 100))
