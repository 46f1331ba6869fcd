"""Strategies for operators that move, select, repeat or resize values, and for those that make
values of shapes.
"""

from typing import Any

import numpy as np

from operator_cases.float_ground import Array, Draw, Example, Strategy


def _ints(values: Any) -> Array:
    return np.asarray(values, np.int64)


def _known(draw: Draw, *indices: int) -> frozenset[int]:
    """Initializers in most draws, fed in the others."""
    return frozenset(indices if draw.maybe(0.7) else ())


def _data(draw: Draw, low: int = 1, high: int = 4) -> Array:
    return draw.numbers(draw.shape(low, high), draw.dtype("T"))


def transpose(draw: Draw) -> Example:
    """By a permutation, or turned round."""
    x = _data(draw, 0)
    return Example(
        [x],
        {"perm": draw.random.permutation(x.ndim).tolist()} if x.ndim and draw.maybe(0.8) else {},
    )


def reshape(draw: Draw) -> Example:
    """With zeros, a −1, or allowzero."""
    x = _data(draw)
    target = draw.random.permutation(list(x.shape)).tolist()
    if draw.maybe() and len(target) > 1:
        target = [target[0] * target[1], *target[2:]]
    attributes = {}
    if draw.maybe(0.3):
        target = [0 if i < x.ndim and n == x.shape[i] else n for i, n in enumerate(target)]
    elif draw.opset >= 14 and draw.maybe(0.3):
        attributes = {"allowzero": 1}
    if draw.maybe() and 0 not in target[1:]:
        target[-1] = -1
    return Example([x, _ints(target)], attributes, fixed=_known(draw, 1))


def flatten(draw: Draw) -> Example:
    """At any axis."""
    x = _data(draw)
    axis = draw.whole(-x.ndim if draw.since >= 11 else 0, x.ndim)
    return Example([x], {"axis": axis} if draw.maybe(0.8) else {})


def squeeze(draw: Draw) -> Example:
    """Axes as an attribute or as an input, or all of 1."""
    shape = [1 if draw.maybe(0.4) else n for n in draw.shape(1, 4)]
    ones = [i for i, n in enumerate(shape) if n == 1]
    axes = [
        a - len(shape) if draw.since >= 11 and draw.maybe(0.3) else a
        for a in ones
        if draw.maybe(0.7)
    ]
    x = draw.numbers(shape, draw.dtype("T"))
    if not axes:
        return Example([x])
    if draw.since < 13:
        return Example([x], {"axes": axes})
    return Example([x, _ints(axes)], fixed=_known(draw, 1))


def unsqueeze(draw: Draw) -> Example:
    """Axes as an attribute or as an input, in any order."""
    x = _data(draw, 0, 3)
    count = draw.whole(1, 2)
    axes = draw.random.permutation(x.ndim + count)[:count].tolist()
    axes = [a - x.ndim - count if draw.since >= 11 and draw.maybe(0.3) else a for a in axes]
    if draw.since < 13:
        return Example([x], {"axes": axes})
    return Example([x, _ints(axes)], fixed=_known(draw, 1))


def slices(draw: Draw) -> Example:
    """Steps of either sign, ends beyond the data."""
    x = _data(draw)
    axes = [a % x.ndim for a in draw.axes(x.ndim)]
    starts = [draw.whole(-x.shape[a] - 2, x.shape[a] + 1) for a in axes]
    ends = [draw.whole(-x.shape[a] - 2, x.shape[a] + 1) for a in axes]
    if draw.since < 10:
        whole = axes == list(range(len(axes))) and draw.maybe()
        return Example([x], {"starts": starts, "ends": ends} | ({} if whole else {"axes": axes}))
    kind = draw.choose(np.int64, np.int32)
    steps = [draw.choose(1, 1, 2, -1, -2, 3) for _ in axes]
    farthest = [(2**31 - 1) * (1 if step > 0 else -1) for step in steps]
    ends = [far if draw.maybe() else end for end, far in zip(ends, farthest, strict=True)]
    named = [a - x.ndim if draw.maybe(0.3) else a for a in axes]
    inputs: list[Array | None] = [x, *(np.array(v, kind) for v in (starts, ends, named, steps))]
    if draw.maybe(0.2) and min(steps) > 0:
        inputs = inputs[:4]
    elif axes == list(range(len(axes))) and draw.maybe():
        inputs[3] = None
    return Example(inputs, fixed=_known(draw, 1, 2, 3, 4))


