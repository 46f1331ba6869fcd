"""Going past requantizes behind which every level means the real that it meant before.

    levels(g₁) ─DQ₁─Q₂─[l₂,h₂]─DQ₂─ readers   →   levels(g₁) ─DQ₁─ readers          s₂·(T(q) − z₂) = s₁·(q − z₁)

Every level is tried, in float32 and exactly, under every machine. Where one means anything else the requantize stays:
what its readers make of a rounding, and what of several, is not known here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import onnx_ir as ir

from qbench.numerics import dequantize
from qbench.passes.declining import decline
from qbench.passes.levels.readers import Reads
from qbench.passes.levels.requantize import go_past, requantize_of
from qbench.passes.levels.tables import Array, Stop, all_levels, brought

_HALF = 0.5 + 2.0**-6
"""Of a step: rounding, and what float32 adds to it on grids of up to 16 bits (65,535 steps · 2 · 2⁻²⁴)."""
_KEPT = 4096
"""Reasons remembered: every round of a pipeline asks for those again that there were in the last."""


@dataclass(frozen=True, slots=True)
class GoingPast:
    """One sweep of the pass ``name``.

    Args:
        wanted: whether a requantize with such readers is the pass's. machines: of its effect. name: of the pass.
    """

    wanted: Callable[[set[Reads]], bool]
    machines: tuple[str, ...]
    name: str

    def sweep(self, model: ir.Model) -> bool:
        """Go past in graph order, each time back along the chain as far as readers let it; True when there was one."""
        gone = False
        for node in list(model.graph):
            before: ir.Node | None = node if node.graph is not None else None
            while before is not None:
                went, before = self._past(before)
                gone |= went
        return gone

    def _past(self, node: ir.Node) -> tuple[bool, ir.Node | None]:
        """Whether it went past ``node``, and the quantizer whose levels the readers then read."""
        site = requantize_of(node)
        if site is None:
            return False, None
        if isinstance(site, str):
            return decline(node, site, self.name) and False, None
        readers = site.readers
        if not self.wanted({reader.reads for reader in readers}):
            return False, None
        reason = site.refusal(readers) or unlike(site.start, site.stop, self.machines)
        if reason is not None:
            return decline(node, reason, self.name) and False, None
        before = site.source.border
        go_past(site)
        return True, None if before is None else before.quantizer


@lru_cache(maxsize=_KEPT)
def unlike(start: Stop, stop: Stop, machines: tuple[str, ...]) -> str | None:
    """Why levels of ``start`` that are brought to ``stop`` are not as before to every reader; None: they are.

    Raises:
        InputError: an unknown machine, or a ratio of scales that it cannot hold.
    """
    levels = all_levels(start)
    step, before = np.float64(stop.grid.scale), _exact(levels, start)
    moved, apart = np.zeros(len(levels), bool), np.zeros(len(levels))
    for machine in machines:
        there = brought(levels, start.grid, (stop,), machine)
        far = np.abs(before - _exact(there, stop))
        moved |= (far > 0) | (_float32(levels, start) != _float32(there, stop))
        apart = np.maximum(apart, far / step)
    count, farthest = f"{moved.sum()} of {len(levels)} levels mean another real", float(apart.max(initial=0.0))
    if moved.any():
        return f"it saturates: {count} behind it" if farthest > _HALF else f"{count}, by up to {farthest:.3g} steps"
    mantissa, _ = np.frexp(np.float64(start.grid.scale) / step)
    return None if mantissa == 0.5 else "the ratio of the scales is no power of two, so that products round otherwise"


def _exact(levels: Array, stop: Stop) -> Array:
    """Float64, no bit lost: 24 of the scale, 17 of the levels."""
    return np.asarray(np.float64(stop.grid.scale) * (levels - int(stop.grid.zero_point)))


def _float32(levels: Array, stop: Stop) -> Array:
    return dequantize(levels.astype(stop.grid.qtype.storage_dtype), stop.grid)
