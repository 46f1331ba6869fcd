"""A cell of a suite that can be run and judged again under another schema."""

import datetime
from dataclasses import replace

from qbench.diagnosis import RepeatableCell
from qbench.judging import (
    COSTS,
    Measurement,
    Verdict,
    judge,
)
from qbench.storage import digest_plain
from qbench.suite.expansion import PlannedCell
from qbench.suite.session import Bench


def repeatable_cell(bench: Bench, planned: PlannedCell) -> RepeatableCell:
    """``planned`` as a cell that can be run and judged again under another schema, as a search
    for a repair does.

    It has the suite's tolerance, limits and stored reference, and all of its samples, run once. The
    quarantine file and the least share of integer operations are ignored: the search asks for good
    numbers, and reports the share separately.

    Args:
        bench: of the suite.
        planned: the cell.

    Raises:
        QbenchError: its subject, backend or schema cannot be made.
    """
    rules = planned.rules
    tolerance = planned.tolerance(bench.environment(planned.cell.backend))

    def judged(measurement: Measurement) -> Verdict:
        return judge(
            measurement,
            bench.expectation(planned, measurement),
            tolerance=tolerance,
            criterion=planned.criterion,
            rules=replace(rules, integer_macs=0.0, executed_macs=None, more={}),
            today=datetime.date.min,  # only quarantine entries have dates
        )

    request = bench.request(planned)
    asked = {kind: by for kind, by in request.asked.items() if kind not in COSTS}
    return RepeatableCell(
        request=replace(request, repeats=1, stop=None, asked=asked),
        judge=judged,
        rules=digest_plain(
            [
                tolerance.numbers,
                rules.agreement,
                {name: one.value for name, one in rules.limits.items()},
            ]
        ),
        integer_floor=rules.integer_macs,
    )
