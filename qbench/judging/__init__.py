"""Scores → verdict: integers in, an outcome with its rule and its numbers out."""

from typing import TYPE_CHECKING

from qbench.lazy import open_on_use

if TYPE_CHECKING:
    from qbench.judging.cell import ANY as ANY
    from qbench.judging.cell import FP32 as FP32
    from qbench.judging.cell import GIVEN as GIVEN
    from qbench.judging.cell import RECORDED as RECORDED
    from qbench.judging.cell import Cell as Cell
    from qbench.judging.cell import EnvironmentClass as EnvironmentClass
    from qbench.judging.cell import class_change as class_change
    from qbench.judging.cell import recorded_class as recorded_class
    from qbench.judging.drift import NOTHING_ACCEPTED_FOR as NOTHING_ACCEPTED_FOR
    from qbench.judging.drift import Criterion as Criterion
    from qbench.judging.drift import arithmetic_change as arithmetic_change
    from qbench.judging.drift import broken_text as broken_text
    from qbench.judging.drift import holds as holds
    from qbench.judging.drift import moved_ranges as moved_ranges
    from qbench.judging.drift import within_noise as within_noise
    from qbench.judging.expectation import Accepted as Accepted
    from qbench.judging.expectation import Expectation as Expectation
    from qbench.judging.expectation import State as State
    from qbench.judging.expectation import accepted_on as accepted_on
    from qbench.judging.expectation import inherited as inherited
    from qbench.judging.expectation import known_noise as known_noise
    from qbench.judging.finding import IDEAL_STEPS as IDEAL_STEPS
    from qbench.judging.finding import Cause as Cause
    from qbench.judging.finding import CountingErrors as CountingErrors
    from qbench.judging.finding import Errors as Errors
    from qbench.judging.finding import Finding as Finding
    from qbench.judging.finding import NodeErrors as NodeErrors
    from qbench.judging.finding import Repair as Repair
    from qbench.judging.finding import Suspect as Suspect
    from qbench.judging.finding import Unaligned as Unaligned
    from qbench.judging.format import THEN as THEN
    from qbench.judging.format import valued as valued
    from qbench.judging.judgement import APPROVABLE as APPROVABLE
    from qbench.judging.judgement import NEVER_ACCEPTED as NEVER_ACCEPTED
    from qbench.judging.judgement import NO_LONGER_FAILS as NO_LONGER_FAILS
    from qbench.judging.judgement import approved as approved
    from qbench.judging.judgement import judge as judge
    from qbench.judging.judgement import support_lost as support_lost
    from qbench.judging.loss import IMPROVED as IMPROVED
    from qbench.judging.loss import least_agreement as least_agreement
    from qbench.judging.loss import retrained_gate as retrained_gate
    from qbench.judging.measurement import IDEAL as IDEAL
    from qbench.judging.measurement import Calibrated as Calibrated
    from qbench.judging.measurement import Compared as Compared
    from qbench.judging.measurement import FirstNode as FirstNode
    from qbench.judging.measurement import LossParts as LossParts
    from qbench.judging.measurement import Measurement as Measurement
    from qbench.judging.measurement import Part as Part
    from qbench.judging.measurement import PassNote as PassNote
    from qbench.judging.measurement import RewriteNote as RewriteNote
    from qbench.judging.measurement import parts_of_counts as parts_of_counts
    from qbench.judging.measurement import parts_of_scores as parts_of_scores
    from qbench.judging.noise import MetricNoise as MetricNoise
    from qbench.judging.noise import Noise as Noise
    from qbench.judging.noise import Repeats as Repeats
    from qbench.judging.noise import noise_of as noise_of
    from qbench.judging.rules import DEFAULT_TOLERANCE as DEFAULT_TOLERANCE
    from qbench.judging.rules import Allowance as Allowance
    from qbench.judging.rules import Limit as Limit
    from qbench.judging.rules import QuarantineEntry as QuarantineEntry
    from qbench.judging.rules import Rules as Rules
    from qbench.judging.rules import Tolerance as Tolerance
    from qbench.judging.statistics import Decision as Decision
    from qbench.judging.statistics import DecisionRule as DecisionRule
    from qbench.judging.statistics import Evidence as Evidence
    from qbench.judging.statistics import benjamini_hochberg as benjamini_hochberg
    from qbench.judging.statistics import changed_share as changed_share
    from qbench.judging.statistics import detectable_drop as detectable_drop
    from qbench.judging.statistics import loss_midp as loss_midp
    from qbench.judging.statistics import margin_evidence as margin_evidence
    from qbench.judging.statistics import mcnemar_midp as mcnemar_midp
    from qbench.judging.statistics import samples_needed as samples_needed
    from qbench.judging.verdict import FAILING as FAILING
    from qbench.judging.verdict import Gate as Gate
    from qbench.judging.verdict import GateState as GateState
    from qbench.judging.verdict import MovedRange as MovedRange
    from qbench.judging.verdict import Outcome as Outcome
    from qbench.judging.verdict import Verdict as Verdict
    from qbench.metrics import paired_interval as paired_interval
else:
    __getattr__, __dir__, __all__ = open_on_use(__name__, __file__)
