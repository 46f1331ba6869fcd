"""Scores → verdict: integers in, an outcome with its rule and its numbers out."""

from qbench.judging.cell import FP32, Cell
from qbench.judging.environment import EnvironmentClass
from qbench.judging.measurement import Measurement
from qbench.judging.quarantine import QuarantineEntry
from qbench.judging.tolerance import DEFAULT_TOLERANCE, Tolerance, resolve_tolerance
from qbench.judging.verdict import Gate, GateState, Outcome, Verdict

__all__ = [
    "DEFAULT_TOLERANCE",
    "FP32",
    "Cell",
    "EnvironmentClass",
    "Gate",
    "GateState",
    "Measurement",
    "Outcome",
    "QuarantineEntry",
    "Tolerance",
    "Verdict",
    "resolve_tolerance",
]
