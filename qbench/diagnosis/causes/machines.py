"""Sums, multipliers and roundings of another machine: the piece, counted with one rule of the arithmetic exchanged."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from qbench.diagnosis.causes.explanation import Explanation, heaviest
from qbench.diagnosis.causes.framing import counted
from qbench.diagnosis.causes.grid_costs import Cost
from qbench.diagnosis.causes.product import Product
from qbench.diagnosis.causes.scene import MOST, Floats, Scene
from qbench.diagnosis.operators.other_rules import other_rules
from qbench.judging import Cause
from qbench.numerics import Accumulator, Arithmetic, MultiplierForm, Overflow, Rounding, Scaling, Stage, held

PAIR_BITS = 16
_EXACT_BITS = 24
"""Of a multiplier: as many as float32 has; what differs then is rounding."""
_LAST = (Rounding.HALF_AWAY, Rounding.HALF_UP, Rounding.HALF_EVEN)


@dataclass(frozen=True, slots=True)
class Pairs:
    """Neighbouring products summed in 16 bits, by the interpreter's own rule."""

    name: str = "pairs of products"
    by_element: bool = False

    def explain(self, scene: Scene) -> Explanation | None:
        """Of products only; where the machine itself sums pairs, that it does not."""
        if not scene.is_product:
            return None
        own = scene.machine.accumulator
        if own.pair_bits:
            other, words = Accumulator(bits=own.bits), "summing products one by one, where the machine sums pairs,"
        else:
            other = Accumulator(bits=own.bits, overflow=own.overflow, pair_bits=PAIR_BITS)
            words = f"summing pairs of products in {PAIR_BITS} bits"
        machine = replace(scene.machine, accumulator=other, overrides=_without_accumulators(scene.machine))
        levels = counted(scene.captured, machine, scene.feeds)
        return None if levels is None else scene.weigh_levels(Cause.PAIR_SATURATION, words, levels)


@dataclass(frozen=True, slots=True)
class OwnPairs:
    """What it costs that the machine, as it claims, sums pairs in 16 bits."""

    name: str = "the machine's own pairs"
    by_element: bool = False

    def explain(self, scene: Scene) -> Explanation | None:
        """Of the error beside fp32, what is gone when products are summed one by one."""
        captured, own = scene.captured, scene.machine.accumulator
        cost = Cost.of(scene) if own.pair_bits and scene.claimed and scene.is_product else None
        if cost is None or not cost.is_high:
            return None
        machine = replace(
            scene.machine, accumulator=Accumulator(bits=own.bits), overrides=_without_accumulators(scene.machine)
        )
        levels = counted(captured, machine, captured.fed)
        if levels is None or levels.shape != cost.x.shape:
            return None
        share = 1 - float(((levels - cost.x) ** 2).sum()) / cost.error
        evidence = (
            f"'{scene.machine.name}' sums pairs of products in {own.pair_bits} bits, as it claims: without, "
            f"{share:.0%} of the error is gone"
        )
        return Explanation(cause=Cause.PAIR_SATURATION, evidence=evidence, weight=max(share, 0.0))


@dataclass(frozen=True, slots=True)
class Registers:
    """Sums that wrap or saturate in fewer bits."""

    name: str = "a narrow accumulator"
    by_element: bool = True

    def explain(self, scene: Scene) -> Explanation | None:
        """The width from the largest sum that there is downwards."""
        product = Product.of(scene)
        if product is None:
            return None
        sums = np.rint((scene.real / product.unit).astype(np.float64)).astype(np.int64)
        bias = np.rint(product.bias / product.unit).astype(np.int64) if product.bias is not None else None
        return heaviest(self._tried(scene, product, sums, bias))

    def _tried(
        self, scene: Scene, product: Product, sums: np.ndarray, bias: np.ndarray | None
    ) -> Iterator[Explanation | None]:
        widest = int(np.abs(sums).max(initial=0)).bit_length()
        for bits in range(min(widest, 31), 7, -1):
            for overflow in Overflow:
                words = f"sums that {overflow.value} in {bits} bits (the largest needs {widest + 1})"
                register = Accumulator(bits=bits, overflow=overflow)
                yield scene.weigh_reals(Cause.ACCUMULATOR, words, held(sums, register) * product.unit)
                if bias is not None:
                    behind = (held(sums - bias, register) + bias) * product.unit
                    yield scene.weigh_reals(Cause.ACCUMULATOR, f"{words}, the bias added behind,", behind)


