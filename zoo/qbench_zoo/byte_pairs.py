"""Text as byte pairs: which pairs are merged is learned from a text, and a text is cut by them.

    a text → pieces: a word, a number or signs with the space in front of them, or white space
    a piece → its UTF-8 bytes → while some neighbours are a known pair, the pair of the lowest rank
    becomes one token

Token b < 256 is the byte b, token 256 + r the pair of rank r. Source: Sennrich, Haddow and Birch,
Neural Machine Translation of Rare Words with Subword Units (2016), section 3.2; on bytes as in
Radford et al., GPT-2 (2019), section 2.2.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

BYTES = 256
_PIECES = re.compile(r" ?[^\W\d_]+| ?\d+| ?[^\s\w]+|\s+|.")

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class BytePairMerges:
    """A vocabulary of 256 bytes and of ``merges``, the pairs by rank."""

    merges: tuple[Pair, ...]
    _ranks: Mapping[Pair, int] = field(init=False, repr=False)
    _known: dict[str, tuple[int, ...]] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        for rank, pair in enumerate(self.merges):
            if not all(0 <= token < BYTES + rank for token in pair):
                raise ValueError(f"the pair {pair} of rank {rank} names a token behind it")
        object.__setattr__(self, "_ranks", {pair: rank for rank, pair in enumerate(self.merges)})

    @property
    def size(self) -> int:
        """Tokens of the vocabulary."""
        return BYTES + len(self.merges)

    def encode(self, text: str) -> list[int]:
        """The tokens of ``text``."""
        return [token for piece in _PIECES.findall(text) for token in self._cut(piece)]

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of ``tokens``; bytes that are not UTF-8 become U+FFFD."""
        return b"".join(map(self.bytes_of, tokens)).decode("utf-8", errors="replace")

    def bytes_of(self, token: int) -> bytes:
        """What ``token`` stands for."""
        if token < BYTES:
            return bytes([token])
        first, second = self.merges[token - BYTES]
        return self.bytes_of(first) + self.bytes_of(second)

    def _cut(self, piece: str) -> tuple[int, ...]:
        if piece not in self._known:
            tokens = tuple(piece.encode("utf-8"))
            while True:
                pairs = list(pairwise(tokens))
                best = min(
                    pairs, key=lambda pair: self._ranks.get(pair, len(self._ranks)), default=None
                )
                if best is None or best not in self._ranks:
                    break
                tokens = _merged(tokens, best, BYTES + self._ranks[best])
            self._known[piece] = tokens
        return self._known[piece]


def _merged(tokens: tuple[int, ...], pair: Pair, token: int) -> tuple[int, ...]:
    """``tokens`` with every ``pair``, from the left, as one ``token``."""
    found: list[int] = []
    place = 0
    while place < len(tokens):
        is_pair = tokens[place : place + 2] == pair
        found.append(token if is_pair else tokens[place])
        place += 2 if is_pair else 1
    return tuple(found)


def learn_merges(texts: Iterable[str], count: int) -> BytePairMerges:
    """The ``count`` pairs that are most frequent, each after those before it were merged; of
    equally frequent ones the lowest.
    """
    pieces = Counter(piece for text in texts for piece in _PIECES.findall(text))
    words = [tuple(piece.encode("utf-8")) for piece in pieces]
    weights = list(pieces.values())
    counts: Counter[Pair] = Counter()
    places: defaultdict[Pair, set[int]] = defaultdict(set)
    for index, word in enumerate(words):
        for pair in pairwise(word):
            counts[pair] += weights[index]
            places[pair].add(index)
    merges: list[Pair] = []
    while len(merges) < count:
        best = max(counts, key=lambda pair: (counts[pair], -pair[0], -pair[1]))
        for index in list(places[best]):
            for pair in pairwise(words[index]):
                counts[pair] -= weights[index]
                places[pair].discard(index)
            words[index] = _merged(words[index], best, BYTES + len(merges))
            for pair in pairwise(words[index]):
                counts[pair] += weights[index]
                places[pair].add(index)
        merges.append(best)
        del counts[best], places[best]
    return BytePairMerges(tuple(merges))
