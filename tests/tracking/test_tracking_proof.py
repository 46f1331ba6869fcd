"""Lines of proofs: joined in any order, counted, and never mixed."""

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from qbench.errors import InputError, StoreError
from qbench.tracking import (
    Caught,
    ProofCell,
    ProofEnd,
    ProofRemedy,
    ProofStart,
    ProofTrial,
    TrialState,
    join_proof,
    lacking_of_proof,
    lines_of_one,
    proof_file,
    shares_ended,
    tally_faults,
)

MADE = {"suite": "a", "seed": "0"}
GATE = ProofRemedy(name="an equality gate", setting="equal_to")
NICE = ProofRemedy(name="a stricter tolerance", setting="tolerance = 0.1")


def trial(fault, place=0, state=TrialState.CAUGHT, cell="m::b+s", **more):
    return ProofTrial(
        made=MADE, cell=cell, fault=fault, stage="engine", sites=("conv",), place=place,
        state=state, **more,
    )  # fmt: skip


START = ProofStart(made=MADE, suite="s", cells=("m::b+s", "m::c+s"), kinds=("x", "y", "z"))
CELLS = (
    ProofCell(made=MADE, cell="m::b+s", applies=("x", "y"), is_green=True, outcome="passed"),
    ProofCell(made=MADE, cell="m::c+s", applies=("x",)),
)
END = ProofEnd(made=MADE, is_whole=False)
TRIALS = (
    trial("x"),
    trial("x", 1, TrialState.LET_THROUGH, remedies=(GATE, NICE)),
    trial("x", 2, TrialState.LET_THROUGH, remedies=(GATE,)),
    trial("x", 3, TrialState.NO_EFFECT),
    trial("y", state=TrialState.NO_EFFECT),
)


def test_lines_are_read_as_they_were_written_and_a_torn_one_is_left_out(tmp_path):
    file = proof_file(tmp_path / "p.jsonl")
    assert file.read() == ()
    for line in (START, *CELLS, *TRIALS):
        file.add(line)
    assert file.read() == (START, *CELLS, *TRIALS)
    data = file.path.read_bytes()
    file.path.write_bytes(data[:-20])
    assert file.read() == (START, *CELLS, *TRIALS[:-1])
    file.add(TRIALS[-1])  # does not continue the torn line
    assert file.read() == (START, *CELLS, *TRIALS)


def test_lines_of_something_else_and_of_a_newer_version_are_refused(tmp_path):
    file = proof_file(tmp_path / "p.jsonl")
    file.path.write_text("[suite]\n")
    with pytest.raises(InputError):
        file.read()
    file.path.write_text('{"format": "qbench-proof/2", "type": "trial"}\n')
    with pytest.raises(StoreError):
        file.read()
    file.path.write_text('{"format": "qbench-proof/1", "type": "later"}\n')
    assert file.read() == ()
    file.path.write_text('{"format": "qbench-proof/1", "type": "trial", "cell": 3}\n')
    with pytest.raises(InputError):
        file.read()


def test_the_order_of_lines_and_their_repetition_change_nothing():
    lines = [START, *CELLS, *TRIALS]
    proof = join_proof(lines)
    for order in itertools.islice(itertools.permutations(lines), 0, 40_000, 997):
        assert join_proof([*order, *order[:3]]).trials == proof.trials
        assert join_proof(order).cells == proof.cells


def test_a_measured_cell_wins_over_one_that_was_looked_at():
    looked = replace(CELLS[0], is_green=None, outcome="")
    for lines in ((looked, CELLS[0]), (CELLS[0], looked)):
        assert join_proof(lines).cells["m::b+s"] == CELLS[0]


def test_two_results_of_one_trial_are_named_and_counted_once():
    other = replace(TRIALS[0], state=TrialState.LET_THROUGH)
    for lines in ((TRIALS[0], other), (other, TRIALS[0])):
        proof = join_proof(lines)
        assert [one.state for one in proof.trials] == [TrialState.CAUGHT]
        (sentence,) = proof.repeated
        assert "not deterministic" in sentence
    # another class of environments is another trial
    assert len(join_proof([TRIALS[0], replace(other, environment="elsewhere")]).trials) == 2


