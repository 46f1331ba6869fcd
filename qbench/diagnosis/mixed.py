"""Mixed precision by search: which units get how many bits, one schema for each point.

    N_S − N_S(u)     what unit u costs under schema S: the noise of the outputs less that with u in
                     float, from the gains that localization measures (``examine.each_gain``)
    raise u          from width S to the next finer S′: wins (N_S − N_S(u)) − (N_S′ − N_S′(u)),
                     costs what ``COSTS`` says: bytes, estimated time, both, or products in float

Widths are schemas, the coarsest first; the last is float. All units begin at the coarsest. The step
that wins most for its cost is taken, again and again, until every unit is in float (a greedy walk,
as for a knapsack). As many points as may be evaluated are spread evenly over the steps, or, where a
mixture is good or not, halve the steps that are left. The predictions only order the steps: each
point is measured like any cell.
"""

import glob
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from qbench.backends import Array, Backend, Feeds, get_backend
from qbench.diagnosis.examine import each_gain, output_noise
from qbench.diagnosis.repair.cell import kept_float, without_idle_rules
from qbench.diagnosis.repair.search import owners_of
from qbench.diagnosis.target import Target, watched_backend, watches_itself
from qbench.diagnosis.unit_runs import Units
from qbench.errors import InputError
from qbench.evaluation import Quantized, SubjectArtifacts
from qbench.graph import values_by_name
from qbench.quantization import Decision, Plan, Role, Schema, Slot

SAMPLES = 8
"""Calibration samples that sensitivities are of: each unit costs a part of a run of them."""
_REASON = "kept in float by a search over precisions"
_LEAST = 1e-9
"""The cost of a step that costs nothing."""
_FLOAT_BITS = 32
_FLOAT = 4
"""Bits of float, in those of the finest width: 32 for 8."""
_INTERPRETER = "integer-ort-x64"
"""Is watched where a backend declares no arithmetic."""

Unit = tuple[str, str]
"""Graph and unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """What a unit weighs under one width.

    Args:
        bits: of its weight; 1 where it has none.
        weights, products: its share of the elements of all weights, and of all
            multiply-accumulates.
        is_float: whether it runs in float.
    """

    bits: float
    weights: float
    products: float
    is_float: bool = False


COSTS: Mapping[str, Callable[[Weight], float]] = {
    "both": lambda one: one.bits * (one.weights + one.products),
    "bytes": lambda one: one.bits * one.weights,
    "time": lambda one: one.bits * one.products,
    "integers": lambda one: one.products * one.is_float,
}
"""What a search saves: bytes of weights, estimated time (bits times multiply-accumulates), both, or
multiply-accumulates in float.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """``unit`` goes to the width of index ``width``; ``won`` of the noise of the outputs."""

    unit: Unit
    width: int
    won: float
    cost: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedSchemas:
    """The points of a search.

    Args:
        schemas: from the coarsest to the finest, or in the order in which they were measured, each
            with graphs that neither a width nor another one gives.
        units: how many have a sensitivity; 0 where nothing is to be mixed.
        runs: runs of a unit in float that sensitivities took.
    """

    schemas: tuple[Schema, ...]
    units: int
    runs: int


