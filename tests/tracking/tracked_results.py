"""A model's measurements, baseline and runs with few words, for tests of tracking."""

import dataclasses
import datetime
from pathlib import Path

import numpy as np

from qbench.judging import Cell, EnvironmentClass, Measurement, Outcome, Verdict
from qbench.metrics import PADDING, Against, AnswerKind, Answers, Direction, Score
from qbench.tracking import FORMAT, CellRecord, Run, RunWriter, accept_reference, record_of_line

HERE = EnvironmentClass("x64-avx512-vnni", (("onnxruntime", "1.30.2"),))
ELSEWHERE = EnvironmentClass("x64-avx2", (("onnxruntime", "1.30.2"),))
START = datetime.datetime(2026, 11, 21, 4, 30, tzinfo=datetime.UTC)

PHOTOS = Answers(np.arange(5000, dtype=np.int32).reshape(1000, 5) % 991)
WORDS = Answers(
    np.array([[3, 1, PADDING], [2, PADDING, PADDING], [7, 7, 7]] * 100, dtype=np.int32),
    kind=AnswerKind.SEQUENCE,
)
ANSWERS = {"photos": PHOTOS, "words": WORDS}


def top1(hits, *, reference=760, n=1000, metric="top1@photos"):
    return Score(
        metric=metric,
        direction=Direction.HIGHER,
        against=Against.LABELS,
        unit="%",
        proportion=True,
        least_margin=0.0,
        n=n,
        hits=hits,
        out_of=n,
        reference_hits=reference,
        losses=max(reference - hits, 0),
        gains=max(hits - reference, 0),
    )


def per(edits):
    score = dataclasses.replace(top1(edits, reference=100, n=300, metric="per@words"), out_of=2000)
    return dataclasses.replace(
        score, direction=Direction.LOWER, proportion=False, least_margin=0.001
    )


def agreement(hits):
    score = top1(hits, reference=1000, metric="agreement@photos")
    return dataclasses.replace(score, against=Against.REFERENCE)


def measured(
    *scores, predictions="p1", environment=HERE, slug="ort-cpu+w8a8_asym_pc", model="m1", **more
):
    backend, schema, *variant = slug.split("+")
    digests = {"model": model, "preprocessing": "x1", "quantized": "q1"}
    for name, answers in ANSWERS.items():
        digests |= {f"data:{name}": f"d-{name}", f"reference:{name}": answers.digest}
        digests[f"predictions:{name}"] = f"{predictions}-{name}"
    values = {
        "cell": Cell("smoke", "mobilenet_v2", backend, schema, *variant),
        "environment": environment,
        "scores": scores or (top1(758), per(104), agreement(940)),
        "digests": digests,
        "changed": {"photos": ("cat.png",)},
        "changed_count": {"photos": 60, "words": 0},
        "ties": {"photos": 1},
        "macs": 300,
        "integer_macs": 0.98,
        "refusals": ("Conv_3: no kernel",),
        "seconds": {"prepare": 0.25, "inference": 1.5},
    }
    return Measurement(**(values | more))


def baseline(**more):
    made = accept_reference(
        None, measured(**more), ANSWERS, backend="ort-cpu", environment_class=str(HERE)
    )
    return made.baseline


def line(measurement, outcome=Outcome.PASSED):
    return CellRecord.of(
        measurement.cell, Verdict(outcome=outcome, headline="h", rule="r"), measurement
    ).line()


def run(*lines, number=0, complete=True, **header):
    started = START + datetime.timedelta(days=number)
    first = {"format": FORMAT, "id": f"{started:%Y%m%dT%H%M%SZ}-abc1234-0", "suite": "smoke"}
    return Run(
        header={
            **first,
            "started": started.isoformat(),
            "commit": {"sha": f"{number:040x}"},
            **header,
        },
        cells=tuple(map(record_of_line, lines)),
        complete=complete,
    )


def written(
    folder, *lines, suite="smoke", started=START, token="aa", end=True, commit="abc1234def"
):
    writer = RunWriter.open(folder, {"suite": suite}, started=started, commit=commit, token=token)
    for item in lines:
        writer.write(item)
    if end:
        writer.close(exit_code=0)
    else:
        writer.abandon()
    return Path(writer.name)
