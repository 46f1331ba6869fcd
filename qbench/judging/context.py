"""All that the gates of one cell are judged by."""

from dataclasses import dataclass
from functools import cached_property

from qbench.judging.drift import Criterion, moves_of
from qbench.judging.expectation import AcceptedHere, Expectation
from qbench.judging.measurement import Measurement
from qbench.judging.noise import Noise, Repeats, noise_of
from qbench.judging.rules import Rules, Tolerance
from qbench.judging.verdict import MovedRange
from qbench.metrics import Score


@dataclass(frozen=True, kw_only=True)
class Context:
    """All that the gates of one cell are judged by.

    Args:
        measurement: what was measured.
        expectation: what the baseline holds.
        here: what of that the results are compared with.
        tolerance: the one that won for the cell.
        rules: the other numbers of the suite.
        criterion: how close it must be to the backend that it was compared with; None: it was not.
        node_id: of the cell in pytest, for the commands in remedies.
    """

    measurement: Measurement
    expectation: Expectation
    here: AcceptedHere
    tolerance: Tolerance
    rules: Rules
    criterion: Criterion | None
    node_id: str

    @cached_property
    def noise(self) -> tuple[Repeats | None, bool]:
        """How far runs of the cell differ, and whether the measurement is one of these runs."""
        return self.here.noise_with(self.measurement)

    @cached_property
    def moved(self) -> tuple[MovedRange, ...]:
        """The values whose calibrated range differs from the accepted one."""
        return moves_of(self.measurement, self.expectation, self.rules)

    def noise_of(self, score: Score) -> Noise | None:
        """How far runs of the cell differ in ``score``; None: they do not, or it is not known."""
        repeats, averaged = self.noise
        return noise_of(score, repeats, averaged=averaged)
