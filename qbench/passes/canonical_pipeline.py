"""The canonical passes: float → float before profiling, so that they decide which values there are to watch."""

from collections.abc import Mapping
from types import MappingProxyType

import onnx_ir as ir

from qbench.passes.canonical.name_nodes import NameNodes
from qbench.passes.canonical.upgrade_opset import UpgradeOpset
from qbench.passes.contract import Pass
from qbench.passes.rewriting import rewrite

DEFAULT = "default"

CANONICAL: Mapping[str, tuple[Pass, ...]] = MappingProxyType(
    {
        DEFAULT: (
            UpgradeOpset(),
            NameNodes(),
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
