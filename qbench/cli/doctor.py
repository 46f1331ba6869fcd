"""qbench doctor: what this computer and the suites are like."""

import argparse
import contextlib
import datetime
import math
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbench.cli.command import Command, ExitCode
from qbench.cli.options import (
    choose_cache,
    declare_baselines,
    declare_cache,
    declare_json,
    hinted,
)
from qbench.cli.printing import print_columns, print_json, put
from qbench.errors import QbenchError
from qbench.number_text import counted

if TYPE_CHECKING:
    from qbench.judging import DataPower, EnvironmentClass, QuarantineEntry, Tolerance
    from qbench.storage import Cache
    from qbench.suite import Catalogues, PlannedCell, Suite
    from qbench.tracking import Baseline, StoredData


# What ``qbench doctor`` reports about this computer: its class, the installed packages, the cache,
# the extensions.


def machine_facts(cache: "Cache") -> dict[str, Any]:
    """Plain facts, and under ``problems`` a sentence for each thing that would keep a run from
    working.

    Args:
        cache: whose folder is looked at.

    Raises:
        InputError: an installed extension is not one.
    """
    from qbench.extension import known_extensions
    from qbench.host import describe_host

    host: dict[str, Any] = {**describe_host()}
    return {
        "environment_class": host.pop("processor_class"),
        "host": host,
        "cache": _cache(cache.folder),
        "extensions": [extension.name for extension in known_extensions()],
        "problems": list(_problems(cache.folder)),
    }


def _cache(folder: Path) -> dict[str, Any]:
    kinds = (
        {child.name: _bytes(child) for child in sorted(folder.iterdir()) if child.is_dir()}
        if folder.is_dir()
        else {}
    )
    free = shutil.disk_usage(_existing(folder)).free
    return {"folder": str(folder), "bytes": sum(kinds.values()), "kinds": kinds, "free_bytes": free}


def _problems(folder: Path) -> Iterable[str]:
    if not os.access(_existing(folder), os.W_OK | os.X_OK):
        yield (
            f"the cache '{folder}' cannot be written: make it writable, or set QBENCH_CACHE to "
            "another folder"
        )
    if shutil.which("git") is None:
        yield "git is not installed: runs cannot record the commit that they measured"


def _existing(folder: Path) -> Path:
    """The nearest folder above that is there: the one that decides whether ``folder`` can be
    made.
    """
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder


def _bytes(folder: Path) -> int:
    from qbench.storage import paths_below

    sizes = 0
    for path in paths_below(folder):
        with contextlib.suppress(FileNotFoundError):  # a run has removed it meanwhile
            sizes += path.lstat().st_size if path.is_file() else 0
    return sizes


# What ``qbench doctor`` reports about one suite: its assets, what its samples can decide, its
# exceptions.

SOON = datetime.timedelta(days=30)


def suite_facts(
    path: Path,
    baselines: Path,
    cache: "Cache",
    processor: str,
    today: datetime.date,
) -> dict[str, Any]:
    """Plain facts about the suite at ``path``, and its ``problems``; nothing is downloaded.

    Raises:
        QbenchError: the suite is wrong, or a baseline is damaged.
    """
    from qbench.judging import open_sentence
    from qbench.suite import expand, gather, load_suite
    from qbench.tracking import baseline_path, find_baseline

    suite = load_suite(path)
    catalogues = gather(suites=path.parent)
    planned = expand(suite, catalogues)
    stored = {
        model.id: baseline_path(baselines, suite.name, model.id)
        for model in suite.models
        if not model.is_alone
    }
    known = {name: find_baseline(file) for name, file in stored.items()}
    entries = [_entry(entry, today) for entry in suite.quarantine]
    places = _Places.of(suite, planned, catalogues, processor)
    excused, gated = _excused(planned, known, places)
    models = [
        _model(suite, name, baseline, catalogues, _tolerances(planned, name, baseline, places))
        for name, baseline in known.items()
    ]
    facts = {
        "suite": suite.name,
        "path": str(path),
        "cells": len(planned),
        "assets": _assets(suite, cache),
        "undecided": open_sentence(power for _, powers in models for power in powers),
        "models": [facts for facts, _ in models],
        "devices": dict(places.devices),
        "comparable": any(places.include(one) for facts, _ in models for one in facts["classes"]),
        "unknown_until_started": list(places.unknown),
        "quarantine": entries,
        "gated": gated,
        "excused": excused,
        "most_excused": suite.table.most_excused,
    }
    return facts | {"problems": list(_suite_problems(facts, known))}


