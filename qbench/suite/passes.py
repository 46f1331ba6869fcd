"""What ``passes`` means in a suite: a policy, under which the standard pipeline runs, or a pipeline by its text.

    passes = ["none", "exact", "fast"]                       a further axis: cells are called …+passes=exact
    variants.one = { passes = "merge-requantize{steps = 1}" }

Passes that are named one by one are admitted whatever they do: who names them knows.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from qbench.errors import InputError

if TYPE_CHECKING:
    from qbench.evaluation import Rewriting
    from qbench.extension import Catalogue
    from qbench.passes import Pass

POLICIES = ("exact", "rounding", "fast")
NONE = "none"
"""The word of the axis for graphs as the quantizer wrote them."""


def variant_of(passes: str) -> str:
    """How cells of the axis are called; empty for those that nothing rewrites."""
    return "" if passes == NONE else f"passes={passes}"


def refuse_unknown(where: str, passes: Iterable[str]) -> None:
    """Check the words of the axis.

    Raises:
        ValueError: one is no policy, or stands there twice.
    """
    words = tuple(passes)
    for word in words:
        if word not in (NONE, *POLICIES):
            raise ValueError(f"passes = {word!r} of {where}, which is none of {', '.join((NONE, *POLICIES))}")
    if len(set(words)) < len(words):
        raise ValueError(f"passes of {where} with one word twice")


def rewriting_of(passes: str, catalogue: "Catalogue[Pass]", doing: str) -> "Rewriting | None":
    """What runs behind the quantizer where a cell says ``passes``; None: nothing.

    Raises:
        InputError: a pass that is not known, or no text of a pipeline.
    """
    from qbench.evaluation import Rewriting
    from qbench.passes import Policy, parse_pipeline, standard_pipeline

    if passes == NONE:
        return None
    if passes in POLICIES:
        policy = Policy(passes)
        return Rewriting(standard_pipeline(policy, catalogue), policy)
    try:
        return Rewriting(parse_pipeline(passes, catalogue), Policy.FAST)
    except InputError as error:
        raise InputError(doing, found=error.found, expected=error.expected, remedy=error.remedy) from error
