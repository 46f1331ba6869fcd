"""The numbers of every node of a quantized graph: its error in the run and alone, and the
explained error.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import numpy as np
import onnx_ir as ir

from qbench.backends import (
    Array,
    Backend,
    Closing,
    Executor,
    Feeds,
    Timeout,
    Watchable,
    arithmetic_of,
    get_backend,
    in_slices,
    isolated,
    no_timeout,
)
from qbench.diagnosis.engine.client import filled_up, rows_of_runs
from qbench.diagnosis.float_sums import FloatSums
from qbench.diagnosis.tallies import ErrorTally, NodeTally, sqnr_of
from qbench.diagnosis.target import Target
from qbench.diagnosis.unit_runs import (
    ALONE,
    FLOAT_BACKEND,
    UnitRunner,
    Units,
    computes_in_float,
    exact_run,
    float_counterpart,
    fused_sums_of,
    random_batch,
    refuse_values_of_floats,
)
from qbench.diagnosis.units import QuantizedUnit, leaves_ties_open
from qbench.errors import InputError
from qbench.evaluation import steps_of
from qbench.graph import fixed_batch, node_key, node_macs
from qbench.interpreter import KernelFunction
from qbench.judging import NodeErrors, Unaligned
from qbench.metrics import Differences, count_differences, unequal

# An ``Examination`` is an executor of the float graph, which a task runs like any other; so
# decoding loops are examined, too. A few samples at a time run through the float graph, the watched
# backend and each unit alone. Only sums are kept (``tallies``).

_SMALL = 1 << 20
"""Bytes of fp32 values per sample up to which units run alone on all samples."""
_AT_ONCE = 1 << 25
"""Bytes of fp32 values that are held at once."""
_BATCHES_MORE = 2
"""Random batches on which units run alone where samples are few."""
_FEWEST, _MOST = 2, 64
"""Samples that are run at once, however large they are: a run of one sample hides what an
engine spoils in a batch.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """The numbers of an examination.

    Args:
        samples: number examined.
        nodes: in the order of the graph.
        unaligned: values that are not compared with fp32, and why.
        outputs: outputs of the watched backend compared with those of the engine; None: they are
            the same backend.
        crashes: quantized value → how the target's backend fails on its unit.
        moved: quantized value → constants of its unit that are not the quantized fp32 ones, with
            the difference (``FloatUnit``).
        broken: quantized value → steps (rms) by which a pass changed it against the promise of its
            effect.
        in_float: values that the declared arithmetic computes in float32, where ties may be rounded
            either way.
        bits: quantized value → the fewest bits in its unit, those of its weights or its own.
    """

    samples: int
    nodes: tuple[NodeErrors, ...]
    unaligned: tuple[Unaligned, ...]
    outputs: Differences | None
    crashes: Mapping[str, str]
    moved: Mapping[str, Mapping[str, float]]
    broken: Mapping[str, float] = field(default_factory=dict)
    in_float: frozenset[str] = frozenset()
    bits: Mapping[str, int] = field(default_factory=dict)


