"""Runs in other tools' formats: JUnit, CSV, JSON, dashboards."""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from qbench.errors import unknown_name
from qbench.judging import Outcome, paired_interval
from qbench.storage import csv_text as table_text
from qbench.storage import neutral_json, neutral_text
from qbench.tracking import MetricRow, Nature, Run, metric_rows, metrics_of_line, nature_of

# One row a metric of each measured cell of each run, as CSV (RFC 4180) or as a JSON array of objects.

_AT_ONCE = 1000


def csv_text(runs: Iterable[Run]) -> Iterator[str]:
    """``runs`` as CSV, first the names of the columns."""
    yield table_text([MetricRow._fields])
    for run in runs:
        yield table_text(metric_rows([run]))


def rows_text(runs: Iterable[Run]) -> Iterator[str]:
    """``runs`` as JSON: one object a row, with the names of ``MetricRow``."""
    return json_list(row._asdict() for row in metric_rows(runs))


def json_list(values: Iterable[object]) -> Iterator[str]:
    """What ``neutral_json`` writes of a list of ``values``, some at a time: one by one takes twice as long."""
    rows, before = iter(values), "["
    while several := list(itertools.islice(rows, _AT_ONCE)):
        yield before + neutral_json(several)[1:-3]  # without the brackets
        before = ","
    yield "\n]\n" if before == "," else "[]\n"


# Dashboards that draw numbers over commits: github-action-benchmark's ``customSmallerIsBetter``, and Bencher's BMF.
#
#     github-action-benchmark   [{"name", "unit", "value", "extra"}, …]: the drop against fp32, a share's in pp
#     Bencher Metric Format     {benchmark: {measure: {"value", "lower_value", "upper_value"}}}: the score, a share in %
#
# The first knows one direction only, so a score would be drawn upside down; a drop is better when it is smaller,
# whatever the metric. A distance has no score of fp32 to drop from: it is written as it is, or with its sign turned
# where larger is better. The second takes names of measures as they are. Bounds are fp32's score plus the paired
# interval (Bonett and Price 2012) of shares of right samples, within 0 and 100; other metrics have none.

_AXES = ("suite", "model", "backend", "schema", "variant")


def github_benchmark_text(runs: Iterable[Run]) -> Iterator[str]:
    """The drops of every measured cell of ``runs``, for ``tool: customSmallerIsBetter``."""
    return json_list(
        {
            "name": f"{_name(row)} {row.metric}",
            "unit": "pp" if nature.unit == "%" else nature.unit,
            "value": _shown(_drop(row, nature), nature),
            "extra": f"{_counted(row, nature)}; {row.environment_class}",
        }
        for row, nature in _measured(runs)
    )


