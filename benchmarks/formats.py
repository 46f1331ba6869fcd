"""Number formats on the same models, samples and engines: the page "Formats compared".

    python benchmarks/formats.py [--models gloss_decoder,…] [--schemas kv8c,…] [--again] [--write]

Each result is a file in the user's cache as soon as it is measured, by commit, model, schema and
engine; a run that ended goes on where it was. ``--again`` measures anew what an engine refused;
``--write`` writes docs/evidence/formats.md from all results of this commit; with ``--schemas`` it
writes the rows of these schemas alone, and leaves the others as they are. Time is that of the
processor, for the answers alone, of this process and of those that it started, next to that of the
float model on the same engine; one thread.
"""

import argparse
import functools
import hashlib
import itertools
import json
import os
import re
import resource
import subprocess
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from qbench.backends import get_backend
from qbench.errors import QbenchError
from qbench.evaluation import (
    RecordingTask,
    SubjectArtifacts,
    build_subject,
    environment_here,
    measure_cell,
)
from qbench.judging import Measurement
from qbench.metrics import Direction, TokenStreams, token_table
from qbench.quantization import get_schema
from qbench.storage import Cache

PAGE = Path(__file__).parents[1] / "docs" / "evidence" / "formats.md"
_MEGABYTE = 1_000_000


@dataclass(frozen=True, slots=True)
class Ground:
    """What a model is measured on: at most ``limit`` scored samples, spread evenly, ``few`` of
    them by the interpreter, calibration samples, and what they are scored by; no metric: the table
    of tokens.
    """

    data: str
    calibration: str
    count: int
    limit: int
    few: int
    metrics: tuple[str, ...] = ()


SUBJECTS = {
    "gloss_decoder": Ground("gloss_windows_few", "gloss_windows_calibration", 48, 54, 12),
    "whisper_decoder": Ground("speech_texts_few", "speech_texts_calibration", 16, 37, 12),
    "minilm_glosses": Ground("glosses", "glosses_calibration", 64, 100, 40, ("top1", "agreement")),
}
FORMATS = {
    "": "float32",
    "w4_sym_b32": "int4 in blocks of 32, weights alone",
    "w8a8_asym_pc_dyn": "int8, activations by ranges of each batch",
    "wf8e4m3_sym_pc": "float8, weights alone",
    "wf8e4m3af8e4m3_sym_pc": "float8, weights and activations",
    "wmxfp4_sym_b32": "MXFP4, weights alone",
    "wnvfp4_sym_b16": "NVFP4, weights alone",
    "kv8h": "keys and values in int8, a scale a head",
    "kv4h": "keys and values in int4, a scale a head",
    "kv8c": "keys and values in int8, a scale a channel",
    "kv4c": "keys and values in int4, a scale a channel",
}
ENGINES = ("ort-cpu", "openvino", "integer-ideal")
_INTERPRETER = "integer-ideal"
"""Multiplies floats one by one, so that it answers fewer samples."""
_TICKS = os.sysconf("SC_CLK_TCK")


