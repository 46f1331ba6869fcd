"""Pools and transposed convolutions, where ONNX's evaluator is wrong or refuses what ONNX allows.

Windows of k elements, d apart, s from one to the next, over n elements with p₀ + p₁ of padding:

    outputs m = ⌊(n + p₀ + p₁ − d (k − 1) − 1) / s⌋ + 1, or ⌈…⌉ where the last window still begins
            in data or p₀
    SAME    m = ⌈n / s⌉, p₀ + p₁ = max(0, (m − 1) s + d (k − 1) + 1 − n), the odd one behind (UPPER)
            or before
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from qbench.interpreter.arrays import Array
from qbench.interpreter.float_kernels.call import Call, Inputs, Results, given, needed


@dataclass(frozen=True, slots=True)
class _Geometry:
    """Windows over a picture of a known size: ``pads`` are (before, behind) of each axis,
    ``counts`` the outputs.
    """

    kernel: Sequence[int]
    strides: Sequence[int]
    dilations: Sequence[int]
    pads: Sequence[tuple[int, int]]
    counts: Sequence[int]

    @classmethod
    def of(cls, call: Call, spatial: Sequence[int], kernel: Sequence[int]) -> "_Geometry":
        rank = len(spatial)
        strides = call.attributes.get("strides") or [1] * rank
        dilations = call.attributes.get("dilations") or [1] * rank
        auto = call.attributes.get("auto_pad") or "NOTSET"
        reach = [d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)]
        if auto in ("SAME_UPPER", "SAME_LOWER"):
            counts = [-(-n // s) for n, s in zip(spatial, strides, strict=True)]
            lacking = [
                max(0, (m - 1) * s + r - n)
                for m, s, r, n in zip(counts, strides, reach, spatial, strict=True)
            ]
            small = [(lack // 2, lack - lack // 2) for lack in lacking]
            return cls(
                kernel,
                strides,
                dilations,
                small if auto == "SAME_UPPER" else [p[::-1] for p in small],
                counts,
            )
        flat = (
            [0] * (2 * rank) if auto == "VALID" else call.attributes.get("pads") or [0] * (2 * rank)
        )
        pads = list(zip(flat[:rank], flat[rank:], strict=True))
        counts = []
        for n, s, r, (before, behind) in zip(spatial, strides, reach, pads, strict=True):
            span = n + before + behind - r
            count = (-(-span // s) if call.attributes.get("ceil_mode") else span // s) + 1
            counts.append(
                count - 1
                if (count - 1) * s >= n + before and call.attributes.get("ceil_mode")
                else count
            )
        return cls(kernel, strides, dilations, pads, counts)

    def padded(self, x: Array, value: float) -> Array:
        """``x`` with its padding, and behind it what the last window reaches."""
        width = [(0, 0)] * (x.ndim - len(self.kernel))
        for axis, (before, behind) in enumerate(self.pads):
            whole = (
                (self.counts[axis] - 1) * self.strides[axis]
                + self.dilations[axis] * (self.kernel[axis] - 1)
                + 1
            )
            size = x.shape[axis - len(self.kernel)]
            width.append((before, max(behind, whole - size - before)))
        return np.pad(x, width, constant_values=np.asarray(value).astype(x.dtype))

    def taps(self, padded: Array) -> Iterator[Array]:
        """For each element of the window, in order, its value in every window."""
        for offsets in itertools.product(*map(range, self.kernel)):
            places = zip(offsets, self.dilations, self.strides, self.counts, strict=True)
            cut = [slice(None)] * (padded.ndim - len(offsets))
            cut += [slice(o * d, o * d + (m - 1) * s + 1, s) for o, d, s, m in places]
            yield padded[tuple(cut)]


def max_pool(call: Call, inputs: Inputs) -> Results:
    """MaxPool and the places of the first largest elements, counted over the whole tensor."""
    x = needed(inputs, 0)
    geometry = _Geometry.of(call, x.shape[2:], call.attributes["kernel_shape"])
    lowest = np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -np.inf
    numbers, spatial = np.arange(np.prod(x.shape[2:], dtype=np.int64)), x.shape[2:]
    by_column = bool(call.attributes.get("storage_order"))
    places = np.asarray(numbers.reshape(spatial[::-1]).T if by_column else numbers.reshape(spatial))
    planes = (
        np.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *[1] * (x.ndim - 2)) * places.size
    )
    best: Array | None = None
    where: Array | None = None
    for tap, place in zip(
        geometry.taps(geometry.padded(x, lowest)),
        geometry.taps(geometry.padded(places, -1)),
        strict=True,
    ):
        if best is None or where is None:
            best, where = tap.copy(), np.broadcast_to(place, tap.shape).copy()
            continue
        larger = (place >= 0) & ((tap > best) | (where < 0))
        best, where = np.where(larger, tap, best), np.where(larger, place, where)
    assert best is not None
    assert where is not None
    return (best, np.asarray(where + planes, np.int64))[: call.outputs]


def average_pool(call: Call, inputs: Inputs) -> Results:
    """AveragePool of the evaluator; padding that it does not know goes there as numbers."""
    x, attributes = needed(inputs, 0), dict(call.attributes)
    auto = attributes.get("auto_pad")
    if auto in ("SAME_UPPER", "SAME_LOWER", "VALID"):
        geometry = _Geometry.of(call, x.shape[2:], attributes["kernel_shape"])
        attributes["pads"] = [p[0] for p in geometry.pads] + [p[1] for p in geometry.pads]
        attributes["auto_pad"] = "NOTSET"
        if auto != "VALID" and "ceil_mode" in attributes:
            attributes["ceil_mode"] = 0
    return call.evaluated(x, **attributes)


def lp_pool(call: Call, inputs: Inputs) -> Results:
    """LpPool: (Σ |x|^p)^(1/p) over each window; padding adds nothing."""
    x, p = needed(inputs, 0), int(call.attributes["p"])
    geometry = _Geometry.of(call, x.shape[2:], call.attributes["kernel_shape"])
    powers = geometry.padded(np.power(np.abs(x), p), 0)
    total = np.zeros((*x.shape[:2], *geometry.counts), x.dtype)
    for tap in geometry.taps(powers):
        total = total + tap
    return (np.power(total, 1.0 / p).astype(x.dtype),)


def global_max_pool(call: Call, inputs: Inputs) -> Results:  # noqa: ARG001 - a kernel's
    """GlobalMaxPool: the largest of each channel, of any rank."""
    x = needed(inputs, 0)
    return (x.max(axis=tuple(range(2, x.ndim)), keepdims=True),)


def conv_transpose(call: Call, inputs: Inputs) -> Results:
    """ConvTranspose: each group as the evaluator computes one, with its own part of the bias,
    and pads as numbers.
    """
    x, weight, bias = needed(inputs, 0), needed(inputs, 1), given(inputs, 2)
    rank, groups = x.ndim - 2, int(call.attributes["group"])
    kernel = weight.shape[2:]
    strides = call.attributes.get("strides") or [1] * rank
    dilations = call.attributes.get("dilations") or [1] * rank
    more = call.attributes.get("output_padding") or [0] * rank
    pads = _pads_of_transposed(call, x.shape[2:], kernel)
    if min(map(min, pads)) < 0:
        raise ValueError(
            f"ConvTranspose with an output larger than what it computes (pads {pads}): engines "
            "fill it differently"
        )
    attributes = {
        "strides": list(strides),
        "dilations": list(dilations),
        "output_padding": list(more),
        "group": 1,
        "kernel_shape": list(kernel),
        "auto_pad": "NOTSET",
        "output_shape": None,
        "pads": [before for before, _ in pads] + [behind for _, behind in pads],
    }
    each = weight.shape[1]
    parts = []
    for index, (data, filters) in enumerate(
        zip(np.split(x, groups, axis=1), np.split(weight, groups, axis=0), strict=True)
    ):
        part = None if bias is None else bias[index * each : (index + 1) * each]
        parts.append(call.evaluated(data, filters, part, **attributes)[0])
    return (np.concatenate(parts, axis=1) if groups > 1 else parts[0],)


def _pads_of_transposed(
    call: Call, spatial: Sequence[int], kernel: Sequence[int]
) -> list[tuple[int, int]]:
    """(before, behind) of each axis, given or from ``output_shape`` or SAME."""
    rank = len(spatial)
    auto = call.attributes.get("auto_pad") or "NOTSET"
    shape = call.attributes.get("output_shape")
    flat = call.attributes.get("pads") or [0] * (2 * rank)
    if not shape and auto not in ("SAME_UPPER", "SAME_LOWER"):
        flat = [0] * (2 * rank) if auto == "VALID" else flat
        return list(zip(flat[:rank], flat[rank:], strict=True))
    strides = call.attributes.get("strides") or [1] * rank
    dilations = call.attributes.get("dilations") or [1] * rank
    more = call.attributes.get("output_padding") or [0] * rank
    wanted = (
        list(shape)[-rank:] if shape else [n * s for n, s in zip(spatial, strides, strict=True)]
    )
    found = []
    for n, k, s, d, o, m in zip(spatial, kernel, strides, dilations, more, wanted, strict=True):
        total = s * (n - 1) + o + d * (k - 1) + 1 - m
        small, large = total // 2, total - total // 2
        found.append((small, large) if auto == "SAME_UPPER" else (large, small))
    return found
