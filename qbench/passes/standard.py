"""The standard pipeline of each policy."""

from qbench.extension import OWN, Catalogue, installed_extensions
from qbench.passes.canonical.cleanup import RemoveDead
from qbench.passes.contract import Pass
from qbench.passes.effect import Policy
from qbench.passes.pipeline import Pipeline, placed
from qbench.passes.registry import catalogue
from qbench.passes.rewrites.clips import AbsorbClip, ClipLevels
from qbench.passes.rewrites.pairs import DropPair, FoldQuantizedConstants, ShareQuantize
from qbench.passes.rewrites.requantize import (
    DropIdentityRequantize,
    MergeRequantize,
    RequantizeIntoConsumer,
    RequantizeIntoDequantize,
    RequantizeIntoProducer,
)
from qbench.passes.rewrites.sink_requantize import SinkRequantize


def standard_passes(steps: int) -> tuple[Pass, ...]:
    """The passes of qbench in the standard pipeline, in order; codes may move by ``steps`` steps."""
    return (
        FoldQuantizedConstants(),
        AbsorbClip(),
        ClipLevels(),
        ShareQuantize(),
        DropIdentityRequantize(),
        SinkRequantize(steps),
        MergeRequantize(steps),
        RequantizeIntoProducer(steps),
        RequantizeIntoDequantize(),
        RequantizeIntoConsumer(),
        DropPair(),
        RemoveDead(),
    )


def standard_pipeline(policy: Policy, passes: Catalogue[Pass] | None = None) -> Pipeline:
    """What runs when no passes are named: qbench's own, and those of extensions at the places that these declare.

    Args:
        policy: by how much codes may move. passes: all known passes; None: qbench's own and installed ones.

    Raises:
        InputError: unknown places, or places that form a circle.
    """
    known = catalogue(installed_extensions()) if passes is None else passes
    return placed(standard_passes(policy.steps), (known.get(one) for one in known.names() if known.owner(one) != OWN))
