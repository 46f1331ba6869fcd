"""What one cell measured, as text and plain numbers: it outlives the code that wrote it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from qbench.judging.cell import Cell
from qbench.judging.compared import Compared
from qbench.judging.environment import EnvironmentClass
from qbench.judging.rewritten import RewriteNote
from qbench.metrics import Score


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """What a cell was calibrated by.

    ``key`` is ``passes[+variant]``, the canonical passes and the variant that has samples of its own. ``ranges``: value
    of the float graph → the (least, greatest) number that was seen there, five digits of each, in the order of the
    graph; the name of a value begins with that of its graph (``decoder::x``) where there are several.
    """

    key: str
    ranges: Mapping[str, tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Numbers of one cell, before anyone judges them.

    Args:
        cell, environment: what was measured, and where.
        scores: one for each metric the suite asked for, in its order.
        digests: ``model`` (float graphs), ``preprocessing``, ``quantized`` (written graphs; absent in fp32 cells),
            ``arithmetic`` (how an integer machine counts; absent elsewhere), ``pipeline`` (of passes, where any ran),
            and for each data set D: ``data:D`` (samples and labels), ``reference:D``, ``predictions:D``.
        changed: for each data set, the ids of samples answered otherwise than by the reference (at most 20).
        changed_count: for each data set, how many there are in all.
        ties: for each data set, samples whose best score was shared.
        macs: multiply-accumulates of one pass over the graphs. integer_macs: the planned share of them in
            integers, a fraction; 0 in fp32 cells. weight_macs: the share of them by a weight on a grid, where the
            schema asks for weights alone; None elsewhere.
        refusals: what the plan left in float though the schema asked for it: ``node: reason``.
        idle_rules: the rules of the schema that matched nothing in this model, in words.
        seconds: ``prepare`` (quantize, load) and ``inference`` (answering), wall clock; ``compared`` another backend's.
        kept: data set → its answers in one word (``metrics.packed_answers``); empty where the suite compares digests.
        compared: what was counted beside another backend; None: the cell is compared with nobody.
        rewritten: what passes did behind the quantizer; None: none ran.
        calibrated: the ranges that the schema's grids come from; None: it asks for none.
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
    refusals: tuple[str, ...] = ()
    idle_rules: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    compared: Compared | None = None
    kept: Mapping[str, str] = field(default_factory=dict)
    rewritten: RewriteNote | None = None
    calibrated: Calibrated | None = None

    @property
    def planned_share(self) -> float:
        """The share of multiply-accumulates that came to be as the schema's kind of quantization means."""
        return self.integer_macs if self.weight_macs is None else self.weight_macs

    @property
    def planned_words(self) -> str:
        """What that share is of: ``in integers``, or ``by weights on grids``."""
        return "in integers" if self.weight_macs is None else "by weights on grids"

    def score(self, metric: str) -> Score:
        """The score of ``metric``.

        Raises:
            KeyError: it was not measured.
        """
        for found in self.scores:
            if found.metric == metric:
                return found
        raise KeyError(metric)