def pad(draw: Draw) -> Example:
    """Every mode, negative pads, axes."""
    modes = ["constant", "reflect", "edge", *(["wrap"] if draw.since >= 19 else [])]
    mode, dtype = draw.choose(*modes), draw.dtype("T") if draw.since >= 11 else np.dtype(np.float32)
    x = draw.numbers(draw.wholes(draw.whole(1, 4), 2, 5), dtype)
    least = -1 if mode == "constant" or draw.maybe(0.1) else 0
    pads = [draw.whole(least, 1 if mode == "reflect" else 2) for _ in range(2 * x.ndim)]
    attributes: dict[str, Any] = {"mode": mode} if mode != "constant" or draw.maybe() else {}
    if draw.since < 11:
        if draw.maybe():
            attributes["value"] = 1.5
        return Example([x], attributes | {"pads": pads})
    inputs: list[Array | None] = [x, _ints(pads)]
    if mode == "constant" and draw.maybe(0.7):
        inputs.append(draw.numbers([], dtype))
    if draw.since >= 18 and draw.maybe(0.4):
        axes = draw.axes(x.ndim)
        inputs[1] = _ints(
            [pads[a % x.ndim] for a in axes] + [pads[a % x.ndim + x.ndim] for a in axes]
        )
        inputs = [*inputs, *[None] * (3 - len(inputs)), _ints(axes)]
    return Example(inputs, attributes, fixed=_known(draw, 1, 2, 3))


def tile(draw: Draw) -> Example:
    """Repeats from 1 to 3."""
    x = _data(draw)
    return Example([x, _ints(draw.wholes(x.ndim, 1, 3))], fixed=_known(draw, 1))


def expand(draw: Draw) -> Example:
    """Both ways, and by more dimensions."""
    whole = draw.shape(1, 4)
    x = draw.numbers(draw.smaller(whole), draw.dtype("T"))
    shape = draw.smaller(whole, len(whole)) if draw.maybe(0.3) else whole
    return Example([x, _ints(shape)], fixed=_known(draw, 1))


def concat(draw: Draw) -> Example:
    """One to four operands."""
    shape, dtype = draw.shape(1, 4), draw.dtype("T")
    axis = draw.axis(len(shape))
    sizes = draw.wholes(draw.whole(1, 4), 1, 4)
    parts = [[n if i != axis % len(shape) else size for i, n in enumerate(shape)] for size in sizes]
    return Example([draw.numbers(part, dtype) for part in parts], {"axis": axis})


def split(draw: Draw) -> Example:
    """Into equal parts, given ones, or a number of them."""
    shape = draw.shape(1, 4)
    axis, parts = draw.axis(len(shape)), draw.wholes(draw.whole(1, 4), 1, 3)
    attributes: dict[str, Any] = {"axis": axis} if draw.maybe(0.8) else {}
    at = axis % len(shape) if attributes else 0
    given = draw.maybe()
    shape[at] = sum(parts) if given else len(parts) * draw.whole(1, 3)
    inputs = [draw.numbers(shape, draw.dtype("T"))]
    if given and draw.since < 13:
        attributes["split"] = parts
    elif given:
        inputs.append(_ints(parts))
    elif draw.since >= 18:
        attributes["num_outputs"] = len(parts)
        if draw.maybe() and len(parts) > 1:  # the last part is smaller
            count = len(parts)
            each = draw.whole(2, 4)
            shape[at] = each * count - draw.whole(0, min(each - 1, 1))
            inputs = [draw.numbers(shape, draw.dtype("T"))]
    return Example(inputs, attributes, len(parts), fixed=_known(draw, 1))


