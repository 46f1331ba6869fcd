"""Where a cell went wrong, why, and what repairs it, within a budget."""

import datetime
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import onnx_ir as ir

from qbench.backends import Backend, as_backend
from qbench.diagnosis.capture import Budget, samples_that_passes_move
from qbench.diagnosis.hypotheses import OF_QPARAMS, remedy_of
from qbench.diagnosis.localize_graph import LocalizedGraph
from qbench.diagnosis.repair.cell import RepeatableCell, is_restored, repair_cell
from qbench.diagnosis.repair.search import owners_of, repair_candidates
from qbench.diagnosis.target import quantized_of, targets_of
from qbench.errors import InputError, QbenchError, require_count, require_type
from qbench.evaluation import (
    Request,
    Subject,
    SubjectArtifacts,
    environment_here,
    subject_artifacts,
)
from qbench.graph import node_key, producer, values_by_name
from qbench.judging import (
    GIVEN,
    Cause,
    Cell,
    Expectation,
    Finding,
    GateKind,
    GateState,
    Measurement,
    MovedRange,
    Repair,
    Rules,
    Suspect,
    Tolerance,
    Verdict,
    judge,
)
from qbench.quantization import Schema, as_schema
from qbench.storage import digest_plain
from qbench.subjects import Samples
from qbench.working import working

_KNOWN = 1e6
"""Score of the first node with a changed range: more than any score of a node's numbers."""


def recalibrated_first(
    suspects: Sequence[Suspect],
    moved: Sequence[MovedRange],
    graphs: Mapping[str, ir.Model],
    *,
    most: int,
) -> tuple[Suspect, ...]:
    """The first ``most`` nodes whose calibrated range differs from the accepted one, then
    ``suspects``.

    A changed range changes many later ones. So these nodes come in the order of the graph, and each
    operator once: one with a Relu or Clip also has the range of that.

    Args:
        suspects: the worst first; their evidence is added to that of the same node here.
        moved: the changed ranges in the order of the graph, by the names in measurements.
        graphs: name → float graph.
    """
    said: dict[str, list[Suspect]] = {}
    for suspect in suspects:
        said.setdefault(suspect.node, []).append(suspect)
    found = dict(list(_nodes(moved, graphs))[:most])
    first = (
        Suspect(
            node=node,
            cause=Cause.CALIBRATION,
            evidence="; ".join(
                (
                    f"accepted → calibrated now: {range_.text}",
                    *(f"{one.cause.value}: {one.evidence}" for one in said.get(node, ())),
                )
            ),
            score=_KNOWN - place,
            remedy=remedy_of(Cause.CALIBRATION),
        )
        for place, (node, range_) in enumerate(found.items())
    )
    return (*first, *(suspect for suspect in suspects if suspect.node not in found))


def _nodes(
    moved: Iterable[MovedRange], graphs: Mapping[str, ir.Model]
) -> Iterable[tuple[str, MovedRange]]:
    """(node, range) by the names of findings; each operator once. A graph input has its own
    name.
    """
    places = {}
    for name, model in graphs.items():
        prefix, owners = (f"{name}::" if len(graphs) > 1 else ""), owners_of(model)
        for value, made in values_by_name(model).items():
            maker = producer(made)
            key = value if maker is None else node_key(maker)
            places[prefix + value] = prefix + owners.get(key, key)
    found = ((places[one.value], one) for one in moved if one.value in places)
    seen = set[str]()
    for node, one in found:
        if node not in seen:
            seen.add(node)
            yield node, one


# The steps of a localization, within a budget:
#
#     targets → examined on samples, run by the task → ranked
#             → the first nodes captured, and their causes determined
#             → the smallest set of nodes in float that restores the verdict
#
# Examining takes at most half of the budget, and causes a quarter of the rest; the remaining time
# is for the repair. When the budget ends, the results so far are the finding, marked as incomplete.

