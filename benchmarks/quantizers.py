"""Every quantizer on the same models, samples and arithmetic: the page "Quantizers compared".

    python benchmarks/quantizers.py [--models digits_cnn,…] [--schemas by-ort,…] [--localize 60]
        [--again] [--twice] [--write]

Each result is a file in the user's cache as soon as it is measured, by model, schema and backend; a
run that ended goes on where it was. ``--again`` measures anew what failed; ``--twice`` runs each
quantizer twice and compares the bytes; ``--localize`` names node and cause of the worst cell of
each quantizer in at most so many seconds; ``--write`` writes docs/evidence/quantizers.md from all
results that there are. The backend ``integer-ideal`` counts exactly: what differs there between
two quantizers is theirs.
"""

import argparse
import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from qbench.backends import get_backend
from qbench.diagnosis import localize
from qbench.errors import QbenchError
from qbench.evaluation import SubjectArtifacts, build_subject, environment_here, measure_cell
from qbench.extension import known_extensions
from qbench.judging import Measurement, paired_interval
from qbench.metrics import Direction, Score
from qbench.quantization import get_schema, load_quantizer, quantizer_catalogue
from qbench.storage import Cache

PAGE = Path(__file__).parents[1] / "docs" / "evidence" / "quantizers.md"


@dataclass(frozen=True, slots=True)
class Ground:
    """What a model is measured on: scored samples (at most ``limit`` of them, spread evenly), what
    they are scored by, and calibration samples.
    """

    data: str
    calibration: str
    count: int
    metric: str = "top1"
    limit: int = 10_000


SUBJECTS = {
    "digits_cnn": Ground("digits_test", "digits_train", 32),
    "fashion_mobile": Ground("fashion_test", "fashion_calibration", 64, limit=1000),
    "squeezenet": Ground("labelled_photos", "calibration_crops", 64),
    "mobilenet_v2": Ground("labelled_photos", "calibration_crops", 64),
    "efficientnet_lite0": Ground("labelled_photos", "calibration_crops", 64),
    "magika": Ground("magika_files", "magika_calibration", 64),
    "minilm_glosses": Ground("glosses", "glosses_calibration", 64, limit=300),
    "g2p_en": Ground("cmudict_words", "cmudict_calibration", 64, "per", limit=200),
}
BACKENDS = ("integer-ideal", "ort-cpu")
OURS = ("w8a8_asym_pc", "w7a8_asym_pc")
"""Pairs of products by 7 bits do not saturate on processors without VNNI."""


def schemas() -> list[str]:
    """Ours, and every quantizer and variant that is installed."""
    known = quantizer_catalogue(known_extensions())
    found = [*OURS]
    for name in known.names():
        quantizer = load_quantizer(known.get(name))
        found += [f"by-{name}", *(f"by-{name}.{one}" for one in quantizer.variants)]
    return found


def result_path(cache: Cache, model: str, schema: str, backend: str) -> Path:
    """Of one cell; another quantizer, lock or script is another one."""
    quantizer = get_schema(schema).made_by
    made_by = "" if quantizer is None else quantizer.digest
    settings = json.dumps([asdict(SUBJECTS[model]), made_by])
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
    agreed = [one for one in found.scores if one.metric.startswith("agreement")]
    sign = 1 if first.direction is Direction.HIGHER else -1
    return {
        "value": first.value,
        "fp32": first.reference_value,
        "worse": sign * (first.reference_value - first.value),
        "n": first.n,
        "interval": interval(first),
        "agreement": agreed[0].value if agreed else None,
        "planned": found.integer_macs,
        "executed": found.executed_macs,
        "quantizer": None if found.quantizer is None else asdict(found.quantizer),
    }


def interval(score: Score) -> tuple[float, float]:
    """Of the change from fp32: by sources where samples share some, by the paired bootstrap of a
    metric that is not a share of right samples.
    """
    if score.clusters is not None:
        return score.clusters.shown
    if score.interval is not None:
        return score.interval
    return paired_interval(score.losses, score.gains, score.n)


def cause(shared: SubjectArtifacts, schema: str, backend: str, seconds: float) -> str:
    """The node and the cause that localization names."""
    try:
        return localize(shared, backend, get_schema(schema), seconds=seconds).headline
    except QbenchError as error:
        return f"not localized: {error.found[:200]}"


def artifacts(model: str, cache: Cache, *, twice: bool) -> SubjectArtifacts:
    """What the cells of ``model`` share."""
    ground = SUBJECTS[model]
    metrics = [ground.metric, "agreement"]
    subject = build_subject(model, ground.data, ground.calibration, metrics, ground.count)
    whole = subject.data[ground.data]
    if len(whole) > ground.limit:
        subject = replace(subject, data={ground.data: whole.take(ground.limit)})
    floats = get_backend("ort-cpu")
    environment = str(environment_here(floats))
    return SubjectArtifacts(subject, cache, floats, environment, quantizes_twice=twice)


