"""What rewriting did to the graphs of a cell, as text and plain numbers."""

from dataclasses import dataclass

from qbench.judging.amounts import rough_percent, steps_text


@dataclass(frozen=True, slots=True, kw_only=True)
class PassNote:
    """One pass that changed something.

    Args:
        name: as the pipeline spells it. effect: what it declares (``exact``, ``rounding(1)``, ``lossy``).
        removed: nodes fewer by it, over all graphs.
        elements, differing: of the graph outputs of the first samples, compared with the same pipeline without it; 0 of
            a pass that is exact, which is not compared. steps: their largest difference in output steps; None: no
            output has a grid. relative: the largest |a − b| / max|b|.
    """

    name: str
    effect: str
    removed: int
    elements: int = 0
    differing: int = 0
    steps: float | None = None
    relative: float = 0.0

    def __str__(self) -> str:
        nodes = "1 node" if abs(self.removed) == 1 else f"{abs(self.removed)} nodes"
        did = f"{self.name} ({self.effect}): {nodes} {'more' if self.removed < 0 else 'fewer'}"
        if not self.elements:
            return did
        far = f"{rough_percent(self.relative)} of the largest" if self.steps is None else steps_text(self.steps)
        return f"{did}, moves {self.differing} of {self.elements} outputs" + (
            f" by up to {far}" if self.differing else ""
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteNote:
    """What a pipeline did to the graphs of a cell.

    Args:
        policy: under which it ran. nodes: that there were before. passes: those that changed something.
        declined: how many nodes were left alone, and passes not admitted.
        samples: that what is not exact was compared on.
    """

    policy: str
    nodes: int
    passes: tuple[PassNote, ...] = ()
    declined: int = 0
    samples: int = 0

    @property
    def removed(self) -> int:
        """Nodes fewer by all of it."""
        return sum(one.removed for one in self.passes)

    @property
    def notices(self) -> tuple[str, ...]:
        """A sentence for every pass that moved an output."""
        return tuple(f"rewritten by {one}" for one in self.passes if one.differing)
