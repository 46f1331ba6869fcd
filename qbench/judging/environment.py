"""What legitimately changes int8 results, as one comparable word: the environment class.

Two results are comparable for drift when their classes are equal: the same level of dot product and float
vector unit (by probe, not by name), and the same versions of the packages a backend says it counts with. The
options of an engine are part of its backend's name, hence of the cell.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EnvironmentClass:
    """``processor`` such as ``x64-avx512-vnni``; ``packages`` (name, version) pairs that the backend counts with."""

    processor: str
    packages: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return "+".join([self.processor, *(f"{name}-{version}" for name, version in self.packages)])

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
