"""Cases of MaxPool, QLinearAveragePool and QLinearGlobalAveragePool."""

from typing import Any

import hypothesis.strategies as st

from operator_cases.elementwise import BYTES
from operator_cases.ground import ENGINE, Case, generators, grids, levels, one_node


@st.composite
def _windows(draw: st.DrawFn, rank: int) -> tuple[dict[str, Any], list[int]]:
    """Attributes of a pool, and the sizes of an input that it fits."""
    kernel = draw(st.lists(st.integers(1, 3), min_size=rank, max_size=rank))
    attributes: dict[str, Any] = {"kernel_shape": kernel, "ceil_mode": draw(st.integers(0, 1))}
    attributes["strides"] = draw(st.lists(st.integers(1, 3), min_size=rank, max_size=rank))
    auto = draw(st.sampled_from(["NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]))
    if auto != "NOTSET":
        strides = [min(pair) for pair in zip(kernel, attributes["strides"], strict=True)]
        attributes |= {"auto_pad": auto, "ceil_mode": 0, "strides": strides}
    else:
        attributes["pads"] = [draw(st.integers(0, size - 1)) for size in (*kernel, *kernel)]
    return attributes, [size + draw(st.integers(0, 5)) for size in kernel]


@st.composite
def largest(draw: st.DrawFn) -> Case:
    """MaxPool of levels, of one to three axes."""
    random, kind, rank = draw(generators()), draw(BYTES), draw(st.sampled_from([2, 2, 1, 3]))
    attributes, spatial = draw(_windows(rank))
    if "pads" in attributes and draw(st.booleans()):
        attributes["dilations"] = draw(st.lists(st.integers(1, 2), min_size=rank, max_size=rank))
        spatial = [size + 3 for size in spatial]
    x = levels(
        random,
        kind,
        (draw(st.integers(1, 2)), draw(st.sampled_from([1, 3, 16])), *spatial),
        extreme=False,
    )
    return one_node("MaxPool", ["x"], {"x": x}, kind, {}, **attributes)


@st.composite
def averages(draw: st.DrawFn) -> Case:
    """QLinearAveragePool, of one to three axes."""
    random, kind, rank = draw(generators()), draw(BYTES), draw(st.sampled_from([2, 2, 1, 3]))
    attributes, spatial = draw(_windows(rank))
    # where a window reaches beyond the padding, the engine divides by elements that are not there
    attributes["count_include_pad"] = 0 if attributes["ceil_mode"] else draw(st.integers(0, 1))
    x, y = draw(grids(kind)), draw(grids(kind))
    shape = (draw(st.integers(1, 2)), draw(st.sampled_from([1, 3, 16])), *spatial)
    feeds = {"x": levels(random, kind, shape, extreme=draw(st.booleans()))}
    constants = {"s": x.scale, "z": x.zero, "t": y.scale, "v": y.zero}
    return one_node(
        "QLinearAveragePool",
        ["x", "s", "z", "t", "v"],
        feeds,
        kind,
        constants,
        domain=ENGINE,
        **attributes,
    )


@st.composite
def global_averages(draw: st.DrawFn) -> Case:
    """QLinearGlobalAveragePool, channels first or last."""
    random, kind, last = draw(generators()), draw(BYTES), draw(st.booleans())
    batch, channels = draw(st.integers(1, 2)), draw(st.sampled_from([1, 3, 8, 33]))
    spatial = [draw(st.sampled_from([1, 2, 3, 7, 8, 21])) for _ in range(2)]
    shape = (batch, *spatial, channels) if last else (batch, channels, *spatial)
    x, y = draw(grids(kind, 1e-3, 0.25)), draw(grids(kind))  # the engine refuses ratios from 256
    feeds = {"x": levels(random, kind, shape, extreme=draw(st.booleans()))}
    constants = {"s": x.scale, "z": x.zero, "t": y.scale, "v": y.zero}
    return one_node(
        "QLinearGlobalAveragePool", ["x", "s", "z", "t", "v"], feeds, kind, constants,
        domain=ENGINE, channels_last=int(last),
    )  # fmt: skip
