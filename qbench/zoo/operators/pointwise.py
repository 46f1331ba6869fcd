"""The subjects without a weight: sums, products, functions of one value, pools, means, and what moves levels.

ties     every scale a power of two, so that results lie on ties wherever they can; zero points odd
real     any scales
one      input and output on one grid
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from qbench.zoo.operators.subject import Attribute, Feed, Operand, OperandGrid, OperatorSubject, Shape, single

_TYPES = MappingProxyType({"u8": "uint8", "s8": "int8"})
_CENTRES = MappingProxyType({"u8": 128, "s8": 0})
_PAIRS: Shape = (8, 32, 32)
"""An eighth of all pairs of levels."""
_LEVELS: Shape = (3, 7, 13)
"""All levels, and a remainder for every width of vectors."""
_NONE: Mapping[str, Attribute] = MappingProxyType({})


def pointwise_subjects() -> Iterator[OperatorSubject]:
    """Every one of them, in the order of lists."""
    for types in _TYPES:
        yield from _arithmetic(types)
        yield from _functions(types)
        yield from _pools(types)
        yield from _softmax(types)
        yield from _movers(types)
        yield from _requantized(types)


def _grid(types: str, scale: float, offset: int) -> OperandGrid:
    """A grid whose zero point lies ``offset`` levels from the middle of its type."""
    return OperandGrid(qtype=_TYPES[types], scales=(single(scale),), zero_point=_CENTRES[types] + offset)


def _arithmetic(types: str) -> Iterator[OperatorSubject]:
    for operator in ("Add", "Sub"):
        word = operator.lower()
        ties = (_grid(types, 2.0**-4, 3), _grid(types, 2.0**-5, -9), _grid(types, 2.0**-3, 7))
        real = (_grid(types, 0.0311, 3), _grid(types, 0.0173, -9), _grid(types, 0.0427, 7))
        yield _pairwise(f"{word}.{types}.ties", operator, ties)
        yield _pairwise(f"{word}.{types}.real", operator, real)
        yield _spread(f"{word}.odd.{types}.real", operator, real, ((31, 33), (31, 33)))
        yield _spread(f"{word}.broadcast.{types}.real", operator, real, ((7, 5, 3), (7, 1, 1)))
    ties = (_grid(types, 2.0**-4, 3), _grid(types, 2.0**-5, -9), _grid(types, 2.0**-2, 7))
    real = (_grid(types, 0.0311, 3), _grid(types, 0.0173, -9), _grid(types, 0.0327, 7))
    yield _pairwise(f"mul.{types}.ties", "Mul", ties)
    yield _pairwise(f"mul.{types}.real", "Mul", real)
    yield _spread(f"mul.odd.{types}.real", "Mul", real, ((31, 33), (31, 33)))
    # The divisor's zero point lies outside what is fed: a quotient by 0 means nothing on a grid.
    ties = (_grid(types, 2.0**-4, 3), _grid(types, 2.0**-5, -128), _grid(types, 2.0**-3, 7))
    real = (_grid(types, 0.0311, 3), _grid(types, 0.0173, -128), _grid(types, 0.0427, 7))
    yield _pairwise(f"div.{types}.ties", "Div", ties)
    yield _pairwise(f"div.{types}.real", "Div", real)


def _functions(types: str) -> Iterator[OperatorSubject]:
    x, unit = (
        _grid(types, 0.0571, 5),
        OperandGrid(qtype=_TYPES[types], scales=(2.0**-8,), zero_point=_CENTRES[types] - 128),
    )
    signed_unit = _grid(types, 2.0**-7, 0)
    yield _unary(f"relu.{types}", "Relu", x, _grid(types, 0.0279, -128))
    yield _unary(f"clip.{types}", "Clip", x, _grid(types, 0.0239, -128), constants=(("low", 0.0), ("high", 6.0)))
    for kind, grids in (
        ("ties", (_grid(types, 2.0**-4, 5), _grid(types, 2.0**-4, -39))),
        ("real", (x, _grid(types, 0.0421, -39))),
    ):
        yield _unary(f"leakyrelu.{types}.{kind}", "LeakyRelu", *grids, attributes={"alpha": 0.125})
    yield _unary(f"sigmoid.{types}", "Sigmoid", x, unit)
    yield _unary(f"tanh.{types}", "Tanh", x, signed_unit)
    yield _unary(f"hardswish.{types}", "HardSwish", x, _grid(types, 0.0301, -115))
    yield _unary(f"gelu.{types}", "Gelu", x, _grid(types, 0.0301, -121))


def _pools(types: str) -> Iterator[OperatorSubject]:
    x, other = _grid(types, 0.0311, 3), _grid(types, 0.0227, -13)
    power, finer = _grid(types, 2.0**-5, 3), _grid(types, 2.0**-6, -13)
    window: Mapping[str, Attribute] = {"kernel_shape": (2, 2), "strides": (2, 2)}
    padded: Mapping[str, Attribute] = {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}
    shape = ((9, 6, 8),)
    yield _spread(f"averagepool.{types}.ties", "AveragePool", (power, finer), shape, window)
    yield _spread(f"averagepool.{types}.one", "AveragePool", (x, x), shape, window)
    yield _spread(f"averagepool.{types}.real", "AveragePool", (x, other), shape, window)
    yield _spread(f"averagepool.padded.{types}.real", "AveragePool", (x, other), shape, padded)
    counted = {**padded, "count_include_pad": 1}
    yield _spread(f"averagepool.counted.{types}.real", "AveragePool", (x, other), shape, counted)
    yield _spread(f"maxpool.{types}", "MaxPool", (x, x), shape, {**window, "kernel_shape": (3, 3)})
    yield _spread(f"maxpool.padded.{types}", "MaxPool", (x, x), shape, {**padded, "strides": (2, 1)})
    for kind, grids in (("ties", (power, _grid(types, 2.0**-7, 7))), ("real", (x, _grid(types, 0.0097, 7)))):
        yield _spread(f"globalaveragepool.{types}.{kind}", "GlobalAveragePool", grids, ((9, 4, 8),))
        yield _spread(
            f"reducemean.{types}.{kind}",
            "ReduceMean",
            grids,
            ((9, 4, 8),),
            {"keepdims": 1},
            constants=(("axes", (2, 3)),),
        )


def _softmax(types: str) -> Iterator[OperatorSubject]:
    x, centre = _grid(types, 0.0571, 5), _CENTRES[types]
    for kind, scale in (("ties", 2.0**-8), ("real", 1 / 255)):
        unit = OperandGrid(qtype=_TYPES[types], scales=(single(scale),), zero_point=centre - 128)
        yield _spread(f"softmax.{types}.{kind}", "Softmax", (x, unit), ((5, 33),), {"axis": -1})


def _movers(types: str) -> Iterator[OperatorSubject]:
    x, finer, coarser = _grid(types, 0.0311, 3), _grid(types, 0.0227, -13), _grid(types, 0.0401, 20)
    yield _spread(f"concat.{types}.real", "Concat", (x, finer, coarser), ((3, 5, 4), (8, 5, 4)), {"axis": 1})
    powers = (_grid(types, 2.0**-5, 3), _grid(types, 2.0**-7, -13), _grid(types, 2.0**-4, 20))
    yield _spread(f"concat.{types}.ties", "Concat", powers, ((3, 5, 4), (8, 5, 4)), {"axis": 1})
    resized: Mapping[str, Attribute] = {
        "mode": "nearest",
        "coordinate_transformation_mode": "asymmetric",
        "nearest_mode": "floor",
    }
    scales = (("region", ()), ("scales", (1.0, 1.0, 2.0, 2.0)))
    yield _spread(f"resize.{types}", "Resize", (x, x), ((5, 4, 3),), resized, constants=scales)
    pads = (("pads", (0, 0, 1, 2, 0, 0, 0, 1)),)
    yield _spread(f"pad.{types}", "Pad", (x, x), ((5, 4, 3),), constants=pads)


def _requantized(types: str) -> Iterator[OperatorSubject]:
    x, power = _grid(types, 0.0311, 3), _grid(types, 2.0**-6, 3)
    yield _unary(f"requantize.{types}.ties", "Requantize", power, _grid(types, 2.0**-5, 7))
    yield _unary(f"requantize.{types}.real", "Requantize", x, _grid(types, 0.0417, 7))
    other = "s8" if types == "u8" else "u8"
    yield _unary(f"requantize.{types}to{other}", "Requantize", power, _grid(other, 2.0**-6, 3))


def _pairwise(name: str, operator: str, grids: tuple[OperandGrid, OperandGrid, OperandGrid]) -> OperatorSubject:
    *inputs, output = grids
    operands = tuple(Operand(grid=grid, shape=_PAIRS) for grid in inputs)
    return OperatorSubject(id=f"op.{name}", operator=operator, inputs=operands, output=output, feed=Feed.EVERY_PAIR)


def _unary(
    name: str,
    operator: str,
    x: OperandGrid,
    output: OperandGrid,
    *,
    attributes: Mapping[str, Attribute] = _NONE,
    constants: tuple[tuple[str, float], ...] = (),
) -> OperatorSubject:
    return OperatorSubject(
        id=f"op.{name}",
        operator=operator,
        inputs=(Operand(grid=x, shape=_LEVELS),),
        output=output,
        attributes=attributes,
        constants=constants,
        feed=Feed.EVERY_LEVEL,
    )


def _spread(
    name: str,
    operator: str,
    grids: tuple[OperandGrid, ...],
    shapes: tuple[Shape, ...],
    attributes: Mapping[str, Attribute] = _NONE,
    *,
    constants: tuple[tuple[str, tuple[float, ...] | tuple[int, ...]], ...] = (),
) -> OperatorSubject:
    *inputs, output = grids
    return OperatorSubject(
        id=f"op.{name}",
        operator=operator,
        inputs=tuple(Operand(grid=grid, shape=shape) for grid, shape in zip(inputs, shapes, strict=True)),
        output=output,
        attributes=attributes,
        constants=constants,
    )
