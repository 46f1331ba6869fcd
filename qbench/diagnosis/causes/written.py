"""A quantized graph that says something else than the float graph it was written from: weights, bias, windows, limits.

Weights are as they should be within one step of their grid, a bias within one step of the result.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import onnx_ir as ir

from qbench.diagnosis.causes.explanation import Explanation, heaviest
from qbench.diagnosis.causes.interior import Interior
from qbench.diagnosis.causes.ordering import orders
from qbench.diagnosis.causes.scene import Floats, Scene
from qbench.diagnosis.corrections import is_corrected
from qbench.graph import constant_value, node_key
from qbench.judging import Cause
from qbench.numerics import quantize

_MOST_SLICES = 4096
_MOST_WRONG = 0.005
"""Of the weights, the share that may be off by more than a step (rounding that was learned moves a few)."""
_ROUNDED = 1.5
"""Of its own steps, what a rounded bias may be off."""
_SMALL = 0.6
_DEFAULTS: Mapping[str, tuple[Cause, int | None]] = MappingProxyType(
    {
        **dict.fromkeys(("strides", "dilations", "group"), (Cause.LAYOUT, 1)),
        **dict.fromkeys(("transA", "transB"), (Cause.LAYOUT, 0)),
        **dict.fromkeys(("axis", "perm", "axes", "keepdims"), (Cause.LAYOUT, None)),
        **dict.fromkeys(("pads", "count_include_pad", "ceil_mode"), (Cause.PADDING, 0)),
        **dict.fromkeys(("auto_pad", "mode"), (Cause.PADDING, None)),
        **dict.fromkeys(("alpha", "beta"), (Cause.WRONG_SCALE, None)),
    }
)
"""Attributes: what another value of them is, and what they are where they are left out (None: it depends)."""


@dataclass(frozen=True, slots=True)
class Written:
    """The piece beside the float node of its name."""

    name: str = "the graph that was written"
    by_element: bool = False

    def explain(self, scene: Scene) -> Explanation | None:
        """Where the float graph is at hand and has a node of this name and operator."""
        inner = scene.interior
        node = None if inner is None else _counterpart(scene, inner)
        if inner is None or node is None:
            return None
        return heaviest(self._tried(scene, inner, node))

    def _tried(self, scene: Scene, inner: Interior, node: ir.Node) -> Iterator[Explanation | None]:
        yield _attributes(inner, node)
        if scene.is_product:
            weight = constant_value(node.inputs[1]) if len(node.inputs) > 1 else None
            if weight is not None:
                yield _weights(inner, weight.astype(np.float64))
            bias = constant_value(node.inputs[2]) if len(node.inputs) > 2 else None
            if bias is not None:
                yield _bias(scene, inner, bias.astype(np.float64).reshape(-1))


def _counterpart(scene: Scene, inner: Interior) -> ir.Node | None:
    if scene.original is None:
        return None
    for node in scene.original.graph:
        if node_key(node) == node_key(inner.node) and node.op_type == inner.node.op_type:
            return node
    made = next((v for n in scene.original.graph for v in n.outputs if v.name == inner.output), None)
    maker = None if made is None else made.producer()
    return maker if maker is not None and maker.op_type == inner.node.op_type else None


def _attributes(inner: Interior, node: ir.Node) -> Explanation | None:
    for name, (cause, default) in _DEFAULTS.items():
        here, there = (None if one is None else one.value for one in _both(inner, node, name))
        if here == there or (default is None and None in (here, there)):
            continue
        if {_plain(value, default) for value in (here, there)} != {default}:
            evidence = f"'{name}' is {here} in the quantized graph and {there} in the float graph"
            return Explanation(cause=cause, evidence=evidence, weight=1.0)
    return None


def _both(inner: Interior, node: ir.Node, name: str) -> tuple[ir.Attr | None, ir.Attr | None]:
    return inner.node.attributes.get(name), node.attributes.get(name)


def _plain(value: object, default: int | None) -> int | None:
    """``default`` where ``value`` is left out, or holds nothing else; -1 otherwise."""
    if default is None:
        return -1
    every = [default] if value is None else list(value) if isinstance(value, tuple | list) else [value]
    return default if all(one == default for one in every) else -1


def _weights(inner: Interior, weight: Floats) -> Explanation | None:
    operand, written = inner.operand(1), inner.constant(1)
    if operand is None or operand.grid is None or written is None or written.shape != weight.shape:
        return None
    grid, levels = operand.grid, operand.levels
    assert levels is not None
    if grid.block_size:
        return None
    shape = [1] * weight.ndim
    if grid.axis is not None:
        shape[grid.axis] = -1
    step = np.asarray(grid.scale, np.float64).reshape(shape if grid.axis is not None else ())
    off = np.abs(written - weight) > 1.01 * step
    share = float(off.mean())
    if share <= _MOST_WRONG:
        return None
    said = f"{share:.1%} of the weights are off by more than a step of their grid"
    if (order := _order(written, weight, step)) is not None:
        return Explanation(cause=Cause.LAYOUT, evidence=f"{order}; {said}", weight=1.0)
    integers = quantize(weight.astype(np.float32), grid).astype(np.float64)
    if (order := _order(levels.astype(np.float64), integers, np.ones(()), "the integers of the weights")) is not None:
        evidence = f"{order}, under the scales of their places; {said}"
        return Explanation(cause=Cause.LAYOUT, evidence=evidence, weight=1.0)
    at_ends = (levels == grid.qtype.qmin) | (levels == grid.qtype.qmax) | (levels == -grid.qtype.qmax)
    if at_ends[off].mean() > 0.9:
        evidence = f"{said}, nearly all of them at an end of it: their range is cut"
        return Explanation(cause=Cause.CLIPPING, evidence=evidence, weight=0.95)
    slopes = _slopes(written, weight, grid.axis)
    left = np.abs(written - slopes * weight) > 1.01 * np.maximum(step, step * np.abs(slopes))
    words = f"they are {slopes.min():.4g} … {slopes.max():.4g} times the float ones"
    if float(left.mean()) <= 0.05:
        return Explanation(cause=Cause.WRONG_SCALE, evidence=f"{said}: {words}", weight=0.95)
    like = float(np.corrcoef(written.reshape(-1), weight.reshape(-1))[0, 1])
    cause = Cause.WRONG_SCALE if like > 0.5 else Cause.LAYOUT
    return Explanation(cause=cause, evidence=f"{said}; they correlate by {like:.2f} with the float ones", weight=0.8)


def _order(written: Floats, weight: Floats, step: Floats, what: str = "the weights") -> str | None:
    """In which order ``weight`` stands in the graph, in words; None: in none that is known."""
    for words, other in orders(weight, weights=True):
        if other.shape == weight.shape and float((np.abs(written - other) > 1.01 * step).mean()) <= _MOST_WRONG:
            return f"{what} are written {words}"
    found = (_moved(written, weight, step, axis, what) for axis in range(min(weight.ndim, 2)))
    return next((words for words in found if words is not None), None)


def _moved(written: Floats, weight: Floats, step: Floats, axis: int, what: str) -> str | None:
    """Slices of ``written`` that are other slices of ``weight``, in words; None where any is none of them."""
    steps = np.broadcast_to(step, weight.shape)
    ours, theirs, width = (np.moveaxis(a, axis, 0).reshape(a.shape[axis], -1) for a in (written, weight, steps))
    off = np.flatnonzero(
        (np.abs(ours - theirs) > 1.01 * np.maximum(width, width.max(axis=1, keepdims=True))).any(axis=1)
    )
    if len(off) < 2 or len(ours) > _MOST_SLICES:
        return None
    sizes = (ours[off] ** 2).sum(axis=1)[:, None] - 2 * ours[off] @ theirs.T + (theirs**2).sum(axis=1)[None, :]
    origin = sizes.argmin(axis=1)
    widest = float(steps.max())  # a slice that moved without its scale has the one of its place
    if (np.abs(ours[off] - theirs[origin]) > 1.01 * widest).any() or np.unique(origin).size < len(off):
        return None
    shown = ", ".join(f"{to} ← {here}" for to, here in zip(off[:3], origin[:3], strict=True))
    return f"{len(off)} slices of axis {axis} of {what} are others ({shown}{' …' if len(off) > 3 else ''})"


def _slopes(written: Floats, weight: Floats, axis: int | None) -> Floats:
    every = None if axis is None else tuple(a for a in range(weight.ndim) if a != axis % weight.ndim)
    energy = np.maximum((weight**2).sum(axis=every, keepdims=True), 1e-30)
    return np.asarray((written * weight).sum(axis=every, keepdims=True) / energy)


def _bias(scene: Scene, inner: Interior, bias: Floats) -> Explanation | None:
    """A corrected bias is another one by design: a small change is wrong where it brings the result no nearer to fp32.

    ``explained`` has fp32's own bias on the same grids, so that its error tells what the written one does.
    """
    operand, constant = inner.operand(2), inner.constant(2)
    written = np.zeros_like(bias) if constant is None else constant.astype(np.float64).reshape(-1)
    if written.shape != bias.shape:
        return None
    off = np.abs(written - bias)
    said = f"the bias is off by up to {off.max(initial=0) / inner.scale:.3g} steps of the result"
    if off.max(initial=0) <= inner.scale or float((off**2).sum()) < 0.04 * float((bias**2).sum()):
        step = None if operand is None or operand.grid is None else np.asarray(operand.grid.scale, np.float64)
        if step is None or scene.captured.errors.explained is None or is_corrected(scene.captured.errors):
            return None
        own = float((off / step).max())
        if own <= _ROUNDED:
            return None
        evidence = f"{said}, {own:.3g} of its own: more than rounding makes of fp32's, and no nearer to fp32's result"
        return Explanation(cause=Cause.WRONG_BIAS, evidence=evidence, weight=_SMALL)
    if operand is not None and operand.grid is not None and operand.levels is not None:
        qtype, worst = operand.grid.qtype, off > inner.scale
        at_ends = (operand.levels.reshape(-1) <= qtype.qmin) | (operand.levels.reshape(-1) >= qtype.qmax)
        if at_ends[worst].mean() > 0.5:
            evidence = f"{said}: {int(at_ends.sum())} of {bias.size} are at an end of {qtype.name}"
            return Explanation(cause=Cause.BIAS_SATURATION, evidence=evidence, weight=1.0)
    for words, other in (
        ("left out", 0 * bias),
        ("added twice", 2 * bias),
        ("that of the next channel", np.roll(bias, -1)),
        ("that of the channel before", np.roll(bias, 1)),
        ("the first channel's in all", np.full_like(bias, bias[0])),
    ):
        if np.abs(written - other).max() <= max(inner.scale, 0.01 * float(np.abs(bias).max())):
            return Explanation(cause=Cause.WRONG_BIAS, evidence=f"{said}: it is {words}", weight=1.0)
    return Explanation(cause=Cause.WRONG_BIAS, evidence=said, weight=0.9)
