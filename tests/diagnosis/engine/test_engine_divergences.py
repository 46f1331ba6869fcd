"""Units alone in an engine: equal to the machine that it is, apart from one that it is not, and
engines that break.
"""

from dataclasses import replace

import numpy as np
import pytest
from engine_graphs import SIGMOID, Broken, batches, machine, target

from qbench.backends import EngineCrashError, contained, get_backend
from qbench.diagnosis.engine.divergence import engine_divergences
from qbench.diagnosis.target import match_outputs
from qbench.errors import InputError
from qbench.host import architecture
from qbench.judging import Cause

on_x64 = pytest.mark.skipif(
    architecture() != "x64", reason="arithmetics of ONNX Runtime are known of x64"
)


@pytest.fixture
def precise():
    return contained(get_backend("ort-cpu-precise"))


@on_x64
@pytest.mark.slow
@pytest.mark.parametrize("name", ["ort-cpu", "ort-cpu-qoperator"])
def test_the_machine_that_an_engine_claims_to_be_answers_as_it_does(name):
    examined = target(name)
    matched = match_outputs(examined, batches())
    assert matched.is_exact
    assert (matched.samples, matched.found.elements) == (8, 40)
    watched = examined.watched.name
    assert matched.sentence == (
        f"'{watched}' is watched in place of '{name}': "
        "equal to it bit for bit in 40 outputs over 8 samples"
    )
    assert engine_divergences(examined, batches()) == ()


@on_x64
def test_in_precise_mode_it_is_one_machine_on_every_processor_with_avx2(precise):
    assert match_outputs(target(precise), batches()).is_exact
    assert engine_divergences(target(precise), batches()) == ()


def test_what_is_watched_itself_needs_no_match(words):
    matched = match_outputs(target("integer-gemmlowp"), [])
    assert matched.is_exact
    words(matched.sentence)


def test_another_machine_is_matched_within_a_bound_that_is_said():
    matched = match_outputs(target("ort-cpu-precise", watched=machine("gemmlowp")), batches())
    assert not matched.is_exact
    assert 0 < matched.found.relative < 0.05
    assert matched.sentence.startswith(
        "'integer-gemmlowp' is watched in place of 'ort-cpu-precise': "
        f"{matched.found.differing} of 40 outputs over 8 samples differ, by at most "
    )


def test_a_wrong_claim_parts_at_the_units_that_round_otherwise_and_at_no_other(precise):
    divergences = engine_divergences(target(precise, claims=machine("gemmlowp")), batches())
    assert [one.node for one in divergences] == ["wide", "deep", "pool"]
    first = divergences[0]
    assert (first.cause, first.repeats, first.largest) == (Cause.WRONG_KERNEL, True, 1.0)
    assert first.elements == 8 * 6 * 8 * 8
    assert 0 < first.differing < 0.05 * first.elements
    assert {name: feed.shape for name, feed in first.feeds.items()} == {"x_quantized": (1, 3, 8, 8)}


def test_a_unit_is_fed_by_the_machine_so_that_a_fault_in_front_is_no_fault_of_its_own():
    def doubled(node, run):
        return run if node.name != "wide" else lambda inputs: tuple(one // 2 for one in run(inputs))

    faulty = replace(machine("gemmlowp"), around=doubled)
    divergences = engine_divergences(target(faulty), batches())
    assert [one.node for one in divergences] == ["wide"]
    assert divergences[0].largest > 1


def test_one_batch_is_as_good_as_several(precise):
    (first, *_) = engine_divergences(target(precise, claims=machine("gemmlowp")), batches()[0])
    assert first.elements == 4 * 6 * 8 * 8


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("abort", "a process that ended with signal SIGABRT"),
        ("raise", "ArithmeticError: no such window"),
    ],
)
def test_an_engine_that_fails_on_a_unit_is_a_finding_and_the_others_are_replayed(how, words):
    divergences = engine_divergences(
        target(Broken("Conv", how), claims=machine("ort-x64")), batches()
    )
    assert [(one.node, one.cause) for one in divergences] == [
        ("wide", Cause.CRASH),
        ("deep", Cause.CRASH),
    ]
    for one in divergences:
        assert words in one.crash
        assert one.sentence.startswith("the engine fails on it alone: ")
        assert all(len(feed) == 4 for feed in one.feeds.values())


@pytest.mark.slow
def test_an_engine_that_answers_otherwise_the_second_time_is_told_as_that():
    (divergence,) = engine_divergences(
        target(Broken("GlobalAveragePool", "drift"), claims=machine("ort-x64")), batches()
    )
    assert (divergence.node, divergence.cause) == ("pool", Cause.NONDETERMINISM)
    assert divergence.sentence == "two runs of the same input differ"


def test_a_backend_of_unknown_arithmetic_needs_a_machine():
    with pytest.raises(InputError, match="declares no arithmetic"):
        engine_divergences(target(Broken("Conv", "raise")), batches())


@pytest.mark.slow
def test_an_engine_that_ends_its_process_does_not_end_ours():
    """ONNX Runtime 1.31.1 aborts on a QLinearSigmoid without the zero point of its result."""
    import onnx_ir as ir

    broken, sound = (
        ir.from_onnx_text(text)
        for text in (SIGMOID, SIGMOID.replace("x, s, z, t)", "x, s, z, t, z)"))
    )
    feeds = {"x": np.arange(4, dtype=np.uint8)}
    engine = contained(get_backend("ort-cpu"))
    with engine.prepare(sound) as executor:
        before = executor.run(feeds)["y"]
        with (
            pytest.raises(EngineCrashError, match="signal SIGABRT"),
            engine.prepare(broken) as aborting,
        ):
            aborting.run(feeds)
        assert np.array_equal(executor.run(feeds)["y"], before)  # in a new process


def test_errors_of_a_backend_come_back_as_they_are(precise):
    with precise.prepare(target("ort-cpu").quantized) as executor:
        with pytest.raises(InputError, match="x"):
            executor.run({"x": np.zeros((1, 2), np.float32)})
        assert executor.run(batches()[0])["y"].shape == (4, 5)
