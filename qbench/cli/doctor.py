"""``qbench doctor``: what this computer and the suites are like, before anything is run or downloaded."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from qbench.cli.command import Command, ExitCode
from qbench.cli.named_extensions import declare_extensions, hinted, named_extensions
from qbench.cli.printing import print_columns, print_json, put

SUITES = "*.qbench.toml"


def declare(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``qbench doctor``."""
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"suite files (default: suites/{SUITES})")
    declare_extensions(parser)
    parser.add_argument("--baselines", metavar="DIR", default="baselines", help="folder of baselines")
    parser.add_argument("--cache", metavar="DIR", help="folder of the cache (default: the user's)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def execute(arguments: argparse.Namespace) -> ExitCode:
    """Print the facts; GATE_FAILED when something would keep a run from being trusted.

    Raises:
        QbenchError: a suite is wrong, or a baseline is damaged.
    """
    from qbench.cli.machine_facts import machine_facts
    from qbench.cli.suite_facts import suite_facts
    from qbench.host import utc_today
    from qbench.storage import Cache

    cache = Cache(Path(arguments.cache)) if arguments.cache else Cache.default()
    added = named_extensions(arguments.extension)
    machine = machine_facts(cache, added)
    paths = [Path(text) for text in arguments.suites] or sorted(Path("suites").glob(SUITES))
    processor, today = machine["environment_class"], utc_today()
    baselines = Path(arguments.baselines)
    with hinted(arguments.extension):
        suites = [suite_facts(path, baselines, cache, processor, today, added=added) for path in paths]
    problems = [problem for facts in (machine, *suites) for problem in facts["problems"]]
    if arguments.json:
        print_json({"machine": machine, "suites": suites, "problems": problems})
    else:
        _print_machine(machine)
        for suite in suites:
            _print_suite(suite, processor)
        put()
        put(f"{len(problems)} problems" if problems else "no problems")
        for problem in problems:
            put(f"  {problem}")
    return ExitCode.GATE_FAILED if problems else ExitCode.FINE


def _print_machine(machine: dict[str, Any]) -> None:
    host, cache = machine["host"], machine["cache"]
    rows = [
        ("environment class", machine["environment_class"]),
        ("processor", f"{host['processor_name'] or host['architecture']}, {host['cores']} cores"),
        ("dot product", str(host["dot_product"])),
        ("features", " ".join(host["features"]) or "unknown"),
        ("system", f"{host['system']}, Python {host['python']}"),
        ("packages", ", ".join(f"{name} {version}" for name, version in sorted(host["packages"].items()))),
        ("extensions", ", ".join(machine["extensions"]) or "none"),
        ("cache", f"{cache['folder']}: {_size(cache['bytes'])}, {_size(cache['free_bytes'])} free"),
    ]
    print_columns(rows)


def _print_suite(suite: dict[str, Any], environment_class: str) -> None:
    missing = [asset for asset in suite["assets"] if not asset["cached"]]
    put()
    put(f"{suite['path']}: {suite['cells']} cells")
    if missing:
        total = _size(sum(asset["bytes"] for asset in missing))
        put(f"  assets: {len(missing)} of {len(suite['assets'])} packages are not cached yet, {total} to download")
    else:
        put(f"  assets: all {len(suite['assets'])} packages are cached")
    classes = sorted({name for model in suite["models"] for name in model["classes"]})
    if classes and not any(name.split("+")[0] == environment_class for name in classes):
        put(f"  drift is incomparable here: results are accepted for {', '.join(classes)}")
    rows = [row for model in suite["models"] for row in _model_rows(model)]
    if rows:
        header = ("  model", "metric", "n", "one sample", "margin", "can tell from chance")
        print_columns(rows, header)
    for name in suite["unknown_until_started"]:
        put(f"  environment class of {name}: unknown until its Python is started; what a 'when' may excuse counts")
    for entry in suite["quarantine"]:
        soon = " — soon" if 0 <= entry["days_left"] <= _soon_days() else ""
        put(f"  quarantined until {entry['expires']}{soon}: {entry['cell']} ({entry['owner']})")
    put(f"  excused: {suite['excused']} of {suite['gated']} gated cells (own tolerance or entry; at most a quarter)")


def _model_rows(model: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    for metric in model["metrics"]:
        n, margin, largest = metric["n"], metric["margin_samples"], metric["largest_margin_samples"]
        margins = f"{margin} to {largest}, by cell," if largest > margin else f"{margin}"
        gates = f"{margins} of {metric['fp32_hits']}" if largest else "under one: shown, does not gate"
        yield (
            f"  {model['model']}",
            metric["metric"],
            str(n),
            f"{100 / n:.2f} pp",
            gates,
            f"a loss from {metric['decidable_pp']:.2f} pp on",
        )


def _soon_days() -> int:
    from qbench.cli.suite_facts import SOON

    return SOON.days


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


COMMAND = Command(
    name="doctor",
    summary="say what this computer and the suites are like, before anything is run",
    example="qbench doctor suites/smoke.qbench.toml",
    declare=declare,
    execute=execute,
)
