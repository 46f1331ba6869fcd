"""The table of docs/detection.md, read back: what was tried before stands beside new trials."""

from collections.abc import Iterable
from dataclasses import replace

from qbench.faults import CATALOGUE
from qbench.faults.trial import DetectedBy, Trial

FIRST = "| fault | stage | seen in the world |"
"""How the head of the table begins."""


def published(text: str, seed: int) -> list[Trial]:
    """The trials of the table in ``text``: gates, place and cause as it shows them, without nodes.

    ``faults.detection.table`` of them gives the same rows.
    """
    lines = text.partition(FIRST)[2].splitlines()
    if not lines:
        return []
    subjects = cells_of(lines[0])
    rows = [cells_of(line) for line in _until_empty(lines[2:])]
    return [
        _trial(row[0], subject, words, seed)
        for row in rows
        for subject, cell in zip(subjects, row[3:], strict=True)
        for words in filter(None, cell.split("; "))
    ]


def together(before: Iterable[Trial], new: list[Trial]) -> list[Trial]:
    """``new``, and of ``before`` the faults in the subjects that it does not have."""
    again = {(one.fault, one.subject) for one in new}
    return [one for one in before if (one.fault, one.subject) not in again] + new


def clean_reruns(text: str) -> list[str]:
    """The lines about clean reruns of the page ``text``."""
    lines = text.splitlines()
    begin = next((at for at, line in enumerate(lines) if line.startswith("Clean reruns")), None)
    return [] if begin is None else ["", *_until_empty(lines[begin:])]


def run_alone(faults: list[str]) -> str:
    """What a page says of faults that were added to it."""
    return (
        f"Tried by a run of their own, after all others: {', '.join(faults)}. What the list above "
        "has of gate (h) is of that run alone: it came after the others."
    )


def cells_of(line: str) -> list[str]:
    """The cells of a line of a table."""
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _until_empty(lines: Iterable[str]) -> list[str]:
    found = []
    for line in lines:
        if not line.strip():
            break
        found.append(line)
    return found


def _trial(fault: str, subject: str, words: str, seed: int) -> Trial:
    """The trial that ``faults.detection.marks`` writes as ``words``."""
    bare = Trial(
        fault=fault,
        sites=(),
        seed=seed,
        subject=subject,
        stage=CATALOGUE[fault].stage,
        changes=words != "equivalent",
    )
    if words == "equivalent":
        return bare
    if words == "does not run":
        return replace(bare, failed=words)
    seen, *rest = words.split()
    gates = frozenset() if seen == "none" else frozenset(map(DetectedBy, seen))
    if not rest:
        return replace(bare, seen=gates)
    place, mark = rest
    hit = None if place == "–" else int(place)
    return replace(bare, seen=gates, hit=hit, named=mark == "✓", seconds=1.0)
