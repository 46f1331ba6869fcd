"""Scores → verdict: integers in, an outcome with its rule and its numbers out."""

from qbench.judging.allowance import IDENTICAL, Allowance
from qbench.judging.amounts import rough_percent, steps_text, valued
from qbench.judging.approving import APPROVABLE, NEVER_ACCEPTED, approved
from qbench.judging.calibrated import moved_ranges
from qbench.judging.cell import FP32, GIVEN, Cell
from qbench.judging.compared import Compared, FirstNode
from qbench.judging.decision import Deciding, Decision
from qbench.judging.drift import arithmetic_change
from qbench.judging.environment import ANY, EnvironmentClass
from qbench.judging.equality import Criterion, broken_text, holds
from qbench.judging.expectation import Accepted, Expectation, State, accepted_on, inherited
from qbench.judging.finding import Cause, Finding, Repair, Suspect, Unaligned
from qbench.judging.improvement import IMPROVED
from qbench.judging.judgement import NO_LONGER_FAILS, judge, support_lost
from qbench.judging.loss import least_agreement
from qbench.judging.margin_test import Evidence, margin_evidence
from qbench.judging.measurement import Calibrated, Measurement
from qbench.judging.multiplicity import benjamini_hochberg
from qbench.judging.node_errors import IDEAL_STEPS, CountingErrors, Errors, NodeErrors
from qbench.judging.paired import loss_midp, mcnemar_midp, paired_interval
from qbench.judging.parts import IDEAL, LossParts, Part, parts_of_counts, parts_of_scores
from qbench.judging.power import changed_share, detectable_drop, samples_needed
from qbench.judging.quarantine import QuarantineEntry
from qbench.judging.rewritten import PassNote, RewriteNote
from qbench.judging.rules import Limit, Rules
from qbench.judging.shown import Shown
from qbench.judging.tolerance import DEFAULT_TOLERANCE, Tolerance, resolve_tolerance
from qbench.judging.verdict import FAILING, Gate, GateState, MovedRange, Outcome, Verdict

__all__ = [
    "ANY",
    "APPROVABLE",
    "DEFAULT_TOLERANCE",
    "FAILING",
    "FP32",
    "GIVEN",
    "IDEAL",
    "IDEAL_STEPS",
    "IDENTICAL",
    "IMPROVED",
    "NEVER_ACCEPTED",
    "NO_LONGER_FAILS",
    "Accepted",
    "Allowance",
    "Calibrated",
    "Cause",
    "Cell",
    "Compared",
    "CountingErrors",
    "Criterion",
    "Deciding",
    "Decision",
    "EnvironmentClass",
    "Errors",
    "Evidence",
    "Expectation",
    "Finding",
    "FirstNode",
    "Gate",
    "GateState",
    "Limit",
    "LossParts",
    "Measurement",
    "MovedRange",
    "NodeErrors",
    "Outcome",
    "Part",
    "PassNote",
    "QuarantineEntry",
    "Repair",
    "RewriteNote",
    "Rules",
    "Shown",
    "State",
    "Suspect",
    "Tolerance",
    "Unaligned",
    "Verdict",
    "accepted_on",
    "approved",
    "arithmetic_change",
    "benjamini_hochberg",
    "broken_text",
    "changed_share",
    "detectable_drop",
    "holds",
    "inherited",
    "judge",
    "least_agreement",
    "loss_midp",
    "margin_evidence",
    "mcnemar_midp",
    "moved_ranges",
    "paired_interval",
    "parts_of_counts",
    "parts_of_scores",
    "resolve_tolerance",
    "rough_percent",
    "samples_needed",
    "steps_text",
    "support_lost",
    "valued",
]
