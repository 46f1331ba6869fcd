"""Two sides fed alike: what each side is, their outputs, and every value that both have."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    Unoptimized,
    arithmetic_of,
    contained,
    in_slices,
    isolated,
    runs_as_written,
)
from qbench.calibration import Rows
from qbench.diagnosis.engine.client import UnitSession
from qbench.diagnosis.engine.divergence import REAL_WIDTH, claimed_interpreter, engine_divergences
from qbench.diagnosis.engine.shrink import FailingCase, smallest_case
from qbench.diagnosis.lint import lint_products
from qbench.diagnosis.tallies import ErrorTally
from qbench.diagnosis.target import Target, bound_of, watches_itself
from qbench.diagnosis.unit_runs import Units
from qbench.diagnosis.units import QuantizedUnit
from qbench.errors import InputError, QbenchError
from qbench.evaluation import OutputSteps, steps_of
from qbench.graph import Form, form_of, node_key, values_by_name
from qbench.judging import Unaligned
from qbench.metrics import Differences, count_differences, unequal
from qbench.number_text import rough_percent

# One side of a comparison: a model by a schema or in float, on a backend.


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Side:
    """One side of a comparison.

    Args:
        name: its name in results.
        original: the float graph.
        quantized: the quantized graph in QDQ form, after any passes; None: the float graph runs.
        backend, threads: run it.
    """

    name: str
    original: ir.Model
    quantized: ir.Model | None = None
    backend: Backend
    threads: int = 1

    @property
    def model(self) -> ir.Model:
        """The graph that runs."""
        return self.original if self.quantized is None else self.quantized

    @property
    def target(self) -> Target:
        """The side as a target, watched on the backend that can be tapped."""
        return Target(
            model=self.name,
            original=self.original,
            quantized=self.model,
            backend=self.backend,
            watched=self.tapped or self.backend,
            threads=self.threads,
        )

    @property
    def tapped(self) -> Backend | None:
        """The backend on which taps change no number, or hardly any; None: there is no such
        backend.

        Float graphs are tapped without optimizations, which there change only the order of float32
        sums.
        """
        backend = self.backend
        if watches_itself(backend) or runs_as_written(backend):
            return backend
        if self.quantized is not None:
            return None
        return (backend.unoptimized() if isinstance(backend, Unoptimized) else None) or backend


@dataclass(frozen=True, slots=True)
class Allowed:
    """Differences that count as equal: |right − left| ≤ atol + rtol · |left|, of real values,
    as numpy has them.
    """

    atol: float = 0.0
    rtol: float = 0.0

    def equal(self, left: Array, right: Array) -> Array:
        """Where two arrays of one shape are equal in this sense: bool; NaN and infinities never
        by a tolerance.
        """
        if (
            not (self.atol or self.rtol)
            or left.dtype.kind not in "fiu"
            or right.dtype.kind not in "fiu"
        ):
            return np.zeros(left.shape, np.bool_)
        ours, theirs = left.astype(np.float64), right.astype(np.float64)
        with np.errstate(invalid="ignore"):
            near: Array = np.abs(theirs - ours) <= self.atol + self.rtol * np.abs(ours)
        return near & np.isfinite(ours) & np.isfinite(theirs)


# Two sides compared on the same inputs: their outputs, and every value that both have.

# The values of one side by their names in fp32, without changing what runs.
#
# An engine that fuses is not tapped. Instead its units run one after another, each alone, on the
# results of the units before. The last results are its outputs, and their differences from the
# outputs of the whole graph are counted.

_PROCESSES = 12
"""Processes of a remote backend, of some 80 MB, that are kept at once, one per unit; beyond,
each run starts one.
"""

Key = tuple[str, int]
"""Name of a value in fp32, and a number where it is quantized several times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A value of a side: the operator that computes it, and its unit; None: it is real."""

    node: str
    unit: QuantizedUnit | None = None


@dataclass(slots=True)
class SideRun:
    """One prepared side; ``values`` are those that can be compared, in the order of its graph.

    Args:
        how: where values come from, in a sentence.
        apart: outputs of the tapped run compared with the untapped ones.
        renamed: names of the feeds of both sides → those of this graph, where they differ.
    """

    side: Side
    values: Mapping[Key, Watched]
    unaligned: tuple[Unaligned, ...]
    how: str
    apart: Differences = field(default_factory=Differences)
    crashes: dict[str, str] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)
    _whole: Executor | None = None
    _tapped: Executor | None = None
    _units: tuple[UnitSession, ...] = ()

    def run(self, feeds: Feeds) -> tuple[dict[str, Array], dict[str, Array]]:
        """The untapped outputs of one batch, and the watched values by their names in this
        graph.
        """
        feeds = {self.renamed.get(name, name): array for name, array in feeds.items()}
        if self._tapped is not None and self._whole is None:
            seen = self._tapped.run(feeds)
            return seen, {**feeds, **seen}
        assert self._whole is not None
        outputs = self._whole.run(feeds)
        seen = self._tapped.run(feeds) if self._tapped is not None else self._replayed(feeds)
        for value in self.side.model.graph.outputs:
            name = str(value.name)
            if name in seen and seen[name].shape == outputs[name].shape:
                steps = steps_of(value).broadcast(outputs[name].ndim)
                self.apart = self.apart.joined(count_differences(seen[name], outputs[name], steps))
        return outputs, {**feeds, **seen}

    def _replayed(self, feeds: Feeds) -> dict[str, Array]:
        """The results of the units, run one after another; without those that fail and those
        that need them.
        """
        values: dict[str, Array] = dict(feeds)
        for alone in self._units:
            unit = alone.unit
            if any(name not in values for name in unit.feeds):
                self.crashes.setdefault(unit.value, "one of its inputs is missing")
                continue
            found = alone.run({name: values[name] for name in unit.feeds})
            if found is None:
                self.crashes[unit.value] = alone.crash
            else:
                values[unit.value] = found
        return values


def prepared_side(
    side: Side, stack: ExitStack, wanted: Mapping[Key, Watched] | None = None
) -> SideRun:
    """``side`` prepared; ``stack`` closes it.

    Args:
        side: to be run.
        wanted: the values to watch of a float side; None: every result of a node.

    Raises:
        QbenchError: its backend does not run the graph.
    """
    if side.quantized is None or form_of(side.quantized) is Form.FLOAT:
        values = _float_values(side, wanted)
        return _tapping(side, stack, values, (), tuple(name for name, _ in values))
    units = Units.of(side.target)
    values = dict(_keyed(units))
    # A value without a piece of fp32 that computes it, as in a file that came quantized, is
    # compared all the same.
    unaligned = tuple(one for one in units.unaligned if one.value not in units.aligned)
    if side.tapped is not None:
        return _tapping(side, stack, values, unaligned, tuple(unit.value for unit in units.units))
    how = f"'{side.backend.name}' is not tapped: its units ran one after another, each alone"
    whole = _whole(side, stack)
    few = len(units.units) <= _PROCESSES
    alone = tuple(
        stack.enter_context(
            UnitSession(unit, side.backend, threads=side.threads, keeps_process=few)
        )
        for unit in units.units
    )
    return SideRun(side, values, unaligned, how, _whole=whole, _units=alone)


def _whole(side: Side, stack: ExitStack) -> Executor:
    return in_slices(
        stack.enter_context(isolated(side.backend).prepare(side.model, threads=side.threads)),
        side.model,
    )


def _tapping(
    side: Side,
    stack: ExitStack,
    values: Mapping[Key, Watched],
    unaligned: tuple[Unaligned, ...],
    names: tuple[str, ...],
) -> SideRun:
    watched = side.tapped or side.backend
    given = {str(value.name) for value in (*side.model.graph.inputs, *side.model.graph.outputs)}
    taps = tuple(name for name in dict.fromkeys(names) if name not in given)
    tapped = in_slices(
        stack.enter_context(isolated(watched).prepare(side.model, taps=taps, threads=side.threads)),
        side.model,
    )
    if watched is side.backend:
        how = f"'{side.backend.name}' is tapped, which changes no number there"
        return SideRun(side, values, unaligned, how, _tapped=tapped)
    how = f"'{side.backend.name}' is tapped with its optimizations off"
    return SideRun(side, values, unaligned, how, _tapped=tapped, _whole=_whole(side, stack))


def _keyed(units: Units) -> Iterator[tuple[Key, Watched]]:
    """The aligned values of a quantized graph, numbered where one fp32 value is quantized
    several times.
    """
    seen: dict[str, int] = {}
    for unit in units.units:
        if unit.value in units.aligned:
            count = seen.get(unit.represents, 0)
            seen[unit.represents] = count + 1
            yield (unit.represents, count), Watched(node=unit.node, unit=unit)


def _float_values(side: Side, wanted: Mapping[Key, Watched] | None) -> dict[Key, Watched]:
    known = values_by_name(side.original)
    if wanted is not None:
        return {key: Watched(node=one.node) for key, one in wanted.items() if key[0] in known}
    made = ((value, node) for node in side.original.graph for value in node.outputs if value.name)
    return {(str(value.name), 0): Watched(node=node_key(node)) for value, node in made}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDifference:
    """One value that both sides have.

    Args:
        node: the operator by its name in fp32.
        value: the fp32 value. The third: whether both sides have the same qparams.
        elements: number compared.
        differing: with the same qparams, number of unequal codes; with different ones, of real
            values further apart than the larger step; without qparams, of real values further apart
            than another order of float32 sums explains. Those within the tolerance are not counted.
        largest: difference in the larger steps; None: neither side has qparams.
        sqnr_db, relative: of the right side compared with the left one, in real values.
    """

    node: str
    value: str
    same_grid: bool  # stored name
    elements: int
    differing: int
    largest: float | None
    sqnr_db: float
    relative: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SideDifferences:
    """Two sides on the same samples.

    Args:
        left, right: their names.
        samples: number that both ran.
        outputs: differences of their untapped outputs.
        within: number of outputs that differ by no more than the tolerance; ``outputs`` does not
            count them.
        flips: number of samples with another largest output; None: outputs are not scores of
            classes.
        nodes: values that both have, in the order of the left graph.
        unaligned: the others, with reasons.
        how: one sentence per side: where its values come from, and the differences from its
            untapped outputs.
        why: why values or outputs differ, in a sentence, as far as it is known without a search;
            empty: it is not.
    """

    left: str
    right: str
    samples: int = 0
    outputs: Differences = field(default_factory=Differences)
    within: int = 0
    flips: int | None = None
    nodes: tuple[NodeDifference, ...] = ()
    unaligned: tuple[Unaligned, ...] = ()
    how: tuple[str, ...] = ()
    why: str = ""

    @property
    def first(self) -> NodeDifference | None:
        """The first value, in the order of the left graph, that differs."""
        return next((node for node in self.nodes if node.differing), None)

    @property
    def are_equal(self) -> bool:
        """Whether no output differs by more than the tolerance; without one, in any bit."""
        return not self.outputs.differing


# Values of two sides are aligned by the fp32 value that they represent, also across fusions and
# lowerings. Values with the same qparams are compared exactly, with different ones as real
# numbers in the larger steps. Values without a counterpart are listed with the reason.

AT_ONCE = 8
"""Samples that are run at once where the batch size is free."""


def compare_sides(
    left: Side, right: Side, batches: Iterable[Feeds], allowed: Allowed | None = None
) -> SideDifferences:
    """The differences of two sides on ``batches``.

    Raises:
        InputError: their outputs have different names or shapes.
        QbenchError: a backend does not run its graph.
    """
    with SideComparison(left, right, allowed) as comparison:
        for feeds in batches:
            comparison.run(feeds)
        return comparison.compared()


@dataclass(slots=True)
class _Sums:
    """The sums of one value."""

    left: Watched
    right: Watched
    reals: ErrorTally = field(default_factory=ErrorTally)
    elements: int = 0
    differing: int = 0
    largest: float = 0.0
    reason: str = ""

    @property
    def step(self) -> float | None:
        """The larger step; None: both are real."""
        units = (one.unit for one in (self.left, self.right) if _has_qparams(one))
        return max((unit.scale for unit in units if unit is not None), default=None)

    @property
    def same_qparams(self) -> bool:
        """Whether both sides have the same quantization parameters."""
        ours, theirs = self.left.unit, self.right.unit
        return (
            _has_qparams(self.left)
            and _has_qparams(self.right)
            and _qparams(ours) == _qparams(theirs)
        )

    def add(self, ours: Array, theirs: Array, allowed: Allowed) -> None:
        """One batch of both."""
        if ours.shape != theirs.shape:
            self.reason = f"shapes {ours.shape} and {theirs.shape}"
            return
        x, y = _reals(self.left, ours), _reals(self.right, theirs)
        self.elements += ours.size
        self.reals.add(x, y)
        if self.same_qparams:
            gaps = np.abs(ours.astype(np.int32) - theirs.astype(np.int32))
            self.differing += int(np.count_nonzero((gaps > 0) & ~allowed.equal(x, y)))
        else:
            gaps = np.abs(x.astype(np.float64) - y) / (self.step or 1.0)
            width = 1.0 if self.step is not None else REAL_WIDTH * float(np.abs(x).max(initial=0))
            self.differing += int(
                np.count_nonzero(unequal(x, y) & ~(gaps <= width) & ~allowed.equal(x, y))
            )
        self.largest = max(self.largest, float(gaps.max(initial=0, where=np.isfinite(gaps))))


def _has_qparams(watched: Watched) -> bool:
    return watched.unit is not None and watched.unit.qparams is not None


def _qparams(unit: QuantizedUnit | None) -> tuple[object, ...]:
    assert unit is not None
    assert unit.qparams is not None
    return unit.qparams.qtype, unit.scale, unit.zero_point


def _reals(watched: Watched, array: Array) -> Array:
    unit = watched.unit
    return (
        array.astype(np.float32, copy=False)
        if unit is None or unit.qparams is None
        else unit.reals(array)
    )


class SideComparison(Closing):
    """An executor of the left side that runs every batch on the right side too; closes both.

    Raises:
        InputError: the sides have different inputs or outputs.
        QbenchError: a backend does not run its graph.
    """

    def __init__(self, left: Side, right: Side, allowed: Allowed | None = None) -> None:
        self._pairs = _paired(left, right, "outputs")
        self._allowed = allowed or Allowed()
        self._within = 0
        self._rows = Rows.of(left.original)
        self._outputs = tuple(steps_of(value) for value in left.model.graph.outputs)
        self._other_steps = {
            str(value.name): steps_of(value) for value in right.model.graph.outputs
        }
        self._counted, self._samples, self._flips = Differences(), 0, 0
        self._ranks = len(self._outputs) == 1
        self._stack = ExitStack()
        with ExitStack() as stack:
            self._left, self._right = _prepared(left, right, stack)
            self._right.renamed = _paired(left, right, "inputs")
            self._stack = stack.pop_all()
        both = (key for key in self._left.values if key in self._right.values)
        self._sums = {key: _Sums(self._left.values[key], self._right.values[key]) for key in both}

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """Run one batch; return the outputs of the left side."""
        count = self._rows.count(feeds)
        rows = self._rows if self._rows.size > 1 else replace(self._rows, size=AT_ONCE)
        parts = [self._fold(part, rows.count(part)) for _, _, part in rows.parts(feeds, count)]
        joined: dict[str, Array] = rows.joined(parts, [output.name for output in self._outputs])
        return joined

    def _fold(self, feeds: dict[str, Array], samples: int) -> dict[str, Array]:
        (ours, left), (theirs, right) = self._left.run(feeds), self._right.run(feeds)
        for output in self._outputs:
            one, other = ours[output.name], theirs[self._pairs[output.name]]
            _require_same_rank(output.name, one, other)
            steps = _coarser(output, self._other_steps[self._pairs[output.name]], one.ndim)
            if one.shape == other.shape:
                near = unequal(one, other) & self._allowed.equal(one, other)
                self._within += int(near.sum())
                counted = count_differences(one, np.where(near, one, other), steps)
            else:
                counted = count_differences(one, other, steps)
            self._counted = self._counted.joined(counted)
            self._ranks = self._ranks and one.ndim == 2 and len(one) == samples and one.shape[1] > 1
            self._ranks = self._ranks and one.shape == other.shape
            if self._ranks:
                self._flips += int(np.count_nonzero(one.argmax(axis=1) != other.argmax(axis=1)))
        for key, sums in self._sums.items():
            mine, yours = (
                values.get(key[0] if one.unit is None else one.unit.value)
                for one, values in ((sums.left, left), (sums.right, right))
            )
            if mine is not None and yours is not None:
                sums.add(mine, yours, self._allowed)
        self._samples += samples
        return {output.name: ours[output.name] for output in self._outputs}

    def compared(self) -> SideDifferences:
        """The differences in all batches so far."""
        nodes = tuple(
            _node(key, sums)
            for key, sums in self._sums.items()
            if sums.elements and not sums.reason
        )
        unaligned = tuple(self._unaligned())
        return SideDifferences(
            left=self._left.side.name,
            right=self._right.side.name,
            samples=self._samples,
            outputs=self._counted,
            within=self._within,
            flips=self._flips if self._ranks and self._samples else None,
            nodes=nodes,
            unaligned=unaligned,
            how=tuple(
                f"{run.side.name}: {run.how}{_matched(run)}" for run in (self._left, self._right)
            ),
            why=self._why(nodes),
        )

    def _why(self, nodes: Sequence[NodeDifference]) -> str:
        """Why values or outputs differ, from what is known already."""
        first = next((node for node in nodes if node.differing), None)
        if first is not None:
            return _limits(self._left.side, self._right.side, first.node)
        if not self._counted.differing:
            return ""
        apart = next((run for run in (self._left, self._right) if run.apart.differing), None)
        if apart is not None:
            other = (
                "its nodes run unfused"
                if apart.side.quantized is None
                else "its units run one after another"
            )
            return (
                f"no single node differs: '{apart.side.backend.name}' gives other outputs for the "
                "whole graph than "
                f"when {other}, so its optimizations of the graph as a whole make the difference"
            )
        if self._counted.unbounded or self._counted.relative > REAL_WIDTH or not nodes:
            return (
                "the difference is made by operators whose values are not compared (below)"
                if nodes
                else ""
            )
        return (
            f"no value differs by more than {rough_percent(REAL_WIDTH)} of the largest, which "
            "another order of float32 sums explains; the bits of outputs do"
        )

    def _unaligned(self) -> Iterator[Unaligned]:
        for run, other in ((self._left, self._right), (self._right, self._left)):
            for one in run.unaligned:
                yield Unaligned(value=one.value, reason=f"{run.side.name}: {one.reason}")
            for key in run.values:
                if key not in other.values:
                    yield Unaligned(
                        value=key[0], reason=f"only {run.side.name} {_has(run.values[key], key)}"
                    )
            for value, reason in run.crashes.items():
                yield Unaligned(value=value, reason=f"{run.side.name} fails on it alone: {reason}")
        for key, sums in self._sums.items():
            if sums.reason:
                yield Unaligned(value=key[0], reason=sums.reason)

    def close(self) -> None:
        """Close both sides."""
        self._stack.close()


def _prepared(left: Side, right: Side, stack: ExitStack) -> tuple[SideRun, SideRun]:
    """Both sides prepared; a float side watches the values of the other one, or all its values
    if both are float.
    """
    if left.quantized is None and right.quantized is not None:
        theirs = prepared_side(right, stack)
        return prepared_side(left, stack, theirs.values), theirs
    ours = prepared_side(left, stack)
    return ours, prepared_side(right, stack, ours.values)


def _has(watched: Watched, key: Key) -> str:
    """What one side has and the other lacks, in words."""
    if watched.unit is None:
        return "computes it"
    return (
        "requantizes it once more" if key[1] else "quantizes it; the other keeps it inside a unit"
    )


def _matched(run: SideRun) -> str:
    """The outputs of the tapped run compared with those of the untapped one, in words."""
    if not run.apart.elements:
        return ""
    if not run.apart.differing:
        return "; its outputs are those of the untapped graph, bit for bit"
    return (
        f"; {run.apart.differing} of {run.apart.elements} outputs differ from those of the "
        f"untapped graph, {bound_of(run.apart)}"
    )


def _node(key: Key, sums: _Sums) -> NodeDifference:
    errors = sums.reals.errors(None)
    return NodeDifference(
        node=sums.left.node,
        value=key[0],
        same_grid=sums.same_qparams,  # stored name
        elements=sums.elements,
        differing=sums.differing,
        largest=None if sums.step is None else sums.largest,
        sqnr_db=errors.sqnr_db,
        relative=errors.relative,
    )


def _coarser(ours: OutputSteps, theirs: OutputSteps, rank: int) -> Array | None:
    """The larger steps of both; None where neither has any."""
    steps = [found for one in (ours, theirs) if (found := one.broadcast(rank)) is not None]
    return np.maximum.reduce(np.broadcast_arrays(*steps)) if steps else None


def _limits(left: Side, right: Side, node: str) -> str:
    """What the arithmetic of a side cannot represent at ``node`` and that of the other can, as
    'qbench lint' has it.
    """
    found = {}
    for side in (left, right):
        arithmetic = arithmetic_of(side.backend)
        if arithmetic is None or side.quantized is None or form_of(side.quantized) is Form.FLOAT:
            return ""
        try:
            layers = lint_products(side.quantized, [arithmetic]).layers
        except QbenchError:
            # a graph that cannot be lowered to integers is compared, but not examined
            return ""
        limits = next((layer.limits[arithmetic.name] for layer in layers if layer.node == node), ())
        found[side.name] = (arithmetic.name, limits)
    (name, ours), (other, theirs) = found[left.name], found[right.name]
    only = [(name, limit) for limit in ours if limit not in theirs] + [
        (other, one) for one in theirs if one not in ours
    ]
    return "; ".join(f"'{arithmetic}' at '{node}': {limit}" for arithmetic, limit in only)


def _paired(left: Side, right: Side, what: str) -> dict[str, str]:
    """The names of the left inputs or outputs → those of the right ones: the same, but a lone
    input has any name.

    Raises:
        InputError: the names differ.
    """
    ours, theirs = (
        [
            str(one.name)
            for one in getattr(side.model.graph, what)
            if one.name not in side.model.graph.initializers
        ]
        for side in (left, right)
    )
    if what == "inputs" and len(ours) == len(theirs) == 1:
        return {ours[0]: theirs[0]}
    if sorted(ours) != sorted(theirs):
        raise InputError(
            f"Comparing {left.name} with {right.name}",
            found=f"the {what} {', '.join(ours)} and {', '.join(theirs)}",
            expected=f"{what} of the same names, by which both sides are compared",
            remedy="Compare models of one interface, or rename them in one of the files.",
        )
    return {name: name for name in ours}


def _require_same_rank(name: str, ours: Array, theirs: Array) -> None:
    if ours.ndim != theirs.ndim:
        raise InputError(
            f"Comparing the output '{name}'",
            found=f"{ours.ndim} axes on the left and {theirs.ndim} on the right",
            expected="outputs of one form",
            remedy="Compare models of one interface.",
        )


def first_failing_case(left: Side, right: Side, batches: Iterable[Feeds]) -> FailingCase | None:
    """The smallest input on which the first diverging unit differs from its arithmetic.

    None: no unit differs. The engine is the side that is not an integer interpreter, or the right
    side if both or neither are. Its arithmetic is that of the other side, if that is an
    interpreter, else the one that it declares. The units are those of the engine's own graph.

    Raises:
        InputError: the engine declares no arithmetic.
    """
    left_counts, right_counts = watches_itself(left.backend), watches_itself(right.backend)
    engine, other = (left, right) if right_counts and not left_counts else (right, left)
    interpreter: Backend = (
        other.backend if watches_itself(other.backend) else claimed_interpreter(engine.backend)
    )
    target = replace(engine.target, claims=interpreter)
    divergences = engine_divergences(target, batches)
    if not divergences:
        return None
    return smallest_case(
        divergences[0], contained(engine.backend), interpreter, threads=engine.threads
    )
