"""A result that is better than the accepted one by more than the tolerance: news that nobody should accept by the way.

better by more than the margin in one metric against labels, and worse in none
"""

from dataclasses import replace

from qbench.judging import remedies
from qbench.judging.expectation import Expectation, inherited
from qbench.judging.loss import margin_units
from qbench.judging.measurement import Measurement
from qbench.judging.rules import Rules
from qbench.judging.tolerance import Tolerance
from qbench.judging.verdict import Outcome, Verdict
from qbench.judging.wording import one_line
from qbench.metrics import Against, Direction

IMPROVED = "improved: "
"""How the headline of such a verdict begins."""


def with_improvement(
    verdict: Verdict,
    measurement: Measurement,
    expectation: Expectation,
    *,
    tolerance: Tolerance,
    rules: Rules,
    node_id: str,
) -> Verdict:
    """``verdict``, told as an improvement where it drifted for the better beyond ``tolerance``; it stays red."""
    name = inherited(expectation.accepted, measurement.environment, rules.equivalents)
    if verdict.outcome is not Outcome.DRIFTED or name is None:
        return verdict
    before = expectation.accepted[name].metrics
    gains, beyond = [], False
    for score in measurement.scores:
        if score.against is Against.LABELS and score.metric in before:
            sign = 1 if score.direction is Direction.HIGHER else -1
            gains.append(sign * (score.hits - before[score.metric]))
            beyond = beyond or gains[-1] > margin_units(score, tolerance)
    if not beyond or min(gains) < 0:
        return verdict
    return replace(verdict, headline=one_line(f"{IMPROVED}{verdict.headline}"), remedy=remedies.improved(node_id))
