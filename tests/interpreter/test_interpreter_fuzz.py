"""Random small networks, counted here and by ONNX Runtime under three kinds of session."""

import numpy as np
import pytest
from operator_cases.graphs import Array, RandomGraph

from qbench.backends import get_backend
from qbench.host import DotProduct, probe_dot_product

FLOATS = 1e-5
"""Of the largest output: what float operators behind the last quantizer may differ by."""


def differing(engine: str, ours: str, seeds: range) -> dict[int, list[str]]:
    """Seed → operators of the graphs whose outputs differ."""
    found = {}
    for seed in seeds:
        graph = RandomGraph(seed)
        wanted, counted = (run(name, graph) for name in (engine, ours))
        if any(_apart(counted[name], array) for name, array in wanted.items()):
            found[seed] = [f"{step.operator} {step.clip}".strip() for step in graph.steps]
    return found


def run(backend: str, graph: RandomGraph) -> dict[str, Array]:
    with get_backend(backend).prepare(graph.model) as executor:
        return executor.run(graph.feeds)


def _apart(one: Array, other: Array) -> bool:
    return bool(np.abs(one - other).max(initial=0) > FLOATS * np.abs(other).max(initial=0))


SATURATING = probe_dot_product() is DotProduct.SATURATING


@pytest.mark.slow
@pytest.mark.parametrize("part", range(6))
def test_networks_count_as_precise_sessions_do(part: int) -> None:
    assert not differing("ort-cpu-precise", "integer-ort-x64", range(100 * part, 100 * part + 100))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(6))
def test_networks_count_as_optimized_sessions_do_on_this_processor(part: int) -> None:
    """But for a Conv and a Clip at whose ends the grid does not end: the engine leaves these in
    float, unsaturated.
    """
    ours = "integer-ort-x64-avx2" if SATURATING else "integer-ort-x64"
    found = differing("ort-cpu", ours, range(100 * part, 100 * part + 100))
    assert all("Conv Clip" in steps for steps in found.values()), found
    assert len(found) <= 3


@pytest.mark.slow
@pytest.mark.parametrize("part", range(6))
def test_networks_count_exactly_what_sessions_without_optimizations_count_in_floats(
    part: int,
) -> None:
    """But for ties, which floats do not have: among them those of products with a number,
    sums and quotients.
    """
    found = differing("ort-cpu-noopt", "integer-ideal", range(100 * part, 100 * part + 100))
    assert len(found) <= 3, found
