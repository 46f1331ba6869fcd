"""Runs in other tools' formats: JUnit, CSV, JSON, dashboards."""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from qbench.errors import unknown_name
from qbench.judging import Outcome
from qbench.reporting.columns import CSV
from qbench.reporting.view import GREEN
from qbench.storage import csv_text as table_text
from qbench.storage import neutral_json, neutral_text
from qbench.tracking import CellRecord, MetricRecord, MetricRow, Run, incomplete_words, metric_rows

# One row per metric of each measured cell of each run, as CSV (RFC 4180) or as a JSON array of
# objects.

_AT_ONCE = 1000


def csv_text(runs: Iterable[Run]) -> Iterator[str]:
    """``runs`` as CSV, first the names of the columns."""
    yield table_text([CSV])
    for run in runs:
        yield table_text(metric_rows([run]))


def rows_text(runs: Iterable[Run]) -> Iterator[str]:
    """``runs`` as JSON: one object per row, with the names of ``MetricRow``."""
    return json_list(row._asdict() for row in metric_rows(runs))


def json_list(values: Iterable[object]) -> Iterator[str]:
    """What ``neutral_json`` writes of a list of ``values``, many at a time: one by one takes
    twice as long.
    """
    rows, before = iter(values), "["
    while several := list(itertools.islice(rows, _AT_ONCE)):
        yield before + neutral_json(several)[1:-3]  # without the brackets
        before = ","
    yield "\n]\n" if before == "," else "[]\n"


# Dashboards that draw numbers over commits: github-action-benchmark's ``customSmallerIsBetter``,
# and Bencher's BMF.
#
#     github-action-benchmark   [{"name", "unit", "value", "extra"}, …]: the drop against fp32, a
#                               share's in pp
#     Bencher Metric Format     {benchmark: {measure: {"value", "lower_value", "upper_value"}}}: the
#                               score, a share in %
#
# The first takes smaller values as better, so it gets the drop, which is better when smaller for
# every metric. A distance has no fp32 score to drop from: it is written as it is, or with its sign
# turned where larger is better. The second takes any name of a measure. Bounds are fp32's score
# plus the paired interval of shares of right samples, within 0 and 100; other metrics have none.

_AXES = ("suite", "model", "backend", "schema", "variant")


def github_benchmark_text(runs: Iterable[Run]) -> Iterator[str]:
    """The drops of every measured cell of ``runs``, for ``tool: customSmallerIsBetter``."""
    return json_list(
        {
            "name": f"{_name(row)} {row.metric}",
            "unit": "pp" if nature.unit == "%" else nature.unit,
            "value": _shown(_drop(nature), nature),
            "extra": f"{_counts(nature)}; {row.environment_class}",
        }
        for row, nature in _measured(runs)
    )


def bencher_text(runs: Iterable[Run]) -> Iterator[str]:
    """The scores of every measured cell of ``runs`` in Bencher's metric format; of several runs
    the last counts.
    """
    found: dict[str, dict[str, dict[str, float]]] = {}
    for row, nature in _measured(runs):
        measure = {"value": _shown(row.value, nature)}
        if nature.value_interval is not None:
            measure["lower_value"], measure["upper_value"] = (
                _shown(one, nature) for one in nature.value_interval
            )
        found.setdefault(_name(row), {})[row.metric] = measure
    yield neutral_json(found)


def _measured(runs: Iterable[Run]) -> Iterator[tuple[MetricRow, MetricRecord]]:
    """(row, what its numbers are) of each metric of each cell."""
    for run in runs:
        metrics = (metric for record in run.cells for _, metric in record.counted())
        yield from zip(metric_rows([run]), metrics, strict=True)


def _name(row: MetricRow) -> str:
    slug = "+".join(part for part in (row.backend, row.schema, row.variant) if part)
    return f"{row.suite}/{row.model}::{slug}"


def _drop(nature: MetricRecord) -> float:
    """How much worse than fp32 it is; of a distance, how far away."""
    if not nature.is_distance:
        return nature.worse
    return nature.value if nature.lower_is_better else -nature.value


def _counts(nature: MetricRecord) -> str:
    counts = f"{nature.hits} of {nature.out_of}"
    return counts if nature.is_distance else f"{counts}, fp32 {nature.reference_hits}"


def _shown(value: float, nature: MetricRecord) -> float:
    """``value`` in its unit, to six places; never -0.0, which rounding can leave."""
    return round(100 * value if nature.unit == "%" else value, 6) + 0.0


# JUnit XML: one suite per run and one test case per cell, in the form of pytest's ``--junitxml``.
#
# A cell is a failure when it is red, an error when it could not be measured, skipped when it is
# unsupported. Its counts are properties, ``top1@photos:hits`` and the like. A run that is not whole
# gets an error of its own; otherwise it would look like a small green run.


