"""Fitting block by block: the loss falls, only scales and biases change, and the written model
computes what was simulated.
"""

from types import ModuleType

import numpy as np
import pytest
from torch_digits import digits, simulated

from qbench.backends import get_backend
from qbench.errors import InputError
from qbench.extension import known_extensions
from qbench.graph import FitSettings, Fitter, fitter_catalogue
from qbench.passes import plannable
from qbench.quantization import fit_model, insert_qdq

pytestmark = pytest.mark.oracle


@pytest.fixture(autouse=True)
def _needs_torch(torch: ModuleType) -> None:
    """Every test here fits."""


def blocks() -> Fitter:
    return fitter_catalogue(known_extensions()).get("blocks")


@pytest.mark.parametrize("equalize", [False, True])
@pytest.mark.parametrize("schema", ["w4a4_sym_pt_pow2", "w4a4_asym_pt", "w4a4_asym_pc"])
def test_the_loss_is_no_larger_and_the_model_computes_what_was_simulated(
    schema: str, equalize: bool
) -> None:
    model, feeds, _ = digits(48)
    done = fit_model(model, feeds, schema, blocks(), FitSettings(), equalize=equalize)
    before, after = done.loss
    # what is equalized may be at its best already
    assert after < before or (equalize and after == before)
    if "pow2" in schema:
        for one in done.ranges.values:
            assert np.array_equal(np.log2(one[1].scale) % 1, np.zeros_like(one[1].scale))
        with get_backend("ort-cpu-noopt").prepare(insert_qdq(done.model, done.plan)) as executor:
            written = executor.run(feeds)
        for name, numbers in simulated(done, schema, feeds).items():
            assert np.array_equal(written[name], numbers)


def test_weights_stay_as_they_are() -> None:
    model, feeds, _ = digits()
    done = fit_model(model, feeds, "w4a4_sym_pt_pow2", blocks(), FitSettings())
    canonical = plannable(model)
    for slot in done.plan.constants:
        before, after = (
            one.graph.initializers[slot.value].const_value.numpy()
            for one in (canonical, done.model)
        )
        assert slot.role.value == "bias" or np.array_equal(before, after)


def test_two_runs_give_the_same() -> None:
    model, feeds, _ = digits()
    one, other = (
        fit_model(model, feeds, "w4a4_sym_pt_pow2", blocks(), FitSettings()) for _ in range(2)
    )
    assert (one.ranges, one.loss) == (other.ranges, other.loss)


def test_labels_are_refused() -> None:
    model, feeds, labels = digits(8)
    with pytest.raises(InputError) as caught:
        fit_model(model, feeds, "w8a8_sym_pt_pow2", blocks(), FitSettings(), labels=labels)
    assert caught.value.found == "labels"
