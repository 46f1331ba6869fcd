"""What became of faults that were put into the cells of a suite: lines of a file, joined and
counted.

    start    a suite, its cells and the kinds of faults that are to be tried
    cell     which faults it has a place for, and how it ended without one
    trial    one fault at one place of one cell
    end      the trials are over, or the budget is

A share is one of the trials whose fault changed something; its interval is Wilson's.
"""

import enum
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from qbench.errors import InputError
from qbench.judging import GateKind
from qbench.metrics import wilson_interval
from qbench.storage import NOT_WRITTEN
from qbench.tracking.result_file import ResultFile

PROOF_FORMAT = "qbench-proof/1"
"""In every line of such a file."""
_OF_CLASS = frozenset(
    kind.value for kind in (GateKind.DRIFT, GateKind.EXECUTED_DRIFT, GateKind.REFERENCE)
)
"""The gates that compare with what was accepted for one class of environments."""


class TrialState(enum.StrEnum):
    """What became of a fault."""

    CAUGHT = "caught"
    LET_THROUGH = "let through"
    NO_EFFECT = "no effect"  # no prediction, score, range or executed share is another
    NOT_PUT = "not put"  # the fault itself failed at this place


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofRemedy:
    """What would catch a fault that was let through.

    Args:
        name: of the kind of remedy, such as ``equality gate``.
        setting: what to write or do.
        tried: whether the cell was judged with it, and was green without the fault and red with
            it; else it is computed.
    """

    name: str
    setting: str
    tried: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofStart:
    """What a proof is of.

    Args:
        made: what its trials are of, part → digest or words: suite, baselines, code, seed …
        cells: those that faults are put into, ``model::backend+schema``.
        kinds: names of the faults that may fit one of them.
        unfit: names of those for which no backend of the suite has a place.
        places: how many places of a cell a fault is put at.
        shard: the share of the trials, ``2/5``; empty: all.
    """

    made: Mapping[str, str]
    suite: str
    cells: tuple[str, ...]
    kinds: tuple[str, ...]
    unfit: tuple[str, ...] = ()
    places: int = 1
    shard: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofCell:
    """A cell without a fault.

    Args:
        applies: names of the faults that it has a place for.
        is_green: how it ended; None: it was not measured. Faults are put into green cells alone.
        outcome, headline: of its verdict; empty where it was not measured.
        environment: the class of its results.
        seconds: that it took.
        kept: whether it was read from a file.
    """

    made: Mapping[str, str]
    cell: str
    applies: tuple[str, ...] = ()
    is_green: bool | None = None
    outcome: str = ""
    headline: str = ""
    environment: str = ""
    seconds: float = 0.0
    kept: bool = field(default=False, metadata={NOT_WRITTEN: True})

    @property
    def is_left_out(self) -> bool:
        """Whether it is red, or cannot run, without a fault."""
        return self.is_green is False

    def may_have(self, fault: str) -> bool:
        """Whether a fault can be put into it."""
        return not self.is_left_out and fault in self.applies


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofTrial:
    """One fault in one cell.

    Args:
        fault, stage, sites, place: what was where; ``place`` counts from 0.
        gates: the kinds of gates that are broken, the one that decides first.
        headline: of the verdict.
        remedies: what would catch it, where it was let through.
        environment: the class of the results.
        seconds: that it took.
        kept: whether it was read from a file.
    """

    made: Mapping[str, str]
    cell: str
    fault: str
    stage: str
    sites: tuple[str, ...]
    place: int
    state: TrialState
    gates: tuple[str, ...] = ()
    headline: str = ""
    remedies: tuple[ProofRemedy, ...] = ()
    environment: str = ""
    seconds: float = 0.0
    kept: bool = field(default=False, metadata={NOT_WRITTEN: True})

    @property
    def needs_class(self) -> bool:
        """Whether nothing but what was accepted for this very class of environments caught it: in a
        new class, as after an upgrade of the engine, it would be let through.
        """
        gates = frozenset(self.gates)
        return self.state is TrialState.CAUGHT and bool(gates) and gates <= _OF_CLASS

    @property
    def is_made(self) -> bool:
        """Whether the fault could be put at its place; else nothing was tried."""
        return self.state is not TrialState.NOT_PUT

    @property
    def key(self) -> tuple[str, str, int, str]:
        """What tells trials of one proof apart."""
        return self.cell, self.fault, self.place, self.environment


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofEnd:
    """The end of one run of trials; ``is_whole``: none is left that the budget left out."""

    made: Mapping[str, str]
    is_whole: bool


