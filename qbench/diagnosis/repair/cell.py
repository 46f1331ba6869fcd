"""The repair of a cell: nodes are kept in float, the cell is run and judged again."""

import glob
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import onnx_ir as ir

from qbench.diagnosis.capture import Budget
from qbench.diagnosis.repair.search import Probed, RepairSet, replayed, search_repair
from qbench.errors import InputError, UnsupportedError
from qbench.evaluation import Request, measure_request
from qbench.graph import with_shapes
from qbench.judging import FAILING, NEVER_ACCEPTED, GateState, Measurement, Repair, Verdict
from qbench.quantization import Rule, Schema, wished_units
from qbench.storage import digest_plain, table_from_value, toml_text

# Nodes kept in float: a schema with one more rule in front, and the TOML file that spells it.
#
# load_schema(path of override_text(kept_float(schema, nodes, name=stem))) == kept_float(schema, nodes, name=stem)

REASON = "kept in float by qbench localize"


def kept_float(schema: Schema, nodes: Iterable[str], *, name: str = "", reason: str = REASON) -> Schema:
    """``schema`` with ``nodes`` in float, called ``name`` (empty: as before).

    Args:
        nodes: names of operators of the planned graph as they are: what is special in patterns is escaped.
        reason: why, as ``--why`` and reports show it.
    """
    patterns = tuple(glob.escape(node) for node in nodes)
    rules = (Rule(names=patterns, reason=reason),) if patterns else ()
    return replace(schema.preceded_by(rules), name=name or schema.name)


def without_idle_rules(schema: Schema, graphs: Iterable[ir.Model]) -> Schema:
    """``schema`` without the rules that speak about no operator of ``graphs``: a rule in front may have the last word.

    Args:
        graphs: what is planned on.
    """
    wished = (wishes for graph in graphs for _, wishes in wished_units(with_shapes(graph), schema))
    spoke = {index for wishes in wished for index in wishes.rules}
    return replace(schema, rules=tuple(rule for index, rule in enumerate(schema.rules) if index in spoke))


def override_text(schema: Schema, *, comment: str = "") -> str:
    """``schema`` as a file; its name is left to the file's.

    Args:
        comment: lines at the top, without their marks.
    """
    head = "".join(f"# {line}".rstrip() + "\n" for line in comment.splitlines())
    settings = "".join(
        f"{line}\n" for line in toml_text(schema).split("\n") if line and not line.startswith(("name = ", "rules = "))
    )
    rules = [f"[[rules]]\n{toml_text(rule)}" for rule in schema.rules]
    return "\n".join(part for part in (head + settings, *rules) if part)


# A judged cell that can be run again under another schema: the same samples, reference, engine and rules.
#
# A cell is restored when no gate is broken that fails a cell whatever was accepted for it: a loss, a floor, a limit,
# equality with another backend. Whether enough of it stays in integers is another question: how much leaves them is
# told beside.


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RepeatableCell:
    """One cell with all that running and judging it takes.

    Args:
        request: as it was run; its schema is what is exchanged.
        judge: the rules that the cell was judged by, but for how much of it must be in integers.
        rules: what these rules depend on, in a word or a digest: answers under other rules are no answers here.
        integer_floor: share of multiply-accumulates that must stay in integers for the cell to count as quantized.
    """

    request: Request
    judge: Callable[[Measurement], Verdict]
    rules: str
    integer_floor: float = 0.0

    @property
    def schema(self) -> Schema:
        """What the cell is quantized by.

        Raises:
            InputError: it came quantized, or is not.
        """
        if self.request.schema is None:
            raise InputError(
                f"Repairing '{self.request.cell}'",
                found="a cell without a schema",
                expected="one that qbench quantizes: a schema is what a repair changes",
                remedy="Name the float model and a schema.",
            )
        return self.request.schema

    def measured(self, schema: Schema) -> Measurement:
        """The numbers under ``schema``; nothing that was made for another one than the cell's own is kept.

        Raises:
            QbenchError: it cannot be quantized or run so.
        """
        try:
            return measure_request(replace(self.request, schema=schema))
        finally:
            if schema != self.request.schema:
                self.request.shared.forget(schema, self.request.backend.capabilities)

    def identity(self) -> dict[str, str]:
        """What an answer depends on, as digests and names: that of a changed model is of another search."""
        request = self.request
        data = {name: digest for name, digest in self.request.shared.identity().items() if name.startswith("data:")}
        references = {name: answers.digest for name, answers in request.reference.items()}
        calibration = request.subject.calibration
        return {
            "model": self.request.shared.model_digest,
            "schema": digest_plain(table_from_value(self.schema)),
            "data": digest_plain([data, references, calibration.digest if len(calibration) else ""]),
            "backend": request.backend.name,
            "environment": str(request.environment),
            "passes": "" if request.rewriting is None else request.rewriting.digest,
            "rules": self.rules,
        }


def is_restored(verdict: Verdict) -> bool:
    """Whether ``verdict`` fails no more; what it was accepted as does not matter."""
    return not any(gate.kind in FAILING and gate.state is GateState.BROKEN for gate in verdict.gates)


# The repair of a cell: nodes are kept in float, the cell is run and judged again; the smallest set wins.

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
        return without_idle_rules(schema, self.cell.request.shared.planned(schema.canonical).values())

    @property
    def share(self) -> float:
        """What is quantized of the cell as it is."""
        schema, backend = self.cell.schema, self.cell.request.backend
        quantized = self.cell.request.shared.quantized(schema, backend.capabilities)
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
    """What a headline reports of numbers, up to the last part that is whole where its end was cut off."""
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
