"""The order of trials: every kind once before any twice, all models and backends soon."""

from qbench.faults.remedies import nice_above, nice_below
from qbench.faults.trial_order import slots_of
from qbench.judging import Cell
from qbench.suite import Shard

CELLS = [Cell("s", f"m{m}", f"b{b}", f"w{w}") for m in range(4) for b in range(3) for w in range(5)]
KINDS = [f"k{k}" for k in range(12)]


def slots(cells=CELLS, seed=0, places=1):
    return slots_of(cells, dict.fromkeys(KINDS, lambda _: True), seed=seed, places=places)


def test_the_first_round_reaches_every_model_and_backend():
    first = [several[0].cell for several in slots().values()]
    assert {one.model for one in first} == {f"m{m}" for m in range(4)}
    assert {one.backend for one in first} == {f"b{b}" for b in range(3)}
    # each kind has been on all models after four trials, on all their backends after twelve
    for several in slots().values():
        assert len({one.cell.model for one in several[:4]}) == 4
        assert len({(one.cell.model, one.cell.backend) for one in several[:12]}) == 12


def test_few_cells_are_measured_without_a_fault_for_the_first_rounds():
    early = {one.cell for several in slots().values() for one in several[:12]}
    assert len(early) == 12  # one schema of each backend of each model


def test_each_cell_and_place_comes_once_and_further_places_later():
    for several in slots(places=2).values():
        assert len(set(several)) == len(several) == 2 * len(CELLS)
        assert {one.cell for one in several[: len(CELLS)]} == set(CELLS)
        assert [one.place for one in several] == [0] * len(CELLS) + [1] * len(CELLS)


def test_the_seed_alone_decides():
    assert slots() == slots()
    assert slots(seed=1) != slots()
    slot = slots()["k0"][0]
    assert slot.drawn_by(0) != slot.drawn_by(1)
    assert len({one.drawn_by(0) for one in slots()["k0"]}) == len(CELLS)


def test_kinds_that_no_backend_can_have_are_left_out():
    found = slots_of(
        CELLS,
        {"a": lambda cell: cell.backend == "b1", "b": lambda _: False},
        seed=0,
        places=1,
    )
    assert list(found) == ["a"]
    assert {one.cell.backend for one in found["a"]} == {"b1"}


def test_shares_divide_all_trials():
    every = {one.identity for several in slots(places=2).values() for one in several}
    shares = [{one for one in every if Shard(i, 5).holds(one)} for i in range(1, 6)]
    assert set.union(*shares) == every
    assert sum(map(len, shares)) == len(every)
    assert all(0.8 < 5 * len(share) / len(every) < 1.2 for share in shares)


def test_proposed_numbers_have_few_digits_and_lie_between():
    assert nice_below(0.128, 0.0) == 0.1
    assert nice_below(0.1, 0.0) == 0.09  # as large as the loss would let it through
    assert nice_below(0.1284, 0.1279) == 0.128
    assert nice_below(0.5, 0.5) is None
    assert nice_above(0.975, 1.0) == 0.98
    assert nice_above(0.98, 0.9821) == 0.981
    assert nice_above(38.2, 44.0) == 39
    assert nice_above(0.5, 0.5) is None
    for low, high in ((0.0123, 0.0124), (1e-5, 3e-5), (17.0, 17.004), (0.0, 0.3), (-0.2, 0.4)):
        below, above = nice_below(high, low), nice_above(low, high)
        assert low <= below < high
        assert low < above <= high
