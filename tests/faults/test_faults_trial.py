"""One fault of each stage in the network of digits: which gates see it,
and where localisation finds it.
"""

import functools
import time
from dataclasses import replace

import pytest

from qbench.backends import get_backend
from qbench.evaluation import MetricUse, Subject, SubjectArtifacts
from qbench.faults import CATALOGUE, Placed
from qbench.faults.detection import marks, rates_of, table
from qbench.faults.fault import Stage
from qbench.faults.faulty_backend import with_fault
from qbench.faults.trial import DetectedBy, FaultHarness, Trial
from qbench.metrics import get_metric
from qbench.quantization import get_schema
from qbench.storage import Cache
from qbench.subjects import get_dataset, get_model

METRICS = ("top1", "top5", "agreement")


@functools.cache
def ward() -> FaultHarness:
    data = get_dataset("digits_test")
    subject = Subject(
        model=get_model("digits_cnn"),
        data={"digits_test": data},
        metrics=tuple(MetricUse(name, get_metric(name), "digits_test") for name in METRICS),
        calibration=get_dataset("digits_train").take(64),
    )
    return FaultHarness(
        shared=SubjectArtifacts(subject, Cache.default(), get_backend("ort-cpu"), "trial"),
        backend=get_backend("integer-ort-x64"),
        schema=get_schema("w8a8_asym_pc"),
        agreement=0.75,
        timer=time.perf_counter,
    )


def trial_at(name, *sites):
    return ward().try_fault(Placed(fault=CATALOGUE[name], sites=sites, seed=1), samples=32)


@pytest.mark.slow
@pytest.mark.parametrize("schema", ["w4_sym_b32", "w8_sym_pc", "w8a8_asym_pc_dyn"])
def test_faults_of_weights_are_found_where_no_activation_has_stored_parameters(schema):
    """Such a network is many units, also where a pass broke one of them: regions of passes end
    at stored ones alone.
    """
    one = replace(ward(), schema=get_schema(schema), tries_effects=False)
    for fault, site, cause in (
        ("weight-transposed", "conv2", "layout or axis error"),
        ("output-channels-shifted", "dense1", "layout or axis error"),
        ("weight-scale-as-power-of-two", "conv2", "wrong scale"),
    ):
        placed = Placed(fault=CATALOGUE[fault], sites=(site,), seed=1)
        assert site in placed.fault.sites(
            one.shared.quantized(one.schema, one.backend.capabilities).models["model"]
        )
        trial = one.try_fault(placed, samples=8)
        assert (trial.hit, trial.named, trial.suspects[0]) == (1, True, (site, cause))


def test_an_engine_that_drops_a_bias_is_seen_by_equality_and_found():
    trial = trial_at("bias-dropped", "conv2")
    assert trial.stage is Stage.ENGINE
    assert trial.changes
    assert DetectedBy.EQUALITY in trial.seen
    assert DetectedBy.EFFECT not in trial.seen
    assert trial.found
    assert trial.hit == 1
    assert trial.named
    assert trial.suspects[0] == ("conv2", "wrong bias")


@pytest.mark.slow
def test_a_layer_silently_in_float_is_seen_by_the_executed_share_and_keeps_its_accuracy():
    trial = trial_at("layer-silently-in-float", "conv2")
    assert DetectedBy.EXECUTED in trial.seen
    assert trial.found
    assert not {DetectedBy.RULE, DetectedBy.STATISTICS, DetectedBy.AGREEMENT} & trial.seen
    bias = ward().try_fault(
        Placed(fault=CATALOGUE["bias-dropped"], sites=("conv2",), seed=1), samples=0
    )
    assert DetectedBy.EXECUTED not in bias.seen


@pytest.mark.slow
def test_a_wrong_pass_is_seen_by_the_effect_it_claims_and_not_by_equality():
    trial = trial_at("weight-transposed", "conv1")
    assert trial.stage is Stage.PASS
    assert {
        DetectedBy.EFFECT,
        DetectedBy.RULE,
        DetectedBy.STATISTICS,
        DetectedBy.AGREEMENT,
    } <= trial.seen
    assert DetectedBy.EQUALITY not in trial.seen
    assert trial.hit == 1