def gather(draw: Draw) -> Example:
    """Indices of any rank, negative ones too."""
    x = _data(draw)
    axis = draw.axis(x.ndim)
    size = x.shape[axis % x.ndim]
    low = -size if draw.since >= 11 else 0
    indices = draw.random.integers(low, size, draw.shape(0, 3)).astype(
        draw.choose(np.int64, np.int32)
    )
    return Example(
        [x, indices], {"axis": axis} if axis % x.ndim or draw.maybe() else {}, fixed=_known(draw, 1)
    )


def gather_elements(draw: Draw) -> Example:
    """Indices of the data's rank."""
    x = _data(draw)
    axis = draw.axis(x.ndim)
    size = x.shape[axis % x.ndim]
    shape = [
        draw.whole(1, n) if i != axis % x.ndim else draw.whole(1, 5) for i, n in enumerate(x.shape)
    ]
    indices = draw.random.integers(-size, size, shape).astype(draw.choose(np.int64, np.int32))
    return Example(
        [x, indices], {"axis": axis} if axis % x.ndim or draw.maybe() else {}, fixed=_known(draw, 1)
    )


def gather_nd(draw: Draw) -> Example:
    """Tuples of indices, with batch dimensions from version 12 on."""
    x = _data(draw, 2)
    batch = draw.whole(0, 1) if draw.since >= 12 else 0
    depth = draw.whole(1, x.ndim - batch)
    shape = [*x.shape[:batch], *draw.shape(1, 2), depth]
    indices = np.stack(
        [
            draw.random.integers(-x.shape[batch + d], x.shape[batch + d], shape[:-1])
            for d in range(depth)
        ],
        axis=-1,
    )
    return Example(
        [x, _ints(indices)],
        {"batch_dims": batch} if batch or draw.maybe(0.3) else {},
        fixed=_known(draw, 1),
    )


def scatter_elements(draw: Draw) -> Example:
    """Updates at indices that differ unless they are reduced."""
    x = _data(draw)
    axis = draw.axis(x.ndim) if draw.operator != "Scatter" else draw.whole(0, x.ndim - 1)
    at = axis % x.ndim
    shape = [draw.whole(1, n) for n in x.shape]
    order = np.argsort(draw.random.random([*shape[:at], x.shape[at], *shape[at + 1 :]]), axis=at)
    indices = np.take(order, np.arange(shape[at]), axis=at)
    attributes: dict[str, Any] = {"axis": axis} if at or draw.maybe() else {}
    kinds = ["none", "add", "mul", *(["max", "min"] if draw.since >= 18 else [])]
    if draw.since >= 16 and draw.maybe(0.7):
        attributes["reduction"] = draw.choose(*kinds)
        if attributes["reduction"] != "none":
            indices = draw.random.integers(-x.shape[at], x.shape[at], shape)
    if draw.maybe(0.3) and draw.since >= 11:
        indices = np.where(indices >= 0, indices - x.shape[at], indices)
    indices = indices.astype(draw.choose(np.int64, np.int32))
    return Example([x, indices, draw.numbers(shape, x.dtype)], attributes, slack=4)


def scatter_nd(draw: Draw) -> Example:
    """Slices put at tuples of indices."""
    x = _data(draw)
    depth = draw.whole(1, x.ndim)
    places = int(np.prod(x.shape[:depth]))
    count = draw.whole(1, min(places, 4))
    flat = draw.random.permutation(places)[:count]
    attributes: dict[str, Any] = {}
    kinds = ["none", "add", "mul", *(["max", "min"] if draw.since >= 18 else [])]
    if draw.since >= 16 and draw.maybe(0.7):
        attributes["reduction"] = draw.choose(*kinds)
        if attributes["reduction"] != "none":
            flat = draw.random.integers(0, places, count)
    indices = np.stack(np.unravel_index(flat, x.shape[:depth]), axis=-1)
    if draw.maybe(0.3):
        indices = indices - np.array(x.shape[:depth])
    return Example(
        [x, _ints(indices), draw.numbers([count, *x.shape[depth:]], x.dtype)], attributes, slack=4
    )