def _assets(suite: "Suite", cache: "Cache") -> list[dict[str, Any]]:
    from qbench.subjects import needed_packages

    names = [
        name for model in suite.models for name in (model.id, model.data, model.calibration.data)
    ]
    names += [
        metric.partition("@")[2]
        for model in suite.models
        for metric in model.metrics
        if "@" in metric
    ]
    return [
        {
            "package": package.requirement,
            "bytes": package.size,
            "cached": (cache.folder / "packages" / package.file_name).exists(),
        }
        for package in needed_packages(names)
    ]


def _tolerances(
    planned: "Sequence[PlannedCell]", name: str, baseline: "Baseline | None", places: "_Places"
) -> "list[Tolerance]":
    """Those of the quantized cells of the model ``name``: of those that ``baseline`` knows,
    where it knows any.
    """
    own = [one for one in planned if one.cell.model == name and not one.cell.is_fp32]
    judged = [one for one in own if baseline is not None and one.cell.slug in baseline.cells] or own
    return [
        one.tolerance(environment)
        for one in judged
        for environment in places.of_backend[one.cell.backend]
    ]


def _model(
    suite: "Suite",
    name: str,
    baseline: "Baseline | None",
    catalogues: "Catalogues",
    tolerances: "Sequence[Tolerance]",
) -> "tuple[dict[str, Any], list[DataPower]]":
    """n, its sources, the margin in samples and what can be decided, for each proportion that
    the baseline holds.

    Samples of one source are taken to change together: before a run nothing else is known of them.
    The margin is that of the strictest of ``tolerances``, and ``largest_…`` that of the most
    lenient.
    """
    table = next(model for model in suite.models if model.id == name)
    if baseline is None:
        return {"model": name, "baseline": False, "classes": [], "metrics": []}, []
    from qbench.judging import DataPower
    from qbench.metrics import Score

    classes = sorted({one for cell in baseline.cells.values() for one in cell.accepted})
    metrics, powers = [], []
    for metric, hits in baseline.metrics.items() if tolerances else ():
        # without quantized cells nothing is judged
        kind = catalogues.metrics.get(metric.partition("@")[0])
        if not kind.proportion:
            continue  # an error rate counts units, not samples
        name_of_data = metric.partition("@")[2] or table.data
        n, sources, is_other = _data_today(catalogues, name_of_data, baseline.data[name_of_data])
        right = round(hits * n / baseline.data[name_of_data].samples) if is_other else hits
        fp32 = Score(
            metric=metric,
            direction=kind.direction,
            against=kind.against,
            unit=kind.unit,
            proportion=True,
            least_margin=kind.least_margin,
            n=n,
            hits=right,
            out_of=n,
            reference_hits=right,
            losses=0,
            gains=0,
        )
        values = [tolerance.of(metric).value for tolerance in tolerances]
        margins = [math.floor(tolerance.margin(fp32)) for tolerance in tolerances]
        power = DataPower(
            model=name,
            metric=metric,
            n=n,
            sources=sources,
            margin=min(float(tolerance.margin(fp32) / n) for tolerance in tolerances),
            unit=kind.unit,
        )
        powers.append(power)
        metrics.append(
            {
                "metric": metric,
                "n": n,
                "sources": sources,
                "other_data": is_other,
                "fp32_hits": right,
                "margin_samples": min(margins),
                "largest_margin_samples": max(margins),
                "tolerance": min(values),
                "largest_tolerance": max(values),
                "decidable_pp": round(100 * power.tells, 2),
                "needed": power.needed,
                "settles": power.more_text,
            }
        )
    return {"model": name, "baseline": True, "classes": classes, "metrics": metrics}, powers


def _data_today(
    catalogues: "Catalogues", name: str, stored: "StoredData"
) -> tuple[int, int | None, bool]:
    """How many samples the data set ``name`` has now, from how many sources, and whether the
    baseline has others.

    Those of the baseline where it comes out of packages, or cannot be read: nothing is downloaded
    here.
    """
    from qbench.subjects import needed_packages

    if needed_packages([name]):
        return stored.samples, stored.sources, False
    try:
        data = catalogues.datasets.get(name)
    except QbenchError:
        return stored.samples, stored.sources, False
    different = len(set(data.drawn_from))
    sources = None if different == len(data) else different
    return len(data), sources, (len(data), sources) != (stored.samples, stored.sources)


def _entry(entry: "QuarantineEntry", today: datetime.date) -> dict[str, Any]:
    left = (datetime.date.fromisoformat(entry.expires) - today).days
    return {
        "cell": entry.cell,
        "owner": entry.owner,
        "expires": entry.expires,
        "days_left": left,
        "when": entry.when,
    }


