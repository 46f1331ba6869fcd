"""What one cell measured, as text and plain numbers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from qbench.judging.cell import Cell, EnvironmentClass
from qbench.judging.kinds import GateKind
from qbench.judging.noise import Repeats
from qbench.judging.samples import SamplesByData
from qbench.metrics import Against, Score
from qbench.number_text import counted, rough_percent, settled, steps_text, tenth_percent

# The comparison of a cell with another backend, as text and plain numbers.


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstNode:
    """The first difference of two runs of one batch.

    Args:
        origin: the fp32 node whose integers differ; empty when no compared value of the batch does.
        elements: how many of its integers differ.
        steps: the largest difference of two of them.
        note: a remark on the search, such as that tapping an engine changed its results.
    """

    origin: str
    elements: int = 0
    steps: float = 0.0
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The differences from another backend, counted over all graph outputs of all samples.

    Args:
        backend, environment_class: the other one, and the class of its results here.
        elements, differing: of all outputs.
        unbounded: differing elements that no number bounds: one of the two is NaN or infinite.
        steps: largest difference of the others in output steps; None: no output is quantized.
        relative: their largest |a − b| / max|b|.
        graph, sample: of the first difference; empty when there is none.
        first: where it comes from; None: not looked for.
    """

    backend: str
    environment_class: str = ""
    elements: int
    differing: int
    unbounded: int = 0
    steps: float | None = None
    relative: float = 0.0
    graph: str = ""
    sample: str = ""
    first: FirstNode | None = None


# The effect of passes on the graphs of a cell, as text and plain numbers.