def mixed_schemas(
    shared: SubjectArtifacts,
    widths: Sequence[Schema],
    backend: Backend,
    *,
    points: int,
    cost: str = "both",
    accepts: Callable[[Schema], bool] | None = None,
) -> MixedSchemas:
    """Schemas that mix ``widths`` and float, at most ``points`` of them.

    The ranges are those of one profile, which all widths share. In each schema something is
    quantized.

    Args:
        widths: in any order: the search begins at the one with the fewest bits of weights, of equal
            ones the first.
        cost: names what steps are weighed by, of ``COSTS``.
        accepts: whether a schema is good enough, which measures it. The points then look for the
            first of the steps that is: each halves those that are left. Steps lead to the coarsest
            width that is good enough as a whole, to float where none is; nothing is mixed where the
            first is. Sensitivities are taken of the widths that steps lead to.

    Raises:
        InputError: widths that have other canonical passes or settings, or rules that select units
            by name or place.
        QbenchError: a width cannot be quantized, or the interpreter does not run it.
    """
    for width in widths:
        _refuse_width(width, widths[0])
    widths = sorted(widths, key=lambda width: _weight_bits(shared, width, backend))
    finest = len(widths)
    if accepts is not None:
        finest = next((at for at, width in enumerate(widths) if accepts(width)), finest)
    if finest == 0:
        return MixedSchemas(schemas=(), units=0, runs=0)
    noise: list[dict[Unit, float]] = []
    weights: list[dict[Unit, Weight]] = []
    for width in widths[: finest + 1]:
        quantized = shared.quantized(width, backend.capabilities)
        noise.append(_noise_of(shared, width, backend))
        weights.append(
            {
                (graph, unit): weight
                for graph, plan in quantized.plans.items()
                for unit, weight in _weights(plan, shared.planned(width.canonical)[graph]).items()
            }
        )
    units = [unit for unit in weights[0] if all(unit in one for one in weights)]
    runs = sum(map(len, noise))
    noise.append({})  # float
    weights.append({unit: _in_float(weights[-1][unit]) for unit in units})
    sizes = [{unit: COSTS[cost](one) for unit, one in row.items()} for row in weights]
    walk = greedy_walk(units, noise[: finest + 1], sizes[: finest + 1])
    plans = [shared.quantized(width, backend.capabilities).plans for width in widths]
    places = _distinct(walk, [_decisions(one, units) for one in plans])
    graphs = shared.planned(widths[0].canonical).values()
    known = {shared.quantized(width, backend.capabilities).digest for width in widths}

    def mixed_at(place: int, number: int) -> tuple[Schema, Quantized]:
        """The mixture after so many steps, and what it makes."""
        chosen = dict.fromkeys(units, 0) | {step.unit: step.width for step in walk[:place]}
        mixed = _schema(widths, chosen, f"{widths[0].name}_mixed{number}")
        made = without_idle_rules(mixed, graphs)
        quantized = shared.quantized(made, backend.capabilities)
        shared.forget(made, backend.capabilities)
        return made, quantized

    def made_at(place: int, number: int) -> Schema | None:
        """The mixture after so many steps; None: its graphs are known."""
        # other decisions may give the same graphs: a pool between units in float is not quantized
        made, quantized = mixed_at(place, number)
        if quantized.digest in known:
            return None
        known.add(quantized.digest)
        return made

    while places and _is_float(mixed_at(places[-1], 1)[1]):
        places.pop()
    if accepts is None:
        schemas = _spread_schemas(_spread(places, points), made_at)
    else:
        schemas = _halving_schemas(places, points, made_at, accepts)
    return MixedSchemas(schemas=tuple(schemas), units=len(units), runs=runs)


def _weight_bits(shared: SubjectArtifacts, width: Schema, backend: Backend) -> int:
    """The bits of all weights under ``width``; 32 each of those in float."""
    bits = 0
    for name, plan in shared.quantized(width, backend.capabilities).plans.items():
        known = values_by_name(shared.planned(width.canonical)[name])
        for slot, qparams in plan.constants.items():
            shape = known[slot.value].shape
            if slot.role is Role.WEIGHT and shape is not None:
                bits += (qparams.qtype.bits - _FLOAT_BITS) * math.prod(shape.numpy())
    return bits


def _is_float(quantized: Quantized) -> bool:
    """Whether nothing is quantized, as where what is left of a width has no product."""
    return not any(plan.quantized_units for plan in quantized.plans.values())


