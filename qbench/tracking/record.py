"""One cell as it is stored, and a run: lines of JSON, each with a type; readers ignore unknown
types and keys.
"""

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct, structs

from qbench.errors import InputError
from qbench.judging import (
    COSTS,
    Cell,
    Compared,
    EnvironmentClass,
    Gate,
    KnownValue,
    Measurement,
    Outcome,
    Quantity,
    QuantizerNote,
    Repeats,
    RewriteNote,
    Stopped,
    Verdict,
    paired_interval,
)
from qbench.metrics import Against, Clusters, Counted, Direction, Score
from qbench.storage import plain
from qbench.tracking.calibrations import packed_calibration, unpacked_calibration
from qbench.tracking.cell_key import Carried, CellKey
from qbench.tracking.gate_record import GateRecord, JudgedCost, judged_cost

# One cell as it is stored: the one typed form of a cell in run files, in the index, in comparisons
# and in reports.
#
#     {"type": "cell", "suite": …, "model": …, "backend": …, "schema": …, "variant": …,
#      "outcome": …, "gates": […], "metrics": {"top1": {"hits": …, "out_of": …, …}},
#      "digests": {…}, …}                                             one line of a run file
#
# A line outlives the code that wrote it. msgspec decodes a line of exactly the known form in one
# step. Any other line is read field by field: unknown keys are ignored, and a value of another type
# is left out and named in ``left_out``.

AXES = ("suite", "model", "backend", "schema", "variant")

_REFUSALS = 5
"""How many refusals a line holds: a transformer has hundreds, and ``qbench quantize --why``
lists them all.
"""

_ALWAYS = ("type", *AXES, "outcome", "headline", "rule", "gates", "notices", "remedy")
"""What every line holds."""

_NOT_MEASURED = frozenset((*_ALWAYS, "excused", "unfetched", "test", "key", "resumed_from"))
"""The fields without numbers: a result in which one of them is unreadable can still be accepted."""

_OPTIONAL = (
    "test",
    "constant_bytes",
    "weight_macs",
    "executed_macs",
    "kept",
    "compared",
    "rewritten",
    "quantizer",
    "simulated",
    "calibrated",
    "idle_rules",
    "repeats",
    "stopped",
    "unfetched",
    "excused",
    "tolerance",
    "made",
    "remembered",
    "remembered_range",
    "ungated",
    "key",
    "carried",
    "resumed_from",
)
"""What is written only where it is not empty."""

_GREEN = frozenset(outcome.value for outcome in Outcome if not outcome.is_red)

Whole = Annotated[int, msgspec.Meta(ge=1 - 2**63, le=2**63 - 1)]
"""A count: what an integer of a database can hold."""


