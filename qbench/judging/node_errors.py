"""What one node of a quantized graph adds to its error, as plain numbers.

x is what fp32 computes, y what is looked at, both (over all samples) of one value; s is the step of its grid.

    sqnr_db   10 · log₁₀(Σ x² / Σ (x − y)²)             relative   √(Σ (x − y)² / Σ x²)
    steps     √(mean (x − y)²) / s                      0.289 = 1/√12 is what ideal rounding of any x leaves
"""

from dataclasses import dataclass

IDEAL_STEPS = 0.288675134594813
"""Root mean square, in steps, of rounding to the nearest of evenly spread numbers: 1/√12."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """How far one value is from another: ``sqnr_db`` within ±150, ``relative`` as a share, ``steps`` as rms.

    ``steps`` is None where the value has no grid.
    """

    sqnr_db: float
    relative: float
    steps: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CountingErrors:
    """Levels of an engine beside those of real arithmetic, rounded, on the same levels in front.

    Args:
        elements: compared. differing: unequal ones. ties: of these, by one step where the real number lies halfway.
        beyond: unequal by more than one step. rms_steps, largest_steps: of the differences.
        mean_steps: engine less real: not 0 where an engine rounds to one side.
    """

    elements: int = 0
    differing: int = 0
    ties: int = 0
    beyond: int = 0
    rms_steps: float = 0.0
    largest_steps: float = 0.0
    mean_steps: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeErrors:
    """One value on a grid (or a real output), and the operators that make it out of the values on grids before it.

    Args:
        node: the operator, by the name that it has in fp32. operators: all of them, in order. value: the fp32 value.
        levels: what the quantized graph calls its levels, which are nobody else's; empty in older records.
        macs: multiply-accumulates of one sample. elements: of the value, over all samples.
        cumulative: of the patient's own run, everything before it included; None: the value has no counterpart in fp32.
        isolated: of the patient fed with fp32 numbers, rounded to the grids in front: this node's own error.
        explained: what the grids alone cost: the fp32 operators themselves, with inputs, weights and result rounded to
            the grids of this node. What ``isolated`` has beyond is a fault of the graph or of the engine.
        unexplained: how far the isolated result is off the explained one.
        counting: the patient's levels in its own run beside real arithmetic on the levels that it had there.
        claimed: the same beside the arithmetic that the patient claims to count by; None: it claims none, or is that.
        clipped_low, clipped_high: shares of fp32's numbers beyond either end of the grid.
        ties: share of the values whose real number lies halfway between two levels.
        gain_db: what the graph's outputs gain in SQNR when this node alone is kept in float; None: not tried.
    """

    node: str
    operators: tuple[str, ...]
    value: str
    levels: str = ""
    macs: int = 0
    elements: int = 0
    cumulative: Errors | None = None
    isolated: Errors | None = None
    explained: Errors | None = None
    unexplained: Errors | None = None
    counting: CountingErrors | None = None
    claimed: CountingErrors | None = None
    clipped_low: float = 0.0
    clipped_high: float = 0.0
    ties: float = 0.0
    gain_db: float | None = None