def _spread_schemas(
    places: Sequence[int], made_at: Callable[[int, int], Schema | None]
) -> list[Schema]:
    """The schema of each of ``places`` that has one."""
    schemas: list[Schema] = []
    for place in places:
        made = made_at(place, len(schemas) + 1)
        if made is not None:
            schemas.append(made)
    return schemas


def _halving_schemas(
    places: Sequence[int],
    points: int,
    made_at: Callable[[int, int], Schema | None],
    accepts: Callable[[Schema], bool],
) -> list[Schema]:
    """At most ``points`` schemas on the way to the first of ``places`` that ``accepts`` takes, if
    each behind one that it takes is taken as well.
    """
    left, schemas = list(places), list[Schema]()
    while left and len(schemas) < points:
        middle = len(left) // 2
        made = made_at(left[middle], len(schemas) + 1)
        if made is None:
            del left[middle]
            continue
        schemas.append(made)
        if accepts(made):
            del left[middle:]
        else:
            del left[: middle + 1]
    return schemas


def greedy_walk(
    units: Sequence[Unit],
    noise: Sequence[Mapping[Unit, float]],
    sizes: Sequence[Mapping[Unit, float]],
) -> tuple[Step, ...]:
    """The steps from the coarsest width of all ``units`` to the finest, the best for its cost
    first; of equal ones that of the first unit.

    Args:
        units: in graph order.
        noise: width → unit → its noise; nothing is none.
        sizes: width → unit → its size.
    """
    at = dict.fromkeys(units, 0)
    steps = []
    while left := [unit for unit in units if at[unit] + 1 < len(noise)]:
        found = [_step(unit, at[unit], noise, sizes) for unit in left]
        best = max(found, key=lambda step: step.won / step.cost)
        at[best.unit] = best.width
        steps.append(best)
    return tuple(steps)


def _step(
    unit: Unit,
    width: int,
    noise: Sequence[Mapping[Unit, float]],
    sizes: Sequence[Mapping[Unit, float]],
) -> Step:
    won = noise[width].get(unit, 0.0) - noise[width + 1].get(unit, 0.0)
    cost = sizes[width + 1][unit] - sizes[width][unit]
    return Step(unit=unit, width=width + 1, won=max(won, 0.0), cost=max(cost, _LEAST))


def _decisions(
    plans: Mapping[str, Plan], units: Sequence[Unit]
) -> dict[Unit, dict[Slot, Decision]]:
    """What the ``plans`` of one width, by graph, decide about each of ``units``."""
    found: dict[Unit, dict[Slot, Decision]] = {unit: {} for unit in units}
    for graph, plan in plans.items():
        for slot, decision in plan.decisions.items():
            if (graph, slot.node) in found:
                found[graph, slot.node][slot] = decision
    return found


def _distinct(
    walk: Sequence[Step], decided: Sequence[Mapping[Unit, Mapping[Slot, Decision]]]
) -> list[int]:
    """Lengths of prefixes of ``walk`` whose graphs are neither those of a width nor those of a
    shorter one. A step may change nothing, as that of a unit without a weight from w4a8 to w8a8.

    Args:
        decided: width → unit → what is decided about it, without float.
    """
    alike = [dict.fromkeys(decided[0], 0)]
    for width in range(1, len(decided)):
        kept = {unit: decided[width][unit] == decided[width - 1][unit] for unit in decided[0]}
        alike.append({unit: alike[-1][unit] if kept[unit] else width for unit in kept})
    alike.append(dict.fromkeys(decided[0], len(decided)))
    known = {tuple(one.values()) for one in alike}
    at, places = dict(alike[0]), []
    for length, step in enumerate(walk, 1):
        at[step.unit] = alike[step.width][step.unit]
        state = tuple(at.values())
        if state not in known:
            known.add(state)
            places.append(length)
    return places


