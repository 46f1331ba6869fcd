"""Operators that select, move or resize, where ONNX's evaluator is wrong or refuses what ONNX
allows.
"""

from typing import Any

import numpy as np

from qbench.interpreter.arrays import Array
from qbench.interpreter.float_kernels.call import Call, Inputs, Results, given, needed


def gather_elements(call: Call, inputs: Inputs) -> Results:
    """GatherElements whose indices may be fewer than the data in every dimension."""
    x, indices = needed(inputs, 0), needed(inputs, 1)
    axis = int(call.attributes["axis"]) % x.ndim
    part = tuple(slice(None) if i == axis else slice(n) for i, n in enumerate(indices.shape))
    return (
        np.take_along_axis(x[part], np.where(indices < 0, indices + x.shape[axis], indices), axis),
    )


def scatter(call: Call, inputs: Inputs) -> Results:
    """Scatter of version 9: ScatterElements without negative indices."""
    x, indices, updates = (needed(inputs, index) for index in range(3))
    axis = int(call.attributes["axis"]) % x.ndim
    places: list[Array] = list(np.indices(indices.shape))
    places[axis] = indices
    found = x.copy()
    found[tuple(places)] = updates
    return (found,)


def slices(call: Call, inputs: Inputs) -> Results:
    """Slice: starts and ends clamped as ONNX says; with a negative step an end before the first
    element is −1.
    """
    x = needed(inputs, 0)
    if call.version < 10:
        starts, ends = (np.asarray(call.attributes[name]) for name in ("starts", "ends"))
        axes, steps = call.attributes["axes"], None
    else:
        starts = needed(inputs, 1)
        ends = needed(inputs, 2)
        axes = given(inputs, 3)
        steps = given(inputs, 4)
    axes = range(len(starts)) if axes is None or not len(axes) else axes
    cuts = [slice(None)] * x.ndim
    for index, axis in enumerate(axes):
        step = 1 if steps is None else int(steps[index])
        cuts[int(axis)] = _cut(int(starts[index]), int(ends[index]), step, x.shape[int(axis)])
    return (x[tuple(cuts)],)


def _cut(start: int, end: int, step: int, size: int) -> slice:
    if step < 0 and end >= 2**31 - 1:
        raise ValueError(
            "Slice backwards to an end that is the last element: engines differ in what it means"
        )
    start, end = (place + size if place < 0 else place for place in (start, end))
    if step > 0:
        return slice(min(max(start, 0), size), min(max(end, 0), size), step)
    first, last = min(max(start, 0), size - 1), min(max(end, -1), size - 1)
    return slice(first, None if last < 0 else last, step)


def shape_of(call: Call, inputs: Inputs) -> Results:
    """Shape, or a part of it whose ends are clamped to the rank."""
    start, end = call.attributes.get("start"), call.attributes.get("end")
    return (np.array(needed(inputs, 0).shape[start:end], np.int64),)


def squeeze(call: Call, inputs: Inputs) -> Results:
    """Squeeze of any axes at once; the evaluator takes them one after another."""
    x = needed(inputs, 0)
    axes = _axes(call, inputs)
    if axes is None:
        return (x.squeeze(),)
    return (x.squeeze(tuple(int(axis) for axis in axes)),)


def unsqueeze(call: Call, inputs: Inputs) -> Results:
    """Unsqueeze: all axes are those of the result, in whatever order they come."""
    axes = _axes(call, inputs)
    if axes is None:
        raise ValueError("Unsqueeze without axes")
    return (np.expand_dims(needed(inputs, 0), tuple(int(axis) for axis in axes)),)


def _axes(call: Call, inputs: Inputs) -> Any:  # noqa: ANN401 - a list or an array
    return call.attributes.get("axes") if call.version < 13 else given(inputs, 1)


def pad(call: Call, inputs: Inputs) -> Results:
    """Pad with a constant by negative pads too, which crop first; other modes as the evaluator
    does them.
    """
    x = needed(inputs, 0)
    if call.version < 11:
        pads, axes = np.asarray(call.attributes["pads"]), None
    else:
        pads, axes = needed(inputs, 1), given(inputs, 3)
    if (pads >= 0).all():
        return call.evaluated(*inputs, **call.attributes)
    if call.attributes["mode"] != "constant":
        raise ValueError(f"Pad by negative pads in the mode '{call.attributes['mode']}'")
    value = call.attributes["value"] if call.version < 11 else given(inputs, 2)
    named = range(x.ndim) if axes is None else [int(axis) % x.ndim for axis in axes]
    cut, width = [slice(None)] * x.ndim, [(0, 0)] * x.ndim
    for axis, before, behind in zip(named, pads[: len(named)], pads[len(named) :], strict=True):
        cut[axis] = slice(max(-before, 0), max(x.shape[axis] + min(behind, 0), 0))
        width[axis] = (max(before, 0), max(behind, 0))
    fill = 0 if value is None else np.asarray(value).astype(x.dtype)
    return (np.pad(x[tuple(cut)], width, constant_values=fill),)


def unique(call: Call, inputs: Inputs) -> Results:
    """Unique: values, first places, inverse and counts, in ascending order or in that of the
    first occurrence.
    """
    x, axis = needed(inputs, 0), call.attributes["axis"]
    values, first, inverse, counts = np.unique(
        x,
        return_index=True,
        return_inverse=True,
        return_counts=True,
        axis=None if axis is None else int(axis),
    )
    inverse = inverse.reshape(-1)
    if not call.attributes["sorted"]:
        order = np.argsort(first)
        values = np.take(values, order, axis=0 if axis is None else int(axis))
        inverse = np.argsort(order)[inverse]
        first, counts = first[order], counts[order]
    results = (values, *(array.astype(np.int64) for array in (first, inverse, counts)))
    return results[: max(call.outputs, 1)]


