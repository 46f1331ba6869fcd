"""Deciding and doing: schemas, plans over a profile, and writing a plan into a graph as QDQ."""

from qbench.quantization.decision import Decision, Derived, Fixed, KeptFloat, Shared, Static, qparams_of
from qbench.quantization.named import catalogue, get_schema
from qbench.quantization.plan import Plan
from qbench.quantization.plan_text import load_plan, save_plan
from qbench.quantization.planning import make_plan
from qbench.quantization.schema import BiasKind, Rule, Schema, schema_from_table
from qbench.quantization.slot import Role, Slot
from qbench.quantization.spec import Granularity, Spec
from qbench.quantization.writing import insert_qdq, quantize_model

__all__ = [
    "BiasKind",
    "Decision",
    "Derived",
    "Fixed",
    "Granularity",
    "KeptFloat",
    "Plan",
    "Role",
    "Rule",
    "Schema",
    "Shared",
    "Slot",
    "Spec",
    "Static",
    "catalogue",
    "get_schema",
    "insert_qdq",
    "load_plan",
    "make_plan",
    "qparams_of",
    "quantize_model",
    "save_plan",
    "schema_from_table",
]
