"""A cell of a suite that can be run and judged again under another schema: what a search for a repair needs."""

import datetime
from dataclasses import replace
from typing import TYPE_CHECKING

from qbench.diagnosis import RepeatableCell
from qbench.judging import Measurement, Verdict, judge
from qbench.storage import digest_plain
from qbench.suite.expansion import PlannedCell

if TYPE_CHECKING:
    from qbench.suite.session import Bench


def repeatable_cell(bench: "Bench", planned: PlannedCell) -> RepeatableCell:
    """``planned`` with the suite's tolerance, limits and stored reference, on all of its samples.

    Neither the list of known-bad cells nor the least share in integers is asked: whether the numbers are good again is
    the question, and the share is told beside the answer.

    Args:
        bench: of the suite. planned: the cell.

    Raises:
        QbenchError: its parts cannot be made.
    """
    rules = planned.rules
    tolerance = planned.tolerance(bench.environment(planned.cell.backend))

    def judged(measurement: Measurement) -> Verdict:
        return judge(
            measurement,
            bench.expectation(planned, measurement),
            tolerance=tolerance,
            criterion=planned.criterion,
            rules=replace(rules, integer_macs=0.0),
            today=datetime.date.min,  # only a list of known-bad cells has days
        )

    return RepeatableCell(
        request=bench.request(planned),
        judge=judged,
        rules=digest_plain(
            [
                {"": tolerance.value} | {metric: one.value for metric, one in tolerance.by_metric.items()},
                rules.agreement,
                {name: one.value for name, one in rules.limits.items()},
            ]
        ),
        integer_floor=rules.integer_macs,
    )
