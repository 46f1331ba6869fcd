"""The repair of a cell: it is run and judged again with nodes in float."""

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
from qbench.quantization import Rule, Schema, requested_units
from qbench.storage import digest_plain, table_from_value, toml_text

# An override keeps nodes in float: a schema with one more rule in front, and its TOML file:
#
# load_schema(path of override_text(kept_float(schema, nodes, name=stem))) == kept_float(schema,
# nodes, name=stem)

REASON = "kept in float by qbench localize"


def kept_float(
    schema: Schema, nodes: Iterable[str], *, name: str = "", reason: str = REASON
) -> Schema:
    """``schema`` with ``nodes`` in float, called ``name`` (empty: as before).

    Args:
        nodes: names of operators of the planned graph; special characters of patterns are escaped.
        reason: for ``--why`` and reports.
    """
    patterns = tuple(glob.escape(node) for node in nodes)
    rules = (Rule(names=patterns, reason=reason),) if patterns else ()
    return replace(schema.preceded_by(rules), name=name or schema.name)


def without_idle_rules(schema: Schema, graphs: Iterable[ir.Model]) -> Schema:
    """``schema`` without the rules that decide nothing for ``graphs``, since a rule in front
    decides first.

    Args:
        graphs: those for which the plan is made.
    """
    options = (one for graph in graphs for _, one in requested_units(with_shapes(graph), schema))
    used = {index for one in options for index in one.rules}
    return replace(
        schema, rules=tuple(rule for index, rule in enumerate(schema.rules) if index in used)
    )


def override_text(schema: Schema, *, comment: str = "") -> str:
    """``schema`` as the text of a TOML file, without its name, which is that of the file.

    Args:
        comment: lines at the top, without ``#``.
    """
    head = "".join(f"# {line}".rstrip() + "\n" for line in comment.splitlines())
    settings = "".join(
        f"{line}\n"
        for line in toml_text(schema).split("\n")
        if line and not line.startswith(("name = ", "rules = "))
    )
    rules = [f"[[rules]]\n{toml_text(rule)}" for rule in schema.rules]
    return "\n".join(part for part in (head + settings, *rules) if part)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RepeatableCell:
    """A judged cell that can be run again under another schema, with the same samples,
    reference, engine and rules.

    Args:
        request: as it was run; a repair changes its schema.
        judge: judges a measurement by the rules of the cell, without the least share of integer
            operations.
        rules: a digest of what these rules depend on; results under other rules are not reused.
        integer_floor: least share of multiply-accumulates in integers; below it the cell is
            unsupported.
    """

    request: Request
    judge: Callable[[Measurement], Verdict]
    rules: str
    integer_floor: float = 0.0

    @property
    def schema(self) -> Schema:
        """The schema of the cell.

        Raises:
            InputError: the model came quantized, or the cell is float.
        """
        if self.request.schema is None:
            raise InputError(
                f"Repairing '{self.request.cell}'",
                found="a cell without a schema",
                expected="a cell that qbench quantizes, since a repair changes its schema",
                remedy="Name the float model and a schema.",
            )
        return self.request.schema

    def measured(self, schema: Schema | None) -> Measurement:
        """The measurement under ``schema`` (None: as it came); artifacts of another than the
        cell's are not kept.

        Raises:
            QbenchError: it cannot be quantized or run.
        """
        try:
            return measure_request(replace(self.request, schema=schema))
        finally:
            if schema is not None and schema != self.request.schema:
                self.request.shared.forget(schema, self.request.backend.capabilities)

    def identity(self) -> dict[str, str]:
        """What a measurement depends on, as digests and names."""
        request = self.request
        data = {
            name: digest
            for name, digest in self.request.shared.identity().items()
            if name.startswith("data:")
        }
        references = {name: answers.digest for name, answers in request.reference.items()}
        calibration, hand = request.subject.calibration, self.schema.by_hand
        return {
            "model": self.request.shared.model_digest,
            "schema": digest_plain(table_from_value(self.schema)),
            **({} if hand is None else {"ranges": hand.digest}),
            "data": digest_plain(
                [data, references, calibration.digest if len(calibration) else ""]
            ),
            "backend": request.backend.name,
            "environment": str(request.environment),
            "passes": "" if request.rewriting is None else request.rewriting.digest,
            "rules": self.rules,
        }


