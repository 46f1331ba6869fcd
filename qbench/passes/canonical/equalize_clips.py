"""Equalization of pairs with a Clip between them, whose upper end stays unused where it was."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.graph import constant_value, own_copy
from qbench.passes.canonical.equalize import LinearPair, equalize_pairs, linear_pairs, opens

# Between two linear operators with a Clip(0, h) a factor can move in every channel that never
# reaches h, as long as it does not reach h afterwards:
#
#     clip(S⁻¹·v, 0, h) = S⁻¹·clip(v, 0, h)       where v < h and v < h·s
#
# With m_c the largest result of the Clip in channel c, on samples, channel c takes no factor below
# m_c · MARGIN / h, and none at all where that is 1 or more. The network computes the same on all
# inputs that stay within MARGIN of what was seen, and nothing is opened
# (``equalize.OpenClips`` gives another network). The equalization is that of Nagel et al.
# (arXiv 1906.04721), 4.1; the bound is ours.

Doubles = npt.NDArray[np.float64]

MARGIN = 1.2
"""How much more than on the samples a channel can reach before its Clip cuts it."""


def equalized_by_peaks(
    model: ir.Model, peaks: Mapping[str, npt.NDArray[Any]]
) -> tuple[ir.Model, bool]:
    """A copy of ``model`` with equalized pairs, and whether anything had to change.

    Args:
        model: canonical, float; not touched.
        peaks: result of a Clip → its largest number in every channel (axis 1), shape [channels];
            a pair whose Clip has none is left as it is.

    Raises:
        UnsupportedError: factors do not settle, as along very long chains.
    """
    copy = own_copy(model)
    pairs: list[LinearPair] = []
    floors: list[Doubles | None] = []
    for pair in linear_pairs(copy.graph, through=frozenset({"Clip"})):
        clips = [node for node in pair.between if node.op_type == "Clip"]
        if all(opens(clip) and _peak(clip, peaks) is not None for clip in clips):
            pairs.append(pair)
            floors.append(_floor(clips, peaks))
    return copy, equalize_pairs(copy, pairs, floors)


def _peak(clip: ir.Node, peaks: Mapping[str, npt.NDArray[Any]]) -> Doubles | None:
    found = peaks.get(clip.outputs[0].name or "")
    return None if found is None else np.asarray(found, np.float64)


def _floor(clips: list[ir.Node], peaks: Mapping[str, npt.NDArray[Any]]) -> Doubles | None:
    """The least factor of each channel; NaN where it stays 1. None: there is no upper end."""
    shares = [
        share for clip in clips if (share := _share_of_end(clip, _peak(clip, peaks))) is not None
    ]
    if not shares:
        return None
    most = np.maximum.reduce(shares) * MARGIN
    return np.where(most < 1, most, np.nan)


def _share_of_end(clip: ir.Node, peak: Doubles | None) -> Doubles | None:
    """What part of the upper end each channel reaches; None: there is none."""
    high = constant_value(clip.inputs[2]) if len(clip.inputs) > 2 else None
    return None if high is None or peak is None else peak / float(high.item())
