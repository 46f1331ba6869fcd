"""``2/5``: the second of five machines takes the models whose name falls to it, wherever and whenever one asks.

share of a model = SHA-256 of its name, as a whole number, modulo the number of machines

A model stays whole, since its cells share samples, a profile and an fp32 run; and it stays where it is when others come
and go, so that a machine's cache keeps serving it.
"""

import hashlib
from dataclasses import dataclass

from qbench.errors import InputError


@dataclass(frozen=True, slots=True)
class Shard:
    """Share ``index`` (from 1) of ``count``; the default is everything."""

    index: int = 1
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """The share that ``text`` writes; an empty one is everything.

        Raises:
            InputError: it is not ``i/N`` with 1 ≤ i ≤ N.
        """
        if not text:
            return cls()
        index, slash, count = text.partition("/")
        if slash and index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count):
            return cls(int(index), int(count))
        raise InputError(
            f"Reading the shard '{text}'",
            found="no share",
            expected="i/N with i from 1 to N, as in 2/5",
            remedy="Mend the option.",
        )

    @property
    def text(self) -> str:
        """``2/5``; empty for everything."""
        return f"{self.index}/{self.count}" if self.count > 1 else ""

    def holds(self, model: str) -> bool:
        """Whether ``model`` falls to this share."""
        return int.from_bytes(hashlib.sha256(model.encode()).digest()) % self.count == self.index - 1
