"""Text → the word pieces of BERT: small letters without accents, words and signs apart, each cut greedily.

    "Rowing boats." → rowing | boats | . → [CLS] rowing boats . [SEP]        a piece that continues a word is ##piece

Source: Devlin et al., BERT (2018), and its ``tokenization.py``: text is normalized to NFD, marks are dropped, control
characters too, and a word of which some piece is not in the vocabulary becomes [UNK] as a whole. Ideographs, which BERT
sets apart, stay together here.
"""

import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

UNKNOWN, START, END = "[UNK]", "[CLS]", "[SEP]"
_LONGEST = 100
"""Letters of a word above which it is unknown."""


@dataclass(frozen=True, slots=True, eq=False)
class WordPieces:
    """A vocabulary, piece → id."""

    vocabulary: Mapping[str, int]

    @staticmethod
    def of(text: str) -> "WordPieces":
        """The vocabulary in ``text``, a piece a line; ids count the lines."""
        return WordPieces({piece: index for index, piece in enumerate(text.splitlines())})

    def encode(self, text: str, longest: int) -> list[int]:
        """The ids of ``text`` between start and end, at most ``longest`` with these."""
        ids = [self.vocabulary[piece] for word in split_words(text) for piece in self._pieces(word)]
        return [self.vocabulary[START], *ids[: longest - 2], self.vocabulary[END]]

    def _pieces(self, word: str) -> list[str]:
        pieces: list[str] = []
        start = 0
        while start < len(word):
            prefix = "##" if start else ""
            ends = range(len(word), start, -1)
            found = next((end for end in ends if prefix + word[start:end] in self.vocabulary), None)
            if found is None or len(word) > _LONGEST:
                return [UNKNOWN]
            pieces.append(prefix + word[start:found])
            start = found
        return pieces


def split_words(text: str) -> Iterator[str]:
    """The words and signs of ``text``, in small letters without accents."""
    word = ""
    for letter in unicodedata.normalize("NFD", text.lower()):
        category = unicodedata.category(letter)
        space = letter.isspace() and (category != "Cc" or letter in "\t\n\r")  # other controls vanish
        if space or _is_sign(letter, category):
            if word:
                yield word
            word = ""
            if not space:
                yield letter
        elif category != "Mn" and not category.startswith("C"):
            word += letter
    if word:
        yield word


def _is_sign(letter: str, category: str) -> bool:
    """Punctuation by Unicode, and every other visible ASCII character that is no letter or digit."""
    return category.startswith("P") or ("!" <= letter <= "~" and not letter.isalnum())
