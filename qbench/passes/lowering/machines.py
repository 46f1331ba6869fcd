"""The graph that the integer machines of the interpreter count."""

import onnx_ir as ir
from onnx_ir.passes.common import RemoveInitializersFromInputsPass

from qbench.graph import Form, form_of
from qbench.interpreter import KERNELS
from qbench.passes.lowering.qoperator import lower_to_qoperator
from qbench.passes.lowering.target import Target

INTEGER_MACHINES = Target(frozenset(KERNELS), any_grids=True, outside=True)
"""Whatever the interpreter counts: engines have no more."""


def lower_to_machines(model: ir.Model) -> ir.Model:
    """``model``, QDQ or in operator form, as integer machines count it; ``model`` is not changed.

    Initializers that old exporters list among the graph inputs leave them, as they do before profiling: a kernel is
    made for the one weight that is known.

    Raises:
        InputError: a Q or DQ that means nothing.
    """
    graph = model.graph
    if any(value.name in graph.initializers for value in graph.inputs):
        model = model.clone()
        RemoveInitializersFromInputsPass()(model)
    return lower_to_qoperator(model, INTEGER_MACHINES) if form_of(model) is Form.QDQ else model
