"""The line about losses beyond chance: which cells are tested, which stand out,
when there is nothing to say.
"""

from qbench.reporting.chance import significance_notice, significant_losses
from qbench.reporting.report import cause_name
from qbench.reporting.view import read_cell
from qbench.tracking import CellRecord, GateRecord, MetricRecord


def cell(schema, losses, gains=0, *, n=1000, **more):
    metric = MetricRecord(
        n=n, hits=800, out_of=n, reference_hits=800, losses=losses, gains=gains, **more
    )
    return read_cell(
        CellRecord(
            model="m1", backend="ort-cpu", schema=schema, outcome="passed", metrics={"top1": metric}
        )
    )


def test_the_surest_first_and_adjusted_for_the_others(words):
    cells = [cell("s1", 6), cell("s2", 30, 2), *(cell(f"x{i}", 3, 3) for i in range(18))]
    found, tests = significant_losses(cells)
    assert tests == 20
    assert [one.key.schema for one, _ in found] == [
        "s2"
    ]  # 6 to 0 is p = 0.008, and 0.08 among twenty
    words(significance_notice(cells))
    alone, _ = significant_losses(cells[:2])
    assert {one.key.schema for one, _ in alone} == {"s1", "s2"}


def test_gains_are_no_losses_and_floats_are_not_asked():
    assert significant_losses([cell("s1", 2, 30), cell("fp32", 30, 2)]) == ((), 1)
    assert significant_losses(
        [cell("s1", 30, proportion=False), cell("s2", 30, against="reference")]
    ) == ((), 0)
    assert significance_notice([cell("s1", 30)]) == ""
    assert significance_notice([]) == ""


def test_a_strict_cell_that_nothing_is_shown_of_has_a_cause_of_its_own():
    rule = "tolerance 0.5 % (default), decision strict (suite smoke)"
    causes = [
        cause_name(
            read_cell(
                CellRecord(
                    model="m1",
                    backend="ort-cpu",
                    schema="s1",
                    outcome="failed",
                    gates=(
                        GateRecord(
                            kind="loss",
                            metric="top1",
                            state="broken",
                            detail=f"drop; {word} (…)",
                            rule=rule,
                        ),
                    ),
                )
            )
        )
        for word in ("INCONCLUSIVE", "FAIL")
    ]
    assert causes == ["unproven", "loss"]
