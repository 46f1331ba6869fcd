"""Graph → graph: what a pass is, running pipelines of them, and the canonical passes before profiling."""

from qbench.passes.canonical.split_bias import bias_split_from, is_product
from qbench.passes.canonical_pipeline import CANONICAL, DEFAULT, Canonical, canonicalize, plannable, plannable_digest
from qbench.passes.contract import Pass
from qbench.passes.declining import decline, declined
from qbench.passes.lowering.machines import INTEGER_MACHINES, lower_to_machines
from qbench.passes.lowering.qoperator import LowerToQOperator, lower_to_qoperator
from qbench.passes.lowering.target import ONNX_RUNTIME, Target
from qbench.passes.naming import NameScope
from qbench.passes.rewriting import rewrite

__all__ = [
    "CANONICAL",
    "DEFAULT",
    "INTEGER_MACHINES",
    "ONNX_RUNTIME",
    "Canonical",
    "LowerToQOperator",
    "NameScope",
    "Pass",
    "Target",
    "bias_split_from",
    "canonicalize",
    "decline",
    "declined",
    "is_product",
    "lower_to_machines",
    "lower_to_qoperator",
    "plannable",
    "plannable_digest",
    "rewrite",
]
