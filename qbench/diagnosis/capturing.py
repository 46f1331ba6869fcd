"""A few samples of a few nodes as arrays, for what sums cannot tell."""

from collections.abc import Collection
from contextlib import ExitStack

import numpy as np

from qbench.backends import Feeds, get_backend, in_slices
from qbench.diagnosis.captured import Captured
from qbench.diagnosis.patient import Patient
from qbench.diagnosis.unit_runs import UnitRunner, Units
from qbench.judging import NodeErrors

FLOAT_BACKEND = "ort-cpu"


def capture(patient: Patient, units: Units, nodes: Collection[NodeErrors], feeds: Feeds) -> tuple[Captured, ...]:
    """``nodes`` of ``patient`` at work, in the order of the graph.

    Args:
        patient: what is examined. units: its pieces. nodes: what was counted of those that are asked for.
        feeds: a few samples of its float graph.

    Raises:
        QbenchError: a backend does not run the graph.
    """
    asked = {(node.node, node.value): node for node in nodes}
    chosen = [unit for unit in units.units if (unit.node, unit.stands_for) in asked]
    around = {name for unit in chosen for name in (unit.value, *unit.feeds)}
    inputs = {str(value.name) for value in patient.original.graph.inputs}
    outputs = {str(value.name) for value in patient.original.graph.outputs}
    floats = {units.stands_for[name] for name in around if name in units.aligned} - inputs - outputs
    found = []
    with ExitStack() as stack:
        float_run = stack.enter_context(get_backend(FLOAT_BACKEND).prepare(patient.original, taps=sorted(floats)))
        levels = sorted(name for name in around if name in units.by_value and name not in outputs)
        watched = stack.enter_context(patient.watched.prepare(patient.quantized, taps=levels))
        exact = {**feeds, **in_slices(float_run, patient.original).run(feeds)}
        seen = {**feeds, **in_slices(watched, patient.quantized).run(feeds)}
        for unit in chosen:
            runner = UnitRunner(patient, unit, units.fresh.get(unit.value), stack)
            own = {name: seen[name] for name in unit.feeds}
            again = runner.counted(own)
            aligned = all(name in units.aligned or name not in units.by_value for name in (unit.value, *unit.feeds))
            fed = units.rounded(unit, exact) if aligned else own
            found.append(
                Captured(
                    unit=unit,
                    errors=asked[unit.node, unit.stands_for],
                    feeds=own,
                    found=seen[unit.value] if patient.is_watched_itself or again is None else again,
                    again=again,
                    crash=runner.crash,
                    real=runner.steps(own).astype(np.float64),
                    fed=fed,
                    isolated=runner.counted(fed),
                    expected=exact[unit.stands_for] if aligned else unit.reals(seen[unit.value]),
                )
            )
    return tuple(found)