@dataclass(frozen=True, slots=True, kw_only=True)
class PassNote:
    """One pass that changed a graph.

    Args:
        name: as the pipeline spells it.
        effect: what it declares (``exact``, ``rounding(1)``, ``lossy``).
        removed: nodes fewer by it, over all graphs.
        elements, differing: of the graph outputs of the first samples, compared with the same
            pipeline without it; 0 for an exact pass, which is not compared.
        steps: their largest difference in output steps; None: no output is quantized.
        relative: the largest |a − b| / max|b|.
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
        far = (
            f"{rough_percent(self.relative)} of the largest"
            if self.steps is None
            else steps_text(self.steps)
        )
        return f"{did}, moves {self.differing} of {self.elements} outputs" + (
            f" by up to {far}" if self.differing else ""
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteNote:
    """The effect of a pipeline on the graphs of a cell.

    Args:
        policy: under which it ran.
        nodes: their number before.
        passes: those that changed a graph.
        declined: how many nodes were not rewritten, and passes not admitted.
        samples: how many the inexact passes were compared on.
    """

    policy: str
    nodes: int
    passes: tuple[PassNote, ...] = ()
    declined: int = 0
    samples: int = 0

    @property
    def removed(self) -> int:
        """Nodes fewer by all passes."""
        return sum(one.removed for one in self.passes)

    @property
    def notices(self) -> tuple[str, ...]:
        """A sentence for every pass that moved an output."""
        return tuple(f"rewritten by {one}" for one in self.passes if one.differing)


# The run of a quantizer of other people, as text and plain numbers.


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizerNote:
    """How another quantizer made the graphs of a cell.

    Args:
        title: what people call it.
        versions: package → version in its environment: its own, and those that it computes with.
        lock: the beginning of the digest of its lock; empty: it has none.
        arguments: of its variant.
        samples: how many calibration samples it received.
        seconds, peak_mb: wall clock, and the most memory of it and its children, megabytes.
        size: bytes of the file that it wrote.
        same_bytes: whether it wrote the same bytes twice; None: it ran once.
        offline: whether it ran without a network.
        left: how many processes it left behind.
        weights, near: how many weights of the float model were compared with those of its file,
            and how many were found again.
    """

    title: str
    versions: Mapping[str, str] = field(default_factory=dict)
    lock: str = ""
    arguments: tuple[str, ...] = ()
    samples: int = 0
    seconds: float = 0.0
    peak_mb: float = 0.0
    size: int = 0
    same_bytes: bool | None = None
    offline: bool = True
    left: int = 0
    weights: int = 0
    near: int = 0

    @property
    def name(self) -> str:
        """``NNCF 3.4.0 --accuracy-control (lock 0123456789ab)``: what its files depend on."""
        lock = f"(lock {self.lock})" if self.lock else ""
        return f"{self._called} {lock}".rstrip()

    @property
    def short(self) -> str:
        """``NNCF 3.4.0 --accuracy-control: 12.3 s, 340 MB``."""
        return f"{self._called}: {', '.join(self._effort)}"

    @property
    def _called(self) -> str:
        version = next(iter(self.versions.values()), "")
        return " ".join(filter(None, (self.title, version, *self.arguments)))

    @property
    def _effort(self) -> tuple[str, str]:
        return f"{self.seconds:g} s", f"{self.peak_mb:g} MB"

    @property
    def text(self) -> str:
        """``NNCF 3.4.0: 12.3 s, 340 MB, a file of 3,600,000 bytes, the same bytes twice``."""
        words = [*self._effort, f"a file of {self.size:,} bytes"]
        if self.same_bytes is not None:
            words.append("the same bytes twice" if self.same_bytes else "other bytes each time")
        if not self.offline:
            words.append("with a network, which this kernel does not let it leave")
        if self.left:
            words.append(f"{counted(self.left, 'process', 'processes')} left behind and killed")
        return f"{self.name}: {', '.join(words)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """The calibration of a cell.

    ``key`` is ``passes[+variant]``, the canonical passes and the variant if it has its own samples.
    ``ranges``: value of the float graph → the (least, greatest) number that was observed, five
    digits of each, in the order of the graph; the name of a value begins with that of its graph
    (``decoder::x``) where there are several. ``samples``: what it was done on, in words, for
    messages of this run; no record has it.
    """

    key: str
    ranges: Mapping[str, tuple[float, float]]
    samples: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """A cell that ended before all of its samples were run.

    Args:
        samples: data set → how many were run.
        of: data set → how many it has.
        decided: metric → the state of its gate (``holds``, ``broken``, …).
        proven: the metrics decided by the test.
    """

    samples: Mapping[str, int]
    of: Mapping[str, int]
    decided: Mapping[str, str] = field(default_factory=dict)
    proven: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """``stopped after 310 of 1000 samples: decided``."""
        return (
            f"stopped after {sum(self.samples.values())} of "
            f"{counted(sum(self.of.values()), 'sample')}: decided"
        )


NOTHING_QUANTIZED = "none of its operators is quantized"
"""What to say of a cell that ``is_unquantized``."""

_NAMED = 3
"""Products that a notice names; the measurement has all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Numbers of one cell, before they are judged.

    Args:
        cell, environment: what was measured, and where.
        scores: one for each metric the suite asked for, in its order.
        digests: ``model`` (float graphs), ``preprocessing``, ``quantized`` (written graphs; absent
            in fp32 cells), ``arithmetic`` (of backends that declare one; absent elsewhere),
            ``pipeline`` (of passes, where any ran), and for each data set D: ``data:D`` (samples
            and labels), ``reference:D``, ``predictions:D``; in a stopped cell ``part:D`` of the
            answers to the samples that were run in place of the last.
        changed: for each data set, the ids of samples whose answer differs from the reference (at
            most 20).
        changed_count: for each data set, how many there are in all.
        ties: for each data set, samples whose best score was shared.
        macs: multiply-accumulates of one pass over the graphs.
        integer_macs: the planned share of them in integers, a fraction; 0 in fp32 cells.
        weight_macs: the share of them by a quantized weight, where the schema asks for weights
            alone; None elsewhere.
        float8_macs: the share of them of float8 by float8, a fraction; these are no integers.
        quantized_units: how many units of the graphs have a quantized value or weight, also where
            the backend runs them in floats; None: not known, or there is no plan.
        simulated: names of the types of floats in it of which the backend computes products in
            float32 from the numbers of the codes; empty: there is none.
        cache: what a decoder keeps in codes, in words: ``8 keys and values in int8``; empty: it
            keeps floats, or nothing.
        refusals: what the plan left in float though the schema asked for it: ``node: reason``.
        run_in_float: products of quantized values that the backend runs in floats, and why: ``node:
            reason``.
        executed_macs: the share of multiply-accumulates that the engine ran in integers, as it
            reports it; None: it reports nothing, or the schema plans none.
        executed_in_float: what it ran in float, the largest first.
        rounded_data: of what it ran in integers, the products whose real data it rounded itself.
        executed_unplanned: products that it ran in integers though they are float in the plan.
        idle_rules: the rules of the schema that matched nothing in this model, in words.
        made: what the cell was made with and its other digests do not show, in words:
            ``calibration`` (the samples) and ``schema`` (the beginning of the digest of its rules).
        constant_bytes: size of the constants of the graphs that the backend runs; None: not known.
        seconds: ``prepare`` (quantize, load) and ``inference`` (answering), wall clock;
            ``compared`` another backend's, ``repeats`` all runs after the first.
        sample_seconds: of a sample on the engine, of runs of a batch; empty: not timed. No record
            has it.
        kept: data set → its answers in one word (``metrics.packed_answers``); empty where the suite
            compares digests.
        compared: the comparison with another backend; None: the suite asks for none.
        rewritten: the effect of passes after the quantizer; None: none ran.
        quantizer: how another quantizer made the graphs; None: qbench did, or they came so.
        calibrated: the ranges that the schema's qparams come from; None: it needs none.
        stopped: where the cell ended before all samples were run: scores, changes and kept answers
            are then of those that were; None: all were.
        drawn: data set → their places in the data, in the order of the answers.
        repeats: how the answers of further runs differ; None: the cell ran once.
        remembered: kind of gate → the number of its evidence that an accepted result keeps.
        remembered_range: kind of gate → low and high; an accepted number in this range stays
            (``RememberedNumber``). Of older records it is not known.
        evidence: kind of gate → what it is judged by beyond the answers; records have the gates,
            not the evidence.
        samples: data set → the samples that were lost and gained; empty where none are asked for.
            They have a line of their own in a run file.
    """

    cell: Cell
    environment: EnvironmentClass
    scores: tuple[Score, ...]
    digests: Mapping[str, str]
    changed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    changed_count: Mapping[str, int] = field(default_factory=dict)
    ties: Mapping[str, int] = field(default_factory=dict)
    macs: int = 0
    integer_macs: float = 0.0
    weight_macs: float | None = None
    float8_macs: float = 0.0
    quantized_units: int | None = None
    simulated: tuple[str, ...] = ()
    cache: str = ""
    refusals: tuple[str, ...] = ()
    run_in_float: tuple[str, ...] = ()
    executed_macs: float | None = None
    executed_in_float: tuple[str, ...] = ()
    rounded_data: tuple[str, ...] = ()
    executed_unplanned: tuple[str, ...] = ()
    idle_rules: tuple[str, ...] = ()
    made: Mapping[str, str] = field(default_factory=dict)
    constant_bytes: int | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    sample_seconds: tuple[float, ...] = field(default=(), compare=False)
    compared: Compared | None = None
    kept: Mapping[str, str] = field(default_factory=dict)
    rewritten: RewriteNote | None = None
    quantizer: QuantizerNote | None = None
    calibrated: Calibrated | None = None
    repeats: Repeats | None = None
    stopped: Stopped | None = None
    drawn: Mapping[str, tuple[int, ...]] = field(default_factory=dict, compare=False)
    remembered: Mapping[str, float] = field(default_factory=dict)
    remembered_range: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    evidence: Mapping[GateKind, Any] = field(default_factory=dict, compare=False)
    samples: SamplesByData = field(default_factory=dict, compare=False)

    @property
    def planned_share(self) -> float:
        """The planned share of multiply-accumulates of the schema's kind: in integers, or by
        quantized weights.
        """
        return self.integer_macs if self.weight_macs is None else self.weight_macs

    @property
    def is_unquantized(self) -> bool:
        """Whether a schema of ours left every unit float: its numbers are those of the float
        model.
        """
        cell = self.cell
        is_planned = not (cell.is_fp32 or cell.is_recorded or cell.is_by_others)
        is_float = self.quantized_units == 0 and not self.cache
        return is_planned and self.macs > 0 and is_float

    @property
    def executed_words(self) -> str:
        """The share that the engine ran in integers, where it is another than the planned one:
        ``0.4 % executed``; else empty.
        """
        if self.executed_macs is None:
            return ""
        text = tenth_percent(settled(self.executed_macs))
        return "" if text == tenth_percent(settled(self.integer_macs)) else f"{text} executed"

    @property
    def misread(self) -> str:
        """What to say of a cell that ran more in integers than was planned, although its engine
        rounds no data itself: an error of ours; empty: it did not.
        """
        if (
            not self.executed_words
            or self.rounded_data
            or (self.executed_macs or 0.0) <= self.integer_macs
        ):
            return ""
        verb = "read in the model" if self.cell.is_by_others else "planned"
        named = [f"'{node}'" for node in self.executed_unplanned[:_NAMED]]
        more = len(self.executed_unplanned) - len(named)
        layers = ", ".join(named) or "layers"
        if more:
            layers += f" and {more} more"
        return (
            f"{self.executed_words} in integers, more than the "
            f"{tenth_percent(settled(self.integer_macs))} {verb}: an error of qbench, which takes "
            f"{layers} for float that the engine runs in integers; please report it with the model"
        )

    @property
    def rounded_words(self) -> str:
        """What to say of products whose real data the engine rounded itself; empty: of none."""
        if not self.rounded_data:
            return ""
        named = ", ".join(self.rounded_data[:_NAMED])
        if more := self.rounded_data[_NAMED:]:
            named += f" and {len(more)} more"
        return (
            f"'{self.cell.backend}' rounds real data to 8 bits itself before it multiplies them by "
            f"quantized weights: {named}"
        )

    @property
    def planned_words(self) -> str:
        """What that share is of: ``in integers``, or ``by quantized weights``."""
        return "in integers" if self.weight_macs is None else "by quantized weights"

    @property
    def predictions(self) -> dict[str, str]:
        """Data set → digest of the predictions, in the order of their names."""
        prefix = "predictions:"
        return {
            k.removeprefix(prefix): v
            for k, v in sorted(self.digests.items())
            if k.startswith(prefix)
        }

    def score(self, metric: str) -> Score:
        """The score of ``metric``.

        Raises:
            KeyError: it was not measured.
        """
        for found in self.scores:
            if found.metric == metric:
                return found
        raise KeyError(metric)


# A loss in two parts: what the schema costs on any backend, and what the arithmetic of this backend
# adds (counting).
#
#     fp32  ──schema──→  the quantized graph in exact arithmetic
#           ──counting──→  the same graph on the backend
#     value − reference = (ideal − reference) + (value − ideal)
#
# The middle is the same graph on ``integer-ideal``: rational multipliers, one rounding, no
# overflow.

IDEAL = "integer-ideal"
"""The backend with exact arithmetic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One step: hits ``before`` and ``after`` it of ``out_of``; samples that it made worse and
    better, where known.
    """

    before: int
    after: int
    out_of: int
    losses: int | None = None
    gains: int | None = None

    @property
    def change(self) -> float:
        """The share after less the share before, a fraction in the metric's own sense."""
        return (self.after - self.before) / self.out_of


