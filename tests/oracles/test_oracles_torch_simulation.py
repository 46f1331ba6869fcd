"""What training simulates is what the written model computes: the same codes, operator by operator
and on whole networks, with scales of powers of two, whose float sums are exact.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import pytest
from float_operators import CASES, Case, feeds_of, model_of

from qbench.backends import get_backend
from qbench.calibration import calibrate
from qbench.passes import plannable
from qbench.quantization import GraphOutputs, fit_task, get_schema, insert_qdq, make_plan
from qbench.storage import Cache
from qbench.subjects import get_dataset, get_model, prepare_samples

pytestmark = pytest.mark.oracle

Array = npt.NDArray[Any]
ERROR = 2e-5
"""Of the largest result: float32 sums in another order."""
MOVERS = {"DepthToSpace", "Flatten", "Gather", "GlobalMaxPool", "Identity", "MaxPool", "Pad"}
MOVERS |= {"ReduceMax", "ReduceMin", "Reshape", "Resize", "Slice", "Split", "Squeeze"}
MOVERS |= {"Transpose", "Unsqueeze"}
IN_FLOAT = {"Abs", "Div", "Erf", "Exp", "Log", "Neg", "Pow", "Reciprocal", "ReduceSum", "Sqrt"}
"""What a plan leaves in float where no product is on both sides, movers too: no codes."""
POW2 = replace(get_schema("w8a8_sym_pt_pow2"), outputs=GraphOutputs.QUANTIZED)


@pytest.fixture(autouse=True)
def _one_thread(torch: ModuleType) -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def both(
    torch: ModuleType, model: ir.Model, feeds: Mapping[str, Array], schema: Any, backend: str
) -> list[tuple[Array, Array]]:
    """(the written model's, the simulation's) of every output that leaves the graph as codes."""
    from qbench_engines.torch_simulation import Simulation

    canonical = plannable(model, schema.canonical)
    plan = make_plan(canonical, calibrate(canonical, [feeds]), schema)
    with get_backend(backend).prepare(insert_qdq(canonical, plan)) as executor:
        written = executor.run(feeds)
    with torch.no_grad():
        simulated = Simulation(fit_task(canonical, plan, schema)).run(feeds)
    coded = [name for name in written if name in plan.quantized_outputs]
    for name in written.keys() - set(coded):  # computed in float: there are no codes
        error = np.abs(written[name] - simulated[name].numpy()).max()
        assert error <= ERROR * max(np.abs(written[name]).max(), 1.0)
    return [(written[name], simulated[name].numpy()) for name in coded]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_written_operator_has_the_codes_of_the_simulation(
    torch: ModuleType, case: Case
) -> None:
    pairs = both(torch, model_of(case), feeds_of(case), POW2, "ort-cpu-noopt")
    assert pairs or case.operator in MOVERS | IN_FLOAT or "alpha" in case.attributes
    for written, simulated in pairs:
        assert np.array_equal(written, simulated)


@pytest.mark.parametrize("backend", ["ort-cpu-noopt", "onnx-reference", "integer-ort-x64"])
@pytest.mark.parametrize(
    ("name", "data"), [("digits_cnn", "digits_test"), ("fashion_mobile", "fashion_test")]
)
def test_the_written_network_has_the_numbers_of_the_simulation(
    torch: ModuleType, name: str, data: str, backend: str
) -> None:
    network = get_model(name)
    samples = prepare_samples(get_dataset(data).take(6), network.preprocess, Cache.default())
    feeds = next(iter(samples.batches()))
    pairs = both(torch, network.graphs["model"](), feeds, POW2, backend)
    assert pairs
    for written, simulated in pairs:
        assert np.array_equal(written, simulated)
