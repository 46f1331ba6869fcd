"""What accepting replaces, one row a number, and the word about why that it asks for."""

from dataclasses import dataclass

from qbench.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedRow:
    """One line of the table old → new; ``old`` is None for what was not there.

    ``cell`` is a slug, ``fp32``, or ``calibration:KEY``. ``unit`` is the metric's, in which people read the
    parts.
    """

    cell: str
    environment_class: str
    metric: str
    old: int | None
    new: int
    out_of: int
    unit: str = "%"


def demand_reason(doing: str, reason: str) -> None:
    """Refuse to replace anything without a word about why.

    Raises:
        InputError: the reason has no letter and no digit: it is blank, or the placeholder of a printed command.
    """
    if not any(character.isalnum() for character in reason):
        raise InputError(
            doing,
            found="no reason for replacing what was accepted"
            + (f", only '{reason.strip()}'" if reason.strip() else ""),
            expected="one in words",
            remedy='Add --qbench-reason "…" and say in it why the results changed.',
        )
