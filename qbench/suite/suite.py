"""A suite as written: ``suites/<name>.qbench.toml``, read into frozen values; an unknown key is an error.

Names are checked against catalogues by ``expansion``; this file knows only the shape of the text.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qbench.errors import InputError
from qbench.judging import Cell, Criterion, QuarantineEntry, Rules, Tolerance
from qbench.storage import read_toml, value_from_table
from qbench.suite.criteria import Asked, CloseTo, EqualTo, asked_by, criterion_for
from qbench.suite.layered import DecisionSetting, FlipsSetting, Layer, ProbabilitiesSetting, layers_of
from qbench.suite.limits import layered_limits, refuse_no_numbers
from qbench.suite.operator_tables import lines_of_operators, with_operators
from qbench.suite.partners import refuse_other_data, with_borrowed
from qbench.suite.passes import refuse_unknown
from qbench.suite.shares import SHARES, layered_share, refuse_no_shares

SUFFIX = ".qbench.toml"
QUARANTINE_SUFFIX = ".quarantine.toml"
When = str | tuple[str, ...] | None
"""A condition on the environment class: a class, a processor, or several of them; None always holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationChoice:
    """Which samples ranges are taken from: ``count`` of data set ``data``, spread evenly over it."""

    data: str
    count: int

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"a calibration count of {self.count}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CellTolerance:
    """A tolerance of some cells of a model.

    ``metrics``: metric, as the suite writes it → its own in place of ``value``. ``when`` restricts all of it to
    environment classes or processors.
    """

    value: float
    metrics: Mapping[str, float] = field(default_factory=dict)
    when: When = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTable:
    """A ``[[model]]`` of a suite.

    ``tolerance`` is one number for the model, or numbers by backend, by schema or by a ``backend+schema`` pattern
    (first match wins); ``equal_to`` and ``close_to`` name another backend in the same style (``criteria``), and in it
    ``decision``, ``flips`` and ``probabilities`` are set (``layered``).
    Its shares, ``backends`` and ``schemas`` replace the suite's, ``limits`` those of the same metrics. ``samples``
    scores that many of the data, spread evenly. A variant replaces settings (``calibration.count``,
    ``calibration.data``) and may name its own ``schemas`` and ``backends``. ``fp32`` names the float model that this
    one is a quantized form of, or is false where it has none (``partners``).
    """

    id: str
    data: str
    calibration: CalibrationChoice
    metrics: tuple[str, ...]
    tolerance: float | Mapping[str, float | CellTolerance] | None = None
    equal_to: EqualTo = None
    close_to: CloseTo = None
    decision: DecisionSetting = None
    flips: FlipsSetting = None
    probabilities: ProbabilitiesSetting = None
    backends: tuple[str, ...] | None = None
    schemas: tuple[str, ...] | None = None
    passes: tuple[str, ...] | None = None
    agreement: float | None = None
    limits: Mapping[str, float] = field(default_factory=dict)
    integer_macs: float | None = None
    ranges: float | None = None
    samples: int | None = None
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    fp32: str | bool = ""

    def __post_init__(self) -> None:
        if not self.metrics:
            raise ValueError("no metrics")
        self.own_tolerance()  # refuses the impossible, as do those below
        self.cell_tolerances()
        refuse_no_shares(self)
        refuse_unknown(f"model {self.id}", self.passes or ())
        refuse_no_numbers(self.limits)
        self.asked()
        self.layers()

    @property
    def came_quantized(self) -> bool:
        """Whether it is measured as it is, with or without a float model beside it."""
        return self.fp32 != ""

    @property
    def is_alone(self) -> bool:
        """Whether it came quantized and has no float model: its criterion alone judges it."""
        return self.fp32 is False

    def own_tolerance(self) -> Tolerance | None:
        """The tolerance of the whole model, when it sets one."""
        return Tolerance(self.tolerance, f"model {self.id}") if isinstance(self.tolerance, float) else None

    def cell_tolerances(self) -> tuple[tuple[str, When, Tolerance], ...]:
        """(pattern of cells, condition, tolerance) in the order of the table: the first that fits a cell wins."""
        if not isinstance(self.tolerance, Mapping):
            return ()
        found = []
        for pattern, written in self.tolerance.items():
            setting = CellTolerance(value=written) if isinstance(written, float) else written
            rule = f"cell {self.id}::{pattern}" + (f" ({setting.reason})" if setting.reason else "")
            own = {metric: Tolerance(value, rule) for metric, value in setting.metrics.items()}
            found.append((pattern, setting.when, Tolerance(setting.value, rule, own)))
        return tuple(found)

    def asked(self) -> tuple[Asked, ...]:
        """What its cells must be beside other backends."""
        return asked_by("model", self.id, self.equal_to, self.close_to)

    def layers(self) -> tuple[Layer[Any], ...]:
        """Its settings of single cells."""
        return layers_of(f"model {self.id}", self.decision, self.flips, self.probabilities)


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteTable:
    """The ``[suite]`` table.

    Args:
        tolerance: relative to the stored fp32 score, one-sided. integer_macs: least planned share of
            multiply-accumulates in integers. agreement: least share of samples answered as fp32 does.
        ranges: share of what its grid spans by which a calibrated range may be other than accepted.
        limits: of distances to fp32 (``limits``).
        backends, schemas: what models are crossed with. passes: policies of rewriting that quantized cells are crossed
            with (``suite.passes``); none: as they were written. fp32: whether each backend also runs the float model.
        equal_to, close_to: what quantized cells must be beside another backend (``criteria``).
        decision, flips, probabilities: how loss and drift are decided (``layered``).
        equivalents: groups of processors, or of patterns of environment classes, whose results are comparable.
        reference: the backend whose fp32 run makes references and profiles.
        threads: of one engine.
    """

    tolerance: float | None = None
    equal_to: EqualTo = None
    close_to: CloseTo = None
    decision: DecisionSetting = None
    flips: FlipsSetting = None
    probabilities: ProbabilitiesSetting = None
    equivalents: tuple[tuple[str, ...], ...] = ()
    integer_macs: float = 0.5
    agreement: float = 0.85
    ranges: float = 0.01
    limits: Mapping[str, float] = field(default_factory=dict)
    backends: tuple[str, ...] = ()
    schemas: tuple[str, ...] = ()
    passes: tuple[str, ...] = ()
    fp32: bool = True
    reference: str = "ort-cpu"
    threads: int = 1

    def __post_init__(self) -> None:
        Tolerance(0.0 if self.tolerance is None else self.tolerance)
        refuse_no_shares(self)
        if self.threads < 1:
            raise ValueError(f"threads = {self.threads}")
        refuse_no_numbers(self.limits)
        refuse_unknown("the suite", self.passes)
        asked_by("suite", "", self.equal_to, self.close_to)  # refuses the impossible
        layers_of("", self.decision, self.flips, self.probabilities)  # likewise


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteText:
    """A suite file's tables."""

    suite: SuiteTable
    model: tuple[ModelTable, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineText:
    """A quarantine file's tables."""

    cell: tuple[QuarantineEntry, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A suite read from ``path``; ``name`` is its file name without ``.qbench.toml``.

    ``partners``: id of a model that came quantized → the float model it is judged against, in a suite cut to a part
    too. ``tolerance_from``: what set the suite's tolerance in place of its file; empty: the file did.
    """

    name: str
    path: Path
    table: SuiteTable
    models: tuple[ModelTable, ...]
    quarantine: tuple[QuarantineEntry, ...]
    lines: Mapping[str, int]
    partners: Mapping[str, ModelTable] = field(default_factory=dict)
    tolerance_from: str = ""

    def rules(self, model: str) -> Rules:
        """The numbers beside the tolerance that cells of ``model`` are judged by: the suite's, or its own."""
        table = next((table for table in self.models if table.id == model), None)
        suite, own = f"suite {self.name}", f"model {model}"
        layers = ((suite, self.table), (own, table))
        (integer_macs, rule), (agreement, agreement_rule), (ranges, ranges_rule) = (
            layered_share(name, *layers) for name in SHARES
        )
        return Rules(
            integer_macs=integer_macs,
            agreement=agreement,
            ranges=ranges,
            rule=rule,
            agreement_rule=agreement_rule,
            ranges_rule=ranges_rule,
            limits=layered_limits((suite, self.table.limits), (own, {} if table is None else table.limits)),
            equivalents=self.table.equivalents,
        )

    def layers(self) -> tuple[Layer[Any], ...]:
        """Its settings of single cells."""
        return layers_of(f"suite {self.name}", self.table.decision, self.table.flips, self.table.probabilities)

    def own_tolerance(self) -> Tolerance | None:
        """The suite's tolerance, when it sets one."""
        rule = self.tolerance_from or f"suite {self.name}"
        return None if self.table.tolerance is None else Tolerance(self.table.tolerance, rule)

    def asked(self) -> tuple[Asked, ...]:
        """What its cells must be beside other backends."""
        return asked_by("suite", self.name, self.table.equal_to, self.table.close_to)

    def criterion(self, cell: Cell) -> Criterion | None:
        """What ``cell`` must be beside another backend, by the suite or its model; None: nothing.

        Raises:
            InputError: two criteria for it, or one beside itself.
        """
        layers = (self.asked(), *(table.asked() for table in self.models if table.id == cell.model))
        return criterion_for(cell, layers, f"Suite '{self.name}'")


def load_suite(path: Path) -> Suite:
    """The suite at ``path`` with the quarantine file beside it (``<name>.quarantine.toml``), when there is one.

    Raises:
        InputError: not a suite file; an unknown key, a wrong type, an impossible value, a model twice.
    """
    name = path.name.removesuffix(SUFFIX)
    doing = f"Reading suite '{path.name}'"
    text = value_from_table(SuiteText, with_borrowed(with_operators(read_toml(path)), doing), f"suite '{path.name}'")
    listed = path.with_name(name + QUARANTINE_SUFFIX)
    entries: tuple[QuarantineEntry, ...] = ()
    if listed.exists():
        entries = value_from_table(QuarantineText, read_toml(listed), f"quarantine file '{listed.name}'").cell
    ids = [model.id for model in text.model]
    for twice in {i for i in ids if ids.count(i) > 1}:
        raise InputError(
            doing,
            found=f"the model '{twice}' {ids.count(twice)} times",
            expected="one [[model]] a model",
            remedy="Merge the two, or give one of them a variant.",
        )
    written = path.read_text(encoding="utf-8")  # TOML is UTF-8 whatever the machine's own encoding is
    lines = lines_of_operators(_lines(written), ids)
    tables = {model.id: model for model in text.model}
    partners = {model.id: tables[model.fp32] for model in text.model if isinstance(model.fp32, str) and model.fp32}
    for model, partner in partners.items():
        refuse_other_data(doing, tables[model], partner)
    return Suite(
        name=name,
        path=path,
        table=text.suite,
        models=text.model,
        quarantine=entries,
        lines=lines,
        partners=partners,
    )


def _lines(text: str) -> dict[str, int]:
    """Model id → the zero-based line that names it, for editors."""
    found: dict[str, int] = {}
    for number, line in enumerate(text.splitlines()):
        if match := re.match(r"""\s*id\s*=\s*["']([^"']+)["']""", line):
            found.setdefault(match.group(1), number)
    return found
