"""One grid for every value that integer units exchange.

A value is on a grid when an integer unit reads it, or makes it for another node. Values that operators only move share
the grid of the value they come from. Graph outputs stay float. Two specs for one value: the later unit stays float.
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
    """The values that go on a grid, and the movers with nothing quantized around them."""
    movers = [c for c in active if c.demand.output is Output.SHARED]
    wanted: set[ir.Value] = set()
    for candidate in active:
        if candidate.demand.output is not Output.SHARED:
            wanted.update(_exchanged(candidate))
    touched: set[Candidate] = set()
    growing = True
    while growing:  # backwards and forwards through chains of movers
        growing = False
        for mover in (*movers, *reversed(movers)):
            if mover not in touched and any(value in wanted for value in _exchanged(mover)):
                wanted.update(_exchanged(mover))
                touched.add(mover)
                growing = True
    idle = {c.unit.name: "nothing quantized around it" for c in movers if c not in touched}
    return wanted, idle


def _exchanged(candidate: Candidate) -> Iterable[ir.Value]:
    yield from (value for _, value in candidate.data_inputs)
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
