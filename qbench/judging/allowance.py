"""How far the answers of a cell may be from the accepted ones of its class; where nothing is set, not at all.

flips: samples whose best answer is another one, whatever moved in the ranks below it
probabilities: |p − p_accepted| ≤ max(absolute, relative × p_accepted), for each of the best classes of every sample

Both need the accepted answers themselves, not their digest: they are kept beside the baseline, where a suite asks so.
"""

from dataclasses import dataclass

from qbench.judging.wording import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """What drift admits; ``flips_rule`` and ``moves_rule`` say who set it, e.g. ``suite smoke``.

    Args:
        flips: at most that many; None: predictions must be identical, in all ranks.
        absolute, relative: of probabilities, either suffices; both None: they are not compared.
    """

    flips: int | None = None
    absolute: float | None = None
    relative: float | None = None
    flips_rule: str = "default"
    moves_rule: str = "default"

    def __post_init__(self) -> None:
        for name in ("flips", "absolute", "relative"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise ValueError(f"{name} = {value} is impossible: a difference is at least 0")

    @property
    def compares_probabilities(self) -> bool:
        """Whether probabilities are held to anything."""
        return self.absolute is not None or self.relative is not None

    @property
    def keeps_answers(self) -> bool:
        """Whether answers have to be kept with accepted results."""
        return self.flips is not None or self.compares_probabilities

    @property
    def flips_text(self) -> str:
        """``at most 3 flips (suite smoke)``."""
        return f"at most {counted(self.flips or 0, 'flip')} ({self.flips_rule})"

    @property
    def moves_text(self) -> str:
        """``probabilities within 0.001 or 1 % (suite smoke)``."""
        limits = [] if self.absolute is None else [f"{self.absolute:g}"]
        limits += [] if self.relative is None else [f"{100 * self.relative:g} %"]
        return f"probabilities within {' or '.join(limits)} ({self.moves_rule})"


IDENTICAL = Allowance()
"""Nothing may differ."""
