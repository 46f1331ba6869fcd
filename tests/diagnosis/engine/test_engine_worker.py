"""Units alone, in a process that may die at them: what ends it, what hangs in it,
and what goes on.
"""

import importlib
import math
import os
import pickle
import subprocess
import sys
from functools import partial
from types import ModuleType
from unittest.mock import Mock, patch

import numpy as np
import pytest
from engine_graphs import Broken, batches, machine, target

from qbench.backends import (
    EngineCrashError,
    contained,
    engine_process,
    engine_worker,
    get_backend,
    isolated,
    run_where_prepared,
    take_unprotected,
)
from qbench.diagnosis.engine.client import UnitSession
from qbench.diagnosis.examine import Examination
from qbench.diagnosis.rank import AnomalyKind, rank_nodes
from qbench.diagnosis.units import quantized_units


@pytest.fixture(scope="module")
def levels():
    """What stands in front of every unit of the network."""
    examined = target(machine("ort-x64"))
    names = [unit.value for unit in quantized_units(examined.quantized)]
    with examined.watched.prepare(examined.quantized, taps=names) as executor:
        feeds = batches(count=1)[0]
        return {**feeds, **executor.run(feeds)}


def alone(node, backend, **more):
    unit = next(
        unit for unit in quantized_units(target(machine("ort-x64")).quantized) if unit.node == node
    )
    return UnitSession(unit, backend, **more)


def run(one, levels):
    return one.run({name: levels[name] for name in one.unit.feeds})


def sound(one, levels):
    """What a ``Broken`` makes of it that does not break, in this process."""
    with Broken("none", "").prepare(one.unit.graph) as executor:
        return executor.run({name: levels[name] for name in one.unit.feeds})[one.unit.value]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("exit", "a process that ended with exit code 3"),
        ("sigmoid", "a process that ended with signal SIGABRT"),
        ("hang", "no answer in 0.5 s, and its process was killed"),
    ],
)
def test_a_unit_that_ends_its_engine_is_told_and_not_run_again_and_others_go_on(levels, how, words):
    first = alone("pool", Broken("none", ""))
    before = run(first, levels)
    life = engine_worker().generation
    timeout = iter(
        (math.inf, 0.5 if how == "hang" else math.inf)
    )  # for preparing it, and for running it
    sick = alone("wide", Broken("Conv", how), timeout=timeout.__next__)
    assert run(sick, levels) is None
    assert sick.crash.startswith(words)
    assert run(sick, levels) is None
    assert engine_worker().generation == life + 1
    assert np.array_equal(run(first, levels), before)  # its session was made anew
    first.close()


@pytest.mark.slow
def test_a_worker_is_kept_for_the_next_who_asks(levels, monkeypatch):
    engine_worker().close()
    started = Mock(wraps=subprocess.Popen)
    monkeypatch.setattr(subprocess, "Popen", started)
    run(alone("pool", Broken("none", "")), levels)
    run(alone("pool", get_backend("ort-cpu-precise")), levels)
    assert started.call_count == 1


