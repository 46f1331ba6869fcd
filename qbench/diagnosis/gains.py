"""What the graph's outputs gain when one node alone is kept in float.

    gain = 10 · log₁₀(N / N′)        N: noise of the outputs beside fp32's; N′: the same with the node in float

In float the node is what fp32 has there, with real weights, and hands its real result on: to nodes that read it, whose
own result is put on their grids as ever, and through those that only move numbers and keep their grid. The run is taken
up behind them: what lies before is remembered, what lies behind is counted by the patient.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from qbench.backends import Array, Feeds, get_backend, in_slices
from qbench.diagnosis.filled_batches import filled_up
from qbench.diagnosis.fresh_units import fresh_unit
from qbench.diagnosis.patient import Patient, Watchable
from qbench.diagnosis.quantized_units import QuantizedUnit
from qbench.diagnosis.tallies import ErrorTally, sqnr_of
from qbench.diagnosis.unit_runs import FLOAT_BACKEND, Units, exact_backend
from qbench.interpreter import Run


def output_gains(patient: Patient, units: Units, feeds: Feeds) -> dict[str, float]:
    """Value → gain in dB, of every unit with a counterpart in fp32: all that ``each_gain`` gives."""
    return dict(each_gain(patient, units, feeds))


def each_gain(patient: Patient, units: Units, feeds: Feeds) -> Generator[tuple[str, float], None, None]:
    """(value, gain in dB) of one unit after the other that has a counterpart in fp32; whoever asks may stop.

    Args:
        patient: whose watched machine can be stood around; of any other nothing is known. units: its pieces.
        feeds: a few samples: every unit costs a part of a run of them.

    Raises:
        QbenchError: a backend does not run the graph.
    """
    machine = patient.watched
    if not isinstance(machine, Watchable):
        return
    feeds = filled_up(patient.original, feeds)
    memory, names = _Memory(), [str(value.name) for value in patient.original.graph.outputs]
    levels = tuple(unit.value for unit in units.units if unit.value not in names)
    with get_backend(FLOAT_BACKEND).prepare(patient.original) as run:
        wanted = in_slices(run, patient.original).run(feeds)
    with machine.surrounded(memory.around).prepare(patient.quantized, taps=levels) as executor:
        seen = {**feeds, **executor.run(feeds)}
        before = _noise(wanted, seen, names)
        memory.keep()
        for unit in units.units:
            if unit.value in units.fresh:
                memory.exchanged = dict(_kept_in_float(unit, units, seen))
                yield unit.value, sqnr_of(before, _noise(wanted, executor.run(feeds), names))


def _kept_in_float(unit: QuantizedUnit, units: Units, seen: Mapping[str, Array]) -> Iterator[tuple[str, Array]]:
    """Every value that is another when ``unit`` is in float, by its own levels where nodes count again."""
    piece = fresh_unit(unit, units.original, units.stands_for, rounded=False)
    with exact_backend().prepare(piece.graph) as run:
        real = run.run(units.reals(unit, seen))[unit.stands_for]
    yield from _handed_on(unit, real, units, seen)


def _handed_on(
    unit: QuantizedUnit, real: Array, units: Units, seen: Mapping[str, Array]
) -> Iterator[tuple[str, Array]]:
    readers = [one for one in units.units if unit.value in one.feeds]
    if not readers:
        yield unit.value, unit.rounded(real / np.float32(unit.scale)).astype(seen[unit.value].dtype)
    for reader in readers:
        result = _read(reader, unit.value, real, seen)
        if _keeps_grid(reader, unit):
            yield from _handed_on(reader, result, units, seen)
        else:
            yield reader.value, reader.rounded(result / np.float32(reader.scale)).astype(seen[reader.value].dtype)


def _read(reader: QuantizedUnit, value: str, real: Array, seen: Mapping[str, Array]) -> Array:
    """What ``reader`` has in front of rounding when it is handed ``real`` in place of the levels ``value``."""
    graph = reader.graph.clone().graph
    pairs = [node.outputs[0] for node in graph if node.inputs and node.inputs[0] is not None]
    handed = [
        result
        for result in pairs
        if (maker := result.producer()) is not None
        and maker.op_type == "DequantizeLinear"
        and maker.inputs[0] is not None
        and maker.inputs[0].name == value
    ]
    others = [one for one in graph.inputs if one.name != value]
    (goal,) = (one for node in graph for one in node.outputs if one.name == reader.real)
    piece = ir.Model(ir.convenience.extract(graph, [*handed, *others], [goal]), ir_version=reader.graph.ir_version)
    feeds = {str(one.name): real for one in handed} | {str(one.name): seen[str(one.name)] for one in others}
    with exact_backend().prepare(piece) as run:
        return run.run(feeds)[reader.real]


def _keeps_grid(reader: QuantizedUnit, unit: QuantizedUnit) -> bool:
    """Whether ``reader`` only moves numbers, and puts them on the grid that they came from."""
    if reader.grid is None or unit.grid is None or len(reader.feeds) > 1 or len(reader.operators) != 1:
        return False
    return (reader.scale, reader.zero_point) == (unit.scale, unit.zero_point) and not _has_weights(reader)


def _has_weights(unit: QuantizedUnit) -> bool:
    pairs = [node for node in unit.graph.graph if node.op_type == "DequantizeLinear"]
    return len(pairs) > len(unit.feeds)


def _noise(wanted: Mapping[str, Array], found: Mapping[str, Array], names: Sequence[str]) -> float:
    """Noise as a share of the signal, summed over the outputs that are real numbers, each as large as the others."""
    total = 0.0
    for name in names:
        if wanted[name].dtype.kind != "f" or wanted[name].shape != found[name].shape:
            continue
        tally = ErrorTally()
        tally.add(wanted[name], found[name])
        total += tally.noise / tally.signal if tally.signal else tally.noise
    return total


class _Memory:
    """Stands around the kernels of one program: remembers a run, and takes later ones up at a node.

    ``exchanged`` are the values that are others than they were, with what they are now.
    """

    def __init__(self) -> None:
        self.exchanged: Mapping[str, Array] = {}
        self._order: dict[str, int] = {}
        self._results: dict[str, Sequence[Array]] = {}
        self._kept = False

    def keep(self) -> None:
        """Later runs start from what was seen until now."""
        self._kept = True

    def around(self, node: ir.Node, run: Run) -> Run:
        """A kernel that remembers."""
        place, name = len(self._order), str(node.outputs[0].name)
        self._order[name] = place

        def remembering(inputs: Sequence[Array | None]) -> Sequence[Array]:
            if not self._kept:
                results = self._results[name] = run(inputs)
                return results
            if name in self.exchanged:
                return (self.exchanged[name],)
            return self._results[name] if place < self._first else run(inputs)

        return remembering

    @property
    def _first(self) -> int:
        """Where a run begins to be another."""
        return min((self._order[name] for name in self.exchanged if name in self._order), default=0)