class MetricRecord(Struct, Counted, frozen=True, kw_only=True, gc=False):
    """One metric of one measured cell in whole numbers: value = hits / out_of.

    ``direction``, ``unit`` and ``against`` are the words of the line, for which a newer qbench may
    have other values.
    ``accepted``, ``noise``: as of ``KnownValue``. ``mean``: of the runs of the cell that differ, a
    fraction; no line has it, because ``repeats`` has their counts.
    """

    direction: str = ""
    against: str = ""
    unit: str = "%"
    proportion: bool = True
    least_margin: float = 0.0
    n: Whole
    hits: Whole
    out_of: Whole
    reference_hits: Whole
    losses: Whole
    gains: Whole
    interval: tuple[float, float] | None = None
    never_resampled: bool = False
    clusters: Clusters | None = None
    written_value: float | None = msgspec.field(default=None, name="value")
    accepted: Whole | None = None
    noise: tuple[float, float] | None = None
    mean: float | None = None

    @property
    def value(self) -> float:
        """The score that is judged, a fraction: of several runs that differ the mean."""
        return self.hits / self.out_of if self.mean is None else self.mean

    @property
    def change(self) -> float:
        """The difference from fp32 in the metric's own sense, a fraction: a lower accuracy is
        negative.
        """
        return super().change if self.mean is None else self.mean - self.reference_value

    @property
    def value_interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the value (Bonett and Price 2012; that of the sources, where
        samples share some).

        None where losses and gains do not describe the change completely, or make no sense.
        """
        flips = self.losses + self.gains
        if (
            not self.proportion
            or self.n != self.out_of
            or flips > self.n
            or min(self.losses, self.gains) < 0
        ):
            return None
        if self.clusters is not None:
            low, high = self.clusters.shown
        else:
            low, high = paired_interval(self.losses, self.gains, self.n, method="bonett-price")
            if self.lower_is_better:
                low, high = -high, -low
        middle = self.reference_value + (
            0.0 if self.mean is None else self.mean - self.hits / self.out_of
        )
        return max(middle + low, 0.0), min(middle + high, 1.0)

    @property
    def is_distance(self) -> bool:
        """Whether it is the distance of the answers from those of fp32: not a score that could
        be lost.
        """
        return not self.against_labels and (self.lower_is_better or not self.proportion)

    @property
    def is_countable(self) -> bool:
        """Whether the counts make sense; a value below zero only where the noise can exceed the
        signal (dB).
        """
        if self.out_of <= 0 or self.losses < 0 or self.gains < 0 or self.n < 0:
            return False
        return not self.proportion or (self.hits >= 0 and self.reference_hits >= 0)

    def score(self, name: str) -> Score:
        """The score of the metric ``name``.

        Raises:
            ValueError: a direction or a kind that this version does not know.
        """
        values = {field: getattr(self, field) for field in _OF_SCORE}
        words = {"direction": Direction(self.direction), "against": Against(self.against)}
        return Score(metric=name, **(values | words))


_OF_SCORE = tuple(field.name for field in fields(Score) if field.name != "metric")
"""The fields that a metric of a line has in common with its score."""


class CellRecord(
    Struct,
    frozen=True,
    kw_only=True,
    tag="cell",
    tag_field="type",
    forbid_unknown_fields=True,
    repr_omit_defaults=True,
):
    """One cell of one run: its axes, its verdict in words, and its numbers where it was measured.

    Args:
        n, fp32_correct, correct, losses, gains: those of the first metric of the suite, which for
            an error rate counts errors.
        metrics: by name, in the order of the suite; empty: the cell was skipped, or could not be
            measured.
        refusals: the first of ``refusal_count``.
        calibrated: key and ranges, packed.
        tolerance: of a score, relative to that of fp32; None where there is no stored fp32, and in
            older lines.
        ungated: whether no gate judges its answers, so that it passes whatever they are.
        test: the node id of the test that is the cell; empty: a cell of a suite file.
        unfetched: whether a package that it needs could not be had.
        excused: the option by which a red outcome is not counted as a failure of the run.
        key: what its result depends on, where ``--qbench-carry`` asks for it.
        carried: where its numbers were measured, if not in this run.
        resumed_from: the id of the run that measured it, which this one resumed; empty: this one.
        left_out: names of the fields whose values have another type than this version knows; not
            written.
    """

    suite: str = ""
    model: str = ""
    backend: str = ""
    schema: str = ""
    variant: str = ""
    outcome: str = ""
    headline: str = ""
    rule: str = ""
    gates: tuple[GateRecord, ...] = ()
    notices: tuple[str, ...] = ()
    remedy: str = ""
    environment_class: str = ""
    n: Whole | None = None
    fp32_correct: Whole | None = None
    correct: Whole | None = None
    losses: Whole | None = None
    gains: Whole | None = None
    metrics: dict[str, MetricRecord] = {}
    digests: dict[str, str] = {}
    changed: dict[str, tuple[str, ...]] = {}
    changed_count: dict[str, Whole] = {}
    ties: dict[str, Whole] = {}
    macs: Whole = 0
    integer_macs: float | None = None
    refusals: tuple[str, ...] = ()
    refusal_count: Whole = 0
    seconds: dict[str, float] = {}
    constant_bytes: Whole | None = None
    weight_macs: float | None = None
    executed_macs: float | None = None
    made: dict[str, str] = {}
    remembered: dict[str, float] = {}
    remembered_range: dict[str, tuple[float, float]] = {}
    kept: dict[str, str] = {}
    compared: Compared | None = None
    rewritten: RewriteNote | None = None
    quantizer: QuantizerNote | None = None
    simulated: tuple[str, ...] = ()
    calibrated: dict[str, Any] | None = None
    idle_rules: tuple[str, ...] = ()
    repeats: Repeats | None = None
    stopped: Stopped | None = None
    unfetched: bool = False
    excused: str = ""
    tolerance: float | None = None
    ungated: bool = False
    test: str = ""
    key: CellKey | None = None
    carried: Carried | None = None
    resumed_from: str = ""
    left_out: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Note the mean of the runs that differ in the metrics that it is judged by."""
        if self.repeats is None:
            return
        for name, counts in self.repeats.metrics.items():
            metric = self.metrics.get(name)
            if metric is not None and metric.mean is None and counts.out_of[0] == metric.out_of:
                self.metrics[name] = structs.replace(metric, mean=float(counts.mean))

    @classmethod
    def of(cls, cell: Cell, verdict: Verdict, measurement: Measurement | None) -> "CellRecord":
        """The record of one judged cell; ``measurement`` is None when it was skipped or could
        not be measured.

        Raises:
            ValueError: a number is not finite. TypeError: a value has another type than the record
                stores.
        """
        table: dict[str, Any] = {
            **{axis: getattr(cell, axis) for axis in AXES},
            "outcome": verdict.outcome,
            "headline": verdict.headline,
            "rule": verdict.rule,
            "gates": [_gate_line(gate) for gate in verdict.gates],
            "notices": verdict.notices,
            "remedy": verdict.remedy,
            "tolerance": verdict.tolerance,
        }
        if measurement is not None:
            first = measurement.scores[0]
            table |= {name: getattr(measurement, name) for name in _MEASURED} | {
                "ungated": verdict.ungated
            }
            table |= {
                "environment_class": str(measurement.environment),
                "n": first.n,
                "fp32_correct": first.reference_hits,
                "correct": first.hits,
                "losses": first.losses,
                "gains": first.gains,
                "metrics": {
                    score.metric: {
                        key: value for key, value in plain(score).items() if key != "metric"
                    }
                    | {"value": score.value}
                    | _known(score, verdict)
                    for score in measurement.scores
                },
                "refusals": measurement.refusals[:_REFUSALS],
                "refusal_count": len(measurement.refusals),
                "calibrated": measurement.calibrated and packed_calibration(measurement.calibrated),
            }
        try:
            return msgspec.convert(plain(table), cls)
        except msgspec.ValidationError as error:
            raise TypeError(f"the record of '{cell}': {error}") from error

    @property
    def cell(self) -> Cell:
        """The cell that it is about.

        Raises:
            ValueError: its axes are not names.
        """
        return _cell(self.suite, self.model, self.backend, self.schema, self.variant)

    @property
    def costs(self) -> tuple[JudgedCost, ...]:
        """Its time and size, where its suite judges them."""
        groups: dict[Quantity, list[GateRecord]] = {}
        for gate in self.gates:
            quantity = COSTS.get(gate.kind)
            if quantity is not None and isinstance(gate.value, float):
                groups.setdefault(quantity, []).append(gate)
        return tuple(judged_cost(quantity, gates) for quantity, gates in groups.items())

    @property
    def is_measured(self) -> bool:
        """Whether it holds numbers."""
        return bool(self.metrics)

    @property
    def is_carried(self) -> bool:
        """Whether its numbers were measured by an earlier run and taken over."""
        return self.carried is not None

    @property
    def is_red(self) -> bool:
        """Whether it fails the run; an outcome that this version does not know is red, so that
        it is seen.
        """
        return self.outcome not in _GREEN and not self.excused

    def counted(self) -> Iterator[tuple[str, MetricRecord]]:
        """Its metrics whose counts make sense from run to run, in order; none of a cell that
        was stopped early or carried over, since it is no measurement of its run.

        All statistics over runs read the metrics here.
        """
        whole = self.metrics if self.stopped is None and not self.is_carried else {}
        return ((name, metric) for name, metric in whole.items() if metric.is_countable)

    def digests_of(self, kind: str) -> dict[str, str]:
        """Data set → digest of one kind (``data``, ``predictions``, ``reference``), sorted by
        data set.
        """
        prefix = f"{kind}:"
        names = sorted([key for key in self.digests if key.startswith(prefix)])
        return {key[len(prefix) :]: self.digests[key] for key in names}

    @property
    def data(self) -> str:
        """The samples of all its data sets, by their digests."""
        return "+".join(self.digests_of("data").values())

    @property
    def integer_share(self) -> float:
        """The planned share of multiply-accumulates on integers; 0 when it is not known."""
        share = self.integer_macs
        return share if share is not None and 0 <= share <= 1 else 0.0

    def line(self) -> dict[str, Any]:
        """The line of a run file, in plain values.

        Raises:
            ValueError: a number is not finite.
        """
        table = plain(msgspec.to_builtins(self))
        del table["left_out"]
        for name in _OPTIONAL:
            if table[name] is None or table[name] is False or table[name] in ({}, [], ""):
                del table[name]
        for metric in table["metrics"].values():
            if metric["mean"] is not None:
                metric["value"] = metric["mean"]
            del metric["mean"]
            if not metric["never_resampled"]:
                del metric["never_resampled"]
            for name in ("interval", "clusters", "value", "accepted", "noise"):
                if metric[name] is None:
                    del metric[name]
        return (
            table
            if self.is_measured
            else {key: one for key, one in table.items() if key in _NOT_MEASURED}
        )

    def measurement(self) -> Measurement | None:
        """Its numbers; None when the cell was skipped or could not be measured.

        Raises:
            InputError: the line that it was read from does not hold what a measurement needs.
        """
        unread = {*self.left_out} - _NOT_MEASURED
        if not self.metrics and not unread:
            return None
        if unread or not self.digests:
            raise self._invalid(f"no readable {', '.join(sorted(unread)) or 'digests'}")
        try:
            return Measurement(
                cell=self.cell,
                environment=EnvironmentClass.parse(self.environment_class),
                scores=tuple(metric.score(name) for name, metric in self.metrics.items()),
                integer_macs=self.integer_macs or 0.0,
                calibrated=unpacked_calibration(self.calibrated),
                **{name: getattr(self, name) for name in _MEASURED if name != "integer_macs"},
            )
        except ValueError as error:
            raise self._invalid(f"{type(error).__name__}: {error}") from error

    def _invalid(self, found: str) -> InputError:
        return InputError(
            f"Reading the cell '{self.model}::{self.backend}+{self.schema}' of a run file",
            found=f"a line that cannot be used ({found})",
            expected="metrics in whole numbers, digests and an environment class",
            remedy="Take another run file.",
        )