@pytest.mark.slow
def test_an_interrupt_while_a_worker_starts_shifts_no_answers(levels):
    one = alone("pool", Broken("none", ""))
    engine_worker().close()
    with (
        patch("qbench.backends.venv.client.select.select", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        run(one, levels)
    assert np.array_equal(run(one, levels), sound(one, levels))


@pytest.mark.slow
def test_a_folder_that_is_only_worked_in_hides_no_modules(levels, monkeypatch, tmp_path):
    """Of what lies there, the worker finds what we find: where it is on the path,
    in its place there.
    """
    (tmp_path / "onnxruntime.py").write_text("raise ImportError('not the one')")
    (tmp_path / "lies_there.py").write_text(
        "import engine_graphs\n\nclass Found(engine_graphs.Broken): pass\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, ""])
    one = alone("pool", importlib.import_module("lies_there").Found("GlobalAveragePool", "raise"))
    assert run(one, levels) is None
    assert (
        one.crash == "ArithmeticError: no such window"
    )  # told by the worker: here it would be raised


@pytest.mark.slow
def test_where_no_worker_starts_any_more_sessions_go_on_here(levels, monkeypatch, tmp_path):
    sessions = [alone("pool", Broken("none", "")) for _ in range(2)]
    for one in sessions:
        run(one, levels)
    engine_worker().close()
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no_such_program"))
    assert np.array_equal(run(sessions[0], levels), sound(sessions[0], levels))
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\nexit 1\n")
    silent.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(silent))
    assert np.array_equal(run(sessions[1], levels), sound(sessions[1], levels))


def test_modules_that_are_found_elsewhere_are_another_worker_s(monkeypatch, tmp_path):
    room = engine_worker()
    monkeypatch.syspath_prepend(tmp_path)
    assert engine_worker() is not room


def test_a_backend_whose_module_is_not_found_over_there_runs_here(levels, monkeypatch):
    hidden = ModuleType("a_module_in_no_file")
    hidden.Hidden = type("Hidden", (Broken,), {"__module__": hidden.__name__})
    monkeypatch.setitem(sys.modules, hidden.__name__, hidden)
    one = alone("pool", hidden.Hidden("none", ""))
    assert np.array_equal(run(one, levels), sound(one, levels))


def test_a_session_that_was_closed_leaves_the_others(levels):
    engine, unit = contained(Broken("none", "")), alone("pool", None).unit
    feeds = {name: levels[name] for name in unit.feeds}
    with engine.prepare(unit.graph) as first:
        with engine.prepare(unit.graph) as second:
            found = second.run(feeds)[unit.value]
        assert np.array_equal(first.run(feeds)[unit.value], found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("exit", "a process that ended with exit code 3"),
        ("hang", "no answer in 8 s, and its process was killed"),
    ],
)
def test_a_crash_at_a_node_alone_is_the_first_suspect_and_the_others_are_examined(how, words):
    sick = target(Broken("GlobalAveragePool", how), watched=machine("ort-x64"))
    with Examination(sick, timeout=lambda: 8.0 if how == "hang" else math.inf) as examination:
        examination.run(batches(count=1)[0])
        found = examination.examined()
    assert list(found.crashes.values()) == [f"'broken' fails on it alone: {words}"]
    first = rank_nodes(found)[0]
    assert (first.node.node, first.excess, first.node.isolated) == ("pool", AnomalyKind.CRASH, None)
    assert all(
        node.isolated is not None
        for node in found.nodes
        if node.node in ("wide", "deep", "sum", "dense")
    )


@pytest.mark.slow
def test_what_a_worker_that_is_gone_had_kept_is_let_go_without_a_word(levels):
    executor = contained(Broken("none", "")).prepare(alone("pool", None).unit.graph)
    engine_worker().close()
    executor.close()


@pytest.mark.slow
def test_an_error_says_what_was_run_where(levels):
    unit = alone("wide", None).unit
    with (
        pytest.raises(
            EngineCrashError, match="on 'broken': found a process that ended with exit code 3"
        ) as caught,
        contained(Broken("Conv", "exit")).prepare(unit.graph) as executor,
    ):
        executor.run({name: levels[name] for name in unit.feeds})
    assert caught.value.found.endswith("exit code 3")


def test_the_other_process_has_the_same_size_limits():
    from qbench.backends.venv.engine_worker import Handler
    from qbench.storage import current_limits, limits_times

    class Limits(Handler):
        def nodes(self, header, arrays):
            return {"nodes": current_limits().nodes}, {}

    assert Limits().answer({"do": "nodes", "factor": 3}, {}) == (
        {"nodes": 3 * current_limits().nodes},
        {},
    )
    with (
        patch("qbench.backends.venv.client.Child.ask", return_value=({"nodes": 1}, {})) as ask,
        limits_times(3),
    ):
        assert engine_worker().ask({"do": "nodes"}, {}, "Asking", 60.0) == ({"nodes": 1}, {})
    engine_worker().close()
    assert ask.call_args.args == ({"do": "nodes", "factor": 3}, {})


def test_numbers_that_no_message_holds_run_here(levels):
    unit = alone("pool", None).unit
    with contained(Broken("GlobalAveragePool", "widen")).prepare(unit.graph) as executor:
        found = executor.run({name: levels[name] for name in unit.feeds})
    assert found[unit.value].dtype == np.longdouble


def outputs_of(feeds, runners):
    """What a task does, as a function that can be sent."""
    return {name: [one.run(batch) for batch in feeds] for name, one in runners.items()}, os.getpid()


@pytest.mark.slow
def test_work_that_can_be_sent_is_done_where_the_sessions_are(levels):
    unit = alone("pool", None).unit
    feeds = [{name: levels[name] for name in unit.feeds}] * 2
    with (
        contained(Broken("none", "")).prepare(unit.graph) as first,
        contained(Broken("none", "")).prepare(unit.graph) as second,
    ):
        engine_worker().close()  # they are prepared again
        found, where = run_where_prepared(partial(outputs_of, feeds), {"one": first, "two": second})
        assert where != os.getpid()
        again, here = run_where_prepared(
            lambda runners: outputs_of(feeds, runners), {"one": first}
        )  # not picklable
        assert here == os.getpid()
        mixed = run_where_prepared(
            partial(outputs_of, feeds),
            {"one": first, "ours": Broken("none", "").prepare(unit.graph)},
        )
        assert mixed[1] == os.getpid()
    for outputs in (*found.values(), *again.values(), *mixed[0].values()):
        assert [list(one) for one in outputs] == [[unit.value]] * 2
        assert all(np.array_equal(one[unit.value], found["one"][0][unit.value]) for one in outputs)


@pytest.mark.slow_but(1)
@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("exit", "a process that ended with exit code 3"),
        ("hang", "no answer in 1 s, and its process was killed"),
    ],
)
def test_work_at_which_an_engine_ends_or_hangs_fails(levels, how, words):
    unit = alone("pool", None).unit
    feeds = [{name: levels[name] for name in unit.feeds}]
    engine = contained(Broken("GlobalAveragePool", how), lambda: 60.0)
    with engine.prepare(unit.graph) as executor:
        executor._timeout = lambda: 1.0 if how == "hang" else 60.0
        with pytest.raises(EngineCrashError, match=words):
            run_where_prepared(partial(outputs_of, feeds), {"one": executor})