def bencher_text(runs: Iterable[Run]) -> Iterator[str]:
    """The scores of every measured cell of ``runs`` in Bencher's metric format; of several runs the last counts."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for row, nature in _measured(runs):
        measure = {"value": _shown(row.value, nature)}
        if _is_share(row, nature):
            low, high = paired_interval(row.losses, row.gains, row.n, method="bonett-price")
            if nature.lower_is_better:
                low, high = -high, -low
            measure["lower_value"] = _shown(max(row.reference_value + low, 0.0), nature)
            measure["upper_value"] = _shown(min(row.reference_value + high, 1.0), nature)
        found.setdefault(_name(row), {})[row.metric] = measure
    yield neutral_json(found)


def _measured(runs: Iterable[Run]) -> Iterator[tuple[MetricRow, Nature]]:
    """(row, what its numbers are) of each metric of each cell."""
    for run in runs:
        facts: dict[tuple[str, str, str, str, str, str], Any] = {}
        for line in run.cells:
            suite, model, backend, schema, variant = (str(line.get(axis, "")) for axis in _AXES)
            for metric, table in metrics_of_line(line).items():
                facts[suite, model, backend, schema, variant, metric] = table
        for row in metric_rows([run]):
            table = facts[row.suite, row.model, row.backend, row.schema, row.variant, row.metric]
            yield row, nature_of(table)


def _name(row: MetricRow) -> str:
    slug = "+".join(part for part in (row.backend, row.schema, row.variant) if part)
    return f"{row.suite}/{row.model}::{slug}"


def _is_share(row: MetricRow, nature: Nature) -> bool:
    """Whether losses and gains tell all of it, and make sense."""
    return nature.proportion and row.n == row.out_of and row.losses + row.gains <= row.n


def _drop(row: MetricRow, nature: Nature) -> float:
    """How much worse than fp32 it is; of a distance, how far away."""
    before = 0 if nature.is_distance else row.reference_hits
    worse = row.hits - before if nature.lower_is_better else before - row.hits
    return worse / row.out_of


def _counted(row: MetricRow, nature: Nature) -> str:
    told = f"{row.hits} of {row.out_of}"
    return told if nature.is_distance else f"{told}, fp32 {row.reference_hits}"


def _shown(value: float, nature: Nature) -> float:
    """``value`` in its unit, to six places; nothing is less than nothing: not -0.0, which rounding leaves."""
    return round(100 * value if nature.unit == "%" else value, 6) + 0.0


# JUnit XML: a suite a run, a test case a cell, for what reads pytest's own ``--junitxml`` too.
#
# A cell is a failure when it is red, an error when it broke, skipped when it is unsupported. Its counts are properties,
# ``top1@photos:hits`` and the like. A run that was interrupted gets an error of its own, since it would
# look like a small green one.

_GREEN = {outcome.value for outcome in Outcome if not outcome.is_red}


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
    suite = SubElement(root, "testsuite", name=_legal(run.suite), timestamp=_legal(run.header.get("started", "")))
    told = {"run": run.id, "commit": run.commit, "processor": run.environment.get("processor", "")}
    _properties(suite, told)
    kinds = [_case(suite, line) for line in run.cells]
    if not run.complete:
        kinds.append("error")
        case = SubElement(suite, "testcase", classname=_legal(run.suite), name="the run itself", time="0")
        SubElement(case, "error", message="the run was interrupted: cells are missing").text = _legal(
            "\n".join(run.notes)
        )
    suite.set("tests", str(len(kinds)))
    for kind, key in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        suite.set(key, str(kinds.count(kind)))
    suite.set("time", f"{sum(map(_seconds, run.cells)):.3f}")


def _case(suite: Element, line: Mapping[str, Any]) -> str:
    """Add the test case of one cell; its kind, empty when it passed."""
    slug = "+".join(str(line[axis]) for axis in ("backend", "schema", "variant") if line.get(axis))
    name = {"classname": f"{line.get('suite', '')}.{line.get('model', '')}", "name": slug}
    case = SubElement(
        suite, "testcase", {key: _legal(text) for key, text in name.items()}, time=f"{_seconds(line):.3f}"
    )
    _properties(case, cell_facts(line))
    outcome = str(line.get("outcome", ""))
    kind = "error" if outcome == Outcome.ERROR.value else "skipped" if outcome == Outcome.UNSUPPORTED.value else ""
    kind = kind or ("" if outcome in _GREEN else "failure")
    if kind:
        notices = line.get("notices")
        parts = [line.get("rule", ""), *(notices if isinstance(notices, list) else ()), line.get("remedy", "")]
        message = _legal(f"{outcome}: {line.get('headline', '')}")
        SubElement(case, kind, message=message).text = _legal("\n".join(str(part) for part in parts if part))
    return kind


def cell_facts(line: Mapping[str, Any]) -> dict[str, object]:
    """Outcome, environment class and counts of the cell in ``line``, as properties of its test case."""
    facts: dict[str, object] = {"outcome": line.get("outcome", "")}
    if line.get("environment_class"):
        facts["environment_class"] = line["environment_class"]
    for metric, table in metrics_of_line(line).items():
        for key in ("hits", "out_of", "reference_hits", "losses", "gains", "n"):
            facts[f"{metric}:{key}"] = table.get(key, "")
    return facts


def _properties(parent: Element, facts: Mapping[str, object]) -> None:
    properties = SubElement(parent, "properties")
    for name, value in facts.items():
        SubElement(properties, "property", name=_legal(name), value=_legal(value))


def _seconds(line: Mapping[str, Any]) -> float:
    seconds = line.get("seconds")
    numbers = seconds.values() if isinstance(seconds, Mapping) else ()
    return math.fsum(number for number in numbers if isinstance(number, int | float) and math.isfinite(number))


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
    *("suite", "model", "backend", "schema", "variant", "environment_class", "metrics", "digests", "integer_macs"),
    *("outcome", "headline", "rule", "notices", "remedy", "seconds"),
)
"""What of a ``cell`` line an export is made of."""


def export_text(runs: Iterable[Run], name: str) -> str:
    """``runs`` in the format ``name``.

    Raises:
        InputError: the format does not exist.
    """
    return "".join(export_pieces(runs, name))


def export_pieces(runs: Iterable[Run], name: str) -> Iterator[str]:
    """``export_text`` piece by piece: of a long history neither runs nor text are in memory at once.

    Raises:
        InputError: the format does not exist.
    """
    if name not in EXPORT_FORMATS:
        raise unknown_name("Exporting runs", "format", name, EXPORT_FORMATS)
    return EXPORT_FORMATS[name](runs)
