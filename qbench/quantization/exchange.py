"""Which values integer units exchange, and the units that have no part in it.

Units that multiply by weights, or two computed operands as MatMul does, ask for integers. What lies between them counts
in integers when it can live on what is there: all its operands are on a grid already, and what it gives is read by an
integer unit or leaves the graph. So a residual sum is one of integers, and a normalization spelled in sums and roots
stays float. Operators that only move values follow: what they move shares the grid of the value it comes from.

A side of a unit that the schema keeps in float takes no part: such operands need not be on a grid, such results are on
none unless a reader asks for it.
"""

from collections.abc import Iterable, Sequence

import onnx_ir as ir

from qbench.quantization.candidates import Candidate


def exchanged_values(
    active: Sequence[Candidate], given: frozenset[str] = frozenset()
) -> tuple[set[ir.Value], dict[str, str]]:
    """The values that go on a grid, and the units that cannot live on them, with the reason.

    Args:
        active: units in graph order.
        given: names of values that came with a grid.
    """
    movers = [c for c in active if c.moves]
    products = [c for c in active if c.weight_index is not None]
    between = [c for c in active if c.weight_index is None and not c.moves]
    idle: dict[str, str] = {}
    while True:
        integer = [*products, *between]
        made = {v for c in integer for v in results_of(c)} | {v for c in products for v in operands_of(c)}
        made = _moved_on(made, movers, given)
        read = _moved_back({v for c in integer for v in operands_of(c)}, movers)
        reasons = {c.unit.name: reason for c in between if (reason := _why_not_between(c, made, read, given))}
        if not reasons:
            break
        idle.update(reasons)
        between = [c for c in between if c.unit.name not in reasons]
    wanted = {value for c in (*products, *between) for value in values_of(c)}
    touched = _touched(movers, wanted)
    idle.update({c.unit.name: "nothing around it is in integers" for c in movers if c not in touched})
    return wanted.union(*(values_of(c) for c in touched)), idle


def operands_of(candidate: Candidate) -> tuple[ir.Value, ...]:
    """The computed operands that the schema wants on a grid known beforehand."""
    return () if candidate.input is None else tuple(value for _, value in candidate.data_inputs)


def results_of(candidate: Candidate) -> tuple[ir.Value, ...]:
    """The results that the schema wants on a grid known beforehand."""
    return () if candidate.output is None else candidate.outputs


def values_of(candidate: Candidate) -> Iterable[ir.Value]:
    """Operands, and those results that something in the graph reads."""
    yield from operands_of(candidate)
    yield from (value for value in results_of(candidate) if value.uses())


def _why_not_between(
    candidate: Candidate, made: set[ir.Value], read: set[ir.Value], given: frozenset[str]
) -> str | None:
    """Why a unit cannot count on the values ``made`` on grids, or is of no use to those who ``read`` them."""
    for value in operands_of(candidate):
        if value not in made and not value.is_graph_input() and value.name not in given:
            return f"its operand '{value.name}' is not in integers"
    if candidate.input is None or candidate.output is None:
        return None  # one side alone counts nothing in integers: it is rounded, as asked
    if not any(value in read or value.is_graph_output() for value in candidate.outputs):
        return "nothing that counts in integers reads it"
    return None


def _moved_on(values: set[ir.Value], movers: Sequence[Candidate], given: frozenset[str]) -> set[ir.Value]:
    """``values``, graph inputs, and what ``movers`` (in graph order) make of them."""
    found = set(values)
    for mover in movers:
        if any(value in found or value.is_graph_input() or value.name in given for value in operands_of(mover)):
            found.update(results_of(mover))
    return found


def _moved_back(values: set[ir.Value], movers: Sequence[Candidate]) -> set[ir.Value]:
    """``values``, graph outputs, and what ``movers`` make them of."""
    found = set(values)
    for mover in reversed(movers):
        if any(value in found or value.is_graph_output() for value in mover.outputs):
            found.update(operands_of(mover))
    return found


def _touched(movers: Sequence[Candidate], wanted: set[ir.Value]) -> set[Candidate]:
    """The movers with a value of ``wanted`` before or behind them, over chains of movers."""
    values, touched = set(wanted), set[Candidate]()
    growing = True
    while growing:
        growing = False
        for mover in (*movers, *reversed(movers)):
            if mover not in touched and any(value in values for value in values_of(mover)):
                values.update(values_of(mover))
                touched.add(mover)
                growing = True
    return touched
