"""The localization of one graph of a cell, and passes that changed numbers against their
promise.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import cached_property, partial

import onnx_ir as ir

from qbench.backends import (
    Array,
    Closing,
    Feeds,
    Timeout,
    arithmetic_of,
    in_slices,
    isolated,
    no_timeout,
)
from qbench.calibration import Rows
from qbench.diagnosis.capture import Budget, Capturing, KeptFeeds
from qbench.diagnosis.distributions import distributions_of_units
from qbench.diagnosis.engine.client import filled_up, rows_of_runs
from qbench.diagnosis.engine.departure import Departure, first_departure
from qbench.diagnosis.examine import Examination, Examined, each_gain
from qbench.diagnosis.hypotheses import OF_QPARAMS, NamedCause, name_cause, remedy_of
from qbench.diagnosis.rank import (
    AnomalyKind,
    RankedNode,
    gains_nothing,
    is_outstanding,
    rank_nodes,
    with_gains,
)
from qbench.diagnosis.repair.search import owners_of
from qbench.diagnosis.tallies import CountingTally
from qbench.diagnosis.target import Matched, Target, bound_of
from qbench.diagnosis.unit_runs import exact_run
from qbench.diagnosis.units import Captured, whole_unit
from qbench.graph import PRODUCTS, node_key, values_by_name
from qbench.judging import (
    Cause,
    CountingErrors,
    NodeErrors,
    Suspect,
    Unaligned,
    ValueDistribution,
)
from qbench.metrics import Differences, unequal
from qbench.number_text import steps_text
from qbench.numerics import Arithmetic
from qbench.passes import BrokenRegion, Effect, EffectKind, Pass, broken_regions, run_pipeline

# Passes after the quantizer that changed numbers against their promise, and the first values that
# show it:
#
#     graph of the quantizer ── pass ──→ graph ── pass ──→ graph that is run
#     each compared with the one before
#
# Both graphs of a pass run region by region on the values of the graph before it. This needs
# neither fp32 nor a declared arithmetic. So it also shows changes that bring a value nearer to
# fp32, or hardly change the outputs.


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BrokenPass:
    """A value that a pass changed against its promise.

    Args:
        name, effect: of the pass.
        region: the region that computes the value, before and after the pass.
        before, after: the results of both on the target's watched backend.
        counted: their difference.
    """

    name: str
    effect: Effect
    region: BrokenRegion
    before: Array
    after: Array
    counted: CountingErrors

    @property
    def codes(self) -> str:
        """The value."""
        return self.region.region.output

    @property
    def sentence(self) -> str:
        """The change in one sentence."""
        found = self.counted
        return (
            f"the pass '{self.name}' promises to be {self.effect}, and moves {found.differing} of "
            f"{found.elements} codes here, by {steps_text(found.largest_steps)} at most"
        )

    @property
    def remedy(self) -> str:
        """What to do about it."""
        return (
            f"Remove the pass '{self.name}' from this cell, or fix it; 'qbench rewrite --check' "
            "tests its promise."
        )

    def captured(self, errors: NodeErrors) -> Captured | None:
        """The value with the result before the pass as the expected one; None: its unit cannot
        be extracted.
        """
        region = self.region.region
        unit = whole_unit(region.before, region.output)
        if unit is None:
            return None
        feeds = {name: self.region.feeds[name] for name in unit.feeds}
        with exact_run(unit.graph, (unit.real,)) as run:
            real = unit.in_steps({**feeds, **run.run(feeds)})
        return Captured(
            unit=unit,
            errors=errors,
            feeds=feeds,
            found=self.after,
            again=self.after,
            real=real,
            fed=feeds,
            isolated=self.after,
            expected=unit.reals(self.before),
        )


def broken_passes(target: Target, feeds: Feeds, budget: Budget) -> Mapping[str, BrokenPass]:
    """Quantized value → the pass that broke its promise there; empty if no pass ran, or no
    output changes.

    Args:
        target: its watched backend runs the graphs.
        feeds: samples of its float graph.
        budget: when it is over, further passes are not examined.

    Raises:
        QbenchError: a backend does not run a graph, or a pass fails.
    """
    if target.written is None or target.rewriting is None:
        return {}
    feeds = filled_up(target.original, feeds)
    if _agree(target, target.written, feeds):
        return {}
    found: dict[str, BrokenPass] = {}
    for pass_, before, after in _changes(target):
        if pass_.effect.kind is EffectKind.LOSSY or budget.is_over:
            continue
        for region in broken_regions(
            pass_.effect, before, after, partial(_seen, target, before, feeds)
        ):
            one = _broken(target, pass_, region)
            if one is not None:
                found.setdefault(one.codes, one)
    return found


def _changes(target: Target) -> list[tuple[Pass, ir.Model, ir.Model]]:
    """Every change of the graph by a pass, in order, with the graphs before and after it."""
    found: list[tuple[Pass, ir.Model, ir.Model]] = []

    def note(one: Pass, before: ir.Model, after: ir.Model, _: bool) -> None:
        found.append((one, before, after.clone()))

    assert target.written is not None
    assert target.rewriting is not None
    run_pipeline(target.written, target.rewriting.pipeline, target.rewriting.policy, note)
    return found


def _agree(target: Target, written: ir.Model, feeds: Feeds) -> bool:
    """Whether the outputs are the same bit for bit, with the passes and without."""
    engine = isolated(target.watched)
    with ExitStack() as stack:
        ours, theirs = (
            in_slices(
                stack.enter_context(engine.prepare(model, threads=target.threads)), model
            ).run(feeds)
            for model in (target.quantized, written)
        )
    return not any(unequal(ours[name], theirs[name]).any() for name in ours)


def _seen(
    target: Target, model: ir.Model, feeds: Feeds, names: tuple[str, ...]
) -> dict[str, Array]:
    known = {*feeds, *(str(value.name) for value in model.graph.outputs)}
    taps = tuple(name for name in names if name not in known)
    with isolated(target.watched).prepare(model, taps=taps, threads=target.threads) as executor:
        return {**feeds, **in_slices(executor, model).run(feeds)}


def _broken(target: Target, pass_: Pass, broken: BrokenRegion) -> BrokenPass | None:
    """The change of a region; None: the results are equal on the watched backend, or have
    different shapes.
    """
    region, feeds, engine = broken.region, broken.feeds, isolated(target.watched)
    with ExitStack() as stack:
        before, after = (
            stack.enter_context(engine.prepare(model, threads=target.threads)).run(feeds)[
                region.output
            ]
            for model in (region.before, region.after)
        )
    if before.shape != after.shape:
        return None
    tally = CountingTally()
    tally.add(after, before, None)
    counted = tally.errors()
    if not counted.differing:
        return None
    return BrokenPass(
        name=pass_.name,
        effect=pass_.effect,
        region=broken,
        before=before,
        after=after,
        counted=counted,
    )


_GRAVITY = 1000.0
"""The distance between the scores of two kinds of anomaly: a crash comes before any rounding."""
NOT_LOOKED_FOR = "its cause was not looked for"
"""The end of the evidence of a suspect whose cause was not searched for lack of time."""
_SAMPLES = 2
"""Samples on which gains of single nodes are measured: each gain costs a part of a run."""


class LocalizedGraph(Closing):
    """The examination of one graph, its ranked nodes and their causes; a context manager that
    closes its engines.

    ``notes`` are sentences for the reader; ``suspects`` is set by ``name_causes``. With ``several``
    graphs names of nodes begin with the name of the graph. ``timeout`` is that of one run of a unit
    alone. Gains are counted in the noise of ``output``, or of all outputs where it is empty.
    """

    def __init__(
        self, target: Target, *, several: bool, timeout: Timeout = no_timeout, output: str = ""
    ) -> None:
        self.target = target
        self._output = output
        self._timeout = timeout
        self.suspects: tuple[Suspect, ...] = ()
        self.notes: list[str] = []
        self._prefix = f"{target.graph}::" if several else ""
        self._stack = ExitStack()
        self._examination = self._stack.enter_context(Examination(target, timeout=timeout))
        self._kept = KeptFeeds(Rows.of(target.original))
        self._batches = 0
        self._gains: dict[str, float] = {}
        self._broken: Mapping[str, BrokenPass] = {}
        self._departure: Departure | None = None

    def driven(self, pace: Callable[[], None]) -> "_Driven":
        """The executor that a task runs in place of the float graph; ``pace`` is called before
        every later batch.
        """
        return _Driven(self, pace)

    def run(self, feeds: Feeds, pace: Callable[[], None]) -> dict[str, Array]:
        """Examine one batch."""
        if self._batches:
            pace()
        self._batches += 1
        self._kept.add(feeds)
        return self._examination.run(feeds)

    @property
    def samples(self) -> int:
        """The number of examined samples."""
        return self._examination.samples

    @cached_property
    def _counted(self) -> Examined:
        return self._examination.examined()

    @property
    def _examined(self) -> Examined:
        broken = {codes: one.counted.rms_steps for codes, one in self._broken.items()}
        return with_gains(replace(self._counted, broken=broken), self._gains)

    @property
    def ranked(self) -> tuple[RankedNode, ...]:
        """The anomalous nodes."""
        return rank_nodes(self._examined)

    @property
    def likeliest(self) -> tuple[tuple[str, str], ...]:
        """(graph, node): the ranked ones, then the others by the gain of the outputs and by
        their own noise.
        """
        ranked = [one.node for one in self.ranked]
        others = sorted(self._examined.nodes, key=_noisiness)
        return tuple(dict.fromkeys((self.target.graph, node.node) for node in (*ranked, *others)))

    def carried_by(self, operators: Collection[str]) -> Iterator[str]:
        """The nodes of ``operators`` with their biases and clips, by their names in ``nodes``."""
        owners = owners_of(self.target.original)
        return (self._prefix + node for node, owner in owners.items() if owner in operators)

    @property
    def nodes(self) -> tuple[NodeErrors, ...]:
        """The numbers of all nodes."""
        return tuple(replace(node, node=self._prefix + node.node) for node in self._examined.nodes)

    @property
    def beyond_output(self) -> frozenset[str]:
        """The nodes whose values do not reach the chosen output, by their names in ``nodes``;
        none for all outputs.
        """
        known = values_by_name(self.target.quantized)
        if self._output not in known:
            return frozenset()
        reached, waiting = set[str](), [known[self._output]]
        while waiting:
            value = waiting.pop()
            if str(value.name) not in reached:
                reached.add(str(value.name))
                maker = value.producer()
                waiting += [] if maker is None else [one for one in maker.inputs if one is not None]
        reach = {node.node for node in self._counted.nodes if node.codes in reached}
        return frozenset(
            self._prefix + node.node for node in self._counted.nodes if node.node not in reach
        )

    @property
    def unaligned(self) -> tuple[Unaligned, ...]:
        """The values without a counterpart in fp32."""
        found = self._counted.unaligned
        return tuple(Unaligned(value=self._prefix + one.value, reason=one.reason) for one in found)

    @property
    def _relation(self) -> Matched:
        """The outputs of the watched backend compared with those of the engine."""
        outputs, samples = self._counted.outputs, self.samples
        return Matched(
            engine=self.target.backend.name,
            watched=self.target.watched.name,
            samples=0 if outputs is None else samples,
            found=outputs or Differences(),
        )

    @property
    def matched(self) -> str:
        """The outputs of the watched backend compared with those of the engine, in one sentence."""
        return self._relation.sentence

    @property
    def strays(self) -> tuple[str, ...]:
        """A warning where the watched backend is so far from the engine that its numbers may
        not hold for it.
        """
        found = self._relation
        if not found.strays:
            return ()
        return (
            f"WARNING: '{found.watched}' is watched, and its outputs are not those of "
            f"'{found.engine}' ({bound_of(found.found)}): the numbers of the whole run may not "
            "hold for the engine; the units that the engine itself computes otherwise come first",
        )

    @property
    def diverging(self) -> frozenset[str]:
        """Where the watched backend strays, the nodes that the engine itself computes otherwise."""
        if not self._relation.strays:
            return frozenset()
        own = (AnomalyKind.CRASH, AnomalyKind.COUNTING)
        first = [] if self._departure is None else [self._prefix + self._departure.unit.node]
        return frozenset(
            [*first, *(self._prefix + one.node.node for one in self.ranked if one.excess in own)]
        )

    def name_causes(self, budget: Budget, count: int) -> bool:
        """Determine the causes of the first ``count`` ranked nodes; whether there was time for
        all of them.

        A node that is not reached in time, or fails, becomes a suspect with its numbers only.
        """
        # its numbers stay; its engines need no memory next to those of captures
        self._examination.close()
        if not self._kept.joined:
            return False
        self._try_passes(budget)
        measured = self._measure_gains(budget)
        chosen = _each_node_once(self.ranked)[:count]
        named = self._named(chosen, budget)
        self.suspects = tuple(
            self._suspect(one, place, named[place] if place < len(named) else None)
            for place, one in enumerate(chosen)
        )
        self._suspect_engine(budget)
        return measured and len(named) == len(chosen)

    def distributions(self, budget: Budget, count: int) -> tuple[ValueDistribution, ...]:
        """The values and weights of the first ``count`` suspects, on the samples that were kept;
        empty where there is no time.
        """
        if budget.is_over or not self._kept.joined:
            return ()
        places = {suspect.node: place for place, suspect in enumerate(self.suspects[:count])}
        by_value = self._examination.units.by_value
        names = {
            node.codes: node.node
            for node in self._counted.nodes
            if self._prefix + node.node in places and node.codes in by_value
        }
        units = sorted(
            (by_value[codes] for codes in names),
            key=lambda unit: places[self._prefix + names[unit.value]],
        )
        if not units:
            return ()
        feeds = filled_up(self.target.original, self._kept.joined)
        try:
            return tuple(distributions_of_units(self.target, units, names, feeds))
        except Exception as error:  # the other results are reported
            self.notes.append(f"the values of suspects could not be drawn: {_failure(error)}")
            return ()

    def _named(self, chosen: Sequence[RankedNode], budget: Budget) -> list[NamedCause]:
        """The causes of ``chosen``, until the time is spent."""
        named: list[NamedCause] = []
        if not chosen or budget.is_over:
            return named
        correct = arithmetic_of(self.target.claims or self.target.backend)
        nodes = [one.node for one in chosen]
        try:
            units = self._examination.units
            feeds = self._kept.joined
            crashes = self._counted.crashes
            with Capturing(self.target, units, nodes, feeds, self._timeout) as capturing:
                for node in nodes:
                    if budget.is_over:
                        break
                    crash = crashes.get(node.codes)  # do not crash the engine again
                    named.append(
                        NamedCause(cause=Cause.CRASH, evidence=crash, weight=1.0)
                        if crash
                        else self._cause(node, capturing, correct)
                    )
        except Exception as error:  # the numbers of the nodes are reported without causes
            self.notes.append(f"suspects could not be captured: {_failure(error)}")
            return [_UNNAMED] * len(chosen)
        return named

    def _cause(
        self, node: NodeErrors, capturing: Capturing, correct: Arithmetic | None
    ) -> NamedCause:
        try:
            named = name_cause(capturing.of(node), correct, original=self.target.original)
            if named.cause is Cause.WRONG_KERNEL and capturing.runs_in_parts:
                alone = name_cause(
                    capturing.of(node, one_run=True), correct, original=self.target.original
                )
                named = alone if alone.is_mistake else named
            if (
                node.codes in self._broken
                and self._broken[node.codes].codes == node.codes
                and not named.is_mistake
            ):
                named = self._by_pass(node, correct) or named
        except Exception as error:  # one unit that fails must not prevent the causes of others
            self.notes.append(f"{self._prefix}{node.node} could not be captured: {_failure(error)}")
            return _UNNAMED
        self.notes += (f"{self._prefix}{node.node}: {note}" for note in named.notes)
        return named

    def _by_pass(self, node: NodeErrors, correct: Arithmetic | None) -> NamedCause | None:
        """The cause of the difference from the graph before a pass; None: no known rule
        explains it.
        """
        captured = self._broken[node.codes].captured(node)
        named = None if captured is None else name_cause(captured, correct)
        return named if named is not None and named.is_mistake else None

    def _try_passes(self, budget: Budget) -> None:
        """Compare the passes of the cell, if any, with their promises."""
        if self.target.rewriting is None or budget.is_over:
            return
        try:
            self._broken = self._by_unit(broken_passes(self.target, self._kept.joined, budget))
        except Exception as error:  # the other results are reported
            self.notes.append(f"the changes of passes could not be examined: {_failure(error)}")

    def _by_unit(self, found: Mapping[str, BrokenPass]) -> Mapping[str, BrokenPass]:
        """``found`` by the units that differ from fp32, where a region of a pass holds several
        units.

        Regions end at quantized values, units also at real results of products: of weights that
        alone are quantized.
        """
        nodes = {node.codes: node for node in self._counted.nodes}
        placed: dict[str, BrokenPass] = {}
        for codes, one in found.items():
            inside = {node_key(node) for node in one.region.region.before.graph}
            units = [node for node in nodes.values() if node.node in inside]
            changed = (
                [node.codes for node in units if node.codes in self._deviating]
                if len(units) > 1
                else []
            )
            placed |= dict.fromkeys(changed or [codes], one)
        return placed

    def _suspect_engine(self, budget: Budget) -> None:
        """Where the watched backend strays, put the node first at which the engine's values
        leave it.
        """
        if not self._relation.strays or budget.is_over:
            return
        units, target = self._examination.units.units, self.target
        try:
            found = first_departure(
                target,
                units,
                self._kept.joined,
                timeout=self._timeout,
                is_over=lambda: budget.is_over,
            )
        except Exception as error:  # the other suspects are reported
            self.notes.append(f"the engine's sections could not be run: {_failure(error)}")
            return
        if found is None:
            return
        self._departure, node = found, self._prefix + found.unit.node
        own = next(
            (one for one in self.suspects if one.node == node and one.cause not in OF_QPARAMS), None
        )
        said = _departed(found, target.backend.name, target.watched.name)
        first = Suspect(
            node=node,
            cause=Cause.WRONG_KERNEL if own is None else own.cause,
            evidence=said if own is None else f"{own.evidence}; {said}",
            score=_GRAVITY * (len(AnomalyKind) + 1),
            remedy=_OTHER_ENGINE.format(engine=target.backend.name) if own is None else own.remedy,
        )
        self.suspects = (first, *(one for one in self.suspects if one.node != node))

    @property
    def outstanding(self) -> frozenset[str]:
        """The nodes whose qparams cost more than fitted ones, by their names in
        ``nodes``.
        """
        examined = self._examined
        return frozenset(
            self._prefix + node.node for node in examined.nodes if is_outstanding(node, examined)
        )

    @property
    def _deviating(self) -> frozenset[str]:
        """The values whose graph is not that of fp32."""
        return frozenset(
            one.node.codes for one in rank_nodes(self._counted) if one.excess is AnomalyKind.GRAPH
        )

    def _measure_gains(self, budget: Budget) -> bool:
        """Measure the gain of the outputs by single nodes in float; whether there was time for
        all.
        """
        if budget.is_over:
            return False
        try:
            with closing(
                each_gain(self.target, self._examination.units, self._few(), output=self._output)
            ) as gains:
                for value, gain in gains:
                    self._gains[value] = gain
                    if budget.is_over:
                        return False
        except Exception as error:  # the gains so far are kept
            self.notes.append(f"gains of single nodes could not be measured: {_failure(error)}")
        return True

    def _few(self) -> Feeds:
        """Some of the kept samples."""
        rows = rows_of_runs(self.target.original)
        rows, feeds = rows if rows.size > 1 else replace(rows, size=_SAMPLES), self._kept.joined
        _, _, first = next(rows.parts(feeds, rows.count(feeds)))
        return first

    def _suspect(self, one: RankedNode, place: int, named: NamedCause | None) -> Suspect:
        """The suspect in ``place``; ``named`` None: there was no time for its cause."""
        broken = self._broken.get(one.node.codes) if one.excess is AnomalyKind.PASS else None
        cause, evidence = _cause_of(named, broken)
        differs = self._differs(one, named)
        if cause is None or (cause is Cause.WRONG_KERNEL and not differs):
            cause, evidence = self._numbers(one, differs=differs)
        return Suspect(
            node=self._prefix + one.node.node,
            cause=cause,
            evidence=f"{evidence}; {NOT_LOOKED_FOR}" if named is None else evidence,
            score=_GRAVITY * (len(AnomalyKind) - one.excess) - place,
            remedy=_remedy(one, cause, named, broken),
        )

    def _differs(self, one: RankedNode, named: NamedCause | None) -> bool:
        """Whether the engine gave other values than its arithmetic, or than real arithmetic
        where it declares none.

        An integer interpreter that must equal no other is its own arithmetic: there only a capture
            can prove it wrong.
        """
        found, target = one.node.claimed, self.target
        if found is not None:
            return found.differing > 0
        if named is not None and named.cause is Cause.WRONG_KERNEL:
            return True
        is_own = target.is_watched_itself and arithmetic_of(target.backend) is not None
        return not is_own and one.excess in (AnomalyKind.COUNTING, AnomalyKind.TRACE)

    def _numbers(self, one: RankedNode, *, differs: bool) -> tuple[Cause, str]:
        """The cause and evidence from the kind of anomaly and its numbers alone."""
        if one.excess is AnomalyKind.CRASH:
            return Cause.CRASH, self._counted.crashes[one.node.codes]
        if one.excess is AnomalyKind.QPARAMS:
            return Cause.COARSE, _cost(one.node)
        size = f"{one.score:.3g} steps (rms)"
        if differs:
            return Cause.WRONG_KERNEL, f"{size} beyond the error that its quantization explains"
        counting = one.node.counting or CountingErrors()
        if one.excess is not AnomalyKind.GRAPH or 2 * counting.rms_steps**2 > one.score**2:
            arithmetic = arithmetic_of(self.target.backend)
            own = (
                "real arithmetic"
                if arithmetic is None
                else f"the rules of '{arithmetic.name}' themselves"
            )
            pairs = (
                arithmetic is not None
                and arithmetic.accumulator.pair_bits
                and PRODUCTS & set(one.node.operators)
            )
            evidence = f"{own} give {counting.rms_steps:.3g} steps (rms) of error"
            return (Cause.PAIR_SATURATION if pairs else Cause.COARSE), evidence
        evidence = (
            f"{size} beyond the error that its quantization explains, and all values are "
            "as its arithmetic gives them"
        )
        return Cause.WRONG_GRAPH, evidence

    def close(self) -> None:
        """Close the engines."""
        self._stack.close()


class _Driven:
    """The executor that a task runs."""

    def __init__(self, graph: LocalizedGraph, pace: Callable[[], None]) -> None:
        self._graph, self._pace = graph, pace

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """One batch."""
        return self._graph.run(feeds, self._pace)


_TOGETHER = "Repair it together with the other nodes named here: alone in float it changes nothing."


_OTHER_ENGINE = (
    "Run it on another backend, or on '{engine}' with another number of threads or a free batch, "
    "and report the smallest failing graph to its authors; no schema repairs an engine."
)


def _departed(found: Departure, engine: str, watched: str) -> str:
    """Where an engine leaves its arithmetic, in words."""
    apart = (
        f"{found.differing} of {found.elements} values are not those of '{watched}', by "
        f"{found.largest:.3g} at most"
    )
    first = f"the engine '{engine}' is the first suspect"
    if not found.is_cut:
        return f"{first}: {apart}, in the whole graph alone and behind no cut"
    return f"{first}: its graph cut behind this node, {apart}, and no earlier cut is off"


def _each_node_once(ranked: Sequence[RankedNode]) -> list[RankedNode]:
    """Of several values of one node the worst."""
    worst: dict[str, RankedNode] = {}
    for one in ranked:
        worst.setdefault(one.node.node, one)
    return list(worst.values())


def _cause_of(named: NamedCause | None, broken: BrokenPass | None) -> tuple[Cause | None, str]:
    """The cause and evidence from the captured values and from the pass that broke its promise,
    where there are any.
    """
    if broken is None:
        return (None, "") if named is None else (named.cause, named.evidence)
    if named is None or not named.is_mistake:
        return Cause.WRONG_GRAPH, broken.sentence
    return named.cause, f"{named.evidence}; {broken.sentence}"


def _remedy(
    one: RankedNode, cause: Cause, named: NamedCause | None, broken: BrokenPass | None
) -> str:
    """What to do about ``cause`` in the node; a pass that broke its promise comes first."""
    if broken is not None:
        return broken.remedy
    if cause in OF_QPARAMS and gains_nothing(one.node):
        return _TOGETHER
    return "" if named is None else remedy_of(cause)


_UNNAMED = NamedCause(cause=None, evidence="")


def _failure(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def _cost(node: NodeErrors) -> str:
    """The cost of the quantization parameters of ``node``, in words."""
    alone = "" if node.isolated is None else f"{node.isolated.sqnr_db:.1f} dB alone"
    lost = node.clipped_low + node.clipped_high
    beyond = f"{lost:.1%} of its values are clipped" if lost else ""
    improves = node.gain_db is not None and not gains_nothing(node)
    gain = f"in float it would improve the outputs by {node.gain_db:.2f} dB" if improves else ""
    return "; ".join(filter(None, (alone, beyond, gain)))


def _noisiness(node: NodeErrors) -> tuple[float, float]:
    """A sort key: the smaller, the more the outputs gain with the node in float."""
    return -(node.gain_db or 0.0), math.inf if node.isolated is None else node.isolated.sqnr_db
