"""The search for the smallest set of nodes whose return to float restores a verdict."""

import math

from hypothesis import given
from hypothesis import strategies as st

from qbench.diagnosis.capture import Budget
from qbench.diagnosis.repair.search import search_repair

NAMES = tuple(f"n{index}" for index in range(24))
ENDLESS = Budget(seconds=None, timer=lambda: 0.0, started=0.0)


class Clock:
    """Seconds that pass when somebody says so."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@st.composite
def monotone(draw):
    """Candidates, and sets any one of which restores."""
    count = draw(st.integers(1, len(NAMES)))
    candidates = NAMES[:count]
    nodes = st.frozensets(st.sampled_from(candidates), min_size=1, max_size=5)
    return candidates, draw(st.lists(nodes, max_size=4))


def restoring(sets):
    return lambda nodes: any(one <= nodes for one in sets)


@given(monotone())
def test_a_minimal_set_is_found_in_few_probes(case):
    candidates, sets = case
    found = search_repair(candidates, restoring(sets), ENDLESS)
    assert found.finished
    assert found.restores is bool(sets)
    if not sets:
        assert (found.nodes, found.probes) == ((), math.ceil(math.log2(len(candidates))) + 1)
        return
    assert frozenset(found.nodes) in sets
    assert found.smallest
    assert not any(one < frozenset(found.nodes) for one in sets)
    size, steps = len(found.nodes), math.ceil(math.log2(len(candidates))) + 1
    assert found.probes <= (size + 1) * steps + size


@given(st.integers(1, 6), st.randoms(use_true_random=False))
def test_of_any_predicate_the_answer_was_seen_to_restore_and_none_of_it_can_go(count, random):
    candidates = NAMES[:count]
    answers = {}

    def probe(nodes):
        assert nodes, "the empty set is known"
        assert nodes not in answers, "no set is asked about twice"
        return answers.setdefault(nodes, random.random() < 0.4)

    found = search_repair(candidates, probe, ENDLESS)
    assert found.probes == len(answers)
    if found.restores:
        chosen = frozenset(found.nodes)
        assert answers[chosen]
        assert not any(answers[chosen - {node}] for node in chosen if len(chosen) > 1)
    else:
        assert not answers[frozenset(candidates)]


@given(monotone(), st.integers(0, 30))
def test_resumed_equals_uninterrupted(case, stop):
    candidates, sets = case
    known = {}
    clock = Clock()

    def remembering(nodes):
        if nodes not in known:
            clock.now += 1
            known[nodes] = restoring(sets)(nodes)
        return known[nodes]

    first = search_repair(candidates, remembering, Budget.begin(float(stop), clock))
    assert first.probes <= stop
    if not first.finished and first.restores:
        assert known[frozenset(first.nodes)]
    whole = search_repair(candidates, restoring(sets), ENDLESS)
    assert search_repair(candidates, remembering, ENDLESS) == whole


def test_a_probe_that_would_end_too_late_is_not_begun():
    clock = Clock()

    def slow(nodes):
        clock.now += 4
        return len(nodes) >= 2

    found = search_repair(NAMES, slow, Budget.begin(10.0, clock))
    assert clock.now == 8
    assert (found.nodes, found.restores, found.smallest, found.finished) == (
        ("n0", "n1"),
        True,
        False,
        False,
    )


def test_a_budget_that_runs_out_before_anything_restores_says_so():
    clock = Clock()

    def slow(nodes):
        clock.now += 4
        return False

    found = search_repair(NAMES, slow, Budget.begin(5.0, clock))
    assert (found.nodes, found.restores, found.finished, found.probes) == ((), False, False, 1)


def test_without_candidates_nothing_is_asked():
    def never(nodes):
        raise AssertionError(nodes)

    found = search_repair((), never, ENDLESS)
    assert (found.nodes, found.restores, found.finished, found.probes) == ((), False, True, 0)


def test_a_share_of_a_budget_ends_before_it():
    clock = Clock()
    whole = Budget.begin(10.0, clock)
    clock.now = 2.0
    half = whole.share(0.5)
    assert (half.left, whole.left) == (4.0, 8.0)
    clock.now = 6.0
    assert half.is_over
    assert not whole.is_over
    assert Budget.begin(None, clock).share(0.5).left == math.inf
