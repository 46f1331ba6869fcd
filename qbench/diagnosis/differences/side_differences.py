"""What differs between two sides: plain numbers and words."""

from dataclasses import dataclass, field

from qbench.judging import Unaligned
from qbench.metrics import Differences


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDifference:
    """One value that both sides have.

    Args:
        node: the operator by its name in fp32. value: the fp32 value. same_grid: whether levels were compared.
        elements: compared. differing: levels that are not equal; on two grids reals further apart than a step of the
            coarser one; of two real values those apart by more than what the order of float32 sums moves.
        largest: difference in steps of the coarser grid; None: neither has one.
        sqnr_db, relative: of the right side beside the left one, in reals.
    """

    node: str
    value: str
    same_grid: bool
    elements: int
    differing: int
    largest: float | None
    sqnr_db: float
    relative: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SideDifferences:
    """Two sides on the same samples.

    Args:
        left, right: their names. samples: that both ran. outputs: what differs between their untouched outputs.
        flips: samples whose largest output lies elsewhere; None: outputs are no scores of classes.
        nodes: values that both have, in the order of the left graph. unaligned: the others, with reasons.
        how: a sentence a side: where its values come from, and how its outputs relate to the untouched ones.
    """

    left: str
    right: str
    samples: int = 0
    outputs: Differences = field(default_factory=Differences)
    flips: int | None = None
    nodes: tuple[NodeDifference, ...] = ()
    unaligned: tuple[Unaligned, ...] = ()
    how: tuple[str, ...] = ()

    @property
    def first(self) -> NodeDifference | None:
        """The first value, along the left graph, that differs."""
        return next((node for node in self.nodes if node.differing), None)

    @property
    def are_equal(self) -> bool:
        """Whether no output differs, in no bit of its value."""
        return not self.outputs.differing
