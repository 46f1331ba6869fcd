"""Where and why: the node at which a cell goes wrong, its cause and repair; any two sides; what
can go wrong at all.
"""

from typing import TYPE_CHECKING

from qbench.lazy import open_on_use

if TYPE_CHECKING:
    from qbench.diagnosis.capture import Budget as Budget
    from qbench.diagnosis.diff.compare import Allowed as Allowed
    from qbench.diagnosis.diff.compare import NodeDifference as NodeDifference
    from qbench.diagnosis.diff.compare import Side as Side
    from qbench.diagnosis.diff.compare import SideComparison as SideComparison
    from qbench.diagnosis.diff.compare import SideDifferences as SideDifferences
    from qbench.diagnosis.diff.compare import compare_sides as compare_sides
    from qbench.diagnosis.diff.compare import first_failing_case as first_failing_case
    from qbench.diagnosis.distributions import distributions_of_plan as distributions_of_plan
    from qbench.diagnosis.distributions import distributions_of_profile as distributions_of_profile
    from qbench.diagnosis.engine.case_files import run_test_case as run_test_case
    from qbench.diagnosis.engine.case_files import save_test_case as save_test_case
    from qbench.diagnosis.engine.shrink import FailingCase as FailingCase
    from qbench.diagnosis.lint import LayerLint as LayerLint
    from qbench.diagnosis.lint import ModelLint as ModelLint
    from qbench.diagnosis.lint import lint_products as lint_products
    from qbench.diagnosis.localize_cell import LocalizeOptions as LocalizeOptions
    from qbench.diagnosis.localize_cell import cell_without_suite as cell_without_suite
    from qbench.diagnosis.localize_cell import localize as localize
    from qbench.diagnosis.localize_cell import localize_verdict as localize_verdict
    from qbench.diagnosis.localize_cell import samples_that_moved as samples_that_moved
    from qbench.diagnosis.mixed import MixedSchemas as MixedSchemas
    from qbench.diagnosis.mixed import mixed_schemas as mixed_schemas
    from qbench.diagnosis.operators.check import check_operator as check_operator
    from qbench.diagnosis.optimizers import CaseResult as CaseResult
    from qbench.diagnosis.optimizers import OptimizationEffect as OptimizationEffect
    from qbench.diagnosis.optimizers import OptimizerReport as OptimizerReport
    from qbench.diagnosis.optimizers import examine_optimizers as examine_optimizers
    from qbench.diagnosis.optimizers import measure_case as measure_case
    from qbench.diagnosis.optimizers import optimizer_cases as optimizer_cases
    from qbench.diagnosis.repair.cell import RepeatableCell as RepeatableCell
    from qbench.diagnosis.repair.cell import override_text as override_text
    from qbench.diagnosis.repair.search import check_replay as check_replay
    from qbench.diagnosis.target import bound_of as bound_of
    from qbench.diagnosis.target import match_outputs as match_outputs
    from qbench.diagnosis.units import StepCauses as StepCauses
else:
    __getattr__, __dir__, __all__ = open_on_use(__name__, __file__)
