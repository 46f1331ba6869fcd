"""A proof as a table: which kinds of faults a suite lets through, for the terminal, Markdown and
the page.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qbench.number_text import counted, percent
from qbench.reporting.markdown import code, escaped, markdown_table
from qbench.storage import plain
from qbench.tracking import (
    Caught,
    FaultTally,
    Proof,
    ProofCell,
    ProofRemedy,
    ProofTrial,
    TrialState,
    caught_of,
    remedies_of,
    tally_faults,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofTable:
    """What a proof shows.

    Args:
        suite: its name.
        caught: of all trials whose fault changed something.
        tallies: of each kind that was tried, the weakest first.
        what: kind of fault → what it does, in a sentence.
        by_model, by_stage, by_gate: how many trials of each were caught; by which gates.
        remedies: what would catch how many of those that were let through, the most first.
        let_through, no_effect: how many trials.
        of_class: how many nothing caught but what was accepted for one class of environments.
        cells: all of them; ``green`` of them were used, ``left_out`` are red or do not run.
        not_put: places at which a fault itself failed: they are no trials.
        untried: kinds that were not tried once. unfit: kinds that no cell has a place for.
        lacking: shares without results or without an end, in words.
        repeated: trials with two results.
        floor: the least share to be caught; None: none was asked for.
    """

    suite: str
    caught: Caught
    tallies: tuple[FaultTally, ...]
    what: Mapping[str, str]
    by_model: Mapping[str, Caught]
    by_stage: Mapping[str, Caught]
    by_gate: Mapping[str, int]
    remedies: tuple[tuple[ProofRemedy, int], ...]
    let_through: int
    no_effect: int
    of_class: int
    cells: int
    green: int
    left_out: tuple[ProofCell, ...]
    not_put: tuple[ProofTrial, ...] = ()
    untried: tuple[str, ...] = ()
    unfit: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()
    repeated: tuple[str, ...] = ()
    floor: float | None = None

    @property
    def proves_nothing(self) -> bool:
        """Whether no fault changed anything, so that there is no share."""
        return self.caught.share is None

    @property
    def is_below(self) -> bool:
        """Whether less was caught than ``floor``; False where nothing was tried."""
        share = self.caught.share
        return self.floor is not None and share is not None and share < self.floor

    @property
    def trials(self) -> int:
        """All of them."""
        return sum(tally.trials for tally in self.tallies)


def proof_table(
    proof: Proof,
    what: Mapping[str, str],
    *,
    untried: tuple[str, ...] = (),
    lacking: tuple[str, ...] = (),
    floor: float | None = None,
) -> ProofTable:
    """The table of ``proof``."""
    # a kind that is pending may have its place in another share
    placed = {trial.fault for trial in proof.trials} | {*untried, *proof.pending}
    kinds = {kind: None for one in proof.starts for kind in (*one.kinds, *one.unfit)}
    left_out = tuple(one for one in proof.cells.values() if one.is_left_out)
    return ProofTable(
        suite=next((one.suite for one in proof.starts), ""),
        caught=caught_of(proof.trials),
        tallies=tally_faults(proof),
        what=what,
        by_model=_grouped(proof, lambda trial: trial.cell.partition("::")[0]),
        by_stage=_grouped(proof, lambda trial: trial.stage),
        by_gate=_gates(proof),
        remedies=remedies_of(proof.trials),
        let_through=sum(one.state is TrialState.LET_THROUGH for one in proof.trials),
        no_effect=sum(one.state is TrialState.NO_EFFECT for one in proof.trials),
        of_class=sum(one.needs_class for one in proof.trials),
        cells=len({name for one in proof.starts for name in one.cells}),
        green=sum(one.is_green is True for one in proof.cells.values()),
        left_out=left_out,
        not_put=tuple(one for one in proof.trials if not one.is_made),
        untried=untried,
        unfit=tuple(kind for kind in kinds if kind not in placed),
        lacking=lacking,
        repeated=proof.repeated,
        floor=floor,
    )


def _grouped(proof: Proof, key: Callable[[ProofTrial], str]) -> dict[str, Caught]:
    groups: dict[str, list[ProofTrial]] = {}
    for trial in proof.trials:
        groups.setdefault(key(trial), []).append(trial)
    return {name: caught_of(several) for name, several in sorted(groups.items())}


def _gates(proof: Proof) -> dict[str, int]:
    """Kind of gate → how many faults it shows, the most first."""
    counts: dict[str, int] = {}
    for trial in proof.trials:
        for gate in trial.gates:
            counts[gate] = counts.get(gate, 0) + 1
    return dict(sorted(counts.items(), key=lambda one: (-one[1], one[0])))


# As text.


def caught_text(caught: Caught) -> str:
    """``7 of 9``; ``–`` where nothing was changed."""
    return f"{caught.count} of {caught.n}" if caught.n else "–"


def interval_text(caught: Caught) -> str:
    """``45 to 94 %``: the 95 % interval of the share."""
    if not caught.n:
        return ""
    low, high = caught.interval
    return f"{percent(low, 0).removesuffix(' %')} to {percent(high, 0)}"


def share_sentence(table: ProofTable) -> str:
    """``caught 380 of 392 faults that changed something: 96.9 % (95 % interval 95 to 98 %)``."""
    caught = table.caught
    if not table.trials:
        return "nothing was proven: no trial was made"
    if caught.share is None:
        return "nothing was proven: no fault that was tried changed anything"
    text = (
        f"caught {caught.count} of {counted(caught.n, 'fault')} that changed something: "
        f"{percent(caught.share, 1)} (95 % interval {interval_text(caught)})"
    )
    if table.floor is None:
        return text
    word = "below" if table.is_below else "at or above"
    return f"{text}, {word} the floor of {percent(table.floor, 1)}"


def remedy_text(tally: FaultTally) -> str:
    """``an equality gate (2 of 2), a stricter tolerance (1 of 2)``."""
    if not tally.let_through:
        return ""
    out_of = len(tally.let_through)
    named = [f"{one.name} ({count} of {out_of})" for one, count in tally.remedies]
    return ", ".join(named) or "nothing that was tried"


def how_text(remedy: ProofRemedy) -> str:
    """Whether it was tried."""
    return "tried" if remedy.tried else "computed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofColumn:
    """One column: its ``heading``, the ``text`` of a row, and the number that a page sorts by."""

    heading: str
    text: Callable[[FaultTally], str]
    key: Callable[[FaultTally], float] | None = None


PROOF_COLUMNS = (
    ProofColumn(heading="fault", text=lambda one: one.fault),
    ProofColumn(heading="stage", text=lambda one: one.stage),
    ProofColumn(
        heading="caught",
        text=lambda one: caught_text(one.caught),
        key=lambda one: -1.0 if one.caught.share is None else one.caught.share,
    ),
    ProofColumn(heading="95 % interval", text=lambda one: interval_text(one.caught)),
    ProofColumn(
        heading="no effect",
        text=lambda one: str(one.no_effect or ""),
        key=lambda one: one.no_effect,
    ),
    ProofColumn(
        heading="no place",
        text=lambda one: str(one.unfit or ""),
        key=lambda one: one.unfit,
    ),
    ProofColumn(heading="what would catch it", text=remedy_text),
)


def proof_notes(table: ProofTable) -> tuple[str, ...]:
    """What limits what the table says, a sentence each."""
    notes = [f"not complete: {words}" for words in table.lacking]
    if table.untried:
        notes.append(f"not every kind was tried once; missing: {', '.join(table.untried)}")
    if table.of_class:
        notes.append(
            f"{table.of_class} of the {table.caught.count} were caught by nothing but the accepted "
            "results of this class of environments: --new-class shows what is let through where "
            "there are none, as after an upgrade of the engine"
        )
    notes += _left_out(table.left_out)
    notes += _not_put(table.not_put)
    if table.unfit:
        notes.append(f"no cell has a place for: {', '.join(table.unfit)}")
    return (*notes, *table.repeated)


def _left_out(cells: Sequence[ProofCell]) -> Iterator[str]:
    """A sentence for each outcome of cells that were not used, with their names and why."""
    for outcome in dict.fromkeys(one.outcome for one in cells):
        same = [one for one in cells if one.outcome == outcome]
        named = "; ".join(f"{one.cell} ({one.headline})" for one in same[:_NAMED])
        more = f"; and {len(same) - _NAMED} more" if len(same) > _NAMED else ""
        yield f"{counted(len(same), 'cell')} left out, {outcome} without a fault: {named}{more}"


def _not_put(places: Sequence[ProofTrial]) -> Iterator[str]:
    """A sentence for each kind and each reason why it could not be put."""
    counts = Counter((one.fault, one.headline) for one in places)
    for (fault, reason), count in counts.items():
        yield f"{fault} could not be put at {counted(count, 'place')}: {reason}"


_NAMED = 30
"""Cells of one outcome that are named; ``--json`` names all."""


def proof_facts(table: ProofTable) -> dict[str, Any]:
    """All facts as plain values, for ``--json``."""
    return {
        "suite": table.suite,
        "caught": _caught_facts(table.caught),
        "floor": table.floor,
        "trials": table.trials,
        "let_through": table.let_through,
        "no_effect": table.no_effect,
        "not_put": [
            {"fault": one.fault, "cell": one.cell, "sites": list(one.sites), "reason": one.headline}
            for one in table.not_put
        ],
        "caught_by_class_alone": table.of_class,
        "cells": table.cells,
        "green": table.green,
        "left_out": [
            {"cell": one.cell, "outcome": one.outcome, "headline": one.headline}
            for one in table.left_out
        ],
        "untried": list(table.untried),
        "lacking": list(table.lacking),
        "not_applicable": list(table.unfit),
        "repeated": list(table.repeated),
        "by_model": {name: _caught_facts(one) for name, one in table.by_model.items()},
        "by_stage": {name: _caught_facts(one) for name, one in table.by_stage.items()},
        "by_gate": dict(table.by_gate),
        "remedies": [_remedy_facts(*one) for one in table.remedies],
        "faults": [
            {
                "fault": one.fault,
                "stage": one.stage,
                **_caught_facts(one.caught),
                "no_effect": one.no_effect,
                "not_put": one.not_put,
                "cells_without_place": one.unfit,
                "remedies": [_remedy_facts(*remedy) for remedy in one.remedies],
                "let_through": [
                    {
                        "cell": trial.cell,
                        "sites": list(trial.sites),
                        "headline": trial.headline,
                        "remedies": [plain(remedy) for remedy in trial.remedies],
                    }
                    for trial in one.let_through
                ],
            }
            for one in table.tallies
        ],
    }


def _caught_facts(caught: Caught) -> dict[str, Any]:
    low, high = caught.interval
    return {"caught": caught.count, "of": caught.n, "share": caught.share, "interval": [low, high]}


def _remedy_facts(remedy: ProofRemedy, count: int) -> dict[str, Any]:
    facts: dict[str, Any] = plain(remedy)
    return {**facts, "catches": count}


def proof_markdown(table: ProofTable) -> str:
    """The table in Markdown."""
    lines = [
        f"# What suite {escaped(table.suite)} lets through",
        "",
        f"{escaped(share_sentence(table)).capitalize()}.",
        f"{counted(table.trials, 'trial')} of {counted(len(table.tallies), 'kind')} of faults in "
        f"{table.green} of {counted(table.cells, 'cell')}; {table.no_effect} had no effect on "
        "these samples.",
        "",
    ]
    if table.tallies:
        heads = [column.heading for column in PROOF_COLUMNS]
        rows = (
            [
                code(column.text(one)) if column.heading == "fault" else escaped(column.text(one))
                for column in PROOF_COLUMNS
            ]
            for one in table.tallies
        )
        lines += [markdown_table(heads, len(heads), rows), ""]
    lines += _group_lines("model", table.by_model)
    if table.remedies:
        lines += ["What would catch what was let through:", ""]
        lines += [
            f"- {escaped(one.name)}: {count} of {table.let_through} ({how_text(one)}), "
            f"for instance {code(one.setting)}"
            for one, count in table.remedies
        ]
        lines.append("")
    lines += [f"- {escaped(note)}" for note in proof_notes(table)]
    return "\n".join(lines).rstrip() + "\n"


def _group_lines(name: str, groups: Mapping[str, Caught]) -> list[str]:
    rows = (
        [code(key), escaped(caught_text(one)), escaped(interval_text(one))]
        for key, one in groups.items()
    )
    heads = (name, "caught", "95 % interval")
    return [markdown_table(heads, len(heads), rows), ""] if groups else []
