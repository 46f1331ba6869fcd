"""What legitimately changes int8 results, as one comparable word: the environment class.

Two results are comparable for drift when their classes are equal: the same level of dot product and float
vector unit (by probe, not by name), the same versions of the packages a backend says it counts with, and for those the
same number of threads where there are several. The options of an engine are part of its backend's name, hence of the
cell. A suite may declare classes equivalent.
"""

import fnmatch
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

ANY = "any"
"""The class of an accepted result that every class without its own inherits."""


@dataclass(frozen=True, slots=True)
class EnvironmentClass:
    """``processor`` such as ``x64-avx512-vnni``; ``packages`` (name, version) pairs that the backend counts with."""

    processor: str
    packages: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return "+".join([self.processor, *(f"{name}-{version}" for name, version in self.packages)])

    @classmethod
    def of(cls, processor: str, packages: Mapping[str, str], *, threads: int = 1) -> "EnvironmentClass":
        """The class of results that ``packages`` (name → version) counted with so many threads.

        An engine may share out a sum among threads and add in another order; what counts without packages, our own
        interpreter, gives the same bits with any number.
        """
        several = {"threads": str(threads)} if packages and threads > 1 else {}
        return cls(processor, (*sorted(packages.items()), *several.items()))

    @classmethod
    def parse(cls, text: str) -> "EnvironmentClass":
        """The class that ``str`` wrote as ``text``."""
        processor, *parts = text.split("+")
        packages: list[tuple[str, str]] = []
        for part in parts:
            name, dash, version = part.rpartition("-")  # no version holds a dash (PEP 440, normalized)
            if dash:
                packages.append((name, version))
            elif packages:  # the local part of a version, 2.9.0+cpu
                packages[-1] = (packages[-1][0], f"{packages[-1][1]}+{part}")
        return cls(processor, tuple(packages))

    def matches(self, condition: str | tuple[str, ...] | None) -> bool:
        """Whether a ``when`` condition holds here: None always; else one of its processors or whole classes."""
        if condition is None:
            return True
        named = (condition,) if isinstance(condition, str) else condition
        return self.processor in named or str(self) in named


def are_equivalent(one: EnvironmentClass, other: EnvironmentClass, groups: Iterable[tuple[str, ...]]) -> bool:
    """Whether one of ``groups`` declares the results of both classes comparable.

    A group lists processors, whose classes are then equivalent with equal packages, or patterns of whole classes
    (``x64-*+onnxruntime-1.31.*``), all of which are.
    """
    for group in groups:
        if one.packages == other.packages and one.processor in group and other.processor in group:
            return True
        if all(any(fnmatch.fnmatchcase(str(each), pattern) for pattern in group) for each in (one, other)):
            return True
    return False