def _excused(
    planned: "Sequence[PlannedCell]", known: "dict[str, Baseline | None]", places: "_Places"
) -> tuple[int, int]:
    """How many quantized cells carry their own tolerance or an entry here, and how many are
    gated at all.

    Gated are the cells in a baseline (all, where there is no baseline yet): unsupported cells must
    not lower the share. An excuse with a ``when`` counts where it may hold, as far as is known
    before an engine is started.
    """
    excused = gated = 0
    for one in planned:
        if one.cell.is_fp32:
            continue
        has_excuse = any(
            _is_excused(one, environment) for environment in places.of_backend[one.cell.backend]
        )
        baseline = known.get(one.cell.model)
        if has_excuse or baseline is None or one.cell.slug in baseline.cells:
            gated += 1
            excused += has_excuse
    return excused, gated


def _is_excused(planned: "PlannedCell", environment: "EnvironmentClass") -> bool:
    own = not planned.tolerance(environment).rule.startswith(("suite ", "default"))
    return own or planned.quarantine_entry(environment) is not None


@dataclass(frozen=True, slots=True)
class _Places:
    """The environment classes in which cells may run on this computer.

    Args:
        of_backend: name → its class; of one in ``unknown`` all classes of this processor and its
            device that a ``when`` of the suite names, and one that none names.
        unknown: the backends whose versions are not known until their Python is started.
    """

    of_backend: "Mapping[str, Sequence[EnvironmentClass]]"
    unknown: tuple[str, ...]

    @property
    def devices(self) -> Mapping[str, str]:
        """The backends on another device than the CPU, each with its device."""
        from qbench.judging import CPU

        found = {name: places[0].device for name, places in self.of_backend.items()}
        return {name: device for name, device in found.items() if device != CPU}

    def include(self, name: str) -> bool:
        """Whether one of the classes has the processor and the device of the class ``name``."""
        from qbench.judging import ANY, EnvironmentClass

        hardware = {one.hardware for places in self.of_backend.values() for one in places}
        return name == ANY or EnvironmentClass.parse(name).hardware in hardware

    @classmethod
    def of(
        cls,
        suite: "Suite",
        planned: "Sequence[PlannedCell]",
        catalogues: "Catalogues",
        processor: str,
    ) -> "_Places":
        from qbench.backends import RemoteBackend, device_of
        from qbench.evaluation import environment_of
        from qbench.judging import EnvironmentClass

        named = {EnvironmentClass.parse(text) for text in _conditions(suite)}
        of_backend: dict[str, Sequence[EnvironmentClass]] = {}
        unknown = []
        for name in dict.fromkeys(one.cell.backend for one in planned):
            backend = catalogues.backends.get(name)
            if isinstance(backend, RemoteBackend) and not backend.has_started:
                bare = EnvironmentClass(processor, device=device_of(backend))
                possible = {one for one in named if one.hardware == bare.hardware} | {bare}
                of_backend[name] = sorted(possible, key=str)
                unknown.append(name)
            else:
                of_backend[name] = [environment_of(backend, processor, threads=suite.table.threads)]
        return cls(of_backend, tuple(unknown))


def _conditions(suite: "Suite") -> Iterator[str]:
    """Every environment class or processor that a ``when`` of ``suite`` names."""
    tables = [model.tolerance for model in suite.models if isinstance(model.tolerance, Mapping)]
    settings = [
        setting for table in tables for setting in table.values() if not isinstance(setting, float)
    ]
    conditions = [entry.when for entry in suite.quarantine] + [setting.when for setting in settings]
    for when in conditions:
        yield from (when,) if isinstance(when, str) else when or ()


def _suite_problems(facts: dict[str, Any], known: "dict[str, Baseline | None]") -> Iterator[str]:
    for name, baseline in known.items():
        if baseline is None:
            yield (
                f'{name} has no baseline: pytest "{facts["path"]}::{name}" --qbench-accept-fp32 '
                "--qbench-accept=new"
            )
    for entry in facts["quarantine"]:
        if entry["days_left"] < 0:
            yield (
                f"the quarantine of {entry['cell']} ended on {entry['expires']} ({entry['owner']})"
            )
    if facts["excused"] > facts["most_excused"] * facts["gated"]:
        yield (
            f"{facts['excused']} of {counted(facts['gated'], 'gated cell')} carry their own "
            "tolerance or a quarantine "
            f"entry; at most {facts['most_excused']:.0%} should (most_excused of the suite)"
        )


# ``qbench doctor``: what this computer and the suites are like, before anything is run or
# downloaded.

SUITES = "*.qbench.toml"


