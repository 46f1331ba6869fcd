"""Where and why: what can go wrong in a quantized graph, before anything runs; one operator on trial."""

from typing import TYPE_CHECKING

from qbench.lazy import open_on_use

if TYPE_CHECKING:
    from qbench.diagnosis.lint import LayerLint as LayerLint
    from qbench.diagnosis.lint import ModelLint as ModelLint
    from qbench.diagnosis.lint import lint_products as lint_products
    from qbench.diagnosis.operators.checking import check_operator as check_operator
    from qbench.diagnosis.operators.kernel_call import OperatorParameters as OperatorParameters
else:
    __getattr__, __dir__, __all__ = open_on_use(
        __name__,
        {
            "lint": ("LayerLint", "ModelLint", "lint_products"),
            "operators.checking": ("check_operator",),
            "operators.kernel_call": ("OperatorParameters",),
        },
    )
