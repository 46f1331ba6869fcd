"""Cases of operators that take levels one by one: sums, products, tables, concatenation, and
the borders to floats.
"""

import hypothesis.strategies as st
import numpy as np

from operator_cases.ground import ENGINE, Case, generators, grids, levels, one_node

BYTES = st.sampled_from(["uint8", "int8"])
_SHAPES = (
    ((2, 3, 5), (2, 3, 5)), ((2, 3, 5), (5,)), ((2, 3, 5), (3, 1)), ((1,), (2, 3, 5)),
    ((2, 1, 5), (3, 1)), ((4, 33), (4, 33)), ((7, 1), (1, 9)), ((), (3, 3)), ((2, 3, 5), ()),
)  # fmt: skip


def _all_pairs(kind: str) -> tuple[np.ndarray, np.ndarray]:
    every = np.arange(256).astype(np.uint8).view(kind)
    left, right = np.meshgrid(every, every, indexing="ij")
    return left.reshape(-1), right.reshape(-1)


@st.composite
def binaries(draw: st.DrawFn, *, every: bool = True) -> Case:
    """QLinearAdd or QLinearMul of all 65,536 pairs of levels,
    or (as all else) of a few with broadcasting.
    """
    random, kind, op = (
        draw(generators()),
        draw(BYTES),
        draw(st.sampled_from(["QLinearAdd", "QLinearMul"])),
    )
    a, b, y = draw(grids(kind)), draw(grids(kind)), draw(grids(kind, 1e-3, 4.0))
    if every and draw(st.booleans()):
        left, right = _all_pairs(kind)
    else:
        left, right = (
            levels(random, kind, shape, extreme=False) for shape in draw(st.sampled_from(_SHAPES))
        )
    constants = {"s": a.scale, "z": a.zero, "t": b.scale, "v": b.zero, "r": y.scale, "q": y.zero}
    feeds = {"a": left, "b": right}
    return one_node(
        op, ["a", "s", "z", "b", "t", "v", "r", "q"], feeds, kind, constants, domain=ENGINE
    )


@st.composite
def unaries(draw: st.DrawFn) -> Case:
    """QLinearSigmoid or QLinearLeakyRelu of all 256 levels."""
    kind, op = draw(BYTES), draw(st.sampled_from(["QLinearSigmoid", "QLinearLeakyRelu"]))
    x, y = draw(grids(kind, 1e-3, 1.0)), draw(grids(kind, 2.0**-9, 0.5))
    attributes = (
        {}
        if op == "QLinearSigmoid"
        else {"alpha": draw(st.sampled_from([0.01, 0.1, 0.5, -0.25, 3.0]))}
    )
    levels_ = np.arange(256).astype(np.uint8).view(kind)
    constants = {"s": x.scale, "z": x.zero, "t": y.scale, "v": y.zero}
    return one_node(
        op, ["x", "s", "z", "t", "v"], {"x": levels_}, kind, constants, domain=ENGINE, **attributes
    )


@st.composite
def concatenations(draw: st.DrawFn) -> Case:
    """QLinearConcat of two to four parts, some on the output's own grid."""
    random, kind = draw(generators()), draw(BYTES)
    y, axis = draw(grids(kind)), draw(st.sampled_from([0, 1, 2, -1]))
    names, feeds, constants = ["r", "q"], {}, {"r": y.scale, "q": y.zero}
    for index in range(draw(st.integers(2, 4))):
        grid = y if draw(st.booleans()) else draw(grids(kind))
        shape = [3, 4, 5]
        shape[axis] = draw(st.integers(1, 40))
        feeds[f"x{index}"] = levels(random, kind, shape, extreme=False)
        constants |= {f"s{index}": grid.scale, f"z{index}": grid.zero}
        names += [f"x{index}", f"s{index}", f"z{index}"]
    return one_node("QLinearConcat", names, feeds, kind, constants, domain=ENGINE, axis=axis)


