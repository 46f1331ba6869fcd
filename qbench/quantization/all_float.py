"""Why nothing of a model is quantized although the schema asks for it.

The cell of such a plan is the float model: it would win every comparison, and nothing is measured
of the schema. ``qbench quantize``, ``eval`` and ``sweep`` refuse it alike.
"""

from collections import Counter
from collections.abc import Iterable

from qbench.errors import UnsupportedError
from qbench.quantization.plan import Plan


def why_all_float(plans: Iterable[Plan]) -> str:
    """``nothing is quantized: 12 of 14 units because …``; empty: something is, or nothing is asked
    for.

    Args:
        plans: of the graphs of one model under one schema.
    """
    plans = list(plans)
    refused = Counter(
        kept.reason for plan in plans for kept in plan.floats.values() if kept.refused
    )
    if not refused or any(plan.quantized_units for plan in plans):
        return ""
    ((reason, count),) = refused.most_common(1)
    return f"nothing is quantized: {count} of {refused.total()} units because {reason}"


def refuse_all_float(model: str, schema: str, plans: Iterable[Plan]) -> None:
    """Check that something of ``model`` is quantized where ``schema`` asks for it.

    Raises:
        UnsupportedError: everything it asks for is refused.
    """
    if why := why_all_float(plans):
        raise UnsupportedError(
            f"Quantizing '{model}' under '{schema}'",
            found=why,
            expected="at least one quantized unit",
            remedy=(
                "Choose another schema or backend; 'qbench quantize --why' prints the reason for "
                "every unit."
            ),
        )
