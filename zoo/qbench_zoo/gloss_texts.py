"""WordNet's definitions of nouns as running text, in documents of 32 neighbours.

    document d = the lines "word: definition" of the synsets 32·d … 32·d + 31, in the file's order
    d mod 16 = 0: scored      d mod 16 = 8: calibrates      else: trains the decoder

Neighbours in the file are of one class and often of one meaning, so that the windows of a document
are not independent of each other: the document is the source of each.
"""

import functools
from collections.abc import Sequence

from qbench_zoo.wordnet import nouns

TOGETHER = 32
"""Synsets of a document."""
_ROUND, _CALIBRATION = 16, 8


@functools.cache
def documents() -> tuple[str, ...]:
    """All documents, in the file's order; the synsets at the end that do not fill one are left out.

    Raises:
        UnavailableError: WordNet cannot be read.
    """
    lines = [f"{gloss.word}: {gloss.definition}\n" for gloss in nouns()]
    return tuple(
        "".join(lines[start : start + TOGETHER])
        for start in range(0, len(lines) - TOGETHER + 1, TOGETHER)
    )


def scored_documents() -> Sequence[int]:
    """Numbers of the documents that are scored."""
    return range(0, len(documents()), _ROUND)


def calibration_documents() -> Sequence[int]:
    """Numbers of those that calibrate."""
    return range(_CALIBRATION, len(documents()), _ROUND)


def training_documents() -> Sequence[int]:
    """Numbers of those that train."""
    apart = {*scored_documents(), *calibration_documents()}
    return [number for number in range(len(documents())) if number not in apart]
