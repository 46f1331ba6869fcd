"""Made-up histories that look like real ones: five models × four backends × six schemas over
many nights.

One commit makes every per-channel cell on two backends worse, one night the machine changes, one
cell sits in quarantine, some are unsupported, and in the last run a few turn red for different
reasons.
"""

import functools
import random
from collections.abc import Callable, Sequence
from typing import Any

from qbench.judging import Cell, EnvironmentClass, Gate, GateState, Measurement, Outcome, Verdict
from qbench.metrics import Against, Direction, Score
from qbench.tracking import FORMAT, CellRecord, Run, record_of_line

MODELS: dict[str, tuple[str, int, float, Direction]] = {
    "digits_cnn": ("top1", 1797, 0.9872, Direction.HIGHER),
    "efficientnet_lite0": ("top1", 1000, 0.778, Direction.HIGHER),
    "g2p_gru": ("phoneme_error_rate", 2000, 0.0812, Direction.LOWER),
    "magika": ("top1", 3120, 0.9631, Direction.HIGHER),
    "mobilenet_v2": ("top1", 1000, 0.741, Direction.HIGHER),
}
BACKENDS = ("onnx-reference", "ort-cpu", "ort-cpu-noopt", "ort-cpu-precise")
SCHEMAS = (
    "fp32",
    "w8a8_asym_pc",
    "w8a8_asym_pt",
    "w8a8_sym_pc",
    "w8a8_sym_pc_pow2",
    "w8a8_symu8_pc",
)
BASE_LOSS = {
    "fp32": 0.0,
    "w8a8_asym_pc": 0.0010,
    "w8a8_asym_pt": 0.0024,
    "w8a8_sym_pc": 0.0014,
    "w8a8_sym_pc_pow2": 0.0030,
    "w8a8_symu8_pc": 0.0016,
}
STEP_RUN = 27
MACHINE_RUN = 15
OLD = EnvironmentClass("x64-avx2", (("onnxruntime", "1.30.2"),))
NEW = EnvironmentClass("x64-avx512-vnni", (("onnxruntime", "1.31.1"),))


def make_score(
    name: str,
    n: int,
    share: float,
    direction: Direction,
    worse: int,
    *,
    losses: int,
    against: Against = Against.LABELS,
) -> Score:
    """A score whose reference is right in ``share`` of n and which is ``worse`` units worse."""
    out_of = n * 6 if direction is Direction.LOWER else n
    before = out_of if against is Against.REFERENCE else round(share * out_of)
    sign = 1 if direction is Direction.LOWER else -1
    return Score(
        metric=name,
        direction=direction,
        against=against,
        unit="%",
        proportion=direction is Direction.HIGHER,
        least_margin=0.0,
        n=n,
        hits=max(0, min(out_of, before + sign * worse)),
        out_of=out_of,
        reference_hits=before,
        losses=losses,
        gains=max(0, losses - worse),
    )


def make_cell(
    model: str,
    backend: str,
    schema: str,
    loss: float,
    *,
    environment: EnvironmentClass = NEW,
    outcome: Outcome | None = None,
    suite: str = "nightly",
    variant: str = "",
) -> dict[str, Any]:
    """A ``cell`` line of a measured cell that loses ``loss`` (a fraction)."""
    metric, n, share, direction = MODELS.get(model, ("top1", 1000, 0.8, Direction.HIGHER))
    out_of = n * 6 if direction is Direction.LOWER else n
    worse = round(loss * out_of)
    first = make_score(
        metric, n, share, direction, worse, losses=max(0, worse) + (3 if loss else 0)
    )
    others = ()
    if direction is Direction.HIGHER:
        others = (
            make_score(
                "top5", n, min(1.0, share + 0.12), direction, worse // 3, losses=max(0, worse // 3)
            ),
            make_score(
                "agreement@photo_crops",
                512,
                1.0,
                direction,
                round(loss * 512 * 3),
                losses=round(loss * 1536),
                against=Against.REFERENCE,
            ),
        )
    cell = Cell(suite, model, backend, schema, variant)
    margin = max(0.005 * first.reference_value, 0.005 if direction is Direction.LOWER else 0.0)
    broken = first.drop > margin * out_of
    limit = first.reference_value + (margin if direction is Direction.LOWER else -margin)
    rule = "tolerance 0.5 % (suite nightly)"
    loss_gate = Gate(
        kind="loss",
        metric=metric,
        state=GateState.BROKEN if broken else GateState.HOLDS,
        detail=f"{metric} {100 * first.reference_value:.2f} → {100 * first.value:.2f} %",
        rule=rule,
        limit=limit,
    )
    decided = outcome or (Outcome.FAILED if broken else Outcome.PASSED)
    remedies = {
        Outcome.FAILED: f"qbench localize {model} --backend {backend} --schema {schema}",
        Outcome.DRIFTED: "qbench accept reports/history/latest.jsonl --only changed --reason '…'",
        Outcome.MISSING: (
            "pytest suites/nightly.qbench.toml --qbench-accept=new --qbench-reason '…'"
        ),
        Outcome.STALE: (
            "pytest suites/nightly.qbench.toml --qbench-accept-reference --qbench-reason '…'"
        ),
    }
    verdict = Verdict(
        outcome=decided,
        headline=f"{loss_gate.detail}, {first.losses} losses, {first.gains} gains",
        rule=rule,
        gates=(loss_gate,),
        remedy=remedies.get(decided, ""),
        notices=("drift: nothing accepted for this environment class yet",)
        if decided is Outcome.DRIFTED
        else (),
    )
    measurement = Measurement(
        cell=cell,
        environment=environment,
        scores=(first, *others),
        digests={"model": "00" * 32},
        changed_count={"photos": first.losses + first.gains},
        macs=300_000_000,
        integer_macs=0.0 if schema == "fp32" else 0.981,
        refusals=("/features/0/Clip: its bounds are not constants",)
        if schema.endswith("pow2")
        else (),
        seconds={"prepare": 0.8, "inference": 4.2},
    )
    return CellRecord.of(cell, verdict, measurement).line()


