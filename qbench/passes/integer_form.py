"""The operator form of a QDQ graph with its clips absorbed: what an integer arithmetic runs."""

import onnx_ir as ir
from onnx_ir.passes.common import RemoveInitializersFromInputsPass

from qbench.graph import OF_REALS, Form, form_of, is_constant, is_qdq, own_copy
from qbench.passes.canonical.cleanup import RemoveDead, RemoveIdentity
from qbench.passes.canonical.constants import FoldConstants, LiftConstants
from qbench.passes.lowering.qoperator import LowerToQOperator
from qbench.passes.lowering.site import INTEGER_INTERPRETER, Target
from qbench.passes.qdq.block_operators import RaiseBlocks, has_block_operators
from qbench.passes.qdq.standard_form import StandardForm
from qbench.passes.rewrites.clips import AbsorbClip, ClipCodes
from qbench.passes.run import rewrite


def lower_to_integers(model: ir.Model, target: Target = INTEGER_INTERPRETER) -> ir.Model:
    """A copy of ``model``, QDQ or in operator form, as the integer interpreter computes it.

    Initializers that old exporters list among the graph inputs leave them, as they do before
    profiling: a kernel is made for the one weight that is known.

    Args:
        model: not changed.
        target: the integer operators that there are; the interpreter's by default.

    Raises:
        InputError: an invalid Q or DQ.
    """
    graph = model.graph
    if any(value.name in graph.initializers for value in graph.inputs):
        model = own_copy(model)
        RemoveInitializersFromInputsPass()(model)
    if has_block_operators(model):
        model = rewrite(model, (LiftConstants(), RaiseBlocks()))
    if form_of(model) is not Form.QDQ:
        return model
    model = _spelled_as_ours(model)
    graph = model.graph
    written = {value.name for node in graph if node.op_type == "Clip" for value in node.outputs}
    lowered = rewrite(model, (RemoveDead(), AbsorbClip(), ClipCodes(), LowerToQOperator(target)))
    for node in lowered.graph:
        if node.op_type == "Clip" and node.outputs[0].name not in written:
            node.metadata_props[OF_REALS] = ""
    return lowered


def _spelled_as_ours(model: ir.Model) -> ir.Model:
    """``model``, or a copy in which every Q and DQ is one of ONNX itself with float32 scales
    that are known.
    """
    model = rewrite(model, (LiftConstants(), StandardForm()))
    static = (node for node in model.graph if is_qdq(node) and node.op_type in _STATIC)
    parameters = (value for node in static for value in node.inputs[1:] if value is not None)
    known = all(is_constant(value) or _is_of_a_batch(value) for value in parameters)
    if known and not any(node.op_type == "Dropout" for node in model.graph):
        return model
    return rewrite(model, (RemoveIdentity(), FoldConstants()))


_STATIC = frozenset({"QuantizeLinear", "DequantizeLinear"})


def _is_of_a_batch(value: ir.Value) -> bool:
    maker = value.producer()
    return maker is not None and maker.op_type == "DynamicQuantizeLinear"
