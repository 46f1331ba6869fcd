"""Mutation testing of a suite's own gates: faults that happened are put into its cells, and the
cells are judged as the suite judges them.

    caught       the cell is red, or does not run at all
    let through  the cell is green, although a prediction, a score, a range or the executed share
                 is another
    no effect    nothing of these is another on these samples

Only cells that are green without a fault are used.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from qbench.errors import NotFetchedError, QbenchError, UnsupportedError
from qbench.evaluation import measure_request
from qbench.faults.catalogue import CATALOGUE
from qbench.faults.fault import Fault, Placed, draw_sites
from qbench.faults.proven_cell import (
    HealthyCell,
    ProvenCell,
    broken_gates,
    changes_nothing,
    measure_healthy,
)
from qbench.faults.remedies import Missed, find_remedies
from qbench.faults.trial import faulty_request, main_graph
from qbench.faults.trial_order import Slot, slots_of
from qbench.judging import Cell, Outcome, Verdict
from qbench.tracking import Proof, ProofCell, ProofLine, ProofStart, ProofTrial, TrialState

DOES_NOT_RUN = "does not run"
"""In place of a gate, where a cell with a fault in it cannot be measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofPlan:
    """What is tried.

    Args:
        suite: its name. made: what its trials are of (``ProofStart.made``).
        cells: into which faults are put.
        kinds: names of faults.
        fits: whether the backend of a cell can have a fault.
        seed: of order and places.
        places: of a fault in each cell.
        shard: a share of all trials, in words; ``holds``: whether a trial belongs to it, by its
            identity.
    """

    suite: str
    made: Mapping[str, str]
    cells: Sequence[Cell]
    kinds: Sequence[str]
    fits: Callable[[Cell, Fault], bool]
    seed: int = 0
    places: int = 1
    shard: str = ""
    holds: Callable[[str], bool] = lambda _: True

    @property
    def slots(self) -> dict[str, list[Slot]]:
        """Kind of fault → where it is tried, in order."""
        fits = {name: _fitting(self.fits, CATALOGUE[name]) for name in self.kinds}
        every = slots_of(self.cells, fits, seed=self.seed, places=self.places)
        ours = {
            fault: [slot for slot in slots if self.holds(slot.identity)]
            for fault, slots in every.items()
        }
        return {fault: slots for fault, slots in ours.items() if slots}

    @property
    def start(self) -> ProofStart:
        """The first line of its file."""
        fitting = [
            name
            for name in self.kinds
            if any(self.fits(cell, CATALOGUE[name]) for cell in self.cells)
        ]
        return ProofStart(
            made=self.made,
            suite=self.suite,
            cells=tuple(map(str, self.cells)),
            kinds=tuple(fitting),
            unfit=tuple(name for name in self.kinds if name not in fitting),
            places=self.places,
            shard=self.shard,
        )


def _fitting(fits: Callable[[Cell, Fault], bool], fault: Fault) -> Callable[[Cell], bool]:
    return lambda cell: fits(cell, fault)


