"""The canonical passes: float → float before profiling."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import onnx_ir as ir

from qbench.errors import unknown_name
from qbench.graph import graph_digest
from qbench.passes.canonical.batchnorm import BatchNormToConv, FoldBatchNorm
from qbench.passes.canonical.bias import SplitBias
from qbench.passes.canonical.cleanup import (
    InferShapes,
    InlineFunctions,
    NameNodes,
    RemoveDead,
    RemoveIdentity,
    SplitShared,
)
from qbench.passes.canonical.constants import FoldConstants, FoldGemmFactors, LiftConstants
from qbench.passes.canonical.equalize import Equalize, OpenClips
from qbench.passes.canonical.opset import UpgradeOpset
from qbench.passes.canonical.padding import AbsorbPad
from qbench.passes.contract import Pass
from qbench.passes.qdq.import_qdq import LiftPairs, RaiseOperators, RaiseProducts
from qbench.passes.run import rewrite
from qbench.storage import digest_plain

DEFAULT = "default"
MARK = "qbench.canonical"
"""Metadata key of a model that ``plannable`` made: the digests of the passes and of the graph they gave."""


@dataclass(frozen=True, slots=True)
class Canonical:
    """Passes before profiling, and those that run between profiling and planning.

    A value keeps its name through the second only while it keeps its numbers, so that its statistics stay true.
    """

    watched: tuple[Pass, ...]
    planned: tuple[Pass, ...] = ()


_TIDIED = (
    InlineFunctions(),
    LiftConstants(),
    UpgradeOpset(),
    LiftConstants(),  # the converter turns attributes into Constant nodes
    NameNodes(),
    RaiseOperators(),
    RaiseProducts(),
    RemoveIdentity(),
    FoldConstants(),
    AbsorbPad(),
    FoldGemmFactors(),
)
_FOLDED = (
    FoldBatchNorm(),
    RemoveDead(),
    SplitShared(),
    InferShapes(),
    BatchNormToConv(),
    RemoveDead(),
)
_KEPT = (
    RemoveDead(),
    SplitShared(),
    InferShapes(),
    BatchNormToConv(),
    FoldBatchNorm(),  # of rows, which are no convolution's
    RemoveDead(),
)
_PLAIN = (*_TIDIED, *_FOLDED)

CANONICAL: Mapping[str, Canonical] = MappingProxyType(
    {
        DEFAULT: Canonical(_PLAIN),
        "equalized": Canonical((*_PLAIN, Equalize())),
        "equalized_relu": Canonical((*_PLAIN, OpenClips(), RemoveDead(), Equalize())),
        "fold_after": Canonical((*_TIDIED, RemoveDead(), SplitShared(), InferShapes()), planned=_FOLDED),
        "keep_batchnorm": Canonical((*_TIDIED, *_KEPT)),
        "split_bias": Canonical((*_PLAIN, SplitBias(), InferShapes())),
    }
)
"""Pipelines of canonical passes by name; schemas with one name share one profile."""


def canonicalize(model: ir.Model, pipeline: str = DEFAULT) -> ir.Model:
    """The form of the float ``model`` that is profiled, as a new model: same function, same interface, idempotent.

    Raises:
        InputError: there is no such pipeline.
        UnsupportedError: the model cannot be brought to the opset that QDQ is written at, or be equalized.
    """
    return rewrite(model, _named(pipeline).watched)


def plannable(model: ir.Model, pipeline: str = DEFAULT, *, is_canonical: bool = False) -> ir.Model:
    """The form of the float ``model`` that is planned on and written into; a descendant of what was profiled.

    Q/DQ pairs of the original model leave the graph here and are pinned to their values (``graph.fixed_qparams``): the
    profile is taken with them in place, so that what lies behind a pair is profiled as the pair lets it through.

    The result is marked with its digest: given again, it is known for what it is, no pass runs, and it is given back
    itself. A caller that plans and writes many times calls this once and keeps the result; nothing is stored in
    ``model``, which is not touched.

    Args:
        is_canonical: ``model`` is what ``canonicalize`` gave, whose passes need not run again.

    Raises:
        InputError: an invalid Q or DQ.
        What ``canonicalize`` raises.
    """
    chosen = _named(pipeline)
    planned = (LiftPairs(), *chosen.planned)
    settings = digest_plain([repr(step) for step in (*chosen.watched, *planned)])
    if model.metadata_props.get(MARK) == f"{settings} {graph_digest(model)}" and _has_types(model):
        return model
    made = rewrite(model if is_canonical else rewrite(model, chosen.watched), planned)
    made.metadata_props[MARK] = f"{settings} {graph_digest(made)}"
    return made


def plannable_digest(model: ir.Model) -> str:
    """The digest of what ``plannable`` just gave, from its mark: large graphs take long to digest."""
    return model.metadata_props[MARK].split()[-1]


def _has_types(model: ir.Model) -> bool:
    """Whether no tool took away what was inferred; the digest does not see that."""
    return all(value.type is not None for node in model.graph for value in node.outputs if value.name)


def _named(pipeline: str) -> Canonical:
    if pipeline not in CANONICAL:
        raise unknown_name("Choosing canonical passes", "canonical pipeline", pipeline, CANONICAL)
    return CANONICAL[pipeline]