@dataclass(frozen=True, slots=True)
class Rules:
    """Roundings, zero points, sums and averages by a rule of another machine, in every element as that gives it."""

    name: str = "rules of another machine"
    by_element: bool = False

    def explain(self, scene: Scene) -> Explanation | None:
        """Only where the backend says by which arithmetic it counts: ties are nobody's fault otherwise."""
        if not scene.claimed or scene.interior is None:
            return None
        if scene.found.size > 2 * MOST and 2 * scene.hard_count > scene.count:
            return None  # too many to count so often: no ties are at stake, so roundings of real numbers tell as much
        return heaviest(self._tried(scene, scene.interior.node.op_type, str(scene.interior.node.name)))

    def _tried(self, scene: Scene, operator: str, name: str) -> Iterator[Explanation | None]:
        own = scene.machine.at(operator, name)
        for words, other in (*other_rules(own, operator), *_twice(own)):
            cause = _cause(own, other)
            if cause is not None and (levels := counted(scene.captured, other, scene.feeds)) is not None:
                yield scene.weigh_levels(cause, words, levels)


def _twice(own: Arithmetic) -> Iterator[tuple[str, Arithmetic]]:
    """A product that is rounded behind the bits of its multiplier, and its remaining bits once more."""
    for bits, first, last in product((31, 15), (Rounding.HALF_UP, Rounding.FLOOR), _LAST):
        stages = (Stage(first, bits), Stage(last))
        scaling = Scaling(form=MultiplierForm.FIXED, bits=bits, stages=stages)
        words = f"rounding twice, '{first.value}' behind {bits} bits and then '{last.value}',"
        yield words, replace(own, scaling=scaling, multiplying=None)


def multipliers(scene: Scene, product: Product) -> Iterator[Explanation | None]:
    """What multipliers of few bits would give."""
    exact = np.asarray(product.unit, np.float64)
    fraction, exponent = np.frexp(exact)
    for bits in (*range(1, 13), 14, 15, 16):
        for rule, words in ((np.rint, "rounded to"), (np.floor, "cut to")):
            kept = np.ldexp(np.maximum(rule(np.ldexp(fraction, bits)), 1), exponent - bits)
            yield _scaled(scene, exact, kept, f"a multiplier {words} {bits} significant bits")
            steps = np.ldexp(rule(np.ldexp(exact, bits)), -bits)
            yield _scaled(scene, exact, steps, f"a multiplier {words} steps of 2^-{bits}")
    power = np.exp2(np.rint(np.log2(exact)))
    yield _scaled(scene, exact, power, "a multiplier rounded to a power of two")


def _scaled(scene: Scene, exact: Floats, kept: Floats, words: str) -> Explanation | None:
    if np.allclose(kept, exact, rtol=1e-6, atol=0) or (kept <= 0).any():  # none would give nothing at all
        return None
    return scene.weigh_reals(Cause.WRONG_SCALE, words, scene.real * (kept / exact))


def _cause(own: Arithmetic, other: Arithmetic) -> Cause | None:
    """Of the rule that was exchanged; None: another hypothesis tries it, in more ways."""
    if own.accumulator != other.accumulator:
        return None
    if own.narrow != other.narrow:
        return Cause.ABSORBED_CLIP
    coarse = other.scaling.form is MultiplierForm.FIXED and (other.scaling.bits or 0) < _EXACT_BITS
    if coarse and (own.scaling.form is not other.scaling.form or own.scaling.bits != other.scaling.bits):
        return Cause.WRONG_SCALE
    return Cause.ROUNDING


def _without_accumulators(machine: Arithmetic) -> tuple:  # type: ignore[type-arg]
    return tuple(one for one in machine.overrides if one.accumulator is None)
