"""The repair of a cell: nodes are kept in float, the cell is run and judged again; the smallest set wins."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from qbench.diagnosis.budget import Budget
from qbench.diagnosis.repairing.overrides import kept_float, override_text, without_idle_rules
from qbench.diagnosis.repairing.repeatable_cell import RepeatableCell, is_restored
from qbench.diagnosis.repairing.replay import Probed, replayed
from qbench.diagnosis.repairing.search import RepairSet, search_repair
from qbench.errors import UnsupportedError
from qbench.judging import NEVER_ACCEPTED, Repair
from qbench.quantization import Schema

_CUT = "…"
"""Ends a headline that was longer than a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRepair:
    """What was found for a cell.

    Args:
        repair: the set; its override file as text. schema: what that file spells, None where nothing restores.
        notes: what a reader should know of it. finished: whether the budget sufficed.
    """

    repair: Repair
    schema: Schema | None = None
    notes: tuple[str, ...] = ()
    finished: bool = True


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FloatProbe:
    """Runs ``cell`` with nodes in float; ``name`` is what its schema is called then."""

    cell: RepeatableCell
    name: str

    def __call__(self, nodes: frozenset[str]) -> Probed:
        """What comes of ``nodes`` in float.

        Raises:
            QbenchError: the cell cannot be measured so, for another reason than that its backend does not run it.
        """
        try:
            measured = self.cell.measured(self.schema(nodes))
        except UnsupportedError as error:
            return Probed(restored=False, said=f"not run: found {error.found}")
        verdict = self.cell.judge(measured)
        share = max(0.0, self.share - measured.planned_share)
        return Probed(restored=is_restored(verdict), macs_share=share, said=verdict.headline)

    def schema(self, nodes: frozenset[str]) -> Schema:
        """The schema that is tried."""
        schema = kept_float(self.cell.schema, sorted(nodes), name=self.name)
        return without_idle_rules(schema, self.cell.shared.planned(schema.canonical).values())

    @property
    def share(self) -> float:
        """What is quantized of the cell as it is."""
        schema, backend = self.cell.schema, self.cell.request.backend
        quantized = self.cell.shared.quantized(schema, backend.capabilities)
        return quantized.weight_macs if schema.weights_only else quantized.integer_macs


def repair_cell(
    cell: RepeatableCell,
    candidates: Sequence[str],
    budget: Budget,
    *,
    before: str,
    name: str = "",
    replay: Path | None = None,
) -> CellRepair:
    """The smallest set of ``candidates`` whose return to float restores ``cell``.

    Args:
        cell: fails. candidates: operators, the likeliest first.
        budget: in which every run of the cell must end.
        before: its verdict in words.
        name: of the schema that repairs it; empty: the cell's with ``_repaired``.
        replay: file of what was tried, for going on later; None: nothing is kept.

    Raises:
        QbenchError: the cell cannot be run again, or ``replay`` is of another search.
    """
    probe = FloatProbe(cell=cell, name=name or f"{cell.schema.name}_repaired")
    known = replayed(probe, replay, cell.identity())
    found = search_repair(candidates, lambda nodes: known(nodes).restored, budget)
    if not found.restores:
        last = known(frozenset(candidates)).said if found.finished and candidates else ""
        notes = _notes(found, last, resumable=replay is not None)
        return CellRepair(
            repair=Repair(nodes=(), restores=False, probes=found.probes), notes=notes, finished=found.finished
        )
    nodes = frozenset(found.nodes)
    tried, schema = known(nodes), probe.schema(nodes)
    verdict = f"{_whole(before)} → {_whole(tried.said)}"
    repair = Repair(
        nodes=found.nodes,
        restores=True,
        smallest=found.smallest,
        macs_share=tried.macs_share,
        probes=found.probes,
        overrides=override_text(schema, comment=_comment(cell, found, tried, verdict)),
        verdict=verdict,
    )
    notes = (
        *_notes(found, tried.said, resumable=replay is not None),
        *_below(cell.integer_floor, probe.share - tried.macs_share),
    )
    return CellRepair(repair=repair, schema=schema, notes=notes, finished=found.finished)


def _comment(cell: RepeatableCell, found: RepairSet, tried: Probed, verdict: str) -> str:
    count = "1 operator" if len(found.nodes) == 1 else f"{len(found.nodes)} operators"
    cost = f"which takes {100 * tried.macs_share:.3g} % of the multiply-accumulates out of integers"
    # A text that came from outside must not end the comment.
    return " ".join(f"{cell.request.cell} is restored by {count} in float, {cost}: {verdict}.".split())


def _whole(headline: str) -> str:
    """What a headline says of numbers, up to the last part that is whole where its end was cut off."""
    text = headline.removeprefix(NEVER_ACCEPTED)
    if not text.endswith(_CUT):
        return text
    end = max(text.rfind(mark) for mark in ("; ", ": ", ", "))
    return text if end < 0 else text[:end]


def _below(floor: float, left: float) -> tuple[str, ...]:
    """What is to be said of a repair that leaves too little in integers."""
    if left >= floor:
        return ()
    return (f"the repair leaves {100 * left:.3g} % in integers: below {100 * floor:.3g} % the cell is unsupported",)


def _notes(found: RepairSet, last: str, *, resumable: bool) -> tuple[str, ...]:
    if not found.finished:
        best = f"the best set so far has {len(found.nodes)}" if found.restores else "no set restored the verdict yet"
        more = "; the same command goes on from the replay file" if resumable else ""
        tried = "1 set" if found.probes == 1 else f"{found.probes} sets"
        return (f"the budget ran out after {tried} of nodes: {best}{more}",)
    if found.restores:
        return ()
    if not found.probes:
        return ("nothing of the cell is quantized, so that nothing can be returned to float",)
    return (f"no set of nodes restores the verdict; with all of them in float: {last}",)
