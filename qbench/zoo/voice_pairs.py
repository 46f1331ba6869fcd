"""Whether two windows are of one voice: the windows of ``voices`` in pairs, as many like as unlike.

A group is all pairs within one voice, or between two, in the order of their windows, p₀ … p₍ₘ₋₁₎; taken are p at
i·q mod m, i < n, where q is the least number from m/1.618 on that shares no divisor with m: pairs evenly apart, and
windows too. n is 162 for each of the five voices, whose pairs are alike, and 90 for nine couples of voices. The tenth
couple is left out: the English and the Spanish voice are one speaker in two languages, so that their pairs are not
unlike, and to the encoder they are no nearer than strangers (a median cosine of 0.67).
"""

import functools
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

from qbench.zoo.dataset import Dataset
from qbench.zoo.model import ZooModel
from qbench.zoo.speech_pair import SPEECH_PAIR, SpeechPair
from qbench.zoo.tasks import Verification
from qbench.zoo.voices import resemblyzer, voices, voices_calibration

LIKE, UNLIKE = 162, 90
"""Pairs of one voice, and of a couple of voices: 5 · 162 = 9 · 90."""

ONE_SPEAKER = frozenset({0, 1})
"""The English and the Spanish voice."""

_GOLDEN = 1.618
"""Multiples of its inverse, modulo 1, are as evenly apart as any (Knuth, vol. 3, section 6.4, theorem S)."""

Pair = tuple[int, int]


def resemblyzer_verification() -> ZooModel:
    """The voice encoder, asked whether two windows are of one voice."""
    encoder = resemblyzer()
    return ZooModel(
        id="resemblyzer_verification",
        graphs=encoder.graphs,
        preprocess=SpeechPair(),
        task=Verification(input="mel", output="embedding"),
        origin=encoder.origin,
    )


def voice_pairs() -> Dataset:
    """810 like and 810 unlike pairs of the 200 windows of ``voices``."""
    windows = voices()
    return _dataset("voice_pairs", windows, chosen_pairs(_voices_of(windows)))


def voice_pairs_calibration() -> Dataset:
    """60 pairs that hold each of the 120 windows of ``voices_calibration`` once, neighbours: all are alike."""
    windows = voices_calibration()
    return _dataset("voice_pairs_calibration", windows, [(i, i + 1) for i in range(0, len(windows), 2)])


def chosen_pairs(of: Sequence[int]) -> list[Pair]:
    """Pairs of places in ``of``, the voice of each window: the like ones voice by voice, then the unlike ones."""
    places = {voice: [i for i, one in enumerate(of) if one == voice] for voice in sorted(set(of))}
    within = [_apart(itertools.combinations(mine, 2), LIKE) for mine in places.values()]
    between = [
        _apart(itertools.product(places[a], places[b]), UNLIKE)
        for a, b in itertools.combinations(places, 2)
        if {a, b} != ONE_SPEAKER
    ]
    return [pair for group in (*within, *between) for pair in group]


def _apart(pairs: Iterable[Pair], count: int) -> list[Pair]:
    every = list(pairs)
    step = next(q for q in itertools.count(int(len(every) / _GOLDEN)) if math.gcd(q, len(every)) == 1)
    return [every[i * step % len(every)] for i in range(count)]


def _voices_of(windows: Dataset) -> list[int]:
    assert windows.labels is not None
    return [label[0] for label in windows.labels]


def _dataset(name: str, windows: Dataset, pairs: Sequence[Pair]) -> Dataset:
    of, ids = _voices_of(windows), windows.sample_ids
    names = tuple(f"{ids[a]}~{ids[b]}" for a, b in pairs)
    window = functools.cache(windows.load)  # it stands in 16 pairs

    def load(index: int) -> tuple[Any, Any]:
        first, second = pairs[index]
        return window(first), window(second)

    return Dataset(
        id=name,
        kind=SPEECH_PAIR,
        sample_ids=names,
        sources=names,
        labels=tuple((int(of[a] == of[b]),) for a, b in pairs),
        content=windows.content,
        load=load,
    )
