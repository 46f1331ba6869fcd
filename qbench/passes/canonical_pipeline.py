"""The canonical passes: float → float before profiling, so that they decide which values there are to watch."""

from collections.abc import Mapping
from types import MappingProxyType

import onnx_ir as ir

from qbench.passes.canonical.absorb_pad import AbsorbPad
from qbench.passes.canonical.fold_batchnorm import FoldBatchNorm
from qbench.passes.canonical.fold_constants import FoldConstants
from qbench.passes.canonical.infer_shapes import InferShapes
from qbench.passes.canonical.inline_functions import InlineFunctions
from qbench.passes.canonical.lift_constants import LiftConstants
from qbench.passes.canonical.name_nodes import NameNodes
from qbench.passes.canonical.remove_dead import RemoveDead
from qbench.passes.canonical.remove_identity import RemoveIdentity
from qbench.passes.canonical.split_shared import SplitShared
from qbench.passes.canonical.upgrade_opset import UpgradeOpset
from qbench.passes.contract import Pass
from qbench.passes.rewriting import rewrite

DEFAULT = "default"

CANONICAL: Mapping[str, tuple[Pass, ...]] = MappingProxyType(
    {
        DEFAULT: (
            InlineFunctions(),
            LiftConstants(),
            UpgradeOpset(),
            LiftConstants(),  # the converter turns attributes into Constant nodes
            NameNodes(),
            RemoveIdentity(),
            FoldConstants(),
            AbsorbPad(),
            FoldBatchNorm(),
            RemoveDead(),
            SplitShared(),
            InferShapes(),
        )
    }
)
"""Named pipelines of canonical passes; schemas with one name share one profile."""


def canonicalize(model: ir.Model) -> ir.Model:
    """The canonical form of the float ``model``, as a new model: same function, same interface, idempotent.

    Raises:
        UnsupportedError: the model cannot be brought to the opset that QDQ is written at.
    """
    return rewrite(model, CANONICAL[DEFAULT])
