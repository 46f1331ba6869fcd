"""What fitting wins: thresholds of powers of two per tensor, weights of four bits, minutes.

    python benchmarks/fit.py [--write docs/evidence/fit.md] [--results FIT.jsonl] [--samples N]
        [case …]

A case is a network, a schema and how it is fitted. What was measured is kept in the file of
results, line by line, and is not measured again. Fitting has calibration samples alone, without
labels; scores are of other samples, counted by ONNX Runtime without optimizations. A process for
each case, one thread.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from qbench.backends import get_backend
from qbench.calibration import calibrate
from qbench.cli.options import choose_cache, read_samples
from qbench.extension import known_extensions
from qbench.graph import FitSettings, fitter_catalogue
from qbench.passes import plannable
from qbench.quantization import (
    Plan,
    Schema,
    adjusted_on_samples,
    fit_model,
    get_schema,
    insert_qdq,
    make_plan,
)
from qbench.subjects import only_graph

Array = npt.NDArray[Any]

DATA: Mapping[str, tuple[str, str, int, int]] = {
    "digits_cnn": ("digits_test", "digits_train", 360, 256),
    "fashion_preact": ("fashion_test", "fashion_calibration", 1000, 256),
    "fashion_mobile": ("fashion_test", "fashion_calibration", 1000, 256),
    "mobilenet_v2": ("labelled_photos", "calibration_crops", 225, 64),
}
"""Network → samples that are scored, samples of calibration, how many of each."""

POW2_8, POW2_4 = "w8a8_symu8_pt_pow2", "w4a8_symu8_pt_pow2"
TENSOR_4, CHANNEL_4 = "w4a8_asym_pt", "w4a8_asym_pc"


@dataclass(frozen=True, slots=True)
class Way:
    """How a schema is fitted.

    Args:
        words: for the table.
        method: of ``qbench fit``; empty: none; ``_fit``: the schema's own.
        weights, equalize, steps: as the command takes them.
    """

    words: str
    method: str = ""
    weights: bool = False
    equalize: bool = False
    steps: int = 200


WAYS: Mapping[str, Way] = {
    "none": Way("calibrated"),
    "corrected": Way("biases corrected", "corrected"),
    "tqt": Way("thresholds (`tqt`)", "tqt"),
    "tqt-weights": Way("thresholds and weights (`tqt --weights`)", "tqt", weights=True),
    "lsq": Way("scales (`lsq`)", "lsq"),
    "lsq-weights": Way("scales and weights (`lsq --weights`)", "lsq", weights=True),
    "adaround": Way("roundings (`adaround`)", "adaround"),
    "fit": Way("codes (`_fit`, without PyTorch)", "_fit"),
    "blocks": Way("scales and biases (`blocks`)", "blocks"),
    "blocks-equal": Way("the same, `--equalize`", "blocks", equalize=True),
}

_SMALL = ("digits_cnn", "fashion_mobile", "fashion_preact")
_POW2_WAYS = ("none", "tqt", "tqt-weights", "blocks", "blocks-equal")
_W4_WAYS = ("none", "corrected", "adaround", "fit", "lsq", "lsq-weights", "blocks")


def cases() -> list[tuple[str, str, str]]:
    """Network, schema, way: the cheap ones first."""
    found = [
        (name, schema, way) for name in _SMALL for schema in (POW2_8, POW2_4) for way in _POW2_WAYS
    ]
    found += [
        (name, schema, way)
        for name in _SMALL
        for schema in (TENSOR_4, CHANNEL_4)
        for way in _W4_WAYS
    ]
    large = [(POW2_8, way) for way in ("none", "blocks-equal", "blocks", "tqt")]
    large += [(CHANNEL_4, way) for way in ("none", "corrected", "fit", "blocks")]
    large += [(POW2_4, way) for way in ("none", "blocks-equal")]
    return found + [("mobilenet_v2", *each) for each in large]


def samples_of(name: str, given: int) -> int:
    """How many calibration samples network ``name`` gets; ``given`` is 0: those of ``DATA``."""
    return given or DATA[name][3]


def key_of(row: Mapping[str, Any]) -> tuple[str, str, str, int]:
    """The case that a row is of, with its calibration samples."""
    return row["model"], row["schema"], row["way"], row["calibration"]


def measure(name: str, schema: str, way: str, given: int) -> dict[str, Any]:
    """One case: fit with ``given`` samples (0: those of ``DATA``), quantize, score."""
    scored, calibration, many, _ = DATA[name]
    few = samples_of(name, given)
    cache, chosen = choose_cache(None), WAYS[way]
    network, samples = read_samples(name, calibration, few, cache)
    feeds = _whole(samples.batches())
    model = only_graph(network)
    wanted = get_schema(f"{schema}_fit" if chosen.method == "_fit" else schema)
    if chosen.method == "corrected":
        wanted = replace(wanted, bias_correction=True)
    start = time.process_time()
    loss: tuple[float, ...] = ()
    if chosen.method in ("", "_fit", "corrected"):
        model, plan = _planned(model, feeds, wanted)
        quantized = insert_qdq(model, plan)
        if chosen.method:
            quantized = adjusted_on_samples(model, quantized, plan, [feeds])
    else:
        fitter = fitter_catalogue(known_extensions()).get(chosen.method)
        steps = FitSettings(steps=chosen.steps, weights=chosen.weights)
        done = fit_model(model, feeds, wanted, fitter, steps, equalize=chosen.equalize)
        quantized, loss = insert_qdq(done.model, done.plan), done.loss
    spent = time.process_time() - start
    _, others = read_samples(name, scored, many, cache)
    labels = [set(np.ravel(one).tolist()) for one in others.whole_labels or ()]
    tested = _whole(others.batches())
    real, coded = (_scores(each, tested) for each in (only_graph(network), quantized))
    return {
        "model": name,
        "schema": schema,
        "way": way,
        "seconds": round(spent, 1),
        "loss": list(loss),
        "samples": len(labels),
        "calibration": few,
        "float": _right(real, labels),
        "top1": _right(coded, labels),
        "agreement": float((real.argmax(1) == coded.argmax(1)).mean()),
        "decibels": float(10 * np.log10(np.square(real).sum() / np.square(real - coded).sum())),
    }


def _planned(model: ir.Model, feeds: Mapping[str, Array], schema: Schema) -> tuple[ir.Model, Plan]:
    canonical = plannable(model, schema.canonical)
    profile = calibrate(canonical, [feeds], pipeline=schema.canonical)
    return canonical, make_plan(canonical, profile, schema)


def _whole(batches: Iterable[Mapping[str, Array]]) -> dict[str, Array]:
    each = list(batches)
    return {name: np.concatenate([one[name] for one in each]) for name in each[0]}


def _scores(model: ir.Model, feeds: Mapping[str, Array]) -> Array:
    count = len(next(iter(feeds.values())))
    parts = []
    with get_backend("ort-cpu-noopt").prepare(model, threads=1) as executor:
        for begin in range(0, count, 25):
            cut = {name: one[begin : begin + 25] for name, one in feeds.items()}
            parts.append(next(iter(executor.run(cut).values())))
    return np.concatenate(parts).astype(np.float64)


def _right(scores: Array, labels: list[set[int]]) -> float:
    hits = [int(row) in one for row, one in zip(scores.argmax(1), labels, strict=True)]
    return float(np.mean(hits))


def table(rows: Iterable[Mapping[str, Any]], given: int) -> str:
    """Markdown, in the order of ``cases``, of the rows with the samples that were ``given``."""
    known = {key_of(row): row for row in rows}
    lines = [
        "| network | schema | fitted | top-1 | float | agreement | dB | processor, min |",
        "|---|---|---|--:|--:|--:|--:|--:|",
    ]
    for case in cases():
        row = known.get((*case, samples_of(case[0], given)))
        if row is not None:
            lines.append(
                f"| {case[0]} | `{case[1]}` | {WAYS[case[2]].words} | {row['top1']:.1%} | "
                f"{row['float']:.1%} | {row['agreement']:.1%} | {row['decibels']:.1f} | "
                f"{row['seconds'] / 60:.1f} |"
            )
    return "\n".join(lines) + "\n"


BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"


def write_into(page: Path, text: str) -> None:
    """Put the table between the two marks of ``page``."""
    whole = page.read_text(encoding="utf-8")
    head, tail = whole.partition(BEGIN)[0], whole.partition(END)[2]
    page.write_text(f"{head}{BEGIN}\n\n{text}\n{END}{tail}", encoding="utf-8")


def main() -> int:
    """Measure what is missing, print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("only", nargs="*", help="words that a case has, such as digits_cnn or tqt")
    parser.add_argument("--results", default="fit.jsonl", help="what was measured (fit.jsonl)")
    parser.add_argument("--write", metavar="PAGE", help="put the table into this page")
    parser.add_argument("--samples", type=int, default=0, help="of calibration (see the page)")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(*arguments.one, arguments.samples)))
        return 0
    results = Path(arguments.results)
    rows = (
        [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    )
    done = {key_of(row) for row in rows}
    for case in cases():
        if (*case, samples_of(case[0], arguments.samples)) in done or not set(arguments.only) <= {
            *case
        }:
            continue
        command = [sys.executable, __file__, "--samples", str(arguments.samples), "--one", *case]
        ran = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
        if ran.returncode:
            print(f"{' '.join(case)}: failed", file=sys.stderr)
            continue
        rows.append(json.loads(ran.stdout.splitlines()[-1]))
        with results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(rows[-1]) + "\n")
        print(table(rows[-1:], arguments.samples).splitlines()[-1], flush=True)
    text = table(rows, arguments.samples)
    print(text)
    if arguments.write:
        write_into(Path(arguments.write), text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