def _spread(places: Sequence[int], points: int) -> list[int]:
    """At most ``points`` of ``places``, in equal parts."""
    last, count = len(places) - 1, min(points, len(places))
    return [places[at] for at in sorted({last * at // max(count - 1, 1) for at in range(count)})]


def _noise_of(shared: SubjectArtifacts, width: Schema, backend: Backend) -> dict[Unit, float]:
    """Unit → what it costs under ``width``: noise of the outputs relative to their signal."""
    quantized, found = shared.quantized(width, backend.capabilities), dict[Unit, float]()
    watched = watched_backend(backend)
    if not watches_itself(watched or backend):
        watched = get_backend(_INTERPRETER)
    assert watched is not None
    for name, graph in shared.planned(width.canonical).items():
        target = Target(
            model=shared.subject.model.id,
            graph=name,
            schema=width.name,
            original=graph,
            quantized=quantized.models[name],
            backend=watched,
            watched=watched,
        )
        feeds = _first(shared.calibration_feeds[name])
        owners, units = owners_of(graph), Units.of(target)
        nodes = {unit.value: unit.node for unit in units.units}
        whole = output_noise(target, feeds)
        with closing(each_gain(target, units, feeds)) as gains:
            for value, gain in gains:
                unit = (name, owners.get(nodes[value], nodes[value]))
                found[unit] = found.get(unit, 0.0) + whole * max(1.0 - 10 ** (-gain / 10), 0.0)
    return found


def _first(batches: Sequence[Feeds]) -> dict[str, Array]:
    """The first samples of the first batch."""
    return {name: np.asarray(array)[:SAMPLES] for name, array in batches[0].items()}


def _in_float(weight: Weight) -> Weight:
    return replace(weight, bits=_FLOAT * weight.bits, is_float=True)


def _weights(plan: Plan, graph: ir.Model) -> dict[str, Weight]:
    """Quantized unit → what it weighs."""
    known = values_by_name(graph)
    weights: dict[str, tuple[int, int]] = {}
    for slot, qparams in plan.constants.items():
        shape = known[slot.value].shape
        if slot.role is Role.WEIGHT and shape is not None:
            weights[slot.node] = (qparams.qtype.bits, math.prod(shape.numpy()))
    elements = sum(count for _, count in weights.values()) or 1
    found = {}
    for unit in plan.quantized_units:
        bits, count = weights.get(unit, (1, 0))
        found[unit] = Weight(
            bits=bits,
            weights=count / elements,
            products=plan.node_macs.get(unit, 0) / (plan.macs or 1),
        )
    return found


def _schema(widths: Sequence[Schema], chosen: Mapping[Unit, int], name: str) -> Schema:
    """The coarsest width, with the rules of others in front for the units that are there."""
    base = widths[0]
    for index in range(1, len(widths)):
        patterns = tuple(glob.escape(unit) for (_, unit), at in chosen.items() if at == index)
        rules = (replace(rule, names=patterns) for rule in widths[index].rules if patterns)
        base = base.preceded_by(tuple(rules))
    in_float = [unit for (_, unit), at in chosen.items() if at == len(widths)]
    return kept_float(base, in_float, name=name, reason=_REASON)


def _refuse_width(width: Schema, first: Schema) -> None:
    same: tuple[Callable[[Schema], object], ...] = (
        lambda one: one.canonical,
        lambda one: one.bias_correction,
        lambda one: one.weight_codes,
        lambda one: one.outputs,
    )
    if width.made_by is not None:
        found = f"'{width.name}', which another quantizer makes"
    elif any(setting(width) != setting(first) for setting in same):
        found = f"'{width.name}' and '{first.name}', with other canonical passes or settings"
    elif any(rule.names or rule.first or rule.last for rule in width.rules):
        found = f"'{width.name}', with a rule that selects units by name or place"
    else:
        return
    raise InputError(
        "Searching over precisions",
        found=found,
        expected="schemas that differ in the specs of their slots",
        remedy="Name schemas such as w4a8_asym_pc,w8a8_asym_pc.",
    )
