"""Layouts, axes and what lies beyond the edge."""

from collections.abc import Iterator, Mapping
from itertools import product

import numpy as np
import onnx_ir as ir

from qbench.diagnosis.hypotheses.arithmetic import solved
from qbench.diagnosis.hypotheses.hypothesis import Explanation, UnitEvidence
from qbench.diagnosis.hypotheses.interior import Attribute, Floats, Interior
from qbench.errors import QbenchError
from qbench.graph import int_attribute, ints_attribute, word_attribute
from qbench.judging import Cause
from qbench.numerics import dequantize

# A convolution whose padding holds v steps of its input; R is the response to one step:
#
#     t(v) = t + v · R

_FITTED = 0.97
_PADDED = frozenset({"Conv", "AveragePool", "MaxPool"})
_POOLS = frozenset({"AveragePool", "MaxPool"})


def paddings(facts: UnitEvidence) -> Iterator[Explanation | None]:
    """Padding with another value, on other sides, or counted in a mean where it should not be.

    The operator runs without pads, on inputs that are padded here.
    """
    inner = facts.interior
    if inner is None or inner.node.op_type not in _PADDED:
        return
    pads = pads_of(inner.node)
    if pads is None or not any(pads):
        return
    operand = inner.operand(0)
    if operand is None or operand.qparams is None or np.size(operand.qparams.scale) != 1:
        return
    step, zero = float(operand.qparams.scale), int(operand.qparams.zero_point)
    lowest, highest = (
        end - zero for end in (operand.qparams.qtype.qmin, operand.qparams.qtype.qmax)
    )
    if inner.node.op_type == "AveragePool":
        yield _divided(facts, inner)
    if inner.node.op_type != "MaxPool":
        response = _edged(facts, inner, pads, step) - _edged(facts, inner, pads, 0.0)
        fitted = round(solved(facts, response))
        for value in dict.fromkeys((-zero, lowest, highest, fitted)):
            if value:
                words = f"padding with code {value + zero} in place of {zero}"
                real = facts.real + value * response
                yield facts.weigh_reals(
                    Cause.PADDING, words, real, _FITTED if value == fitted != -zero else 1.0
                )
    else:
        for value in dict.fromkeys((0, -zero)):
            words = f"padding with code {value + zero} in place of nothing"
            yield facts.weigh_reals(Cause.PADDING, words, _edged(facts, inner, pads, value * step))
    for mode, words in (
        ("edge", "the edge repeated"),
        ("reflect", "the edge mirrored"),
        ("wrap", "the other edge"),
    ):
        yield facts.weigh_reals(
            Cause.PADDING, f"{words} as padding", _edged(facts, inner, pads, mode)
        )
    yield from _moved(facts, inner, pads)


def pads_of(node: ir.Node) -> tuple[int, ...] | None:
    """The pads of a window, begins first; None where ``auto_pad`` or ``ceil_mode`` decides them."""
    if word_attribute(node, "auto_pad", "NOTSET") != "NOTSET" or int_attribute(
        node, "ceil_mode", 0
    ):
        return None
    source = node.inputs[0]
    rank = len(ints_attribute(node, "kernel_shape", ())) or (
        0 if source is None or source.shape is None else len(source.shape) - 2
    )
    return tuple(ints_attribute(node, "pads", (0,) * 2 * rank))


def _moved(
    facts: UnitEvidence, inner: Interior, pads: tuple[int, ...]
) -> Iterator[Explanation | None]:
    half = len(pads) // 2
    shifts = [
        *np.eye(half, dtype=int),
        *-np.eye(half, dtype=int),
        np.ones(half, int),
        -np.ones(half, int),
    ]
    tried = {(*pads[half:], *pads[:half])}
    for shift in shifts:
        tried.add(
            (*(np.array(pads[:half]) + shift).tolist(), *(np.array(pads[half:]) - shift).tolist())
        )
    for other in sorted(tried - {pads}):
        if min(other) >= 0:
            words = f"pads {list(other)} in place of {list(pads)}"
            yield facts.weigh_reals(Cause.PADDING, words, _edged(facts, inner, other, 0.0))