def tensor_scatter(draw: Draw) -> Example:
    """A part of a cache that is written anew."""
    batch, length, new = draw.whole(1, 3), draw.whole(4, 7), draw.whole(1, 3)
    is_deep = draw.maybe()
    shape = [batch, *([draw.whole(1, 3)] if is_deep else []), length, draw.whole(1, 4)]
    axis = len(shape) - 2
    attributes: dict[str, Any] = {"axis": axis - len(shape)} if draw.maybe() else {}
    if draw.maybe():
        attributes["mode"] = draw.choose("linear", "circular")
    x = draw.numbers(shape, draw.dtype("T"))
    update = draw.numbers([new if i == axis else n for i, n in enumerate(shape)], x.dtype)
    high = length if attributes.get("mode") == "circular" else length - new + 1
    inputs = [x, update]
    if draw.maybe(0.7):
        inputs.append(draw.random.integers(0, high, batch).astype(np.int64))
    return Example(inputs, attributes)


def depth_to_space(draw: Draw) -> Example:
    """Blocks of 1 to 3, both orders."""
    size = draw.whole(1, 3)
    attributes: dict[str, Any] = {"blocksize": size}
    if draw.since >= 11 and draw.maybe(0.7):
        attributes["mode"] = draw.choose("DCR", "CRD")
    shape = [draw.whole(1, 3), size * size * draw.whole(1, 3), *draw.wholes(2, 1, 4)]
    return Example([draw.numbers(shape, draw.dtype("T"))], attributes)


def space_to_depth(draw: Draw) -> Example:
    """Blocks of 1 to 3."""
    size = draw.whole(1, 3)
    shape = [*draw.wholes(2, 1, 3), *(size * n for n in draw.wholes(2, 1, 3))]
    return Example([draw.numbers(shape, draw.dtype("T"))], {"blocksize": size})


def upsample(draw: Draw) -> Example:
    """Nearest or linear, by whole factors."""
    mode = draw.choose("nearest", "linear")
    shape = draw.wholes(4, 1, 4)
    scales = [1.0, 1.0, *(float(draw.choose(1, 2, 3)) for _ in range(2))]
    x = draw.numbers(shape, draw.dtype("T") if mode == "nearest" else np.float32)
    if draw.since < 9:
        return Example([x], {"mode": mode, "scales": scales})
    return Example([x, np.array(scales, np.float32)], {"mode": mode}, fixed=frozenset({1}))


