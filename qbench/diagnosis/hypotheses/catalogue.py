"""The hypotheses in their order, and the choice of a cause."""

from collections.abc import Sequence
from contextlib import closing, nullcontext
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from qbench.diagnosis.hypotheses.arithmetic import (
    own_rules,
    pairs,
    registers,
    roundings,
    rules,
    rules_of_excess,
    tables,
    unexplained_share,
    wraps_at_end,
    zero_points,
)
from qbench.diagnosis.hypotheses.bias import biases
from qbench.diagnosis.hypotheses.clip import chains, float_limits, limits
from qbench.diagnosis.hypotheses.graph import lines, misplaced, written
from qbench.diagnosis.hypotheses.hypothesis import (
    OF_QPARAMS,
    SURE,
    Explanation,
    Hypothesis,
    NamedCause,
    UnitEvidence,
    evidence_of,
)
from qbench.diagnosis.hypotheses.layout import operand_orders, paddings, result_orders
from qbench.diagnosis.hypotheses.memory import overwritten, repeating, unread, unwritten
from qbench.diagnosis.hypotheses.range import Cost, coarse, qparams_costs, weight_costs
from qbench.diagnosis.hypotheses.scale import operand_scales, scales, stored_scales, weight_scales
from qbench.diagnosis.hypotheses.weight import single_weights
from qbench.diagnosis.units import TIE_WIDTH, Captured
from qbench.judging import Cause
from qbench.numerics import Arithmetic

LEAST = 0.5
"""The least weight with which a hypothesis is reported."""
_CLEAR = 0.95
"""The weight below which the hypotheses are also tried on the slices with differences alone."""
_LONG = 8
"""Number of values from which it is no chance that all are those of the run before."""
_CHANCE = 1e-6
"""Probability that all values that differ are at ties by chance, below which they differ by how
ties are rounded.
"""
_LOCAL = 0.95
"""Factor of the weight of an explanation that holds in some slices only."""

COUNTING = (
    Hypothesis("another result for the same inputs", repeating),
    Hypothesis("qparams inside", chains),
    Hypothesis("pairs of products", pairs),
    Hypothesis("roundings", roundings, by_element=True),
    Hypothesis("the ends of the codes", wraps_at_end, by_element=True),
    Hypothesis("operands that are overwritten", overwritten),
    Hypothesis("orders of the result", result_orders),
    Hypothesis("zero points of operands", zero_points),
    Hypothesis("biases", biases, by_element=True),
    Hypothesis("scales", scales, by_element=True),
    Hypothesis("single weights", single_weights),
    Hypothesis("scales of the weights alone", weight_scales),
    Hypothesis("scales in a shorter type", stored_scales),
    Hypothesis("a narrow accumulator", registers, by_element=True),
    Hypothesis("padding", paddings),
    Hypothesis("limits", limits, by_element=True),
    Hypothesis("rules of another arithmetic", rules),
    Hypothesis("orders of operands", operand_orders),
    Hypothesis("scales of operands", operand_scales),
    Hypothesis("elements that are not computed", unwritten),
    Hypothesis("inputs that are not read", unread),
    Hypothesis("tables", tables),
    Hypothesis("lines", lines, by_element=True),
)
"""Why an engine differs from its arithmetic; of equal weights the first is reported."""

COSTS = (
    Hypothesis("the graph that was written", written),
    Hypothesis("limits of the float graph", float_limits, by_element=True),
    Hypothesis("the arithmetic's own rules", own_rules),
    Hypothesis("the result compared with fp32", misplaced),
    Hypothesis("costs of the qparams", qparams_costs),
    Hypothesis("costs of the weights' qparams", weight_costs),
)
"""Why a graph has an error although the engine computes it by its arithmetic."""
_OF_EXCESS = (Hypothesis("the arithmetic's own rules beyond quantization", rules_of_excess),)
_MUCH = 0.2
"""Share of the squared error beyond that of quantization from which that is explained before the
cost of the qparams.
"""
_MOST_OF_IT = 0.9
"""Such a share from which a cost of the qparams is no explanation."""


