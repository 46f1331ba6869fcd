"""Random small networks, written as no tool should: every pass that declares exact leaves every
output bit of them.
"""

import numpy as np
import pytest
from operator_cases.graphs import RandomGraph

from qbench.graph import graph_digest
from qbench.passes import (
    EffectKind,
    Pass,
    Pipeline,
    Policy,
    catalogue,
    run_pipeline,
    standard_pipeline,
)
from qbench.passes.effect_check.verdicts import running

_ALL = [catalogue().get(name) for name in catalogue().names()]
EXACT = [one for one in _ALL if one.effect.kind is EffectKind.EXACT]
STANDARD = "standard pipeline"


def differing(seed: int, passes: list[Pass]) -> list[str]:
    """The passes, of these and the standard pipeline, that move an output of the graph of
    ``seed``, and where.
    """
    graph = RandomGraph(seed, untidy=True)
    pipelines = {one.name: Pipeline((one,)) for one in passes} | {
        STANDARD: standard_pipeline(Policy.EXACT)
    }
    unchanged, before, found = graph_digest(graph.model), {}, []
    for name, pipeline in pipelines.items():
        after = run_pipeline(graph.model, pipeline).model
        if graph_digest(after) == unchanged:
            continue
        machines = {machine for one in pipeline.passes for machine in one.effect.arithmetics}
        for machine in sorted(machines):
            if machine not in before:
                before[machine] = running(graph.model, machine)(graph.feeds)
            outputs = running(after, machine)(graph.feeds)
            found += [
                f"{name} ({machine}): {key}"
                for key, array in before[machine].items()
                if np.asarray(outputs[key]).tobytes() != np.asarray(array).tobytes()
            ]
    return found


@pytest.mark.slow
def test_exact_passes_leave_every_bit_of_a_few_networks() -> None:
    assert not {seed: found for seed in (1, 49, 234) if (found := differing(seed, EXACT))}


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_exact_passes_leave_every_bit_of_random_networks(part: int) -> None:
    seeds = range(30 * part, 30 * part + 30)
    assert not {seed: found for seed in seeds if (found := differing(seed, EXACT))}
