"""What would catch a fault that the gates of a cell let through.

A remedy is a change of the suite. It is tried: with it, the cell without the fault is green and
the cell with it is red. Where no run can show that, because nothing is accepted yet or data are
missing, it is computed.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from qbench.errors import QbenchError
from qbench.evaluation import (
    Comparator,
    MetricUse,
    Request,
    SubjectArtifacts,
    compare_until_differing,
    measure_request,
)
from qbench.faults.fault import Placed, Stage
from qbench.faults.proven_cell import Gating, HealthyCell, ProvenCell, judged_by
from qbench.faults.trial import faulty_request
from qbench.judging import (
    Criterion,
    DataPower,
    GateKind,
    GateState,
    Limit,
    Measurement,
    RelativeTo,
    Tolerance,
    moved_ranges,
)
from qbench.metrics import Against, Direction, Score, get_metric
from qbench.number_text import points
from qbench.tracking import ProofRemedy

_DIGITS = range(1, 7)
"""Significant digits of a number that is proposed: as few as tell both cells apart."""
_RANGES = (0.01, 0.003, 0.001)
_METRICS = ("agreement", "sqnr")
"""Metrics that need no labels, and that are tried where a model does not have them."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Missed:
    """A fault that was let through: the cell, the fault, and both measurements."""

    cell: ProvenCell
    placed: Placed
    healthy: HealthyCell
    measured: Measurement

    def catches(self, gating: Gating) -> bool:
        """Whether the cell is green by ``gating`` without the fault, and red with it."""
        return tells_apart(self.cell, gating, self.healthy.measurement, self.measured)


def tells_apart(
    cell: ProvenCell, gating: Gating, healthy: Measurement, measured: Measurement
) -> bool:
    """Whether the cell is green by ``gating`` without a fault, and red with it."""
    with_fault = cell.judge(measured, gating).outcome
    return with_fault.is_red and not cell.judge(healthy, gating).outcome.is_red


def find_remedies(missed: Missed) -> tuple[ProofRemedy, ...]:
    """All that would catch the fault, in the order of ``_REMEDIES``."""
    return tuple(one for remedies in _REMEDIES for one in remedies(missed))


def nice_below(high: float, low: float) -> float | None:
    """The number of fewest digits from ``low`` to below ``high``, the largest of these; None: there
    is none of six digits.
    """
    for digits in _DIGITS:
        found = _rounded_down(high, digits)
        if found >= high:
            found = _rounded_down(high * (1 - 10.0**-digits), digits)
        if low <= found < high:
            return found
    return None


def nice_above(low: float, high: float) -> float | None:
    """The number of fewest digits, two or more, from above ``low`` to ``high``, the smallest of
    these; None: there is none of six digits.
    """
    for digits in _DIGITS[1:]:
        if low < (found := _rounded_up(low, digits)) <= high:
            return found
    return None


def _rounded_up(value: float, digits: int) -> float:
    """The first number of so many digits above ``value``."""
    down = _rounded_down(value, digits) if value > 0 else 0.0
    places = digits - 1 - math.floor(math.log10(value)) if value > 0 else digits
    return round(down + 10.0**-places, places)


def _rounded_down(value: float, digits: int) -> float:
    if value <= 0:
        return 0.0
    places = digits - 1 - math.floor(math.log10(value))
    # the nearest decimal fraction where it is the number itself up to its last bit
    near = round(value, places)
    return near if near <= value else round(near - 10.0**-places, places)


# Gates that the suite has, with stricter numbers: no engine has to run again.


def _by_equality(missed: Missed) -> Iterator[ProofRemedy]:
    """Another backend that the healthy cell equals bit by bit."""
    cell, healthy = missed.cell, missed.healthy
    if missed.placed.fault.stage is not Stage.ENGINE or cell.gating.criterion is not None:
        return  # every engine runs the same wrong graph
    if healthy.partner is None:
        healthy.partner = (_partner_of(cell, healthy.measurement),)
    (name,) = healthy.partner
    if name is None:
        return
    request = _compared_with(cell, faulty_request(cell.request, missed.placed), name)
    if _is_red_next_to(cell, request, missed.measured):
        named = cell.request.cell
        yield ProofRemedy(
            name="an equality gate",
            setting=f'equal_to = {{ "{named.slug}" = "{name}" }}, model {named.model}',
        )


def _partner_of(cell: ProvenCell, healthy: Measurement) -> str | None:
    """The first of the partners that the healthy cell equals."""
    for partner in cell.partners:
        request = _compared_with(cell, cell.request, partner.name)
        if _is_red_next_to(cell, request, healthy) is False:
            return partner.name
    return None


