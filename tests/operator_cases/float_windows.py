"""Strategies for operators that slide a window, and for normalizations."""

from typing import Any

import numpy as np

from operator_cases.float_ground import Array, Draw, Example, Strategy

_COUNTED = ("ConvInteger", "MaxPool", "QLinearConv")
"""Kernels of levels in the interpreter, whose SAME padding other tests judge where engines are
at odds about it.
"""


def _geometry(
    draw: Draw, rank: int, *, dilated: bool = True
) -> tuple[list[int], dict[str, Any], list[int]]:
    """Kernel, attributes and the spatial size that they need at least."""
    kernel = draw.wholes(rank, 1, 3)
    attributes: dict[str, Any] = {}
    if draw.maybe(0.7):
        attributes["strides"] = draw.wholes(rank, 1, 3)
    dilations = draw.wholes(rank, 1, 2) if dilated and draw.maybe(0.3) else [1] * rank
    if dilations != [1] * rank:
        attributes["dilations"] = dilations
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    padding = draw.choose("none", "pads", "pads", "SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET")
    if padding == "pads":
        attributes["pads"] = [draw.whole(0, max(0, k - 1)) for k in kernel * 2]
    elif padding != "none":
        attributes["auto_pad"] = padding
    if padding.startswith("SAME") and draw.operator in _COUNTED:
        attributes = {"auto_pad": padding, "strides": [draw.whole(1, size + 1) for size in kernel]}
        reach = kernel
    return kernel, attributes, reach


def _spatial(draw: Draw, reach: list[int]) -> list[int]:
    return [size + draw.whole(0, 5) for size in reach]


