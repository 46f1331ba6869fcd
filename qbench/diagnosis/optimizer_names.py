"""Which optimizers of ONNX Runtime we know by name (``optimizer_names.toml``), and how they agree with a session's."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from qbench.backends import SessionOptimizer
from qbench.storage import read_toml, value_from_table

_FILE = Path(__file__).with_suffix(".toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownOptimizers:
    """The optimizers of one version.

    Args:
        version: of onnxruntime. levels: level → names, in the engine's order.
        rules: transformer → the rules in it, each of which has a name that can be left out but no line in the log.
        conditional: those that only some processors or options have.
    """

    version: str
    levels: Mapping[str, tuple[str, ...]]
    rules: Mapping[str, tuple[str, ...]]
    conditional: tuple[str, ...]

    def unknown(self, found: Iterable[SessionOptimizer]) -> tuple[str, ...]:
        """Those of a session that stand in no level here, in its order."""
        known = {name for names in self.levels.values() for name in names}
        return tuple(dict.fromkeys(one.name for one in found if one.name not in known))

    def missing(self, found: Iterable[SessionOptimizer]) -> tuple[str, ...]:
        """Those of the levels that a session reached which it lacks, conditional ones aside."""
        found = tuple(found)
        names, reached = {one.name for one in found}, {str(one.level) for one in found}
        wanted = (name for level in reached for name in self.levels.get(level, ()))
        return tuple(sorted(set(wanted) - names - set(self.conditional)))


def known_optimizers() -> KnownOptimizers:
    """The table of this installation."""
    return value_from_table(KnownOptimizers, read_toml(_FILE), f"'{_FILE.name}'")