def declare(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``qbench doctor``."""
    parser.add_argument(
        "suites", nargs="*", metavar="SUITE", help=f"suite files (default: suites/{SUITES})"
    )
    declare_baselines(parser)
    declare_cache(parser)
    declare_json(parser)


def execute(arguments: argparse.Namespace) -> ExitCode:
    """Print the facts; GATE_FAILED when something would keep a run from being trusted.

    Raises:
        QbenchError: a suite is wrong, or a baseline is damaged.
    """
    from qbench.host import utc_today

    cache = choose_cache(arguments.cache)
    machine = machine_facts(cache)
    paths = [Path(text) for text in arguments.suites] or sorted(Path("suites").glob(SUITES))
    processor, today = machine["environment_class"], utc_today()
    baselines = Path(arguments.baselines)
    with hinted(arguments.extension):
        suites = [suite_facts(path, baselines, cache, processor, today) for path in paths]
    problems = [problem for facts in (machine, *suites) for problem in facts["problems"]]
    if arguments.json:
        print_json({"machine": machine, "suites": suites, "problems": problems})
    else:
        _print_machine(machine)
        for suite in suites:
            _print_suite(suite)
        put()
        put(counted(len(problems), "problem") if problems else "no problems")
        for problem in problems:
            put(f"  {problem}")
    return ExitCode.GATE_FAILED if problems else ExitCode.FINE


def _print_machine(machine: dict[str, Any]) -> None:
    host, cache = machine["host"], machine["cache"]
    rows = [
        ("environment class", machine["environment_class"]),
        ("processor", f"{host['processor_name'] or host['architecture']}, {host['cores']} cores"),
        ("dot product", str(host["dot_product"])),
        ("numpy's BLAS", str(host["blas"]) or "unknown"),
        ("features", " ".join(host["features"]) or "unknown"),
        ("system", f"{host['system']}, Python {host['python']}"),
        (
            "packages",
            ", ".join(f"{name} {version}" for name, version in sorted(host["packages"].items())),
        ),
        ("extensions", ", ".join(machine["extensions"]) or "none"),
        ("cache", f"{cache['folder']}: {_size(cache['bytes'])}, {_size(cache['free_bytes'])} free"),
    ]
    print_columns(rows)


def _print_suite(suite: dict[str, Any]) -> None:
    missing = [asset for asset in suite["assets"] if not asset["cached"]]
    put()
    put(f"{suite['path']}: {suite['cells']} cells")
    if suite["undecided"]:
        put(f"  {suite['undecided']}")
    if missing:
        total = _size(sum(asset["bytes"] for asset in missing))
        put(
            f"  assets: {len(missing)} of {len(suite['assets'])} packages are not cached yet, "
            f"{total} to download"
        )
    else:
        put(f"  assets: all {len(suite['assets'])} packages are cached")
    for name, device in suite["devices"].items():
        put(f"  {name} runs on {device}: its results have environment classes of their own")
    classes = sorted({name for model in suite["models"] for name in model["classes"]})
    if classes and not suite["comparable"]:
        put(f"  drift is incomparable here: results are accepted for {', '.join(classes)}")
    rows = [row for model in suite["models"] for row in _model_rows(model)]
    if rows:
        header = (
            "  model",
            "metric",
            "n",
            "one sample",
            "margin",
            "can tell from chance",
            "to settle the margin",
        )
        print_columns(rows, header)
    for name in suite["unknown_until_started"]:
        put(
            f"  environment class of {name}: unknown until its Python is started; what a 'when' "
            "may excuse counts"
        )
    for entry in suite["quarantine"]:
        soon = " — soon" if 0 <= entry["days_left"] <= _soon_days() else ""
        put(f"  quarantined until {entry['expires']}{soon}: {entry['cell']} ({entry['owner']})")
    most = f"at most {suite['most_excused']:.0%}"
    put(
        f"  excused: {suite['excused']} of {suite['gated']} gated cells (own tolerance or entry; "
        f"{most})"
    )


def _model_rows(model: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    for metric in model["metrics"]:
        n, margin, largest = metric["n"], metric["margin_samples"], metric["largest_margin_samples"]
        margins = f"{margin} to {largest}, by cell," if largest > margin else f"{margin}"
        gates = (
            f"{margins} of {metric['fp32_hits']}" if largest else "under one: shown, does not gate"
        )
        yield (
            f"  {model['model']}",
            metric["metric"],
            str(n)
            if metric["sources"] is None
            else f"{n} from {counted(metric['sources'], 'source')}",
            f"{100 / n:.2f} pp",
            gates,
            f"a loss from {metric['decidable_pp']:.2f} pp on",
            metric["settles"].removesuffix(" settle it").removesuffix(" settles it") or "enough",
        )


def _soon_days() -> int:

    return SOON.days


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


COMMAND = Command(
    name="doctor",
    summary="report facts and problems of this computer and of the suites, before a run",
    example="qbench doctor suites/smoke.qbench.toml",
    declare=declare,
    execute=execute,
)
