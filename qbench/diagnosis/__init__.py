"""Where and why: the node at which a cell goes wrong, its cause and repair; any two sides; what can go wrong at all."""

from typing import TYPE_CHECKING

from qbench.lazy import open_on_use

if TYPE_CHECKING:
    from qbench.diagnosis.budget import Budget as Budget
    from qbench.diagnosis.causes.remedies import remedy_of as remedy_of
    from qbench.diagnosis.differences.comparing import SideComparison as SideComparison
    from qbench.diagnosis.differences.comparing import compare_sides as compare_sides
    from qbench.diagnosis.differences.failing import first_failing_case as first_failing_case
    from qbench.diagnosis.differences.side_differences import NodeDifference as NodeDifference
    from qbench.diagnosis.differences.side_differences import SideDifferences as SideDifferences
    from qbench.diagnosis.differences.sides import Side as Side
    from qbench.diagnosis.engine.case_files import CaseRun as CaseRun
    from qbench.diagnosis.engine.case_files import run_test_case as run_test_case
    from qbench.diagnosis.engine.case_files import save_test_case as save_test_case
    from qbench.diagnosis.engine.claims import arithmetic_of as arithmetic_of
    from qbench.diagnosis.engine.claims import stand_in as stand_in
    from qbench.diagnosis.engine.contained import contained as contained
    from qbench.diagnosis.engine.matching import Matched as Matched
    from qbench.diagnosis.engine.matching import bound_of as bound_of
    from qbench.diagnosis.engine.matching import match_outputs as match_outputs
    from qbench.diagnosis.engine.partings import Parting as Parting
    from qbench.diagnosis.engine.partings import engine_partings as engine_partings
    from qbench.diagnosis.engine.shrinking import FailingCase as FailingCase
    from qbench.diagnosis.engine.shrinking import smallest_case as smallest_case
    from qbench.diagnosis.engine.workshop import EngineCrashError as EngineCrashError
    from qbench.diagnosis.lint import LayerLint as LayerLint
    from qbench.diagnosis.lint import ModelLint as ModelLint
    from qbench.diagnosis.lint import lint_products as lint_products
    from qbench.diagnosis.localizing import LocalizeWishes as LocalizeWishes
    from qbench.diagnosis.localizing import localize as localize
    from qbench.diagnosis.localizing import samples_that_moved as samples_that_moved
    from qbench.diagnosis.operators.checking import check_operator as check_operator
    from qbench.diagnosis.operators.kernel_call import OperatorParameters as OperatorParameters
    from qbench.diagnosis.optimizer_catalogue import CaseResult as CaseResult
    from qbench.diagnosis.optimizer_catalogue import OptimizerCase as OptimizerCase
    from qbench.diagnosis.optimizer_catalogue import measure_case as measure_case
    from qbench.diagnosis.optimizer_catalogue import optimizer_cases as optimizer_cases
    from qbench.diagnosis.optimizer_effects import OptimizationEffect as OptimizationEffect
    from qbench.diagnosis.optimizers import OptimizerReport as OptimizerReport
    from qbench.diagnosis.optimizers import examine_optimizers as examine_optimizers
    from qbench.diagnosis.repairing.repeatable_cell import RepeatableCell as RepeatableCell
    from qbench.diagnosis.repairing.replay import check_replay as check_replay
    from qbench.diagnosis.step_causes import StepCauses as StepCauses
else:
    __getattr__, __dir__, __all__ = open_on_use(
        __name__,
        {
            "budget": ("Budget",),
            "causes.remedies": ("remedy_of",),
            "differences.comparing": (
                "SideComparison",
                "compare_sides",
            ),
            "differences.failing": ("first_failing_case",),
            "differences.side_differences": (
                "NodeDifference",
                "SideDifferences",
            ),
            "differences.sides": ("Side",),
            "engine.case_files": (
                "CaseRun",
                "run_test_case",
                "save_test_case",
            ),
            "engine.claims": (
                "arithmetic_of",
                "stand_in",
            ),
            "engine.contained": ("contained",),
            "engine.matching": (
                "Matched",
                "bound_of",
                "match_outputs",
            ),
            "engine.partings": (
                "Parting",
                "engine_partings",
            ),
            "engine.shrinking": (
                "FailingCase",
                "smallest_case",
            ),
            "engine.workshop": ("EngineCrashError",),
            "lint": (
                "LayerLint",
                "ModelLint",
                "lint_products",
            ),
            "operators.checking": ("check_operator",),
            "operators.kernel_call": ("OperatorParameters",),
            "localizing": (
                "LocalizeWishes",
                "localize",
                "samples_that_moved",
            ),
            "optimizer_catalogue": (
                "CaseResult",
                "OptimizerCase",
                "measure_case",
                "optimizer_cases",
            ),
            "optimizer_effects": ("OptimizationEffect",),
            "optimizers": (
                "OptimizerReport",
                "examine_optimizers",
            ),
            "repairing.repeatable_cell": ("RepeatableCell",),
            "repairing.replay": ("check_replay",),
            "step_causes": ("StepCauses",),
        },
    )
