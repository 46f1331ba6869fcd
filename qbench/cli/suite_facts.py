"""What ``qbench doctor`` says about one suite: its assets, what its samples can decide, its excuses.

The smallest loss that n paired samples tell from chance, one-sided 5 % with 80 % power, when a share π of them flips:

    m = (z₀.₉₅ + z₀.₈) · √(π / n)        (non-inferiority of paired proportions, true difference 0)
"""

import datetime
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qbench.extension import Extension
    from qbench.judging import EnvironmentClass, QuarantineEntry
    from qbench.storage import Cache
    from qbench.suite import Catalogues, PlannedCell, Suite
    from qbench.tracking import Baseline

FLIPS = 0.02
"""The share of samples that changes sides between fp32 and a good int8 network: measured ones lie near it."""
SOON = datetime.timedelta(days=30)
MOST_EXCUSED = 0.25


def decidable_drop(n: int, flips: float = FLIPS) -> float:
    """The smallest loss (a fraction) that n samples can tell from chance; see the formula above."""
    z = NormalDist().inv_cdf(0.95) + NormalDist().inv_cdf(0.8)
    return min(1.0, z * math.sqrt(flips / n))


def suite_facts(
    path: Path,
    baselines: Path,
    cache: "Cache",
    processor: str,
    today: datetime.date,
    *,
    added: "Sequence[Extension]" = (),
) -> dict[str, Any]:
    """Plain facts about the suite at ``path``, and its ``problems``; nothing is downloaded.

    Raises:
        QbenchError: the suite is wrong, or a baseline is damaged.
    """
    from qbench.suite import expand, gather, load_suite
    from qbench.tracking import baseline_path, find_baseline

    suite = load_suite(path)
    catalogues = gather(added, suites=path.parent)
    planned = expand(suite, catalogues)
    stored = {model.id: baseline_path(baselines, suite.name, model.id) for model in suite.models if not model.is_alone}
    known = {name: find_baseline(file) for name, file in stored.items()}
    entries = [_entry(entry, today) for entry in suite.quarantine]
    excused, gated = _excused(planned, known, catalogues, processor)
    facts = {
        "suite": suite.name,
        "path": str(path),
        "cells": len(planned),
        "assets": _assets(suite, cache),
        "models": [_model(suite, name, baseline, catalogues) for name, baseline in known.items()],
        "quarantine": entries,
        "gated": gated,
        "excused": excused,
    }
    return facts | {"problems": list(_problems(facts, known))}


def _assets(suite: "Suite", cache: "Cache") -> list[dict[str, Any]]:
    from qbench.zoo import needed_packages

    names = [name for model in suite.models for name in (model.id, model.data, model.calibration.data)]
    names += [metric.partition("@")[2] for model in suite.models for metric in model.metrics if "@" in metric]
    return [
        {
            "package": package.requirement,
            "bytes": package.size,
            "cached": (cache.folder / "packages" / package.file_name).exists(),
        }
        for package in needed_packages(names)
    ]


def _model(suite: "Suite", name: str, baseline: "Baseline | None", catalogues: "Catalogues") -> dict[str, Any]:
    """n, the margin in samples and what can be decided, for each proportion that the baseline holds."""
    from qbench.judging import resolve_tolerance

    table = next(model for model in suite.models if model.id == name)
    tolerance = resolve_tolerance(suite.own_tolerance(), table.own_tolerance())
    if baseline is None:
        return {"model": name, "baseline": False, "classes": [], "metrics": []}
    classes = sorted({one for cell in baseline.cells.values() for one in cell.accepted})
    metrics = []
    for metric, hits in baseline.metrics.items():
        if not catalogues.metrics.get(metric.partition("@")[0]).proportion:
            continue  # an error rate counts units, not samples
        n = baseline.data[metric.partition("@")[2] or table.data].samples
        metrics.append(
            {
                "metric": metric,
                "n": n,
                "fp32_hits": hits,
                "margin_samples": math.floor(tolerance.value * hits + 1e-9),
                "tolerance": tolerance.value,
                "decidable_pp": round(100 * decidable_drop(n), 2),
            }
        )
    return {"model": name, "baseline": True, "classes": classes, "metrics": metrics}


def _entry(entry: "QuarantineEntry", today: datetime.date) -> dict[str, Any]:
    left = (datetime.date.fromisoformat(entry.expires) - today).days
    return {"cell": entry.cell, "owner": entry.owner, "expires": entry.expires, "days_left": left, "when": entry.when}


def _excused(
    planned: "Sequence[PlannedCell]", known: "dict[str, Baseline | None]", catalogues: "Catalogues", processor: str
) -> tuple[int, int]:
    """How many quantized cells carry their own tolerance or an entry here, and how many are gated at all.

    Gated are those that a baseline knows (all, where there is none yet): unsupported cells must not thin out excuses.
    """
    excused = gated = 0
    for one in planned:
        if one.cell.is_fp32:
            continue
        environment = _environment(one, catalogues, processor)
        own = not one.tolerance(environment).rule.startswith(("suite ", "default"))
        has_excuse = own or one.quarantine(environment) is not None
        baseline = known.get(one.cell.model)
        if has_excuse or baseline is None or one.cell.slug in baseline.cells:
            gated += 1
            excused += has_excuse
    return excused, gated


def _environment(planned: "PlannedCell", catalogues: "Catalogues", processor: str) -> "EnvironmentClass":
    from qbench.backends import WrittenPython, versions_of
    from qbench.judging import EnvironmentClass

    backend = catalogues.backends.get(planned.cell.backend)
    packages: Mapping[str, str] = (
        {} if isinstance(backend, WrittenPython) else versions_of(backend)
    )  # asking would start that Python
    return EnvironmentClass.of(processor, packages, threads=planned.suite.table.threads)


def _problems(facts: dict[str, Any], known: "dict[str, Baseline | None]") -> Iterator[str]:
    for name, baseline in known.items():
        if baseline is None:
            yield f'{name} has no baseline: pytest "{facts["path"]}::{name}" --qbench-accept-fp32 --qbench-accept=new'
    for entry in facts["quarantine"]:
        if entry["days_left"] < 0:
            yield f"the quarantine of {entry['cell']} ended on {entry['expires']} ({entry['owner']})"
    if facts["gated"] and facts["excused"] > MOST_EXCUSED * facts["gated"]:
        yield (
            f"{facts['excused']} of {facts['gated']} gated cells carry their own tolerance or a quarantine entry; "
            f"at most {MOST_EXCUSED:.0%} should"
        )