def resize(draw: Draw) -> Example:
    """Every mode, by scales or sizes."""
    mode = draw.choose(
        "nearest", "nearest", "linear", "linear", *(["cubic"] if draw.since >= 11 else [])
    )
    attributes: dict[str, Any] = {"mode": mode}
    rank = draw.choose(3, 4, 4, 4) if mode == "cubic" or draw.maybe(0.8) else draw.whole(1, 3)
    spatial = 2 if rank == 4 else 1
    dtype = (
        draw.dtype("T" if draw.since < 11 else "T1")
        if mode == "nearest" or draw.maybe(0.1)
        else np.dtype("float32")
    )
    x = draw.numbers(
        [*draw.wholes(rank - spatial, 1, 3), *draw.wholes(spatial, 1 if draw.maybe(0.2) else 2, 6)],
        dtype,
    )
    # The nearest of places that only rounding separates: the evaluator computes them in float64,
    # engines in float32.
    others = (1.0, 2.0) if mode == "nearest" else (0.7, 2.3)
    factors = [draw.choose(1.0, 2.0, 3.0, 0.5, 1.5, *others) for _ in range(spatial)]
    factors = [
        f if int(n * f) >= 1 else 1.0 for f, n in zip(factors, x.shape[-spatial:], strict=True)
    ]
    scales = np.array([1.0] * (rank - spatial) + factors, np.float32)
    if draw.since < 10 or (draw.since == 10):
        return Example([x, scales], attributes, fixed=frozenset({1}))
    modes = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]
    modes += ["half_pixel_symmetric"] if draw.since >= 19 else []
    if draw.maybe(0.8):
        attributes["coordinate_transformation_mode"] = draw.choose(
            *modes, *modes, "tf_crop_and_resize"
        )
    if mode == "nearest" and draw.maybe(0.8):
        attributes["nearest_mode"] = draw.choose(
            "round_prefer_floor", "round_prefer_ceil", "floor", "ceil"
        )
    if mode == "cubic":
        if draw.maybe(0.4):
            attributes["cubic_coeff_a"] = draw.choose(-0.5, -0.75)
        if draw.maybe(0.3):
            attributes["exclude_outside"] = draw.whole(0, 1)
    if draw.since >= 18 and mode != "nearest" and draw.maybe(0.3):
        attributes["antialias"] = 1
    roi = None
    if attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        starts = (draw.random.random(rank) * 0.4).astype(np.float32)
        starts[: rank - spatial] = 0
        ends = (0.6 + draw.random.random(rank) * 0.4).astype(np.float32)
        ends[: rank - spatial] = 1
        roi = np.concatenate([starts, ends])
        attributes["extrapolation_value"] = 0.5
    elif draw.since < 13:
        roi = np.empty(0, np.float32)
    if draw.maybe(0.6):
        return _axes_of(
            draw, Example([x, roi, scales], attributes, fixed=frozenset({1, 2})), rank, spatial
        )
    sizes = _ints(
        [
            *x.shape[: rank - spatial],
            *(max(1, int(n * f)) for n, f in zip(x.shape[-spatial:], factors, strict=True)),
        ]
    )
    none = np.empty(0, np.float32) if draw.since < 13 else None
    if draw.since >= 18 and draw.maybe(0.3):
        attributes["keep_aspect_ratio_policy"] = draw.choose("stretch", "not_larger", "not_smaller")
    return _axes_of(
        draw, Example([x, roi, none, sizes], attributes, fixed=frozenset({1, 2, 3})), rank, spatial
    )


def _axes_of(draw: Draw, whole: Example, rank: int, spatial: int) -> Example:
    """The same with an attribute ``axes`` that names the spatial ones."""
    policy = whole.attributes.get("keep_aspect_ratio_policy", "stretch")
    if draw.since < 18 or (policy == "stretch" and draw.maybe(0.7)):
        return whole
    axes = list(range(rank - spatial, rank))
    inputs = list(whole.inputs)
    if inputs[1] is not None:
        roi = inputs[1]
        inputs[1] = np.concatenate([roi[axes], roi[[a + rank for a in axes]]])
    inputs[2:] = [None if a is None else a[rank - spatial :] for a in inputs[2:]]
    return Example(inputs, {**whole.attributes, "axes": axes}, fixed=whole.fixed)


def grid_sample(draw: Draw) -> Example:
    """Every mode, inside and outside of the picture."""
    names = (
        ["nearest", "linear", "cubic"] if draw.since >= 20 else ["nearest", "bilinear", "bicubic"]
    )
    rank = draw.choose(2, 2, 3) if draw.since >= 20 else 2
    attributes: dict[str, Any] = {}
    if draw.maybe(0.9):
        attributes["mode"] = draw.choose(*names) if rank == 2 else draw.choose(*names[:2])
    if draw.maybe(0.8):
        attributes["padding_mode"] = draw.choose("zeros", "border", "reflection")
    if draw.maybe(0.7):
        attributes["align_corners"] = draw.whole(0, 1)
    x = draw.numbers([*draw.wholes(2, 1, 3), *draw.wholes(rank, 2, 6)])
    grid = draw.numbers([x.shape[0], *draw.wholes(rank, 1, 5), rank], low=-1.4, high=1.4)
    return Example([x, grid], attributes, slack=8)


