"""Every quantizer on the same models, samples and arithmetic: the page "Quantizers compared".

    python benchmarks/quantizers.py [--models digits_cnn,…] [--tools by-ort,…] [--localize 60]
        [--again] [--twice] [--cost mobilenet_v2] [--against w8a8_asym_pc_mse] [--write]

Each result is a file in the user's cache as soon as it is measured: by model and samples, tool or
rules of ours, backend with its version, class of processor, and qbench's code. A run that ended
goes on where it was, and a tool that fails leaves its error in its own cell. What other code or
another computer measured is measured again; the page has it, marked, until then. Files that a tool
wrote are kept by qbench, so that most of that is answering the samples.
Without options the models of ``USUAL`` and each tool as it comes are measured; ``--models all
--tools all`` adds the other models and every variant. ``--again`` measures anew what failed, and
localizes anew what was not to its end; ``--twice`` runs each quantizer twice and compares the
bytes; ``--localize`` names node and cause of the worst cell of each quantizer, of those measured
here, in at most so many seconds; ``--cost`` quantizes one model by each in a process and a cache of
its own, and keeps processor time and memory; ``--against`` compares each with a schema of your
choice; ``--write`` writes docs/evidence/quantizers.md from all results
that there are, and benchmarks/quantizers.json, what the page shows: of that, rows stay, marked,
which the cache of this computer does not have. The backend ``integer-ideal`` counts exactly: what
differs there between two quantizers is theirs.
"""

import argparse
import functools
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from qbench.backends import get_backend
from qbench.diagnosis import localize
from qbench.diagnosis.localize_graph import NOT_LOOKED_FOR
from qbench.errors import QbenchError, UnavailableError
from qbench.evaluation import (
    Request,
    SubjectArtifacts,
    build_subject,
    environment_here,
    measure_request,
)
from qbench.evaluation.quantizer_run import quantizer_python, stacked
from qbench.extension import known_extensions
from qbench.graph import save_model
from qbench.judging import Cell, Measurement, paired_interval
from qbench.metrics import Direction, Score
from qbench.quantization import Quantizer, get_schema, load_quantizer, quantizer_catalogue
from qbench.storage import Cache, digest_plain, write_text
from qbench.suite.cell_parts import own_sources

Result = dict[str, Any]


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
USUAL = ("digits_cnn", "squeezenet", "mobilenet_v2", "magika", "g2p_en")
"""The models of a run without options."""
ONNX_BACKENDS = ("integer-ideal", "ort-cpu")
TFLITE_BACKENDS = ("litert-reference", "litert-builtin")
"""Of quantizers that give TFLite: no simulated arithmetic reads these files."""
OURS = ("w8a8_asym_pc", "w7a8_asym_pc")
"""Pairs of products by 7 bits do not saturate on processors without VNNI."""
RECORD = Path(__file__).with_suffix(".json")
"""What the page showed when it was last written: results without answers, and comparisons."""
RIVAL = {"integer-ideal": OURS[0], "ort-cpu": OURS[1], **dict.fromkeys(TFLITE_BACKENDS, OURS[0])}
"""Backend → the schema of qbench that each quantizer is compared with there, chosen beforehand."""


def tools(*, variants: bool) -> list[str]:
    """Ours, and every quantizer that is installed, with its variants if asked for."""
    known = quantizer_catalogue(known_extensions())
    found = [*OURS]
    for name in known.names():
        found.append(f"by-{name}")
        if variants:
            found += [f"by-{name}.{one}" for one in load_quantizer(known.get(name)).variants]
    return found


def backends_of(schema: str) -> tuple[str, ...]:
    """Those that run what ``schema`` gives; ours run on all."""
    quantizer = get_schema(schema).made_by
    if quantizer is None:
        return ONNX_BACKENDS + TFLITE_BACKENDS
    return TFLITE_BACKENDS if quantizer.manifest.gives == "tflite" else ONNX_BACKENDS


def result_path(cache: Cache, model: str, schema: str, backend: str) -> Path:
    """Of one cell, here and now; under other ``conditions`` it is another one."""
    digest = digest_plain(conditions(schema, backend))[:12]
    return _folder(cache) / f"{_stem(model, schema, backend)}+{digest}.json"


