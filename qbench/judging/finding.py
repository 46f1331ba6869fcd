"""Where a quantized cell went wrong, why, and what repairs it."""

import enum
from dataclasses import dataclass

# What one node of a quantized graph adds to its error, as plain numbers.
#
# x is what fp32 computes, y what is looked at, both (over all samples) of one value; s is the step of its grid.
#
#     sqnr_db   10 · log₁₀(Σ x² / Σ (x − y)²)             relative   √(Σ (x − y)² / Σ x²)
#     steps     √(mean (x − y)²) / s                      0.289 = 1/√12 is what ideal rounding of any x leaves

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
        cumulative: of the target's own run, everything before it included; None: the value has no counterpart in fp32.
        isolated: of the target fed with fp32 numbers, rounded to the grids in front: this node's own error.
        explained: what the grids alone cost: the fp32 operators themselves, with inputs, weights and result rounded to
            the grids of this node. What ``isolated`` has beyond is a fault of the graph or of the engine.
        unexplained: how far the isolated result is off the explained one.
        counting: the target's levels in its own run beside real arithmetic on the levels that it had there.
        claimed: the same beside the arithmetic that the target claims to count by; None: it claims none, or is that.
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


# Where a quantized cell went wrong, why, and what repairs it: text and plain numbers, which outlive the code.


class Cause(enum.Enum):
    """Why a node's numbers are off; the value is how files and reports spell it."""

    RANGE_OUTLIER = "range outlier"
    """A few large numbers stretch the grid: most values share few levels."""
    CLIPPING = "clipping"
    """The range is too narrow: many numbers lie beyond an end."""
    DEAD_RANGE = "dead range"
    """Much of the grid is never used."""
    CHANNELS_DIFFER = "channels differ"
    """One grid for channels of very different ranges."""
    BIAS_SATURATION = "bias saturation"
    """A bias beyond what its integers hold."""
    WRONG_BIAS = "wrong bias"
    """A bias that is dropped, doubled, of another channel or at another scale."""
    WRONG_SCALE = "wrong scale"
    """A multiplier or weight scale that is not this channel's, or too coarse."""
    PAIR_SATURATION = "pair saturation"
    """Neighbouring products summed in 16 bits."""
    ACCUMULATOR = "accumulator overflow"
    """A sum that wraps or saturates in its register."""
    ROUNDING = "wrong rounding or zero point"
    """Off by a step or a constant: another rounding, a zero point that is added too early, or another one."""
    ABSORBED_CLIP = "absorbed clip"
    """A limit that is gone, or another one."""
    PADDING = "wrong padding"
    """What lies beyond the edge has another value than zero, or is counted where it should not be."""
    LAYOUT = "layout or axis error"
    """Channels, weights or operands in another order."""
    NOT_WRITTEN = "elements not computed"
    """Rows, columns or channels that are skipped, or hold something older."""
    TABLE = "table resolution"
    """A function by a table that is too coarse, or off by an entry."""
    NONDETERMINISM = "non-determinism"
    """Another answer to the same input."""
    CRASH = "engine crash"
    """The engine fails on the node alone."""
    WRONG_KERNEL = "other numbers than its arithmetic"
    """The node computes something else than it claims, by none of the rules above."""
    CALIBRATION = "calibration changed"
    """Its range is another than the one that was accepted."""
    GRID = "coarse grid"
    """Nothing is wrong: the node needs more levels than it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A node and why it is suspected.

    Args:
        node: by its name in fp32. cause: the likeliest. evidence: one sentence with numbers.
        score: by which suspects are ordered, the largest first. remedy: what to do about the cause, one sentence.
    """

    node: str
    cause: Cause
    evidence: str
    score: float = 0.0
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """Nodes whose return to float restores the verdict.

    Args:
        nodes: kept in float. restores: whether the verdict was seen restored with exactly these.
        smallest: whether every smaller set that was asked for was tried and failed.
        macs_share: of all multiply-accumulates, those that leave integers. probes: how many sets were tried.
        overrides: a schema file (TOML) that keeps them in float.
        verdict: in words, before → after.
    """

    nodes: tuple[str, ...]
    restores: bool
    smallest: bool = False
    macs_share: float = 0.0
    probes: int = 0
    overrides: str = ""
    verdict: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unaligned:
    """A value of the quantized graph that has no counterpart in fp32, or cannot be compared, and why."""

    value: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What localisation found.

    Args:
        model, backend, schema: what was examined. graph: which graph of the model.
        samples: looked at. matched: how the watched run relates to the untouched engine's, in one sentence.
        nodes: every aligned value in the order of the graph. unaligned: the others.
        suspects: the likeliest first; empty: nothing exceeds what its grid explains.
        repair: None: not looked for. testcase: path of the smallest failing input, where one was saved.
        notes: what a reader should know, such as a budget that ran out. complete: whether all of it was done.
        seconds: it took.
    """

    model: str
    backend: str
    schema: str
    graph: str = "model"
    samples: int
    matched: str = ""
    nodes: tuple[NodeErrors, ...] = ()
    unaligned: tuple[Unaligned, ...] = ()
    suspects: tuple[Suspect, ...] = ()
    repair: Repair | None = None
    testcase: str = ""
    notes: tuple[str, ...] = ()
    complete: bool = True
    seconds: float = 0.0

    @property
    def headline(self) -> str:
        """One line: the first suspect and its cause, or that there is none."""
        if not self.suspects:
            return f"no node of '{self.model}' is suspected"
        first = self.suspects[0]
        return f"{first.node}: {first.cause.value}; {first.evidence}"
