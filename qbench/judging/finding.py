"""Where a quantized cell went wrong, why, and what repairs it."""

import enum
from dataclasses import dataclass

from qbench.judging.distribution import ValueDistribution

# The errors of one node of a quantized graph, as plain numbers.
#
# x is a value as fp32 computes it, y the same value in the examined run, over all samples; s is the
# scale of its qparams.
#
#     sqnr_db   10 · log₁₀(Σ x² / Σ (x − y)²)        relative   √(Σ (x − y)² / Σ x²)
#     steps     √(mean (x − y)²) / s                 0.289 = 1/√12 is what ideal rounding of any x
#                                                    leaves

IDEAL_STEPS = 0.288675134594813
"""Root mean square, in steps, of rounding to the nearest of evenly spread numbers: 1/√12."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """How far one value is from another: ``sqnr_db`` within ±150, ``relative`` as a share,
    ``steps`` as rms.

    ``steps`` is None where the value has no qparams.
    """

    sqnr_db: float
    relative: float
    steps: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CountingErrors:
    """Quantized values of an engine compared with rounded real arithmetic on the same quantized
    inputs.

    Args:
        elements: compared.
        differing: unequal ones.
        ties: of these, by one step where the real number lies halfway.
        beyond: unequal by more than one step. rms_steps, largest_steps: of the differences.
        mean_steps: engine minus real; not 0 where an engine rounds to one side.
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
    """One quantized value (or a real output), and the operators that make it from the quantized
    values before it.

    Args:
        node: the operator, by the name that it has in fp32.
        operators: all of them, in order.
        value: the fp32 value.
        codes: the unique name of the quantized value in the quantized graph; empty in older
            records.
        macs: multiply-accumulates of one sample.
        elements: of the value, over all samples.
        cumulative: error in the whole run, with the errors of all nodes before it; None: no
            counterpart in fp32.
        isolated: error of the target on fp32 inputs, quantized as its inputs are: this node's own
            error.
        explained: error of the fp32 operators with inputs, weights and result quantized as in this
            node. An ``isolated`` error beyond it is a fault of the graph or of the engine.
        unexplained: difference of the isolated result from the explained one.
        counting: the quantized values of the run compared with real arithmetic on the same
            quantized inputs.
        claimed: the same, compared with the arithmetic that the target declares; None: it declares
            none, or is that.
        clipped_low, clipped_high: shares of the fp32 values below and above the quantized range.
        clipped_weights: share of the fp32 weights that lie beyond the range of their codes by more
            than a step.
        ties: share of the values whose real number lies halfway between two quantized values.
        gain_db: what the graph's outputs gain in SQNR when only this node is kept in float; None:
            not tried.
    """

    node: str
    operators: tuple[str, ...]
    value: str
    levels: str = ""  # stored name
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
    clipped_weights: float = 0.0
    ties: float = 0.0
    gain_db: float | None = None

    @property
    def codes(self) -> str:
        """The name of the quantized value, which stored findings have by another key."""
        return self.levels  # stored name


class Cause(enum.Enum):
    """Why the numbers of a node are wrong; the value is the spelling in files and reports."""

    RANGE_OUTLIER = "range outlier"
    """A few large numbers widen the range: most values share few quantized values."""
    CLIPPING = "clipping"
    """The range is too narrow: many numbers are beyond an end."""
    DEAD_RANGE = "dead range"
    """Much of the quantized range is never used."""
    CHANNELS_DIFFER = "channels differ"
    """One scale for channels of very different ranges."""
    BIAS_SATURATION = "bias saturation"
    """A bias beyond the range of its integers."""
    WRONG_BIAS = "wrong bias"
    """A bias that is dropped, doubled, of another channel or at another scale."""
    WRONG_SCALE = "wrong scale"
    """A multiplier or weight scale that is not this channel's, or too coarse."""
    PAIR_SATURATION = "pair saturation"
    """Neighbouring products summed in 16 bits."""
    ACCUMULATOR = "accumulator overflow"
    """A sum that wraps or saturates in its register."""
    ROUNDING = "wrong rounding or zero point"
    """Off by a step or a constant: another rounding, a zero point that is added too early, or
    another one.
    """
    ABSORBED_CLIP = "absorbed clip"
    """A limit of a clip that is missing, or another one."""
    PADDING = "wrong padding"
    """Padded elements have another value than zero, or are counted where they should not be."""
    LAYOUT = "layout or axis error"
    """Channels, weights or operands in another order."""
    NOT_WRITTEN = "elements not computed"
    """Rows, columns or channels that are skipped, or have older values."""
    TABLE = "table resolution"
    """A function by a table that is too coarse, or read one entry too far."""
    NONDETERMINISM = "non-determinism"
    """Different results for the same input."""
    CRASH = "engine crash"
    """The engine fails on the node alone."""
    WRONG_KERNEL = "other numbers than its arithmetic"
    """The node differs from its declared arithmetic, by none of the causes above."""
    WRONG_GRAPH = "other graph than fp32's"
    """It is computed as its arithmetic says, and the graph computes something else than fp32's:
    a pass or a writer.
    """
    IN_FLOAT = "runs in float"
    """The engine computes a node in float that was planned in integers."""
    WRONG_WEIGHT = "wrong weight"
    """A few weights have other values than in fp32 or in the graph, such as a flipped bit."""
    CALIBRATION = "calibration changed"
    """Its range differs from the accepted one."""
    COARSE = "coarse grid"  # stored name
    """No fault: the node needs more bits than it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A node and why it is suspected.

    Args:
        node: by its name in fp32.
        cause: the likeliest.
        evidence: one sentence with numbers.
        score: by which suspects are ordered, the largest first.
        remedy: what to do about the cause, one sentence.
    """

    node: str
    cause: Cause
    evidence: str
    score: float = 0.0
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """Nodes that, kept in float, restore the verdict.

    Args:
        nodes: kept in float.
        restores: whether the verdict was seen restored with exactly these.
        smallest: whether every smaller set of candidates was tried and failed.
        macs_share: of all multiply-accumulates, those that leave integers.
        probes: how many sets were tried.
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
    """A value of the quantized graph that cannot be compared with fp32, and why."""

    value: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What localisation found.

    Args:
        model, backend, schema: what was examined.
        graph: which graph of the model.
        samples: looked at.
        matched: how the tapped run compares with the run without taps, in one sentence.
        nodes: every aligned value in the order of the graph.
        unaligned: the others.
        suspects: the likeliest first; empty: nothing exceeds what its quantization explains.
        repair: None: not looked for.
        testcase: path of the smallest failing input, where one was saved.
        notes: remarks, such as a budget that ran out.
        complete: whether everything was done.
        seconds: how long it took.
        distributions: of the values and weights of the first suspects, in their order.
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
    distributions: tuple[ValueDistribution, ...] = ()

    @property
    def headline(self) -> str:
        """One line: the first suspect and its cause, or that no node is suspected."""
        if not self.suspects:
            return f"no node of '{self.model}' is suspected"
        first = self.suspects[0]
        return f"{first.node}: {first.cause.value}; {first.evidence}"
