"""Token ids → text, where tokens are pieces of UTF-8 as GPT-2 cuts it; nothing here cuts.

In the vocabulary every byte is written as one visible character: itself where it is visible in Latin-1, else one of
those from U+0100 on, in order; so a space is Ġ.
Source: Radford et al., GPT-2 (2019), ``encoder.py``: ``bytes_to_unicode``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qbench.errors import InputError


@dataclass(frozen=True, slots=True, eq=False)
class BytePairs:
    """A vocabulary, id → piece; ids from ``special`` on are no text."""

    pieces: tuple[str, ...]
    special: int

    @staticmethod
    def of(text: str, special: str) -> "BytePairs":
        """The vocabulary in ``text``, a piece a line; ids count the lines.

        Args:
            special: the first piece that is no text.

        Raises:
            InputError: there is no such piece.
        """
        pieces = tuple(text.removesuffix("\n").split("\n"))
        if special not in pieces:
            raise InputError(
                "Reading a vocabulary of byte pairs",
                found=f"{len(pieces)} pieces, none of them '{special}'",
                expected="that piece behind those that are text",
                remedy="Use the vocabulary that belongs to the network.",
            )
        return BytePairs(pieces, pieces.index(special))

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ``ids``; bytes that are no UTF-8 become U+FFFD."""
        written = bytes(_BYTES[letter] for index in ids if index < self.special for letter in self.pieces[index])
        return written.decode("utf-8", errors="replace")


def _letters() -> Mapping[str, int]:
    visible = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(0x100 + place): byte for place, byte in enumerate(others)}


_BYTES = _letters()
