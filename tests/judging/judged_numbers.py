"""Measurements and expectations with few words, for tests of judging and tracking."""

import dataclasses
import datetime

from qbench.judging import (
    Accepted,
    Cell,
    EnvironmentClass,
    Expectation,
    Measurement,
    Rules,
    Tolerance,
    judge,
)
from qbench.metrics import Against, Direction, Score

TODAY = datetime.date(2026, 11, 21)
HERE = EnvironmentClass("x64-avx512-vnni", (("onnxruntime", "1.30.2"),))
ELSEWHERE = EnvironmentClass("x64-avx2", (("onnxruntime", "1.30.2"),))
NODE = "suites/smoke.qbench.toml::mobilenet_v2::ort-cpu+w8a8_asym_pc"


def top1(hits, n=1000, reference=760, *, metric="top1", losses=None, gains=0):
    losses = max(reference - hits, 0) if losses is None else losses
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
        losses=losses,
        gains=gains,
    )


def agreement(hits, n=500, *, metric="agreement@photo_crops"):
    return dataclasses.replace(
        top1(hits, n, n, metric=metric),
        against=Against.REFERENCE,
        losses=n - hits,
        reference_hits=n,
    )


def per(edits, out_of=2000, reference=100, *, least=0.001):
    return Score(
        metric="per",
        direction=Direction.LOWER,
        against=Against.LABELS,
        unit="%",
        proportion=False,
        least_margin=least,
        n=300,
        hits=edits,
        out_of=out_of,
        reference_hits=reference,
        losses=max(edits - reference, 0),
        gains=0,
    )


def sqnr(decibels, n=500):
    return dataclasses.replace(
        top1(round(decibels * n), n, 0, metric="sqnr", losses=0),
        against=Against.REFERENCE,
        unit="dB",
        proportion=False,
    )


def measured(
    *scores,
    environment=HERE,
    schema="w8a8_asym_pc",
    backend="ort-cpu",
    variant="",
    predictions="p1",
    integer_macs=0.98,
    model="m1",
    data="d1",
    reference="r1",
    **more,
):
    return Measurement(
        cell=Cell("smoke", "mobilenet_v2", backend, schema, variant),
        environment=environment,
        scores=scores or (top1(760), agreement(470)),
        digests={
            "model": model,
            "preprocessing": "x1",
            "quantized": "q1",
            "data:photos": data,
            "reference:photos": reference,
            "predictions:photos": predictions,
        },
        integer_macs=0.0 if schema == "fp32" else integer_macs,
        macs=300_000_000,
        **more,
    )


def accepted_of(measurement, **changes):
    hits = {s.metric: s.hits for s in measurement.scores} | changes
    return Accepted(metrics=hits, predictions={"photos": measurement.digests["predictions:photos"]})


def expected(measurement, *, environment=None, floors=None, **changes):
    """An expectation that accepts just what was measured."""
    environment = environment or measurement.environment
    values = {
        "reference": {"photos": "r1"},
        "accepted": {str(environment): accepted_of(measurement)},
        "floors": {"agreement@photo_crops": 460} if floors is None else floors,
    }
    return Expectation(**(values | changes))


def judged(measurement, expectation=None, **changes):
    settings = {
        "tolerance": Tolerance(0.005, "suite smoke"),
        "rules": Rules(rule="suite smoke", agreement_rule="suite smoke"),
        "quarantine": None,
        "today": TODAY,
        "node_id": NODE,
    }
    return judge(measurement, expectation or expected(measurement), **(settings | changes))
