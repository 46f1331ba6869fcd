"""Whether a lossy pass changed what a region computes apart from its rounding: a limit that is
gone, another function.

    f°  the region without the rounding of its pairs: real ─Q─[l,h]─DQ─ becomes real ─Clip(DQ(l),
    DQ(h))─

A pass that only rounds otherwise leaves f° as it was. Two f° are held to be the same where they
differ by no more than what rounding itself does there, and what float32 loses when steps are taken
in another order. Inputs beyond all steps of the region are tried as well: there a lost limit shows.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from qbench.errors import QbenchError
from qbench.graph import own_copy
from qbench.passes.contract import QDQ
from qbench.passes.effect_check.regions import Region
from qbench.passes.effect_check.trials import KERNEL_ERRORS, Question, elements_of, shrunk
from qbench.passes.effect_check.verdicts import (
    Array,
    Counterexample,
    PassVerdict,
    RegionVerdict,
    Running,
    running,
)
from qbench.passes.rewrites.pairs import Unrounded

_FACTORS = (1.0, 4.0, -4.0)
"""What real inputs are multiplied by: as they are, and beyond both ends."""
_BATCHES = 8
_FLOAT = 1e-4
"""Relative: what a few float32 steps lose."""


def without_rounding(model: ir.Model) -> ir.Model:
    """A copy of the QDQ ``model`` in which every pair around computed reals limits them and
    rounds nothing.

    Codes that leave the graph, come from outside or are dequantized by other parameters stay.
    """
    copy = own_copy(model)
    limits = Unrounded.of(copy)
    for node in list(copy.graph):
        border = None if node.graph is None else limits.border_before(node)
        if border is not None:
            limits.put(node, border)
    return copy


def with_function(asked: Question, verdict: RegionVerdict) -> RegionVerdict:
    """``verdict`` of a lossy pass on a region, or that its function changed, with the smallest
    input that shows it.
    """
    try:
        pair = _Pair.of(asked.region)
        shown = next((feeds for feeds in _beyond(asked) if pair.apart(feeds)[0].any()), None)
    except (QbenchError, *KERNEL_ERRORS):
        return verdict  # a region that does not run has its note already
    if shown is None:
        return verdict
    small = shrunk(shown, asked.zeros, pair.fails)
    return RegionVerdict(
        asked.region.output,
        PassVerdict.CHANGED,
        verdict.inputs,
        verdict.moved,
        verdict.steps,
        _counterexample(asked, pair, small),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Pair:
    """A region before and after as it is, and without its rounding."""

    output: str
    rounded: tuple[Running, Running]
    smooth: tuple[Running, Running]

    @classmethod
    def of(cls, region: Region) -> "_Pair":
        models = region.before, region.after
        before, after = (running(model, QDQ) for model in models)
        smooth_before, smooth_after = (running(without_rounding(model), QDQ) for model in models)
        return cls(region.output, (before, after), (smooth_before, smooth_after))

    def apart(self, feeds: Mapping[str, Array]) -> tuple[Array, Array, Array]:
        """Where the functions differ, and both functions."""
        before, after = (np.asarray(run(feeds)[self.output], np.float64) for run in self.smooth)
        rounded = [np.asarray(run(feeds)[self.output], np.float64) for run in self.rounded]
        with np.errstate(invalid="ignore"):
            by_rounding = sum(
                _farthest(smooth - one)
                for smooth, one in zip((before, after), rounded, strict=True)
            )
            room = by_rounding + _FLOAT * np.abs(before) + _FLOAT * _farthest(before)
            different = ~(np.abs(after - before) <= room) & ~(before == after)
        return different & ~(np.isnan(before) & np.isnan(after)), before, after

    def fails(self, feeds: Mapping[str, Array]) -> bool:
        """Whether they differ on ``feeds``; not on what the graph cannot compute."""
        try:
            return bool(self.apart(feeds)[0].any())
        except KERNEL_ERRORS:
            return False


def _farthest(values: Array) -> float:
    """The largest magnitude of a finite one."""
    finite = np.abs(values[np.isfinite(values)])
    return float(finite.max(initial=0.0))


def _beyond(asked: Question) -> Iterator[dict[str, Array]]:
    """The first batches, and those with real inputs multiplied beyond the region's steps."""
    for factor in _FACTORS:
        for feeds in asked.batches[:_BATCHES]:
            yield {name: _times(array, factor) for name, array in feeds.items()}


def _times(array: Array, factor: float) -> Array:
    return array * array.dtype.type(factor) if array.dtype.kind == "f" else array


def _counterexample(asked: Question, pair: _Pair, feeds: Mapping[str, Array]) -> Counterexample:
    wrong, before, after = pair.apart(feeds)
    where = tuple(map(int, np.unravel_index(int(np.argmax(wrong)), wrong.shape)))
    return Counterexample(
        "without rounding",
        pair.output,
        where if before.size > 1 else (),
        dict(feeds),
        elements_of(feeds, asked.zeros),
        float(before[where]),
        float(after[where]),
        None,
        *asked.region.names,
    )
