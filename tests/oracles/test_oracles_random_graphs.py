"""A few random graphs on every engine, code by code;
``benchmarks/random_graphs.py`` runs a thousand.
"""

import pytest
from operator_cases.families import FAMILIES, compared, drawn

from qbench.backends import arithmetic_of, get_backend
from qbench.errors import UnsupportedError

pytestmark = pytest.mark.oracle
SEEDS = range(9_000_000, 9_000_014)
PACKAGES = {
    "openvino": "openvino",
    "litert": "ai_edge_litert",
    "torch": "torch",
    "ort": "onnxruntime",
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("engine", FAMILIES)
def test_random_graphs_count_as_their_arithmetic_does(engine: str, threads: int) -> None:
    pytest.importorskip(PACKAGES[engine.partition("-")[0]])
    backend = get_backend(engine)
    arithmetic = arithmetic_of(backend)
    if arithmetic is None:
        pytest.skip("no arithmetic is declared for this processor")
    counted = {}
    for seed in SEEDS:
        case = drawn(engine, seed)
        try:
            with backend.prepare(case.model, threads=threads) as executor:
                theirs = executor.run(case.feeds)
        except UnsupportedError:
            continue
        with get_backend(f"integer-{arithmetic.name}").prepare(case.model) as executor:
            counted[seed] = compared(theirs, executor.run(case.feeds), case.steps)
    assert len(counted) >= 8
    assert sum(one["shapes"] for one in counted.values()) == 0
    assert {seed: one["differ"] for seed, one in counted.items() if one["differ"]} == {}