def processor_time() -> float:
    """Seconds of processor that this process and all that it started have used."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    ticks = 0
    for task in Path("/proc/self/task").iterdir():
        for child in (task / "children").read_text().split():
            stat = Path(f"/proc/{child}/stat")
            # behind the name, which may hold blanks: user and system time are fields 14 and 15
            fields = stat.read_text().rpartition(")")[2].split() if stat.is_file() else ["0"] * 13
            ticks += int(fields[11]) + int(fields[12])
    return time.process_time() + ended.ru_utime + ended.ru_stime + ticks / _TICKS


def result_path(cache: Cache, model: str, schema: str, engine: str) -> Path:
    """Of one cell; other samples and other code are another one."""
    digest = hashlib.sha256(json.dumps(asdict(SUBJECTS[model])).encode()).hexdigest()[:12]
    name = f"{model}+{engine}+{schema or 'fp32'}+{digest}.json"
    return cache.folder / "formats-compared" / commit_here() / name


@functools.cache
def commit_here() -> str:
    """The first characters of the commit that is measured."""
    made = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"],
        cwd=PAGE.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    return made.stdout.strip()


def artifacts(model: str, limit: int, cache: Cache) -> tuple[SubjectArtifacts, RecordingTask]:
    """What the cells of ``model`` share, and its task, which keeps its last answers."""
    ground = SUBJECTS[model]
    subject = build_subject(
        model, ground.data, ground.calibration, list(ground.metrics), ground.count
    )
    task = RecordingTask(subject.model.task)
    data = subject.data[ground.data]
    if len(data) > limit:
        data = data.take(limit)
    subject = replace(subject, data={ground.data: data}, model=replace(subject.model, task=task))
    floats = get_backend("ort-cpu")
    return SubjectArtifacts(subject, cache, floats, str(environment_here(floats))), task


def measured(
    shared: SubjectArtifacts, task: RecordingTask, schema: str, engine: str
) -> dict[str, Any]:
    """The numbers of one cell, or the sentence why there are none."""
    began = processor_time()
    try:
        found = measure_cell(
            shared, engine, get_schema(schema) if schema else None, timer=processor_time
        )
    except QbenchError as error:
        return {"error": error.found[:300], **spent(began)}
    ((name, data),) = shared.subject.data.items()
    tokens: dict[str, Any] = {}
    if isinstance(task.last, TokenStreams):
        reference = shared.reference()[name]
        assert isinstance(reference, TokenStreams)
        table = token_table(reference, task.last, data.drawn_from)
        tokens = {row.name: [row.value, row.interval] for row in table.rows}
    return numbers(found) | {"tokens": tokens, "n": len(data), **spent(began)}


def spent(began: float) -> dict[str, float]:
    """The seconds of processor since ``began``, and how many processes of this computer ran."""
    return {"processor": processor_time() - began, "load": os.getloadavg()[0]}


def numbers(found: Measurement) -> dict[str, Any]:
    """What the page has of ``found``."""
    return {
        "scores": {one.metric: [one.value, one.reference_value] for one in found.scores},
        "lower": [one.metric for one in found.scores if one.direction is Direction.LOWER],
        "weights": found.weight_macs,
        "integers": found.integer_macs,
        "float8": found.float8_macs,
        "executed": found.executed_macs,
        "simulated": list(found.simulated),
        "refusals": list(found.refusals[:3]),
        "refused": len(found.refusals),
        "cache": found.cache,
        "bytes": found.constant_bytes,
        "seconds": found.seconds.get("inference", 0.0),
    }


def measure_model(model: str, schemas: Sequence[str], cache: Cache, *, again: bool) -> None:
    """Measure what is missing of ``model`` under ``schemas``."""
    ground = SUBJECTS[model]
    for engine in ENGINES:
        limit = ground.few if engine == _INTERPRETER else ground.limit
        shared, task = artifacts(model, limit, cache)
        for schema in schemas:
            path = result_path(cache, model, schema, engine)
            known = read(path)
            if known and not (again and "error" in known):
                continue
            known = measured(shared, task, schema, engine)
            print(f"{model} {schema or 'fp32'} {engine}: {known}", flush=True)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(known), encoding="utf-8")


def read(path: Path) -> dict[str, Any]:
    """The result at ``path``; empty: there is none."""
    found: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    return found


def token_cells(found: dict[str, Any]) -> list[str]:
    """The main columns of llama.cpp's table."""
    tokens = found["tokens"]
    mean, (low, high) = tokens["kld_mean"]
    return [
        f"{mean:.2g} ({low:.2g} … {high:.2g})",
        f"{tokens['kld_999'][0]:.2g}",
        f"{tokens['ratio'][0]:.4f}",
        f"{100 * tokens['delta_rms'][0]:.2f} %",
        f"{100 * tokens['same_top'][0]:.2f} %",
    ]


_TOKEN_HEADS = ("mean KLD (90 % interval)", "99.9 % KLD", "PPL ratio", "RMS Δp", "same top")


def score_cells(found: dict[str, Any], metrics: tuple[str, ...]) -> list[str]:
    """The value of each metric."""
    return [f"{100 * found['scores'][name][0]:.2f} %" for name in metrics]


def how(found: dict[str, Any], schema: str) -> str:
    """How the engine computed it."""
    words = []
    if found["simulated"]:
        words.append(f"**simulated**: {', '.join(found['simulated'])} in float32")
    if found["executed"]:
        words.append(f"{100 * found['executed']:.0f} % in integers")
    if found["weights"]:
        words.append(f"{100 * found['weights']:.0f} % by quantized weights, in floats")
    if found["cache"]:
        words.append(f"{found['cache']}, between Q and DQ")
    if found["refused"]:
        words.append(f"{found['refused']} units left float")
    return "; ".join(words) if schema else "float32"


def refused(found: dict[str, Any], schema: str) -> str:
    """Why the engine takes nothing of the format; empty: it takes it."""
    if not found or "error" in found:
        return str(found.get("error", ""))
    if not schema or any(found[one] for one in ("weights", "integers", "float8", "cache")):
        return ""
    first = found["refusals"][0] if found["refusals"] else "nothing is quantized"
    return str(first).partition("stays float: ")[2] or str(first)


def row(model: str, schema: str, engine: str, cache: Cache) -> str | None:
    """One format on one engine; None: not measured."""
    ground = SUBJECTS[model]
    found = read(result_path(cache, model, schema, engine))
    plain = read(result_path(cache, model, "", engine))
    heads = [f"`{schema}`" if schema else "fp32", FORMATS[schema], engine]
    count = len(ground.metrics) or len(_TOKEN_HEADS)
    if not found:
        return None
    reason = refused(found, schema)
    if reason:
        cells = [*[""] * (count + 1), "", "", f"refused: {reason.replace('|', '/')}"]
    else:
        scores = score_cells(found, ground.metrics) if ground.metrics else token_cells(found)
        ratio = found["seconds"] / plain["seconds"] if plain.get("seconds") else 0.0
        size = f"{found['bytes'] / _MEGABYTE:.2f}"
        cells = [
            str(found["n"]),
            *scores,
            size,
            f"{ratio:.2f}" if ratio else "",
            how(found, schema),
        ]
    return f"| {' | '.join([*heads, *cells])} |"


