"""The passes that can be named, qbench's own and those of extensions, and the standard pipeline
of each policy.
"""

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import is_dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from qbench.errors import InputError
from qbench.extension import OWN, Catalogue, Extension, known_extensions

if TYPE_CHECKING:
    from qbench.passes.contract import Pass, Policy
    from qbench.passes.pipeline import Pipeline

_CLASSES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "absorb-clip": ("rewrites.clips", "AbsorbClip"),
        "clip-levels": ("rewrites.clips", "ClipCodes"),  # stored name
        "fuse-bias": ("rewrites.fuse_bias", "FuseBias"),
        "drop-identity-requantize": ("rewrites.requantize", "DropIdentityRequantize"),
        "drop-pair": ("rewrites.pairs", "DropPair"),
        "requantize-into-consumer": ("rewrites.requantize", "RequantizeIntoConsumer"),
        "requantize-into-dequantize": ("rewrites.requantize", "RequantizeIntoDequantize"),
        "requantize-into-producer": ("rewrites.requantize", "RequantizeIntoProducer"),
        "fold-quantized-constants": ("rewrites.pairs", "FoldQuantizedConstants"),
        "function-tables": ("rewrites.function_tables", "FunctionTables"),
        "rebase-int8": ("rewrites.rebase", "RebaseInt8"),
        "rebase-uint8": ("rewrites.rebase", "RebaseUint8"),
        "sink-requantize": ("rewrites.sink_requantize", "SinkRequantize"),
        "store-narrow": ("rewrites.store_narrow", "StoreNarrow"),
        "merge-requantize": ("rewrites.requantize", "MergeRequantize"),
        "share-quantize": ("rewrites.pairs", "ShareQuantize"),
        "fold-batchnorm": ("canonical.batchnorm", "FoldBatchNorm"),
        "split-bias": ("canonical.bias", "SplitBias"),
        "cache-channels": ("canonical.cache_channels", "CacheChannels"),
        "fold-constants": ("canonical.constants", "FoldConstants"),
        "remove-identity": ("canonical.cleanup", "RemoveIdentity"),
        "fold-gemm-factors": ("canonical.constants", "FoldGemmFactors"),
        "absorb-pad": ("canonical.cleanup", "AbsorbPad"),
        "equalize": ("canonical.equalize", "Equalize"),
        "batchnorm-to-conv": ("canonical.batchnorm", "BatchNormToConv"),
        "open-clips": ("canonical.equalize", "OpenClips"),
        "remove-dead": ("canonical.cleanup", "RemoveDead"),
    }
)
"""Name → (module below ``qbench.passes``, class)."""


def catalogue(extensions: Iterable[Extension] = ()) -> "Catalogue[Pass]":
    """The built-in backends, those of ``extensions``, and an interpreter for each arithmetic."""
    return Catalogue("pass", _own()).extended(map(_requiring_passes, extensions))


def _own() -> "Mapping[str, Callable[[], Pass]]":
    return {name: partial(_made, *place) for name, place in _CLASSES.items()}


def _made(file: str, name: str) -> "Pass":
    made: Pass = getattr(importlib.import_module(f"qbench.passes.{file}"), name)()
    return made


def _requiring_passes(extension: Extension) -> Extension:
    made = {
        name: partial(_from_outside, extension.name, name, make)
        for name, make in extension.passes.items()
    }
    return replace(extension, passes=made)


def _from_outside(owner: str, name: str, make: "Callable[[], Pass]") -> "Pass":
    made = make()
    fault = _fault(made, name)
    if fault is not None:
        raise InputError(
            f"Making the pass '{name}' of '{owner}'",
            found=fault,
            expected="a frozen dataclass with that 'name', an 'effect' and a 'run'",
            remedy="Correct the extension.",
        )
    return made


def _fault(made: object, name: str) -> str | None:
    """Why ``made`` is not a pass called ``name``."""
    from qbench.passes.contract import Effect

    if not is_dataclass(made) or isinstance(made, type) or not callable(getattr(made, "run", None)):
        return f"something of type {type(made).__name__}, which is not a pass"
    try:
        effect, own = getattr(made, "effect", None), getattr(made, "name", None)
    except ValueError as error:
        return str(error)
    if not isinstance(effect, Effect):
        return "one without an effect"
    return None if own == name else f"one that calls itself '{own}'"


def standard_passes(steps: int) -> "tuple[Pass, ...]":
    """The passes of qbench in the standard pipeline, in order; codes may move by ``steps``
    steps.
    """
    from qbench.passes.canonical.cleanup import RemoveDead
    from qbench.passes.rewrites.clips import AbsorbClip, ClipCodes
    from qbench.passes.rewrites.pairs import DropPair, FoldQuantizedConstants, ShareQuantize
    from qbench.passes.rewrites.requantize import (
        DropIdentityRequantize,
        MergeRequantize,
        RequantizeIntoConsumer,
        RequantizeIntoDequantize,
        RequantizeIntoProducer,
    )
    from qbench.passes.rewrites.sink_requantize import SinkRequantize

    return (
        FoldQuantizedConstants(),
        AbsorbClip(),
        ClipCodes(),
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


def standard_pipeline(policy: "Policy", passes: "Catalogue[Pass] | None" = None) -> "Pipeline":
    """What runs when no passes are named: qbench's own, and those of extensions at the places
    that these declare.

    Args:
        policy: by how much codes may move.
        passes: all known passes; None: qbench's own and installed ones.

    Raises:
        InputError: unknown places, or places that form a circle.
    """
    from qbench.passes.pipeline import placed

    known = catalogue(known_extensions()) if passes is None else passes
    return placed(
        standard_passes(policy.steps),
        (known.get(one) for one in known.names() if known.owner(one) != OWN),
    )
