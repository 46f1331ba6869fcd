"""The graph that the integer machines of the interpreter count: dead nodes and clips gone, quantizers shared, lowered.

A machine clamps where it rounds: a Relu between an operator and its quantizer is a limit of the result to it, and no
reason to leave the operator in floats. Neither is a clip of dequantized levels in front of an operator, which limits
these levels, nor a reader whose own result nothing needs. So a graph counts alike before and after a rewrite that says
the same.
"""

import onnx_ir as ir
from onnx_ir.passes.common import RemoveInitializersFromInputsPass

from qbench.graph import Form, form_of, own_copy
from qbench.passes.canonical.remove_dead import RemoveDead
from qbench.passes.lowering.machines import INTEGER_MACHINES
from qbench.passes.lowering.qoperator import LowerToQOperator
from qbench.passes.rewrites.absorb_clip import AbsorbClip
from qbench.passes.rewrites.clip_levels import ClipLevels
from qbench.passes.rewriting import rewrite


def lower_to_machines(model: ir.Model) -> ir.Model:
    """``model``, QDQ or in operator form, as integer machines count it; ``model`` is not changed.

    Initializers that old exporters list among the graph inputs leave them, as they do before profiling: a kernel is
    made for the one weight that is known.

    Raises:
        InputError: a Q or DQ that means nothing.
    """
    graph = model.graph
    if any(value.name in graph.initializers for value in graph.inputs):
        model = own_copy(model)
        RemoveInitializersFromInputsPass()(model)
    if form_of(model) is not Form.QDQ:
        return model
    return rewrite(model, (RemoveDead(), AbsorbClip(), ClipLevels(), LowerToQOperator(INTEGER_MACHINES)))
