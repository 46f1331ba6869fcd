"""What makes a loss red: the counts as they are, or what they show.

| decision | red where                                                            | INCONCLUSIVE is              |
|----------|----------------------------------------------------------------------|------------------------------|
| point    | the drop counted exceeds the margin, or the sample proves a greater  | decided by the counts        |
|          | loss; under a margin of less than one sample only the latter         | (shown, under such a margin) |
| ci       | the sample proves a greater loss                                     | green, an outcome of its own |
| strict   | the sample does not prove a lesser                                   | red                          |
"""

import enum
from dataclasses import dataclass


class Deciding(enum.Enum):
    """How a loss is decided."""

    POINT = "point"
    CI = "ci"
    STRICT = "strict"


@dataclass(frozen=True, slots=True)
class Decision:
    """``by`` which way, and ``rule``: who set it, e.g. ``suite smoke``."""

    by: Deciding = Deciding.POINT
    rule: str = "default"

    @property
    def text(self) -> str:
        """``decision ci (suite smoke)``."""
        return f"decision {self.by.value} ({self.rule})"


POINT = Decision()
"""The plain rule that nobody has to ask for."""
