"""What the graph's outputs gain when one node alone is kept in float.

    gain = 10 · log₁₀(N / N′)        N: noise of the outputs beside fp32's; N′: the same with the node's result replaced
                                     by what the fp32 node makes of the levels in front of it, on its own grid

That is what a schema does that keeps the node in float between nodes that are not. The run is taken up at the node:
what lies before it is remembered, what lies behind is counted by the patient as ever.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from qbench.backends import Array, Feeds, get_backend, in_slices
from qbench.diagnosis.fresh_units import fresh_unit
from qbench.diagnosis.patient import Patient, Watchable
from qbench.diagnosis.quantized_units import QuantizedUnit
from qbench.diagnosis.tallies import sqnr_of
from qbench.diagnosis.unit_runs import Units, exact_backend, levels_of
from qbench.interpreter import Run

FLOAT_BACKEND = "ort-cpu"


def output_gains(patient: Patient, units: Units, feeds: Feeds) -> dict[str, float]:
    """Value → gain in dB of every unit with a counterpart in fp32.

    Args:
        patient: whose watched machine can be stood around. units: its pieces.
        feeds: a few samples: every unit costs a part of a run of them.

    Raises:
        QbenchError: a backend does not run the graph.
    """
    machine = patient.watched
    if not isinstance(machine, Watchable):
        return {}
    memory = _Memory()
    names = [str(value.name) for value in patient.original.graph.outputs]
    levels = tuple(unit.value for unit in units.units if unit.value not in names)
    with get_backend(FLOAT_BACKEND).prepare(patient.original) as run:
        wanted = in_slices(run, patient.original).run(feeds)
    with machine.surrounded(memory.around).prepare(patient.quantized, taps=levels) as executor:
        seen = {**feeds, **executor.run(feeds)}
        before = _noise(wanted, seen, names)
        memory.keep()
        gains = {}
        for unit in units.units:
            made = _kept_in_float(unit, units, seen)
            if made is None:
                continue
            memory.replaced = (unit.value, made)
            gains[unit.value] = sqnr_of(before, _noise(wanted, executor.run(feeds), names))
    return gains


def _kept_in_float(unit: QuantizedUnit, units: Units, seen: Mapping[str, Array]) -> Array | None:
    """What fp32 makes of the levels in front of ``unit``, on its grid; None: fp32 has no such node."""
    if unit.value not in units.fresh:
        return None
    piece = fresh_unit(unit, units.original, units.stands_for, rounded=False)
    with exact_backend().prepare(piece.graph) as run:
        exact = run.run(units.reals(unit, seen))[unit.stands_for]
    return levels_of(unit, exact)


def _noise(wanted: Mapping[str, Array], found: Mapping[str, Array], names: Sequence[str]) -> float:
    apart = [(found[name].astype(np.float64) - wanted[name]).reshape(-1) for name in names]
    return float(sum(np.dot(one, one) for one in apart))


class _Memory:
    """Stands around the kernels of one program: remembers a run, and takes later ones up at a node.

    ``replaced`` is the value to be exchanged, and its array.
    """

    def __init__(self) -> None:
        self.replaced: tuple[str, Array] | None = None
        self._order: dict[str, int] = {}
        self._results: dict[int, Sequence[Array]] = {}
        self._kept = False

    def keep(self) -> None:
        """Later runs start from what was seen until now."""
        self._kept = True

    def around(self, node: ir.Node, run: Run) -> Run:
        """A kernel that remembers."""
        place = len(self._order)
        self._order[str(node.outputs[0].name)] = place

        def remembering(inputs: Sequence[Array | None]) -> Sequence[Array]:
            if not self._kept or self.replaced is None:
                results = self._results[place] = run(inputs)
                return results
            value, array = self.replaced
            start = self._order.get(value, -1)
            if place < start:
                return self._results[place]
            return (array,) if place == start else run(inputs)

        return remembering
