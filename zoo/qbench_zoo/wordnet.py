"""The nouns of WordNet 3.0: each synset with its class, its first word and its definition.

    data.noun    offset class kind count word id … | definition; "example"; "another"
                 a line a synset

Source: WordNet's wndb(5WN) and lexnames(5WN).
"""

import functools
from dataclasses import dataclass

from qbench.errors import UnavailableError
from qbench.subjects import open_member
from qbench_zoo.packages import WORDNET

FIELDS = (
    *(
        "tops",
        "act",
        "animal",
        "artifact",
        "attribute",
        "body",
        "cognition",
        "communication",
        "event",
        "feeling",
        "food",
    ),
    *(
        "group",
        "location",
        "motive",
        "object",
        "person",
        "phenomenon",
        "plant",
        "possession",
        "process",
        "quantity",
    ),
    *("relation", "shape", "state", "substance", "time"),
)
"""The classes of nouns, in the order of the file numbers from 3 on."""

_FIRST = 3
_SYNSETS = 82_115


@dataclass(frozen=True, slots=True)
class Gloss:
    """One synset: its offset in the file, its class (a place in ``FIELDS``), its first word,
    and its definition.
    """

    offset: str
    field: int
    word: str
    definition: str


@functools.cache
def nouns() -> tuple[Gloss, ...]:
    """All 82,115 synsets in the order of the file.

    Raises:
        UnavailableError: the file holds another number of them, or a line that is none.
    """
    text = open_member(WORDNET, "usr/share/wordnet/data.noun").decode("utf-8")
    found = tuple(read_gloss(line) for line in text.splitlines() if not line.startswith(" "))
    if len(found) != _SYNSETS:
        raise UnavailableError(
            "Reading WordNet's nouns",
            found=f"{len(found)} synsets",
            expected=f"{_SYNSETS:,}, as of version 3.0",
            remedy="Pin the package that has them.",
        )
    return found


def read_gloss(line: str) -> Gloss:
    """The synset in ``line``.

    Raises:
        UnavailableError: it is no line of a data file.
    """
    front, bar, gloss = line.partition(" | ")
    parts = front.split()
    if (
        not bar
        or len(parts) < 5
        or not parts[1].isdigit()
        or not 0 <= int(parts[1]) - _FIRST < len(FIELDS)
    ):
        raise UnavailableError(
            "Reading WordNet's nouns",
            found=f"the line '{line[:40]}'",
            expected="offset, class, kind, count and words, a bar and a definition",
            remedy="Pin the package that has them.",
        )
    definition = gloss.partition('; "')[0].strip()
    return Gloss(parts[0], int(parts[1]) - _FIRST, parts[4].replace("_", " "), definition)
