"""Every quantizer on the same models, samples and arithmetic: the page "Quantizers compared".

    python benchmarks/quantizers.py [--models digits_cnn,…] [--schemas by-ort,…] [--write]

Each result is a file in the user's cache as soon as it is measured, by model, schema and backend; a
run that ended goes on where it was. ``--again`` measures anew what failed; ``--write`` writes
docs/evidence/quantizers.md from all results of the models and schemas that are named. The backend
``integer-ideal`` counts exactly: what differs there between two quantizers is theirs.
"""

import argparse
import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from qbench.backends import get_backend
from qbench.diagnosis import localize
from qbench.errors import QbenchError
from qbench.evaluation import SubjectArtifacts, build_subject, environment_here, measure_cell
from qbench.extension import known_extensions
from qbench.judging import Measurement, paired_interval
from qbench.quantization import get_schema, load_quantizer, quantizer_catalogue
from qbench.storage import Cache

PAGE = Path(__file__).parents[1] / "docs" / "evidence" / "quantizers.md"
SUBJECTS = {
    "digits_cnn": ("digits_test", "digits_train", 32),
    "fashion_mobile": ("fashion_test", "fashion_calibration", 64),
    "squeezenet": ("labelled_photos", "calibration_crops", 64),
    "mobilenet_v2": ("labelled_photos", "calibration_crops", 64),
    "magika": ("magika_files", "magika_calibration", 64),
}
"""Model → scored samples, calibration samples and how many of these."""
BACKENDS = ("integer-ideal", "ort-cpu")
LOCALIZED_S = 60.0


def schemas() -> list[str]:
    """Ours, and every quantizer and variant that is installed."""
    known = quantizer_catalogue(known_extensions())
    found = ["w8a8_asym_pc"]
    for name in known.names():
        quantizer = load_quantizer(known.get(name))
        found += [f"by-{name}", *(f"by-{name}.{one}" for one in quantizer.variants)]
    return found


def result_path(cache: Cache, model: str, schema: str, backend: str) -> Path:
    """Of one cell; another quantizer, lock or script is another one."""
    quantizer = get_schema(schema).made_by
    made_by = "" if quantizer is None else quantizer.digest
    settings = json.dumps([SUBJECTS[model], made_by])
    digest = hashlib.sha256(settings.encode()).hexdigest()[:12]
    return cache.folder / "quantizers-compared" / f"{model}+{backend}+{schema}+{digest}.json"


def measured(shared: SubjectArtifacts, schema: str, backend: str) -> dict[str, Any]:
    """The numbers of one cell, or the sentence why there are none."""
    try:
        found = measure_cell(shared, backend, get_schema(schema))
    except QbenchError as error:
        return {"error": error.found[:300]}
    return numbers(found) | {"schema": schema}


def numbers(found: Measurement) -> dict[str, Any]:
    """What the page has of ``found``."""
    first = found.scores[0]
    known = first.clusters
    low, high = (
        paired_interval(first.losses, first.gains, first.n) if known is None else known.shown
    )
    agreed = [one for one in found.scores if one.metric.startswith("agreement")]
    return {
        "value": first.value,
        "fp32": first.reference_value,
        "interval": [low, high],
        "agreement": agreed[0].value if agreed else None,
        "planned": found.integer_macs,
        "executed": found.executed_macs,
        "quantizer": None if found.quantizer is None else asdict(found.quantizer),
    }


def cause(shared: SubjectArtifacts, schema: str, backend: str) -> str:
    """The node and the cause that localization names."""
    try:
        return localize(shared, backend, get_schema(schema), seconds=LOCALIZED_S).headline
    except QbenchError as error:
        return f"not localized: {error.found[:200]}"