def name_cause(
    captured: Captured,
    correct: Arithmetic | None,
    *,
    original: ir.Model | None = None,
) -> NamedCause:
    """The cause of the error of a unit.

    Args:
        captured: its values on a few samples.
        correct: the arithmetic that the backend declares; None: it declares none, and every
            rounding of real arithmetic is right, ties either way.
        original: the float graph that was quantized.
    """
    if captured.crash or captured.again is None:
        evidence = captured.crash or "the engine gives no result for the unit alone"
        return NamedCause(cause=Cause.CRASH, evidence=evidence, weight=1.0)
    try:
        changing = _changing(captured) or _repeated(captured)
        if changing is not None:
            return NamedCause(
                cause=changing.cause, evidence=changing.evidence, weight=changing.weight
            )
        facts, notes = evidence_of(captured, correct, original)
        with nullcontext() if facts.interior is None else closing(facts.interior):
            return _named(facts, list(notes), correct)
    except Exception as error:  # one unexpected unit must not end the localization
        return NamedCause(
            cause=None,
            evidence="its cause could not be looked for",
            notes=(_failure("its cause", "looked for", error),),
        )


def _failure(what: str, done: str, error: Exception) -> str:
    return (
        f"{what} could not be {done}: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
    )


def _named(facts: UnitEvidence, notes: list[str], correct: Arithmetic | None) -> NamedCause:
    claimed = facts.captured.errors.claimed
    if not facts.count and (claimed is None or not claimed.differing):
        counting = _tried(COUNTING[:1], facts, notes)
    elif facts.is_beyond_chance:
        counting = _of_counting(facts, notes)
    else:
        counting = _by_probes(facts, notes, correct)
    costs = [] if counting and counting[0].weight >= SURE else _tried(COSTS, facts, notes)
    if not costs or costs[0].weight < LEAST:
        rest, beyond = coarse(facts), _tried(_OF_EXCESS, facts, notes)
        coarseness = [] if rest is None else [rest]
        share = unexplained_share(facts.captured.errors)
        costs = [*beyond, *coarseness, *costs] if share >= _MUCH else [*coarseness, *beyond, *costs]
        if share >= _MOST_OF_IT and not beyond:
            costs = [one for one in costs if one.cause not in OF_QPARAMS]
    first, second = (
        (costs, counting)
        if not counting or _is_small(facts, counting, costs)
        else (counting, costs)
    )
    if not first:
        return NamedCause(
            cause=None,
            evidence="the node computes as it should; its error is that of its quantization",
            notes=tuple(notes),
        )
    one = first[0]
    others = tuple(sorted([*first[1:], *second], key=lambda other: -other.weight))
    return NamedCause(
        cause=one.cause, evidence=one.evidence, weight=one.weight, others=others, notes=tuple(notes)
    )


def _of_counting(facts: UnitEvidence, notes: list[str]) -> list[Explanation]:
    """Why ``facts`` differ from their arithmetic, the heaviest first."""
    counting = _tried(COUNTING, facts, notes)
    if (not counting or counting[0].weight < _CLEAR) and (narrow := facts.narrowed()) is not None:
        local = [
            replace(one, weight=_LOCAL * one.weight) for one in _tried(COUNTING[1:], narrow, notes)
        ]
        counting = sorted([*counting, *local], key=lambda one: -one.weight)
    return counting if counting and counting[0].weight >= LEAST else [_unnamed(facts), *counting]


def _by_probes(
    facts: UnitEvidence, notes: list[str], correct: Arithmetic | None
) -> list[Explanation]:
    """Why a few values differ: some rule always fits so few, so the unit is run on random
    inputs.
    """
    changing = [one for one in _tried(COUNTING[:1], facts, notes) if one.weight >= LEAST]
    probed = None if facts.captured.probed is None or changing else facts.captured.probed()
    if probed is None:
        return changing or ([_too_few(facts)] if facts.count else [])
    more, _ = evidence_of(probed, correct, facts.original)
    with nullcontext() if more.interior is None else closing(more.interior):
        if not more.is_beyond_chance:
            return [_too_few(facts)] if facts.count else []
        named = _of_counting(more, notes)
    return [replace(one, evidence=f"{one.evidence}, on random inputs") for one in named]


