"""The smallest input on which an engine leaves its arithmetic."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TypeVar

import numpy as np
import onnx_ir as ir

from qbench.backends import Array, Backend, isolated
from qbench.diagnosis.engine.divergence import Divergence, differing
from qbench.errors import QbenchError
from qbench.graph import constant_value, int_attribute, op_spec, own_copy
from qbench.judging import Cause

# Smaller pieces of a unit, where its operators admit them: fewer rows and columns, fewer channels
# in and out.
#
# Windows and elementwise functions compute the same on a part of an image. A dense layer without
# some of its outputs computes the others as before. Without some of its inputs it is another layer,
# which is tried like any candidate.

Sliced = tuple[ir.Model, dict[str, Array]]

_PRODUCTS = frozenset({"Conv", "Gemm", "MatMul"})
_CHANNEL_AXIS = 1


def with_free_sizes(model: ir.Model) -> ir.Model:
    """A copy of ``model`` that takes inputs of any size of their rank."""
    copy = own_copy(model)
    for value in copy.graph.inputs:
        if value.shape is not None and value.name not in copy.graph.initializers:
            value.shape = ir.Shape([None] * len(value.shape))
    for node in copy.graph:
        for value in node.outputs:
            if value.shape is not None:
                value.shape = ir.Shape([None] * len(value.shape))
    return copy


def with_sizes(
    model: ir.Model, feeds: Mapping[str, Array], results: Mapping[str, Array]
) -> ir.Model:
    """A copy of ``model`` that declares the shapes of ``feeds`` and ``results``."""
    copy = own_copy(model)
    for value in (*copy.graph.inputs, *copy.graph.outputs):
        array = feeds.get(str(value.name), results.get(str(value.name)))
        if array is not None:
            value.shape = ir.Shape(array.shape)
    return copy


def spatial_axes(model: ir.Model, feeds: Mapping[str, Array]) -> tuple[int, ...]:
    """The axes after the channels along which all feeds can be cropped; none where an operator
    mixes positions.
    """
    if not all(op_spec(node).local for node in model.graph):
        return ()
    shapes = [array.shape[_CHANNEL_AXIS + 1 :] for array in feeds.values() if array.ndim]
    if not shapes or any(shape != shapes[0] for shape in shapes):
        return ()
    return tuple(range(_CHANNEL_AXIS + 1, _CHANNEL_AXIS + 1 + len(shapes[0])))


def cropped(feeds: Mapping[str, Array], axis: int, start: int, stop: int) -> dict[str, Array]:
    """``feeds`` from ``start`` to ``stop`` along ``axis``."""
    cut = (slice(None),) * axis + (slice(start, stop),)
    return {name: array[cut] if array.ndim else array for name, array in feeds.items()}


def channel_cut(model: ir.Model, feeds: Mapping[str, Array]) -> "tuple[tuple[Cutter, int], ...]":
    """Ways to keep some channels of the one product in ``model``, each with how many there are;
    outputs first.

    A depthwise convolution has one way, which keeps the same channels of both sides.
    """
    products = [node for node in model.graph if node.op_type in _PRODUCTS and not node.domain]
    if len(products) != 1 or len(feeds) != 1:
        return ()
    node = products[0]
    weight = _constant_behind(node.inputs[1])
    if weight is None or weight.const_value is None:
        return ()
    shape = weight.const_value.shape.numpy()
    groups = int_attribute(node, "group", 1)
    ((name, feed),) = feeds.items()
    if node.op_type == "Conv":
        if groups == 1:
            return (_cutter(0, None, None), shape[0]), (
                _cutter(None, 1, (name, _CHANNEL_AXIS)),
                shape[1],
            )
        if groups == shape[0] == feed.shape[_CHANNEL_AXIS]:
            return ((_cutter(0, None, (name, _CHANNEL_AXIS), depthwise=True), shape[0]),)
        return ()
    if len(shape) != 2:
        return ()
    swapped = bool(int_attribute(node, "transB", 0))
    outputs, inputs = (0, 1) if swapped else (1, 0)
    ways = [(_cutter(outputs, None, None), shape[outputs])]
    if feed.shape[-1] == shape[inputs]:
        ways.append((_cutter(None, inputs, (name, feed.ndim - 1)), shape[inputs]))
    return tuple(ways)


Cutter = Callable[[ir.Model, Mapping[str, Array], Sequence[int]], Sliced]
"""(model, feeds, channels to keep) → both with these alone."""


def _cutter(
    outputs: int | None,
    inputs: int | None,
    feed: tuple[str, int] | None,
    *,
    depthwise: bool = False,
) -> Cutter:
    """A function that keeps channels along an axis of the weight (``outputs`` or ``inputs``)
    and of a feed.
    """

    def cut(model: ir.Model, feeds: Mapping[str, Array], channels: Sequence[int]) -> Sliced:
        copy, kept = own_copy(model), np.asarray(channels, dtype=np.int64)
        node = next(node for node in copy.graph if node.op_type in _PRODUCTS)
        axis = outputs if outputs is not None else inputs
        assert axis is not None
        _slice_operand(node.inputs[1], axis, kept)
        if outputs is not None and len(node.inputs) > 2:
            _slice_operand(node.inputs[2], -1, kept)
        if depthwise:
            node.attributes["group"] = ir.AttrInt64("group", len(kept))
        cut_feeds = dict(feeds)
        if feed is not None:
            cut_feeds[feed[0]] = np.take(feeds[feed[0]], kept, axis=feed[1])
        return copy, cut_feeds

    return cut


def _constant_behind(value: ir.Value | None) -> ir.Value | None:
    """The constant that ``value`` is, or is dequantized from."""
    maker = None if value is None else value.producer()
    if maker is not None and maker.op_type == "DequantizeLinear":
        value = maker.inputs[0]
    return value if value is not None and value.const_value is not None else None


def _slice_operand(value: ir.Value | None, axis: int, kept: Array) -> None:
    """Keep slices of a constant, and of its scales and zero points where they run along
    ``axis``.
    """
    maker = None if value is None else value.producer()
    if value is None:
        return
    if maker is None or maker.op_type != "DequantizeLinear":
        _slice(value, axis, kept)
        return
    rank = (
        len(maker.inputs[0].shape)
        if maker.inputs[0] is not None and maker.inputs[0].shape is not None
        else 1
    )
    along = int_attribute(maker, "axis", 1) % rank
    for index, part in enumerate(maker.inputs):
        numbers = constant_value(part)
        if part is None or numbers is None:
            continue
        if index == 0:
            _slice(part, axis, kept)
        elif numbers.ndim == 1 and numbers.size > 1 and along == axis % rank:
            _slice(part, 0, kept)


def _slice(value: ir.Value, axis: int, kept: Array) -> None:
    numbers = constant_value(value)
    assert numbers is not None
    taken = np.take(numbers, kept, axis=axis % max(numbers.ndim, 1))
    name = str(value.name)
    dtype = value.const_value.dtype if value.const_value is not None else None
    value.const_value = ir.tensor(taken, dtype=dtype, name=name)
    value.shape = ir.Shape(taken.shape)


# A smallest subset of items that still fails, by delta debugging (``ddmin`` of Zeller and
# Hildebrandt, 2002).
#
# The items are split into n parts. When a part alone, or all items but a part, still fails, it
# replaces the items. When none does, n doubles. Without a limit the result is 1-minimal: no single
# item can be removed.

Item = TypeVar("Item")


class Trials:
    """A limit on the number of candidates that are tried."""

    def __init__(self, limit: int) -> None:
        self.limit, self.made = limit, 0

    @property
    def are_spent(self) -> bool:
        """Whether none is left."""
        return self.made >= self.limit

    def spend(self) -> None:
        """Count one."""
        self.made += 1


def smallest_failing(
    items: Sequence[Item], fails: Callable[[Sequence[Item]], bool], trials: Trials
) -> tuple[Item, ...]:
    """A subset of ``items``, in their order, that still fails; the smallest so far when
    ``trials`` are spent.

    Args:
        items: they fail together, which is not tried again.
        fails: whether a subset fails; it counts its own trials.
    """
    kept, parts = tuple(items), 2
    if kept and not trials.are_spent and fails(()):
        return ()
    while len(kept) > 1:
        smaller = next(
            (one for one in _candidates(kept, parts) if not trials.are_spent and fails(one)), None
        )
        if smaller is None:
            if parts >= len(kept) or trials.are_spent:
                break
            parts = min(2 * parts, len(kept))
        else:
            parts = 2 if len(smaller) <= -(-len(kept) // parts) else max(parts - 1, 2)
            kept = smaller
    return kept


def _candidates(items: tuple[Item, ...], parts: int) -> Iterator[tuple[Item, ...]]:
    """Each part alone, then all items but each part; with two parts these are the same subsets."""
    bounds = [len(items) * index // parts for index in range(parts + 1)]
    pieces = [(low, high) for low, high in pairwise(bounds) if high > low]
    yield from (items[low:high] for low, high in pieces)
    if parts > 2:
        yield from (items[:low] + items[high:] for low, high in pieces)


# The smallest input on which an engine differs from its arithmetic: fewer channels, a part of the
# image, few values.
#
# Each step keeps what still fails: first the outputs of a dense layer and the position in space,
# then its inputs. Then values become the zero point where the difference remains. The result is
# seldom larger than one window.

USUAL_TRIALS = 600
_TRIALS_OF_A_CRASH = 24
"""Fewer, because each starts a new process."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FailingCase:
    """A graph and an input on which an engine differs from its arithmetic.

    Args:
        node: the operator by its name in fp32.
        operators: of the piece.
        cause: the kind of fault.
        model: the cropped piece.
        feeds: its input.
        expected: the interpreter's outputs.
        found: the engine's; None: it fails, ``crash`` is the reason.
        engine, interpreter: their names.
        trials: number of inputs tried.
        changed: number of values in the feeds that differ from the zero point.
        is_smallest: whether the search was completed.
    """

    node: str
    operators: tuple[str, ...]
    cause: Cause
    model: ir.Model
    feeds: Mapping[str, Array]
    expected: Mapping[str, Array]
    found: Mapping[str, Array] | None
    crash: str
    engine: str
    interpreter: str
    trials: int
    changed: int
    is_smallest: bool

    @property
    def sentence(self) -> str:
        """The case in one sentence."""
        shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in self.feeds.items())
        what = f"'{self.node}' ({', '.join(self.operators) or 'QuantizeLinear'}) on {shapes}"
        if self.found is None:
            return f"'{self.engine}' fails on {what}: {self.crash}"
        ((name, expected),) = self.expected.items()
        found = self.found[name]
        apart = (
            int(np.count_nonzero(found != expected))
            if found.shape == expected.shape
            else expected.size
        )
        return (
            f"'{self.engine}' differs from '{self.interpreter}' in {apart} of {expected.size} "
            f"outputs for {what}; {self.changed} input values are not the zero point"
        )