def is_restored(verdict: Verdict) -> bool:
    """Whether no gate is broken that fails a cell by itself: a loss, a floor, a limit, equality
    with another backend.

    Accepted results do not matter, nor does the share of integer operations, which is reported
    separately.
    """
    return not any(
        gate.kind in FAILING and gate.state is GateState.BROKEN for gate in verdict.gates
    )


_CUT = "…"
"""The end of a headline that was cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRepair:
    """The result of a repair.

    Args:
        repair: the nodes, and the text of the override file.
        schema: that of the file; None: no set restores.
        notes: for the reader.
        finished: whether the budget was enough.
    """

    repair: Repair
    schema: Schema | None = None
    notes: tuple[str, ...] = ()
    finished: bool = True


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FloatProbe:
    """Runs ``cell`` with nodes in float, under a schema called ``name``."""

    cell: RepeatableCell
    name: str

    def __call__(self, nodes: frozenset[str]) -> Probed:
        """The result with ``nodes`` in float.

        Raises:
            QbenchError: the cell cannot be measured; a backend that does not support it is a
                result.
        """
        try:
            measured = self.cell.measured(self.schema(nodes))
        except UnsupportedError as error:
            return Probed(restored=False, said=f"not run: found {error.found}")
        verdict = self.cell.judge(measured)
        share = max(0.0, self.share - measured.planned_share)
        return Probed(restored=is_restored(verdict), macs_share=share, said=verdict.headline)

    def schema(self, nodes: frozenset[str]) -> Schema:
        """The schema with ``nodes`` in float."""
        schema = kept_float(self.cell.schema, sorted(nodes), name=self.name)
        return without_idle_rules(
            schema, self.cell.request.shared.planned(schema.canonical).values()
        )

    @property
    def share(self) -> float:
        """The quantized share of the multiply-accumulates of the cell without repair."""
        schema, backend = self.cell.schema, self.cell.request.backend
        quantized = self.cell.request.shared.quantized(schema, backend.capabilities)
        by_weights = schema.weights_only or schema.has_floats
        return quantized.weight_macs if by_weights else quantized.integer_macs


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
        cell: a failing cell.
        candidates: operators, the likeliest first.
        budget: for all runs of the cell.
        before: its verdict in words.
        name: of the repairing schema; empty: the name of the cell's schema with ``_repaired``.
        replay: file of the probes, to continue later; None: not stored.

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
            repair=Repair(nodes=(), restores=False, probes=found.probes),
            notes=notes,
            finished=found.finished,
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
    # One line, since a text from outside must not end the comment.
    return " ".join(
        f"{cell.request.cell} is restored by {count} in float, {cost}: {verdict}.".split()
    )


def _whole(headline: str) -> str:
    """A headline without its prefix; of a headline that was cut, the complete parts."""
    text = headline.removeprefix(NEVER_ACCEPTED)
    if not text.endswith(_CUT):
        return text
    end = max(text.rfind(mark) for mark in ("; ", ": ", ", "))
    return text if end < 0 else text[:end]


def _below(floor: float, left: float) -> tuple[str, ...]:
    """A note on a repair that leaves too little in integers."""
    if left >= floor:
        return ()
    return (
        f"the repair leaves {100 * left:.3g} % in integers: below {100 * floor:.3g} % the cell is "
        "unsupported",
    )


def _notes(found: RepairSet, last: str, *, resumable: bool) -> tuple[str, ...]:
    if not found.finished:
        best = (
            f"the best set so far has {len(found.nodes)}"
            if found.restores
            else "no set restored the verdict yet"
        )
        more = "; the same command continues from the replay file" if resumable else ""
        tried = "1 set" if found.probes == 1 else f"{found.probes} sets"
        return (f"the budget ran out after {tried} of nodes: {best}{more}",)
    if found.restores:
        return ()
    if not found.probes:
        return ("nothing of the cell is quantized, so no node can be returned to float",)
    return (f"no set of nodes restores the verdict; with all of them in float: {last}",)