def affine_grid(draw: Draw) -> Example:
    """Two or three dimensions of space."""
    rank, batch = draw.choose(2, 3), draw.whole(1, 3)
    size = _ints([batch, draw.whole(1, 3), *draw.wholes(rank, 1, 5)])
    attributes = {"align_corners": draw.whole(0, 1)} if draw.maybe(0.8) else {}
    return Example([draw.numbers([batch, rank, rank + 1]), size], attributes, slack=4)


def trilu(draw: Draw) -> Example:
    """Either half, any diagonal, batches."""
    x = draw.numbers(draw.shape(2, 4), draw.dtype("T"))
    attributes = {"upper": draw.whole(0, 1)} if draw.maybe(0.8) else {}
    return Example(
        [x, *([_ints(draw.whole(-4, 4))] if draw.maybe(0.7) else [])],
        attributes,
        fixed=_known(draw, 1),
    )


def compress(draw: Draw) -> Example:
    """Along an axis or of the flattened data."""
    x = _data(draw)
    axis = draw.axis(x.ndim) if draw.maybe() else None
    size = x.size if axis is None else x.shape[axis % x.ndim]
    condition = draw.numbers([draw.whole(1, size)], bool)
    return Example([x, condition], {} if axis is None else {"axis": axis})


def one_hot(draw: Draw) -> Example:
    """Indices of any rank, negative and outside ones."""
    depth = draw.whole(2, 6)
    indices = draw.random.integers(
        -depth - 1 if draw.since >= 11 else 0, depth + 1, draw.shape(1, 3)
    )
    indices = indices.astype(draw.choose(np.int64, np.int32, np.float32))
    attributes = {"axis": draw.axis(indices.ndim + 1)} if draw.maybe(0.8) else {}
    values = draw.numbers([2], draw.dtype("T3"))
    return Example([indices, _ints(depth), values], attributes, fixed=_known(draw, 1))


def arange(draw: Draw) -> Example:
    """Up or down, by any step."""
    dtype = draw.dtype("T")
    start, count = draw.whole(-3, 3), draw.whole(0, 8)
    step = (
        draw.choose(1, 2, -1, -2)
        if dtype.kind in "i" or draw.maybe()
        else draw.choose(0.5, -0.3, 1.7)
    )
    return Example([np.array(v, dtype) for v in (start, start + step * count, step)])


def eye(draw: Draw) -> Example:
    """Like a matrix, of its type or another."""
    from onnx import TensorProto

    x = draw.numbers(draw.wholes(2, 1, 5), draw.dtype("T1"))
    attributes = {
        k: v for k, v in (("k", draw.whole(-4, 4)), ("dtype", TensorProto.FLOAT)) if draw.maybe(0.7)
    }
    return Example([x], attributes)


def constant_of_shape(draw: Draw) -> Example:
    """Zeros, or a value of any type."""
    from onnx import numpy_helper

    value = numpy_helper.from_array(draw.numbers([1], draw.dtype("T2")), "value")
    shape = _ints(draw.shape(1, 3))
    return Example([shape], {"value": value} if draw.maybe(0.8) else {}, fixed=_known(draw, 0))


def shape_of(draw: Draw) -> Example:
    """All of it, or a part."""
    x = draw.numbers(draw.shape(0), draw.dtype("T"))
    attributes = {}
    if draw.since >= 15:
        attributes = {k: draw.whole(-5, 5) for k in ("start", "end") if draw.maybe()}
    return Example([x], attributes)


def non_zero(draw: Draw) -> Example:
    """Where values are not 0."""
    x = draw.numbers(draw.shape(1), draw.dtype("T"))
    return Example([np.where(draw.random.random(x.shape) < 0.5, np.zeros_like(x), x)])


def unique(draw: Draw) -> Example:
    """Sorted or not, along an axis or not, with all four results."""
    x = draw.random.integers(0, 4, draw.shape(1, 3, 4)).astype(draw.choose(np.float32, np.int64))
    attributes: dict[str, Any] = {"axis": draw.axis(x.ndim)} if draw.maybe(0.4) else {}
    if draw.maybe():
        attributes["sorted"] = draw.whole(0, 1)
    return Example([x], attributes, draw.choose(1, 4))


