"""Many trials: detection and localization rates."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from qbench.faults.trial import DetectedBy, Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Shares of the catalogue.

    Args:
        faults: that changed something somewhere.
        equivalent: names of those that changed nothing anywhere.
        by_gate: gate → faults that it sees.
        found: those seen by any gate but (d).
        missed: names of the others.
        trials: that were localized. first, third: those whose site is first, or among the first
            three.
        named: those whose cause is right.
    """

    faults: int
    equivalent: tuple[str, ...]
    by_gate: Mapping[DetectedBy, int]
    found: int
    missed: tuple[str, ...]
    trials: int
    first: int
    third: int
    named: int


def rates_of(trials: Iterable[Trial]) -> Rates:
    """The rates of ``trials``."""
    by_fault: dict[str, list[Trial]] = {}
    for trial in trials:
        by_fault.setdefault(trial.fault, []).append(trial)
    changing = {name: [one for one in tries if one.changes] for name, tries in by_fault.items()}
    equivalent = tuple(name for name, tries in changing.items() if not tries)
    real = {name: tries for name, tries in changing.items() if tries}
    missed = tuple(name for name, tries in real.items() if not any(one.found for one in tries))
    localized = [one for tries in real.values() for one in tries if is_localized(one)]
    return Rates(
        faults=len(real),
        equivalent=equivalent,
        by_gate={
            gate: sum(any(gate in one.seen for one in tries) for tries in real.values())
            for gate in DetectedBy
        },
        found=len(real) - len(missed),
        missed=missed,
        trials=len(localized),
        first=sum(one.hit == 1 for one in localized),
        third=sum(one.hit is not None and one.hit <= 3 for one in localized),
        named=sum(one.named for one in localized),
    )


def is_localized(trial: Trial) -> bool:
    """Whether localization was run on it, and had something to find."""
    return trial.found and not trial.failed and trial.seconds > 0


def marks(trial: Trial) -> str:
    """One trial in a table: its gates, the place of its site, and whether the cause is right:
    ``abce 1 ✓``.
    """
    if trial.failed:
        return "does not run"
    if not trial.changes:
        return "equivalent"
    seen = "".join(sorted(gate.value for gate in trial.seen)) or "none"
    if not is_localized(trial):
        return seen
    place = "–" if trial.hit is None else str(trial.hit)
    return f"{seen} {place} {'✓' if trial.named else '✗'}"


def table(
    trials: Sequence[Trial], subjects: Sequence[str], stories: Mapping[str, str]
) -> list[tuple[str, ...]]:
    """Rows of a table: fault, stage, where it was seen in the world, one column a subject.

    Args:
        trials: any.
        subjects: columns, in order.
        stories: fault → its thread; rows come in this order.
    """
    rows = []
    for fault, thread in stories.items():
        tries = [one for one in trials if one.fault == fault]
        if tries:
            cells = (
                "; ".join(marks(one) for one in tries if one.subject == subject)
                for subject in subjects
            )
            rows.append((fault, tries[0].stage.value, thread, *cells))
    return rows
