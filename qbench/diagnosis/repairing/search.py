"""The smallest set of nodes whose return to float restores a verdict, by asking about few sets.

    1. prefixes of the ranked candidates, 1, 2, 4, … all of them, until one restores
    2. bisection for the shortest prefix that does: its last node is needed; again with that node kept, until
       the needed ones restore alone (the "progression" of Marques-Silva, Janota, Belov, CAV 2013)
    3. without each node of the answer in turn, as delta debugging ends (Zeller, Hildebrandt, IEEE TSE 28, 2002)

With n candidates and an answer of m nodes at most (m + 1)(⌈log₂ n⌉ + 1) + m sets are asked about, where more nodes in
float never break what fewer restore. Where they do, step 3 may ask more, and the answer still is a set that was seen to
restore, none of whose nodes can be left out.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from qbench.diagnosis.budget import Budget


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairSet:
    """What a search found.

    Args:
        nodes: to keep in float, the highest ranked first; empty where nothing restores, or nothing was found in time.
        restores: whether exactly these were seen to restore. smallest: whether none of them can be left out.
        finished: whether the budget sufficed; without it ``nodes`` is the best so far. probes: sets asked about.
    """

    nodes: tuple[str, ...]
    restores: bool
    smallest: bool
    finished: bool
    probes: int


def search_repair(candidates: Sequence[str], probe: Callable[[frozenset[str]], bool], budget: Budget) -> RepairSet:
    """The smallest set of ``candidates`` that ``probe`` calls restoring.

    Args:
        candidates: names of nodes, the likeliest first. The empty set is known to restore nothing.
        probe: whether the verdict is restored with these nodes in float.
        budget: no set is asked about that will not be answered in time, judged by the slowest answer before it.
    """
    ranked = tuple(dict.fromkeys(candidates))
    asked = _Asked(probe, budget)
    try:
        prefix = _restoring_prefix(ranked, asked)
        if prefix is None:
            return RepairSet(nodes=(), restores=False, smallest=False, finished=True, probes=asked.count)
        nodes = _without_any(_needed(ranked, *prefix, asked), asked)
    except _BudgetOverError:
        best = asked.best
        found = tuple(node for node in ranked if best is not None and node in best)
        return RepairSet(nodes=found, restores=best is not None, smallest=False, finished=False, probes=asked.count)
    ordered = tuple(node for node in ranked if node in nodes)
    return RepairSet(nodes=ordered, restores=True, smallest=True, finished=True, probes=asked.count)


class _BudgetOverError(Exception):
    """No time for another set."""


class _Asked:
    """The probe, asked about no set twice; ``best`` is the smallest set that restored."""

    def __init__(self, probe: Callable[[frozenset[str]], bool], budget: Budget) -> None:
        self.best: frozenset[str] | None = None
        self._known: dict[frozenset[str], bool] = {frozenset(): False}
        self._probe, self._budget = probe, budget
        self._slowest = 0.0

    @property
    def count(self) -> int:
        """How many sets were asked about."""
        return len(self._known) - 1

    def __call__(self, nodes: Sequence[str]) -> bool:
        wanted = frozenset(nodes)
        if wanted not in self._known:
            self._known[wanted] = restores = self._timed(wanted)
            if restores and (self.best is None or len(wanted) < len(self.best)):
                self.best = wanted
        return self._known[wanted]

    def _timed(self, nodes: frozenset[str]) -> bool:
        left = self._budget.left
        if left <= 0 or left < self._slowest:
            raise _BudgetOverError
        before = self._budget.spent
        restores = self._probe(nodes)
        self._slowest = max(self._slowest, self._budget.spent - before)
        return restores


def _restoring_prefix(ranked: tuple[str, ...], asked: _Asked) -> tuple[int, int] | None:
    """(length of a prefix that fails, length of the next one tried, which restores); None: none restores."""
    fails, size = 0, 1
    while fails < len(ranked):
        size = min(size, len(ranked))
        if asked(ranked[:size]):
            return fails, size
        fails, size = size, 2 * size
    return None


def _needed(ranked: tuple[str, ...], fails: int, restores: int, asked: _Asked) -> tuple[str, ...]:
    """Nodes of ``ranked[:restores]`` that restore together; each was needed beside all that stood before it."""
    needed: tuple[str, ...] = ()
    while True:
        while restores - fails > 1:
            middle = (fails + restores) // 2
            if asked(needed + ranked[:middle]):
                restores = middle
            else:
                fails = middle
        needed += (ranked[restores - 1],)
        if asked(needed):
            return needed
        ranked = ranked[: restores - 1]  # with all of these it restores, with none of them it does not
        fails, restores = 0, len(ranked)


def _without_any(nodes: tuple[str, ...], asked: _Asked) -> tuple[str, ...]:
    """``nodes`` less those that can be left out."""
    for node in nodes:
        others = tuple(other for other in nodes if other != node)
        if asked(others):
            return _without_any(others, asked)
    return nodes
