"""Mistakes with a cause of their own: single weights, exchanged zero points,
ends that wrap, buffers, floats.
"""

import functools
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

from qbench.backends import get_backend
from qbench.evaluation import Subject, SubjectArtifacts, build_subject
from qbench.faults import CATALOGUE, Placed, many_operators
from qbench.faults.fault import (
    Fault,
    GraphEdit,
    Story,
    pair_in_front,
    put_codes,
    put_point,
    weight_codes,
)
from qbench.faults.trial import FaultHarness
from qbench.graph import constant_value
from qbench.judging import Cause
from qbench.quantization import get_schema
from qbench.storage import Cache

OWN = Story("tests", "Made up here.")


@functools.cache
def harness(name="digits_many_operators", schema="w8a8_asym_pc"):
    plain = build_subject("digits_cnn", "digits_test", "digits_train", [], 64)
    if name != "digits_cnn":
        plain = Subject(
            model=many_operators(),
            data=plain.data,
            metrics=plain.metrics,
            calibration=plain.calibration,
        )
    shared = SubjectArtifacts(
        plain,
        Cache(Path(tempfile.mkdtemp(prefix="qbench-mistakes-"))),
        get_backend("ort-cpu"),
        "mistakes",
    )
    backend = get_backend("integer-ort-x64")
    return FaultHarness(
        shared=shared, backend=backend, schema=get_schema(schema), agreement=0.98,
        tries_effects=False, timer=time.perf_counter,
    )  # fmt: skip


def flipped(bit):
    def edit(node, random):
        levels = weight_codes(node).copy()
        flat = levels.view(np.uint8).reshape(-1)
        flat[random.integers(flat.size)] ^= np.uint8(1 << bit)
        put_codes(node, 1, levels)

    return edit


def exchanged(node, _):
    pairs = [pair_in_front(node, place) for place in (0, 1)]
    points = [int(np.asarray(constant_value(pair.inputs[2])).reshape(-1)[0]) for pair in pairs]
    for pair, point in zip(pairs, reversed(points), strict=True):
        put_point(pair, point)


def own_fault(name, edit, *causes):
    return Fault(name, name, OWN, GraphEdit(edit), lambda _: True, causes)


def tried(fault, site, *, seed=1, samples=32, **more):
    trial = harness(**more).try_fault(
        Placed(fault=fault, sites=(site,), seed=seed), samples=samples
    )
    assert trial.changes
    return trial


@pytest.mark.slow
@pytest.mark.parametrize(
    ("site", "bit", "seed"),
    [
        ("point", 6, 1),
        ("depthwise", 7, 2),
        ("stem", 6, 3),
        ("strided", 6, 4),
        ("grouped", 5, 5),
        ("last", 6, 6),
        ("dilated", 7, 7),
    ],
)
def test_one_flipped_bit_of_a_weight_is_named(site, bit, seed):
    trial = tried(
        own_fault("weight-bit-flipped", flipped(bit), Cause.WRONG_WEIGHT), site, seed=seed
    )
    assert trial.suspects[0] == (site, "wrong weight")


@pytest.mark.slow
def test_exchanged_zero_points_of_a_sum_are_no_bias():
    trial = tried(own_fault("zero-points-exchanged", exchanged, Cause.ROUNDING), "sum")
    assert trial.suspects[0] == ("sum", "wrong rounding or zero point")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "site", "seed", "schema"),
    [
        ("softmax-wraps-at-one", "shares", 1, "w8a8_asym_pc"),
        ("softmax-wraps-at-one", "shares", 23, "w8a8_asym_pc"),
        ("operand-overwritten-while-live", "difference", 1, "w8a8_sym_pc_pow2"),
        ("operand-overwritten-while-live", "sum", 2, "w8a8_asym_pc"),
        ("operand-overwritten-while-live", "gate", 3, "w8a8_asym_pc"),
        ("layer-silently-in-float", "stem", 1, "w8a8_asym_pc"),
        ("layer-silently-in-float", "point", 1, "w8a8_sym_pc_pow2"),
    ],
)
def test_a_fault_of_the_catalogue_is_named(name, site, seed, schema):
    trial = tried(CATALOGUE[name], site, seed=seed, schema=schema)
    assert trial.hit == 1
    assert trial.named


@pytest.mark.slow
@pytest.mark.parametrize("name", ["first-samples-result-for-batch", "result-of-previous-run"])
def test_faults_of_batches_and_runs_are_found_on_one_sample(name):
    trial = tried(CATALOGUE[name], "dense1", samples=1, name="digits_cnn")
    assert trial.hit == 1
    assert trial.named
