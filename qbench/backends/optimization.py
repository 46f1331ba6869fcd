"""What ONNX Runtime may rewrite of a graph before it runs: how far it goes, and which optimizers it leaves out."""

import enum
from dataclasses import dataclass
from pathlib import Path


class Level(enum.Enum):
    """Each level holds those above it here (``GraphOptimizationLevel`` of ONNX Runtime)."""

    NONE = "none"
    BASIC = "basic"
    EXTENDED = "extended"
    LAYOUT = "layout"
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimization:
    """The rewriting of one session.

    Args:
        level: how far it goes.
        without: optimizers and rules that are left out, by the engine's own names; it passes over names it does not
            know without a word (``session_optimizers`` says which it has).
        kept: the file where the rewritten graph is left; None: nowhere.
        told: whether the engine says on standard error what each optimizer did.
    """

    level: Level = Level.ALL
    without: frozenset[str] = frozenset()
    kept: Path | None = None
    told: bool = False