def _gate_line(gate: Gate) -> dict[str, Any]:
    """``gate`` for a line: only those of time and size have a value."""
    table: dict[str, Any] = plain(gate)
    if gate.value is None:
        del table["value"]
    return table


def _known(score: Score, verdict: Verdict) -> dict[str, Any]:
    """What was known of the metric of ``score``; a result that the run accepts is what is
    accepted.
    """
    known = verdict.known.get(score.metric, KnownValue())
    accepted = score.hits if verdict.outcome is Outcome.ACCEPTED else known.accepted
    return {"accepted": accepted, "noise": known.noise}


_MEASURED = (
    *(
        "digests",
        "changed",
        "changed_count",
        "ties",
        "macs",
        "integer_macs",
        "weight_macs",
        "refusals",
        "seconds",
    ),
    *(
        "executed_macs",
        "made",
        "kept",
        "compared",
        "rewritten",
        "quantizer",
        "simulated",
        "idle_rules",
        "constant_bytes",
        "repeats",
        "stopped",
    ),
    "remembered",
    "remembered_range",
)
"""What a measurement and its record have under one name."""

_HINTS: dict[type[Struct], dict[str, Any]] = {
    cls: get_type_hints(cls, include_extras=True) for cls in (CellRecord, GateRecord, MetricRecord)
}

