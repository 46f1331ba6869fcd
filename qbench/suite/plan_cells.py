"""The cells that a plan divides among its jobs, by name."""

from pathlib import Path

from qbench.errors import InputError
from qbench.judging import Cell
from qbench.suite.catalogues import gather
from qbench.suite.expansion import expand
from qbench.suite.job_plan import JobPlan
from qbench.suite.plan_identity import refuse_other_suite
from qbench.suite.suite_file import load_suite


def cells_by_job(plan: JobPlan, folder: Path) -> dict[int, tuple[Cell, ...]]:
    """Number of a job of ``plan`` → its cells, in the order of their suites.

    Args:
        folder: that the paths of the suites start from.

    Raises:
        InputError: a suite is not there, cannot be read, or has other content than when the plan
            was made.
    """
    cells: dict[int, list[Cell]] = {job.index: [] for job in plan.jobs}
    for suite in plan.suites:
        path = folder / suite.path
        if not path.is_file():
            raise InputError(
                f"Naming the cells of plan {plan.short}",
                found=f"no suite '{suite.path}' in '{folder}'",
                expected="the folder that the plan was made in, or a copy of it",
                remedy="Do this there.",
            )
        refuse_other_suite(plan, path)
        for one in expand(load_suite(path), gather(suites=path.parent)):
            holder = plan.holder(one.cell)
            if holder is not None:
                cells[holder.index].append(one.cell)
    return {index: tuple(several) for index, several in cells.items()}
