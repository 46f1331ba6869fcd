"""Which values of a graph are watched: those that some schema could put on a grid.

Every float32 input of the graph, and every float32 result of a unit (``units``); constants are known without watching.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import onnx_ir as ir

from qbench.calibration.units import units_of
from qbench.errors import InputError, unknown_name
from qbench.graph import is_constant, with_shapes


@dataclass(frozen=True, slots=True)
class WatchedValue:
    """A value by name; ``sample_axis``: where it runs over samples, as the graph's first input does along its first."""

    name: str
    sample_axis: int | None


def watched_values(model: ir.Model, names: Iterable[str] | None = None) -> tuple[WatchedValue, ...]:
    """The values of a canonical ``model`` to watch, in graph order; with ``names``, these and no others.

    Raises:
        InputError: a name is none of the graph's float32 values, or the graph has no input to count samples by.
    """
    shaped = with_shapes(model)
    batch = batch_of(shaped.graph)
    results = (
        [v for unit in units_of(shaped.graph) for v in unit.values] if names is None else _all_results(shaped.graph)
    )
    found = {}
    for value in (*shaped.graph.inputs, *results):
        if value.name and value.dtype == ir.DataType.FLOAT and not is_constant(value):
            found[value.name] = WatchedValue(value.name, sample_axis(value, batch))
    if names is None:
        return tuple(found.values())
    asked = list(names)
    for name in asked:
        if name not in found:
            raise unknown_name(f"Choosing the values of '{model.graph.name}' to watch", "value", name, found)
    return tuple(found[name] for name in found if name in set(asked))


def batch_of(graph: ir.Graph) -> int | str | None:
    """What the first dimension of the first input is: a number, the name that stands for it, or None.

    Raises:
        InputError: the graph takes no data.
    """
    fed = [value for value in graph.inputs if value.name not in graph.initializers]
    if not fed:
        raise InputError(
            f"Choosing the values of '{graph.name}' to watch",
            found="a graph without inputs",
            expected="at least one input whose first axis runs over samples",
            remedy="Calibrate a graph that takes data.",
        )
    return dimensions(fed[0])[0] if dimensions(fed[0]) else None


def sample_axis(value: ir.Value, batch: int | str | None) -> int | None:
    """The axis of ``value`` that runs over samples: of ``batch``'s name; a number says so of the first axis only."""
    found = dimensions(value)
    if batch is None or batch not in found:
        return None
    if isinstance(batch, int):
        return 0 if found[0] == batch else None
    return found.index(batch)


def dimensions(value: ir.Value) -> list[int | str | None]:
    """Numbers and names; None for a dimension of neither. Empty where nothing is known."""
    return [] if value.shape is None else [dim if isinstance(dim, int) else dim.value for dim in value.shape]


def _all_results(graph: ir.Graph) -> list[ir.Value]:
    return [value for node in graph for value in node.outputs]