def skipped_cell(
    model: str,
    backend: str,
    schema: str,
    reason: str,
    *,
    suite: str = "nightly",
    outcome: Outcome = Outcome.UNSUPPORTED,
) -> dict[str, Any]:
    """A ``cell`` line without a measurement."""
    return CellRecord.of(
        Cell(suite, model, backend, schema),
        Verdict(outcome=outcome, headline=reason, rule="capabilities"),
        None,
    ).line()


def make_run(
    cells: Sequence[dict[str, Any]],
    index: int = 0,
    *,
    suite: str = "nightly",
    complete: bool = True,
    whole: bool = True,
    damaged: int = 0,
    notes: Sequence[str] = (),
    environment: EnvironmentClass = NEW,
) -> Run:
    """A run of ``cells``; ``index`` numbers nights."""
    sha = f"{random.Random(index).getrandbits(160):040x}"
    month, day = 1 + index // 28, 1 + index % 28
    return Run(
        header={
            "type": "run",
            "format": FORMAT,
            "id": f"2026{month:02}{day:02}T031500Z-{sha[:7]}-{index:04x}",
            "suite": suite,
            "started": f"2026-{month:02}-{day:02}T03:15:00Z",
            "commit": {"sha": sha, "short": sha[:9], "branch": "main", "dirty": False},
            "complete_selection": whole,
        },
        environment={
            "type": "environment",
            "processor": environment.processor,
            "features": ["avx2", "fma", "avx512f", "avx512_vnni"],
            "system": "Linux 6.1 x86_64",
            "threads": 1,
            "versions": {
                "python": "3.11.9",
                "onnxruntime": dict(environment.packages)["onnxruntime"],
                "onnx": "1.19.1",
                "numpy": "2.3.5",
                "qbench": "0.1.0",
            },
        },
        cells=tuple(map(record_of_line, cells)),
        notes=tuple(notes),
        complete=complete,
        damaged=damaged,
        path=f"reports/history/{index:04}.jsonl",
    )


def _is_unsupported(model: str, backend: str) -> bool:
    return backend == "onnx-reference" and model in ("mobilenet_v2", "efficientnet_lite0")


def _night(index: int, noise: random.Random) -> list[dict[str, Any]]:
    environment = OLD if index < MACHINE_RUN else NEW
    lines = []
    for model in MODELS:
        for backend in BACKENDS:
            for schema in SCHEMAS:
                if _is_unsupported(model, backend):
                    lines.append(
                        skipped_cell(
                            model,
                            backend,
                            schema,
                            "onnx-reference takes models under 50 million multiply-accumulates",
                        )
                    )
                    continue
                loss = BASE_LOSS[schema] * (0.4 if model == "magika" else 1.0)
                loss += 0.0008 * (index < MACHINE_RUN) * (schema != "fp32")
                outcome: Outcome | None = None
                if model == "efficientnet_lite0":
                    loss = BASE_LOSS[schema] * 0.8
                    if schema == "w8a8_asym_pt":
                        loss, outcome = 0.071, Outcome.QUARANTINED
                if (
                    model == "mobilenet_v2"
                    and schema.startswith("w8a8_sym_pc")
                    and backend != "ort-cpu-precise"
                    and index >= STEP_RUN
                ):
                    loss += 0.012
                if model == "digits_cnn" and schema == "w8a8_asym_pt" and index >= STEP_RUN:
                    loss -= 0.002
                if schema != "fp32" and noise.random() < 0.12:
                    loss += noise.choice((-0.001, 0.001))
                if (
                    index == 39
                    and model == "g2p_gru"
                    and backend == "ort-cpu"
                    and schema == "w8a8_symu8_pc"
                ):
                    outcome = Outcome.DRIFTED
                lines.append(_nightly_cell(model, backend, schema, loss, environment, outcome))
    return lines


