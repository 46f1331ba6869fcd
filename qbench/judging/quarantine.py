"""Known-bad cells: each with what was measured, why, whose it is, and when the excuse ends."""

import datetime
import fnmatch
from dataclasses import dataclass

from qbench.judging.cell import Cell
from qbench.judging.environment import EnvironmentClass


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineEntry:
    """A cell that is expected to fail while listed.

    Args:
        cell: ``model::backend+schema[+variant]``, where ``*`` matches anything.
        measured: the numbers that were seen, in words.
        reason, owner: why it is bad; who looks after it.
        expires: the last day, ``YYYY-MM-DD``, on which the entry holds.
        when: environment classes or processors to which it applies; None: everywhere.
    """

    cell: str
    measured: str
    reason: str
    owner: str
    expires: str
    when: str | tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        try:
            datetime.date.fromisoformat(self.expires)
        except ValueError as error:
            raise ValueError(f"expires = '{self.expires}', which is no day such as 2027-03-31 ({error})") from error

    def covers(self, cell: Cell, environment: EnvironmentClass) -> bool:
        """Whether this entry is about ``cell`` on this machine."""
        return self.is_about(cell) and environment.matches(self.when)

    def is_about(self, cell: Cell) -> bool:
        """Whether this entry is about ``cell``, on whatever machine."""
        return fnmatch.fnmatchcase(str(cell), self.cell)

    @property
    def is_pattern(self) -> bool:
        """Whether it may be about several cells; it is needed as long as one of them fails."""
        return any(character in self.cell for character in "*?[")

    def expired(self, today: datetime.date) -> bool:
        """Whether ``today`` is past the last day."""
        return today > datetime.date.fromisoformat(self.expires)
