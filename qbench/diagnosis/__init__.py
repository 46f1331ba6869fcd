"""Where and why: what can go wrong in a quantized graph, before anything runs; one operator on trial."""

from typing import TYPE_CHECKING

from qbench.lazy import open_on_use

if TYPE_CHECKING:
    from qbench.diagnosis.lint import LayerLint as LayerLint
    from qbench.diagnosis.lint import ModelLint as ModelLint
    from qbench.diagnosis.lint import lint_products as lint_products
    from qbench.diagnosis.operators.checking import check_operator as check_operator
    from qbench.diagnosis.operators.kernel_call import OperatorParameters as OperatorParameters
    from qbench.diagnosis.optimizer_catalogue import CaseResult as CaseResult
    from qbench.diagnosis.optimizer_catalogue import OptimizerCase as OptimizerCase
    from qbench.diagnosis.optimizer_catalogue import measure_case as measure_case
    from qbench.diagnosis.optimizer_catalogue import optimizer_cases as optimizer_cases
    from qbench.diagnosis.optimizer_effects import OptimizationEffect as OptimizationEffect
    from qbench.diagnosis.optimizers import OptimizerReport as OptimizerReport
    from qbench.diagnosis.optimizers import examine_optimizers as examine_optimizers
    from qbench.diagnosis.step_causes import StepCauses as StepCauses
else:
    __getattr__, __dir__, __all__ = open_on_use(
        __name__,
        {
            "lint": ("LayerLint", "ModelLint", "lint_products"),
            "operators.checking": ("check_operator",),
            "operators.kernel_call": ("OperatorParameters",),
            "optimizer_catalogue": ("CaseResult", "OptimizerCase", "measure_case", "optimizer_cases"),
            "optimizer_effects": ("OptimizationEffect",),
            "optimizers": ("OptimizerReport", "examine_optimizers"),
            "step_causes": ("StepCauses",),
        },
    )