def test_tallies():
    first, second = tally_faults(join_proof([START, *CELLS, *TRIALS]))
    assert (first.fault, first.caught, first.no_effect, first.trials) == (
        "x", Caught(count=1, n=3), 1, 4,
    )  # fmt: skip
    assert first.remedies == ((GATE, 2), (NICE, 1))
    assert len(first.let_through) == 2
    assert (second.fault, second.caught.share, second.no_effect, second.unfit) == ("y", None, 1, 1)
    assert second.caught.interval == (0.0, 1.0)


def test_what_could_not_be_put_is_no_trial():
    never = trial("y", state=TrialState.NOT_PUT)
    (tally,) = tally_faults(
        join_proof([START, *CELLS, TRIALS[0], replace(never, fault="x", place=1), never])
    )
    assert (tally.fault, tally.trials, tally.not_put) == ("x", 1, 1)


@pytest.mark.parametrize(
    ("lines", "lacking"),
    [
        ([""], ["no end of the proof"]),
        (["", END], []),
        (["1/1", END], []),
        (["1/3", END, "3/3", END], ["no results of share 2/3"]),
        (["2/3", "1/3", END], ["no results of share 3/3", "no end of share 2/3"]),
        (["2/2", END, "1/2", "1/2", END], []),  # started again
        (["1/2", END, "1/2", "2/2", END], []),  # the same share from another attempt
        (
            ["1/2", END, "1/4", END],
            ["no results of share 2/2", "no results of share 2/4, 3/4, 4/4"],
        ),
        ([END], []),
    ],
)
def test_what_shares_lack(lines, lacking):
    found = [line if line is END else replace(START, shard=line) for line in lines]
    assert list(lacking_of_proof(shares_ended(found))) == lacking


def test_all_shares_lack_results_where_none_began():
    assert lacking_of_proof({}) == ()
    assert lacking_of_proof({}, 2) == ("no results of share 1/2, 2/2",)
    assert lacking_of_proof({"1/2": END, "2/2": END}, 2) == ()


def test_the_interval_is_wilsons():
    from statsmodels.stats.proportion import proportion_confint

    for count, n in ((41, 64), (0, 1), (5, 5), (1, 400)):
        expected = proportion_confint(count, n, method="wilson")
        assert Caught(count=count, n=n).interval == pytest.approx(expected, abs=1e-12)


def test_what_is_pending():
    assert join_proof([START, *CELLS, *TRIALS]).pending == ()  # z has a place nowhere
    assert join_proof([START, *CELLS, *TRIALS[:4]]).pending == ("y",)
    red = replace(CELLS[0], is_green=False)
    assert join_proof([START, red, CELLS[1], *TRIALS[:4]]).pending == ()
    # a cell that was not looked at may have a place for anything
    assert join_proof([START, CELLS[0], *TRIALS]).pending == ("z",)


def test_what_only_accepted_results_of_the_class_caught():
    assert trial("x", gates=("drift",)).needs_class
    assert trial("x", gates=("drift", "executed_drift")).needs_class
    assert not trial("x", gates=("drift", "loss")).needs_class
    assert not trial("x", gates=()).needs_class
    assert not trial("x", state=TrialState.LET_THROUGH, gates=("drift",)).needs_class


def test_files_of_two_proofs_are_not_joined():
    ours, others = [START], [replace(START, made={**MADE, "suite": "b"})]
    a, b = Path("a"), Path("b")
    assert lines_of_one([(a, ours), (b, ours)], {}, "Joining") == (START, START)
    with pytest.raises(InputError) as error:
        lines_of_one([(a, ours), (b, others)], {}, "Joining")
    assert "'b'" in str(error.value)
    with pytest.raises(InputError):
        lines_of_one([(a, ours)], {**MADE, "seed": "1"}, "Resuming")