def reverse_sequence(draw: Draw) -> Example:
    """Either order of time and batch."""
    x = draw.numbers(draw.shape(2, 4), draw.dtype("T"))
    time = draw.whole(0, 1)
    lengths = draw.random.integers(1, x.shape[time] + 1, x.shape[1 - time]).astype(np.int64)
    attributes = {"time_axis": time, "batch_axis": 1 - time} if time or draw.maybe() else {}
    return Example([x, lengths], attributes)


def center_crop_pad(draw: Draw) -> Example:
    """Larger, smaller, some axes."""
    x = _data(draw)
    axes = draw.axes(x.ndim) if draw.maybe() else None
    target = draw.wholes(x.ndim if axes is None else len(axes), 1, 7)
    return Example(
        [x, _ints(target)], {} if axes is None else {"axes": axes}, fixed=_known(draw, 1)
    )


def top_k(draw: Draw) -> Example:
    """The largest or least; ties go to the lower index."""
    x = draw.numbers(draw.shape(), draw.dtype("T"))
    axis = draw.axis(x.ndim)
    count = draw.whole(1, x.shape[axis % x.ndim])
    attributes: dict[str, Any] = (
        {"axis": axis} if axis % x.ndim != x.ndim - 1 or draw.maybe() else {}
    )
    if draw.since < 10:
        return Example([x], attributes | {"k": count}, 2)
    if draw.since >= 11 and draw.maybe(0.7):
        attributes["largest"] = draw.whole(0, 1)
    if draw.since >= 11 and draw.maybe(0.3):
        attributes["sorted"] = 1
    return Example([x, _ints([count])], attributes, 2, fixed=_known(draw, 1))


def suppression(draw: Draw) -> Example:
    """Boxes in either form."""
    batch, count, classes = draw.whole(1, 3), draw.whole(1, 6), draw.whole(1, 3)
    low = draw.random.random((batch, count, 2)).astype(np.float32)
    boxes = np.concatenate(
        [low, low + draw.random.random((batch, count, 2)).astype(np.float32)], axis=2
    )
    scores = draw.random.random((batch, classes, count)).astype(np.float32)
    limits = [_ints([draw.whole(1, 5)]), np.array([0.4], np.float32), np.array([0.3], np.float32)]
    attributes = {"center_point_box": draw.whole(0, 1)} if draw.maybe() else {}
    return Example([boxes, scores, *limits[: draw.whole(1, 3)]], attributes)


STRATEGIES: dict[str, Strategy] = {
    "AffineGrid": affine_grid,
    "CenterCropPad": center_crop_pad,
    "Compress": compress,
    "Concat": concat,
    "ConstantOfShape": constant_of_shape,
    "DepthToSpace": depth_to_space,
    "Expand": expand,
    "EyeLike": eye,
    "Flatten": flatten,
    "Gather": gather,
    "GatherElements": gather_elements,
    "GatherND": gather_nd,
    "GridSample": grid_sample,
    "NonMaxSuppression": suppression,
    "NonZero": non_zero,
    "OneHot": one_hot,
    "Pad": pad,
    "Range": arange,
    "Reshape": reshape,
    "Resize": resize,
    "ReverseSequence": reverse_sequence,
    "Scatter": scatter_elements,
    "ScatterElements": scatter_elements,
    "ScatterND": scatter_nd,
    "Shape": shape_of,
    "Slice": slices,
    "SpaceToDepth": space_to_depth,
    "Split": split,
    "Squeeze": squeeze,
    "TensorScatter": tensor_scatter,
    "Tile": tile,
    "TopK": top_k,
    "Transpose": transpose,
    "Trilu": trilu,
    "Unique": unique,
    "Unsqueeze": unsqueeze,
    "Upsample": upsample,
}