_decoder = msgspec.json.Decoder(CellRecord)


def known_record(text: bytes) -> CellRecord | None:
    """The record in a line that has exactly the known form; None for any other, which
    ``record_of_line`` reads.
    """
    if not text.startswith(b'{"type":"cell",'):
        return None
    try:
        return _decoder.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


class _StartedLine(
    Struct, kw_only=True, tag="started", tag_field="type", forbid_unknown_fields=True
):
    suite: str
    model: str
    backend: str
    schema: str
    variant: str = ""


_started_decoder = msgspec.json.Decoder(_StartedLine)


def is_started_line(text: bytes) -> bool:
    """Whether ``text`` is a whole line of a job that began a cell, of which readers of results need
    nothing.
    """
    if not text.startswith(b'{"type":"started",'):
        return False
    try:
        _started_decoder.decode(text)
    except (msgspec.MsgspecError, ValueError):
        return False
    return True


def record_of_line(line: Mapping[str, Any]) -> CellRecord:
    """The record in a ``cell`` line, field by field; never an error (see ``left_out``)."""
    known = {name: line[name] for name in _HINTS[CellRecord] if name in line and name != "left_out"}
    try:
        return msgspec.convert(known, CellRecord)
    except msgspec.ValidationError:
        pass
    values, left_out = _fields(CellRecord, known)
    return CellRecord(**values, left_out=left_out)


