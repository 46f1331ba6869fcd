"""How many seconds a piece of work may take, by a timer that is handed in."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Seconds that began to run at ``started`` on ``timer``; ``seconds`` None: as many as it takes."""

    seconds: float | None
    timer: Callable[[], float]
    started: float

    @classmethod
    def begin(cls, seconds: float | None, timer: Callable[[], float]) -> "Budget":
        """A budget that runs from now on.

        Args:
            seconds: None: no end. timer: seconds on a monotonic clock.
        """
        return cls(seconds=seconds, timer=timer, started=timer())

    @property
    def spent(self) -> float:
        """Seconds since it began."""
        return self.timer() - self.started

    @property
    def left(self) -> float:
        """Seconds until it ends; below 0 behind that."""
        return float("inf") if self.seconds is None else self.seconds - self.spent

    @property
    def is_over(self) -> bool:
        """Whether nothing is left of it."""
        return self.left <= 0

    def share(self, part: float) -> "Budget":
        """A budget of ``part`` (0 … 1) of what is left of this one, which begins now and ends before it."""
        return Budget.begin(None if self.seconds is None else max(0.0, part * self.left), self.timer)
