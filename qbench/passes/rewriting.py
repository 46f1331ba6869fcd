"""Running passes on a copy of a model, and naming the pass that failed."""

from collections.abc import Sequence

import onnx_ir as ir

from qbench.errors import InputError, QbenchError
from qbench.graph import LINEAGE, carried_operators, extend_lineage, graph_digest, lineage_of, own_copy, with_operators
from qbench.passes.contract import Pass


def rewrite(model: ir.Model, passes: Sequence[Pass]) -> ir.Model:
    """A new model: ``model`` after ``passes`` in order, with its lineage written; ``model`` is not touched.

    A pass that gives other numbers to values that keep their names forgets the lineage: it begins behind that pass.

    Raises:
        QbenchError: a pass refused the model.
        InputError: a pass broke down on it; the pass is named.
    """
    copy = own_copy(model)
    if not lineage_of(copy):
        copy.metadata_props.pop(LINEAGE, None)  # so that one forgotten from here on can be told
    operators, modified = carried_operators(model), False
    for step in passes:
        try:
            modified |= step.run(copy)
            with_operators(copy, operators)  # which a pass by way of ONNX's own messages loses
            _check_names(copy)
        except QbenchError:
            raise
        except Exception as error:  # whatever breaks in a pass, the user must learn which one
            raise InputError(
                f"Rewriting '{model.graph.name}' with the pass '{step.name}'",
                found=f"{type(error).__name__}: {error}",
                expected="a graph the pass understands",
                remedy="Leave the pass out, or report the model.",
            ) from error
    forgotten = LINEAGE in copy.metadata_props and not lineage_of(copy)
    if modified and not forgotten and (before := graph_digest(model)) != graph_digest(copy):
        extend_lineage(copy, before)
    return copy


def _check_names(model: ir.Model) -> None:
    """Two values under one name would be merged silently when the model is written.

    Raises:
        ValueError: the name that two values of the main graph bear.
    """
    seen: set[str] = set()
    graph = model.graph
    constants = (value for value in graph.initializers.values() if not value.is_graph_input())
    for value in (*graph.inputs, *constants, *(v for node in graph for v in node.outputs)):
        if value.name and value.name in seen:
            raise ValueError(f"two values called '{value.name}'")
        seen.add(value.name or "")