def measure_model(
    model: str, names: list[str], cache: Cache, *, again: bool, twice: bool, seconds: float
) -> None:
    """Measure what is missing of ``model``, and localize the worst cell of each quantizer."""
    shared = artifacts(model, cache, twice=twice)
    for schema in names:
        for backend in BACKENDS:
            path = result_path(cache, model, schema, backend)
            known = read(path)
            if known and not (again and "error" in known):
                continue
            known = measured(shared, schema, backend)
            print(f"{model} {schema} {backend}: {known}", flush=True)
            keep(path, known)
        if seconds:
            localize_worst(shared, schema, cache, seconds)


def localize_worst(shared: SubjectArtifacts, schema: str, cache: Cache, seconds: float) -> None:
    """Name the cause of the worst cell of ``schema``, if a cell of it is worse than fp32."""
    paths = [result_path(cache, shared.subject.model.id, schema, one) for one in BACKENDS]
    known = {one: read(path) for one, path in zip(BACKENDS, paths, strict=True)}
    counted = {b: r for b, r in known.items() if r.get("worse", 0) > 0}
    if not counted or any("cause" in r for r in counted.values()):
        return
    worst = max(counted, key=lambda b: counted[b]["worse"])
    found = cause(shared, schema, worst, seconds)
    print(f"{shared.subject.model.id} {schema} {worst}: {found}", flush=True)
    keep(paths[BACKENDS.index(worst)], known[worst] | {"cause": f"{worst}: {found}"})


def keep(path: Path, known: dict[str, Any]) -> None:
    """Write a result to ``path``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(known), encoding="utf-8")


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
            # The last words of its process; what is before them has paths of this computer.
            cells += [result.get("error", "not measured").rpartition(" / ")[2], "", ""]
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


def model_table(model: str, names: list[str], cache: Cache) -> list[str]:
    """The lines of ``model``; none: nothing of it was measured."""
    ground = SUBJECTS[model]
    facts = (f"{ground.metric}, pp", "agreement", "planned / executed")
    heads = [f"{one}: {fact}" for one in BACKENDS for fact in facts]
    made = ["s", "MB", "bytes", "same bytes twice"]
    head = ["quantizer", *heads, *made, "worst cell: backend, node and cause"]
    results = {
        schema: {b: read(result_path(cache, model, schema, b)) for b in BACKENDS}
        for schema in names
    }
    known = {schema: one for schema, one in results.items() if any(one.values())}
    counted = [r for one in known.values() for r in one.values() if "value" in r]
    if not counted:
        return []
    lines = ["", f"## {model}", ""]
    lines.append(
        f"{counted[0]['n']} samples of `{ground.data}`, {ground.count} of `{ground.calibration}`"
        f" for calibration. fp32 has {ground.metric} {percent(counted[0]['fp32'])}"
        f"{', of which less is better.' if ground.metric == 'per' else '.'}"
    )
    lines += ["", f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [row(schema, one) for schema, one in known.items()]
    missing = [f"`{schema}`" for schema in names if schema not in known]
    if missing:
        lines += ["", f"Not run, for time: {', '.join(missing)}."]
    return lines


def page(names: list[str], cache: Cache) -> str:
    """The page, in Markdown."""
    lines = [
        "# Quantizers compared",
        "",
        "Each [quantizer](../quantizers.md) got the same float model and calibration samples, and",
        "its file was measured on the same samples. `integer-ideal` counts exactly: differences",
        "there are the quantizer's. top1 is the change from fp32 in percentage points, with its",
        "95 % interval (by sources where samples share some; per, the phoneme error rate, has the",
        "90 % interval of a paired bootstrap). Seconds are wall clock of one run on a shared and",
        "busy computer with two cores. Written by `benchmarks/quantizers.py --write`, which has",
        "the settings. `w8a8_asym_pc` and `w7a8_asym_pc` are qbench's own; the second has weights",
        "of 7 bits, with which `ort-cpu` saturates no sum on a processor without VNNI.",
    ]
    for model in SUBJECTS:
        lines += model_table(model, names, cache)
    return "\n".join([*lines, ""])


def main() -> None:
    """Measure, and write the page where that is asked for."""
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--models", default="digits_cnn", help="by commas, 'all' or 'none'")
    made.add_argument("--schemas", default="", help="by commas (default: all that are installed)")
    made.add_argument("--again", action="store_true", help="measure anew what failed")
    made.add_argument("--twice", action="store_true", help="run each twice, to compare bytes")
    made.add_argument("--localize", type=float, default=0.0, help="seconds for each quantizer")
    made.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    given = made.parse_args()
    models = [] if given.models == "none" else given.models.split(",")
    models = list(SUBJECTS) if given.models == "all" else models
    names, cache = given.schemas.split(",") if given.schemas else schemas(), Cache.default()
    for model in models:
        measure_model(
            model, names, cache, again=given.again, twice=given.twice, seconds=given.localize
        )
    if given.write:
        PAGE.write_text(page(schemas(), cache), encoding="utf-8")


if __name__ == "__main__":
    main()
