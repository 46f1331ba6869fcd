"""What every backend does to a model before its engine sees it: load it from a path, and turn taps into outputs."""

from collections.abc import Sequence

import onnx_ir as ir

from qbench.errors import InputError, nearest
from qbench.graph import AnyModel, as_model, values_by_name, with_shapes


def loaded(model: AnyModel) -> ir.Model:
    """``model`` itself, or what the message or the file holds.

    Raises:
        InputError: it is no model, or the file is no ONNX model.
    """
    return as_model(model)


def with_taps(model: ir.Model, taps: Sequence[str]) -> ir.Model:
    """A copy of ``model`` that returns the values named in ``taps`` after its own outputs; itself without taps.

    Raises:
        InputError: a tap names no value of the main graph.
    """
    outputs = {value.name for value in model.graph.outputs}
    wanted = [name for name in dict.fromkeys(taps) if name not in outputs]
    if not wanted:
        return model
    known = values_by_name(model)
    typed = all(name in known and known[name].type is not None for name in wanted)
    tapped = model.clone() if typed else with_shapes(model)  # a graph output must carry a dtype
    values = values_by_name(tapped)
    for name in wanted:
        if name not in values:
            close = nearest(name, values)
            raise InputError(
                f"Tapping '{model.graph.name}'",
                found=f"no value '{name}'",
                expected="the name of a graph input, constant or node output",
                remedy=f"Did you mean '{close}'?" if close else "Look the names up in the graph.",
            )
        tapped.graph.outputs.append(values[name])
    return tapped
