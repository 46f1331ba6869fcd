"""The smallest set of nodes whose return to float restores a verdict."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx_ir as ir

from qbench.calibration import units_of
from qbench.diagnosis.capture import Budget
from qbench.errors import InputError, StoreError
from qbench.graph import node_key
from qbench.quantization import Plan
from qbench.storage import json_line

# The search for the smallest set of nodes in float that restores a verdict, with few probes:
#
#     1. prefixes of the ranked candidates (1, 2, 4, … all nodes), until one restores
#     2. bisection for the shortest prefix that restores: its last node is needed. Repeat with that
#        node kept, until the needed nodes restore alone (the "progression" of Marques-Silva,
#        Janota, Belov, CAV 2013)
#     3. without each node of the result in turn, as delta debugging ends (Zeller, Hildebrandt, IEEE
#        TSE 28, 2002)
#
# With n candidates and m nodes in the result this takes at most (m + 1)(⌈log₂ n⌉ + 1) + m probes,
# if more nodes in float never undo a restored verdict. Otherwise step 3 may take more; the result
# still is a set that was probed and restores, and no node of it can be removed.


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairSet:
    """The result of a search.

    Args:
        nodes: to keep in float, the highest ranked first; empty: no set restores, or none was found
            in time.
        restores: whether exactly this set was probed and restores.
        smallest: whether no node of it can be removed.
        finished: whether the budget was enough; if not, ``nodes`` is the best so far.
        probes: number of sets probed.
    """

    nodes: tuple[str, ...]
    restores: bool
    smallest: bool
    finished: bool
    probes: int


def search_repair(
    candidates: Sequence[str], probe: Callable[[frozenset[str]], bool], budget: Budget
) -> RepairSet:
    """The smallest set of ``candidates`` for which ``probe`` is true.

    Args:
        candidates: names of nodes, the likeliest first. The empty set is known not to restore.
        probe: whether the verdict is restored with these nodes in float.
        budget: no probe starts that would not end in time, judged by the slowest one before.
    """
    ranked = tuple(dict.fromkeys(candidates))
    probes = _Probes(probe, budget)
    try:
        prefix = _restoring_prefix(ranked, probes)
        if prefix is None:
            return RepairSet(
                nodes=(), restores=False, smallest=False, finished=True, probes=probes.count
            )
        nodes = _without_any(_needed(ranked, *prefix, probes), probes)
    except _BudgetOverError:
        best = probes.best
        found = tuple(node for node in ranked if best is not None and node in best)
        return RepairSet(
            nodes=found,
            restores=best is not None,
            smallest=False,
            finished=False,
            probes=probes.count,
        )
    ordered = tuple(node for node in ranked if node in nodes)
    return RepairSet(
        nodes=ordered, restores=True, smallest=True, finished=True, probes=probes.count
    )


class _BudgetOverError(Exception):
    """No time for another probe."""


class _Probes:
    """The probe, called once per set; ``best`` is the smallest set that restored."""

    def __init__(self, probe: Callable[[frozenset[str]], bool], budget: Budget) -> None:
        self.best: frozenset[str] | None = None
        self._known: dict[frozenset[str], bool] = {frozenset(): False}
        self._probe, self._budget = probe, budget
        self._slowest = 0.0

    @property
    def count(self) -> int:
        """The number of sets probed."""
        return len(self._known) - 1

    def __call__(self, nodes: Sequence[str]) -> bool:
        wanted = frozenset(nodes)
        if wanted not in self._known:
            left = self._budget.left
            if left <= 0 or left < self._slowest:
                raise _BudgetOverError
            before = self._budget.spent
            self._known[wanted] = restores = self._probe(wanted)
            self._slowest = max(self._slowest, self._budget.spent - before)
            if restores and (self.best is None or len(wanted) < len(self.best)):
                self.best = wanted
        return self._known[wanted]


def _restoring_prefix(ranked: tuple[str, ...], probes: _Probes) -> tuple[int, int] | None:
    """(length of a prefix that fails, length of the next one tried, which restores); None: none
    restores.
    """
    fails, size = 0, 1
    while fails < len(ranked):
        size = min(size, len(ranked))
        if probes(ranked[:size]):
            return fails, size
        fails, size = size, 2 * size
    return None


def _needed(ranked: tuple[str, ...], fails: int, restores: int, probes: _Probes) -> tuple[str, ...]:
    """Nodes of ``ranked[:restores]`` that restore together; each was needed in addition to all
    before it.
    """
    needed: tuple[str, ...] = ()
    while True:
        while restores - fails > 1:
            middle = (fails + restores) // 2
            if probes(needed + ranked[:middle]):
                restores = middle
            else:
                fails = middle
        needed += (ranked[restores - 1],)
        if probes(needed):
            return needed
        # with all of these it restores, with none of them it does not
        ranked = ranked[: restores - 1]
        fails, restores = 0, len(ranked)


def _without_any(nodes: tuple[str, ...], probes: _Probes) -> tuple[str, ...]:
    """``nodes`` without those that can be removed."""
    for node in nodes:
        others = tuple(other for other in nodes if other != node)
        if probes(others):
            return _without_any(others, probes)
    return nodes


# The candidates of a repair, in the order in which they are tried: suspects and their readers, then
# all other operators.
#
# A schema keeps a whole operator in float, with its bias and clip. If an integer operator reads the
# result, the result is still quantized; so the readers of a suspect follow it.

SUSPECTS_FIRST = 4
"""Number of suspects whose readers directly follow them."""


def repair_candidates(
    planned: Mapping[str, ir.Model], plans: Mapping[str, Plan], ranked: Sequence[tuple[str, str]]
) -> tuple[str, ...]:
    """The quantized operators of all graphs, by the names that rules of a schema match.

    Args:
        planned: graph name → the float graph for which the plan was made.
        plans: graph name → plan.
        ranked: (graph, node of it), the likeliest first. Nodes that no schema rule can name are
            skipped.
    """
    quantized = {name: frozenset(plan.quantized_units) for name, plan in plans.items()}
    owners = {name: owners_of(model) for name, model in planned.items()}
    readers = {name: dict(_readers(model, owners[name])) for name, model in planned.items()}
    ordered: dict[str, None] = {}
    for place, (graph, node) in enumerate(ranked):
        unit = owners.get(graph, {}).get(node)
        if unit is None:
            continue
        near = (unit, *(readers[graph].get(unit, ()) if place < SUSPECTS_FIRST else ()))
        ordered |= dict.fromkeys(one for one in near if one in quantized[graph])
    return tuple(
        ordered | dict.fromkeys(unit for plan in plans.values() for unit in plan.quantized_units)
    )


def owners_of(model: ir.Model) -> dict[str, str]:
    """Node → the operator by whose name rules of a schema match it: itself, or the one that it
    belongs to.
    """
    return {node_key(node): unit.name for unit in units_of(model.graph) for node in unit.nodes}


def _readers(model: ir.Model, owners: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(unit, the units that read its results)."""
    for unit in units_of(model.graph):
        nodes = (use.node for value in unit.last.outputs for use in value.uses())
        yield (
            unit.name,
            tuple(
                dict.fromkeys(owners[node_key(node)] for node in nodes if node_key(node) in owners)
            ),
        )


