"""One grid for every value that integer units exchange.

Units that multiply by weights, or two computed operands as MatMul does, ask for integers. What lies between them counts
in integers when it can live on what is there: all its operands are on a grid already, and what it gives is read by an
integer unit or leaves the graph. So a residual sum is one of integers, and a normalization spelled in sums and roots
stays float. Operators that only move values follow: what they move shares the grid of the value it comes from.

Graph outputs stay float. Two specs for one value: the later unit stays float.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from qbench.calibration import Profile, get_range_method
from qbench.quantization.candidates import Candidate
from qbench.quantization.constraints import Output, fixed_interval
from qbench.quantization.decision import Decision, Fixed, Shared, Static, qparams_of
from qbench.quantization.spec import Spec


@dataclass(frozen=True, slots=True, eq=False)
class ValueGrids:
    """Value name → decision, the units that work on them, and those left out with the reason."""

    decisions: Mapping[str, Decision]
    units: tuple[Candidate, ...]
    left_out: Mapping[str, str]


def plan_values(candidates: Sequence[Candidate], profile: Profile) -> ValueGrids:
    """Grids for the values of ``candidates`` (those whose rule quantizes activations), in graph order."""
    active = [candidate for candidate in candidates if candidate.rule.activation is not None]
    left_out: dict[str, str] = {}
    while True:
        wanted, idle = _wanted(active)
        sources = _sources(active, wanted)
        specs, conflicts = _claimed(active, wanted, sources)
        dropped = {**idle, **conflicts}
        if not dropped:
            break
        left_out.update(dropped)
        active = [candidate for candidate in active if candidate.unit.name not in dropped]
    decisions = _decisions(active, specs, sources, profile)
    return ValueGrids(decisions, tuple(active), left_out)


def _wanted(active: Sequence[Candidate]) -> tuple[set[ir.Value], dict[str, str]]:
    """The values that go on a grid, and the units that cannot live on them, with the reason."""
    movers = [c for c in active if c.demand.output is Output.SHARED]
    products = [c for c in active if c.weight_index is not None]
    between = [c for c in active if c.weight_index is None and c.demand.output is not Output.SHARED]
    idle: dict[str, str] = {}
    while True:
        integer = [*products, *between]
        made = _moved_on({v for c in integer for v in c.outputs} | {v for c in products for v in _operands(c)}, movers)
        read = _moved_back({v for c in integer for v in _operands(c)}, movers)
        reasons = {c.unit.name: reason for c in between if (reason := _why_not_between(c, made, read))}
        if not reasons:
            break
        idle.update(reasons)
        between = [c for c in between if c.unit.name not in reasons]
    wanted = {value for c in (*products, *between) for value in _exchanged(c)}
    touched = _touched(movers, wanted)
    idle.update({c.unit.name: "nothing around it is in integers" for c in movers if c not in touched})
    return wanted.union(*(_exchanged(c) for c in touched)), idle


def _why_not_between(candidate: Candidate, made: set[ir.Value], read: set[ir.Value]) -> str | None:
    """Why a unit cannot count on the values ``made`` on grids, or is of no use to those who ``read`` them."""
    for value in _operands(candidate):
        if value not in made and not value.is_graph_input():
            return f"its operand '{value.name}' is not in integers"
    if not any(value in read or value.is_graph_output() for value in candidate.outputs):
        return "nothing that counts in integers reads it"
    return None


def _moved_on(values: set[ir.Value], movers: Sequence[Candidate]) -> set[ir.Value]:
    """``values``, graph inputs, and what ``movers`` (in graph order) make of them."""
    found = set(values)
    for mover in movers:
        if any(value in found or value.is_graph_input() for value in _operands(mover)):
            found.update(mover.outputs)
    return found


def _moved_back(values: set[ir.Value], movers: Sequence[Candidate]) -> set[ir.Value]:
    """``values``, graph outputs, and what ``movers`` make them of."""
    found = set(values)
    for mover in reversed(movers):
        if any(value in found or value.is_graph_output() for value in mover.outputs):
            found.update(_operands(mover))
    return found


def _touched(movers: Sequence[Candidate], wanted: set[ir.Value]) -> set[Candidate]:
    """The movers with a value of ``wanted`` before or behind them, over chains of movers."""
    values, touched = set(wanted), set[Candidate]()
    growing = True
    while growing:
        growing = False
        for mover in (*movers, *reversed(movers)):
            if mover not in touched and any(value in values for value in _exchanged(mover)):
                values.update(_exchanged(mover))
                touched.add(mover)
                growing = True
    return touched


def _operands(candidate: Candidate) -> tuple[ir.Value, ...]:
    return tuple(value for _, value in candidate.data_inputs)


def _exchanged(candidate: Candidate) -> Iterable[ir.Value]:
    yield from _operands(candidate)
    yield from (value for value in candidate.outputs if value.uses())


def _sources(active: Sequence[Candidate], wanted: set[ir.Value]) -> dict[ir.Value, ir.Value]:
    """Moved value → the value it comes from."""
    sources: dict[ir.Value, ir.Value] = {}
    for candidate in active:
        if candidate.demand.output is Output.SHARED:
            _, origin = candidate.data_inputs[0]
            sources.update({value: sources.get(origin, origin) for value in candidate.outputs if value in wanted})
    return sources


def _claimed(
    active: Sequence[Candidate], wanted: set[ir.Value], sources: Mapping[ir.Value, ir.Value]
) -> tuple[dict[ir.Value, Spec], dict[str, str]]:
    """The spec of every value that is no moved one, by first claim; and the units whose claims came too late."""
    specs: dict[ir.Value, Spec] = {}
    conflicts: dict[str, str] = {}
    for candidate in active:
        spec = candidate.rule.activation
        assert spec is not None
        values = [sources.get(value, value) for value in _exchanged(candidate) if value in wanted]
        other = next((v for v in values if specs.get(v, spec) != spec), None)
        if other is None:
            specs.update(dict.fromkeys(values, spec))
        else:
            conflicts[candidate.unit.name] = f"it wants '{other.name}' as {spec}, where it is {specs[other]}"
    return specs, conflicts


def _decisions(
    active: Sequence[Candidate], specs: Mapping[ir.Value, Spec], sources: Mapping[ir.Value, ir.Value], profile: Profile
) -> dict[str, Decision]:
    fixed = {c.unit.output: c.unit.head.op_type for c in active if c.demand.output is Output.FIXED}
    decisions: dict[str, Decision] = {}
    for value, spec in specs.items():
        name = value.name or ""
        if value in fixed:
            decisions[name] = Fixed(spec.choose(fixed_interval(fixed[value], spec.grid.bits)))
        else:
            method = get_range_method(spec.range_method)
            decisions[name] = Static(spec.choose(method.of_statistics(profile.values[name], spec.grid, spec.family)))
    for value, source in sources.items():
        qparams = qparams_of(decisions[source.name or ""])
        assert qparams is not None
        decisions[value.name or ""] = Shared(qparams, source.name or "")
    return decisions
