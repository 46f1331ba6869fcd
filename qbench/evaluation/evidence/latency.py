"""The time that the engine takes for a sample: of the cell and of the float model, in turns."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from qbench.backends import Array, CheckedExecutor, Executor, run_where_prepared
from qbench.evaluation.artifacts import prepare_runners
from qbench.evaluation.cell_model import CellModel
from qbench.evaluation.cell_run import CellRun
from qbench.evaluation.request import Request
from qbench.evaluation.watched_executor import recorded_feeds
from qbench.graph import Form

# Only the engine is timed, on feeds that were prepared before: the time holds neither the
# preparation of samples nor the task. An engine in a process of its own is timed there, without the
# pipe between the processes; only an engine of another Python is timed with its pipe. Each turn
# runs all feeds ``PASSES`` times on one of the two models, then on the other. The fastest pass
# counts, because other work of the computer only adds time.

WARM_UP, TURNS, PASSES, SAMPLES = 3, 21, 3, 8

Feeds = Mapping[str, Sequence[Mapping[str, Array]]]


def collect(request: Request, model: CellModel, run: CellRun, _: object) -> dict[str, Any]:
    """``cell`` and ``fp32``: the seconds of a sample of the main data in each turn;
    ``samples``: of a turn.

    ``unknown``: why there is no time of a float model to compare with.
    """
    if Form.FLOAT not in request.backend.capabilities.forms:
        return {
            "unknown": (
                f"'{request.backend.name}' runs no float model, whose time the time is compared "
                "with"
            )
        }
    if request.subject.given is request.subject.model:
        return {"unknown": "there is no float model, whose time the time is compared with"}
    shared, task = request.shared, request.subject.model.task
    samples = next(iter(run.samples.values()))
    rows = range(min(SAMPLES, len(samples)))
    with ExitStack() as stack:
        floats = prepare_runners(request.backend, shared.graphs, stack, threads=request.threads)
        ours = prepare_runners(request.backend, model.graphs, stack, threads=request.threads)
        feeds = recorded_feeds(task, ours, samples.picked(rows))
        measured: dict[str, list[float]] = {"cell": [], "fp32": []}
        for runners in (ours, floats):
            _seconds(request, feeds, runners, WARM_UP)
        for _turn in range(TURNS):
            for name, runners in (("cell", ours), ("fp32", floats)):
                measured[name].append(_seconds(request, feeds, runners, PASSES) / len(rows))
    return {"cell": tuple(measured["cell"]), "fp32": tuple(measured["fp32"]), "samples": len(rows)}


def _seconds(request: Request, feeds: Feeds, runners: Mapping[str, Executor], passes: int) -> float:
    """The fastest of ``passes`` over ``feeds``, in the process of the engine."""
    return run_where_prepared(partial(fastest_pass, feeds, passes, request.timer), runners)


def _engine(executor: Executor) -> Executor:
    """The engine inside an executor that checks its batches, and inside one of its own process
    that reports them.
    """
    checked = executor.executor if isinstance(executor, CheckedExecutor) else executor
    inner: Executor = getattr(checked, "reported", checked)
    return inner


def fastest_pass(
    feeds: Feeds, passes: int, timer: Callable[[], float], executors: Mapping[str, Executor]
) -> float:
    """The seconds of the fastest of ``passes`` over ``feeds`` by ``timer``."""
    engines = {name: _engine(one) for name, one in executors.items()}
    found = []
    for _ in range(passes):
        started = timer()
        for name, batches in feeds.items():
            for batch in batches:
                engines[name].run(batch)
        found.append(timer() - started)
    return min(found)