@functools.cache
def conditions(schema: str, backend: str) -> Result:
    """What a result depends on beyond the model and its samples: digests of the quantizer or of our
    rules and of qbench's code, and the class of processor with the versions of the engine.
    """
    own = get_schema(schema)
    engine = get_backend("ort-cpu" if backend == COST else backend)
    return {
        "made_by": digest_plain(own) if own.made_by is None else own.made_by.digest,
        "source": own_sources(),
        "environment": str(environment_here(engine)),
    }


def _folder(cache: Cache) -> Path:
    return cache.folder / "quantizers-compared"


def _stem(model: str, schema: str, backend: str) -> str:
    ground = digest_plain(SUBJECTS[model])[:8]
    return f"{model}+{backend}+{schema}+{ground}"


def known_result(cache: Cache, model: str, schema: str, backend: str) -> Result:
    """The result under the conditions of now; else the newest of the same samples under others,
    else that of the record, both with ``older``; empty: there is none.
    """
    if found := read(result_path(cache, model, schema, backend)):
        return found
    others = _folder(cache).glob(f"{_stem(model, schema, backend)}+*.json")
    newest = sorted(others, key=lambda path: path.stat().st_mtime, reverse=True)
    known = (read(path) for path in newest)
    recorded = record()["results"].get(_stem(model, schema, backend), {})
    return next((one | {"older": True} for one in (*known, recorded) if one), {})


@functools.cache
def record() -> Result:
    """The record of the page as it was last written."""
    return read(RECORD) or {"results": {}, "duels": {}, "spent": {}}


def recorded_results(names: Iterable[str], cache: Cache) -> Result:
    """What a record has of all that is known: by model, backend, schema and samples."""
    cells = [(m, s, b) for m in SUBJECTS for s in names for b in (*backends_of(s), COST)]
    known = {_stem(*cell): known_result(cache, *cell) for cell in cells}
    return {
        stem: {key: value for key, value in one.items() if key not in ("answers", "older")}
        for stem, one in known.items()
        if one
    }


def measured(shared: SubjectArtifacts, schema: str, backend: str) -> Result:
    """The numbers of one cell, or the error that is there in place of them."""
    before = processor_seconds()
    try:
        known = numbers(_measurement(shared, schema, backend))
    except QbenchError as error:
        known = {"doing": error.doing, "error": error.found}
        if isinstance(error, UnavailableError):
            known["unavailable"] = True
    return known | {"schema": schema, "processor_s": round(processor_seconds() - before, 1)}


def _measurement(shared: SubjectArtifacts, schema: str, backend: str) -> Measurement:
    """The cell with its answers, by which two quantizers are compared."""
    engine = get_backend(backend)
    return measure_request(
        Request(
            cell=Cell("quantizers", shared.subject.model.id, backend, schema),
            shared=shared,
            backend=engine,
            schema=get_schema(schema),
            reference=shared.reference(),
            environment=environment_here(engine),
            keeps_answers=True,
        )
    )


def numbers(found: Measurement) -> Result:
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
        "answers": next(iter(found.kept.values())),
        "planned": found.integer_macs,
        "executed": found.executed_macs,
        "quantizer": None if found.quantizer is None else asdict(found.quantizer),
    }


def interval(score: Score) -> tuple[float, float]:
    """Of the change from the reference: by sources where samples share some, by the paired
    bootstrap of a metric that is not a share of right samples.
    """
    if score.clusters is not None:
        return score.clusters.shown
    if score.interval is not None:
        return score.interval
    return paired_interval(score.losses, score.gains, score.n)


def processor_seconds() -> float:
    """Of this process and of all children that ended."""
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in spent)


_NOT_LOCALIZED = "not localized: "


def cause(shared: SubjectArtifacts, schema: str, backend: str, seconds: float) -> str:
    """The node and the cause that localization names."""
    try:
        return localize(shared, backend, get_schema(schema), seconds=seconds).headline
    except QbenchError as error:
        return f"{_NOT_LOCALIZED}{error.found}"


def artifacts(model: str, cache: Cache, *, twice: bool = False) -> SubjectArtifacts:
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


