"""Operators from outside, as the classes that the onnx package's evaluator takes."""

from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from qbench.graph import Operator, outside_operator

if TYPE_CHECKING:
    from onnx.reference.op_run import OpRun


def evaluator_operators(model: ir.Model) -> "list[type[OpRun]]":
    """One class for each operator from outside that ``model`` has nodes of."""
    found = {(node.domain, node.op_type): node for graph in model.graphs() for node in graph}
    made = [(node, outside_operator(node)) for node in found.values()]
    return [_class_of(node, operator) for node, operator in made if operator is not None]


def _class_of(node: ir.Node, operator: Operator) -> "type[OpRun]":
    from onnx.reference.op_run import OpRun

    def run(self: OpRun, *inputs: Any, **_: object) -> tuple[Any, ...]:  # noqa: ANN401 - arrays, as OpRun has them
        return operator.run(inputs, map(ir.from_proto, self.onnx_node.attribute))

    return type(node.op_type, (OpRun,), {"op_domain": node.domain, "_run": run})
