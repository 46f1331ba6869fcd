"""The time that the engine takes for a sample: of the cell and of the float model, in turns."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from qbench.backends import Array, CheckedExecutor, Executor, run_where_prepared
from qbench.errors import InputError
from qbench.evaluation.artifacts import prepare_runners, recorded_feeds
from qbench.evaluation.cell_model import CellModel
from qbench.evaluation.cell_run import CellRun
from qbench.evaluation.request import Request
from qbench.graph import Form

# Timed is the engine alone, on feeds that were prepared before: no preparation of samples, no task, and no pipe to the
# process of an engine. Each turn runs all feeds ``PASSES`` times on one of the two, and then on the other; the fastest
# pass counts, since whatever else the computer does only adds time.

WARM_UP, TURNS, PASSES, SAMPLES = 3, 21, 3, 8

Feeds = Mapping[str, Sequence[Mapping[str, Array]]]


def collect(request: Request, model: CellModel, run: CellRun, _: object) -> dict[str, Any]:
    """``cell`` and ``fp32``: the seconds of a sample of the main data in each turn; ``samples``: of a turn.

    Raises:
        InputError: the engine runs no float model that a time could be compared with.
    """
    if Form.FLOAT not in request.backend.capabilities.forms:
        raise InputError(
            f"Timing '{request.cell}'",
            found=f"'max_latency_ratio' for '{request.backend.name}', which runs no float model",
            expected="an engine that runs the model in fp32, too: its time is what a time is compared with",
            remedy='Name the backends that do: max_latency_ratio = { "ort-cpu" = … }.',
        )
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


def fastest_pass(feeds: Feeds, passes: int, timer: Callable[[], float], executors: Mapping[str, Executor]) -> float:
    """The seconds of the fastest of ``passes`` over ``feeds`` by ``timer``."""
    engines = {name: one.executor if isinstance(one, CheckedExecutor) else one for name, one in executors.items()}
    found = []
    for _ in range(passes):
        started = timer()
        for name, batches in feeds.items():
            for batch in batches:
                engines[name].run(batch)
        found.append(timer() - started)
    return min(found)
