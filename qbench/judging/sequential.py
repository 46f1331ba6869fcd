"""Whether the samples of a cell that were run decide its gates, so that the others need not be run.

Two answers:

    exactly     the gate has the same state if all samples that remain are gains, and if all are
                losses
    by a test   an e-process reached 1/α, α = 1 %

A test bets on sources g, drawn in random order, with n_g samples and the sum s_g of changes in {−1,
0, 1}. Where the sample represents all those to come (the decisions ci and strict), it is about the
change and its margin m:

    of "the change is −m or less", large where it is not, PASS:
        W⁺ = mean over λ of Π (1 + λ (s_g + m n_g))
    of "the change is −m or more", large where it is not, FAIL:
        W⁻ = mean over λ of Π (1 − λ (s_g + m n_g))

Where the counts of all samples decide (the decision point, and floors), it is about their sum S
among G sources, which holds from L on. Drawn without replacement, the next s_g has the mean of the
sources that remain, under "S ≤ L − 1" at most μ_t = (L − 1 − Σ s) / (G − t + 1), and the factors
are 1 + λ_t (s_g − μ_t); likewise under "S ≥ L".

Under its hypothesis each is a nonnegative supermartingale that starts at 1, whatever λ within which
no factor can be negative, so that it ever reaches 1/α with a probability of at most α (Ville): one
may look at the samples at any time. Waudby-Smith and Ramdas, J R Stat Soc B 86:1 (2024), betting,
also without replacement, with a mixture over λ in place of an adaptive choice; Howard, Ramdas,
McAuliffe and Sekhon, Ann Stat 49:1055 (2021). A cell that is not decided early is judged as ever:
by ci and strict at 5 %, so that at most 6 % of the verdicts at the margin are wrong.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction

from qbench.judging.expectation import Floors
from qbench.judging.kinds import GateKind
from qbench.judging.loss import floor_gate, is_under_one_sample, least_agreement, loss_gate
from qbench.judging.measurement import Stopped
from qbench.judging.rules import Rules, Tolerance
from qbench.judging.statistics import DecisionRule, Evidence
from qbench.judging.verdict import Gate, GateState
from qbench.metrics import Against, Direction, Score

EARLY = 0.01
"""α of a test while samples are being run; the test at the end has 5 % of its own."""
_BETS = tuple(0.95 * 2 ** (-k / 2) for k in range(14))
"""λ as a share of the largest that no factor makes negative: 0.95 to 0.01."""
_BY_EVIDENCE = {Evidence.PASS: GateState.HOLDS, Evidence.FAIL: GateState.BROKEN}


class _Bets:
    """The logarithms of both wealths, one for each of ``_BETS``."""

    def __init__(self) -> None:
        self._wealth_up, self._wealth_down = [0.0] * len(_BETS), [0.0] * len(_BETS)

    @property
    def evidence(self) -> Evidence:
        """What the sources so far prove, whenever that is asked."""
        if _mean(self._wealth_up) >= -math.log(EARLY):
            return Evidence.PASS
        return (
            Evidence.FAIL if _mean(self._wealth_down) >= -math.log(EARLY) else Evidence.INCONCLUSIVE
        )


class EarlyTest(_Bets):
    """The two e-processes of a change against ``margin``, a fraction.

    ``largest``: the most samples that a source has, which is known before the first is run.
    """

    def __init__(self, margin: float, largest: int = 1) -> None:
        self._margin = margin
        self._up = [share / ((1 - margin) * largest) for share in _BETS]
        self._down = [share / ((1 + margin) * largest) for share in _BETS]
        super().__init__()

    def add(self, sources: Iterable[tuple[int, int]]) -> None:
        """Bet on each of ``sources``, (sum of changes, number of samples) in the order drawn."""
        for change, size in sources:
            seen = change + self._margin * size
            for place in range(len(_BETS)):
                self._wealth_up[place] += math.log1p(self._up[place] * seen)
                self._wealth_down[place] += math.log1p(-self._down[place] * seen)


class CountTest(_Bets):
    """The two e-processes of the sum of changes of all ``sources``, of which the gate holds
    from ``least`` on.

    ``largest``: the most samples that a source has. ``most``: the largest change of a sample, 1; 0
    of agreement, which is lost only.
    """

    def __init__(self, least: int, sources: int, largest: int = 1, *, most: int = 1) -> None:
        self._least, self._left = least, sources
        self._low, self._high = -largest, most * largest
        self._sum = 0
        super().__init__()

    def add(self, sources: Iterable[tuple[int, int]]) -> None:
        """Bet on each of ``sources``, (sum of changes, number of samples) in the order drawn."""
        for change, _ in sources:
            under, over = (
                (least - self._sum) / self._left for least in (self._least - 1, self._least)
            )
            for place, share in enumerate(_BETS):
                if under > self._low:
                    self._wealth_up[place] += math.log1p(
                        share * (change - under) / (under - self._low)
                    )
                if over < self._high:
                    self._wealth_down[place] += math.log1p(
                        -share * (change - over) / (self._high - over)
                    )
            self._sum += change
            self._left -= 1


def _mean(logs: list[float]) -> float:
    """The logarithm of the mean of numbers with these ``logs``."""
    most = max(logs)
    return most + math.log(sum(math.exp(one - most) for one in logs) / len(logs))


@dataclass(frozen=True, slots=True, kw_only=True)
class Remaining:
    """What is known of the samples that were not run, from the reference alone.

    Args:
        n: all samples, run or not.
        reference_hits: of all. losable, gainable: of those that remain, how many the reference has
            right, and wrong.
    """

    n: int
    reference_hits: int
    losable: int
    gainable: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRule:
    """What decides the gates of a cell: its tolerance, its rules, and its accepted floors."""

    tolerance: Tolerance
    rules: Rules
    floors: Floors = field(default_factory=Floors)

    def test(
        self, score: Score, remaining: Remaining, *, sources: int, largest: int
    ) -> EarlyTest | CountTest | None:
        """The test of the metric of ``score``; None where neither counts nor evidence alone
        decide its gate.

        ``sources``: how many the data have; ``largest``: the most samples that one has.
        """
        if score.against is Against.REFERENCE:
            accepted = self.floors.least(score.metric, remaining.n) or 0
            least = max(least_agreement(self.rules.agreement, remaining.n), accepted)
            return CountTest(least - remaining.n, sources, largest, most=0)
        margin = self._margin(score, remaining)
        if self.rules.decision.by is not DecisionRule.POINT:
            share = float(margin) / remaining.n
            return EarlyTest(share, largest) if 0 < share < 1 else None
        if is_under_one_sample(margin):
            return None  # what the samples prove decides, not the counts
        return CountTest(-math.floor(margin), sources, largest)

    def _margin(self, score: Score, remaining: Remaining) -> Fraction:
        whole = replace(
            score, n=remaining.n, out_of=remaining.n, reference_hits=remaining.reference_hits
        )
        return self.tolerance.margin(whole)

    def decided(self, score: Score, remaining: Remaining) -> GateState | None:
        """The state that the gate of ``score``, a share of the samples so far, has whatever the
        others are; or None.
        """
        best, worst = self._ends(score, remaining)
        if score.against is Against.LABELS:
            by_counts = self.rules.decision.by is DecisionRule.POINT and not is_under_one_sample(
                self._margin(score, remaining)
            )
            if score.clusters is not None and not by_counts:
                return None  # evidence depends on which sources the losses are in
            states = {
                loss_gate(one, self.tolerance, self.rules.decision).state for one in (best, worst)
            }
        else:
            states = {floor_gate(one, self.rules, self.floors).state for one in (best, worst)}
        return states.pop() if len(states) == 1 else None

    def _ends(self, score: Score, remaining: Remaining) -> tuple[Score, Score]:
        """``score`` of all samples if those that remain are all gains, and if they are all
        losses.
        """
        whole = replace(
            score,
            n=remaining.n,
            out_of=remaining.n,
            reference_hits=remaining.reference_hits,
            clusters=None,
        )
        if score.against is Against.REFERENCE:
            left = remaining.n - score.n
            return replace(whole, hits=score.hits + left), replace(
                whole, losses=score.losses + left
            )
        best = replace(whole, gains=score.gains + remaining.gainable)
        worst = replace(whole, losses=score.losses + remaining.losable)
        sign = 1 if score.direction is Direction.HIGHER else -1
        return tuple(
            replace(one, hits=one.reference_hits + sign * (one.gains - one.losses))
            for one in (best, worst)
        )  # type: ignore[return-value]


def stopped_gate(gate: Gate, score: Score, stopped: Stopped, tolerance: Tolerance) -> Gate:
    """``gate`` of the samples that were run, in the state that was decided for all of them.

    A gate that nothing decided has all samples of its data: other data of the model were not run to
        their end.
    """
    if score.metric not in stopped.decided:
        return gate
    state = GateState(stopped.decided[score.metric])
    is_proven = score.metric in stopped.proven
    how = "by a test that is valid at any time" if is_proven else "the others cannot change it"
    limit = gate.limit
    if limit is None and gate.kind is GateKind.LOSS:
        worse = float(tolerance.margin(score)) / score.out_of
        limit = score.reference_value + (-worse if score.direction is Direction.HIGHER else worse)
    return replace(gate, state=state, limit=limit, detail=f"{stopped.text}, {how}; {gate.detail}")


def early_state(evidence: Evidence) -> GateState | None:
    """The state of a loss gate that ``evidence`` of the test decides; None: it goes on."""
    return _BY_EVIDENCE.get(evidence)
