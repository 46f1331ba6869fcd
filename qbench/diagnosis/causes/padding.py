"""What lies beyond the edge: another value than zero, on other sides, or counted in a mean where it should not be.

t(v) = t + v · R        a convolution whose padding holds v steps of its input; R: the response to one step
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from qbench.diagnosis.causes.explanation import Explanation, heaviest
from qbench.diagnosis.causes.interior import Interior
from qbench.diagnosis.causes.rounding import solved
from qbench.diagnosis.causes.scene import Floats, Scene
from qbench.errors import QbenchError
from qbench.graph import int_attribute, ints_attribute, word_attribute
from qbench.judging import Cause

_FITTED = 0.97
_PADDED = frozenset({"Conv", "AveragePool", "MaxPool"})
_POOLS = frozenset({"AveragePool", "MaxPool"})


@dataclass(frozen=True, slots=True)
class Paddings:
    """Of a convolution or pool with pads."""

    name: str = "padding"
    by_element: bool = False

    def explain(self, scene: Scene) -> Explanation | None:
        """With the input padded by hand, and the operator without pads."""
        inner = scene.interior
        if inner is None or inner.node.op_type not in _PADDED:
            return None
        pads = pads_of(inner.node)
        if pads is None or not any(pads):
            return None
        return heaviest(self._tried(scene, inner, pads))

    def _tried(self, scene: Scene, inner: Interior, pads: tuple[int, ...]) -> Iterator[Explanation | None]:
        operand = inner.operand(0)
        if operand is None or operand.grid is None or np.size(operand.grid.scale) != 1:
            return
        step, zero = float(operand.grid.scale), int(operand.grid.zero_point)
        lowest, highest = (end - zero for end in (operand.grid.qtype.qmin, operand.grid.qtype.qmax))
        if inner.node.op_type == "AveragePool":
            yield _divided(scene, inner)
        if inner.node.op_type != "MaxPool":
            response = _edged(scene, inner, pads, step) - _edged(scene, inner, pads, 0.0)
            fitted = round(solved(scene, response))
            for value in dict.fromkeys((-zero, lowest, highest, fitted)):
                if value:
                    words = f"padding with level {value + zero} in place of {zero}"
                    real = scene.real + value * response
                    yield scene.weigh_reals(Cause.PADDING, words, real, _FITTED if value == fitted != -zero else 1.0)
        else:
            for value in dict.fromkeys((0, -zero)):
                words = f"padding with level {value + zero} in place of nothing"
                yield scene.weigh_reals(Cause.PADDING, words, _edged(scene, inner, pads, value * step))
        for mode, words in (
            ("edge", "the edge repeated"),
            ("reflect", "the edge mirrored"),
            ("wrap", "the other edge"),
        ):
            yield scene.weigh_reals(Cause.PADDING, f"{words} as padding", _edged(scene, inner, pads, mode))
        yield from _moved(scene, inner, pads)


def pads_of(node: ir.Node) -> tuple[int, ...] | None:
    """The pads of a window, begins first; None where they are said in words."""
    if word_attribute(node, "auto_pad", "NOTSET") != "NOTSET" or int_attribute(node, "ceil_mode", 0):
        return None
    source = node.inputs[0]
    rank = len(ints_attribute(node, "kernel_shape", ())) or (
        0 if source is None or source.shape is None else len(source.shape) - 2
    )
    return tuple(ints_attribute(node, "pads", (0,) * 2 * rank))


def _moved(scene: Scene, inner: Interior, pads: tuple[int, ...]) -> Iterator[Explanation | None]:
    half = len(pads) // 2
    shifts = [*np.eye(half, dtype=int), *-np.eye(half, dtype=int), np.ones(half, int), -np.ones(half, int)]
    tried = {(*pads[half:], *pads[:half])}
    for shift in shifts:
        tried.add((*(np.array(pads[:half]) + shift).tolist(), *(np.array(pads[half:]) - shift).tolist()))
    for other in sorted(tried - {pads}):
        if min(other) >= 0:
            words = f"pads {list(other)} in place of {list(pads)}"
            yield scene.weigh_reals(Cause.PADDING, words, _edged(scene, inner, other, 0.0))


def _divided(scene: Scene, inner: Interior) -> Explanation | None:
    """By the whole window where only what is there counts, or the reverse."""
    whole = int_attribute(inner.node, "count_include_pad", 0)
    words = "a mean divided by " + ("what lies inside the edge" if whole else "the full window at the edge")
    try:
        real = inner.run(scene.operands, count_include_pad=1 - whole)
    except QbenchError:
        return None
    return scene.weigh_reals(Cause.PADDING, words, real)


def _edged(scene: Scene, inner: Interior, pads: tuple[int, ...], value: float | str) -> Floats:
    """The result with the input padded by hand; of what ``numpy.pad`` cannot do, what there is without an edge."""
    x, half = scene.operands[inner.main[0]], len(pads) // 2
    width = [(0, 0), (0, 0), *zip(pads[:half], pads[half:], strict=True)]
    at_edge = any(pad >= size for pad, size in zip(pads, (*x.shape[2:], *x.shape[2:]), strict=True))
    if isinstance(value, str):
        padded = np.pad(x, width, "edge" if at_edge else value)  # type: ignore[call-overload]
    else:
        # An average without the edge counts what was padded by hand as it would the rest.
        padded = np.pad(x, width, constant_values=np.float32(value))
    real = inner.run({**scene.operands, inner.main[0]: padded}, pads=[0] * len(pads))
    if inner.node.op_type == "AveragePool" and not int_attribute(inner.node, "count_include_pad", 0):
        ones = np.pad(np.ones_like(x), width)
        share = inner.run({**scene.operands, inner.main[0]: ones}, pads=[0] * len(pads)) * inner.scale
        real = np.where(share > 0, real / np.maximum(share, 1e-9), real)
    return real
