"""Cases of QLinearConv, QLinearMatMul and QGemm: sums of products by constant weights, and what
becomes of the sums.
"""

from typing import Any

import hypothesis.strategies as st
import numpy as np

from operator_cases.ground import ENGINE, Case, Grid, generators, grids, levels, one_node

PAIRS = (("uint8", "int8"), ("uint8", "uint8"), ("int8", "int8"))
"""Types of activations and weights that ONNX Runtime multiplies."""
_SIZES = st.integers(1, 5) | st.sampled_from([8, 16, 17, 33])


@st.composite
def _weights(draw: st.DrawFn, kind: str, channels: int, random: np.random.Generator) -> Grid:
    """Per tensor or per channel; zero points are those that engines take: one for all channels."""
    one = draw(grids(kind, 1e-3, 0.5))
    zero = one.zero if draw(st.booleans()) else np.zeros((), kind)
    if draw(st.booleans()):
        return Grid(one.scale, zero)
    spread = np.exp2(random.integers(-4, 5, channels)) * (
        1 if draw(st.booleans()) else random.uniform(0.5, 2)
    )
    return Grid((one.scale * spread).astype(np.float32), np.full(channels, zero))


@st.composite
def _result(draw: st.DrawFn, kind: str, depth: int, x: Grid, w: Grid) -> Grid:
    """A grid on which typical sums use many levels; in one case of four, one whose multiplier
    nearly leaves float32.
    """
    typical = float(x.scale) * float(np.mean(w.scale)) * 100 * max(depth, 1) ** 0.5
    base = draw(grids(kind, 0.25, 2.0))
    scale = draw(st.sampled_from([0.0] * 9 + [1e-30, 1e30, 1e-37])) or typical * float(base.scale)
    return Grid(np.float32(scale), base.zero)


@st.composite
def _three(
    draw: st.DrawFn, kinds: tuple[str, str], channels: int, depth: int, random: np.random.Generator
) -> tuple[Grid, Grid, Grid]:
    """Grids of activations, weights and results;
    in half of the cases all are powers of two, for ties.
    """
    x, w = draw(grids(kinds[0])), draw(_weights(kinds[1], channels, random))
    y = draw(_result(kinds[0], depth, x, w))
    return (_dyadic(x), _dyadic(w), _dyadic(y)) if draw(st.booleans()) else (x, w, y)


def _dyadic(grid: Grid) -> Grid:
    return Grid(np.exp2(np.round(np.log2(grid.scale))).astype(np.float32), grid.zero)


@st.composite
def _bias(draw: st.DrawFn, channels: int, random: np.random.Generator) -> np.ndarray | None:
    """None, small, or far beyond 2²⁴, where a float32 no longer holds every sum;
    some make an int32 wrap.
    """
    size = draw(st.sampled_from([None, 10**3, 2**24, 2**27, 2**31 - 1]))
    return None if size is None else random.integers(-size, size, channels, np.int32, endpoint=True)


