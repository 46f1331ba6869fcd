"""What a repair may keep in float, in the order in which it is tried: suspects, who reads them, then all the others.

A schema keeps a whole operator in float, with the bias and the clip it carries. Where the operator is in float but its
result still goes into an integer one, that result is on a grid as before: behind each suspect therefore stand those
who read it.
"""

from collections.abc import Iterator, Mapping, Sequence

import onnx_ir as ir

from qbench.calibration import units_of
from qbench.graph import node_key
from qbench.quantization import Plan

SUSPECTS_FIRST = 4
"""Suspects whose readers stand right behind them."""


def repair_candidates(
    planned: Mapping[str, ir.Model], plans: Mapping[str, Plan], ranked: Sequence[tuple[str, str]]
) -> tuple[str, ...]:
    """The operators of all graphs that are quantized at all, by the names that rules of a schema match.

    Args:
        planned: the graphs that were planned on, by name. plans: what was decided for them.
        ranked: (graph, node of it), the likeliest first. Nodes that no schema rules are passed over.
    """
    quantized = {name: frozenset(plan.quantized_units) for name, plan in plans.items()}
    owners = {name: owners_of(model) for name, model in planned.items()}
    readers = {name: dict(_readers(model, owners[name])) for name, model in planned.items()}
    ordered: dict[str, None] = {}
    for place, (graph, node) in enumerate(ranked):
        unit = owners.get(graph, {}).get(node)
        if unit is None:
            continue
        near = (unit, *(readers[graph].get(unit, ()) if place < SUSPECTS_FIRST else ()))
        ordered |= dict.fromkeys(one for one in near if one in quantized[graph])
    return tuple(ordered | dict.fromkeys(unit for plan in plans.values() for unit in plan.quantized_units))


def owners_of(model: ir.Model) -> dict[str, str]:
    """Node → the operator by whose name rules of a schema match it: its own, or that which carries it."""
    return {node_key(node): unit.name for unit in units_of(model.graph) for node in unit.nodes}


def _readers(model: ir.Model, owners: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(unit, the units that read its results)."""
    for unit in units_of(model.graph):
        nodes = (use.node for value in unit.last.outputs for use in value.uses())
        yield unit.name, tuple(dict.fromkeys(owners[node_key(node)] for node in nodes if node_key(node) in owners))
