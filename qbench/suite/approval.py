"""Accepting at the end of a run: what was measured becomes what is expected, one model's baseline at a time."""

from collections.abc import Sequence

from qbench.judging import Measurement
from qbench.suite.expansion import PlannedCell
from qbench.suite.session import Bench
from qbench.tracking import Acceptance


def approve_run(bench: Bench, cells: Sequence[tuple[PlannedCell, Measurement]]) -> tuple[tuple[str, Acceptance], ...]:
    """Write the baselines of all models that ``bench`` was told to accept; (model, what changed in it) of each.

    Args:
        bench: of the suite, with ``Settings.accepting``. cells: what was measured, in any order.

    Raises:
        QbenchError: a model's results cannot be accepted, or its baseline cannot be written; models before it, in
            the order of ``cells``, are done then.
    """
    models: dict[str, list[tuple[PlannedCell, Measurement]]] = {}
    for planned, measurement in cells:
        models.setdefault(planned.model.id, []).append((planned, measurement))
    done = []
    for model, measured in models.items():
        acceptance = bench.accept(measured[0][0], [measurement for _, measurement in measured])
        if acceptance is not None:
            done.append((model, acceptance))
    return tuple(done)