@functools.cache
def _nightly_cell(
    model: str,
    backend: str,
    schema: str,
    loss: float,
    environment: EnvironmentClass,
    outcome: Outcome | None,
) -> dict[str, Any]:
    """One line for all nights in which a cell loses as much: nobody changes it."""
    return make_cell(model, backend, schema, loss, environment=environment, outcome=outcome)


def nightly_history(runs: int = 40) -> list[Run]:
    """``runs`` nights, the newest with cells red for five different reasons; made once:
    nobody changes them.
    """
    return list(_nights(runs))


@functools.cache
def _nights(runs: int) -> tuple[Run, ...]:
    noise = random.Random(7)
    history = []
    for index in range(runs):
        lines = _night(index, noise)
        if index == runs - 1:
            swap: dict[tuple[str, str, str], Callable[[], dict[str, Any]]] = {
                ("magika", "ort-cpu", "w8a8_sym_pc_pow2"): lambda: skipped_cell(
                    "magika",
                    "ort-cpu",
                    "w8a8_sym_pc_pow2",
                    "onnxruntime: node '/dense/MatMul_quant': scale must be a scalar or 1-D tensor",
                    outcome=Outcome.ERROR,
                ),
                ("magika", "ort-cpu-noopt", "w8a8_sym_pc"): lambda: make_cell(
                    "magika", "ort-cpu-noopt", "w8a8_sym_pc", 0.001, outcome=Outcome.MISSING
                ),
                ("digits_cnn", "ort-cpu", "w8a8_symu8_pc"): lambda: make_cell(
                    "digits_cnn", "ort-cpu", "w8a8_symu8_pc", 0.001, outcome=Outcome.STALE
                ),
            }
            lines = [
                swap.get((c["model"], c["backend"], c["schema"]), lambda c=c: c)() for c in lines
            ]
        history.append(make_run(lines, index, environment=OLD if index < MACHINE_RUN else NEW))
    return tuple(history)


def edge_histories() -> dict[str, list[Run]]:
    """Histories that must render all the same, by name."""
    one = [make_cell("digits_cnn", "ort-cpu", s, BASE_LOSS[s]) for s in SCHEMAS]
    hostile = make_cell("digits_cnn", "ort-cpu", "w8a8_asym_pc", 0.02)
    hostile |= {
        "model": "<script>alert(1)</script>",
        "schema": "a|b`c*_$x$",
        "headline": "</script><img src=x onerror=alert(2)>",
        "remedy": "rm -rf \"'&<b>",
        "notices": ["[link](javascript:alert(3)) | <b>bold</b>"],
        "outcome": "failed",
    }
    rubbish: list[dict[str, Any]] = [
        {"type": "cell"},
        {
            "type": "cell",
            "model": 3,
            "backend": None,
            "schema": [],
            "metrics": "none",
            "gates": 7,
            "outcome": "purple",
        },
        {
            "type": "cell",
            "model": "m",
            "backend": "b",
            "schema": "s",
            "outcome": "failed",
            "metrics": {"top1": {"hits": float("nan"), "out_of": 0}},
        },
        {
            "type": "cell",
            "model": "m",
            "backend": "b",
            "schema": "t",
            "outcome": "passed",
            "metrics": {"top1": None},
            "gates": [None, 3],
        },
    ]
    return {
        "empty": [],
        "one run": [make_run(one)],
        "nothing measured": [
            make_run(
                [skipped_cell("digits_cnn", b, s, "no engine") for b in BACKENDS for s in SCHEMAS]
            )
        ],
        "no cells": [make_run([])],
        "incomplete": [
            make_run(one, 0),
            make_run(one[:2], 1, complete=False, whole=False, notes=["stopped by Ctrl-C"]),
        ],
        "damaged": [make_run(one, 0, damaged=3)],
        "hostile": [make_run([hostile])],
        "rubbish": [make_run(rubbish), Run(header={}, cells=tuple(map(record_of_line, rubbish)))],
        "two suites": [
            make_run(one, 0),
            make_run(
                [make_cell("magika", "ort-cpu", s, BASE_LOSS[s], suite="smoke") for s in SCHEMAS],
                1,
                suite="smoke",
            ),
        ],
        "two machines by turns": [
            make_run(
                [
                    make_cell(
                        "digits_cnn",
                        "ort-cpu",
                        "w8a8_sym_pc",
                        0.003 if i % 2 else 0.001,
                        environment=NEW if i % 2 else OLD,
                    )
                ],
                i,
            )
            for i in range(12)
        ],
    }