@pytest.mark.slow
def test_a_wrong_profile_is_seen_by_what_it_costs():
    trial = trial_at("range-of-another-value", "dense1")
    assert trial.stage is Stage.CALIBRATION
    assert DetectedBy.EQUALITY not in trial.seen
    assert {DetectedBy.AGREEMENT, DetectedBy.DRIFT, DetectedBy.CALIBRATION} <= trial.seen
    assert (trial.hit, trial.named) == (1, True)
    assert trial.suspects[0] == ("dense1", "calibration changed")


@pytest.mark.slow
def test_a_profile_that_costs_nothing_is_seen_by_its_ranges():
    trial = trial_at("calibrated-on-one-sample", "conv1")
    assert DetectedBy.CALIBRATION in trial.seen
    assert not trial.seen & {
        DetectedBy.RULE,
        DetectedBy.STATISTICS,
        DetectedBy.AGREEMENT,
        DetectedBy.EQUALITY,
    }
    assert trial.found


@pytest.mark.slow
def test_a_gate_that_is_red_without_the_fault_sees_nothing():
    lost = Placed(fault=CATALOGUE["last-rows-skipped"], sites=("conv1",), seed=1)
    shaky = replace(ward(), backend=with_fault(ward().backend, lost), agreement=1.0)
    placed = Placed(fault=CATALOGUE["weight-transposed"], sites=("conv1",), seed=1)
    assert DetectedBy.AGREEMENT in shaky.alarms(
        shaky.shared, backend=shaky.backend, twin=None, threads=1
    )
    assert DetectedBy.AGREEMENT not in shaky.try_fault(placed, samples=0).seen


@pytest.mark.parametrize("threads", [1, 2])
def test_the_healthy_subject_raises_no_alarm(threads):
    one = ward()
    assert (
        one.alarms(
            one.shared, backend=one.backend, twin=get_backend("ort-cpu-precise"), threads=threads
        )
        == set()
    )


def test_another_machine_in_its_place_does():
    one = ward()
    other = get_backend("integer-glow-cpu")
    assert DetectedBy.EQUALITY in one.alarms(one.shared, backend=other, twin=one.backend, threads=1)


def of(fault, **more):
    values = {
        "sites": ("a",),
        "seed": 1,
        "subject": "s",
        "stage": Stage.ENGINE,
        "changes": True,
    } | more
    return Trial(fault=fault, **values)


def test_rates_count_faults_once_and_trials_that_a_gate_sees():
    trials = [
        of(
            "one",
            seen=frozenset({DetectedBy.EQUALITY, DetectedBy.RULE}),
            hit=1,
            named=True,
            seconds=1.0,
        ),
        of("one", subject="t", seen=frozenset({DetectedBy.DRIFT}), seconds=1.0),
        of("two", seen=frozenset({DetectedBy.DRIFT}), hit=2, seconds=1.0),
        of("three", changes=False),
        of("four", seen=frozenset({DetectedBy.AGREEMENT}), hit=3, seconds=1.0),
        of("five", failed="it does not run"),
    ]
    rates = rates_of(trials)
    assert (rates.faults, rates.found, rates.missed, rates.equivalent) == (
        4,
        3,
        ("two",),
        ("three",),
    )
    assert rates.by_gate[DetectedBy.EQUALITY] == 1
    assert rates.by_gate[DetectedBy.DRIFT] == 2
    assert (rates.trials, rates.first, rates.third, rates.named) == (2, 1, 2, 1)
    assert marks(trials[0]) == "ae 1 ✓"
    assert marks(trials[2]) == "d"
    assert marks(trials[3]) == "equivalent"
    assert marks(trials[5]) == "does not run"
    rows = table(trials, ["s", "t"], {"one": "a/b#1", "six": "a/b#2"})
    assert rows == [("one", "engine", "a/b#1", "ae 1 ✓", "d")]