def cell_of_line(line: Mapping[str, Any]) -> Cell:
    """The cell that a ``cell`` or ``finding`` line is about.

    Raises:
        KeyError, ValueError, TypeError: its axes are not names.
    """
    axes = (line["suite"], line["model"], line["backend"], line["schema"], line.get("variant", ""))
    if not all(isinstance(axis, str) for axis in axes):
        raise TypeError(f"axes that are not text: {axes}")
    return _cell(*axes)


def _fields(cls: type[Struct], table: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The fields of ``cls`` that can be read from ``table``, and the names of those with
    something unreadable.
    """
    values, left_out = {}, []
    for name, hint in _HINTS[cls].items():
        key = "value" if name == "written_value" else name
        if key not in table:
            continue
        try:
            values[name] = msgspec.convert(table[key], hint)
        except msgspec.ValidationError:
            left_out.append(name)
            if (rest := _rest(hint, table[key])) is not None:
                values[name] = rest
    return values, tuple(left_out)


def _rest(hint: Any, value: object) -> Any:  # noqa: ANN401 - a type, and what is left of a value of it
    """What of ``value``, which is not a ``hint``, can be read: items, entries, fields; None:
    nothing.
    """
    if get_origin(hint) is tuple and isinstance(value, list | tuple):
        found = (_readable(get_args(hint)[0], one) for one in value)
        return tuple(one for one in found if one is not None)
    if get_origin(hint) is dict and isinstance(value, Mapping):
        entries = ((str(key), _readable(get_args(hint)[1], one)) for key, one in value.items())
        return {key: one for key, one in entries if one is not None}
    return None


def _readable(hint: Any, value: object) -> Any:  # noqa: ANN401 - a type, and a value of it
    try:
        if hint in _HINTS and isinstance(value, Mapping):
            return hint(**_fields(hint, value)[0])
        return msgspec.convert(value, hint)
    except (msgspec.ValidationError, TypeError):  # the second: a count is missing
        return _rest(hint, value)


@functools.lru_cache(maxsize=1 << 17)  # a history names few cells, millions of times
def _cell(suite: str, model: str, backend: str, schema: str, variant: str) -> Cell:
    return Cell(suite, model, backend, schema, variant)


def release_of(header: Mapping[str, Any]) -> tuple[str, str]:
    """(package, version) of the release that a run with this ``run`` line measured; empty texts
    of any other run.
    """
    known = header.get("releases")
    found = (known.get("package"), known.get("version")) if isinstance(known, Mapping) else ("", "")
    return (
        (str(found[0]), str(found[1]))
        if all(isinstance(one, str) and one for one in found)
        else ("", "")
    )


@functools.lru_cache(maxsize=1024)
def class_of_releases(environment_class: str, package: str) -> str:
    """``environment_class`` with the version of ``package`` as ``any``: a series runs on over
    its releases.
    """
    known = EnvironmentClass.parse(environment_class)
    packages = tuple(
        (name, "any" if name == package else version) for name, version in known.packages
    )
    return str(replace(known, packages=packages))


# A run as it is stored: lines of JSON, each with a ``type``; readers ignore unknown types and keys.
#
#     {"type": "run", "format": "qbench-run/1", "id": …, "suite": …, "started": …,
#      "sequence": …, "after": …, "commit": {…}, "complete_selection": …}
#                                                which run is later: shards.py
#      of a release, by 'qbench backfill': "releases": {"package": …, "version": …},
#      "commit": {"sha": the version}, "checkout": {the commit}
#     {"type": "environment", "processor": …, "versions": {…}, …}
#     {"type": "cell", "model": …, "backend": …, "schema": …, "outcome": …, "metrics": {…}, …}
#                                                one per cell
#     {"type": "started", "model": …, …}         a job or a resumed run began this cell
#     {"type": "finding", "model": …, …, "finding": {…}}         where and why a cell went wrong
#     {"type": "note", "text": …}
#     {"type": "end", "cells": …, "exit_code": …}                absent: the run was interrupted
#
# A cell line is ``CellRecord.line()``; what it holds never needs qbench's code to be read again.

FORMAT = "qbench-run/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One finished or interrupted run.

    Args:
        header: the ``run`` line.
        environment: the ``environment`` line (empty when there is none).
        cells: in file order.
        findings: the lines of this type in file order.
        samples: the lines of this type as they are, for ``read_samples``.
        notes: texts.
        complete: whether the ``end`` line was found, and of a run that was read from a file, a line
            of each selected cell: an end alone does not make a run whole.
        ended: whether the ``end`` line was found in the file, whatever else is missing.
        damaged: how many lines could not be read.
        notices: what a reader should know, such as a newer format.
        path: the file, for messages.
    """

    header: Mapping[str, Any]
    environment: Mapping[str, Any] = field(default_factory=dict)
    cells: tuple[CellRecord, ...] = ()
    findings: tuple[Mapping[str, Any], ...] = ()
    samples: tuple[bytes, ...] = ()
    notes: tuple[str, ...] = ()
    complete: bool = False
    ended: bool = False
    damaged: int = 0
    notices: tuple[str, ...] = ()
    path: str = ""

    @property
    def id(self) -> str:
        """``<UTC time>-<short commit>-<random>``."""
        return str(self.header["id"])

    @property
    def suite(self) -> str:
        """The suite that was run."""
        return str(self.header["suite"])

    @property
    def commit(self) -> str:
        """The commit that was checked out, whole; empty when unknown."""
        commit = self.header.get("commit")
        return str(commit.get("sha", "")) if isinstance(commit, Mapping) else str(commit or "")

    @property
    def releases(self) -> str:
        """The package of whose release this run is a measurement (``qbench backfill``); empty
        of any other run.
        """
        return release_of(self.header)[0]

    @property
    def was_interrupted(self) -> bool:
        """Whether it stopped before its end; one that ended can lack cells all the same
        (``absent_cells``).
        """
        return not (self.complete or self.ended)

    @property
    def is_green(self) -> bool:
        """Whether all its gates passed: it ended by itself, over all samples, and no cell of at
        least one is red.
        """
        whole = (
            self.complete
            and not self.damaged
            and not self.header.get("limited")
            and not absent_cells(self)
        )
        ran = any(cell.outcome != Outcome.UNSUPPORTED.value for cell in self.cells)
        return whole and ran and not any(cell.is_red for cell in self.cells)


def absent_cells(run: Run) -> int:
    """How many cells that ``run`` selected have no line; 0 where its header has no count."""
    return lacking_lines(
        run.header,
        len(
            {(record.model, record.backend, record.schema, record.variant) for record in run.cells}
        ),
    )


def lacking_lines(header: Mapping[str, Any], cells: int) -> int:
    """How many more lines than for ``cells`` cells a run with this ``run`` line needs to be
    whole.
    """
    selected = header.get("selected")
    return max(0, selected - cells) if type(selected) is int else 0
