"""Other debuggers are asked about the very fault that was put in,
and their lists are read from the worst on.
"""

from pathlib import Path

import numpy as np
import pytest

from qbench.faults import Placed, edited, get_fault
from qbench.storage import Cache
from tests.faults.broken_digits import batches, make_grounds

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def benchmarks(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))


@pytest.fixture(scope="module")
def ground(tmp_path_factory):
    return make_grounds(Cache(tmp_path_factory.mktemp("cache")))[0]


def sick(ground, fault, site):
    from rival_ort import Sick

    right = ground.quantized
    (original,) = ground.shared.planned(ground.schema.canonical).values()
    return Sick(
        original=original,
        right=right,
        wrong=edited(right, Placed(fault=get_fault(fault), sites=(site,))),
    )


def test_a_place_is_that_of_the_first_entry_with_a_site():
    from rival_ort import place_of

    ranking = [{"a"}, {"b", "c"}, {"c"}]
    assert [place_of(ranking, sites) for sites in (("a",), ("c",), ("c", "a"), ("d",))] == [
        1,
        2,
        1,
        None,
    ]
    assert place_of([], ("a",)) is None


def test_onnxruntime_sees_a_dropped_bias_in_its_weights_first(ground):
    from rival_ort import ORT, ask_ort, place_of

    found = ask_ort(sick(ground, "bias-dropped", "conv2"), batches())
    assert tuple(found) == ORT
    assert place_of(found["ORT weight SQNR"], ("conv2",)) == 1
    # every value with a grid and the result without one, each blamed on what made it
    blamed = [set(one) for one in found["ORT xmodel_err"]]
    assert {"conv1"} in blamed
    assert {"dense2"} in blamed
    assert len(blamed) == 7


def test_a_limit_that_a_grid_took_over_is_no_noise_of_rounding(ground):
    from rival_ort import ORT, ask_ort

    # the second batch leaves the range of the input, which is a loss of its own
    found = ask_ort(sick(ground, "output-zero-point-off-by-one", "conv2"), batches()[:1])
    assert set(next(iter(found[ORT[1]]))) == {"conv2"}


def test_esp_ppq_gets_what_differs_and_nothing_else(ground):
    from rival_esp_ppq import job_of

    arrays = {}
    job = job_of(sick(ground, "bias-dropped", "conv2"), arrays)
    assert job == {"parameters": {"conv2.bias": "0"}, "ranges": {}}
    np.testing.assert_array_equal(arrays["0"], np.zeros(32, np.float32))


def test_esp_ppq_is_not_asked_what_it_cannot_say(ground):
    from rival_esp_ppq import job_of

    assert job_of(sick(ground, "output-zero-point-off-by-one", "conv2"), {}) is None
