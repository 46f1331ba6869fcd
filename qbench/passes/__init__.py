"""Graph → graph: what a pass is and does to numbers, pipelines of them, canonical passes, rewrites, lowering."""

from qbench.passes.canonical.split_bias import bias_split_from, is_product
from qbench.passes.canonical_pipeline import CANONICAL, DEFAULT, Canonical, canonicalize, plannable, plannable_digest
from qbench.passes.contract import Pass, Placed
from qbench.passes.declining import decline, declined
from qbench.passes.effect import EXACT, LOSSY, Effect, EffectKind, Policy, within
from qbench.passes.lowering.machines import INTEGER_MACHINES, lower_to_machines
from qbench.passes.lowering.qoperator import LowerToQOperator, lower_to_qoperator
from qbench.passes.lowering.target import ONNX_RUNTIME, Target
from qbench.passes.named import catalogue, pipeline_named, standard_pipeline
from qbench.passes.naming import NameScope
from qbench.passes.pipeline import Pipeline, parse_pipeline
from qbench.passes.rewriting import rewrite
from qbench.passes.running import PassError, Rewritten, run_pipeline

__all__ = [
    "CANONICAL",
    "DEFAULT",
    "EXACT",
    "INTEGER_MACHINES",
    "LOSSY",
    "ONNX_RUNTIME",
    "Canonical",
    "Effect",
    "EffectKind",
    "LowerToQOperator",
    "NameScope",
    "Pass",
    "PassError",
    "Pipeline",
    "Placed",
    "Policy",
    "Rewritten",
    "Target",
    "bias_split_from",
    "canonicalize",
    "catalogue",
    "decline",
    "declined",
    "is_product",
    "lower_to_machines",
    "lower_to_qoperator",
    "parse_pipeline",
    "pipeline_named",
    "plannable",
    "plannable_digest",
    "rewrite",
    "run_pipeline",
    "standard_pipeline",
    "within",
]
