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
    """A value by name; ``per_sample``: its first axis runs over samples, as that of the graph's first input."""

    name: str
    per_sample: bool


def watched_values(model: ir.Model, names: Iterable[str] | None = None) -> tuple[WatchedValue, ...]:
    """The values of a canonical ``model`` to watch, in graph order; with ``names``, these and no others.

    Raises:
        InputError: a name is none of the graph's float32 values, or the graph has no input to count samples by.
    """
    shaped = with_shapes(model)
    if not shaped.graph.inputs:
        raise InputError(
            f"Choosing the values of '{model.graph.name}' to watch",
            found="a graph without inputs",
            expected="at least one input whose first axis runs over samples",
            remedy="Calibrate a graph that takes data.",
        )
    batch = _first_axis(shaped.graph.inputs[0])
    results = [unit.output for unit in units_of(shaped.graph)] if names is None else _all_results(shaped.graph)
    found = {}
    for value in (*shaped.graph.inputs, *results):
        if value.name and value.dtype == ir.DataType.FLOAT and not is_constant(value):
            axis = _first_axis(value)
            found[value.name] = WatchedValue(value.name, axis is not None and axis == batch)
    if names is None:
        return tuple(found.values())
    asked = list(names)
    for name in asked:
        if name not in found:
            raise unknown_name(f"Choosing the values of '{model.graph.name}' to watch", "value", name, found)
    return tuple(found[name] for name in found if name in set(asked))


def _all_results(graph: ir.Graph) -> list[ir.Value]:
    return [value for node in graph for value in node.outputs]


def _first_axis(value: ir.Value) -> int | str | None:
    """The first dimension, a number or a name; None where it is unknown or there is none."""
    if value.shape is None or not len(value.shape):
        return None
    first = value.shape[0]
    return first if isinstance(first, int) else first.value