def smallest_case(
    divergence: Divergence,
    engine: Backend,
    interpreter: Backend,
    *,
    trials: int = USUAL_TRIALS,
    threads: int = 1,
) -> FailingCase:
    """A small input of the diverging unit on which ``engine`` still differs from ``interpreter``.

    Args:
        divergence: with the feeds on which it was seen.
        engine: ``contained``, where it may crash.
        interpreter: of the arithmetic that the engine declares.
        trials: how many inputs may be tried.

    Raises:
        QbenchError: the interpreter does not run the unit alone.
    """
    return _Search(divergence, engine, interpreter, trials, threads).case()


class _Search:
    """The smallest model and feeds that failed so far."""

    def __init__(
        self,
        divergence: Divergence,
        engine: Backend,
        interpreter: Backend,
        trials: int,
        threads: int,
    ) -> None:
        self._divergence, self._unit = divergence, divergence.unit
        self._engine, self._interpreter, self._threads = engine, interpreter, threads
        self._trials = Trials(min(trials, _TRIALS_OF_A_CRASH) if divergence.crash else trials)
        self._model, self._feeds = self._unit.graph, dict(divergence.feeds)

    def case(self) -> FailingCase:
        """Shrink, and describe the result."""
        free = with_free_sizes(self._model)
        if self._divergence.cause is not Cause.NONDETERMINISM and self._fails(free, self._feeds):
            self._model = free
            self._crop_space()
            self._cut_channels()
            self._crop_space()
            self._reset_codes()
        expected = _answers(self._interpreter, self._model, self._feeds, self._threads)
        found, crash = self._found()
        return FailingCase(
            node=self._unit.node,
            operators=self._unit.operators,
            cause=self._divergence.cause,
            model=with_sizes(self._model, self._feeds, expected),
            feeds=self._feeds,
            expected=expected,
            found=found,
            crash=crash,
            engine=self._engine.name,
            interpreter=self._interpreter.name,
            trials=self._trials.made,
            changed=sum(int(np.count_nonzero(array != rest)) for array, rest in self._rests()),
            is_smallest=not self._trials.are_spent,
        )

    def _found(self) -> tuple[Mapping[str, Array] | None, str]:
        try:
            return _answers(self._engine, self._model, self._feeds, self._threads), ""
        except QbenchError as error:
            return None, error.found

    def _fails(self, model: ir.Model, feeds: Mapping[str, Array]) -> bool:
        """Whether the engine differs from the interpreter there; an input that the interpreter
        refuses is no case.
        """
        self._trials.spend()
        try:
            expected = _answers(self._interpreter, model, feeds, self._threads)[self._unit.value]
        except QbenchError:
            return False
        try:
            found = _answers(self._engine, model, feeds, self._threads)[self._unit.value]
        except QbenchError:
            return bool(self._divergence.crash)
        return not self._divergence.crash and bool(differing(self._unit, found, expected).any())

    def _takes(self, model: ir.Model, feeds: Mapping[str, Array]) -> bool:
        """Continue with ``model`` and ``feeds`` if they fail."""
        if self._trials.are_spent or not self._fails(model, feeds):
            return False
        self._model, self._feeds = model, dict(feeds)
        return True

    def _crop_space(self) -> None:
        for axis in spatial_axes(self._model, self._feeds):
            part = 2
            while (size := next(iter(self._feeds.values())).shape[axis]) > 1 and part <= size:
                feeds = (cropped(self._feeds, axis, *window) for window in _windows(size, part))
                if not any(self._takes(self._model, one) for one in feeds):
                    part *= 2

    def _cut_channels(self) -> None:
        for place in range(len(channel_cut(self._model, self._feeds))):
            cut, count = channel_cut(self._model, self._feeds)[place]
            kept = smallest_failing(range(count), partial(self._fails_with, cut), self._trials)
            if len(kept) < count:
                self._model, self._feeds = cut(self._model, self._feeds, kept)

    def _fails_with(self, cut: Cutter, channels: Sequence[int]) -> bool:
        """Whether it fails with these channels alone; without any channel it is not a layer."""
        return bool(channels) and self._fails(*cut(self._model, self._feeds, channels))

    def _reset_codes(self) -> None:
        """Set every value that is not needed to the zero point."""
        rests = {name: rest for name, (_, rest) in zip(self._feeds, self._rests(), strict=True)}
        places = [
            (name, int(index))
            for name, array in self._feeds.items()
            for index in np.flatnonzero(array != rests[name])
        ]

        def only(kept: Sequence[tuple[str, int]]) -> dict[str, Array]:
            feeds = {name: np.full_like(array, rests[name]) for name, array in self._feeds.items()}
            for name, index in kept:
                feeds[name].reshape(-1)[index] = self._feeds[name].reshape(-1)[index]
            return feeds

        kept = smallest_failing(
            places, lambda some: self._fails(self._model, only(some)), self._trials
        )
        self._feeds = only(kept)

    def _rests(self) -> Iterator[tuple[Array, Array]]:
        """Each feed with the quantized value that represents 0."""
        for name, array in self._feeds.items():
            yield array, np.asarray(_zero_code(self._model, name, array))


def _windows(size: int, part: int) -> Iterator[tuple[int, int]]:
    """Two windows of ``size`` without one of ``part`` parts: the last part removed, then the
    first part removed.
    """
    less = max(size // part, 1)
    yield 0, size - less
    yield less, size


def _zero_code(model: ir.Model, name: str, array: Array) -> Array:
    """The zero point of the DequantizeLinear that reads the feed ``name``; 0 of real numbers."""
    value = next(value for value in model.graph.inputs if value.name == name)
    for use in value.uses():
        if use.node.op_type == "DequantizeLinear" and len(use.node.inputs) > 2:
            point = constant_value(use.node.inputs[2])
            if point is not None and point.size == 1:
                return np.asarray(point.reshape(()), array.dtype)
    return np.zeros((), array.dtype)


def _answers(
    backend: Backend, model: ir.Model, feeds: Mapping[str, Array], threads: int
) -> dict[str, Array]:
    with isolated(backend).prepare(model, threads=threads) as executor:
        return executor.run(feeds)
