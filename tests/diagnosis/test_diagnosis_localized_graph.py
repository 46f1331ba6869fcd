"""One graph under examination: what fails or is not reached
in time leaves the numbers of its nodes.
"""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from digits_targets import batches, constant_behind, machine, put, quantized, target

from qbench.diagnosis import localize_cell as localizing
from qbench.diagnosis import localize_graph as localized_graph
from qbench.diagnosis.capture import Budget
from qbench.diagnosis.localize_graph import NOT_LOOKED_FOR, LocalizedGraph
from qbench.judging import Cause, Repair, Suspect
from qbench.metrics import Differences


def begun(seconds=None):
    """A budget whose every look at the clock takes a second."""
    return Budget.begin(seconds, itertools.count().__next__)


@pytest.fixture
def graph():
    model = quantized()
    for node in ("conv2", "dense1"):
        value, levels = constant_behind(model, node, 1, 0)
        put(value, np.clip(levels, -20, 20))
    with LocalizedGraph(target(model=model), several=False) as made:
        made.run(batches(1, 8)[0], lambda: None)
        yield made


def test_suspects_that_were_not_reached_keep_their_numbers(graph):
    assert not graph.name_causes(begun(0.5), 2)
    assert {one.node for one in graph.suspects} == {"conv2", "dense1"}
    for one in graph.suspects:
        assert one.evidence.endswith(NOT_LOOKED_FOR)
        assert any(character.isdigit() for character in one.evidence)
        assert one.remedy == ""


def test_gains_stop_between_units_and_those_that_were_measured_are_kept(graph):
    assert not graph.name_causes(begun(3.5), 2)
    measured = [node.gain_db for node in graph.nodes if node.gain_db is not None]
    assert 0 < len(measured) < len(graph.nodes)


def test_causes_stop_between_suspects(graph, monkeypatch):
    monkeypatch.setattr(localized_graph, "each_gain", lambda *_, **__: (_ for _ in ()))
    assert not graph.name_causes(begun(3.5), 2)
    assert [bool(one.remedy) for one in graph.suspects] == [True, False]


def test_gains_that_fail_are_a_note(words, graph, monkeypatch):
    def broken(*_, **__):
        yield next(iter(graph._examination.units.by_value)), 1.5
        raise ValueError("shapes that nobody foresaw")

    monkeypatch.setattr(localized_graph, "each_gain", broken)
    assert graph.name_causes(begun(), 2)
    words(graph.notes)
    assert [node.gain_db for node in graph.nodes if node.gain_db is not None] == [1.5]
    assert all(one.remedy for one in graph.suspects)


@pytest.mark.parametrize("step", ["__init__", "of"])
def test_captures_that_fail_are_a_note_and_suspects_keep_their_numbers(graph, monkeypatch, step):
    def broken(*_):
        raise ValueError("no such piece")

    monkeypatch.setattr(localized_graph.Capturing, step, broken)
    assert graph.name_causes(begun(), 2)
    assert all("could not be captured: ValueError: no such piece" in note for note in graph.notes)
    assert graph.notes
    assert {one.node for one in graph.suspects} == {"conv2", "dense1"}
    assert all(one.evidence and one.remedy for one in graph.suspects)


def test_an_engine_is_waited_for_half_of_what_is_left_and_10_seconds_at_least():
    assert localizing._timeout(begun(101)) == 50
    assert localizing._timeout(begun(3)) == 10
    assert localizing._timeout(begun()) == float("inf")


def test_a_node_that_crashed_is_not_captured_again(graph, monkeypatch):
    crashes = dict.fromkeys(
        (one.node.levels for one in graph.ranked), "'it' fails on it alone: it died"
    )
    graph._counted = replace(graph._counted, crashes=crashes)
    monkeypatch.setattr(
        localized_graph.Capturing, "of", lambda *_: pytest.fail("it would crash again")
    )
    assert graph.name_causes(begun(), 2)
    assert [(one.cause, one.evidence) for one in graph.suspects] == [
        (Cause.CRASH, next(iter(crashes.values())))
    ] * 2
    assert graph.notes == []


@pytest.mark.slow
def test_an_engine_that_is_not_what_is_watched_is_warned_of(graph):
    assert graph.strays == ()
    assert graph.diverging == frozenset()
    model = quantized()
    for relative, warned in ((0.01, False), (0.44, True)):
        with LocalizedGraph(target(machine(), model=model), several=False) as other:
            other.run(batches(1, 8)[0], lambda: None)
            apart = Differences(elements=8000, differing=7999, relative=relative)
            other._counted = replace(other._counted, outputs=apart)
            assert [("WARNING" in note, "44 %" in note) for note in other.strays] == [
                (True, True)
            ] * warned


class Proven:
    """A graph of which ``proven`` carry a repair and ``diverging`` differ from the engine."""

    def __init__(self, proven, diverging):
        self.carried_by, self.diverging = (lambda _: proven), frozenset(diverging)


def test_scores_say_the_order():
    suspects = tuple(
        Suspect(node=n, cause=Cause.COARSE, evidence="", score=s)
        for n, s in (("a", 3), ("b", 2), ("c", 1))
    )
    repair = Repair(nodes=("b",), restores=True)
    for diverging, order in (((), "bac"), (("c",), "cba")):
        found = localizing._proven_first([Proven(["b"], diverging)], suspects, repair)
        assert "".join(one.node for one in found) == order
        assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    assert localizing._proven_first([Proven(["b"], ())], suspects, None) == suspects
