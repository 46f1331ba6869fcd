"""The canonical passes: float → float before profiling."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import onnx
import onnx_ir as ir

from qbench.errors import UnsupportedError, unknown_name
from qbench.graph import QDQ_IR_VERSION, QDQ_OPSET, graph_digest, model_bytes, opset
from qbench.passes.canonical.batchnorm import BatchNormToConv, FoldBatchNorm
from qbench.passes.canonical.bias import SplitBias
from qbench.passes.canonical.cache_channels import CacheChannels
from qbench.passes.canonical.cleanup import (
    AbsorbPad,
    InferShapes,
    InlineFunctions,
    NameNodes,
    RemoveDead,
    RemoveIdentity,
    SplitShared,
)
from qbench.passes.canonical.constants import FoldConstants, FoldGemmFactors, LiftConstants
from qbench.passes.canonical.equalize import Equalize, OpenClips
from qbench.passes.contract import EXACT, Effect, Pass
from qbench.passes.qdq.block_operators import RaiseBlocks
from qbench.passes.qdq.import_qdq import LiftPairs, RaiseOperators, RaiseProducts
from qbench.passes.qdq.standard_form import StandardForm
from qbench.passes.run import rewrite
from qbench.storage import digest_plain

# Bringing a model to the opset that QDQ is written at.


@dataclass(frozen=True, slots=True)
class UpgradeOpset:
    """Requires nothing. Ensures: default opset at least 21, IR version at least 10; names and
    metadata kept.

    A model that is already at 21 or later is left as it is.
    """

    name: str = "upgrade-opset"
    effect: ClassVar[Effect] = EXACT
    target: int = QDQ_OPSET

    def run(self, model: ir.Model) -> bool:
        """Convert ``model``; True when it was older.

        Raises:
            UnsupportedError: the converter cannot convert an operator, or the model is too large
                for one message.
        """
        if opset(model) >= self.target:
            raised = model.ir_version < QDQ_IR_VERSION
            model.ir_version = max(model.ir_version, QDQ_IR_VERSION)
            return raised
        converted = ir.from_proto(self._converted(model))
        _keep_metadata(model, converted)
        _move_into(model, converted)
        model.ir_version = max(model.ir_version, QDQ_IR_VERSION)
        return True

    def _converted(self, model: ir.Model) -> onnx.ModelProto:
        proto = onnx.load_model_from_string(model_bytes(model))
        # up to 3, initializers had to be inputs too
        proto.ir_version = max(proto.ir_version, QDQ_IR_VERSION)
        try:
            return onnx.version_converter.convert_version(proto, self.target)
        except RuntimeError as error:
            raise UnsupportedError(
                f"Bringing '{model.graph.name}' from opset {opset(model)} to {self.target}",
                found=" ".join(str(error).split())[:300],
                expected="operators that onnx's version converter knows",
                remedy=f"Export the model at opset {self.target}.",
            ) from error


def _keep_metadata(before: ir.Model, after: ir.Model) -> None:
    """The converter drops metadata; a node is the same one when it makes a value of the same
    name.
    """
    kept = {v.name: node for node in before.graph for v in node.outputs}
    for node in after.graph:
        for value in node.outputs:
            if value.name in kept:
                node.metadata_props.update(kept[value.name].metadata_props)


def _move_into(model: ir.Model, converted: ir.Model) -> None:
    name, metadata, doc = model.graph.name, dict(model.graph.metadata_props), model.graph.doc_string
    model.graph = converted.graph
    model.graph.name, model.graph.doc_string = name, doc
    model.graph.metadata_props.update(metadata)


DEFAULT = "default"
CACHE_CHANNELS_PIPELINE = "cache_channels"
MARK = "qbench.canonical"
"""Metadata key of a model that ``plannable`` made: the digests of the passes and of the graph
they gave.
"""


@dataclass(frozen=True, slots=True)
class Canonical:
    """Passes before profiling, and those that run between profiling and planning.

    A value keeps its name through the second only while it keeps its numbers, so that its
    statistics stay true.
    """

    watched: tuple[Pass, ...]
    planned: tuple[Pass, ...] = ()


_TIDIED = (
    InlineFunctions(),
    LiftConstants(),
    UpgradeOpset(),
    LiftConstants(),  # the converter turns attributes into Constant nodes
    NameNodes(),
    StandardForm(),
    RaiseOperators(),
    RaiseProducts(),
    RaiseBlocks(),
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
        "fold_after": Canonical(
            (*_TIDIED, RemoveDead(), SplitShared(), InferShapes()), planned=_FOLDED
        ),
        "keep_batchnorm": Canonical((*_TIDIED, *_KEPT)),
        CACHE_CHANNELS_PIPELINE: Canonical((*_PLAIN, CacheChannels(), InferShapes())),
        "split_bias": Canonical((*_PLAIN, SplitBias(), InferShapes())),
    }
)
"""Pipelines of canonical passes by name; schemas with one name share one profile."""


def canonicalize(model: ir.Model, pipeline: str = DEFAULT) -> ir.Model:
    """The form of the float ``model`` that is profiled, as a new model: same function, same
    interface, idempotent.

    Raises:
        InputError: there is no such pipeline.
        UnsupportedError: the model cannot be brought to the opset that QDQ is written at, or be
            equalized.
    """
    return rewrite(model, _named(pipeline).watched)


def plannable(model: ir.Model, pipeline: str = DEFAULT, *, is_canonical: bool = False) -> ir.Model:
    """The form of the float ``model`` that is planned on and written into; a descendant of what
    was profiled.

    Q/DQ pairs of the original model leave the graph here and are pinned to their values
    (``graph.fixed_qparams``): the profile is taken with them in place, so that what lies behind a
    pair is profiled as the pair lets it through.

    The result is marked with its digest: given again, it is known for what it is, no pass runs, and
    it is given back itself. A caller that plans and writes many times calls this once and keeps the
    result; nothing is stored in ``model``, which is not touched.

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
    """The digest of a graph that ``plannable`` returned, from its mark. Digesting takes long."""
    return model.metadata_props[MARK].split()[-1]


def _has_types(model: ir.Model) -> bool:
    """Whether no tool took away what was inferred; the digest does not see that."""
    return all(
        value.type is not None for node in model.graph for value in node.outputs if value.name
    )


def _named(pipeline: str) -> Canonical:
    if pipeline not in CANONICAL:
        raise unknown_name("Choosing canonical passes", "canonical pipeline", pipeline, CANONICAL)
    return CANONICAL[pipeline]