def measure_model(model: str, names: list[str], cache: Cache, *, again: bool, twice: bool) -> None:
    """Measure what is missing of ``model``."""
    shared = artifacts(model, cache, twice=twice)
    for schema in names:
        for backend in backends_of(schema):
            path = result_path(cache, model, schema, backend)
            known = read(path)
            if "value" in known or ("error" in known and not again):
                continue
            before = known_result(cache, model, schema, backend)
            found = measured(shared, schema, backend)
            shown = {key: one for key, one in found.items() if key not in ("answers", "quantizer")}
            print(f"{model} {schema} {backend}: {shown}", flush=True)
            if "value" in before and "unavailable" in found:
                continue  # what another computer measured says more
            keep(path, carried(before, found) | conditions(schema, backend))


def carried(before: Result, found: Result) -> Result:
    """``found`` with what was known ``before`` and still holds: the cause that was named where the
    answers are the same, and the bytes that were compared where the same quantizer wrote a file of
    the same size.
    """
    kept = {}
    if "cause" in before and "answers" in found and before.get("answers") == found["answers"]:
        kept["cause"] = before["cause"]
    note = json.loads(json.dumps(found.get("quantizer")))  # a tuple is a list in what was kept
    noted = before.get("quantizer")
    if note and noted and all(note.get(key) == noted.get(key) for key in _OF_THE_FILE):
        compared = (note["same_bytes"], noted["same_bytes"])
        kept["quantizer"] = note | {"same_bytes": next(filter(_is_known, compared), None)}
    return found | kept


_OF_THE_FILE = ("versions", "lock", "arguments", "size")
"""What a file that a quantizer wrote is recognized by, in the note on it."""


def _is_known(answer: bool | None) -> bool:
    return answer is not None


def worst_cell(
    schema: str, models: Iterable[str], cache: Cache, *, here: bool = False
) -> tuple[str, str, Result] | None:
    """Model, backend and result of the cell of ``schema`` that loses most against fp32, with
    ``here`` of those measured under the conditions of now; None: none loses.
    """
    cells = [(model, one) for model in models for one in backends_of(schema)]
    known = [(*cell, known_result(cache, cell[0], schema, cell[1])) for cell in cells]
    losing = [cell for cell in known if cell[2].get("worse", 0) > 0]
    counted = [cell for cell in losing if not (here and "older" in cell[2])]
    return max(counted, key=lambda cell: cell[2]["worse"], default=None)


def localize_worst(
    schema: str, models: Iterable[str], cache: Cache, seconds: float, *, again: bool
) -> None:
    """Name the cause of the worst cell of ``schema`` that was measured here, if that is not known;
    with ``again`` also where the time did not reach to its cause.
    """
    worst = worst_cell(schema, models, cache, here=True)
    if worst is None or is_named(worst[2], again=again):
        return
    model, backend, known = worst
    found = cause(artifacts(model, cache), schema, backend, seconds)
    print(f"{model} {schema} {backend}: {found}", flush=True)
    keep(result_path(cache, model, schema, backend), known | {"cause": found})


def is_named(result: Result, *, again: bool) -> bool:
    """Whether ``result`` has a cause; with ``again`` one that was searched to its end."""
    known = result.get("cause", "")
    is_open = known.endswith(NOT_LOOKED_FOR) or known.startswith(_NOT_LOCALIZED)
    return bool(known) and not (again and is_open)


def keep(path: Path, known: Result) -> None:
    """Write a result to ``path``, whole or not at all."""
    write_text(path, json.dumps(known))