def upsample(call: Call, inputs: Inputs) -> Results:
    """Upsample to the nearest, ⌊o / s⌋ along each axis."""
    x = needed(inputs, 0)
    scales = call.attributes["scales"] if call.version < 9 else needed(inputs, 1)
    return (_nearest(x, [np.float32(scale) for scale in scales]),)


def _nearest(x: Array, scales: list[np.float32]) -> Array:
    for axis, scale in enumerate(scales):
        if scale != 1:
            places = np.arange(int(np.floor(np.float32(x.shape[axis]) * scale)), dtype=np.float32)
            picked = (np.floor if scale > 1 else np.ceil)(places / scale).astype(np.int64)
            x = np.take(x, np.minimum(picked, x.shape[axis] - 1), axis=axis)
    return x


def resize(call: Call, inputs: Inputs) -> Results:
    """Resize of the evaluator, with three of its ways put right.

    Where the result has one element along an axis, ``pytorch_half_pixel`` reads the first.
    ``align_corners`` and ``tf_crop_and_resize`` stretch to the whole number of elements that there
    are, not to scale · n. Version 10 is ``asymmetric`` and takes the element below where it
    enlarges, that above where it reduces.
    """
    x = needed(inputs, 0)
    if call.version == 10:
        return (_resized_by_version_10(call, x, needed(inputs, 1)),)
    roi, scales, sizes = (_filled(given(inputs, index)) for index in (1, 2, 3))
    way = str(call.attributes["coordinate_transformation_mode"])
    axes = call.attributes.get("axes")
    named = list(range(x.ndim)) if axes is None else [int(axis) % x.ndim for axis in axes]
    if scales is not None and way in ("align_corners", "tf_crop_and_resize", "pytorch_half_pixel"):
        old = np.array([x.shape[axis] for axis in named])
        new = np.floor(old.astype(np.float32) * scales.astype(np.float32)).astype(np.int64)
        if way == "pytorch_half_pixel":
            x, scales = _first_of(x, named, new, scales)
        else:
            scales = new / old
    elif sizes is not None and way == "pytorch_half_pixel":
        x, sizes = _first_of(x, named, sizes, sizes)
    attributes = {"keep_aspect_ratio_policy": "stretch", **call.attributes}
    if axes is not None:
        attributes["axes"] = named
    return call.evaluated(x, roi, scales, sizes, **attributes)


def _resized_by_version_10(call: Call, x: Array, scales: Array) -> Array:
    if call.attributes["mode"] == "nearest":
        return _nearest(x, [np.float32(scale) for scale in scales])
    attributes = {
        "keep_aspect_ratio_policy": "stretch",
        "coordinate_transformation_mode": "asymmetric",
    }
    return call.evaluated(x, None, scales, None, mode=call.attributes["mode"], **attributes)[0]


def _filled(array: Array | None) -> Array | None:
    return None if array is None or not array.size else array


def _first_of(x: Array, axes: list[int], new: Array, factors: Array) -> tuple[Array, Array]:
    """``x`` cut to its first element along each of ``axes`` that ends with one, where the
    factor is then 1.
    """
    factors = factors.copy()
    for index, axis in enumerate(axes):
        if new[index] == 1:
            x, factors[index] = np.take(x, [0], axis=axis), 1
    return x, factors


def grid_sample(call: Call, inputs: Inputs) -> Results:
    """GridSample; before version 20 its modes have the names bilinear and bicubic."""
    mode = str(call.attributes["mode"])
    names = {"bilinear": "linear", "bicubic": "cubic"}
    return call.evaluated(*inputs, **{**call.attributes, "mode": names.get(mode, mode)})


def affine_grid(call: Call, inputs: Inputs) -> Results:
    """AffineGrid of the evaluator, unless ``align_corners`` has to place the only element of an
    axis.
    """
    if call.attributes["align_corners"] and 1 in needed(inputs, 1)[2:].tolist():
        raise ValueError(
            "AffineGrid with align_corners and one element along an axis: engines put it somewhere "
            "else"
        )
    return call.evaluated(*inputs, **call.attributes)


def non_max_suppression(call: Call, inputs: Inputs) -> Results:
    """NonMaxSuppression of the evaluator; without a number of boxes there are none, without a
    threshold it is 0.
    """
    boxes, scores = needed(inputs, 0), needed(inputs, 1)
    count, overlap, least = (given(inputs, index) for index in (2, 3, 4))
    if count is None or not count.size or count.reshape(-1)[0] <= 0:
        return (np.empty((0, 3), np.int64),)
    overlap = np.zeros(1, np.float32) if overlap is None else overlap.reshape(-1)
    least = None if least is None else least.reshape(-1)
    return call.evaluated(boxes, scores, count.reshape(-1), overlap, least, **call.attributes)


def roi_align(call: Call, inputs: Inputs) -> Results:
    """RoiAlign; before version 16 without half a pixel's shift."""
    shift = {} if call.version >= 16 else {"coordinate_transformation_mode": "output_half_pixel"}
    return call.evaluated(*inputs, **{**call.attributes, **shift})