def _is_red_next_to(cell: ProvenCell, request: Request, measured: Measurement) -> bool | None:
    """Whether ``measured`` is red once its outputs have to equal those of the comparator of
    ``request``; None: they cannot be compared.
    """
    assert request.comparator is not None
    try:
        compared = compare_until_differing(request)
    except QbenchError:
        return None
    gating = replace(cell.gating, criterion=request.comparator.criterion)
    return cell.judge(replace(measured, compared=compared), gating).outcome.is_red


def _compared_with(cell: ProvenCell, request: Request, name: str) -> Request:
    partner = next(one for one in cell.partners if one.name == name)
    comparator = Comparator(
        backend=partner,
        criterion=Criterion(backend=name),
        environment=cell.environment_of(partner),
    )
    return replace(request, comparator=comparator)


def _by_ranges(missed: Missed) -> Iterator[ProofRemedy]:
    """Calibrated ranges held closer to the accepted ones, or accepted at all."""
    now, before = missed.measured.calibrated, missed.healthy.measurement.calibrated
    if now is None or before is None or now.ranges == before.ranges:
        return
    rules = missed.cell.gating.rules
    gates = missed.healthy.verdict.gates
    if not any(gate.kind is GateKind.CALIBRATION and gate.state is _HOLDS for gate in gates):
        if moved_ranges(before.ranges, now.ranges, rules.ranges):
            yield ProofRemedy(
                name="accepted calibrated ranges",
                setting="accept the ranges with the results: --qbench-accept=new",
                tried=False,
            )
        return
    for limit in _RANGES:
        gating = replace(missed.cell.gating, rules=replace(rules, ranges=limit))
        if limit < rules.ranges and missed.catches(gating):
            yield ProofRemedy(name="closer calibrated ranges", setting=f"ranges = {limit:g}")
            return


_HOLDS = GateState.HOLDS


def _by_tolerance(missed: Missed) -> Iterator[ProofRemedy]:
    """A tolerance between the loss without the fault and that with it."""
    for score in missed.measured.scores:
        if score.against is not Against.LABELS:
            continue
        own = missed.cell.gating.tolerance.of(score.metric)
        units = _UNITS[own.relative_to](score)
        before = missed.healthy.measurement.score(score.metric)
        if units <= 0 or score.drop <= max(before.drop, 0):
            continue
        value = nice_below(score.drop / units, max(before.drop, 0) / units)
        if value is None:
            continue
        tolerance = Tolerance(value, own.rule, relative_to=own.relative_to)
        if missed.catches(replace(missed.cell.gating, tolerance=tolerance)):
            cell = missed.cell.request.cell
            yield ProofRemedy(
                name="a stricter tolerance",
                setting=f'tolerance = {{ "{cell.slug}" = {value:g} }}, model {cell.model}',
            )
            return


_UNITS: dict[RelativeTo, Callable[[Score], int]] = {
    RelativeTo.SCORE: lambda score: score.reference_hits,
    RelativeTo.ERROR: lambda score: score.reference_errors,
    RelativeTo.NOTHING: lambda score: score.out_of,
}


def _by_samples(missed: Missed) -> Iterator[ProofRemedy]:
    """So many samples that the loss of this fault is told from chance."""
    for score in missed.measured.scores:
        before = missed.healthy.measurement.score(score.metric)
        more = (score.drop - max(before.drop, 0)) / score.out_of
        if score.against is not Against.LABELS or not score.proportion or more <= 0:
            continue
        clusters = score.clusters
        power = DataPower(
            model=missed.cell.request.cell.model,
            metric=score.metric,
            n=score.n,
            margin=more,
            sources=None if clusters is None else clusters.sources,
            found=None if clusters is None else clusters.gathering,
        )
        if power.is_open and power.needed is not None:
            loss = points(more).removeprefix("+")
            yield ProofRemedy(
                name="more samples",
                setting=f"{power.needed:,} samples in place of {power.n:,} tell a loss of {loss} "
                f"in {score.metric} from chance; then a tolerance below it",
                tried=False,
            )
            return


def _by_agreement(missed: Missed) -> Iterator[ProofRemedy]:
    """A floor of the agreement with fp32 between both cells."""
    value = _floor_between(missed.healthy.measurement, missed.measured)
    if value is None:
        return
    rules = replace(missed.cell.gating.rules, agreement=value)
    if missed.catches(replace(missed.cell.gating, rules=rules)):
        cell = missed.cell.request.cell
        yield ProofRemedy(
            name="a higher agreement floor",
            setting=f"agreement = {value:g}, model {cell.model}",
        )


def _floor_between(healthy: Measurement, measured: Measurement) -> float | None:
    """A share of agreement that the healthy cell reaches in every metric, the other not in one."""
    pairs = [(healthy.score(one.metric).value, one.value) for one in measured.scores]
    floors = [pair for pair, one in zip(pairs, measured.scores, strict=True) if one.has_floor]
    if not floors:
        return None
    return nice_above(min(after for _, after in floors), min(before for before, _ in floors))