def _divided(facts: UnitEvidence, inner: Interior) -> Explanation | None:
    """A mean divided by the whole window instead of the elements inside the edge, or the
    reverse.
    """
    whole = int_attribute(inner.node, "count_include_pad", 0)
    words = "a mean divided by " + (
        "what lies inside the edge" if whole else "the full window at the edge"
    )
    try:
        real = inner.run(facts.operands, count_include_pad=1 - whole)
    except QbenchError:
        return None
    return facts.weigh_reals(Cause.PADDING, words, real)


def _edged(
    facts: UnitEvidence, inner: Interior, pads: tuple[int, ...], value: float | str
) -> Floats:
    """The result on an input that is padded here with a value, or by a mode of ``numpy.pad``."""
    x, half = facts.operands[inner.main[0]], len(pads) // 2
    width = [(0, 0), (0, 0), *zip(pads[:half], pads[half:], strict=True)]
    at_edge = any(pad >= size for pad, size in zip(pads, (*x.shape[2:], *x.shape[2:]), strict=True))
    if isinstance(value, str):
        padded = np.pad(x, width, "edge" if at_edge else value)  # type: ignore[call-overload]
    else:
        # An average without the padding counts padded elements here like others; the share below
        # corrects it.
        padded = np.pad(x, width, constant_values=np.float32(value))
    real = inner.run({**facts.operands, inner.main[0]: padded}, pads=[0] * len(pads))
    if inner.node.op_type == "AveragePool" and not int_attribute(
        inner.node, "count_include_pad", 0
    ):
        ones = np.pad(np.ones_like(x), width)
        share = (
            inner.run({**facts.operands, inner.main[0]: ones}, pads=[0] * len(pads)) * inner.scale
        )
        real = np.where(share > 0, real / np.maximum(share, 1e-9), real)
    return real


_BINARY = frozenset({"Sub", "Div", "MatMul", "Pow", "Concat", "Where"})
_COORDINATES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
_NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
_WITH_AXIS = frozenset({"Softmax", "LogSoftmax", "Hardmax", "LpNormalization"})


def result_orders(facts: UnitEvidence) -> Iterator[Explanation | None]:
    """The right values at wrong positions: a permutation is derived from equal slices, other
    orders are tried.
    """
    if facts.found.ndim < 2:
        return
    for axis in range(facts.found.ndim):
        yield _permuted(facts, axis)
    for words, codes in orders(facts.correct):
        if codes.shape == facts.found.shape:
            yield facts.weigh_codes(Cause.LAYOUT, f"the result {words}", codes)


def operand_orders(facts: UnitEvidence) -> Iterator[Explanation | None]:
    """The weights or the input in another order, exchanged operands, other dilations, another axis.

    The float operators run on each edited operand.
    """
    inner = facts.interior
    if inner is None:
        return
    places = [place for place, name in enumerate(inner.main) if name in facts.operands]
    if inner.node.op_type in _BINARY and len(places) >= 2:
        first, second = (inner.main[place] for place in places[:2])
        swapped = {**facts.operands, first: facts.operands[second], second: facts.operands[first]}
        yield _run(facts, inner, swapped, "operands exchanged")
    if facts.is_product or inner.node.op_type == "MatMul":
        for name in (inner.main[place] for place in places[:2]):
            yield from _reordered(facts, inner, name)
    if inner.node.op_type in _WITH_AXIS:
        for axis in range(facts.found.ndim):
            yield _run(facts, inner, facts.operands, f"axis {axis}", axis=axis)
    if inner.node.op_type == "Conv":
        yield from _spread(facts, inner)
    if inner.node.op_type == "Resize":
        yield from _neighbours(facts, inner)


