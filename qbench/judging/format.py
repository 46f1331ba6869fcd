"""How numbers are written in verdicts, and what to type next for each way of being red."""

from qbench.metrics import Score
from qbench.number_text import distance_text, settled, value_text

# The numbers of a score in the unit of its metric.


def valued(score: Score, value: float) -> str:
    """A value of ``score``'s metric in its unit: ``93.25 %``, ``35.213 dB``."""
    return value_text(settled(value) if score.unit == "%" else value, score.unit)


def apart(score: Score, difference: float) -> str:
    """A difference of values of ``score``'s metric: ``0.45 pp``, ``1.3 dB``."""
    return distance_text(settled(difference) if score.unit == "%" else difference, score.unit)


# What to type next: the exact command, or the line of a file to change, for each way of being red.


def _command(node_id: str, options: str, *, reason: bool) -> str:
    return f'pytest "{node_id}" {options}' + (' --qbench-reason "…"' if reason else "")


def _model(node_id: str) -> str:
    """The node of the cell's model: a reference belongs to all its cells."""
    return node_id.rpartition("::")[0] or node_id


def missing_model(node_id: str) -> str:
    """No baseline at all: make the fp32 reference, and accept what its cells measure."""
    return _command(_model(node_id), "--qbench-accept-fp32 --qbench-accept=new", reason=False)


def stale(node_id: str) -> str:
    """A reference of something else: make it anew, and look at what its cells measure now."""
    return _command(_model(node_id), "--qbench-accept-fp32 --qbench-accept=all", reason=True)


def missing_cell(node_id: str) -> str:
    """A cell nobody approved yet."""
    return _command(node_id, "--qbench-accept=new", reason=False)


def changed(node_id: str) -> str:
    """A result that differs from the approved one."""
    return _command(node_id, "--qbench-accept=changed", reason=True)


def improved(node_id: str) -> str:
    """A result that is better than the approved one."""
    return _command(node_id, "--qbench-accept=improved", reason=True)


def failed(node_id: str, *, drifted: bool, floor: bool) -> str:
    """A loss is not accepted away: the rule has to admit it, or the quarantine list to name it."""
    if floor and drifted:
        return changed(node_id) + " lowers the floor, never under the suite's minimum; else find the cause"
    accept = f"{changed(node_id)} records the new numbers, but " if drifted else ""
    return f"{accept}this stays red: {still_failing()}"


def still_failing() -> str:
    """Its numbers are recorded, and beyond what the rule admits."""
    return "find the cause, or give the cell its own tolerance or a quarantine entry"


def undecided(node_id: str, *, whole: bool) -> str:
    """A sample that cannot tell: a larger one does, which the data has where this was not the ``whole`` of it."""
    more = (
        "when the suite gives its model that many ('samples', or other 'data')" if whole else "without --qbench-limit"
    )
    return f'pytest "{node_id}" again {more}; decision = "point" goes by the counts alone'


def too_far() -> str:
    """Nothing accepted moves a limit."""
    return "find the cause, or give the model another of 'limits' or the cell a quarantine entry"


def unequal(backend: str) -> str:
    """Nothing is accepted here either: two backends count one graph otherwise."""
    return (
        f"find why it counts otherwise than {backend} there, admit it by 'close_to', or list it in the quarantine file"
    )


def quarantine_over(pattern: str, owner: str) -> str:
    """The excuse has run out."""
    return f"Ask {owner} to mend the cell, or to renew the entry '{pattern}' in the quarantine file with a new date"


def no_longer_fails(pattern: str) -> str:
    """The excuse is not needed."""
    return f"Remove the entry '{pattern}' from the quarantine file"


def support_lost(slug: str) -> str:
    """A cell that ran no longer does: nothing to accept, and nothing to pass over either."""
    return f"find the cause; if it is meant, take '{slug}' out of the model's baseline file"
