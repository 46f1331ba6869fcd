"""The standard pipeline of each policy.

What stands in the standard pipeline makes graphs smaller; passes that are a choice of form (``rebase-int8``,
``function-tables``, …) are asked for by name.
"""

from qbench.extension import OWN, Catalogue, installed_extensions
from qbench.passes.canonical.remove_dead import RemoveDead
from qbench.passes.contract import Pass
from qbench.passes.effect import Policy
from qbench.passes.named import catalogue
from qbench.passes.pipeline import Pipeline, placed
from qbench.passes.rewrites.absorb_clip import AbsorbClip
from qbench.passes.rewrites.clip_levels import ClipLevels
from qbench.passes.rewrites.drop_identity_requantize import DropIdentityRequantize
from qbench.passes.rewrites.drop_pair import DropPair
from qbench.passes.rewrites.fold_quantized_constants import FoldQuantizedConstants
from qbench.passes.rewrites.merge_requantize import MergeRequantize
from qbench.passes.rewrites.requantize_into_consumer import RequantizeIntoConsumer
from qbench.passes.rewrites.requantize_into_dequantize import RequantizeIntoDequantize
from qbench.passes.rewrites.requantize_into_producer import RequantizeIntoProducer
from qbench.passes.rewrites.share_quantize import ShareQuantize
from qbench.passes.rewrites.sink_requantize import SinkRequantize


def standard_passes(steps: int) -> tuple[Pass, ...]:
    """Our own passes of the standard pipeline in order, where levels may move by ``steps`` steps."""
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
    """What runs when nobody names passes: ours, and those of extensions where these want to be.

    Args:
        policy: by how much levels may move. passes: all that there are; None: ours and those that are installed.

    Raises:
        InputError: places that there are not, or that form a circle.
    """
    known = catalogue(installed_extensions()) if passes is None else passes
    return placed(standard_passes(policy.steps), (known.get(one) for one in known.names() if known.owner(one) != OWN))
