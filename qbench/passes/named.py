"""The passes that can be asked for by name, and the standard pipeline of each policy.

What stands in the standard pipeline makes graphs smaller; passes that are a choice of form (``rebase-int8``,
``function-tables``, …) are asked for by name.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from qbench.extension import Catalogue, Extension, installed_extensions
from qbench.passes.canonical.remove_dead import RemoveDead
from qbench.passes.contract import Pass
from qbench.passes.effect import Policy
from qbench.passes.pipeline import Pipeline, parse_pipeline, placed
from qbench.passes.rewrites.merge_requantize import MergeRequantize

_OWN: Mapping[str, Callable[[], Pass]] = MappingProxyType(
    {
        "merge-requantize": MergeRequantize,
        "remove-dead": RemoveDead,
    }
)


def standard_passes(steps: int) -> tuple[Pass, ...]:
    """Our own passes of the standard pipeline in order, where levels may move by ``steps`` steps."""
    return (
        MergeRequantize(steps),
        RemoveDead(),
    )


def catalogue(extensions: Iterable[Extension] = ()) -> Catalogue[Pass]:
    """Our own passes and those of ``extensions``."""
    own: Catalogue[Pass] = Catalogue("pass", _OWN)
    return own.extended(extensions)


def standard_pipeline(policy: Policy, extensions: Iterable[Extension] = ()) -> Pipeline:
    """What runs when nobody names passes: ours and those of ``extensions``, where these want to be.

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