def _reals(random: np.random.Generator, count: int, scale: float) -> np.ndarray:
    """Multiples of half a step (ties and levels), their neighbours, any reals,
    and what is no number.
    """
    halves = random.integers(-(2**17), 2**17, count) * np.float32(0.5) * np.float32(scale)
    near = np.nextafter(
        halves, random.choice([-np.inf, np.inf], count).astype(np.float32), dtype=np.float32
    )
    wild = np.exp2(random.uniform(-149, 128, count)).astype(np.float32) * random.choice(
        [-1, 1], count
    )
    small = (random.normal(0, 100, count) * scale).astype(np.float32)
    special = np.array(
        [0.0, -0.0, np.inf, -np.inf, np.nan, 3.4e38, -3.4e38, 1e-45, -1e-45], np.float32
    )
    picked = random.integers(0, 40, count)
    found = np.choose(np.minimum(picked // 10, 3), [halves, near, wild.astype(np.float32), small])
    return np.where(picked == 39, random.choice(special, count), found).astype(np.float32)


@st.composite
def quantizations(draw: st.DrawFn) -> Case:
    """QuantizeLinear to 8 and 16 bits, per tensor or per channel,
    of ties and of what no level is near.
    """
    random, kind = draw(generators()), draw(st.sampled_from(["uint8", "int8", "uint16", "int16"]))
    one = draw(grids(kind, 2.0**-20, 2.0**10))
    shape = (draw(st.integers(1, 3)), draw(st.integers(1, 5)), draw(st.integers(1, 70)))
    scale, zero, attributes = one.scale, one.zero, {}
    if draw(st.booleans()):
        axis = draw(st.sampled_from([0, 1, 2, -1]))
        scale = (one.scale * np.exp2(random.integers(-3, 4, shape[axis]))).astype(np.float32)
        zero, attributes = levels(random, kind, (shape[axis],), extreme=False), {"axis": axis}
    x = _reals(random, int(np.prod(shape)), float(one.scale)).reshape(shape)
    return one_node(
        "QuantizeLinear",
        ["x", "s", "z"],
        {"x": x},
        kind,
        {"s": scale, "z": zero},
        opset=21,
        **attributes,
    )


@st.composite
def dequantizations(draw: st.DrawFn) -> Case:
    """DequantizeLinear from 8, 16 and 32 bits, per tensor or per channel."""
    random, kind = (
        draw(generators()),
        draw(st.sampled_from(["uint8", "int8", "uint16", "int16", "int32"])),
    )
    shape = (draw(st.integers(1, 3)), draw(st.integers(1, 5)), draw(st.integers(1, 40)))
    one, attributes = draw(grids("int8", 2.0**-20, 2.0**10)), {}
    scale, count = one.scale, ()
    if draw(st.booleans()):
        axis = draw(st.sampled_from([0, 1, 2, -1]))
        count, attributes = (shape[axis],), {"axis": axis}
        scale = (one.scale * random.uniform(0.1, 3, shape[axis])).astype(np.float32)
    zero = np.zeros(count, kind) if kind == "int32" else levels(random, kind, count, extreme=False)
    feeds = {"x": levels(random, kind, shape, extreme=draw(st.booleans()))}
    constants = {"s": scale, "z": np.asarray(zero, kind)}
    return one_node(
        "DequantizeLinear", ["x", "s", "z"], feeds, "float32", constants, opset=21, **attributes
    )


@st.composite
def clips(draw: st.DrawFn) -> Case:
    """Clip of levels."""
    random, kind = draw(generators()), draw(BYTES)
    ends = levels(random, kind, (2,), extreme=False)
    names, constants = ["x", "l", "h"], {"l": ends.min(), "h": ends.max()}
    if draw(st.booleans()):
        names, constants = ["x", "", "h"], {"h": ends.max()}
    return one_node(
        "Clip", names, {"x": levels(random, kind, (3, 41), extreme=False)}, kind, constants
    )