def measure_model(model: str, names: list[str], cache: Cache, *, again: bool) -> None:
    """Measure what is missing of ``model``, and localize the worst cell of each quantizer."""
    data, calibration, count = SUBJECTS[model]
    subject = build_subject(model, data, calibration, ["top1", "agreement"], count)
    floats = get_backend("ort-cpu")
    environment = str(environment_here(floats))
    shared = SubjectArtifacts(subject, cache, floats, environment, quantizes_twice=True)
    for schema in names:
        paths = {one: result_path(cache, model, schema, one) for one in BACKENDS}
        known = {one: read(path) for one, path in paths.items()}
        missing = [b for b, r in known.items() if not r or (again and "error" in r)]
        for backend in missing:
            known[backend] = measured(shared, schema, backend)
            print(f"{model} {schema} {backend}: {known[backend]}", flush=True)
        counted = {b: r for b, r in known.items() if "value" in r}
        if missing and counted:
            worst = min(counted, key=lambda b: counted[b]["value"])
            known[worst]["cause"] = cause(shared, schema, worst)
        for backend, path in paths.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(known[backend]), encoding="utf-8")


def read(path: Path) -> dict[str, Any]:
    """The result at ``path``; empty: there is none."""
    found: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    return found


def percent(share: float | None) -> str:
    """``98.9 %``; empty: not known."""
    return "" if share is None else f"{100 * share:.1f} %"


def row(schema: str, results: dict[str, dict[str, Any]]) -> str:
    """One quantizer on one model: exact arithmetic first, then each engine."""
    cells, note, reason = [], None, ""
    for result in results.values():
        if "value" not in result:
            cells += [result.get("error", "not measured"), "", ""]
            continue
        low, high = (f"{100 * one:+.2f}" for one in result["interval"])
        change = f"{100 * (result['value'] - result['fp32']):+.2f} ({low} … {high})"
        shares = f"{percent(result['planned'])} / {percent(result['executed']) or 'not reported'}"
        cells += [change, percent(result["agreement"]), shares]
        note, reason = result["quantizer"] or note, result.get("cause", reason)
    made = ["", "", "", ""]
    if note is not None:
        same = {True: "yes", False: "no", None: ""}[note["same_bytes"]]
        made = [f"{note['seconds']:g}", f"{note['peak_mb']:g}", f"{note['size']:,}", same]
    words = [f"`{schema}`", *cells, *made, reason]
    return f"| {' | '.join(one.replace('|', '/') for one in words)} |"


def page(models: list[str], names: list[str], cache: Cache) -> str:
    """The page, in Markdown."""
    facts = ("top-1, pp", "agreement", "planned / executed")
    heads = [f"{one}: {fact}" for one in BACKENDS for fact in facts]
    made = ["s", "MB", "bytes", "same bytes twice"]
    head = ["quantizer", *heads, *made, "worst cell: node and cause"]
    lines = [
        "# Quantizers compared",
        "",
        "Each [quantizer](../quantizers.md) got the same float model and calibration samples, and",
        "its file was measured on the same samples. `integer-ideal` counts exactly: differences",
        "there are the quantizer's. top-1 is the change from fp32 in percentage points, with its",
        "95 % interval (by sources where samples share some). Seconds are wall clock of one run on",
        "a shared computer with two cores. Written by `benchmarks/quantizers.py`, which has the",
        "settings.",
    ]
    for model in models:
        results = {
            schema: {b: read(result_path(cache, model, schema, b)) for b in BACKENDS}
            for schema in names
        }
        known = {schema: one for schema, one in results.items() if any(one.values())}
        fp32 = next(
            (r["fp32"] for one in known.values() for r in one.values() if "fp32" in r), None
        )
        if fp32 is None:
            continue
        lines += ["", f"## {model}", "", f"fp32 has top-1 {percent(fp32)}.", ""]
        lines += [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
        lines += [row(schema, one) for schema, one in known.items()]
    return "\n".join([*lines, ""])


def main() -> None:
    """Measure, and write the page where that is asked for."""
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--models", default="digits_cnn", help="by commas (default: digits_cnn)")
    made.add_argument("--schemas", default="", help="by commas (default: all that are installed)")
    made.add_argument("--again", action="store_true", help="measure anew what failed")
    made.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    given = made.parse_args()
    models = list(SUBJECTS) if given.models == "all" else given.models.split(",")
    names, cache = given.schemas.split(",") if given.schemas else schemas(), Cache.default()
    for model in models:
        measure_model(model, names, cache, again=given.again)
    if given.write:
        PAGE.write_text(page(models, names, cache), encoding="utf-8")


if __name__ == "__main__":
    main()
