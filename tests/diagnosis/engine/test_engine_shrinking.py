"""The smallest failing input: delta debugging alone, and test cases that fail on one machine
and pass on another.
"""

from pathlib import Path

import numpy as np
import onnx
import pytest
from engine_graphs import Broken, batches, machine, target
from hypothesis import given
from hypothesis import strategies as st
from onnx import numpy_helper

from qbench.backends import get_backend
from qbench.diagnosis.engine.case_files import run_test_case, save_test_case
from qbench.diagnosis.engine.divergence import engine_divergences
from qbench.diagnosis.engine.shrink import Trials, smallest_case, smallest_failing
from qbench.errors import InputError
from qbench.judging import Cause


@given(st.sets(st.integers(0, 40)), st.integers(41, 60))
def test_what_is_needed_is_found_exactly(needed, count):
    trials = Trials(10_000)

    def fails(some):
        trials.spend()
        return needed <= set(some)

    assert smallest_failing(range(count), fails, trials) == tuple(sorted(needed))


def test_a_spent_search_gives_the_smallest_seen():
    trials = Trials(4)

    def fails(some):
        trials.spend()
        return {3, 60} <= set(some)

    kept = smallest_failing(range(64), fails, trials)
    assert {3, 60} <= set(kept)
    assert trials.made == 4
    assert trials.are_spent


@pytest.fixture(scope="module")
def divergences():
    """Machines beside each other, which needs no other process:
    half to even beside twice half up.
    """
    return engine_divergences(target(machine("ort-x64"), claims=machine("gemmlowp")), batches())


@pytest.mark.slow_but(1)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_case_fails_on_the_engine_and_passes_on_the_arithmetic(divergences, place, tmp_path):
    engine, arithmetic = machine("ort-x64"), machine("gemmlowp")
    case = smallest_case(divergences[place], engine, arithmetic)
    before = sum(feed.size for feed in divergences[place].feeds.values())
    assert sum(feed.size for feed in case.feeds.values()) < before
    assert case.changed <= before // 3
    assert (case.is_smallest, case.cause) == (True, Cause.WRONG_KERNEL)
    folder = save_test_case(case, tmp_path / "case")
    result = run_test_case(folder, engine)
    assert not result.passes
    assert result.found.steps == 1
    assert run_test_case(folder, arithmetic).passes
    words = (folder / "README.txt").read_text()
    assert words.startswith(
        f"'integer-ort-x64' differs from 'integer-gemmlowp' in {result.found.differing} of "
    )
    assert f"outputs for '{divergences[place].node}' (" in words


def test_no_changed_level_of_a_case_can_be_left_out(divergences):
    engine, arithmetic = machine("ort-x64"), machine("gemmlowp")
    case = smallest_case(divergences[1], engine, arithmetic)
    ((name, feed),) = case.feeds.items()
    values, counts = np.unique(feed, return_counts=True)
    rest = values[counts.argmax()]
    with engine.prepare(case.model) as ours, arithmetic.prepare(case.model) as theirs:
        for index in np.flatnonzero(feed != rest):
            less = feed.copy()
            less.reshape(-1)[index] = rest
            assert np.array_equal(
                ours.run({name: less})["c_quantized"], theirs.run({name: less})["c_quantized"]
            )


@pytest.mark.slow
def test_the_folder_is_laid_out_as_those_of_onnx(divergences, tmp_path):
    case = smallest_case(divergences[0], machine("ort-x64"), machine("gemmlowp"))
    data = tmp_path / "test_data_set_0"
    data.mkdir()
    for left in (
        "input_7.pb",
        "engine_output_1.pb",
        "weights.pb",
    ):  # the last does not belong to a case
        (data / left).touch()
    folder = save_test_case(case, tmp_path)
    (data / "weights.pb").unlink()
    model = onnx.load(folder / "model.onnx")
    onnx.checker.check_model(model)
    assert sorted(path.name for path in data.iterdir()) == [
        "engine_output_0.pb",
        "input_0.pb",
        "output_0.pb",
    ]
    given_in = numpy_helper.to_array(onnx.load_tensor(data / "input_0.pb"))
    declared = [size.dim_value for size in model.graph.input[0].type.tensor_type.shape.dim]
    assert declared == list(given_in.shape)
    expected = numpy_helper.to_array(onnx.load_tensor(data / "output_0.pb"))
    assert np.array_equal(expected, case.expected["b_quantized"])
    found = numpy_helper.to_array(onnx.load_tensor(data / "engine_output_0.pb"))
    assert not np.array_equal(found, expected)


@pytest.mark.slow
def test_a_case_of_the_real_engine_runs_in_a_process_of_its_own(divergences, tmp_path):
    divergence = divergences[0]
    case = smallest_case(divergence, get_backend("ort-cpu-precise"), machine("gemmlowp"))
    folder = save_test_case(case, tmp_path)
    assert not run_test_case(folder, get_backend("ort-cpu-precise")).passes
    assert run_test_case(folder, machine("ort-x64")).found.differing
    assert run_test_case(folder, machine("gemmlowp")).passes


@pytest.mark.slow
def test_a_case_of_an_engine_that_fails_has_no_answer_and_is_still_small(tmp_path):
    from qbench.backends import contained

    engine = contained(Broken("Conv", "raise"))
    first = engine_divergences(target(engine, claims=machine("ort-x64")), batches())[0]
    case = smallest_case(first, engine, machine("ort-x64"))
    assert (case.cause, case.found, case.changed) == (Cause.CRASH, None, 0)
    folder = save_test_case(case, tmp_path)
    assert "fails on 'wide' (Conv) on x_quantized [" in (folder / "README.txt").read_text()
    assert not (folder / "test_data_set_0" / "engine_output_0.pb").exists()
    assert run_test_case(folder, Broken("Conv", "abort")).crash.startswith(
        "a process that ended with signal SIGABRT"
    )
    assert run_test_case(folder, machine("ort-x64")).passes


@pytest.mark.slow
def test_a_folder_without_its_data_is_refused(divergences, tmp_path):
    folder: Path = save_test_case(
        smallest_case(divergences[0], machine("ort-x64"), machine("gemmlowp")), tmp_path
    )
    (folder / "test_data_set_0" / "output_0.pb").unlink()
    with pytest.raises(
        InputError, match="found 1 inputs and 0 outputs; expected 1 inputs and 1 outputs"
    ):
        run_test_case(folder, machine("gemmlowp"))