def _by_executed(missed: Missed) -> Iterator[ProofRemedy]:
    """A floor of the share that the engine runs in integers."""
    before, after = missed.healthy.measurement.executed_macs, missed.measured.executed_macs
    if before is None or after is None or after >= before:
        return
    value = nice_above(after, before)
    if value is not None and missed.catches(
        replace(missed.cell.gating, rules=replace(missed.cell.gating.rules, executed_macs=value))
    ):
        slug = missed.cell.request.cell.slug
        yield ProofRemedy(
            name="a floor of what runs in integers",
            setting=f'executed_macs = {{ "{slug}" = {value:g} }}',
        )


def _by_acceptance(missed: Missed) -> Iterator[ProofRemedy]:
    """Predictions held to the accepted ones, without flips; or accepted at all."""
    if missed.measured.predictions == missed.healthy.measurement.predictions:
        return
    gates = [one for one in missed.healthy.verdict.gates if one.kind is GateKind.DRIFT]
    if all(one.state is GateState.INCOMPARABLE for one in gates):
        if missed.cell.is_new_class:
            return
        yield ProofRemedy(
            name="accepted results of this class",
            setting=f"accept them on {missed.measured.environment}: --qbench-accept=new",
            tried=False,
        )
        return
    allowance = replace(missed.cell.gating.rules.allowance, flips=None)
    healthy = judged_by(missed.cell, missed.healthy.measurement, allowance=allowance)
    faulty = judged_by(missed.cell, missed.measured, allowance=allowance)
    if faulty.outcome.is_red and not healthy.outcome.is_red:
        yield ProofRemedy(name="no flips", setting="leave 'flips' out, so that answers are equal")


def _by_metric(missed: Missed) -> Iterator[ProofRemedy]:
    """Another metric, with a limit between both cells."""
    has = {score.metric.partition("@")[0] for score in missed.measured.scores}
    for name in _METRICS:
        if name in has:
            continue
        shared, before = _with_metric(missed, name)
        after = None
        if before is not None:
            after = _score(faulty_request(_measuring(missed, shared), missed.placed))
        if before is None or after is None:
            continue
        value = _limit_between(before, after)
        if value is None:
            continue
        gating = missed.cell.gating
        if before.has_floor:
            gating = replace(gating, rules=replace(gating.rules, agreement=value))
            key = f"agreement = {value:g}"
        else:
            limits = {**gating.rules.limits, name: Limit(value)}
            gating = replace(gating, rules=replace(gating.rules, limits=limits))
            key = f"limits = {{ {name} = {value:g} }}"
        healthy = with_score(missed.healthy.measurement, before)
        if tells_apart(missed.cell, gating, healthy, with_score(missed.measured, after)):
            model = missed.cell.request.cell.model
            yield ProofRemedy(
                name=f"the metric {name}",
                setting=f'metrics = [..., "{name}"], {key}, model {model}',
            )
            return


def _limit_between(healthy: Score, measured: Score) -> float | None:
    if healthy.direction is Direction.LOWER:
        return nice_below(measured.value, healthy.value)
    return nice_above(measured.value, healthy.value)


def with_score(measured: Measurement, score: Score) -> Measurement:
    """``measured`` as if one more metric had been counted."""
    return replace(measured, scores=(*measured.scores, score))


def _with_metric(missed: Missed, name: str) -> tuple[SubjectArtifacts, Score | None]:
    """What cells of the metric alone share, on the main data, and its score without the fault;
    None: it is not for such answers.
    """
    kept = missed.healthy.with_metric
    if name not in kept:
        shared = missed.cell.request.shared
        subject = shared.subject
        main, data = next(iter(subject.data.items()))
        use = MetricUse(name, get_metric(name), main)
        alone = replace(subject, metrics=(use,), data={main: data})
        other = SubjectArtifacts(alone, *shared.made_with)
        kept[name] = other, _score(_measuring(missed, other))
    return kept[name]


def _measuring(missed: Missed, shared: SubjectArtifacts) -> Request:
    """The request of the cell for its answers to the data of ``shared`` alone."""
    request = missed.cell.request
    return replace(
        request,
        shared=shared,
        reference={name: request.reference[name] for name in shared.subject.data},
        comparator=None,
        asked={},
        repeats=1,
        stop=None,
        most_samples=0,
    )


def _score(request: Request) -> Score | None:
    """That of the only metric of ``request``."""
    try:
        (score,) = measure_request(request).scores
    except QbenchError:
        return None
    return score


_REMEDIES: tuple[Callable[[Missed], Iterator[ProofRemedy]], ...] = (
    _by_equality,
    _by_ranges,
    _by_executed,
    _by_agreement,
    _by_tolerance,
    _by_samples,
    _by_acceptance,
    _by_metric,
)
