"""One graph of a cell under examination: driven by the task, ranked, and the causes of its worst nodes named."""

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property

from qbench.backends import Array, Closing, Feeds
from qbench.calibration import Rows
from qbench.diagnosis.budget import Budget
from qbench.diagnosis.capturing import capture
from qbench.diagnosis.causes import NamedCause, name_cause, remedy_of
from qbench.diagnosis.engine.claims import arithmetic_of
from qbench.diagnosis.engine.matching import Matched
from qbench.diagnosis.examining import Examination, Examined
from qbench.diagnosis.gains import output_gains
from qbench.diagnosis.kept_feeds import KeptFeeds
from qbench.diagnosis.patient import Patient
from qbench.diagnosis.ranking import Excess, Excessive, rank_nodes, with_gains
from qbench.diagnosis.repairing.candidates import owners_of
from qbench.errors import QbenchError
from qbench.judging import Cause, NodeErrors, Suspect, Unaligned
from qbench.metrics import Differences

_GRAVITY = 1000.0
"""Between the scores of one kind of excess and the next: a crash comes before any rounding."""
_SAMPLES = 4
"""On which gains of single nodes are measured: each costs a part of a run of them."""


class LocalizedGraph(Closing):
    """An examination with what is made of it; a context manager that closes its engines.

    ``notes`` are sentences for a reader; ``suspects`` is filled by ``name_causes``. With ``several`` graphs names of
    nodes begin with that of the graph.
    """

    def __init__(self, patient: Patient, *, several: bool) -> None:
        self.patient = patient
        self.suspects: tuple[Suspect, ...] = ()
        self.notes: list[str] = []
        self._prefix = f"{patient.graph}::" if several else ""
        self._stack = ExitStack()
        self._examination = self._stack.enter_context(Examination(patient))
        self._kept = KeptFeeds(Rows.of(patient.original))
        self._batches = 0
        self._gains: Mapping[str, float] = {}

    def driven(self, pace: Callable[[], None]) -> "_Driven":
        """What a task drives in place of the float graph; ``pace`` is asked before every batch but the first."""
        return _Driven(self, pace)

    def run(self, feeds: Feeds, pace: Callable[[], None]) -> dict[str, Array]:
        """One batch, examined."""
        if self._batches:
            pace()
        self._batches += 1
        self._kept.add(feeds)
        return self._examination.run(feeds)

    @property
    def samples(self) -> int:
        """How many were examined."""
        return self._examination.samples

    @cached_property
    def _counted(self) -> Examined:
        return self._examination.examined()

    @property
    def _examined(self) -> Examined:
        return with_gains(self._counted, self._gains) if self._gains else self._counted

    @property
    def ranked(self) -> tuple[Excessive, ...]:
        """The nodes that exceed what their grids explain."""
        return rank_nodes(self._examined)

    @property
    def likeliest(self) -> tuple[tuple[str, str], ...]:
        """(graph, node): the ranked ones, then the others by what the outputs gain and by how noisy they are alone."""
        ranked = [one.node for one in self.ranked]
        others = sorted(self._examined.nodes, key=_noisiness)
        return tuple(dict.fromkeys((self.patient.graph, node.node) for node in (*ranked, *others)))

    def carried_by(self, operators: Collection[str]) -> Iterator[str]:
        """The nodes that ``operators`` are or carry, by their names in ``nodes``."""
        owners = owners_of(self.patient.original)
        return (self._prefix + node for node, owner in owners.items() if owner in operators)

    @property
    def nodes(self) -> tuple[NodeErrors, ...]:
        """All of them in numbers."""
        return tuple(replace(node, node=self._prefix + node.node) for node in self._examined.nodes)

    @property
    def unaligned(self) -> tuple[Unaligned, ...]:
        """The values that fp32 has no counterpart of."""
        found = self._counted.unaligned
        return tuple(Unaligned(value=self._prefix + one.value, reason=one.reason) for one in found)

    @property
    def matched(self) -> str:
        """How the watched run relates to the untouched engine's."""
        outputs, samples = self._counted.outputs, self.samples
        one = Matched(
            engine=self.patient.backend.name,
            watched=self.patient.watched.name,
            samples=0 if outputs is None else samples,
            found=outputs or Differences(),
        )
        return one.sentence

    def name_causes(self, budget: Budget, count: int) -> bool:
        """Name the causes of the first ``count`` nodes that are ranked; whether there was time for all of them."""
        if not self._kept.joined:
            return False
        in_time = self._measure_gains(budget)
        chosen = self.ranked[:count]
        if not chosen:
            return in_time
        captures = capture(self.patient, self._examination.units, [one.node for one in chosen], self._kept.joined)
        found = {one.unit.value: one for one in captures}
        healthy, suspects = arithmetic_of(self.patient.claims or self.patient.backend), []
        for place, one in enumerate(chosen):
            if place and budget.is_over:
                in_time = False
                break
            captured = found.get(one.node.levels)
            if captured is not None:
                named = name_cause(captured, healthy, original=self.patient.original)
                self.notes += (f"{self._prefix}{one.node.node}: {note}" for note in named.notes)
                suspects += self._suspect(one, named, place)
        self.suspects = tuple(suspects)
        return in_time

    def _measure_gains(self, budget: Budget) -> bool:
        """What the outputs gain by each node alone, where there is time."""
        if budget.is_over:
            return False
        try:
            self._gains = output_gains(self.patient, self._examination.units, self._few())
        except QbenchError as error:
            self.notes.append(f"no gains of single nodes: {error}")
        return True

    def _few(self) -> Feeds:
        """Some samples of what is kept."""
        rows = Rows.of(self.patient.original)
        rows, feeds = rows if rows.size > 1 else replace(rows, size=_SAMPLES), self._kept.joined
        _, _, first = next(rows.parts(feeds, rows.count(feeds)))
        return first

    def _suspect(self, one: Excessive, named: NamedCause, place: int) -> list[Suspect]:
        if named.cause is None and one.excess is not Excess.GRID:
            cause, evidence = Cause.WRONG_KERNEL, f"{one.score:.3g} steps (rms) beyond what its grid explains"
        elif named.cause is None:
            cause, evidence = Cause.GRID, _cost(one.node)
        else:
            cause, evidence = named.cause, named.evidence
        score = _GRAVITY * (len(Excess) - one.excess) - place
        name, remedy = self._prefix + one.node.node, remedy_of(cause)
        return [Suspect(node=name, cause=cause, evidence=evidence, score=score, remedy=remedy)]

    def close(self) -> None:
        """Close the engines."""
        self._stack.close()


class _Driven:
    """The executor that a task is given."""

    def __init__(self, graph: LocalizedGraph, pace: Callable[[], None]) -> None:
        self._graph, self._pace = graph, pace

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """One batch."""
        return self._graph.run(feeds, self._pace)


def _cost(node: NodeErrors) -> str:
    """What the grids of ``node`` cost, in words."""
    alone = "" if node.isolated is None else f"{node.isolated.sqnr_db:.1f} dB alone"
    gain = "" if node.gain_db is None else f"in float it would give the outputs {node.gain_db:.2f} dB"
    return "; ".join(filter(None, (alone, gain)))


def _noisiness(node: NodeErrors) -> tuple[float, float]:
    """The smaller, the more is to be had from the node in float."""
    return -(node.gain_db or 0.0), math.inf if node.isolated is None else node.isolated.sqnr_db
