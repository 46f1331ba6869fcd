"""What passes behind the quantizer did to numbers though they promised not to: the first values that show it, and why.

    graph that was written ── pass ──→ graph ── pass ──→ graph that is run        each beside the one before it

Both graphs of a pass are run piece by piece on the levels that stood in front in the one before it. That asks neither
fp32 nor a claim of the engine, so that it tells what is nearer to fp32 than it may be, and what no output feels much.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import onnx_ir as ir

from qbench.backends import Array, Feeds, in_slices
from qbench.diagnosis.budget import Budget
from qbench.diagnosis.captured import Captured
from qbench.diagnosis.filled_batches import filled_up
from qbench.diagnosis.patient import Patient
from qbench.diagnosis.quantized_units import whole_unit
from qbench.diagnosis.tallies import CountingTally
from qbench.diagnosis.unit_runs import exact_backend
from qbench.judging import CountingErrors, NodeErrors, steps_text
from qbench.metrics import unequal
from qbench.passes import BrokenRegion, Effect, EffectKind, Pass, broken_regions, run_pipeline


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BrokenPass:
    """A value that a pass makes other than it promised.

    Args:
        name, effect: of the pass. region: both ways to make the value. feeds: the levels in front of it.
        before, after: what the patient's machine makes of them, either way. counted: how they differ.
    """

    name: str
    effect: Effect
    region: BrokenRegion
    before: Array
    after: Array
    counted: CountingErrors

    @property
    def levels(self) -> str:
        """The value."""
        return self.region.region.output

    @property
    def sentence(self) -> str:
        """What it did."""
        found = self.counted
        return (
            f"the pass '{self.name}' promises to be {self.effect}, and moves {found.differing} of {found.elements} "
            f"levels here, by {steps_text(found.largest_steps)} at most"
        )

    @property
    def remedy(self) -> str:
        """What to do about it."""
        return f"Leave the pass '{self.name}' out of this cell, or mend it; 'qbench rewrite --check' tries its promise."

    def captured(self, errors: NodeErrors) -> Captured | None:
        """The value with the graph before the pass as what it should be; None where it cannot be cut out."""
        region = self.region.region
        unit = whole_unit(region.before, region.output)
        if unit is None:
            return None
        feeds = {name: self.region.feeds[name] for name in unit.feeds}
        with exact_backend().prepare(unit.graph, taps=(unit.real,)) as run:
            real = unit.in_steps({**feeds, **run.run(feeds)})
        return Captured(
            unit=unit,
            errors=errors,
            feeds=feeds,
            found=self.after,
            again=self.after,
            real=real,
            fed=feeds,
            isolated=self.after,
            expected=unit.reals(self.before),
        )


def broken_passes(patient: Patient, feeds: Feeds, budget: Budget) -> Mapping[str, BrokenPass]:
    """Levels → the pass that broke its promise there; none where no pass ran, or where no output feels any.

    Args:
        patient: whose watched machine answers. feeds: samples of its float graph.
        budget: when it is over, passes that are left are not looked at.

    Raises:
        QbenchError: a backend does not run a graph, or a pass is stopped.
    """
    if patient.written is None or patient.rewriting is None:
        return {}
    feeds = filled_up(patient.original, feeds)
    if _agree(patient, patient.written, feeds):
        return {}
    found: dict[str, BrokenPass] = {}
    for pass_, before, after in _changes(patient):
        if pass_.effect.kind is EffectKind.LOSSY or budget.is_over:
            continue
        for region in broken_regions(pass_.effect, before, after, partial(_seen, patient, before, feeds)):
            one = _broken(patient, pass_, region)
            if one is not None:
                found.setdefault(one.levels, one)
    return found


def _changes(patient: Patient) -> list[tuple[Pass, ir.Model, ir.Model]]:
    """Every change of a graph by a pass, in their order, with the graphs before and after it."""
    found: list[tuple[Pass, ir.Model, ir.Model]] = []

    def note(one: Pass, before: ir.Model, after: ir.Model, _: bool) -> None:
        found.append((one, before, after.clone()))

    assert patient.written is not None
    assert patient.rewriting is not None
    run_pipeline(patient.written, patient.rewriting.pipeline, patient.rewriting.policy, note)
    return found


def _agree(patient: Patient, written: ir.Model, feeds: Feeds) -> bool:
    """Whether the outputs are the same bit for bit, with the passes and without."""
    with ExitStack() as stack:
        ours, theirs = (
            in_slices(stack.enter_context(patient.watched.prepare(model, threads=patient.threads)), model).run(feeds)
            for model in (patient.quantized, written)
        )
    return not any(unequal(ours[name], theirs[name]).any() for name in ours)


def _seen(patient: Patient, model: ir.Model, feeds: Feeds, names: tuple[str, ...]) -> dict[str, Array]:
    known = {*feeds, *(str(value.name) for value in model.graph.outputs)}
    taps = tuple(name for name in names if name not in known)
    with patient.watched.prepare(model, taps=taps, threads=patient.threads) as executor:
        return {**feeds, **in_slices(executor, model).run(feeds)}


def _broken(patient: Patient, pass_: Pass, broken: BrokenRegion) -> BrokenPass | None:
    """None where the patient's own machine does not tell the two apart, or they are of other shapes."""
    region, feeds = broken.region, broken.feeds
    with ExitStack() as stack:
        before, after = (
            stack.enter_context(patient.watched.prepare(model, threads=patient.threads)).run(feeds)[region.output]
            for model in (region.before, region.after)
        )
    if before.shape != after.shape:
        return None
    tally = CountingTally()
    tally.add(after, before, None)
    counted = tally.errors()
    if not counted.differing:
        return None
    return BrokenPass(name=pass_.name, effect=pass_.effect, region=broken, before=before, after=after, counted=counted)
