"""The suite file ``suites/<name>.qbench.toml``, read into frozen values; an unknown key is an
error.

This module checks the structure of the file; ``expansion`` checks its names against the catalogues.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from qbench.errors import InputError, unknown_name
from qbench.judging import (
    ANY_CLASS,
    CHECKS,
    Cell,
    Criterion,
    QuarantineEntry,
    RelativeTo,
    Rules,
    Tolerance,
)
from qbench.storage import read_toml, require_format, sweep_work_folder, value_from_table
from qbench.subjects import is_factory, list_operators
from qbench.suite.settings import (
    SHARES,
    CellSettings,
    CriterionSetting,
    Layer,
    criteria_of,
    criterion_for,
    layered_limits,
    layered_share,
    layers_of,
    require_finite,
    require_known_policies,
    require_shares,
)

SUFFIX = ".qbench.toml"
QUARANTINE_SUFFIX = ".quarantine.toml"
FORMAT, QUARANTINE_FORMAT = "qbench-suite/1", "qbench-quarantine/3"
"""What ``format`` in such a file may say; without it a file is of the first version, which this
one reads.
"""
When = str | tuple[str, ...] | None
"""A condition on the environment class: a class, a processor, or several of them; None always
holds.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationChoice:
    """The calibration samples: ``count`` of data set ``data``, spread evenly over it."""

    data: str
    count: int

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"a calibration count of {self.count}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CellTolerance:
    """A tolerance of a suite, or of some cells of a model.

    ``metrics``: metric, as the suite writes it → its tolerance instead of ``value``. ``when``
    restricts the whole entry to environment classes or processors. ``relative_to``: None is as the
    model or the suite says.
    """

    value: float
    metrics: Mapping[str, float] = field(default_factory=dict)
    when: When = None
    reason: str = ""
    relative_to: RelativeTo | None = None

    def tolerance(self, rule: str, relative_to: RelativeTo) -> Tolerance:
        """The tolerance that ``rule`` set; ``relative_to`` where the entry does not say."""
        unit = self.relative_to or relative_to
        own = {
            metric: Tolerance(value, rule, relative_to=unit)
            for metric, value in self.metrics.items()
        }
        return Tolerance(self.value, rule, own, unit)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTable(CellSettings):
    """A ``[[model]]`` of a suite.

    ``tolerance`` is one number for the model, or numbers by backend, by schema or by a
    ``backend+schema`` pattern (first match wins); ``relative_to`` says of what. ``equal_to``,
    ``close_to``, ``no_worse_than``, ``executed_macs``, ``recovery``, ``slices``, ``decision``,
    ``flips``, ``probabilities``, ``repeats`` and ``stop`` have the same form (see ``settings``).
    Its shares, ``backends`` and ``schemas`` replace the suite's, ``limits`` those of the same
    metrics.
    ``samples`` is the number of scored samples, spread evenly over the data; ``private`` lists
    those that were lost and gained by their ids alone. A variant replaces
    ``calibration.count`` or ``calibration.data`` and may name its own ``schemas`` and ``backends``.
    ``fp32`` names the float model that this one is a quantized form of, or is false if there is
    none. ``subject`` is the function that makes the model, ``module:factory``, in place of a model
    of an extension called ``id``.
    """

    id: str
    data: str
    calibration: CalibrationChoice
    metrics: tuple[str, ...]
    tolerance: float | Mapping[str, float | CellTolerance] | None = None
    relative_to: RelativeTo | None = None
    backends: tuple[str, ...] | None = None
    schemas: tuple[str, ...] | None = None
    passes: tuple[str, ...] | None = None
    agreement: float | None = None
    limits: Mapping[str, float] = field(default_factory=dict)
    integer_macs: float | None = None
    ranges: float | None = None
    samples: int | None = None
    private: bool = False
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    fp32: str | bool = ""
    subject: str = ""

    def __post_init__(self) -> None:
        if not self.metrics:
            raise ValueError("no metrics")
        if self.subject and not is_factory(self.subject):
            raise ValueError(
                f"subject = '{self.subject}' is impossible: it is module:factory, a function that "
                "returns a module and its example inputs; a model file is named by an extension"
            )
        self.own_tolerance()  # refuses the impossible, as do those below
        self.cell_tolerances()
        require_shares(self)
        require_known_policies(f"model {self.id}", self.passes or ())
        require_finite(self.limits)
        self.asked()
        self.layers()

    @property
    def came_quantized(self) -> bool:
        """Whether it is measured without quantizing it, with or without a float model to
        compare with.
        """
        return self.fp32 != ""

    @property
    def is_alone(self) -> bool:
        """Whether it came quantized and has no float model: it is judged by its criterion only."""
        return self.fp32 is False

    def own_tolerance(self, relative_to: RelativeTo = RelativeTo.SCORE) -> Tolerance | None:
        """The tolerance of the whole model, when it sets one; ``relative_to`` is of the suite."""
        unit = self.relative_to or relative_to
        is_one = isinstance(self.tolerance, float)
        return Tolerance(self.tolerance, f"model {self.id}", relative_to=unit) if is_one else None  # type: ignore[arg-type]

    def cell_tolerances(
        self, relative_to: RelativeTo = RelativeTo.SCORE
    ) -> tuple[tuple[str, When, Tolerance], ...]:
        """(pattern of cells, condition, tolerance) in the order of the table: the first that
        fits a cell wins.
        """
        if not isinstance(self.tolerance, Mapping):
            return ()
        found = []
        for pattern, written in self.tolerance.items():
            setting = CellTolerance(value=written) if isinstance(written, float) else written
            rule = f"cell {self.id}::{pattern}" + (f" ({setting.reason})" if setting.reason else "")
            found.append(
                (pattern, setting.when, setting.tolerance(rule, self.relative_to or relative_to))
            )
        return tuple(found)

    def asked(self) -> tuple[CriterionSetting, ...]:
        """The criteria by which its cells are compared with other backends."""
        return criteria_of("model", self.id, self)

    def layers(self) -> tuple[Layer[Any], ...]:
        """Its settings of single cells."""
        return layers_of(f"model {self.id}", self)


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteTable(CellSettings):
    """The ``[suite]`` table.

    Args:
        tolerance: a share of the stored fp32 score, or of what ``relative_to`` says, one-sided.
        integer_macs: least planned share of multiply-accumulates in integers. None, here and below:
            the file does not set it, and that of ``Rules`` holds.
        agreement: least share of samples answered as fp32 does.
        ranges: by how much a calibrated range may differ from the accepted one, as a share of what
            its codes span.
        limits: of distances to fp32.
        backends, schemas: that every model is measured with.
        passes: policies of rewriting for quantized cells; empty: not rewritten.
        fp32: whether each backend also runs the float model.
        equal_to, close_to: the criteria by which quantized cells are compared with another backend.
        executed_macs: the share that the engine must run in integers. recovery: the least share of
            today's fp32 score. slices: parts of the data that are judged
            one by one.
        no_worse_than: the backend whose loss on the same samples that of quantized cells may exceed
            by a margin.
        decision, flips, probabilities: how loss and drift are decided. repeats: how many times a
            cell runs. stop: when it ends.
        equivalents: groups of processors, or of patterns of environment classes, whose results are
            comparable.
        reference: the backend whose fp32 run makes references and profiles.
        threads: of one engine.
        repeat_threads: of the engine in the second run of a cell, the third and so on, from the
            beginning again where there are more; empty: as ``threads``.
        max_latency_ratio: the longest time of a sample, as a multiple of that of fp32 on the same
            engine, and of the accepted one.
        max_file_bytes: the most bytes of the model file, also as a multiple of that of fp32, and of
            the accepted one.
        most_excused: share of the gated cells that may have a tolerance of their own or a
            quarantine entry before ``qbench doctor`` reports it.
        private: whether run files and reports list lost and gained samples by their ids alone.
    """

    tolerance: CellTolerance | float | None = None
    relative_to: RelativeTo | None = None
    equivalents: tuple[tuple[str, ...], ...] = ()
    integer_macs: float | None = None
    agreement: float | None = None
    ranges: float | None = None
    limits: Mapping[str, float] = field(default_factory=dict)
    backends: tuple[str, ...] = ()
    schemas: tuple[str, ...] = ()
    passes: tuple[str, ...] = ()
    fp32: bool = True
    reference: str = "ort-cpu"
    threads: int = 1
    repeat_threads: tuple[int, ...] = ()
    most_excused: float = 0.25
    private: bool = False

    def __post_init__(self) -> None:
        self.own_tolerance("")  # refuses the impossible
        if isinstance(self.tolerance, CellTolerance) and self.tolerance.when is not None:
            raise ValueError("'when' in the tolerance of a suite: write it into that of a model")
        require_shares(self)
        if self.threads < 1:
            raise ValueError(f"threads = {self.threads} is impossible: it is a whole number from 1")
        if min(self.repeat_threads, default=1) < 1:
            raise ValueError(
                f"repeat_threads = {list(self.repeat_threads)} is impossible: it is whole numbers "
                "from 1"
            )
        if not 0 <= self.most_excused <= 1:
            raise ValueError(
                f"most_excused = {self.most_excused} is impossible: it is a share between 0 and 1"
            )
        require_finite(self.limits)
        require_known_policies("the suite", self.passes)
        criteria_of("suite", "", self)  # refuses the impossible
        layers_of("", self)  # likewise

    def own_tolerance(self, rule: str) -> Tolerance | None:
        """Its tolerance, when it sets one, with ``rule`` as the place."""
        unit = self.relative_to or RelativeTo.SCORE
        if isinstance(self.tolerance, float):
            return Tolerance(self.tolerance, rule, relative_to=unit)
        return None if self.tolerance is None else self.tolerance.tolerance(rule, unit)


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteText:
    """A suite file's tables."""

    suite: SuiteTable
    model: tuple[ModelTable, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineText:
    """A quarantine file's tables. Version 2 has values of cells, version 3 has them for each
    environment class.
    """

    format: str = QUARANTINE_FORMAT
    cell: tuple[QuarantineEntry, ...] = ()

    @classmethod
    def of(cls, table: Mapping[str, Any], name: str) -> "QuarantineText":
        """The tables of the file called ``name``.

        Raises:
            InputError: an unknown key, a wrong type, an impossible value. StoreError: a newer
                qbench made it.
        """
        require_format(table, QUARANTINE_FORMAT, f"Reading quarantine file '{name}'")
        return value_from_table(cls, _with_classes(table), f"quarantine file '{name}'")


def _with_classes(table: Mapping[str, Any]) -> Mapping[str, Any]:
    """``table`` with the values of version 2, cell → metric → value, under the class ``ANY_CLASS``.

    The two forms may be mixed in one entry: the name of a cell holds ``::``, that of a class does
        not.
    """
    entries = table.get("cell")
    if not isinstance(entries, list):
        return table
    return {**table, "cell": [_entry_with_classes(entry) for entry in entries]}


def _entry_with_classes(entry: object) -> object:
    values = entry.get("values") if isinstance(entry, Mapping) else None
    if not isinstance(entry, Mapping) or not isinstance(values, Mapping):
        return entry
    older = {name: held for name, held in values.items() if "::" in name}
    if not older:
        return entry
    by_class = {name: held for name, held in values.items() if name not in older}
    known = by_class.get(ANY_CLASS, {})
    both = {**older, **known} if isinstance(known, Mapping) else known
    return {**entry, "values": {**by_class, ANY_CLASS: both}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A suite read from ``path``; ``name`` is its file name without ``.qbench.toml``.

    ``partners``: id of a model that came quantized → the float model it is judged against, which a
    part of a suite keeps too. ``tolerance_from``: the option that set the suite's tolerance; empty:
    the file did.
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
        """The rules for cells of ``model``, except the tolerance: its own numbers, otherwise
        the suite's.
        """
        table = next((table for table in self.models if table.id == model), None)
        # checks of tests have no file that a reader could look into
        suite = "default" if self.name == CHECKS else f"suite {self.name}"
        own = f"model {model}"
        layers = (("default", Rules()), (suite, self.table), (own, table))
        (
            (integer_macs, rule),
            (agreement, agreement_rule),
            (ranges, ranges_rule),
        ) = (layered_share(name, *layers) for name in SHARES)
        return Rules(
            integer_macs=integer_macs or 0.0,
            agreement=agreement or 0.0,
            ranges=ranges or 0.0,
            rule=rule,
            agreement_rule=agreement_rule,
            ranges_rule=ranges_rule,
            limits=layered_limits(
                (suite, self.table.limits), (own, {} if table is None else table.limits)
            ),
            equivalents=self.table.equivalents,
        )

    def layers(self) -> tuple[Layer[Any], ...]:
        """Its settings of single cells."""
        return layers_of(f"suite {self.name}", self.table)

    def own_tolerance(self) -> Tolerance | None:
        """The suite's tolerance, when it sets one."""
        return self.table.own_tolerance(self.tolerance_from or f"suite {self.name}")

    def asked(self) -> tuple[CriterionSetting, ...]:
        """The criteria by which its cells are compared with other backends."""
        return criteria_of("suite", self.name, self.table)

    def criterion(self, cell: Cell) -> Criterion | None:
        """The criterion of ``cell``, from its model or the suite; None: it has none.

        Raises:
            InputError: it has two criteria, or would be compared with itself.
        """
        layers = (self.asked(), *(table.asked() for table in self.models if table.id == cell.model))
        return criterion_for(cell, layers, f"Suite '{self.name}'")


def load_suite(path: Path, *, only: Collection[str] | None = None) -> Suite:
    """The suite at ``path`` and its quarantine file ``<name>.quarantine.toml`` in the same
    folder, if there is one.

    Args:
        only: the ids of the models that are read, with their float models: of a file that was read
            as a whole before; None: all.

    Raises:
        InputError: not a suite file; an unknown key, a wrong type, an impossible value, a model
            twice.
    """
    name = path.name.removesuffix(SUFFIX)
    doing = f"Reading suite '{path.name}'"
    if name == CHECKS:
        raise InputError(
            doing,
            found=f"the name '{CHECKS}'",
            expected="another one: this is the name of what tests measure by qbench_check",
            remedy="Rename the file.",
        )
    written_table = read_toml(path)
    require_format(written_table, FORMAT, doing)
    written_table.pop("format", None)
    table = with_borrowed(with_operators(with_full_names(written_table, doing)), doing)
    if only is not None:
        table = _with_models(table, only)
    text = value_from_table(SuiteText, table, f"suite '{path.name}'")
    listed = path.with_name(name + QUARANTINE_SUFFIX)
    entries: tuple[QuarantineEntry, ...] = ()
    sweep_work_folder(path.parent)
    if listed.exists():
        entries = QuarantineText.of(read_toml(listed), listed.name).cell
    ids = [model.id for model in text.model]
    for twice in (one for one, count in Counter(ids).items() if count > 1):
        raise InputError(
            doing,
            found=f"the model '{twice}' {ids.count(twice)} times",
            expected="one [[model]] per model",
            remedy="Merge the two, or give one of them a variant.",
        )
    # TOML is UTF-8 whatever the machine's own encoding is
    written = path.read_text(encoding="utf-8")
    lines = lines_of_operators(_lines(written), ids)
    tables = {model.id: model for model in text.model}
    partners = {
        model.id: tables[model.fp32]
        for model in text.model
        if isinstance(model.fp32, str) and model.fp32
    }
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


def _with_models(table: Mapping[str, Any], only: Collection[str]) -> dict[str, Any]:
    """``table`` of a suite with the models of ``only`` and their float models."""
    partners = {model.get("fp32") for model in table["model"] if model.get("id") in only}
    kept = {*only, *(name for name in partners if isinstance(name, str))}
    return {**table, "model": [model for model in table["model"] if model.get("id") in kept]}


# Short names of tolerances, as other tools write them: ``abs`` and ``rel``.
#
#     tolerance = { abs = 0.01 }                              value = 0.01, relative_to = "nothing"
#     tolerance = { "w8a8_asym_pt" = { rel = 0.02 } }         value = 0.02
#     probabilities = { abs = 1e-3, rel = 0.01 }              absolute, relative

_LONG = {"abs": "absolute", "rel": "relative"}
_OF_ENTRY = ("value", "rel", "abs", "relative_to", "metrics", "when", "reason")
_EVERY_CELL = "*"


def with_full_names(table: Mapping[str, Any], doing: str) -> dict[str, Any]:
    """``table`` of a suite in which tolerances and limits have their full names.

    Raises:
        InputError: one is given twice.
    """
    found = dict(table)
    if isinstance(table.get("suite"), Mapping):
        found["suite"] = _full_names(table["suite"], f"{doing}, [suite]")
    if isinstance(table.get("model"), list):
        found["model"] = [
            _full_names(one, f"{doing}, model '{one.get('id')}'")
            if isinstance(one, Mapping)
            else one
            for one in table["model"]
        ]
    return found


def _full_names(table: Mapping[str, Any], doing: str) -> dict[str, Any]:
    found = dict(table)
    for key in {"probabilities", "close_to"} & table.keys():
        found[key] = _by_entry(table[key], _lengthened, _LONG, f"{doing}, {key}")
    tolerance = table.get("tolerance")
    if isinstance(tolerance, Mapping):
        written = _by_entry(tolerance, _full_tolerance, _OF_ENTRY, f"{doing}, tolerance")
        is_one = "id" in table and any(key in _OF_ENTRY for key in tolerance)
        found["tolerance"] = {_EVERY_CELL: written} if is_one else written
    return found


def _by_entry(
    value: Any,  # noqa: ANN401 - what a TOML file holds
    change: Callable[[Mapping[str, Any], str], Mapping[str, Any]],
    keys: Iterable[str],
    doing: str,
) -> Any:  # noqa: ANN401
    """``value`` with ``change`` made to it where it has one of ``keys``, else to each table in
    it, by pattern.
    """
    if not isinstance(value, Mapping):
        return value
    if any(key in value for key in keys):
        return change(value, doing)
    return {
        pattern: change(one, doing) if isinstance(one, Mapping) else one
        for pattern, one in value.items()
    }


def _lengthened(entry: Mapping[str, Any], doing: str) -> dict[str, Any]:
    for short, long in _LONG.items():
        if short in entry and long in entry:
            raise _twice(doing, f"'{short}' and '{long}'", "one of them: they are the same")
    return {_LONG.get(key, key): value for key, value in entry.items()}


def _full_tolerance(entry: Mapping[str, Any], doing: str) -> dict[str, Any]:
    given = [key for key in ("value", "rel", "abs") if key in entry]
    if len(given) > 1:
        raise _twice(doing, " and ".join(map(repr, given)), "one number: a cell has one margin")
    if "abs" in entry and "relative_to" in entry:
        raise _twice(doing, "'abs' and 'relative_to'", "'abs' alone: it is relative to nothing")
    found = {key: value for key, value in entry.items() if key not in ("abs", "rel")}
    if "rel" in entry:
        found["value"] = entry["rel"]
    if "abs" in entry:
        found |= {"value": entry["abs"], "relative_to": RelativeTo.NOTHING.value}
    return found


def _twice(doing: str, found: str, expected: str) -> InputError:
    return InputError(doing, found=found, expected=expected, remedy="Remove one.")


def _lines(text: str) -> dict[str, int]:
    """Model id → the zero-based line that names it, for editors."""
    found: dict[str, int] = {}
    for number, line in enumerate(text.splitlines()):
        if match := re.match(r"""\s*id\s*=\s*["']([^"']+)["']""", line):
            found.setdefault(match.group(1), number)
    return found


# Models that came quantized, and the float models of the suite that they are judged against.
#
#     [[model]]
#     id = "mobilenet_int8"
#     fp32 = "mobilenet_v2"       # data, samples and metrics are copied from it unless set here
#
# Its cells have the schema ``given``: nothing is calibrated, planned or written. With ``fp32 =
# false`` it has no float model: the answers of another backend are its reference, and nothing of it
# is stored.

_BORROWED = ("data", "samples", "metrics", "calibration")
_OF_PLANNED = ("calibration", "schemas", "variants")
_METRICS = ("agreement",)


def with_borrowed(table: Mapping[str, Any], doing: str) -> dict[str, Any]:
    """``table`` of a suite in which every model with a partner has the partner's values for
    missing keys.

    Raises:
        InputError: the partner is not in the suite, or came quantized itself; or the model has
            settings of quantization.
    """
    models = table.get("model")
    if not isinstance(models, list) or not all(isinstance(model, dict) for model in models):
        return dict(table)
    known = {str(model.get("id")): model for model in models}
    return {**table, "model": [_borrowing(model, known, doing) for model in models]}


def refuse_other_data(doing: str, model: ModelTable, partner: ModelTable) -> None:
    """Check that the reference of ``partner`` has an answer for every sample that ``model`` is
    scored on.

    Raises:
        InputError: another data set, or another number of its samples.
    """
    mine, theirs = _data(model), _data(partner)
    found = ""
    if model.data != partner.data:
        found = f"data '{model.data}', where '{partner.id}' has '{partner.data}'"
    elif model.samples != partner.samples:
        found = (
            f"samples = {model.samples or 'all'}, where '{partner.id}' has "
            f"{partner.samples or 'all'}"
        )
    elif missing := sorted(mine - theirs):
        found = f"a metric on '{missing[0]}', for which '{partner.id}' has no answers"
    if found:
        raise InputError(
            f"{doing}, model '{model.id}'",
            found=found,
            expected=(
                f"the data of its fp32 partner '{partner.id}', whose answers it is judged against"
            ),
            remedy=(
                f"Leave 'data', 'samples' and 'metrics' out, or score '{partner.id}' on the same."
            ),
        )


def _data(model: ModelTable) -> set[str]:
    return {model.data, *(metric.partition("@")[2] or model.data for metric in model.metrics)}


def _borrowing(
    model: Mapping[str, Any], known: Mapping[str, Mapping[str, Any]], doing: str
) -> dict[str, Any]:
    where = f"{doing}, model '{model.get('id')}'"
    if model.get("fp32") is False:
        _refuse_idle_keys(model, where)
        # Nothing is calibrated, but a table must have a choice.
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
            remedy=f"Name the float model of both: fp32 = '{theirs}'."
            if theirs
            else "Name a float model.",
        )
    _refuse_idle_keys(model, where)
    return {**{key: partner[key] for key in _BORROWED if key in partner}, **model}


def _refuse_idle_keys(model: Mapping[str, Any], where: str) -> None:
    if idle := [key for key in _OF_PLANNED if key in model]:
        raise InputError(
            where,
            found=f"the key '{idle[0]}' together with 'fp32'",
            expected=(
                "no settings of quantization: a model that came quantized is not quantized again"
            ),
            remedy=f"Remove '{idle[0]}'.",
        )


# Operator subjects: one table for all subjects that its id matches.
#
#     [[model]]
#     id = "op.conv.*"            # every operator subject of that kind, each with its own data
#
# If two tables match a subject, the later one is used.

_PREFIX = "op."


def with_operators(table: Mapping[str, Any]) -> dict[str, Any]:
    """``table`` of a suite with one table per operator subject in place of each pattern.

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
        operators |= {
            name: {"data": name, "fp32": False, **model, "id": name}
            for name in list_operators(model["id"])
        }
    return {**table, "model": [*found, *operators.values()]} if operators else dict(table)


def lines_of_operators(lines: Mapping[str, int], models: Iterable[str]) -> dict[str, int]:
    """``lines`` (id as written → line), extended by the models that its patterns match."""
    patterns = {written: line for written, line in lines.items() if written.startswith(_PREFIX)}
    matched = {
        name: line
        for name in models
        for written, line in patterns.items()
        if fnmatchcase(name, written)
    }
    return {**lines, **matched}