class Examination(Closing):
    """An executor of the float graph that examines every run; a context manager that closes its
    engines.

    Args:
        target: what is examined.
        timeout: of one run of a unit on the target's backend.

    Raises:
        InputError: the quantized graph is invalid, or its outputs are not those of the float graph.
        QbenchError: a backend does not run it.
    """

    def __init__(self, target: Target, *, timeout: Timeout = no_timeout) -> None:
        _require_same_outputs(target)
        refuse_values_of_floats(target)
        self.units = Units.of(target)
        self.samples = 0
        self._last: dict[str, Array] = {}
        self._target = target
        self._rows, self._batch = rows_of_runs(target.original), fixed_batch(target.original)
        self._size, self._runs_alone = 1, True
        self._tallies = {unit.value: NodeTally() for unit in self.units.units}
        # an interpreter that is watched itself computes by its arithmetic; an engine that declares
        # rationals has floats
        self._order_is_open = not target.is_watched_itself and leaves_ties_open(
            arithmetic_of(target.backend)
        )
        self._fused = fused_sums_of(self.units.units, arithmetic_of(target.backend))
        self._outputs = tuple(str(value.name) for value in target.original.graph.outputs)
        self._steps = {str(value.name): steps_of(value) for value in target.quantized.graph.outputs}
        self._differences = Differences()
        self._other_shapes: set[str] = set()
        self._stack = ExitStack()
        with ExitStack() as stack:
            self._float = self._whole(
                stack, get_backend(FLOAT_BACKEND), target, taps=self._float_taps()
            )
            self._watched = self._whole(
                stack, target.watched, target, taps=self._codes(), quantized=True
            )
            self._engine: Executor | None = None
            if not target.is_watched_itself:
                self._engine = self._whole(stack, target.backend, target, quantized=True)
            self._alone = stack.enter_context(ExitStack())
            self._runners = [
                UnitRunner(
                    target,
                    unit,
                    self.units.floats.get(unit.value),
                    self._alone,
                    timeout,
                    is_fused=unit.value in self._fused,
                )
                for unit in self.units.units
            ]
            self._sums = {
                unit.value: self._alone.enter_context(FloatSums(unit))
                for unit in (self.units.units if self._order_is_open else ())
            }
            self._stack = stack.pop_all()

    def _whole(
        self,
        stack: ExitStack,
        backend: Backend,
        target: Target,
        *,
        taps: tuple[str, ...] = (),
        quantized: bool = False,
    ) -> Executor:
        model = target.quantized if quantized else target.original
        executor = isolated(backend).prepare(model, taps=taps, threads=target.threads)
        return in_slices(stack.enter_context(executor), model)

    def _float_taps(self) -> tuple[str, ...]:
        given = {str(value.name) for value in self._target.original.graph.inputs}
        wanted = dict.fromkeys(
            unit.represents for unit in self.units.units if unit.value in self.units.aligned
        )
        return tuple(name for name in wanted if name not in given and name not in self._outputs)

    def _codes(self) -> tuple[str, ...]:
        graph = self._target.quantized.graph
        known = {str(value.name) for value in (*graph.inputs, *graph.outputs)}
        wanted = dict.fromkeys(
            name for unit in self.units.units for name in (*unit.feeds, unit.value)
        )
        return tuple(name for name in wanted if name not in known)

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """Examine one batch; return the outputs of the float graph.

        Raises:
            InputError: feeds that do not fit the graph.
        """
        count = self._rows.count(feeds)
        is_first = not self.samples
        results = [self._fold(part) for part in self._parts(feeds, count)]
        if is_first and self.samples < ALONE and self._runs_alone:
            self._ask_more()
        if self._batch is None or len(results) == 1:
            joined: dict[str, Array] = self._rows.joined(results, self._outputs)
            return joined
        return {
            name: self._one_batch([result[name] for result in results], name)
            for name in self._outputs
        }

    def _parts(self, feeds: Feeds, count: int) -> Iterator[dict[str, Array]]:
        """``feeds`` run by run; the first sample of all runs alone, which shows how many fit
        into memory together.
        """
        if self._batch is not None or self._rows.size > 1:
            yield from (part for _, _, part in self._rows.parts(feeds, count))
            return
        start = 0
        while start < count or start == 0:
            rows = replace(self._rows, size=self._size)
            _, start, part = next(rows.parts(feeds, count, start=start))
            yield part
            start = max(start, 1)

    def _one_batch(self, parts: Sequence[Array], name: str) -> Array:
        """An output of several runs of a fixed batch, as ``in_slices`` joins them."""
        return np.concatenate(
            [np.atleast_1d(part) for part in parts], axis=self._rows.outputs.get(name, 0)
        )

    def _fold(self, part: dict[str, Array]) -> dict[str, Array]:
        rows = self._rows.count(part)
        part = filled_up(self._target.original, part)
        floats: dict[str, Array] = {**part, **self._float.run(part)}
        seen: dict[str, Array] = {**part, **self._watched.run(part)}
        self._last = seen if self.samples < ALONE else {}
        held = sum(array.nbytes for array in floats.values())
        self._size = max(_FEWEST, min(_MOST, _AT_ONCE * rows // max(held, 1)))
        if self._engine is not None:
            theirs = self._engine.run(part)
            for name, steps in self._steps.items():
                found = count_differences(
                    seen[name], theirs[name], steps.broadcast(seen[name].ndim)
                )
                self._differences = self._differences.joined(found)
        self._runs_alone &= self.samples < ALONE or held <= _SMALL * rows
        if not self._runs_alone:
            self._alone.close()  # frees the memory of some two hundred sessions of a large network
        for runner in self._runners:
            unit = runner.unit
            if unit.value in self.units.aligned and self._has_one_shape(unit, floats, seen):
                tally = self._tallies[unit.value]
                expected = floats[unit.represents].astype(np.float32, copy=False)
                tally.cumulative.add(expected, unit.reals(seen[unit.value]))
                tally.clips.add(unit, expected)
            if self._runs_alone:
                self._fold_alone(runner, floats, seen)
        self.samples += rows
        return {name: self._first(name, floats[name], rows) for name in self._outputs}

    def _has_one_shape(
        self, unit: QuantizedUnit, floats: Mapping[str, Array], seen: Mapping[str, Array]
    ) -> bool:
        """Whether the value has the shape of fp32 in all runs; that of a suppression or a
        filter depends on numbers.
        """
        if floats[unit.represents].shape != seen[unit.value].shape:
            self._other_shapes.add(unit.value)
            self._tallies[unit.value] = NodeTally()
        return unit.value not in self._other_shapes

    def _first(self, name: str, result: Array, rows: int) -> Array:
        """The rows of an output without those of the samples that were repeated to fill the
        batch.
        """
        axis = self._rows.outputs.get(name)
        if axis is None and self._batch is not None and result.ndim and len(result) == self._batch:
            axis = 0
        return result if axis is None else result[(slice(None),) * axis + (slice(rows),)]

    def _fold_alone(
        self, runner: UnitRunner, floats: Mapping[str, Array], seen: Mapping[str, Array]
    ) -> None:
        """Run a unit alone: on its inputs in the run of the whole graph, and on quantized fp32
        inputs.
        """
        unit, tally = runner.unit, self._tallies[runner.unit.value]
        feeds, found = {name: seen[name] for name in unit.feeds}, seen[unit.value]
        steps = runner.steps(feeds)
        tally.counting.add(found, unit.rounded(steps).astype(found.dtype), steps)
        tally.ties.add(steps)
        # an interpreter that is watched for an engine is itself what the engine should equal
        ours, other = (
            (found, runner.claimed(feeds))
            if self._target.is_watched_itself
            else (runner.counted(feeds), found)
        )
        if unit.value in self._fused and not self._target.is_watched_itself:
            # the whole run has the fused sum, of a convolution that is not rounded
            other = runner.claimed(feeds)
        if ours is not None and other is not None and not unit.has_real_products:
            tally.claimed.add(self._but_for_order(runner, ours, other, steps, feeds), other, steps)
        if not self._is_fed_by_fp32(unit):
            return
        fed = self.units.rounded(unit, floats)
        expected = floats[unit.represents].astype(np.float32, copy=False)
        alone = runner.counted(fed)
        if alone is not None:
            tally.isolated.add(expected, unit.reals(alone))
        if unit.value in self.units.floats:
            explained = runner.explained(self.units.reals(unit, fed))
            if explained is not None:
                tally.explained.add(expected, explained)
                if alone is not None:
                    tally.unexplained.add(explained, unit.reals(alone))

    def _ask_more(self) -> None:
        """Run the units on random batches where samples are few: one hides what a batch or an
        earlier run spoils.
        """
        random = np.random.default_rng(0)
        for runner in self._runners if self._target.claims is not None else ():
            own = {name: self._last[name] for name in runner.unit.feeds}
            for _ in range(_BATCHES_MORE):
                made = random_batch(own, random, is_any=True)
                ours, other = runner.counted(made), runner.claimed(made)
                if ours is None or other is None or ours.shape != other.shape:
                    break
                if not runner.unit.has_real_products:
                    steps = runner.steps(made)
                    found = self._but_for_order(runner, ours, other, steps, made)
                    self._tallies[runner.unit.value].claimed.add(found, other, steps)

    def _but_for_order(
        self, runner: UnitRunner, ours: Array, other: Array, steps: Array, feeds: Feeds
    ) -> Array:
        """``ours`` with the values of ``other`` where the engine's order of float32 sums
        explains the difference.
        """
        if not self._order_is_open or ours.shape != other.shape or not unequal(ours, other).any():
            return ours
        return np.where(
            self._sums[runner.unit.value].explained(ours, other, steps, feeds), other, ours
        )

    def _is_fed_by_fp32(self, unit: QuantizedUnit) -> bool:
        """Whether the value and the inputs of its unit represent fp32 values."""
        inputs = {value.name for value in self._target.quantized.graph.inputs}
        if self._other_shapes.intersection((unit.value, *unit.feeds)):
            return False
        return all(
            name in self.units.aligned or name in inputs for name in (unit.value, *unit.feeds)
        )

    def examined(self) -> Examined:
        """The numbers of all runs so far."""
        macs = node_macs(self._target.original)
        return Examined(
            samples=self.samples,
            nodes=tuple(self._node(unit, macs) for unit in self.units.units),
            unaligned=(
                *self.units.unaligned,
                *(
                    Unaligned(value=name, reason="its shape depends on numbers")
                    for name in sorted(self._other_shapes)
                ),
            ),
            outputs=None if self._engine is None else self._differences,
            crashes={runner.unit.value: runner.crash for runner in self._runners if runner.crash},
            moved={value: unit.moved for value, unit in self.units.floats.items() if unit.moved},
            in_float=frozenset(self._in_float()),
            bits=dict(self._bits()),
        )

    def _in_float(self) -> Iterator[str]:
        """The values that differ from the declared arithmetic and are computed in float32 by it."""
        if self._target.is_watched_itself:
            return  # an interpreter repeats the order of its sums
        arithmetic = arithmetic_of(self._target.backend)
        for unit in self.units.units:
            if self._tallies[unit.value].claimed.differing and computes_in_float(unit, arithmetic):
                yield unit.value

    def _bits(self) -> Iterator[tuple[str, int]]:
        for unit in self.units.units:
            known = self.units.floats.get(unit.value)
            weights = None if known is None else known.bits
            own = None if unit.qparams is None else unit.qparams.qtype.bits
            if weights is not None or own is not None:
                yield unit.value, min(one for one in (weights, own) if one is not None)

    def _node(self, unit: QuantizedUnit, macs: Mapping[str, int]) -> NodeErrors:
        tally = self._tallies[unit.value]
        low, high = tally.clips.shares()
        known = self.units.floats.get(unit.value)
        scale = None if unit.qparams is None else unit.scale
        kinds = (tally.cumulative, tally.isolated, tally.explained, tally.unexplained)
        cumulative, isolated, explained, unexplained = (
            one.errors(scale) if one.elements else None for one in kinds
        )
        return NodeErrors(
            node=unit.node,
            operators=unit.operators,
            value=unit.represents,
            levels=unit.value,  # stored name
            macs=sum(macs.get(node_key(node), 0) for node in unit.graph.graph),
            elements=tally.cumulative.elements or tally.counting.elements,
            cumulative=cumulative,
            isolated=isolated,
            explained=explained,
            unexplained=unexplained,
            counting=tally.counting.errors(),
            claimed=tally.claimed.errors() if tally.claimed.elements else None,
            clipped_low=low,
            clipped_high=high,
            clipped_weights=0.0 if known is None else known.clipped,
            ties=tally.ties.share,
        )

    def close(self) -> None:
        """Close the engines."""
        self._stack.close()


def _require_same_outputs(target: Target) -> None:
    ours, theirs = (
        [str(value.name) for value in model.graph.outputs]
        for model in (target.original, target.quantized)
    )
    if ours != theirs:
        raise InputError(
            f"Examining '{target.model}'",
            found=f"a quantized graph with the outputs {', '.join(theirs)}",
            expected=f"the outputs of the float graph: {', '.join(ours)}",
            remedy="Compare it with the float graph that it was made from.",
        )


# The gain of the graph's outputs when one node alone is kept in float.
#
#     gain = 10 · log₁₀(N / N′)
#     N: noise of the outputs compared with fp32; N′: the same with the node in float
#
# A node in float is the fp32 node with real weights. The nodes that read its real result quantize
# their own results as before; nodes that only move values, with the same qparams, pass it on as
# real. The run continues after them: earlier results are kept from the first run, later ones are
# computed by the target.


def each_gain(
    target: Target, units: Units, feeds: Feeds, *, output: str = ""
) -> Generator[tuple[str, float], None, None]:
    """(value, gain in dB) of each unit with a counterpart in fp32; the caller may stop.

    Args:
        target: its watched backend must be ``Watchable``; else nothing is yielded.
        units: of its graph.
        feeds: a few samples, since every unit costs a part of a run.
        output: that is compared; empty: all are.

    Raises:
        QbenchError: a backend does not run the graph.
    """
    interpreter = target.watched
    if not isinstance(interpreter, Watchable):
        return
    feeds = filled_up(target.original, feeds)
    memory, names = _Memory(), [str(value.name) for value in target.original.graph.outputs]
    codes = tuple(unit.value for unit in units.units if unit.value not in names)
    compared = [name for name in names if output in ("", name)]
    with get_backend(FLOAT_BACKEND).prepare(target.original) as run:
        wanted = in_slices(run, target.original).run(feeds)
    with interpreter.surrounded(memory.around).prepare(target.quantized, taps=codes) as executor:
        seen = {**feeds, **executor.run(feeds)}
        before = _noise(wanted, seen, compared)
        memory.keep()
        for unit in units.units:
            if unit.value in units.floats:
                memory.exchanged = dict(_kept_in_float(unit, units, seen))
                yield unit.value, sqnr_of(before, _noise(wanted, executor.run(feeds), compared))


def output_noise(target: Target, feeds: Feeds) -> float:
    """The noise of the outputs of the watched backend relative to their signal: N of the gains.

    Raises:
        QbenchError: a backend does not run the graph.
    """
    names = [str(value.name) for value in target.original.graph.outputs]
    feeds = filled_up(target.original, feeds)
    with (
        get_backend(FLOAT_BACKEND).prepare(target.original) as run,
        target.watched.prepare(target.quantized) as other,
    ):
        wanted = in_slices(run, target.original).run(feeds)
        found = in_slices(other, target.quantized).run(feeds)
    return _noise(wanted, found, names)


def _kept_in_float(
    unit: QuantizedUnit, units: Units, seen: Mapping[str, Array]
) -> Iterator[tuple[str, Array]]:
    """The values that change when ``unit`` is in float, up to those from which the run
    continues.
    """
    piece = float_counterpart(unit, units.original, units.represents, rounded=False)
    with exact_run(piece.graph) as run:
        real = run.run(units.reals(unit, seen))[unit.represents]
    yield from _handed_on(unit, real, units, seen)


def _handed_on(
    unit: QuantizedUnit, real: Array, units: Units, seen: Mapping[str, Array]
) -> Iterator[tuple[str, Array]]:
    readers = [one for one in units.units if unit.value in one.feeds]
    if unit.qparams is None:
        yield unit.value, real
        return
    if not readers:
        yield unit.value, unit.rounded(real / np.float32(unit.scale)).astype(seen[unit.value].dtype)
    for reader in readers:
        result = _read(reader, unit.value, real, seen)
        if _keeps_qparams(reader, unit):
            yield from _handed_on(reader, result, units, seen)
        else:
            yield (
                reader.value,
                reader.rounded(result / np.float32(reader.scale)).astype(seen[reader.value].dtype),
            )


def _read(reader: QuantizedUnit, value: str, real: Array, seen: Mapping[str, Array]) -> Array:
    """The value of ``reader`` before rounding when its input ``value`` is replaced by ``real``."""
    graph = reader.graph.clone().graph
    pairs = [node.outputs[0] for node in graph if node.inputs and node.inputs[0] is not None]
    handed = [
        result
        for result in pairs
        if (maker := result.producer()) is not None
        and maker.op_type == "DequantizeLinear"
        and maker.inputs[0] is not None
        and maker.inputs[0].name == value
    ]
    others = [one for one in graph.inputs if one.name != value]
    (goal,) = (one for node in graph for one in node.outputs if one.name == reader.real)
    piece = ir.Model(
        ir.convenience.extract(graph, [*handed, *others], [goal]),
        ir_version=reader.graph.ir_version,
    )
    feeds = {str(one.name): real for one in handed} | {
        str(one.name): seen[str(one.name)] for one in others
    }
    with exact_run(piece) as run:
        return run.run(feeds)[reader.real]


def _keeps_qparams(reader: QuantizedUnit, unit: QuantizedUnit) -> bool:
    """Whether ``reader`` only moves values, and keeps their qparams."""
    if (
        reader.qparams is None
        or unit.qparams is None
        or len(reader.feeds) > 1
        or len(reader.operators) != 1
    ):
        return False
    dequantizers = sum(node.op_type == "DequantizeLinear" for node in reader.graph.graph)
    has_weights = dequantizers > len(reader.feeds)
    return (reader.scale, reader.zero_point) == (unit.scale, unit.zero_point) and not has_weights


def _noise(wanted: Mapping[str, Array], found: Mapping[str, Array], names: Sequence[str]) -> float:
    """The noise relative to the signal, summed over the real outputs with equal weights."""
    total = 0.0
    for name in names:
        if wanted[name].dtype.kind != "f" or wanted[name].shape != found[name].shape:
            continue
        tally = ErrorTally()
        tally.add(wanted[name], found[name])
        total += tally.noise / tally.signal if tally.signal else tally.noise
    return total


class _Memory:
    """Wraps the kernels of one program: it keeps the results of a run, and continues later runs
    from a node.

    ``exchanged`` are the values that are replaced in later runs.
    """

    def __init__(self) -> None:
        self.exchanged: Mapping[str, Array] = {}
        self._order: dict[str, int] = {}
        self._results: dict[str, Sequence[Array]] = {}
        self._kept = False

    def keep(self) -> None:
        """Later runs start from the results so far."""
        self._kept = True

    def around(self, node: ir.Node, run: KernelFunction) -> KernelFunction:
        """The kernel, with its results kept."""
        place, name = len(self._order), str(node.outputs[0].name)
        self._order[name] = place

        def kernel(inputs: Sequence[Array | None]) -> Sequence[Array]:
            if not self._kept:
                results = self._results[name] = run(inputs)
                return results
            if name in self.exchanged:
                return (self.exchanged[name],)
            return self._results[name] if place < self._first else run(inputs)

        return kernel

    @property
    def _first(self) -> int:
        """The first node at which a run differs."""
        return min((self._order[name] for name in self.exchanged if name in self._order), default=0)