def _too_few(facts: UnitEvidence) -> Explanation:
    steps = np.abs(facts.found - facts.correct)[facts.differing]
    tied = np.abs(facts.real - np.floor(facts.real) - 0.5) <= TIE_WIDTH
    ties = int(tied[facts.differing].sum())
    right = f"'{facts.arithmetic.name}'" if facts.claimed else "real arithmetic"
    evidence = (
        f"{facts.count} of {facts.found.size} codes are not those of {right}, by {steps.max():g} "
        f"steps at most, {ties} of them at a tie: too few to name the rule"
    )
    by_chance = float(tied.mean()) ** facts.count
    is_rounding = facts.claimed and ties == facts.count and steps.max() == 1 and by_chance < _CHANCE
    cause = Cause.ROUNDING if is_rounding else Cause.WRONG_KERNEL
    return Explanation(cause=cause, evidence=evidence, weight=LEAST)


def _tried(
    hypotheses: Sequence[Hypothesis], facts: UnitEvidence, notes: list[str]
) -> list[Explanation]:
    """The explanations of all hypotheses, the heaviest first; equal ones in the order of the
    hypotheses.
    """
    found: list[Explanation] = []
    thin = facts.thinned()
    for hypothesis in hypotheses:
        try:
            one = hypothesis.explain(thin if hypothesis.by_element else facts)
        except Exception as error:  # one hypothesis that fails must not end the localization
            notes.append(_failure(hypothesis.name, "tried", error))
            continue
        if one is not None and one.weight > 0:
            found.append(one)
            if one.weight >= SURE:
                break
    return sorted(found, key=lambda one: -one.weight)


def _is_small(
    facts: UnitEvidence, counting: Sequence[Explanation], costs: Sequence[Explanation]
) -> bool:
    """Whether the engine's differences make up less than a tenth of the error, and no rule
    explains them.
    """
    cost = Cost.of(facts)
    if (
        not costs
        or cost is None
        or (counting[0].weight >= LEAST and counting[0].cause is not Cause.WRONG_KERNEL)
    ):
        return False
    share = float(((facts.found - facts.correct) ** 2).mean()) / max(cost.steps**2, 1e-30)
    return share < 0.1


def _unnamed(facts: UnitEvidence) -> Explanation:
    steps = (facts.found - facts.correct)[facts.differing]
    right = f"'{facts.arithmetic.name}'" if facts.claimed else "real arithmetic"
    evidence = (
        f"{facts.count} of {facts.found.size} codes are not those of {right}, by "
        f"{np.abs(steps).max():g} steps at "
        f"most and {steps.mean():+.2f} in the mean, and no known rule explains them"
    )
    return Explanation(cause=Cause.WRONG_KERNEL, evidence=evidence, weight=LEAST)


def _repeated(captured: Captured) -> Explanation | None:
    """The result of the first sample in the place of all others; evidence of a large value
    holds one sample only.
    """
    found, unit = captured.found, captured.unit
    if unit.qparams is None or found.ndim < 2 or len(found) < 2 or (found != found[:1]).any():
        return None
    right = unit.rounded(captured.real.reshape(found.shape))
    steps = np.abs(found - right)
    others = steps[1:].reshape(len(found) - 1, -1) > 1
    if (steps[0] > 1).any() or others.sum(axis=1).min() < _LONG:
        return None
    evidence = (
        f"all {len(found)} samples hold the result of the first one, which is right for that one "
        "alone"
    )
    return Explanation(cause=Cause.NOT_WRITTEN, evidence=evidence, weight=1.0)


def _changing(captured: Captured) -> Explanation | None:
    """Another result of the unit alone for the same inputs: values left from the run before, or
    a race.
    """
    assert captured.again is not None
    for one in captured.replays:
        first = captured.again if one.first is None else one.first
        alike = one.codes.shape == first.shape
        moved = one.codes != first if alike else np.ones(one.codes.shape, bool)
        if not moved.any():
            continue
        evidence = (
            f"{int(moved.sum())} of {moved.size} codes change from one run of the unit alone to "
            "the next"
        )
        if (
            one.before.shape == one.codes.shape
            and (one.codes == one.before)[moved].all()
            and moved.sum() > _LONG
        ):
            evidence = f"{evidence}, and hold the values of the run before"
            return Explanation(cause=Cause.NOT_WRITTEN, evidence=evidence, weight=1.0)
        return Explanation(cause=Cause.NONDETERMINISM, evidence=evidence, weight=1.0)
    return None