@st.composite
def convolutions(draw: st.DrawFn) -> Case:
    """QLinearConv of one to three axes, in groups, with every way to pad."""
    random, (x_kind, w_kind) = draw(generators()), draw(st.sampled_from(PAIRS))
    rank = draw(st.sampled_from([2, 2, 2, 1, 3]))
    sizes = st.lists(st.integers(1, 3), min_size=rank, max_size=rank)
    kernel, strides, dilations = draw(sizes), draw(sizes), draw(sizes)
    groups = draw(st.sampled_from([1, 1, 2, 3, 4, 16, 33]))
    depth, filters = (
        draw(_SIZES if groups < 16 else st.integers(1, 2)),
        draw(_SIZES if groups < 4 else st.integers(1, 3)),
    )
    depth = 1 if draw(st.booleans()) and groups > 1 else depth
    filters = 1 if depth == 1 and draw(st.booleans()) else filters
    attributes: dict[str, Any] = {"strides": strides, "dilations": dilations, "group": groups}
    auto = draw(st.sampled_from(["NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]))
    if auto != "NOTSET":  # which the engine takes without dilations only
        dilations = [1] * rank
        attributes |= {"auto_pad": auto, "dilations": dilations}
    elif draw(st.booleans()):
        attributes["pads"] = draw(st.lists(st.integers(0, 2), min_size=2 * rank, max_size=2 * rank))
    spatial = [
        (k - 1) * d + draw(st.integers(1, 4)) for k, d in zip(kernel, dilations, strict=True)
    ]
    shape = (draw(st.integers(1, 2)), groups * depth, *spatial)
    x, w, y = draw(_three((x_kind, w_kind), groups * filters, depth * int(np.prod(kernel)), random))
    extreme = draw(st.booleans())
    weight = levels(random, w_kind, (groups * filters, depth, *kernel), extreme=extreme)
    constants = {
        "s": x.scale,
        "z": x.zero,
        "w": weight,
        "t": w.scale,
        "v": w.zero,
        "r": y.scale,
        "q": y.zero,
    }
    bias = draw(_bias(groups * filters, random))
    if bias is not None:
        constants["b"] = bias
    return one_node(
        "QLinearConv",
        ["x", "s", "z", "w", "t", "v", "r", "q", *(["b"] if bias is not None else [])],
        {"x": levels(random, x_kind, shape, extreme=extreme)}, x_kind, constants, **attributes,
    )  # fmt: skip


@st.composite
def matrix_products(draw: st.DrawFn) -> Case:
    """QLinearMatMul by a matrix, up to depths whose sums a float32 does not hold."""
    random, (x_kind, w_kind) = draw(generators()), draw(st.sampled_from(PAIRS))
    depth, columns = draw(_SIZES | st.sampled_from([64, 519, 2100])), draw(_SIZES)
    shape = (*draw(st.lists(st.integers(1, 3), max_size=2)), draw(_SIZES), depth)
    x, w, y = draw(_three((x_kind, w_kind), columns, depth, random))
    extreme = draw(st.booleans())
    constants = {"s": x.scale, "z": x.zero, "t": w.scale, "v": w.zero, "r": y.scale, "q": y.zero}
    constants["w"] = levels(random, w_kind, (depth, columns), extreme=extreme)
    return one_node(
        "QLinearMatMul", ["x", "s", "z", "w", "t", "v", "r", "q"],
        {"x": levels(random, x_kind, shape, extreme=extreme)}, x_kind, constants,
    )  # fmt: skip


@st.composite
def gemms(draw: st.DrawFn) -> Case:
    """QGemm, turned or not, with or without bias, to levels or to reals."""
    random, (x_kind, w_kind) = draw(generators()), draw(st.sampled_from(PAIRS))
    depth, columns, rows = draw(_SIZES | st.just(519)), draw(_SIZES), draw(_SIZES)
    turned, other = draw(st.booleans()), draw(st.booleans())
    x, w, y = draw(_three((x_kind, w_kind), columns, depth, random))
    extreme, bias, real = draw(st.booleans()), draw(_bias(columns, random)), draw(st.booleans())
    constants = {"s": x.scale, "z": x.zero, "t": w.scale, "v": w.zero}
    constants["w"] = levels(
        random, w_kind, (columns, depth) if other else (depth, columns), extreme=extreme
    )
    if bias is not None:
        constants["b"] = bias
    if not real:
        constants |= {"r": y.scale, "q": y.zero}
    names = ["x", "s", "z", "w", "t", "v", "b" if bias is not None else ""]
    return one_node(
        "QGemm", names if real else [*names, "r", "q"],
        {"x": levels(random, x_kind, (depth, rows) if turned else (rows, depth), extreme=extreme)},
        "float32" if real else x_kind, constants, domain=ENGINE, transA=int(turned),
        transB=int(other), alpha=1.0,
    )  # fmt: skip