def _reordered(facts: UnitEvidence, inner: Interior, name: str) -> Iterator[Explanation | None]:
    """The operand ``name`` in other orders; for constant weights also their integers."""
    plain = facts.operands[name]
    constant = not inner.operands[name].feed
    word = "weights" if constant else "the input"
    for words, array in orders(plain, weights=constant):
        if array.shape == plain.shape:
            yield _run(facts, inner, {**facts.operands, name: array}, f"{word} {words}")
    for words, array in _integers(inner, name):
        yield _run(facts, inner, {**facts.operands, name: array}, words)
    yield _other_sign(facts, inner, name, word)


def _other_sign(facts: UnitEvidence, inner: Interior, name: str, word: str) -> Explanation | None:
    """The bytes of the operand ``name`` read as unsigned ones where they are signed, or the
    other way.
    """
    operand = inner.operands[name]
    codes = facts.feeds[operand.feed] if operand.feed else operand.codes
    if (
        codes is None
        or operand.qparams is None
        or codes.dtype not in (np.int8, np.uint8)
        or operand.qparams.qtype.bits < 8
    ):
        return None
    is_signed = codes.dtype == np.int8
    apart = codes.view(np.uint8 if is_signed else np.int8).astype(np.int64) - codes
    if not apart.any():
        return None
    array = (facts.operands[name] + apart * operand.qparams.expanded(codes.shape)[0]).astype(
        np.float32
    )
    read = "unsigned" if is_signed else "signed"
    return _run(
        facts,
        inner,
        {**facts.operands, name: array},
        f"{word} of which the bytes are read as {read}",
    )


def _neighbours(facts: UnitEvidence, inner: Interior) -> Iterator[Explanation | None]:
    """The nearest pixel by every rule of coordinates."""
    if word_attribute(inner.node, "mode", "nearest") != "nearest":
        return
    for mode, nearest in product(_COORDINATES, _NEAREST):
        words = f"the nearest by '{mode}' and '{nearest}'"
        changed = {"coordinate_transformation_mode": mode, "nearest_mode": nearest}
        yield _run(facts, inner, facts.operands, words, **changed)


def orders(array: Floats, *, weights: bool = False) -> Iterator[tuple[str, Floats]]:
    """``array`` with axes flipped, exchanged, read as another layout, or rolled by one slice."""
    rank = array.ndim
    for axis in range(0 if weights else 1, rank):
        if array.shape[axis] > 1:
            yield f"reversed along axis {axis}", np.flip(array, axis)
            yield f"one slice on along axis {axis}", np.roll(array, 1, axis)
            yield f"one slice back along axis {axis}", np.roll(array, -1, axis)
    if rank >= 4:
        yield "with its windows turned half round", np.flip(array, (-2, -1))
    for a in range(0 if weights else 1, rank):
        for b in range(a + 1, rank):
            turned = np.swapaxes(array, a, b)
            yield f"with axes {a} and {b} exchanged", turned
            yield (
                f"with axes {a} and {b} exchanged in memory alone",
                np.ascontiguousarray(turned).reshape(array.shape),
            )
    if rank >= 3:
        last, first = np.moveaxis(array, 1, -1), np.moveaxis(array, -1, 1)
        yield (
            "with channels last read as channels first",
            np.ascontiguousarray(last).reshape(array.shape),
        )
        yield (
            "with channels first read as channels last",
            np.ascontiguousarray(first).reshape(array.shape),
        )
        for groups in (2, 3, 4, 8):
            if array.shape[1] % groups == 0 and array.shape[1] > groups:
                split = array.reshape(array.shape[0], groups, -1, *array.shape[2:])
                yield (
                    f"with its channels dealt out in {groups} groups",
                    np.swapaxes(split, 1, 2).reshape(array.shape),
                )