def read(path: Path) -> Result:
    """The result at ``path``; empty: there is none, or it was cut short."""
    try:
        found: Result = json.loads(path.read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return found


# What quantizing takes: each in a process of its own, in a cache without profiles and quantized
# files, so that ours is measured as the others are.

COST = "cost"
"""In place of a backend in the name of a result."""
_KEPT = ("pythons", "packages", "unpacked", "samples")
"""Parts of the cache that a process of ``--cost`` shares: environments and inputs."""


def measure_costs(model: str, names: list[str], cache: Cache) -> None:
    """Quantize ``model`` by each of ``names`` in a process of its own, where that is missing."""
    for schema in names:
        path = result_path(cache, model, schema, COST)
        if not read(path):
            found = cost(model, schema, cache)
            print(f"{model} {schema} cost: {found}", flush=True)
            keep(path, found | conditions(schema, COST))


def cost(model: str, schema: str, cache: Cache) -> Result:
    """Processor seconds of one quantization with everything that it starts, MB of the largest of
    its processes, bytes of the file.
    """
    with TemporaryDirectory() as folder:
        for kind in _KEPT:
            if (cache.folder / kind).is_dir():
                Path(folder, kind).symlink_to(cache.folder / kind, target_is_directory=True)
        command = [sys.executable, __file__, "--one", model, schema, folder]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        words = child.stdout.read().splitlines()
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        child.stdout.close()
    if child.returncode or not words:
        return {"doing": "Quantizing", "error": f"it ended with code {child.returncode}"}
    spent = {
        "processor_s": round(used.ru_utime + used.ru_stime, 1),
        "peak_mb": round(used.ru_maxrss / 1024),
    }
    return spent | json.loads(words[-1])


def quantize_once(model: str, schema: str, cache: Cache) -> Result:
    """Quantize ``model`` and write it; the bytes of the files."""
    shared, own = artifacts(model, cache), get_schema(schema)
    try:
        if own.made_by is not None:
            paths = run_tool(shared, own.made_by, cache)
        else:
            made = shared.quantized(own, get_backend("ort-cpu").capabilities)
            paths = [cache.folder / f"{name}.onnx" for name in made.models]
            for path, graph in zip(paths, made.models.values(), strict=True):
                save_model(graph, path)
    except QbenchError as error:
        return {"doing": error.doing, "error": error.found}
    except subprocess.CalledProcessError as error:
        return {"doing": "Quantizing", "error": f"it ended with code {error.returncode}"}
    return {"size": sum(path.stat().st_size for path in paths)}


def run_tool(shared: SubjectArtifacts, quantizer: Quantizer, cache: Cache) -> list[Path]:
    """The files that ``quantizer`` writes for a model of one graph; its command runs as it is,
    because the times of a process that is contained are not those of a child.
    """
    (graph,) = shared.graphs.values()
    (batches,) = shared.calibration_feeds.values()
    names = ("fp32.onnx", "samples.npz", f"out.{quantizer.manifest.gives}")
    fp32, samples, out = (cache.folder / one for one in names)
    save_model(graph, fp32)
    np.savez(samples, **stacked(batches, "Quantizing", "Leave this model out."))
    python = quantizer_python(quantizer, Cache.default())
    command = quantizer.command(python=python, fp32=fp32, calibration=samples, out=out)
    variables = {**os.environ, **quantizer.manifest.environment}
    quiet = subprocess.DEVNULL
    subprocess.run(command, check=True, env=variables, stdout=quiet, stderr=quiet)
    return [out]


def chosen(text: str, known: list[str]) -> list[str]:
    """The names in ``text`` by commas; ``all``: those that are ``known``; ``none``: none."""
    return {"all": known, "none": []}.get(text, text.split(","))


def main() -> None:
    """Measure, and write the page where that is asked for."""
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--models", default=",".join(USUAL), help="by commas, 'all' or 'none'")
    made.add_argument("--tools", default="", help="by commas, or 'all' with variants")
    made.add_argument("--again", action="store_true", help="do anew what failed or was cut short")
    made.add_argument("--twice", action="store_true", help="run each twice, to compare bytes")
    made.add_argument("--localize", type=float, default=0.0, help="seconds for each quantizer")
    made.add_argument("--cost", default="", metavar="MODEL", help="time and memory on this model")
    made.add_argument("--against", default="", metavar="SCHEMA", help="compare each with this one")
    made.add_argument("--write", action="store_true", help="write docs/evidence/quantizers.md")
    made.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    given = made.parse_args()
    if given.one:
        model, schema, folder = given.one
        print(json.dumps(quantize_once(model, schema, Cache(Path(folder)))))
        return
    every, cache = tools(variants=True), Cache.default()
    names = chosen(given.tools, every) if given.tools else tools(variants=False)
    models = chosen(given.models, list(SUBJECTS))
    for model in models:
        measure_model(model, names, cache, again=given.again, twice=given.twice)
    for schema in names if given.localize else []:
        localize_worst(schema, models, cache, given.localize, again=given.again)
    if given.cost:
        measure_costs(given.cost, names, cache)
    if given.against:
        from quantizers_page import print_duels

        for model in models:
            print_duels(model, given.against, names, cache)
    if given.write:
        from quantizers_page import write_page

        write_page(every, cache)


if __name__ == "__main__":
    main()