ProofLine = ProofStart | ProofCell | ProofTrial | ProofEnd


def proof_file(path: Path) -> ResultFile[ProofLine]:
    """The lines of a proof at ``path``."""
    return ResultFile(
        path=path,
        format=PROOF_FORMAT,
        kinds={"start": ProofStart, "cell": ProofCell, "trial": ProofTrial, "end": ProofEnd},
        maker="proof",
        remedy="Name another file: -o FILE.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The lines of one proof, from one file or several: each cell and each trial once.

    Args:
        repeated: a sentence for each trial that two files have with different results.
    """

    starts: tuple[ProofStart, ...] = ()
    cells: Mapping[str, ProofCell] = field(default_factory=dict)
    trials: tuple[ProofTrial, ...] = ()
    repeated: tuple[str, ...] = ()

    @property
    def pending(self) -> tuple[str, ...]:
        """The kinds that were not tried once, although a cell has a place, or may have one."""
        tried = {trial.fault for trial in self.trials}
        kinds = {kind: None for one in self.starts for kind in one.kinds}
        names = {name: None for one in self.starts for name in one.cells}
        cells = [self.cells.get(name) for name in names]
        return tuple(
            kind
            for kind in kinds
            if kind not in tried and any(one is None or one.may_have(kind) for one in cells)
        )


def join_proof(lines: Iterable[ProofLine]) -> Proof:
    """``lines`` in any order as one proof: the same lines give the same proof."""
    starts: list[ProofStart] = []
    cells: dict[str, ProofCell] = {}
    trials: dict[tuple[str, str, int, str], ProofTrial] = {}
    repeated: list[str] = []
    facts = (line for line in lines if not isinstance(line, ProofEnd))
    for line in sorted(facts, key=_place):
        if isinstance(line, ProofStart):
            starts.append(line)
        elif isinstance(line, ProofCell):
            known = cells.get(line.cell)
            if known is None or known.is_green is None:
                cells[line.cell] = line
        elif (first := trials.setdefault(line.key, line)).state is not line.state:
            repeated.append(
                f"{line.cell}: {line.fault} at {','.join(line.sites)} was {first.state.value} once "
                f"and {line.state.value} once: a gate or an engine is not deterministic"
            )
    return Proof(
        starts=tuple(starts),
        cells=cells,
        trials=tuple(trials.values()),
        repeated=tuple(dict.fromkeys(repeated)),
    )


def _place(line: ProofStart | ProofCell | ProofTrial) -> tuple[object, ...]:
    """Where ``line`` comes in a proof, whatever the order of its files is."""
    if isinstance(line, ProofStart):
        return (0, line.shard, line.cells)
    if isinstance(line, ProofCell):
        return (1, line.cell, line.is_green is None, line.outcome)
    return (2, *line.key, line.state.value)


def shares_ended(lines: Iterable[ProofLine]) -> dict[str, ProofEnd | None]:
    """Share, as ``ProofStart.shard`` names it → an end of it; None: no run of it ended.

    ``lines`` are those of whole files, one file after the other: an end is that of the run that
    started last.
    """
    ends: dict[str, ProofEnd | None] = {}
    shard = ""
    for line in lines:
        if isinstance(line, ProofStart):
            shard = line.shard
            ends.setdefault(shard, None)
        elif isinstance(line, ProofEnd) and (line.is_whole or ends.get(shard) is None):
            ends[shard] = line
    return ends


def lacking_of_proof(ends: Mapping[str, ProofEnd | None], shares: int = 0) -> tuple[str, ...]:
    """What is lacking of a proof with ``ends`` (``shares_ended``), in words; empty: nothing.

    ``shares``: how many there are to be, for a proof of which none may have begun; 0: as many as
    the names in ``ends`` say.
    """
    words = ["no end of the proof"] if ends.get("", _ENDED) is None else []
    divisions = (name.partition("/")[2] for name in ends)
    counts = {int(text) for text in divisions if text.isdecimal()} | {shares}
    for count in sorted(counts - {0}):
        names = [f"{index}/{count}" for index in range(1, count + 1)]
        missing = [name for name in names if name not in ends]
        unfinished = [name for name in names if ends.get(name, _ENDED) is None]
        if missing:
            words.append(f"no results of share {', '.join(missing)}")
        if unfinished:
            words.append(f"no end of share {', '.join(unfinished)}")
    return tuple(words)


_ENDED = ProofEnd(made={}, is_whole=True)

_PARTS = {
    "suite": "of another suite, or of another state of its files",
    "baselines": "of other baselines",
    "qbench": "of another version of qbench",
    "code": "of another state of the code of qbench",
    "seed": "of another seed",
    "class": "of another choice of --new-class",
}


def lines_of_one(
    found: Sequence[tuple[Path, Sequence[ProofLine]]], made: Mapping[str, str], doing: str
) -> tuple[ProofLine, ...]:
    """All lines of ``found``, which must be of ``made``; empty: of what the first line is of.

    Raises:
        InputError: a line is of another suite, other baselines, another version, another seed.
    """
    every = [(path, line) for path, lines in found for line in lines]
    wanted = made or (every[0][1].made if every else {})
    for path, line in every:
        for part, words in _PARTS.items():
            if line.made.get(part, "") != wanted.get(part, ""):
                raise InputError(
                    doing,
                    found=f"results {words} in '{path}'",
                    expected="results of one suite, its baselines, one version and one seed",
                    remedy="Name another file (-o FILE), or leave this one out.",
                )
    return tuple(line for _, line in every)


# Counted: how many trials of each kind of fault were caught.


@dataclass(frozen=True, slots=True, kw_only=True)
class Caught:
    """``count`` of ``n`` trials were caught, with the 95 % interval of the share."""

    count: int
    n: int

    @property
    def share(self) -> float | None:
        """A fraction; None: there is no trial."""
        return self.count / self.n if self.n else None

    @property
    def interval(self) -> tuple[float, float]:
        """Low and high."""
        return wilson_interval(self.count, self.n)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultTally:
    """What became of one kind of fault.

    Args:
        let_through: its trials that no gate saw.
        no_effect: how many trials changed nothing.
        not_put: at how many places the fault itself failed.
        unfit: how many of the cells that were looked at have no place for it.
        remedies: what would catch how many of ``let_through``, the most first.
    """

    fault: str
    stage: str
    caught: Caught
    let_through: tuple[ProofTrial, ...] = ()
    no_effect: int = 0
    not_put: int = 0
    unfit: int = 0
    remedies: tuple[tuple[ProofRemedy, int], ...] = ()

    @property
    def trials(self) -> int:
        """All that were made: those that were not put are none."""
        return self.caught.n + self.no_effect


def tally_faults(proof: Proof) -> tuple[FaultTally, ...]:
    """A tally for each kind of fault that was tried, what is let through most first."""
    by_fault: dict[str, list[ProofTrial]] = {}
    for trial in proof.trials:
        by_fault.setdefault(trial.fault, []).append(trial)
    tallies = [
        FaultTally(
            fault=fault,
            stage=several[0].stage,
            caught=caught_of(several),
            let_through=tuple(one for one in several if one.state is TrialState.LET_THROUGH),
            no_effect=sum(one.state is TrialState.NO_EFFECT for one in several),
            not_put=sum(one.state is TrialState.NOT_PUT for one in several),
            unfit=sum(fault not in cell.applies for cell in proof.cells.values()),
            remedies=remedies_of(several),
        )
        for fault, several in by_fault.items()
        if any(one.is_made for one in several)
    ]
    return tuple(sorted(tallies, key=_weakness))


def _weakness(tally: FaultTally) -> tuple[object, ...]:
    share = tally.caught.share
    return (
        not tally.let_through,
        1.0 if share is None else share,
        -len(tally.let_through),
        tally.fault,
    )


def caught_of(trials: Iterable[ProofTrial]) -> Caught:
    """How many of the ``trials`` whose fault changed something were caught."""
    states = Counter(trial.state for trial in trials)
    caught = states[TrialState.CAUGHT]
    return Caught(count=caught, n=caught + states[TrialState.LET_THROUGH])


def remedies_of(trials: Iterable[ProofTrial]) -> tuple[tuple[ProofRemedy, int], ...]:
    """Remedy → how many of the ``trials`` that were let through it catches, the most first.

    Remedies of one name are one, with the setting that most of these trials have.
    """
    counts: Counter[str] = Counter()
    settings: dict[str, Counter[ProofRemedy]] = {}
    for trial in trials:
        for name in dict.fromkeys(one.name for one in trial.remedies):
            counts[name] += 1
        for one in trial.remedies:
            settings.setdefault(one.name, Counter())[one] += 1
    return tuple((settings[name].most_common(1)[0][0], count) for name, count in _ordered(counts))


def _ordered(counts: "Counter[str]") -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda one: (-one[1], one[0]))
