"""Lines of a run file → view values; whatever is missing or of the wrong kind becomes nothing, never an error.

A run file outlives the code that wrote it, so nothing here trusts a key to be there.
"""

import math
import typing
from collections.abc import Mapping
from typing import Any

from qbench.judging import Outcome
from qbench.reporting.view import CellKey, CellView, GateView, MetricView, RunView
from qbench.tracking import Run

_COLOURS = {outcome.value: outcome.is_red for outcome in Outcome}


def text_of(value: object, default: str = "") -> str:
    """``value`` as one line of text: strings and numbers as they are, anything else ``default``."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return default
    return " ".join(str(value).split())


def whole_of(value: object) -> int | None:
    """``value`` as a whole number, or None."""
    number = real_of(value)
    return None if number is None else int(typing.cast(float, value))  # not the float: it may have lost digits


def real_of(value: object) -> float | None:
    """``value`` as a finite float, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:  # an integer of more than 308 digits
        return None
    return number if math.isfinite(number) else None


def table_of(value: object) -> Mapping[str, Any]:
    """``value`` when it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def list_of(value: object) -> tuple[Any, ...]:
    """``value`` when it is a list, else nothing."""
    return tuple(value) if isinstance(value, list | tuple) else ()


def read_key(line: Mapping[str, Any]) -> CellKey:
    """Which cell a ``cell`` line is about."""
    model, backend, schema = (text_of(line.get(axis), "?") for axis in ("model", "backend", "schema"))
    return CellKey(model, backend, schema, text_of(line.get("variant")))


def read_metrics(line: Mapping[str, Any]) -> tuple[MetricView, ...]:
    """The metrics of a ``cell`` line that hold usable counts, in its order, with the limits its gates name."""
    limits = {
        text_of(gate.get("metric")): real_of(gate.get("limit"))
        for gate in map(table_of, list_of(line.get("gates")))
        if gate.get("kind") in ("loss", "floor", "limit") and gate.get("limit") is not None
    }
    found = []
    for name, entry in table_of(line.get("metrics")).items():
        score = table_of(entry)
        hits, out_of, before = (whole_of(score.get(k)) for k in ("hits", "out_of", "reference_hits"))
        if hits is None or before is None or not out_of or out_of < 0:
            continue
        found.append(
            MetricView(
                name=text_of(name),
                n=whole_of(score.get("n")) or 0,
                hits=hits,
                out_of=out_of,
                reference_hits=before,
                losses=whole_of(score.get("losses")) or 0,
                gains=whole_of(score.get("gains")) or 0,
                unit=text_of(score.get("unit"), "%"),
                lower_is_better=score.get("direction") == "lower",
                against_labels=score.get("against") != "reference",
                proportion=score.get("proportion") is not False,
                limit=limits.get(text_of(name)),
            )
        )
    return tuple(found)


def read_gates(line: Mapping[str, Any]) -> tuple[GateView, ...]:
    """The gates of a ``cell`` line."""
    gates = (table_of(gate) for gate in list_of(line.get("gates")))
    return tuple(
        GateView(**{name: text_of(gate.get(name)) for name in ("kind", "metric", "state", "detail", "rule")})
        for gate in gates
        if gate
    )


def lead_metric(metrics: tuple[MetricView, ...], gates: tuple[GateView, ...]) -> MetricView | None:
    """The metric to show first: that of a broken gate, else of an undecided one, of the first that holds, the first."""
    named = {metric.name: metric for metric in metrics}
    for state in ("broken", "inconclusive", "holds"):
        for gate in gates:
            if gate.state == state and gate.kind in ("loss", "floor", "limit") and gate.metric in named:
                return named[gate.metric]
    return metrics[0] if metrics else None


def read_cell(line: Mapping[str, Any]) -> CellView:
    """One ``cell`` line; an outcome this version does not know counts as red, so that it is seen."""
    metrics, gates = read_metrics(line), read_gates(line)
    outcome = text_of(line.get("outcome"), "unknown")
    digests = {text_of(k): text_of(v) for k, v in table_of(line.get("digests")).items()}
    seconds = [s for s in map(real_of, table_of(line.get("seconds")).values()) if s is not None]
    return CellView(
        key=read_key(line),
        outcome=outcome,
        is_red=_COLOURS.get(outcome, True) and not line.get("excused"),
        headline=text_of(line.get("headline")),
        rule=text_of(line.get("rule")),
        remedy=text_of(line.get("remedy")),
        notices=tuple(filter(None, map(text_of, list_of(line.get("notices"))))),
        gates=gates,
        metrics=metrics,
        lead=lead_metric(metrics, gates),
        environment_class=text_of(line.get("environment_class")),
        data="+".join(digests[k] for k in sorted(digests) if k.startswith("data:")),
        digests=digests,
        integer_macs=real_of(line.get("integer_macs")),
        refusals=tuple(filter(None, map(text_of, list_of(line.get("refusals"))))),
        refusal_count=whole_of(line.get("refusal_count")) or 0,
        changed=max((whole_of(c) or 0 for c in table_of(line.get("changed_count")).values()), default=0),
        seconds=sum(seconds) if seconds else None,
    )


def read_run(run: Run) -> RunView:
    """The facts of ``run``, for people."""
    header, environment = table_of(run.header), table_of(run.environment)
    versions = tuple((text_of(k), text_of(v)) for k, v in table_of(environment.get("versions")).items())
    return RunView(
        id=text_of(header.get("id"), "?"),
        suite=text_of(header.get("suite"), "?"),
        started=readable_time(text_of(header.get("started"))),
        commit=commit_text(header.get("commit")),
        processor=text_of(environment.get("processor")),
        facts=tuple(_facts(environment)),
        versions=versions,
        notes=tuple(filter(None, map(text_of, run.notes))),
        complete=run.complete,
        whole_selection=header.get("complete_selection") is not False,
        planned=whole_of(header.get("planned")) or 0,
        selected=whole_of(header.get("selected")) or 0,
        limited=whole_of(header.get("limited")) or 0,
        damaged=run.damaged,
        path=run.path,
    )


def commit_text(commit: object) -> str:
    """``1a2b3c4`` or ``1a2b3c4 (with uncommitted changes)``; empty when the run was made outside a repository."""
    if isinstance(commit, str):
        return text_of(commit)[:9]
    table = table_of(commit)
    short = text_of(table.get("short")) or text_of(table.get("sha"))[:9]
    return short + (" (with uncommitted changes)" if short and table.get("dirty") else "")


def readable_time(started: str) -> str:
    """``2026-01-31T04:05:06Z`` → ``2026-01-31 04:05 UTC``; any other spelling stays as it is."""
    day, mark, clock = started.partition("T")
    if mark and clock.endswith(("Z", "+00:00")) and len(clock) >= 5:
        return f"{day} {clock[:5]} UTC"
    return started


def _facts(environment: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Every plain entry of the ``environment`` line but its versions; lists as words."""
    found = []
    for name, value in environment.items():
        if name in ("type", "versions"):
            continue
        text = " ".join(map(text_of, value)) if isinstance(value, list | tuple) else text_of(value)
        if text:
            found.append((text_of(name).replace("_", " "), text))
    return found
