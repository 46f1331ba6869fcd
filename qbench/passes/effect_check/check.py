"""A pass run on a graph and held to its declared effect: numbers, soundness, a fixed point."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from qbench.errors import QbenchError
from qbench.graph import graph_digest, own_copy, shapes_alone
from qbench.interpreter import BatchError
from qbench.passes.contract import ARITHMETICS, LOSSY, QDQ, Effect, EffectKind, Pass
from qbench.passes.effect_check.functions import with_function
from qbench.passes.effect_check.regions import Region, Side, changed_regions, step_of
from qbench.passes.effect_check.trials import (
    KERNEL_ERRORS,
    Question,
    Trials,
    at_zero,
    judged,
    trials_of,
)
from qbench.passes.effect_check.verdicts import (
    AnyArithmetic,
    Array,
    Checked,
    Feeds,
    OutputChange,
    PassVerdict,
    RegionVerdict,
    Yardstick,
    arithmetic_name,
    different,
    running,
)
from qbench.passes.requantization.reach import common_reach, reach_of
from qbench.passes.soundness import Interface, fault_of

# A pass run on a graph and checked: numbers, soundness, what it returns, a fixed point.
#
# for every value computed otherwise:  before(inputs) against after(inputs), all inputs or the
# telling ones
# returned bool = the graph differs        run again on its result: False, and nothing differs

_SIZES = (2, 32)
"""What free dimensions are tried as: small first; networks that shrink pictures need more."""
_HOPS = 8
"""Borders in a row that may be taken inside before one is held to be wrong."""


def check_pass(
    pass_: Pass,
    model: ir.Model,
    *,
    arithmetics: Sequence[AnyArithmetic] | None = None,
    samples: Iterable[Feeds] = (),
    seed: int = 0,
) -> Checked:
    """Whether ``pass_`` does to ``model`` what it declares; ``model`` is not touched.

    Args:
        arithmetics: under which it is tried; None: those of its effect.
        samples: feeds of the whole graph that occur in practice: what they become inside is tried,
            too, and where the pass declares exact, the outputs of the whole graph.
        seed: of the random inputs.

    Raises:
        QbenchError: the pass refused the model; an unknown arithmetic.
    """
    after = own_copy(model)
    try:
        changed = pass_.run(after)
    except QbenchError:
        raise
    except Exception as error:  # whatever breaks in a pass is reported
        fault = f"it breaks down ({type(error).__name__}: {error})"
        return Checked(
            pass_.name, pass_.effect, _names(pass_.effect, arithmetics), False, (), (fault,)
        )
    return check_run(
        pass_, model, after, changed=changed, arithmetics=arithmetics, samples=samples, seed=seed
    )


def check_run(
    pass_: Pass,
    before: ir.Model,
    after: ir.Model,
    *,
    changed: bool,
    arithmetics: Sequence[AnyArithmetic] | None = None,
    samples: Iterable[Feeds] = (),
    seed: int = 0,
) -> Checked:
    """``check_pass`` of a finished run: ``pass_`` made ``after`` of ``before`` and returned
    ``changed``.
    """
    effect, chosen = pass_.effect, tuple(arithmetics or pass_.effect.arithmetics)
    fault = fault_of(after, Interface.of(before))
    faults = (
        (f"it leaves {fault}",)
        if fault
        else tuple(_wrong_returns(pass_, before, after, changed=changed))
    )
    regions: tuple[RegionVerdict, ...] = ()
    if not fault:
        trying, side = _Trying(effect, chosen, tuple(samples), seed), Side.of(before)
        try:
            regions = tuple(trying.regions(side, Side.of(after)))
        except QbenchError:
            raise
        except Exception as error:
            # what reads the graph before and not the one after finds the pass's fault
            faults = (*faults, f"the graph after it does not run: {type(error).__name__}: {error}")
    return Checked(pass_.name, effect, _names(effect, arithmetics), bool(changed), regions, faults)


def assert_effect(
    pass_: Pass,
    model: ir.Model,
    *,
    arithmetics: Sequence[AnyArithmetic] | None = None,
    samples: Iterable[Feeds] = (),
    seed: int = 0,
) -> Checked:
    """``check_pass`` for a test of a pass's author.

    Raises:
        AssertionError: the pass is not what it declares: the counterexample, or what else is wrong.
        QbenchError: as ``check_pass``.
    """
    found = check_pass(pass_, model, arithmetics=arithmetics, samples=samples, seed=seed)
    if found.refuted:
        raise AssertionError(str(found))
    return found


def output_changes(
    before: ir.Model,
    after: ir.Model,
    samples: Sequence[Feeds],
    arithmetics: Sequence[AnyArithmetic] = ARITHMETICS,
) -> tuple[OutputChange, ...]:
    """What a whole pipeline did to the outputs of a graph, measured on ``samples``; one row per
    arithmetic and output.

    Effects hold for every site by itself. What several sites move adds up on the way to an output,
    and operators between amplify it, so that no effect but exact bounds this number.

    Raises:
        QbenchError: an arithmetic that is unknown, or cannot run one of the graphs.
    """
    found = []
    for arithmetic in arithmetics:
        runs = running(before, arithmetic), running(after, arithmetic)
        for value in before.graph.outputs:
            name, by = value.name or "", Yardstick(LOSSY, reach_of(value), step_of(value))
            pairs = [tuple(np.asarray(run(feeds)[name]) for run in runs) for feeds in samples]
            farthest = max(
                (float(by.steps(one, other).max(initial=0.0)) for one, other in pairs), default=0.0
            )
            # counted by value: a real that moved by less than half a step has moved, and 0 that
            # became −0 has not
            moved = sum(
                int(np.count_nonzero(different(one, other) & (one != other)))
                for one, other in pairs
            )
            of = sum(one.size for one, _ in pairs)
            steps = int(farthest) if np.isfinite(farthest) else None
            found.append(OutputChange(name, arithmetic_name(arithmetic), moved, of, steps))
    return tuple(found)


def _names(effect: Effect, arithmetics: Sequence[AnyArithmetic] | None) -> tuple[str, ...]:
    return tuple(map(arithmetic_name, arithmetics or effect.arithmetics))


def _wrong_returns(
    pass_: Pass, before: ir.Model, after: ir.Model, *, changed: bool
) -> Iterator[str]:
    digest = graph_digest(after)
    differs = graph_digest(before) != digest
    if differs != changed:
        returned, found = ("True", "the same") if changed else ("False", "another")
        yield f"it returned {returned}, and the graph is {found}"
    again = after.clone()
    try:
        more = pass_.run(again)
    except Exception as error:  # whatever breaks in a pass is reported
        yield f"run on its own result it breaks down ({type(error).__name__}: {error})"
        return
    if more or graph_digest(again) != digest:
        yield "run on its own result it changes that once more"


@dataclass(frozen=True, slots=True)
class _Trying:
    """How a promise is tried."""

    effect: Effect
    arithmetics: tuple[AnyArithmetic, ...]
    samples: tuple[Feeds, ...]
    seed: int

    def regions(self, *sides: *tuple[Side, Side]) -> Iterator[RegionVerdict]:
        """The verdicts on all that differs.

        Codes inside a region may move as long as what reads them does not, as when limits move to
        another border: a border that is refuted is taken inside, and what reads it is checked
        instead, up to an output.
        """
        before, inside = sides[0].model, frozenset[str]()
        outputs = {value.name for value in before.graph.outputs}
        found = dict[str, RegionVerdict]()
        known = dict[tuple[str, tuple[str, ...]], RegionVerdict]()
        for _ in range(_HOPS):
            regions = tuple(changed_regions(*sides, inside))
            new = [region for region in regions if (region.output, region.inputs) not in known]
            for region, verdict in zip(new, self._judged(before, sides, new), strict=True):
                known[region.output, region.inputs] = verdict
            found = {region.output: known[region.output, region.inputs] for region in regions}
            refuted = {
                name for name, verdict in found.items() if verdict.verdict is PassVerdict.REFUTED
            }
            if not refuted or refuted & outputs:
                break
            inside |= refuted
        yield from found.values()
        if found and self.samples and self.effect.kind is EffectKind.EXACT:
            yield from self._whole(*sides)

    def _judged(
        self, before: ir.Model, sides: tuple[Side, Side], regions: Sequence[Region]
    ) -> Iterator[RegionVerdict]:
        sizes = tuple(_sizes(before)) if regions else ()
        seen = _inside(sides[0], regions, self.samples) if regions else []
        for region in regions:
            occurring = tuple({name: batch[name] for name in region.inputs} for batch in seen)
            shapes = next(
                (found for one in sizes if (found := _shapes(region, one)) is not None), None
            )
            if shapes is None and occurring:
                shapes = {name: array.shape for name, array in occurring[0].items()}
            if shapes is None:
                yield RegionVerdict(
                    region.output,
                    PassVerdict.TRIED,
                    0,
                    note="the shapes of what it reads are unknown",
                )
            else:
                yield self._region(sides, region, occurring, shapes)

    def _region(
        self,
        sides: tuple[Side, Side],
        region: Region,
        occurring: tuple[Feeds, ...],
        shapes: Mapping[str, tuple[int, ...]],
    ) -> RegionVerdict:
        reaches = {
            name: common_reach(*(side.values[name] for side in sides)) for name in region.inputs
        }
        trials = trials_of(region, reaches, shapes, self.seed)
        zeros = {name: at_zero(region, reaches, name) for name in region.inputs}
        asked = Question(region, trials, occurring, self._by(sides[0].end(region.output)), zeros)
        verdict = judged(asked, self.arithmetics)
        lossy = self.effect.kind is EffectKind.LOSSY and verdict.verdict is not PassVerdict.REFUTED
        return with_function(asked, verdict) if lossy else verdict

    def _whole(self, before: Side, after: Side) -> Iterator[RegionVerdict]:
        """The outputs of the whole graph on samples: what lowering makes of a region may depend
        on what is around.
        """
        zeros = {value.name or "": 0.0 for value in before.model.graph.inputs}
        trials = Trials(self.samples, len(self.samples), alike=False)
        for value in before.model.graph.outputs:
            region = Region(value.name or "", tuple(zeros), before.model, after.model)
            yield judged(Question(region, trials, (), self._by(value), zeros), self.arithmetics)

    def _by(self, output: ir.Value) -> Yardstick:
        return Yardstick(self.effect, reach_of(output), step_of(output))


def _sizes(model: ir.Model) -> Iterator[Mapping[str, tuple[int, ...]]]:
    """Name → whole dimensions, where they can be inferred, for every size that free dimensions
    are tried as.
    """
    for size in _SIZES:
        graph = shapes_alone(model, free_dims=size).graph
        values = (*graph.inputs, *(value for node in graph for value in node.outputs))
        shapes = {
            value.name or "": tuple(value.shape) for value in values if value.shape is not None
        }
        yield {
            name: tuple(int(dim) for dim in dims)  # type: ignore[arg-type]
            for name, dims in shapes.items()
            if all(isinstance(dim, int) and dim > 0 for dim in dims)
        }


def _shapes(
    region: Region, sizes: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[int, ...]] | None:
    return (
        {name: sizes[name] for name in region.inputs}
        if all(name in sizes for name in region.inputs)
        else None
    )


def _inside(
    side: Side, regions: Sequence[Region], samples: tuple[Feeds, ...]
) -> list[dict[str, Array]]:
    """What the samples become at the inputs of all regions."""
    fed = {value.name or "" for value in side.model.graph.inputs}
    wanted = tuple(
        dict.fromkeys(name for region in regions for name in region.inputs if name not in fed)
    )
    if not samples:
        return []
    try:
        run = running(side.model, QDQ, wanted)
        return [run(feeds) | dict(feeds) for feeds in samples]
    except (QbenchError, BatchError):
        return []  # then nothing runs the graph, and every region reports that itself


# An effect checked on what occurs: what a pass changed, run before and after on the codes that it
# read in a run.
#
#     for every value computed otherwise:  before(codes) against after(codes), as `check_run`, on no
#                                          other inputs
#
# A code that moves does not break an effect where what reads it compensates, as when a limit moves
# on: of several values that moved those count whose region is wrong still when the earlier ones are
# taken inside.

Occurring = Callable[[tuple[str, ...]], Mapping[str, Array]]
"""Names of inputs and codes of the graph before → what they are on some samples."""
_MOST = 16
"""The most values that moved which are looked at."""


@dataclass(frozen=True, slots=True, eq=False)
class BrokenRegion:
    """A value that a pass makes other than its effect allows: both ways to compute it, and the
    codes that show it.
    """

    region: Region
    feeds: Mapping[str, Array]


def broken_regions(
    effect: Effect, before: ir.Model, after: ir.Model, occurring: Occurring
) -> tuple[BrokenRegion, ...]:
    """Where ``after`` is not what ``effect`` promises of ``before``, in graph order; neither is
    touched.

    A region that an arithmetic of the effect cannot run is taken as unchanged.

    Args:
        occurring: returns the values of inputs of regions; called once, and not where nothing
            changed.

    Raises:
        QbenchError: ``occurring`` fails.
    """
    sides = Side.of(before), Side.of(after)
    first = tuple(changed_regions(*sides))
    if not first:
        return ()
    fed = {name for name, value in sides[0].values.items() if value.producer() is None}
    borders = {
        name for name in sides[0].values if all(side.border(name) is not None for side in sides)
    } | fed
    known = occurring(tuple(name for name in sides[0].values if name in borders))
    moved = [region for region in first if _is_broken(region, effect, sides[0], known)][:_MOST]
    return tuple(
        BrokenRegion(region, {name: known[name] for name in region.inputs})
        for region in _not_made_good(moved, effect, sides, known)
    )


def _not_made_good(
    moved: list[Region], effect: Effect, sides: tuple[Side, Side], known: Mapping[str, Array]
) -> Iterator[Region]:
    """Those of ``moved`` that no later one makes good for."""
    good, inside = set[str](), set[str]()
    for region in moved:
        whole = _with_inside(region.output, sides, frozenset(inside)) if inside else region
        if whole is not None and _is_broken(whole, effect, sides[0], known):
            inside.add(region.output)
            continue
        good |= {region.output, *(set() if whole is None else inside & _made_in(whole))}
    yield from (region for region in moved if region.output not in good)


def _with_inside(output: str, sides: tuple[Side, Side], inside: frozenset[str]) -> Region | None:
    return next((one for one in changed_regions(*sides, inside) if one.output == output), None)


def _made_in(region: Region) -> set[str]:
    return {str(value.name) for node in region.before.graph for value in node.outputs}


def _is_broken(region: Region, effect: Effect, side: Side, known: Mapping[str, Array]) -> bool:
    end = side.end(region.output)
    yardstick = Yardstick(effect, reach_of(end), step_of(end))
    feeds = {name: known[name] for name in region.inputs}
    return any(_is_wrong(region, arithmetic, feeds, yardstick) for arithmetic in effect.arithmetics)


def _is_wrong(
    region: Region, arithmetic: str, feeds: Mapping[str, Array], yardstick: Yardstick
) -> bool:
    try:
        before, after = (
            running(one, arithmetic)(feeds)[region.output] for one in (region.before, region.after)
        )
    except (QbenchError, *KERNEL_ERRORS):
        return False
    if (before.shape, before.dtype) != (after.shape, after.dtype):
        return True
    return bool(yardstick.wrong(before, after).any())
