"""JUnit XML: a suite a run, a test case a cell, for what reads pytest's own ``--junitxml`` too.

A cell is a failure when it is red, an error when it broke, skipped when it is unsupported. Its counts are properties,
``top1@photos:hits`` and the like. A run that was interrupted gets an error of its own, since it would
look like a small green one.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from qbench.judging import Outcome
from qbench.storage import neutral_text
from qbench.tracking import Run, metrics_of_line

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
