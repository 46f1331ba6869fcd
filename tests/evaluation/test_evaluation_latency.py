"""Evidence of latency: the engine alone, in turns, the fastest pass of each."""

import dataclasses

from qbench import get_backend
from qbench.evaluation import (
    Request,
    build_subject,
    environment_here,
    measure_request,
    subject_artifacts,
)
from qbench.evaluation.evidence.latency import TURNS, fastest_pass
from qbench.judging import Cell, GateKind, Setting
from qbench.judging.file_size import FileLimits
from qbench.judging.suite_keys import RatioLimits
from qbench.quantization import get_schema

SCHEMA = "w8a8_asym_pc"


class Ticks:
    """A clock that goes on by one second whenever it is read."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 1.0
        return self.now


class Engine:
    def __init__(self):
        self.fed = []

    def run(self, feeds):
        self.fed.append(feeds)
        return {}


def test_a_pass_runs_every_feed_and_the_fastest_counts():
    clock = iter([0.0, 3.0, 10.0, 12.0, 20.0, 29.0])
    engine = Engine()
    assert (
        fastest_pass({"main": [{"x": 1}, {"x": 2}]}, 3, lambda: next(clock), {"main": engine})
        == 2.0
    )
    assert engine.fed == [{"x": 1}, {"x": 2}] * 3


def request_of(backend):
    subject = build_subject("digits_cnn", "digits_test", "digits_train", ["top1"], 16)
    backend = get_backend(backend)
    shared = subject_artifacts(subject, backend)
    return Request(
        cell=Cell(suite="s", model="digits_cnn", backend=backend.name, schema=SCHEMA),
        shared=shared,
        backend=backend,
        schema=get_schema(SCHEMA),
        reference=shared.reference(),
        environment=environment_here(backend),
        asked={GateKind.LATENCY: Setting(RatioLimits(fp32=0.8))},
        timer=Ticks(),
    )


def test_a_real_engine_is_timed_in_turns_with_the_float_model():
    found = measure_request(request_of("ort-cpu")).evidence[GateKind.LATENCY]
    assert found["samples"] == 8
    assert found["cell"] == found["fp32"] == (1 / 8,) * TURNS  # by the clock of the test


def test_an_engine_without_a_float_model_has_no_time_to_compare_with():
    measured = measure_request(request_of("integer-ort-x64"))
    assert "runs no float model" in measured.evidence[GateKind.LATENCY]["unknown"]
    assert measured.remembered == {}


def test_time_and_size_are_remembered():
    request = dataclasses.replace(
        request_of("ort-cpu"),
        asked={
            GateKind.LATENCY: Setting(RatioLimits(accepted=1.25)),
            GateKind.FILE_SIZE: Setting(FileLimits(accepted=1.0)),
        },
    )
    measured = measure_request(request)
    assert measured.remembered["latency"] == 1.0
    assert measured.remembered_range["latency"] == (0.8, 1.25)
    size = measured.remembered["file_size"]
    assert size > 10_000
    assert measured.remembered_range["file_size"] == (size, size)


def test_what_is_not_compared_with_the_accepted_is_not_remembered():
    request = dataclasses.replace(
        request_of("ort-cpu"),
        asked={
            GateKind.LATENCY: Setting(RatioLimits(fp32=0.8)),
            GateKind.FILE_SIZE: Setting(FileLimits(bytes=1)),
        },
    )
    assert measure_request(request).remembered == {}


def test_the_answers_are_those_without_the_evidence():
    request = request_of("ort-cpu")
    timed, plain = (
        measure_request(one) for one in (request, dataclasses.replace(request, asked={}))
    )
    assert timed.predictions == plain.predictions
    assert timed.scores == plain.scores
