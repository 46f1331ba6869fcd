"""The integers of an operator subject: what is fed, its weights and its bias, drawn from its own id.

ties     x = z_x + i · step_x, w = z_w + j · step_w, b a multiple of step_x · step_w: the accumulator too
"""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from qbench.storage import digest_plain
from qbench.zoo.operators.subject import Feed, Operand, OperandGrid, OperatorSubject

Ints = npt.NDArray[np.int64]

_FAR = 1 << 22
"""A bias that no 8-bit grid of these subjects reaches."""
_NEAR = 20
"""Levels that other biases move a result by, at most."""
_ENOUGH, _MOST = 512, 32
"""Levels of one kind that small samples together should have, and most samples of one kind."""
_LEAST_WITH_ENDS = 4
"""Channels from which two are spent on weights at the ends of their grid."""


def fed_levels(subject: OperatorSubject) -> tuple[Ints, ...]:
    """The levels of every fed operand, (samples, *shape) each; a divisor is never its zero point."""
    levels = _FEEDS[subject.feed](subject)
    if subject.operator == "Div":
        zero = subject.inputs[1].grid.zero_point
        divisor = np.where(levels[1] == zero, zero + 1, levels[1])
        return (levels[0], divisor)
    return levels


def weight_levels(subject: OperatorSubject) -> Ints:
    """The levels of the constant operand; the last two of many channels lie at the ends of the grid.

    Raises:
        ValueError: the subject has none.
    """
    weight = _weight_of(subject)
    last = np.moveaxis(np.empty(weight.shape, np.int64), _axis(subject), 0)
    random = _random(subject.id, "weight")
    for channel, step in enumerate(_each(weight.step, len(last))):
        last[channel] = _multiples(weight.grid, step, last.shape[1:], random)
    if len(last) >= _LEAST_WITH_ENDS:
        last[-2], last[-1] = weight.grid.ends
    return np.ascontiguousarray(np.moveaxis(last, 0, _axis(subject)))


def bias_levels(subject: OperatorSubject) -> Ints:
    """The bias, one number an output channel; of many channels the second and the third clamp."""
    weight = _weight_of(subject)
    random = _random(subject.id, "bias")
    x_step = subject.inputs[0].step[0]
    multipliers = _each(subject.multipliers, subject.bias)
    levels = np.array(
        [
            int(random.integers(-_NEAR, _NEAR + 1) / multiplier) // (x_step * step) * (x_step * step)
            for multiplier, step in zip(multipliers, _each(weight.step, subject.bias), strict=True)
        ],
        np.int64,
    )
    if subject.bias >= _LEAST_WITH_ENDS:
        levels[1:3] = _FAR, -_FAR
    return levels


def _spread(subject: OperatorSubject) -> tuple[Ints, ...]:
    smallest = min(math.prod(operand.shape) for operand in subject.inputs)
    many = max(2, min(_MOST, _ENOUGH // smallest))
    return tuple(_spread_over(operand, index, subject.id, many) for index, operand in enumerate(subject.inputs))


def _spread_over(operand: Operand, index: int, name: str, many: int) -> Ints:
    """Samples of both ends, the ends in turn, the zero point with peaks; ``many`` of ties and as many at random."""
    (low, high), shape = operand.grid.ends, operand.shape
    random = _random(name, f"operand {index}")
    places = np.arange(math.prod(shape)).reshape(shape)
    samples = [
        np.full(shape, low),
        np.full(shape, low if index % 2 else high),
        np.where(places % (2 + index) == 0, low, high),
        np.where(places % 5 == index, high, operand.grid.zero_point),
        *(_multiples(operand.grid, operand.step[0], shape, random) for _ in range(many)),
        *(random.integers(low, high + 1, shape) for _ in range(many)),
    ]
    return np.stack(samples).astype(np.int64)


def _every_level(subject: OperatorSubject) -> tuple[Ints, ...]:
    """Four orders of all levels and a few more."""
    (operand,) = subject.inputs
    low, high = operand.grid.ends
    random = _random(subject.id, "order")
    size = math.prod(operand.shape)
    some = np.resize(np.arange(low, high + 1), size)
    orders = [some, some[::-1], random.permutation(some), random.permutation(some)]
    return (np.stack(orders).reshape(-1, *operand.shape).astype(np.int64),)


def _every_pair(subject: OperatorSubject) -> tuple[Ints, ...]:
    """All pairs in a random order, so that neighbours have nothing in common."""
    first, second = subject.inputs
    a, b = (np.arange(low, high + 1) for low, high in (first.grid.ends, second.grid.ends))
    order = _random(subject.id, "order").permutation(len(a) * len(b))
    left, right = np.repeat(a, len(b))[order], np.tile(b, len(a))[order]
    return tuple(part.reshape(-1, *first.shape).astype(np.int64) for part in (left, right))


_FEEDS: Mapping[Feed, Callable[[OperatorSubject], tuple[Ints, ...]]] = MappingProxyType(
    {Feed.SPREAD: _spread, Feed.EVERY_LEVEL: _every_level, Feed.EVERY_PAIR: _every_pair}
)


def _multiples(grid: OperandGrid, step: int, shape: tuple[int, ...], random: np.random.Generator) -> Ints:
    """Levels a multiple of ``step`` away from the zero point."""
    low, high = ((end - grid.zero_point) / step for end in grid.ends)
    return grid.zero_point + step * random.integers(math.ceil(low), math.floor(high) + 1, shape)


def _weight_of(subject: OperatorSubject) -> Operand:
    if subject.weight is None:
        raise ValueError(f"'{subject.id}' has no constant operand")
    return subject.weight


def _axis(subject: OperatorSubject) -> int:
    """Of output channels in the weight: where scales are, or would be."""
    if subject.operator == "Conv" or subject.attributes.get("transB"):
        return 0
    return 1


def _each(values: tuple, count: int) -> tuple:  # type: ignore[type-arg]
    return values * count if len(values) == 1 else values


def _random(name: str, purpose: str) -> np.random.Generator:
    return np.random.default_rng(int(digest_plain([name, purpose])[:16], 16))
