"""Any operator by ONNX's evaluator, one node at a time, or by the kernel that is ours in its
place.
"""

from collections.abc import Sequence

import numpy as np
import onnx
import onnx_ir as ir

from qbench.graph import Operator, outside_operator
from qbench.interpreter.arrays import Array, BatchError
from qbench.interpreter.float_kernels.evaluator import own_operators, refusal
from qbench.interpreter.kernel import KernelContext, KernelFunction

_SUBGRAPHS = frozenset({ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS})


def reference(making: KernelContext) -> KernelFunction:
    """The operator as ONNX's own evaluator computes it, or the kernel that came with it.

    Raises:
        ValueError: an operator that it does not know, or that is refused.
    """
    from onnx.reference import ReferenceEvaluator

    if reason := refusal(making.node, making.opset):
        raise ValueError(reason)
    if any(attribute.type in _SUBGRAPHS for attribute in making.node.attributes.values()):
        raise ValueError(f"{making.node.op_type} with graphs of its own")
    node = ir.to_proto(making.node)
    outside = outside_operator(making.node)
    if outside is not None:
        return _from_outside(outside, making.node)
    if making.node.domain:
        raise ValueError(f"no kernel of {making.node.domain}.{making.node.op_type}")
    types = {value.name or "": _type(value) for value in making.node.inputs if value is not None}
    graph = onnx.helper.make_graph(
        [node],
        "one",
        [onnx.helper.make_value_info(name, kind) for name, kind in types.items()],
        [onnx.helper.make_value_info(name, onnx.TypeProto()) for name in node.output if name],
    )
    model = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", making.opset)]
    )
    try:
        evaluator = ReferenceEvaluator(model, new_ops=own_operators([node.op_type], making.opset))
    except (NotImplementedError, RuntimeError, TypeError) as error:
        raise ValueError(
            f"{node.op_type} of opset {making.opset}: "
            f"{' '.join(str(error).split('.')[0].split())[:200]}"
        ) from error
    body = getattr(evaluator.rt_nodes_[0], "impl_", None)
    if body is not None and types and not body.input_names:
        raise ValueError(
            f"{node.op_type} without the types of its operands, on which its function depends"
        )

    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        feeds = {name: value for name, value in zip(node.input, inputs, strict=True) if name}
        try:
            with np.errstate(all="ignore"):  # overflow in a kernel is a result, as in every engine
                found = evaluator.run(None, feeds)
        except Exception as error:  # kernels raise whatever numpy raises
            raise BatchError(" ".join(str(error).split())[:300]) from error
        results = iter(found)  # the evaluator gives those that have a name
        return tuple(np.asarray(next(results)) if name else _NOTHING for name in node.output)

    return run


def _from_outside(operator: Operator, node: ir.Node) -> KernelFunction:
    def run(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        try:
            return operator.run(inputs, node.attributes.values())
        except Exception as error:  # code of an extension: whatever it raises is about its kernel
            raise BatchError(f"{type(error).__name__}: {error}") from error

    return run


_NOTHING = np.empty(0)
"""The place of an output that is left out; nothing reads it."""


def _type(value: ir.Value) -> onnx.TypeProto:
    """The element type alone, where it is known: functions that depend on it
    (GroupNormalization) read it.
    """
    return (
        onnx.TypeProto()
        if value.dtype is None
        else onnx.helper.make_tensor_type_proto(value.dtype, None)
    )