@dataclass(frozen=True, slots=True, kw_only=True)
class LossParts:
    """One metric's change against fp32 as two steps, one after the other; ``unit`` is the
    metric's: ``%`` is a share.

    Raises:
        ValueError: the second does not begin where the first ends.
    """

    metric: str
    schema: Part
    counting: Part
    unit: str = "%"

    def __post_init__(self) -> None:
        if (self.schema.after, self.schema.out_of) != (self.counting.before, self.counting.out_of):
            raise ValueError(
                f"{self.metric}: the schema ends at {self.schema.after} of {self.schema.out_of}, "
                f"counting begins at {self.counting.before} of {self.counting.out_of}"
            )

    @property
    def change(self) -> float:
        """Both together, a fraction."""
        return (self.counting.after - self.schema.before) / self.schema.out_of


def parts_of_counts(
    metric: str, *, reference: int, ideal: int, hits: int, out_of: int, unit: str = "%"
) -> LossParts:
    """The parts from counts alone, without losses and gains of single samples."""
    return LossParts(
        metric=metric,
        schema=Part(before=reference, after=ideal, out_of=out_of),
        counting=Part(before=ideal, after=hits, out_of=out_of),
        unit=unit,
    )


def parts_of_scores(schema: Score, counting: Score) -> LossParts:
    """The parts of two scores of one metric against labels, sample by sample.

    Args:
        schema: the ideal answers compared with fp32.
        counting: the backend's answers compared with the ideal ones.

    Raises:
        ValueError: they are of two metrics, of a metric against the reference (whose parts do not
            add up), or the second does not begin where the first ends.
    """
    if schema.metric != counting.metric or schema.against is not Against.LABELS:
        raise ValueError(
            f"'{schema.metric}' and '{counting.metric}' are not one metric against labels"
        )
    return LossParts(
        metric=schema.metric, schema=_part(schema), counting=_part(counting), unit=schema.unit
    )


def _part(score: Score) -> Part:
    return Part(
        before=score.reference_hits,
        after=score.hits,
        out_of=score.out_of,
        losses=score.losses,
        gains=score.gains,
    )