SAMPLES = 64
SUSPECTS = 5
_NODES, _CAUSES = 0.5, 0.25
"""Shares of the remaining budget."""
_DRAWN = 3
"""Suspects whose values are drawn: a picture takes some kilobytes of the run file."""
_UNIT_TIMEOUT_S = 10.0
"""The least timeout of a unit alone, however little of the budget is left: a slow unit is not a
hanging one.
"""
_MOVED = 0.2
"""Share of the time for examining in which samples are searched that passes change."""
OUT_OF_BUDGET = "the budget ran out"
"""The beginning of notes about the budget, which come first."""
_PROVEN = 10_000.0
"""Added to the score of a suspect that the repair needs in float: more than the score of any
anomaly.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalizeOptions:
    """The options of a localization.

    Args:
        samples: number examined, spread over the cell's main data.
        first: names of samples to examine before others, such as those with differences; unknown
            names are skipped.
        suspects: number of nodes whose causes are determined.
        repairs: whether a repair is searched.
        replay: file of the repair's probes; None: not stored.
        override: name of the repairing schema; empty: the name of the cell's schema with
            ``_repaired``.
        output: whose noise gains are counted in; empty: all outputs.
        in_float: what the engine ran in float, as ``Measurement.executed_in_float`` has it.
    """

    samples: int = SAMPLES
    first: tuple[str, ...] = ()
    suspects: int = SUSPECTS
    repairs: bool = True
    replay: Path | None = None
    override: str = ""
    output: str = ""
    in_float: tuple[str, ...] = ()


def localize(
    subject: Subject | SubjectArtifacts,
    backend: Backend | str,
    schema: Schema | str,
    *,
    tolerance: Tolerance | None = None,
    seconds: float | None = None,
    options: LocalizeOptions | None = None,
    threads: int = 1,
) -> Finding:
    """Where ``subject`` goes wrong under ``schema`` on ``backend``, why, and what repairs it.

    Args:
        subject: what is measured, or its artifacts if several cells are.
        backend: a backend or its name.
        schema: a schema or its name.
        tolerance: allowed loss compared with a present fp32 run; None: the default.
        seconds: time limit; None: none.
        options: None: the default, with the samples that differ first.
        threads: of one engine.

    Raises:
        InputError: an argument of another type, or an impossible number.
        QbenchError: the cell cannot be measured, or one of its graphs cannot be examined at all.
    """
    if seconds is not None and not seconds >= 0:
        raise InputError(
            "Localizing in a cell",
            found=f"seconds={seconds!r}",
            expected="a number of seconds from 0, or None for no limit",
            remedy="Give the time that localizing may take.",
        )
    cell = cell_without_suite(subject, backend, schema, tolerance=tolerance, threads=threads)
    measurement = cell.measured(cell.schema)
    options = options or LocalizeOptions(
        first=samples_that_moved(measurement), in_float=measurement.executed_in_float
    )
    return localize_verdict(
        cell, cell.judge(measurement), Budget.begin(seconds, time.perf_counter), options=options
    )


def cell_without_suite(
    subject: Subject | SubjectArtifacts,
    backend: Backend | str,
    schema: Schema | str | None,
    *,
    tolerance: Tolerance | None = None,
    threads: int = 1,
) -> RepeatableCell:
    """A cell judged against a present fp32 run, which can be measured under other schemas.

    Args:
        subject, backend, tolerance, threads: as of ``localize``.
        schema: too; None: the model came quantized.

    Raises:
        InputError: an unknown name, or a model that is quantized already.
    """
    require_count("Localizing in a cell", "threads", threads)
    backend, schema = as_backend(backend), None if schema is None else as_schema(schema)
    shared = subject_artifacts(subject, backend)
    shared.require_float()
    tolerance = tolerance or Tolerance()
    remedy = "Write it as in Tolerance(0.01)."
    require_type(
        "Localizing in a cell",
        tolerance,
        Tolerance,
        expected="a qbench.judging.Tolerance",
        remedy=remedy,
    )
    rules = Rules(integer_macs=0.0, rule="qbench localize")

    def judged(measurement: Measurement) -> Verdict:
        return judge(
            measurement,
            Expectation(whole=False, stored=False),
            tolerance=tolerance,
            rules=rules,
            today=datetime.date.min,  # there is no quarantine list, so the date does not matter
        )

    return RepeatableCell(
        request=Request(
            cell=Cell(
                "localize",
                shared.subject.model.id,
                backend.name,
                GIVEN if schema is None else schema.name,
            ),
            shared=shared,
            backend=backend,
            schema=schema,
            reference=shared.reference(),
            environment=environment_here(backend),
            threads=threads,
        ),
        judge=judged,
        rules=digest_plain(
            [tolerance.numbers, rules.agreement, [use.name for use in shared.subject.metrics]]
        ),
    )


def localize_verdict(
    cell: RepeatableCell,
    verdict: Verdict,
    budget: Budget,
    *,
    options: LocalizeOptions | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Finding:
    """Where ``cell`` went wrong, why, and what repairs it.

    Args:
        cell: as it was run.
        verdict: of that run.
        budget: for the whole localization.
        progress: receives the name of each step.

    Raises:
        QbenchError: the cell is float, or one of its graphs cannot be examined at all.
    """
    with working(f"localizing {cell.request.cell}"), working(_FIRST) as stage:

        def told(name: str) -> None:
            stage.what = name
            progress(name)

        return _localized(cell, verdict, budget, options or LocalizeOptions(), told)


_FIRST = "examining the nodes"


def _localized(
    cell: RepeatableCell,
    verdict: Verdict,
    budget: Budget,
    options: LocalizeOptions,
    progress: Callable[[str], None],
) -> Finding:
    with ExitStack() as stack:
        progress(_FIRST)
        targets = targets_of(cell.request)
        several = len(targets) > 1
        graphs = [
            stack.enter_context(
                LocalizedGraph(
                    one, several=several, timeout=lambda: _timeout(budget), output=options.output
                )
            )
            for one in targets.values()
        ]
        share = budget.share(_NODES)
        moved = samples_that_passes_move(
            targets,
            cell.request.subject.model.task,
            cell.request.shared.samples(next(iter(cell.request.subject.data.values()))),
            count=options.samples // 2,
            budget=share.share(_MOVED),
        )
        first = (*options.first[: options.samples // 4], *moved, *options.first)
        enough = _examine(cell, graphs, _few(cell, options.samples, first), share)
        progress("naming causes")
        share = budget.share(_CAUSES)
        # of every graph: no short circuit
        in_time = [graph.name_causes(share, options.suspects) for graph in graphs]
        named = all(in_time)
        ranked = [one for graph in graphs for one in graph.likeliest]
        drawn = [one for graph in graphs for one in graph.distributions(budget, _DRAWN)]
        notes = [note for graph in graphs for note in (*graph.strays, *graph.notes)]
        finding = Finding(
            model=cell.request.cell.model,
            backend=cell.request.cell.backend,
            schema=cell.request.cell.schema,
            graph=", ".join(targets),
            samples=max(graph.samples for graph in graphs),
            matched="; ".join(dict.fromkeys(graph.matched for graph in graphs)),
            nodes=tuple(node for graph in graphs for node in graph.nodes),
            unaligned=tuple(value for graph in graphs for value in graph.unaligned),
            suspects=with_floats(
                _worth_saying(graphs, verdict), options.in_float, verdict, _near(graphs)
            ),
            distributions=tuple(drawn),
        )
    if not enough:
        notes.insert(0, f"{OUT_OF_BUDGET}: only {finding.samples} of the samples were examined")
    elif not named:
        notes.insert(0, f"{OUT_OF_BUDGET}: not every suspect's cause was looked for")
    notes += _beyond(graphs, finding, options.output)
    repair: Repair | None = None
    more: tuple[str, ...] = ()
    finished = True
    if options.repairs and not is_restored(verdict):
        progress("looking for a repair")
        repair, more, finished = _repaired(cell, verdict, ranked, budget, options)
        repair, more = _of_engine(graphs, repair, more)
    return replace(
        finding,
        suspects=recalibrated_first(
            _proven_first(graphs, finding.suspects, repair),
            verdict.moved,
            {name: target.original for name, target in targets.items()},
            most=options.suspects,
        ),
        repair=repair,
        notes=tuple(sorted((*notes, *more), key=lambda note: not note.startswith(OUT_OF_BUDGET))),
        complete=enough and named and finished,
        seconds=round(budget.spent, 3),
    )


_NAMED_BEYOND = 5
"""Nodes that a note on those beyond an output names."""


def _beyond(graphs: Sequence[LocalizedGraph], finding: Finding, output: str) -> Iterator[str]:
    """A sentence about the nodes that the chosen output does not depend on, the suspects first;
    none without one.
    """
    beyond = frozenset(name for graph in graphs for name in graph.beyond_output)
    order = [
        *(suspect.node for suspect in finding.suspects),
        *(node.node for node in finding.nodes),
    ]
    names = [name for name in dict.fromkeys(order) if name in beyond]
    if names:
        more = f" and {len(names) - _NAMED_BEYOND} more" if len(names) > _NAMED_BEYOND else ""
        listed = ", ".join(names[:_NAMED_BEYOND])
        yield (
            f"the output '{output}' does not depend on {listed}{more}: what is wrong there changes "
            "nothing of it"
        )


def _timeout(budget: Budget) -> float:
    """Seconds without a reply for a unit alone after which an engine is assumed to hang."""
    return max(_UNIT_TIMEOUT_S, _NODES * budget.left)


def _few(cell: RepeatableCell, count: int, first: Sequence[str]) -> Samples:
    """``count`` samples to examine: up to half of them from ``first``, the others spread over
    the data.
    """
    main = next(iter(cell.request.subject.data.values()))
    count = min(count, len(main))
    places = {name: place for place, name in enumerate(main.sample_ids)}
    named = list(dict.fromkeys(places[name] for name in first if name in places))[
        : max(count // 2, 1)
    ]
    left = [place for place in range(len(main)) if place not in frozenset(named)]
    more = count - len(named)
    chosen = [*named, *(left[place * len(left) // more] for place in range(more))]
    return cell.request.shared.samples(
        main if len(chosen) == len(main) and not named else main.pick(chosen)
    )


class _EnoughError(Exception):
    """No time for another batch; raised through the task that runs the graphs."""


def _examine(
    cell: RepeatableCell, graphs: list[LocalizedGraph], samples: Samples, budget: Budget
) -> bool:
    """Whether all samples were examined before the budget ended; the first batch always is."""

    def pace() -> None:
        if budget.is_over:
            raise _EnoughError

    runners = {graph.target.graph: graph.driven(pace) for graph in graphs}
    try:
        cell.request.subject.model.task.answer(runners, samples)
    except _EnoughError:
        return False
    return True


def _worth_saying(graphs: Sequence[LocalizedGraph], verdict: Verdict) -> tuple[Suspect, ...]:
    """The worst first; of a cell that does not fail mistakes, and qparams that do not fit their
    values.
    """
    ordered = sorted(
        (one for graph in graphs for one in graph.suspects), key=lambda one: -one.score
    )
    outstanding = frozenset(name for graph in graphs for name in graph.outstanding)
    fails = not is_restored(verdict)
    return tuple(
        one for one in ordered if fails or one.cause not in OF_QPARAMS or one.node in outstanding
    )


_FLOAT = re.compile(r"(?P<node>.+?)(?: in (?P<type>\S+)|, not reported,) \((?P<share>[^,)]*)\)")
"""An entry of ``Measurement.executed_in_float`` for a node that was planned in integers."""
_SHARE_LOST = 2_500.0
"""Score of a node in float where that is what a cell fails by: above the cost of qparams, below
any mistake.
"""


def _near(graphs: Sequence[LocalizedGraph]) -> frozenset[str]:
    """The nodes that are within a step of their arithmetic, as real arithmetic is."""
    off = frozenset(name for graph in graphs for name in graph.diverging)
    nodes = (node for graph in graphs for node in graph.nodes if node.node not in off)
    return frozenset(
        one.node for one in nodes if one.claimed is None or one.claimed.largest_steps <= 1
    )


def with_floats(
    suspects: Sequence[Suspect], in_float: Sequence[str], verdict: Verdict, near: Collection[str]
) -> tuple[Suspect, ...]:
    """``suspects`` with the nodes that the engine runs in float though they were planned in
    integers.

    Numbers of such a node that are not those of an integer arithmetic are no other mistake. The
    nodes themselves are suspects where less runs in integers than is accepted or asked for.

    Args:
        suspects: the worst first.
        in_float: as ``Measurement.executed_in_float``.
        verdict: of the cell.
        near: nodes within a step of their arithmetic; others have a mistake besides.
    """
    found = {one["node"]: one for one in map(_FLOAT.fullmatch, in_float) if one is not None}
    lacks = any(
        gate.state is GateState.BROKEN and gate.kind in (GateKind.EXECUTED, GateKind.EXECUTED_DRIFT)
        for gate in verdict.gates
    )
    by_rounding, rounded = (Cause.WRONG_KERNEL, Cause.ROUNDING), found.keys() & frozenset(near)
    told = [
        _run_in_float(found[one.node], one)
        if one.node in rounded and one.cause in by_rounding
        else one
        for one in suspects
    ]
    if lacks:
        said = {one.node for one in told if one.cause not in OF_QPARAMS}
        told = [one for one in told if one.node in said or one.node not in found]
        told += [_run_in_float(one) for node, one in found.items() if node not in said]
    return tuple(sorted(told, key=lambda one: -one.score))


def _run_in_float(found: re.Match[str], suspect: Suspect | None = None) -> Suspect:
    """The suspect that a node in float is; ``suspect`` by its numbers alone, if it was one."""
    how = f"in {found['type']}" if found["type"] else "in a way that it does not report"
    evidence = (
        f"the engine runs it {how}, planned in integers: {found['share']} of the "
        "multiply-accumulates"
    )
    return Suspect(
        node=found["node"],
        cause=Cause.IN_FLOAT,
        evidence=evidence if suspect is None else f"{evidence}; {suspect.evidence}",
        score=_SHARE_LOST if suspect is None else suspect.score,
        remedy=remedy_of(Cause.IN_FLOAT),
    )


def _proven_first(
    graphs: list[LocalizedGraph], suspects: tuple[Suspect, ...], repair: Repair | None
) -> tuple[Suspect, ...]:
    """``suspects`` with those first that the repair needs in float; their scores are raised.

    Where the watched backend is far from the engine, the nodes that the engine itself computes
    otherwise come first.
    """
    if repair is None or not repair.restores:
        return suspects
    proven = {name for graph in graphs for name in graph.carried_by(repair.nodes)}
    diverging = {name for graph in graphs for name in graph.diverging}
    more = dict.fromkeys(proven, _PROVEN) | dict.fromkeys(diverging, 2 * _PROVEN)
    raised = (replace(one, score=one.score + more.get(one.node, 0.0)) for one in suspects)
    return tuple(sorted(raised, key=lambda one: -one.score))


def _repaired(
    cell: RepeatableCell,
    verdict: Verdict,
    ranked: list[tuple[str, str]],
    budget: Budget,
    options: LocalizeOptions,
) -> tuple[Repair | None, tuple[str, ...], bool]:
    """The repair, notes on it, and whether the budget was enough."""
    if cell.request.is_by_others:
        how = "the model came quantized" if cell.request.schema is None else "another quantizer ran"
        return (
            None,
            (f"no repair was searched: {how}, so no schema can change it",),
            True,
        )
    plans = quantized_of(cell.request).plans
    candidates = repair_candidates(
        cell.request.shared.planned(cell.schema.canonical), plans, ranked
    )
    try:
        found = repair_cell(
            cell,
            candidates,
            budget,
            before=verdict.headline,
            name=options.override,
            replay=options.replay,
        )
    except QbenchError as error:
        if options.replay is not None:
            raise  # the user must know of a file of another search
        return None, (f"no repair was found: {error}",), False
    return found.repair, found.notes, found.finished


_ALL_OF_IT = 0.99
"""Share of the multiply-accumulates that leave integers from which a repair keeps everything in
float.
"""


def _of_engine(
    graphs: Sequence[LocalizedGraph], repair: Repair | None, notes: tuple[str, ...]
) -> tuple[Repair | None, tuple[str, ...]]:
    """``repair`` and ``notes``; none that keeps everything in float where the engine itself is
    the suspect.
    """
    if (
        repair is None
        or repair.macs_share < _ALL_OF_IT
        or not any(graph.strays for graph in graphs)
    ):
        return repair, notes
    return None, (
        *notes,
        "no repair: with every node in float nothing of the engine's integers is left to run",
    )


def samples_that_moved(measured: Measurement) -> tuple[str, ...]:
    """The samples known to differ: from another backend, then from the fp32 predictions."""
    compared = (
        ()
        if measured.compared is None or not measured.compared.sample
        else (measured.compared.sample,)
    )
    return (*compared, *(name for names in measured.changed.values() for name in names))
