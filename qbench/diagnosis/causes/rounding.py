"""Roundings, constants and zero points: levels that another rule makes of the same real numbers.

A number within 10⁻⁴ of halfway between two levels is taken for a tie: float32 knows no better.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from qbench.diagnosis.causes.explanation import Explanation, heaviest
from qbench.diagnosis.causes.scene import Floats, Scene
from qbench.judging import Cause

_TIE = 1e-4
_RULES: Mapping[str, Callable[[Floats], Floats]] = MappingProxyType(
    {
        "half up": lambda t: np.floor(t + 0.5),
        "half away from zero": lambda t: np.copysign(np.floor(np.abs(t) + 0.5), t),
        "truncation": np.trunc,
        "rounding down": np.floor,
        "rounding up": np.ceil,
        "half to even": np.rint,
        "half down": lambda t: np.ceil(t - 0.5),
    }
)


@dataclass(frozen=True, slots=True)
class Roundings:
    """Every rule, before and behind the zero point, once or twice; and a constant that is added to all levels."""

    name: str = "roundings"
    by_element: bool = True

    def explain(self, scene: Scene) -> Explanation | None:
        """Of levels only: a real result is not rounded."""
        return None if scene.captured.unit.grid is None else heaviest(self._tried(scene))

    def _tried(self, scene: Scene) -> Iterator[Explanation | None]:
        grid = scene.captured.unit.grid
        zero = 0 if grid is None else int(grid.zero_point)
        snapped, cause = _snapped(scene.real), Cause.ROUNDING
        yield _constant(scene, zero)
        for words, rule in _RULES.items():
            yield scene.weigh_levels(cause, words, _moved(scene, rule(snapped)))
            if zero:
                early = rule(snapped + zero) - zero
                yield scene.weigh_levels(cause, f"{words} behind the zero point", _moved(scene, early))
        for bits in range(1, 5):
            for words in ("half up", "half to even", "truncation"):
                twice = np.floor(_RULES[words](_snapped(scene.real * 2**bits)) / 2**bits + 0.5)
                said = f"rounding twice, first by {words} to {bits} more bits,"
                yield scene.weigh_levels(cause, said, _moved(scene, twice))


@dataclass(frozen=True, slots=True)
class ZeroPoints:
    """The zero point of an operand that is left out, or another one."""

    name: str = "zero points of operands"
    by_element: bool = False

    def explain(self, scene: Scene) -> Explanation | None:
        """One step more in an operand moves the result by R; the zero point is off by the δ that fits best."""
        return heaviest(self._tried(scene))

    def _tried(self, scene: Scene) -> Iterator[Explanation | None]:
        inner = scene.interior
        if inner is None:
            return
        for name, one in inner.operands.items():
            if one.grid is None or np.size(one.grid.scale) != 1 or one.grid.qtype.bits > 16:
                continue
            scale, zero = float(one.grid.scale), int(one.grid.zero_point)
            if not scene.is_product:
                if zero:
                    moved = inner.run({**scene.operands, name: scene.operands[name] + np.float32(scale * zero)})
                    yield scene.weigh_reals(Cause.ROUNDING, f"zero point {zero} of '{name}' left out", moved)
                continue
            response = inner.run({**scene.operands, name: scene.operands[name] + np.float32(scale)}) - scene.real
            inside = scene.inside & (response != 0)
            if not inside.any():
                continue
            step = solved(scene, response)
            for off in dict.fromkeys((zero, round(step))):
                if off:
                    words = f"zero point {zero - off} in place of {zero} for '{name}'"
                    yield scene.weigh_reals(Cause.ROUNDING, words, scene.real + off * response)


def solved(scene: Scene, response: Floats) -> float:
    """By how many times ``response`` the found levels are off, by least squares where nothing is clamped."""
    inside = scene.inside & np.isfinite(response)
    energy = float((response[inside] ** 2).sum())
    return float(((scene.found - scene.real) * response)[inside].sum()) / energy if energy else 0.0


def _constant(scene: Scene, zero: int) -> Explanation | None:
    off = (scene.found - scene.healthy)[scene.differing & (scene.found > scene.lowest) & (scene.found < scene.highest)]
    if not off.size:
        return None
    values, counts = np.unique(off, return_counts=True)
    step = float(values[counts.argmax()])
    words = f"{step:+.0f} on every level"
    if zero and step == -zero:
        words = f"a zero point of {zero} that is not added"
    elif zero and step == zero:
        words = f"a zero point of {zero} that is added twice"
    behind = scene.weigh_levels(Cause.ROUNDING, words, scene.rounded(scene.healthy + step))
    clamped = (scene.healthy <= scene.lowest) | (scene.healthy >= scene.highest)
    free = np.where(clamped & np.isfinite(scene.real), np.rint(scene.real), scene.healthy)
    before = scene.weigh_levels(Cause.ROUNDING, f"{words}, in front of its limits,", scene.rounded(free + step))
    return heaviest((behind, before))


def _moved(scene: Scene, rounded: Floats) -> Floats:
    """What the machine has, moved as the rule moves real arithmetic's."""
    return scene.rounded(np.where(scene.differing, rounded, scene.healthy + rounded - np.rint(_snapped(scene.real))))


def _snapped(real: Floats) -> Floats:
    half = np.floor(real) + 0.5
    return np.where(np.abs(real - half) < _TIE, half, real)
