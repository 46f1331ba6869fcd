"""The gate of the size of a model file."""

import pytest
from judged_numbers import expected, judged, measured

from qbench.judging import Accepted, GateKind, GateState, Outcome, QuarantineEntry, Rules, Setting
from qbench.judging.file_size import FileLimits

SIZE = {"cell": 300, "fp32": 1000}


def gate_of(limits, remembered=None, size=None):
    measurement = measured(evidence={GateKind.FILE_SIZE: size or SIZE})
    known = expected(measurement)
    if remembered is not None:
        ((name, held),) = known.accepted.items()
        kept = Accepted(
            metrics=held.metrics,
            predictions=held.predictions,
            remembered={GateKind.FILE_SIZE.value: remembered},
        )
        known = expected(measurement, accepted={name: kept})
    rules = Rules(more={"max_file_bytes": Setting(limits, "model m")})
    verdict = judged(measurement, known, rules=rules)
    (gate,) = [gate for gate in verdict.gates if gate.metric.startswith("file_bytes")]
    return gate.state, verdict


@pytest.mark.parametrize(
    ("limits", "remembered", "state"),
    [
        (FileLimits(bytes=300), None, GateState.HOLDS),
        (FileLimits(bytes=299), None, GateState.BROKEN),
        (FileLimits(fp32=0.3), None, GateState.HOLDS),
        (FileLimits(fp32=0.29), None, GateState.BROKEN),
        (FileLimits(accepted=1.0), 300, GateState.HOLDS),
        (FileLimits(accepted=1.0), 299, GateState.BROKEN),
        (FileLimits(accepted=1.0), None, GateState.INCOMPARABLE),
    ],
)
def test_each_limit(limits, remembered, state):
    found, verdict = gate_of(limits, remembered)
    assert found is state
    red = Outcome.FAILED if limits.accepted is None else Outcome.DRIFTED
    assert verdict.outcome is (red if state is GateState.BROKEN else Outcome.PASSED)
    if state is GateState.BROKEN:
        assert "model m" in verdict.headline


def test_a_model_without_fp32_has_nothing_to_compare_with():
    assert (
        gate_of(FileLimits(fp32=0.3), size={"cell": 300, "fp32": None})[0] is GateState.INCOMPARABLE
    )


@pytest.mark.parametrize(
    "limits", [{}, {"bytes": 0}, {"bytes": 10, "fp32": 0.0}, {"accepted": -1.0}]
)
def test_impossible_limits(limits):
    with pytest.raises(ValueError, match=r"ratio|whole number|limit without"):
        FileLimits(**limits)


def test_a_file_that_cannot_be_written_has_no_verdict():
    assert (
        gate_of(FileLimits(bytes=3), size={"cell": None, "fp32": None})[0] is GateState.INCOMPARABLE
    )


def test_no_quarantine_entry_excuses_a_file_that_is_too_large():
    """An entry holds values of metrics; a file three times as large under it was green."""
    measurement = measured(evidence={GateKind.FILE_SIZE: SIZE})
    rules = Rules(more={"max_file_bytes": Setting(FileLimits(bytes=100), "model m")})
    entry = QuarantineEntry(
        cell="mobilenet_v2::*",
        measured="77.8 → 70.7",
        reason="weights",
        owner="kernels",
        expires="2026-12-31",
    )
    verdict = judged(measurement, rules=rules, quarantine=entry)
    assert verdict.outcome is Outcome.FAILED
    assert any("neither time nor size" in notice for notice in verdict.notices)
