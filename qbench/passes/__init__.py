"""Graph → graph: what a pass is, running pipelines of them, and the canonical passes before profiling."""

from qbench.passes.canonical_pipeline import CANONICAL, canonicalize
from qbench.passes.contract import Pass
from qbench.passes.naming import NameScope
from qbench.passes.rewriting import rewrite

__all__ = ["CANONICAL", "NameScope", "Pass", "canonicalize", "rewrite"]
