"""Operators that the onnx package's evaluator takes from us: those from outside, and a Loop that ends."""

from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from qbench.graph import Operator, outside_operator
from qbench.storage import current_limits

if TYPE_CHECKING:
    from onnx.reference.op_run import OpRun


def evaluator_operators(model: ir.Model) -> "list[type[OpRun]]":
    """One class for each operator from outside that ``model`` has nodes of, and one for Loop."""
    bodies = (*model.graphs(), *model.functions.values())
    found = {(node.domain, node.op_type): node for body in bodies for node in body}
    made = [(node, outside_operator(node)) for node in found.values()]
    own = [_class_of(node, operator) for node, operator in made if operator is not None]
    return [*own, _bounded_loop(current_limits().iterations)]


def _bounded_loop(limit: int) -> "type[OpRun]":
    """Loop of the evaluator, which ends with an error after ``limit`` iterations: its condition may never end it."""
    from onnx.reference.ops.op_loop import Loop as EvaluatorLoop

    class Loop(EvaluatorLoop):  # the name is that of the operator
        _run_body: Any  # which the evaluator sets on each node

        def _run(self, *inputs: Any, **more: Any) -> tuple[Any, ...]:  # noqa: ANN401 - as OpRun has them
            run_body, iterations = self._run_body, iter(range(limit))

            def counted(*given: Any, **named: Any) -> Any:  # noqa: ANN401 - as OpRun has them
                if next(iterations, None) is None:
                    raise RuntimeError(
                        f"a Loop that has not ended after {limit:,} iterations (--size-limits raises this)"
                    )
                return run_body(*given, **named)

            self._run_body = counted
            try:
                return super()._run(*inputs, **more)  # type: ignore[no-any-return, no-untyped-call]
            finally:
                self._run_body = run_body

    return Loop


def _class_of(node: ir.Node, operator: Operator) -> "type[OpRun]":
    from onnx.reference.op_run import OpRun

    def run(self: OpRun, *inputs: Any, **_: object) -> tuple[Any, ...]:  # noqa: ANN401 - arrays, as OpRun has them
        return operator.run(inputs, map(ir.from_proto, self.onnx_node.attribute))

    return type(node.op_type, (OpRun,), {"op_domain": node.domain, "_run": run})
