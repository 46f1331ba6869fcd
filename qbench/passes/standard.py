"""The standard pipeline of each policy, and pipelines by text.

What stands in the standard pipeline makes graphs smaller; passes that are a choice of form (``rebase-int8``,
``function-tables``, …) are asked for by name.
"""

from collections.abc import Iterable

from qbench.extension import Extension, installed_extensions
from qbench.passes.canonical.remove_dead import RemoveDead
from qbench.passes.contract import Pass
from qbench.passes.effect import Policy
from qbench.passes.named import catalogue
from qbench.passes.pipeline import Pipeline, parse_pipeline, placed
from qbench.passes.rewrites.merge_requantize import MergeRequantize


def standard_passes(steps: int) -> tuple[Pass, ...]:
    """Our own passes of the standard pipeline in order, where levels may move by ``steps`` steps."""
    return (
        MergeRequantize(steps),
        RemoveDead(),
    )


def standard_pipeline(policy: Policy, extensions: Iterable[Extension] = ()) -> Pipeline:
    """What runs when nobody names passes: ours and those of ``extensions``, where these want to be.

    Args:
        policy: by how much levels may move. extensions: beside those that are installed.

    Raises:
        InputError: places that there are not, or that form a circle.
    """
    outside = tuple(make() for one in (*installed_extensions(), *extensions) for make in one.passes.values())
    return placed(standard_passes(policy.steps), outside)


def pipeline_named(text: str, extensions: Iterable[Extension] = ()) -> Pipeline:
    """The pipeline that ``text`` spells, as in ``merge-requantize{steps = 1}, remove-dead``.

    Raises:
        InputError: as ``parse_pipeline``.
    """
    return parse_pipeline(text, catalogue((*installed_extensions(), *extensions)))