# A replay file: every set of nodes that was probed, with its result, so that a search continues
# where it stopped.
#
#     {"type": "replay", "format": "qbench-replay/1",
#      "identity": {"model": …, "schema": …, "data": …, …}}
#     one per set:
#     {"type": "probe", "nodes": […], "restored": true, "macs_share": 0.031, "said": "top1 351/360"}
#
# A line is appended after each probe. The file of an interrupted search may end within a line; then
# that set is probed again.

FORMAT = "qbench-replay/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """The result of a probe: the cell with a set of nodes in float.

    Args:
        restored: whether the verdict is restored.
        macs_share: share of the multiply-accumulates that became float.
        said: the verdict in words.
    """

    restored: bool
    macs_share: float = 0.0
    said: str = ""


Probe = Callable[[frozenset[str]], Probed]


@dataclass(frozen=True, slots=True, eq=False)
class ReplayedProbe:
    """``probe``, called only for sets that are not ``known``; each result is appended to
    ``path`` (None: not stored).

    Raises:
        StoreError: the file cannot be written.
    """

    probe: Probe
    path: Path | None = None
    known: dict[frozenset[str], Probed] = field(default_factory=dict)

    def __call__(self, nodes: frozenset[str]) -> Probed:
        """The known result for ``nodes``, or that of a new probe."""
        if nodes not in self.known:
            self.known[nodes] = probed = self.probe(nodes)
            if self.path is not None:
                _append(self.path, {"type": "probe", "nodes": sorted(nodes), **_table(probed)})
        return self.known[nodes]


def replayed(probe: Probe, path: Path | None, identity: Mapping[str, str]) -> ReplayedProbe:
    """``probe`` with the results that are stored at ``path``; the file is created if it does
    not exist.

    Args:
        probe: called for sets that are not in the file.
        path: None: nothing is stored.
        identity: what a result depends on, name → digest or name.

    Raises:
        InputError: it is not a replay file, or it is of another model, schema, data, backend or
            rules.
        StoreError: it cannot be read or written.
    """
    if path is None:
        return ReplayedProbe(probe)
    lines = _lines(path)
    if not lines:
        _append(path, {"type": "replay", "format": FORMAT, "identity": dict(identity)})
        return ReplayedProbe(probe, path)
    _refuse_other(path, lines[0], identity)
    return ReplayedProbe(
        probe, path, dict(_probed(path, line) for line in lines[1:] if line.get("type") == "probe")
    )


def check_replay(path: Path, identity: Mapping[str, str]) -> None:
    """Refuse the file of another search before anything is run; the file may be missing.

    Raises:
        InputError: it is not a replay file, or it is of another model, schema, data, backend or
            rules.
    """
    lines = _lines(path)
    if lines:
        _refuse_other(path, lines[0], identity)


def _table(probed: Probed) -> dict[str, Any]:
    return {"restored": probed.restored, "macs_share": probed.macs_share, "said": probed.said}


def _probed(path: Path, line: Mapping[str, Any]) -> tuple[frozenset[str], Probed]:
    nodes, restored, share = line.get("nodes"), line.get("restored"), line.get("macs_share", 0.0)
    if not (
        isinstance(nodes, list) and isinstance(restored, bool) and isinstance(share, int | float)
    ):
        raise _damaged(path, f"an invalid probe line ({json.dumps(line)[:80]})")
    return frozenset(map(str, nodes)), Probed(
        restored=restored, macs_share=share, said=str(line.get("said", ""))
    )


def _refuse_other(path: Path, first: Mapping[str, Any], identity: Mapping[str, str]) -> None:
    written = first.get("identity")
    if first.get("format") != FORMAT or not isinstance(written, Mapping):
        raise _damaged(path, f"a first line of another kind ({first.get('format', 'no format')})")
    other = sorted(
        name for name in {*written, *identity} if written.get(name) != identity.get(name)
    )
    if other:
        raise InputError(
            f"Continuing the search in '{path}'",
            found=f"results for another {' and another '.join(other)}",
            expected="results of the same search",
            remedy="Name another file; this one is not changed.",
        )


def _lines(path: Path) -> list[dict[str, Any]]:
    """The lines of the file; an incomplete last line is removed."""
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise _damaged(path, str(error)) from error
    whole, _, _ = text.rpartition("\n")
    try:
        lines = [json.loads(line) for line in whole.split("\n") if line.strip()]
    except ValueError as error:
        raise _damaged(path, f"a line that is not JSON ({error})") from error
    if not all(isinstance(line, dict) for line in lines):
        raise _damaged(path, "a line that is not a table")
    if text and not lines:
        raise _damaged(path, "no first line")
    if text and not text.endswith("\n"):
        _write(path, "".join(json_line(line) for line in lines), mode="w")
    return lines


def _append(path: Path, line: Mapping[str, Any]) -> None:
    _write(path, json_line(line), mode="a")


def _write(path: Path, text: str, *, mode: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open(mode, encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise StoreError(
            f"Writing the replay file '{path}'",
            found=error.strerror or str(error),
            expected="a writable folder with free space",
            remedy="Make the folder writable, or name another file.",
        ) from error


def _damaged(path: Path, found: str) -> InputError:
    return InputError(
        f"Reading the replay file '{path}'",
        found=found,
        expected=f"lines of JSON that begin with a 'replay' line ({FORMAT})",
        remedy="Name another file, or move this one aside to start again.",
    )