def test_each_batch_of_work_begins_the_time_anew(levels):
    """Work that takes longer than an engine may be silent is not taken for an engine that hangs."""
    from qbench.backends.venv.engine_worker import Handler

    unit, begun = alone("pool", None).unit, []
    feeds = [{name: levels[name] for name in unit.feeds}] * 3
    handler = Handler(lambda: begun.append("running"))
    handler._executors[1] = Broken("none", "").prepare(unit.graph)
    work = np.frombuffer(pickle.dumps(partial(outputs_of, feeds)), np.uint8)
    _, results = handler.answer({"do": "apply", "keys": {"one": 1}, "factor": 1}, {"work": work})
    assert begun == ["running"] * 3
    with (
        patch("qbench.backends.venv.client.Child.ask", return_value=({"running": True}, {})),
        patch(
            "qbench.backends.venv.client.Child.receive",
            side_effect=[({"running": True}, {}), ({}, results)],
        ) as waits,
    ):
        engine_worker()._started()
        waits.side_effect = [({"running": True}, {}), ({}, results)]
        assert engine_worker().ask({"do": "apply"}, {}, "Asking", 7.0) == ({}, results)
    engine_worker().close()
    assert [call.args for call in waits.call_args_list[-2:]] == [(7.0,), (7.0,)]


def test_an_error_of_the_work_itself_is_raised_here(levels):
    with (
        contained(Broken("none", "")).prepare(alone("pool", None).unit.graph) as executor,
        pytest.raises(ZeroDivisionError),
    ):
        run_where_prepared(divide, {"one": executor})


def divide(runners):
    return 1 / (len(runners) - 1)


def test_the_other_process_reports_how_nodes_run():
    unit = alone("pool", None).unit
    engine = get_backend("ort-cpu-noopt")
    with contained(engine).prepare(unit.graph) as there, engine.prepare(unit.graph) as here:
        assert there.executed() == here.executed()
        assert here.executed()["pool"].precision == "float32"


class Fragile(Broken):
    """An engine that may crash."""

    hang_s = 60.0


@pytest.mark.slow
def test_an_engine_that_may_crash_and_runs_here_is_told_once_for_each_reason(
    monkeypatch, tmp_path, capsys
):
    graph = alone("pool", None).unit.graph
    take_unprotected()
    isolated(Fragile("none", "")).prepare(graph).close()
    assert take_unprotected() == ()

    monkeypatch.setattr(engine_process, "own_python", lambda _: [str(tmp_path / "no-python")])
    engine_worker().close()
    isolated(Broken("none", "")).prepare(graph).close()  # not said to crash
    assert take_unprotected() == ()
    for _ in range(2):
        isolated(Fragile("none", "")).prepare(graph).close()
    (notice,) = take_unprotected()
    assert notice.startswith("'broken' ran unprotected in this process")
    assert "no-python" in notice
    assert capsys.readouterr().err.count("unprotected") == 1

    monkeypatch.setattr(engine_process, "MESSAGE_LIMIT", 0)
    isolated(Fragile("none", "")).prepare(graph).close()
    (notice,) = take_unprotected()
    assert notice.endswith("bytes, and a worker process takes 0")

    local = type("Local", (Fragile,), {})
    assert isinstance(isolated(local("none", "")), local)
    assert take_unprotected()[0].endswith("it cannot be pickled")
