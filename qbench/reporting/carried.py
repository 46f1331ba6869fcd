"""How many cells of a run were carried over, from when, and why the others were measured."""

from collections import Counter
from collections.abc import Iterable

from qbench.number_text import counted
from qbench.tracking import CellRecord

_REASONS = 5
"""Reasons that a report names; of more, it counts the others."""


def carried_sentence(records: Iterable[CellRecord]) -> str:
    """``412 of 434 cells are carried over from 2026-11-18 … 2026-11-23, not measured in this run``;
    empty: none is.
    """
    every = list(records)
    days = sorted(one.carried.measured[:10] for one in every if one.carried is not None)
    if not days:
        return ""
    since = days[0] if days[0] == days[-1] else f"{days[0]} … {days[-1]}"
    verb = "is" if len(days) == 1 else "are"
    return (
        f"{len(days)} of {counted(len(every), 'cell')} {verb} carried over from {since}, not "
        "measured in this run"
    )


def measured_reasons(records: Iterable[CellRecord]) -> str:
    """``measured: 20 cells (random share of 5 % on 2026-11-24), …``, the most frequent reason
    first; empty: the run noted no keys.
    """
    every = (one.key.why for one in records if one.carried is None and one.key is not None)
    reasons = Counter(every).most_common()
    if not reasons:
        return ""
    texts = [f"{counted(count, 'cell')} ({why})" for why, count in reasons[:_REASONS]]
    rest = sum(count for _, count in reasons[_REASONS:])
    if rest:
        texts.append(f"{counted(rest, 'cell')} for other reasons")
    return f"measured: {', '.join(texts)}"
