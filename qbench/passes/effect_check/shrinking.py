"""The smallest input that still shows a mistake: fewest elements that are not zero, then the smallest numbers.

Of elements that are treated alike the smallest failing one is taken. A whole tensor is taken apart by delta debugging
(Zeller, Hildebrandt 2002): halves, quarters, … are set to zero as long as the mistake stays.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from qbench.passes.effect_check.verdicts import Array

Fails = Callable[[Mapping[str, Array]], bool]

_RUNS = 200
"""Tries at most; what is left then is as small as it gets."""
_FEW = 8
"""Elements whose numbers are made smaller, too."""

_Element = tuple[str, int]


def smallest_case(feeds: Mapping[str, Array], failing: Array, zeros: Mapping[str, float]) -> dict[str, Array]:
    """One of the ``failing`` cases along the first axis: with most inputs at zero, then nearest to it."""
    cases = np.flatnonzero(failing)
    away = {
        name: np.abs(array[cases].reshape(len(cases), -1).astype(float) - zeros[name]) for name, array in feeds.items()
    }
    count = np.sum([far.any(axis=1) for far in away.values()], axis=0)
    size = np.sum([far.sum(axis=1) for far in away.values()], axis=0)
    signs = np.sum(
        [array[cases].reshape(len(cases), -1).astype(float).sum(axis=1) < 0 for array in feeds.values()], axis=0
    )
    best = int(cases[np.lexsort((signs, size, count))[0]])
    return {name: array[best : best + 1] for name, array in feeds.items()}


def shrunk(feeds: Mapping[str, Array], zeros: Mapping[str, float], fails: Fails) -> dict[str, Array]:
    """``feeds``, which fail, with as much as possible set to ``zeros``, deterministically."""
    left = _RUNS

    def still(kept: Sequence[_Element], source: Mapping[str, Array]) -> bool:
        nonlocal left
        left -= 1
        return left >= 0 and fails(_only(source, zeros, kept))

    live = [(name, int(index)) for name, array in feeds.items() for index in np.flatnonzero(array != zeros[name])]
    live = _fewest(live, lambda kept: still(kept, feeds))
    found = _only(feeds, zeros, live)
    for name, index in live if len(live) <= _FEW else ():
        zero, number = zeros[name], float(found[name].flat[index])
        for share in (0.0, 0.125, 0.25, 0.5, 0.75):
            nearer = zero + np.sign(number - zero) * max(1.0, abs(number - zero) * share // 1)
            if np.isfinite(number) and abs(nearer - zero) < abs(number - zero):
                smaller = _with(found, name, index, nearer)
                if still(live, smaller):
                    found = smaller
                    break
    return found


def elements_of(
    feeds: Mapping[str, Array], zeros: Mapping[str, float]
) -> tuple[tuple[str, tuple[int, ...], float], ...]:
    """(input, place, number) of what is not zero; of an input of one element, always."""
    found = []
    for name, array in feeds.items():
        where = np.flatnonzero((array != zeros[name]) | (array.size == 1))
        for flat in where:
            place = tuple(map(int, np.unravel_index(int(flat), array.shape)))
            found.append((name, place, float(array.flat[int(flat)])))
    return tuple(found)


def _fewest(live: list[_Element], still: Callable[[Sequence[_Element]], bool]) -> list[_Element]:
    if still([]):
        return []
    parts = 2
    while len(live) > 1:
        size = -(-len(live) // parts)
        chunks = [live[start : start + size] for start in range(0, len(live), size)]
        without = ([one for chunk in chunks if chunk is not out for one in chunk] for out in chunks)
        smaller = next((kept for kept in (*chunks, *without) if len(kept) < len(live) and still(kept)), None)
        if smaller is not None:
            live, parts = smaller, 2
        elif size == 1:
            break
        else:
            parts = min(parts * 2, len(live))
    return live


def _only(feeds: Mapping[str, Array], zeros: Mapping[str, float], kept: Sequence[_Element]) -> dict[str, Array]:
    found = {name: np.full_like(array, zeros[name]) for name, array in feeds.items()}
    for name, index in kept:
        found[name].flat[index] = feeds[name].flat[index]
    return found


def _with(feeds: Mapping[str, Array], name: str, index: int, number: float) -> dict[str, Array]:
    copy = feeds[name].copy()
    copy.flat[index] = number
    return {**feeds, name: copy}