class ProofRun:
    """The trials of ``plan``.

    Args:
        kept: what earlier runs have in the file: it is not done again.
        open_cell: the cell, ready to be measured; it is asked for cells of one model in a row.
        is_over: whether the budget is used up.
        most: trials, with those that are kept; None: all.
        timer: seconds on a monotonic clock.

    ``done`` and ``tried`` are how many trials there are by now, and of which kinds of faults;
    ``is_whole``: whether none is left.
    """

    def __init__(
        self,
        plan: ProofPlan,
        kept: Proof,
        open_cell: Callable[[Cell], ProvenCell],
        *,
        is_over: Callable[[], bool],
        most: int | None,
        timer: Callable[[], float],
    ) -> None:
        self._plan, self._open, self._timer = plan, open_cell, timer
        self._is_over, self._most = is_over, most
        self._cells = {name: replace(one, kept=True) for name, one in kept.cells.items()}
        self._kept = {one.key: replace(one, kept=True) for one in kept.trials}
        self._healthy: dict[str, HealthyCell] = {}
        self._queues = {fault: deque(slots) for fault, slots in plan.slots.items()}
        self._waiting: list[str] = []
        self._model = ""
        self._looked: set[str] = set()
        self.done = 0
        self.is_whole = False
        self.tried: set[str] = set()

    @property
    def untried(self) -> tuple[str, ...]:
        """The kinds that the budget left out: not tried once, although a place may be left."""
        return tuple(
            fault
            for fault, queue in self._queues.items()
            if fault not in self.tried and any(map(self._may_be_tried, queue))
        )

    def lines(self) -> Iterator[ProofLine]:
        """Every cell and trial as soon as it is known, those that are kept too."""
        while any(self._queues.values()):
            self._waiting = [fault for fault, queue in self._queues.items() if queue]
            while self._waiting:
                found = yield from self._trials_of_model(self._next_model())
                if not found:
                    return
        self.is_whole = True

    def _next_model(self) -> str:
        """That of the cells that are loaded, where a trial waits there; else the first's."""
        models = [self._queues[fault][0].cell.model for fault in self._waiting]
        return self._model if self._model in models else models[0]

    def _trials_of_model(self, model: str) -> Generator[ProofLine, None, bool]:
        """The trials of this round whose turn it is at ``model``; False: the budget is used up."""
        if model != self._model:
            for healthy in self._healthy.values():
                healthy.with_metric.clear()  # it holds graphs: two large models may not fit
        self._model = model
        for fault in tuple(self._waiting):
            queue = self._queues[fault]
            while queue and queue[0].cell.model == model:
                if self._is_spent:
                    return False
                found = yield from self._trial(queue[0])
                if found is None:
                    return False
                queue.popleft()
                if found:
                    self._waiting.remove(fault)
                    break
            if not queue and fault in self._waiting:
                self._waiting.remove(fault)
        return True

    @property
    def _is_spent(self) -> bool:
        return self._most is not None and self.done >= self._most

    def _may_be_tried(self, slot: Slot) -> bool:
        known = self._cells.get(str(slot.cell))
        return known is None or known.may_have(slot.fault)

    def _trial(self, slot: Slot) -> Generator[ProofLine, None, bool | None]:
        """The lines of one trial; True: it was made, False: the cell has no place for it, or it
        could not be put there, None: the budget is used up.
        """
        name = str(slot.cell)
        if slot.cell.model not in self._looked:
            self._looked.add(slot.cell.model)
            yield from self._look(slot.cell.model)
        if not self._may_be_tried(slot):
            return False
        known = self._cells[name]
        kept = self._kept.get((name, slot.fault, slot.place, known.environment))
        if kept is not None:
            self._finish(kept)
            yield kept
            return kept.is_made
        if self._is_over():
            return None
        if name not in self._healthy:
            yield from self._measure(slot.cell)
        if self._is_over():
            return None
        if self._cells[name].is_left_out:
            return False
        trial = self._tried(slot)
        if trial is None:
            return False
        self._finish(trial)
        yield trial
        return trial.is_made

    def _finish(self, trial: ProofTrial) -> None:
        self.done += trial.is_made
        self.tried.add(trial.fault)

    def _look(self, model: str) -> Iterator[ProofLine]:
        """Which faults the cells of ``model`` have a place for."""
        kinds = {name: CATALOGUE[name] for name in self._plan.kinds}
        for cell in self._plan.cells:
            if cell.model != model:
                continue
            if str(cell) in self._cells:
                yield self._cells[str(cell)]
                continue
            found = ProofCell(made=self._plan.made, cell=str(cell))
            try:
                opened = self._open(cell)
                environment = str(opened.request.environment)
                found = replace(found, applies=opened.applying(kinds), environment=environment)
            except QbenchError as error:
                is_refused = isinstance(error, UnsupportedError | NotFetchedError)
                outcome = Outcome.UNSUPPORTED if is_refused else Outcome.ERROR
                found = replace(found, is_green=False, outcome=outcome.value, headline=str(error))
            self._cells[str(cell)] = found
            yield found

    def _measure(self, cell: Cell) -> Iterator[ProofLine]:
        """The cell without a fault; its line, where that is not known already."""
        began, name = self._timer(), str(cell)
        found = measure_healthy(self._open(cell))
        verdict = found if isinstance(found, Verdict) else found.verdict
        is_green = isinstance(found, HealthyCell) and _is_measured(verdict)
        if isinstance(found, HealthyCell):
            self._healthy[name] = found
        line = replace(
            self._cells[name],
            is_green=is_green,
            outcome=verdict.outcome.value,
            headline=verdict.headline,
            seconds=round(self._timer() - began, 3),
            kept=False,
        )
        is_known = self._cells[name].is_green is not None
        self._cells[name] = line
        if not is_known:
            yield line

    def _tried(self, slot: Slot) -> ProofTrial | None:
        """What became of the fault; None: the cell has fewer places."""
        opened, began = self._open(slot.cell), self._timer()
        seed = slot.drawn_by(self._plan.seed)
        fault = CATALOGUE[slot.fault]
        places = draw_sites(fault, main_graph(opened.quantized), seed, slot.place + 1)
        if len(places) <= slot.place:
            return None
        placed = places[slot.place]
        trial = ProofTrial(
            made=self._plan.made,
            cell=str(slot.cell),
            fault=fault.name,
            stage=fault.stage.value,
            sites=placed.sites,
            place=slot.place,
            state=TrialState.CAUGHT,
            environment=str(opened.request.environment),
        )
        judged = _judged(trial, opened, placed, self._healthy[str(slot.cell)])
        return replace(judged, seconds=round(self._timer() - began, 3))


def _is_measured(verdict: Verdict) -> bool:
    return not verdict.outcome.is_red and verdict.outcome not in _SHOWS_NOTHING


_SHOWS_NOTHING = (Outcome.UNSUPPORTED, Outcome.QUARANTINED)
"""A cell that was skipped measures nothing, and one that is expected to fail fails with a fault as
without one.
"""


def _judged(
    trial: ProofTrial, cell: ProvenCell, placed: Placed, healthy: HealthyCell
) -> ProofTrial:
    """``trial`` with what became of ``placed``."""
    try:
        measured = measure_request(faulty_request(cell.request, placed))
    except QbenchError as error:
        return _refused(trial, cell.refused(error))
    except (AssertionError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        # the edit itself met a graph that it was not written for: no engine ran a fault
        headline = f"{type(error).__name__}: {error}"
        return replace(trial, state=TrialState.NOT_PUT, headline=headline)
    verdict = cell.judge(measured, cell.gating)
    if verdict.outcome.is_red:
        gates = tuple(dict.fromkeys(gate.kind.value for gate in broken_gates(verdict)))
        return replace(trial, gates=gates, headline=verdict.headline)
    trial = replace(trial, headline=verdict.headline)
    if changes_nothing(measured, healthy.measurement):
        return replace(trial, state=TrialState.NO_EFFECT)
    missed = Missed(cell=cell, placed=placed, healthy=healthy, measured=measured)
    return replace(trial, state=TrialState.LET_THROUGH, remedies=find_remedies(missed))


def _refused(trial: ProofTrial, verdict: Verdict) -> ProofTrial:
    """A cell that does not run is red, unless the suite skips it without a word."""
    if verdict.outcome.is_red:
        return replace(trial, gates=(DOES_NOT_RUN,), headline=verdict.headline)
    return replace(trial, state=TrialState.LET_THROUGH, headline=verdict.headline)