def conv(draw: Draw) -> Example:
    """Groups, dilations, padding of every kind, with a bias and without."""
    rank = draw.choose(1, 2, 2, 2, 3)
    kernel, attributes, reach = _geometry(draw, rank)
    group, dtype = draw.choose(1, 1, 2, 3), draw.dtype("T", only="f")
    channels, filters = group * draw.whole(1, 3), group * draw.whole(1, 3)
    x = draw.numbers([draw.whole(1, 3), channels, *_spatial(draw, reach)], dtype)
    w = draw.numbers([filters, channels // group, *kernel], dtype)
    if draw.maybe():
        attributes["kernel_shape"] = kernel
    if group > 1 or draw.maybe(0.2):
        attributes["group"] = group
    inputs = [x, w, *([draw.numbers([filters], dtype)] if draw.maybe() else [])]
    return Example(inputs, attributes, fixed=frozenset({1, 2} if draw.maybe() else ()), terms=True)


def conv_transpose(draw: Draw) -> Example:
    """The same turned round, with output_padding or output_shape."""
    rank = draw.choose(1, 2, 2, 2, 3)
    kernel, attributes, _ = _geometry(draw, rank)
    group, dtype = draw.choose(1, 1, 2, 3), draw.dtype("T", only="f")
    channels, filters = group * draw.whole(1, 3), draw.whole(1, 3)
    strides = attributes.get("strides", [1] * rank)
    x = draw.numbers([draw.whole(1, 3), channels, *draw.wholes(rank, 2, 5)], dtype)
    w = draw.numbers([channels, filters, *kernel], dtype)
    if draw.maybe():
        attributes["kernel_shape"] = kernel
    if group > 1:
        attributes["group"] = group
    if draw.maybe(0.3):
        attributes["output_padding"] = [draw.whole(0, s - 1) for s in strides]
    if draw.maybe(0.15) and "pads" not in attributes:
        attributes["output_shape"] = [
            n * s + draw.whole(0, 1) for n, s in zip(x.shape[2:], strides, strict=True)
        ]
    inputs = [x, w, *([draw.numbers([filters * group], dtype)] if draw.maybe() else [])]
    return Example(inputs, attributes, fixed=frozenset({1, 2} if draw.maybe() else ()), terms=True)


def deform_conv(draw: Draw) -> Example:
    """Offsets, a mask, groups of both kinds."""
    kernel, attributes, reach = _geometry(draw, 2)
    attributes.pop("auto_pad", None)
    group, offset_group = draw.choose(1, 1, 2), draw.choose(1, 1, 2)
    channels = 2 * draw.whole(1, 2)
    filters = group * draw.whole(1, 2)
    batch, spatial = draw.whole(1, 2), _spatial(draw, reach)
    strides, pads = attributes.get("strides", [1, 1]), attributes.get("pads", [0] * 4)
    out = [(n + pads[i] + pads[i + 2] - reach[i]) // strides[i] + 1 for i, n in enumerate(spatial)]
    attributes |= {"group": group, "offset_group": offset_group}
    taps = kernel[0] * kernel[1]
    x = draw.numbers([batch, channels, *spatial])
    w = draw.numbers([filters, channels // group, *kernel])
    offset = draw.numbers([batch, offset_group * taps * 2, *out], low=-1, high=1)
    bias = draw.numbers([filters]) if draw.maybe() else None
    mask = draw.numbers([batch, offset_group * taps, *out], low=0, high=1) if draw.maybe() else None
    inputs: list[Array | None] = [x, w, offset, bias, mask]
    while inputs[-1] is None:
        inputs.pop()
    return Example(inputs, attributes, slack=8)


def pool(draw: Draw) -> Example:
    """Average, maximum (with indices) and p-norm."""
    rank, name = draw.choose(1, 2, 2, 2, 3), draw.operator
    dilated = (name == "MaxPool" and draw.since >= 10) or (
        name == "AveragePool" and draw.since >= 19
    )
    kernel, attributes, reach = _geometry(
        draw, rank, dilated=dilated or (name == "LpPool" and draw.since >= 18)
    )
    attributes["kernel_shape"] = kernel
    has_ceil = draw.since >= (18 if name == "LpPool" else 10)
    if has_ceil and draw.maybe(0.4):
        attributes["ceil_mode"] = draw.whole(0, 1)
    if name == "AveragePool" and draw.maybe():
        attributes["count_include_pad"] = draw.whole(0, 1)
    if name == "LpPool" and draw.maybe():
        attributes["p"] = draw.whole(1, 3)
    outputs = 1
    dtype = draw.dtype("T")
    if name == "MaxPool" and draw.since >= 8 and draw.maybe():
        outputs = 2
        if draw.maybe(0.3):
            attributes["storage_order"] = draw.whole(0, 1)
    x = draw.numbers([draw.whole(1, 3), draw.whole(1, 4), *_spatial(draw, reach)], dtype)
    return Example([x], attributes, outputs, terms=name != "MaxPool")


def global_pool(draw: Draw) -> Example:
    """Over all of space."""
    attributes = {"p": draw.whole(1, 3)} if draw.operator == "GlobalLpPool" and draw.maybe() else {}
    x = draw.numbers([*draw.wholes(2, 1, 4), *draw.shape(1, 3)], draw.dtype("T", only="f"))
    return Example([x], attributes, terms=draw.operator != "GlobalMaxPool")


def unpool(draw: Draw) -> Example:
    """What a MaxPool gave, put back."""
    rank = draw.choose(1, 2, 2, 3)
    kernel = draw.wholes(rank, 1, 3)
    spatial = [k * draw.whole(1, 3) for k in kernel]
    batch, channels = draw.wholes(2, 1, 3)
    total = int(np.prod(spatial))
    small = [n // k for n, k in zip(spatial, kernel, strict=True)]
    count = int(np.prod(small))
    places = np.stack([draw.random.permutation(total)[:count] for _ in range(batch * channels)])
    places += np.arange(batch * channels)[:, None] * total
    x = draw.numbers([batch, channels, *small], draw.dtype("T1", only="f"))
    inputs = [x, places.reshape(x.shape).astype(np.int64)]
    if draw.maybe(0.3):
        inputs.append(np.array([batch, channels, *spatial], np.int64))
    return Example(inputs, {"kernel_shape": kernel, "strides": kernel})


def lrn(draw: Draw) -> Example:
    """Any window over the channels, odd or even, wider than they are,
    more samples than channels.
    """
    attributes = {"size": draw.whole(1, 6)}
    for name, high in (("alpha", 0.5), ("beta", 1), ("bias", 2)):
        if draw.maybe():
            attributes[name] = 0.1 + float(draw.random.random()) * high
    x = draw.numbers(
        [*draw.wholes(2, 1, 6), *draw.shape(0 if draw.maybe(0.2) else 2, 2)],
        draw.dtype("T", only="f"),
    )
    return Example([x], attributes, fixed=frozenset())


def batch_norm(draw: Draw) -> Example:
    """Outside training, mostly."""
    dtype = draw.dtype("T", only="f")
    x = draw.numbers([draw.whole(1, 4), draw.whole(1, 4), *draw.shape(0, 3)], dtype)
    channels = x.shape[1]
    scale, bias, mean = (draw.numbers([channels], dtype) for _ in range(3))
    variance = (np.abs(draw.numbers([channels], dtype)) + np.ones((), dtype) / 4).astype(dtype)
    attributes: dict[str, Any] = {}
    if draw.maybe():
        attributes["epsilon"] = draw.choose(1e-5, 1e-3, 0.1)
    if draw.maybe(0.3):
        attributes["momentum"] = 0.5
    outputs = 1
    if draw.since >= 14 and draw.maybe(0.3):
        attributes["training_mode"] = draw.whole(0, 1)
        outputs = 3 if attributes["training_mode"] else 1
    if draw.since == 7 and draw.maybe(0.2):
        attributes["spatial"] = draw.whole(0, 1)
        if not attributes["spatial"]:
            scale, bias, mean = (draw.numbers(x.shape[1:], dtype) for _ in range(3))
            variance = (np.abs(draw.numbers(x.shape[1:], dtype)) + np.ones((), dtype) / 4).astype(
                dtype
            )
    return Example(
        [x, scale, bias, mean, variance],
        attributes,
        outputs,
        slack=4,
        fixed=frozenset({1, 2, 3, 4}),
    )


def instance_norm(draw: Draw) -> Example:
    """Over the space of each sample's channel."""
    dtype = draw.dtype("T", only="f")
    x = draw.numbers([*draw.wholes(2, 1, 4), *draw.wholes(draw.whole(1, 3), 2, 5)], dtype)
    attributes = {"epsilon": draw.choose(1e-5, 1e-3, 0.1)} if draw.maybe() else {}
    return Example(
        [x, draw.numbers(x.shape[1:2], dtype), draw.numbers(x.shape[1:2], dtype)],
        attributes,
        slack=16,
    )


def group_norm(draw: Draw) -> Example:
    """Over groups of channels."""
    dtype, groups = draw.dtype("T", only="f"), draw.whole(1, 3)
    x = draw.numbers(
        [draw.whole(1, 3), groups * draw.whole(1, 3), *draw.wholes(draw.whole(1, 3), 2, 4)], dtype
    )
    size = groups if draw.since < 21 else x.shape[1]
    attributes: dict[str, Any] = {"num_groups": groups}
    if draw.maybe():
        attributes["epsilon"] = draw.choose(1e-5, 1e-3, 0.1)
    return Example(
        [x, draw.numbers([size], dtype), draw.numbers([size], dtype)], attributes, slack=16
    )


def layer_norm(draw: Draw) -> Example:
    """Over the axes behind one, by mean and variance or by the root mean square."""
    dtype = draw.dtype("T", only="f")
    x = draw.numbers(draw.wholes(draw.whole(1, 4), 2, 5), dtype)
    attributes: dict[str, Any] = {}
    axis = -1
    if draw.maybe(0.7):
        axis = attributes["axis"] = draw.whole(-x.ndim, x.ndim - 1)
    if draw.maybe():
        attributes["epsilon"] = draw.choose(1e-5, 1e-3, 0.1)
    shape = x.shape[axis % x.ndim :]
    inputs = [x, draw.numbers(shape, dtype)]
    outputs = 1
    if draw.operator == "LayerNormalization":
        if draw.maybe(0.7):
            inputs.append(draw.numbers(shape, dtype))
        outputs = draw.choose(1, 1, 1, 3)
    return Example(inputs, attributes, outputs, slack=16)


def lp_norm(draw: Draw) -> Example:
    """Along one axis."""
    attributes = {
        k: v for k, v in (("axis", draw.axis(2)), ("p", draw.whole(1, 2))) if draw.maybe(0.7)
    }
    shape = draw.shape(2, 4)
    return Example([draw.numbers(shape, draw.dtype("T", only="f"))], attributes)


def mean_variance(draw: Draw) -> Example:
    """Over given axes."""
    x = draw.numbers(draw.wholes(4, 2, 5), draw.dtype("T", only="f"))
    attributes = {"axes": sorted(a % 4 for a in draw.axes(4))} if draw.maybe() else {}
    return Example([x], attributes, slack=512)  # the variance is the small difference of two sums


def columns_to_image(draw: Draw) -> Example:
    """Col2Im."""
    rank = draw.choose(1, 2, 2, 3)
    # ONNX Runtime 1.31 misplaces dilated blocks of other than two dimensions; a scalar oracle
    # judges those.
    kernel, attributes, reach = _geometry(draw, rank, dilated=rank == 2)
    attributes.pop("auto_pad", None)
    spatial = _spatial(draw, reach)
    strides, pads = attributes.get("strides", [1] * rank), attributes.get("pads", [0] * (2 * rank))
    blocks = [
        (n + pads[i] + pads[i + rank] - reach[i]) // strides[i] + 1 for i, n in enumerate(spatial)
    ]
    x = draw.numbers(
        [draw.whole(1, 3), draw.whole(1, 3) * int(np.prod(kernel)), int(np.prod(blocks))]
    )
    return Example(
        [x, np.array(spatial, np.int64), np.array(kernel, np.int64)],
        attributes,
        fixed=frozenset({1, 2}),
    )


def roi_align(draw: Draw) -> Example:
    """Regions of random samples."""
    x = draw.numbers([draw.whole(1, 3), draw.whole(1, 3), *draw.wholes(2, 4, 9)])
    count = draw.whole(1, 4)
    corners = draw.random.random((count, 2)) * 4
    rois = np.concatenate(
        [corners, corners + 0.5 + draw.random.random((count, 2)) * 5], axis=1
    ).astype(np.float32)
    batch = draw.random.integers(0, x.shape[0], count).astype(np.int64)
    options = {
        "mode": draw.choose("avg", "avg", "max"),
        "output_height": draw.whole(1, 3),
        "output_width": draw.whole(1, 3),
        "sampling_ratio": draw.whole(0, 3),
        "spatial_scale": draw.choose(0.5, 1.0, 0.7),
    }
    attributes = {name: value for name, value in options.items() if draw.maybe(0.6)}
    if draw.since >= 16 and draw.maybe(0.6):
        attributes["coordinate_transformation_mode"] = draw.choose(
            "half_pixel", "output_half_pixel"
        )
    return Example([x, rois, batch], attributes, slack=8)


def max_roi_pool(draw: Draw) -> Example:
    """Regions as (batch, x1, y1, x2, y2)."""
    x = draw.numbers([draw.whole(1, 3), draw.whole(1, 3), *draw.wholes(2, 4, 9)])
    count = draw.whole(1, 4)
    corners = draw.random.integers(0, 4, (count, 2))
    batch = draw.random.integers(0, x.shape[0], (count, 1))
    rois = np.concatenate(
        [batch, corners, corners + draw.random.integers(1, 5, (count, 2))], axis=1
    )
    return Example([x, rois.astype(np.float32)], {"pooled_shape": draw.wholes(2, 1, 3)})


STRATEGIES: dict[str, Strategy] = {
    "AveragePool": pool,
    "BatchNormalization": batch_norm,
    "Col2Im": columns_to_image,
    "Conv": conv,
    "ConvTranspose": conv_transpose,
    "DeformConv": deform_conv,
    "GlobalAveragePool": global_pool,
    "GlobalLpPool": global_pool,
    "GlobalMaxPool": global_pool,
    "GroupNormalization": group_norm,
    "InstanceNormalization": instance_norm,
    "LRN": lrn,
    "LayerNormalization": layer_norm,
    "LpNormalization": lp_norm,
    "LpPool": pool,
    "MaxPool": pool,
    "MaxRoiPool": max_roi_pool,
    "MaxUnpool": unpool,
    "MeanVarianceNormalization": mean_variance,
    "RMSNormalization": layer_norm,
    "RoiAlign": roi_align,
}