def junit_text(runs: Iterable[Run]) -> Iterator[str]:
    """``runs`` as one JUnit file."""
    yield '<?xml version="1.0" encoding="utf-8"?>\n<testsuites name="qbench">\n'
    for run in runs:
        root = Element("testsuites")
        _suite(root, run)
        indent(root)
        yield f"  {tostring(root[0], encoding='unicode').rstrip()}\n"
    yield "</testsuites>\n"


def _suite(root: Element, run: Run) -> None:
    suite = SubElement(
        root, "testsuite", name=_legal(run.suite), timestamp=_legal(run.header.get("started", ""))
    )
    facts = {"run": run.id, "commit": run.commit, "processor": run.environment.get("processor", "")}
    _properties(suite, facts)
    kinds = [_case(suite, record) for record in run.cells]
    if not run.complete:
        kinds.append("error")
        case = SubElement(
            suite, "testcase", classname=_legal(run.suite), name="the run itself", time="0"
        )
        message = "; ".join(incomplete_words(run, "the run")) or "the run was interrupted"
        SubElement(case, "error", message=message).text = _legal("\n".join(run.notes))
    suite.set("tests", str(len(kinds)))
    for kind, key in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        suite.set(key, str(kinds.count(kind)))
    suite.set("time", f"{sum(map(_seconds, run.cells)):.3f}")


def _kind(outcome: str) -> str:
    """The element of JUnit for ``outcome``, empty for one that passed."""
    if outcome in (Outcome.ERROR.value, Outcome.INFRA.value):
        return "error"
    if outcome == Outcome.UNSUPPORTED.value:
        return "skipped"
    if outcome in GREEN:
        return ""
    return "failure"


def _case(suite: Element, record: CellRecord) -> str:
    """Add the test case of one cell; its kind, empty when it passed."""
    slug = "+".join(filter(None, (record.backend, record.schema, record.variant)))
    name = {"classname": f"{record.suite}.{record.model}", "name": slug}
    case = SubElement(
        suite,
        "testcase",
        {key: _legal(text) for key, text in name.items()},
        time=f"{_seconds(record):.3f}",
    )
    _properties(case, cell_facts(record))
    kind = _kind(record.outcome)
    if kind:
        message = _legal(f"{record.outcome}: {record.headline}")
        parts = filter(None, (record.rule, *record.notices, record.remedy))
        SubElement(case, kind, message=message).text = _legal("\n".join(parts))
    return kind


def cell_facts(record: CellRecord) -> dict[str, object]:
    """Outcome, environment class and counts of a cell, as properties of its test case."""
    facts: dict[str, object] = {"outcome": record.outcome}
    if record.environment_class:
        facts["environment_class"] = record.environment_class
    for name, metric in record.metrics.items():
        for key in ("hits", "out_of", "reference_hits", "losses", "gains", "n"):
            facts[f"{name}:{key}"] = getattr(metric, key)
    return facts


def _properties(parent: Element, facts: Mapping[str, object]) -> None:
    properties = SubElement(parent, "properties")
    for name, value in facts.items():
        SubElement(properties, "property", name=_legal(name), value=_legal(value))


def _seconds(record: CellRecord) -> float:
    """The time that it took in its run."""
    return 0.0 if record.is_carried else math.fsum(record.seconds.values())


def _legal(text: object) -> str:
    return neutral_text(str(text))


# The formats by name: each turns runs into the text of one file, piece by piece.

EXPORT_FORMATS: Mapping[str, Callable[[Iterable[Run]], Iterator[str]]] = MappingProxyType(
    {
        "csv": csv_text,
        "json": rows_text,
        "junit": junit_text,
        "github-benchmark": github_benchmark_text,
        "bencher": bencher_text,
    }
)

EXPORT_KEYS = (
    *(
        "suite",
        "model",
        "backend",
        "schema",
        "variant",
        "environment_class",
        "metrics",
        "digests",
        "integer_macs",
    ),
    *("outcome", "headline", "rule", "notices", "remedy", "seconds"),
    *("stopped", "carried"),
)
"""The fields of a cell that an export is made of."""


def export_text(runs: Iterable[Run], name: str) -> str:
    """``runs`` in the format ``name``.

    Raises:
        InputError: the format does not exist.
    """
    return "".join(export_pieces(runs, name))


def export_pieces(runs: Iterable[Run], name: str) -> Iterator[str]:
    """``export_text`` piece by piece: so that a long history is never whole in memory.

    Raises:
        InputError: the format does not exist.
    """
    if name not in EXPORT_FORMATS:
        raise unknown_name("Exporting runs", "format", name, EXPORT_FORMATS)
    return EXPORT_FORMATS[name](runs)
