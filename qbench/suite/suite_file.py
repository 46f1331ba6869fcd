"""A suite as written: ``suites/<name>.qbench.toml``, read into frozen values; an unknown key is an error.

Names are checked against catalogues by ``expansion``; this module knows only the shape of the text.
"""

import fnmatch
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from qbench.errors import InputError, unknown_name
from qbench.judging import Cell, Criterion, QuarantineEntry, Rules, Tolerance
from qbench.storage import read_toml, value_from_table
from qbench.subjects import list_operators
from qbench.suite.settings import (
    SHARES,
    Asked,
    CloseTo,
    DecisionSetting,
    EqualTo,
    FlipsSetting,
    Layer,
    ProbabilitiesSetting,
    asked_by,
    criterion_for,
    layered_limits,
    layered_share,
    layers_of,
    refuse_no_numbers,
    refuse_no_shares,
    refuse_unknown,
)

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


# Models that came quantized, and the float model of the suite that each is judged against.
#
#     [[model]]
#     id = "mobilenet_int8"
#     fp32 = "mobilenet_v2"       # data, samples and metrics are its own unless written here too
#
# Its cells have the schema ``given``: nothing is calibrated, planned or written. With ``fp32 = false`` it has no float
# model: what another backend answers (``criteria``) is its reference, and nothing of it is stored.

_BORROWED = ("data", "samples", "metrics", "calibration")
_OF_PLANNED = ("calibration", "schemas", "variants")
_METRICS = ("agreement",)


class Scored(Protocol):
    """What is asked of a model's table here."""

    @property
    def id(self) -> str:
        """Its name."""
        ...

    @property
    def data(self) -> str:
        """The scored data set."""
        ...

    @property
    def samples(self) -> int | None:
        """How many of it; None: all."""
        ...

    @property
    def metrics(self) -> tuple[str, ...]:
        """``name`` or ``name@data``."""
        ...


def with_borrowed(table: Mapping[str, Any], doing: str) -> dict[str, Any]:
    """``table`` of a suite with every model that has a partner given what it left to it.

    Raises:
        InputError: the partner is not in the suite, or came quantized itself; or the model has settings that are of
            models to be quantized.
    """
    models = table.get("model")
    if not isinstance(models, list) or not all(isinstance(model, dict) for model in models):
        return dict(table)
    known = {str(model.get("id")): model for model in models}
    return {**table, "model": [_borrowing(model, known, doing) for model in models]}


def refuse_other_data(doing: str, model: Scored, partner: Scored) -> None:
    """Check that the reference of ``partner`` has an answer to every sample that ``model`` is scored on.

    Raises:
        InputError: another data set, or another number of its samples.
    """
    mine, theirs = _data(model), _data(partner)
    found = ""
    if model.data != partner.data:
        found = f"data '{model.data}', where '{partner.id}' has '{partner.data}'"
    elif model.samples != partner.samples:
        found = f"samples = {model.samples or 'all'}, where '{partner.id}' has {partner.samples or 'all'}"
    elif missing := sorted(mine - theirs):
        found = f"a metric on '{missing[0]}', to which '{partner.id}' has no answers"
    if found:
        raise InputError(
            f"{doing}, model '{model.id}'",
            found=found,
            expected=f"the data of its fp32 partner '{partner.id}', whose answers it is judged against",
            remedy=f"Leave 'data', 'samples' and 'metrics' out, or score '{partner.id}' on the same.",
        )


def _data(model: Scored) -> set[str]:
    return {model.data, *(metric.partition("@")[2] or model.data for metric in model.metrics)}


def _borrowing(model: Mapping[str, Any], known: Mapping[str, Mapping[str, Any]], doing: str) -> dict[str, Any]:
    where = f"{doing}, model '{model.get('id')}'"
    if model.get("fp32") is False:
        _refuse_idle_keys(model, where)
        # Nothing is calibrated: the choice only stands where other models have theirs.
        idle = {"data": model.get("data", ""), "count": 1}
        return {"metrics": list(_METRICS), "agreement": 0.0, **model, "calibration": idle}
    if model.get("fp32") is True:
        raise InputError(
            where,
            found="fp32 = true",
            expected="the name of a float model, or false where there is none",
            remedy="Name it, or leave 'fp32' out of a float model.",
        )
    if not model.get("fp32"):
        return dict(model)
    partner = known.get(str(model["fp32"]))
    if partner is None:
        raise unknown_name(where, "model", str(model["fp32"]), known)
    if partner.get("fp32", "") != "":
        theirs = partner["fp32"]
        raise InputError(
            where,
            found=f"fp32 = '{model['fp32']}', which came quantized itself",
            expected="a float model",
            remedy=f"Name the float model of both: fp32 = '{theirs}'." if theirs else "Name a float model.",
        )
    _refuse_idle_keys(model, where)
    return {**{key: partner[key] for key in _BORROWED if key in partner}, **model}


def _refuse_idle_keys(model: Mapping[str, Any], where: str) -> None:
    if idle := [key for key in _OF_PLANNED if key in model]:
        raise InputError(
            where,
            found=f"the key '{idle[0]}' beside 'fp32'",
            expected="no settings of quantization: a model that came quantized is measured as it is",
            remedy=f"Remove '{idle[0]}'.",
        )


# Models of a suite that are single operators: one table for all that its id matches.
#
#     [[model]]
#     id = "op.conv.*"            # every operator subject of that kind, each on its own data
#
# Of two tables that match a subject the later one holds.

_PREFIX = "op."


def with_operators(table: Mapping[str, Any]) -> dict[str, Any]:
    """``table`` of a suite with every table of operators as one a subject.

    Raises:
        InputError: an id matches no operator subject; the nearest is suggested.
    """
    models = table.get("model")
    if not isinstance(models, list) or not all(isinstance(model, dict) for model in models):
        return dict(table)
    found: list[dict[str, Any]] = []
    operators: dict[str, dict[str, Any]] = {}
    for model in models:
        if not str(model.get("id")).startswith(_PREFIX):
            found.append(dict(model))
            continue
        operators |= {name: {"data": name, "fp32": False, **model, "id": name} for name in list_operators(model["id"])}
    return {**table, "model": [*found, *operators.values()]} if operators else dict(table)


def lines_of_operators(lines: Mapping[str, int], models: Iterable[str]) -> dict[str, int]:
    """``lines`` (id as written → line) with the line of every model that a pattern among them stands for."""
    patterns = {written: line for written, line in lines.items() if written.startswith(_PREFIX)}
    return {**lines, **{name: line for name in models for written, line in patterns.items() if _fits(name, written)}}


def _fits(name: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(name, pattern)
