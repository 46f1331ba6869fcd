"""A faulty backend is a backend: named apart, wrong in pieces too;
passes and profiles are wrong likewise.
"""

import numpy as np
import pytest

from qbench.backends import get_backend
from qbench.diagnosis.target import watches_itself
from qbench.diagnosis.units import quantized_units
from qbench.errors import InputError, UnsupportedError
from qbench.faults import (
    FaultyWork,
    Placed,
    WrongPass,
    edited,
    get_fault,
    is_equivalent,
    with_fault,
    wrong_rewriting,
)
from qbench.graph import check_convention, node_qparams
from qbench.passes import Pipeline, run_pipeline
from qbench.storage import Cache
from tests.faults.broken_digits import MACHINE, batches, make_grounds


@pytest.fixture(scope="module")
def ground(tmp_path_factory):
    return make_grounds(Cache(tmp_path_factory.mktemp("cache")))[0]


def placed(name, site="conv2", seed=0):
    return Placed(fault=get_fault(name), sites=(site,), seed=seed)


def test_a_faulty_backend_is_not_taken_for_the_healthy_one():
    broken = with_fault(MACHINE, placed("bias-dropped"))
    assert broken.name == "integer-ort-x64!bias-dropped@conv2"
    assert broken.capabilities == MACHINE.capabilities
    assert broken.digests["arithmetic"] == MACHINE.digests["arithmetic"]
    assert broken.digests != with_fault(MACHINE, placed("bias-dropped", seed=1)).digests
    assert watches_itself(broken)
    assert not watches_itself(with_fault(get_backend("ort-cpu"), placed("bias-dropped")))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bias-dropped", "last-rows-skipped", "truncated"])
def test_a_piece_with_the_site_is_faulty_and_others_are_not(ground, name):
    healthy = ground.healthy[0]
    broken = with_fault(MACHINE, placed(name))
    for unit in quantized_units(ground.quantized):
        feeds = {feed: healthy.get(feed, batches()[0].get(feed)) for feed in unit.feeds}
        same = is_equivalent((MACHINE, unit.graph), (broken, unit.graph), [feeds])
        assert same == (unit.node != "conv2"), unit.node


def test_an_edit_goes_into_a_real_engine(ground):
    engine = get_backend("ort-cpu-noopt")
    broken = with_fault(engine, placed("bias-dropped"))
    assert not is_equivalent((engine, ground.quantized), (broken, ground.quantized), batches())


def test_a_kernel_fault_has_no_place_in_a_real_engine():
    with pytest.raises(UnsupportedError, match="last-rows-skipped"):
        with_fault(get_backend("ort-cpu"), placed("last-rows-skipped"))
    with pytest.raises(UnsupportedError, match="stale-calibration"):
        with_fault(MACHINE, placed("stale-calibration"))


def test_an_unknown_fault_names_the_nearest():
    with pytest.raises(InputError, match="bias-dropped"):
        get_fault("bias-droped")


def test_what_is_around_a_faulty_kernel_sees_its_result(ground):
    seen = {}

    def around(node, run):
        def watched(inputs):
            seen[node.name] = run(inputs)
            return seen[node.name]

        return watched

    broken = with_fault(MACHINE, placed("last-rows-skipped")).surrounded(around)
    with broken.prepare(ground.quantized) as executor:
        executor.run(batches()[0])
    assert not seen["conv2"][0][:, :, -1].any()


def test_a_fault_that_changes_nothing_is_equivalent_by_data(ground):
    broken = with_fault(MACHINE, placed("result-of-previous-run"))
    one, other = batches()
    pair = (MACHINE, ground.quantized), (broken, ground.quantized)
    assert is_equivalent(*pair, [one])
    assert not is_equivalent(*pair, [one, other])


def test_a_race_gives_another_result_to_the_same_input(ground):
    with with_fault(MACHINE, placed("thread-race")).prepare(
        ground.quantized, taps=["relu2_quantized"]
    ) as executor:
        one, other = (executor.run(batches()[0])["relu2_quantized"] for _ in range(2))
    assert np.count_nonzero(one != other) in {1, 2}


def test_a_wrong_pass_claims_to_be_exact_and_settles(ground):
    rewriting = wrong_rewriting(placed("bias-doubled"))
    done = run_pipeline(ground.quantized, rewriting.pipeline, rewriting.policy)
    assert [account.changed for account in done.accounts] == [True]
    assert check_convention(done.model) == ()
    assert not is_equivalent((MACHINE, ground.quantized), (MACHINE, done.model), batches())
    by_hand = edited(ground.quantized, placed("bias-doubled"))
    assert is_equivalent((MACHINE, by_hand), (MACHINE, done.model), batches())


def test_two_wrong_passes_at_one_operator_settle(ground):
    passes = (
        WrongPass("bias-doubled", ("conv2",)),
        WrongPass("weight-transposed", ("conv2",), name="another"),
    )
    done = run_pipeline(ground.quantized, Pipeline(passes))
    assert [account.rounds for account in done.accounts] == [1, 1]


@pytest.mark.parametrize(
    "name",
    [
        "stale-calibration",
        "calibrated-on-one-sample",
        "only-last-chunk-counts",
        "nan-swallowed",
        "range-of-another-value",
        "calibrated-unnormalized",
        "outlier-in-calibration",
    ],
)
def test_a_calibration_fault_moves_the_grid_of_its_operator_alone(ground, name):
    shared = FaultyWork.of(ground.shared, placed(name))
    wrong = shared.quantized(ground.schema, MACHINE.capabilities).models["model"]
    found = moved(ground.quantized, wrong)
    assert "relu2_quantized" in found
    assert found.isdisjoint({"x_quantized", "relu1_quantized", "relu_dense1_quantized"})
    assert shared.profiles() is shared.profiles()


def moved(right, wrong):
    """The quantizers whose grids differ."""
    grids = [
        {n.outputs[0].name: node_qparams(n) for n in m.graph if n.op_type == "QuantizeLinear"}
        for m in (right, wrong)
    ]
    return {
        name
        for name, grid in grids[0].items()
        if (grid.scale, grid.zero_point) != (grids[1][name].scale, grids[1][name].zero_point)
    }


def test_a_fault_of_another_stage_is_refused(ground):
    with pytest.raises(UnsupportedError, match="bias-dropped"):
        FaultyWork.of(ground.shared, placed("bias-dropped"))
    with pytest.raises(UnsupportedError, match="truncated"):
        wrong_rewriting(placed("truncated"))