def _integers(inner: Interior, name: str) -> Iterator[tuple[str, Floats]]:
    """Constant weights with only their integers in another order: scales and zero points stay."""
    one = inner.operands[name]
    if one.codes is None or one.qparams is None or one.qparams.axis is None:
        return
    plain = dict(orders(dequantize(one.codes, one.qparams), weights=True))
    groups = int_attribute(inner.node, "group", 1)
    moved = dict(orders(one.codes, weights=True))
    if groups > 1 and one.codes.shape[0] % groups == 0:
        size = one.codes.shape[0] // groups
        moved |= {
            f"one group {'on' if by > 0 else 'back'}": np.roll(one.codes, by, 0)
            for by in (size, -size)
        }
    for words, codes in moved.items():
        if codes.shape == one.codes.shape:
            array = dequantize(codes, one.qparams)
            if words not in plain or not np.array_equal(array, plain[words]):
                yield f"the weights' integers {words}", array


def _permuted(facts: UnitEvidence, axis: int) -> Explanation | None:
    """Slices of the found result that are other slices of the correct one."""
    found, correct = (
        np.moveaxis(a, axis, 0).reshape(a.shape[axis], -1) for a in (facts.found, facts.correct)
    )
    places: dict[bytes, int] = {}
    for index, row in enumerate(correct):
        places.setdefault(np.ascontiguousarray(row).tobytes(), index)
    order = np.arange(len(found))
    for index, row in enumerate(found):
        if not np.array_equal(row, correct[index]):
            order[index] = places.get(np.ascontiguousarray(row).tobytes(), index)
    changed = np.flatnonzero(order != np.arange(len(order)))
    if not len(changed) or np.unique(order).size < len(order):  # copies are no permutation
        return None
    shown = ", ".join(f"{index} ← {order[index]}" for index in changed[:3]) + (
        " …" if len(changed) > 3 else ""
    )
    words = f"{len(changed)} slices of axis {axis} in another order ({shown})"
    return facts.weigh_codes(Cause.LAYOUT, words, np.take(facts.correct, order, axis))


def _spread(facts: UnitEvidence, inner: Interior) -> Iterator[Explanation | None]:
    """Other dilations, with pads that keep the size of the result."""
    pads = pads_of(inner.node)
    kernel = facts.operands[inner.main[1]].shape[2:] if inner.main[1] in facts.operands else ()
    if pads is None or not kernel or len(pads) != 2 * len(kernel):
        return
    own = tuple(ints_attribute(inner.node, "dilations", (1,) * len(kernel)))
    half = len(kernel)
    for other in (1, 2, 3, 4):
        spread = (other,) * half
        if spread == own:
            continue
        more = np.array(
            [(k - 1) * (new - old) for k, new, old in zip(kernel, spread, own, strict=True)]
        )
        for before in (more // 2, more, 0 * more):
            moved = np.array(pads) + np.concatenate([before, more - before])
            if (moved >= 0).all():
                attributes: Mapping[str, Attribute] = {
                    "dilations": list(spread),
                    "pads": moved.tolist(),
                }
                yield _run(
                    facts,
                    inner,
                    facts.operands,
                    f"dilation {other} in place of {list(own)}",
                    **attributes,
                )
    group = int_attribute(inner.node, "group", 1)
    weight = facts.operands[inner.main[1]]
    if group > 1 and weight.shape[0] % group == 0:
        reversed_groups = np.flip(weight.reshape(group, -1), 0).reshape(weight.shape)
        operands = {**facts.operands, inner.main[1]: reversed_groups}
        yield _run(facts, inner, operands, "the groups' filters in the opposite order")


def _run(
    facts: UnitEvidence,
    inner: Interior,
    operands: Mapping[str, Floats],
    words: str,
    **attributes: Attribute,
) -> Explanation | None:
    try:
        real = inner.run(operands, **attributes)
    except QbenchError:  # shapes that the operator does not take
        return None
    return facts.weigh_reals(Cause.LAYOUT, words, real)