def model_table(model: str, cache: Cache) -> list[str]:
    """The lines of ``model``; none: nothing of it was measured."""
    ground = SUBJECTS[model]
    rows = [row(model, schema, engine, cache) for schema in FORMATS for engine in ENGINES]
    known = [one for one in rows if one is not None]
    if not known:
        return []
    head = ["schema", "format", "engine", "samples", *(ground.metrics or _TOKEN_HEADS)]
    head += ["constants, MB", "time, of float32", "how"]
    lines = ["", f"## {model}", ""]
    lines.append(
        f"{ground.limit} samples of `{ground.data}`, {ground.few} of them on {_INTERPRETER}; "
        f"{ground.count} of `{ground.calibration}` for calibration."
    )
    lines += ["", f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *known]
    missing = [
        f"`{schema or 'fp32'}` on {engine}"
        for schema in FORMATS
        for engine in ENGINES
        if not read(result_path(cache, model, schema, engine))
    ]
    if missing:
        lines += ["", f"Not run: {', '.join(missing)}."]
    return lines


def results(cache: Cache) -> list[dict[str, Any]]:
    """All that was measured of this commit."""
    cells = [(m, s, e) for m in SUBJECTS for s, e in itertools.product(FORMATS, ENGINES)]
    return [found for cell in cells if (found := read(result_path(cache, *cell)))]


def page(cache: Cache) -> str:
    """The page, in Markdown."""
    known = results(cache)
    loads = sorted(one["load"] for one in known)
    minutes = sum(one["processor"] for one in known) / 60
    lines = [
        "# Formats compared",
        "",
        "Weights in blocks, floats of few bits and quantized caches on the same models and",
        "samples, on every engine here that takes the file. Columns of tokens are those of",
        "[llama.cpp](../answers.md#the-table-of-llamacpp), against the float model on",
        "`ort-cpu`; the divergence is its lower bound, and its interval draws documents. Time",
        "is that of the processor for the answers, by that of the float model on the same",
        "engine; of `whisper_decoder` it includes what makes keys and values of the sound.",
        "Names are those of [schemas](../schemas.md).",
        "",
        f"`make formats` measured all of it at commit {commit_here()} in {minutes:.0f} minutes of",
        f"processor time, on two cores for which {loads[0]:.0f} to {loads[-1]:.0f} processes",
        f"waited (median {loads[len(loads) // 2]:.0f}), so that a tenth more or less of time says",
        "nothing. A run that is stopped goes on where it was; another commit is measured anew.",
    ]
    for model in SUBJECTS:
        lines += model_table(model, cache) or ["", f"`{model}` was not run."]
    return "\n".join([*lines, ""])


_ROW = re.compile(r"\| `?(?P<schema>[^`|]+)`? \| [^|]* \| (?P<engine>[^|]+) \|")
"""How a row of a table begins."""
_ROWS_OF = "The rows of "


def page_with(schemas: Sequence[str], cache: Cache, text: str) -> str:
    """``text``, the page, with the rows of ``schemas`` that were measured of this commit."""
    begins = f"{_ROWS_OF}{' and '.join(f'`{schema}`' for schema in schemas)} "
    text = re.sub(rf"^{re.escape(begins)}.*\n\n", "", text, flags=re.MULTILINE)
    lines: list[str] = []
    models: list[str] = []
    for part in re.split(r"^(?=## )", text, flags=re.MULTILINE):
        model = part.partition("\n")[0].removeprefix("## ")
        kept = part.rstrip("\n").split("\n")
        if model in SUBJECTS:
            rows = [row(model, schema, engine, cache) for schema in schemas for engine in ENGINES]
            new = [one for one in rows if one is not None]
            renewed = set(map(_cell_of, new))
            models += [f"`{model}`"] if new else []
            kept = [*(line for line in kept if _cell_of(line) not in renewed), *new]
        lines += [*kept, ""]
    said = f"{begins}are of commit {commit_here()}, for {', '.join(models)}."
    first = next(place for place, line in enumerate(lines) if line.startswith("## "))
    return "\n".join([*lines[:first], said, "", *lines[first:]])


def _cell_of(line: str) -> tuple[str, str] | None:
    """The schema and the engine of a row; None: it is none."""
    found = _ROW.match(line)
    return None if found is None else (found["schema"], found["engine"])


def main() -> None:
    """Measure, and write the page where that is asked for."""
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--models", default="all", help="by commas, 'all' or 'none'")
    made.add_argument("--schemas", default="", help="by commas; all without it")
    made.add_argument("--again", action="store_true", help="measure anew what was refused")
    made.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    given = made.parse_args()
    models = [] if given.models == "none" else given.models.split(",")
    cache = Cache.default()
    asked = given.schemas.split(",") if given.schemas else []
    for model in list(SUBJECTS) if given.models == "all" else models:
        measure_model(model, ["", *asked] if asked else list(FORMATS), cache, again=given.again)
    if not given.write:
        return
    text = page_with(asked, cache, PAGE.read_text("utf-8")) if asked else page(cache)
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
