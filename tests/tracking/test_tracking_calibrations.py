"""Calibrations in baselines and run files: what scopes take, what comes back from disk,
what is refused.
"""

import base64
import dataclasses
import json
import zlib

import pytest
from tracked_results import ANSWERS, HERE, agreement, baseline, line, measured, per, top1

from qbench.errors import InputError, StoreError
from qbench.judging import Calibrated, Rules
from qbench.tracking import (
    Accepting,
    Scope,
    accept_measurements,
    accept_reference,
    load_baseline,
    record_of_line,
    save_baseline,
)

SEEN = Calibrated(key="default", ranges={"x": (-1.25, 6.0), "decoder::y/1": (0.0, 3.4028e38)})
MOVED = Calibrated(key="default", ranges=dict(SEEN.ranges) | {"x": (-1.25, 3.0)})
MORE = Calibrated(key="default", ranges=dict(SEEN.ranges) | {"z": (0.0, 1.0)})


def accept(base, *measurements, scope, reason="a new kernel"):
    return accept_measurements(
        base, measurements, accepting=Accepting(scope=scope, reason=reason), rules=Rules()
    )


def calibrated(by, *scores, **more):
    return measured(*scores, calibrated=by, **more)


@pytest.fixture
def known():
    return accept(baseline(), calibrated(SEEN), scope=Scope.NEW, reason="").baseline


def test_a_new_calibration_is_taken_once_for_all_cells():
    cells = [calibrated(SEEN), calibrated(SEEN, slug="ort-cpu+other")]
    found = accept(baseline(), *cells, scope=Scope.NEW, reason="")
    assert found.baseline.calibrations == {"default": SEEN.ranges}
    rows = [row for row in found.rows if row.cell == "calibration:default"]
    assert [(row.environment_class, row.metric, row.old, row.new, row.unit) for row in rows] == [
        ("any", "ranges", None, 2, "values")
    ]


def test_a_baseline_of_before_gets_one_though_its_cells_are_known():
    before = accept(baseline(), measured(), scope=Scope.NEW, reason="").baseline
    left = accept(before, calibrated(SEEN), scope=Scope.CHANGED)
    assert (left.rows, left.left_new) == ((), 1)
    taken = accept(before, calibrated(SEEN), scope=Scope.NEW, reason="")
    assert taken.baseline.calibrations == {"default": SEEN.ranges}
    assert taken.baseline.cells == before.cells


@pytest.mark.parametrize("scope", [*Scope, None])
def test_a_moved_calibration_is_taken_as_a_change(known, scope):
    found = accept(known, calibrated(MOVED), scope=scope)
    if scope in (Scope.CHANGED, Scope.ALL):
        assert found.baseline.calibrations == {"default": MOVED.ranges}
        assert [(row.metric, row.old, row.new) for row in found.rows] == [
            ("ranges (1 moved)", 2, 2)
        ]
    else:
        assert found.baseline is known
        assert found.left_changed == 1


def test_an_improvement_takes_the_calibration_that_made_it(known):
    better = calibrated(MOVED, top1(765), per(104), agreement(940), predictions="p2")
    found = accept(known, better, scope=Scope.IMPROVED)
    assert found.baseline.calibrations == {"default": MOVED.ranges}


def test_replacing_ranges_needs_a_reason(known):
    with pytest.raises(InputError, match=r"calibration 'default'.*no reason"):
        accept(known, calibrated(MOVED), scope=Scope.CHANGED, reason="")


def test_last_digits_are_no_change_and_further_values_are_new(known):
    close = Calibrated(key="default", ranges=dict(SEEN.ranges) | {"x": (-1.2501, 6.0001)})
    assert accept(known, calibrated(close), scope=Scope.ALL).baseline is known
    assert accept(known, calibrated(MORE), scope=Scope.CHANGED).baseline is known
    assert accept(known, calibrated(MORE), scope=Scope.NEW).baseline.calibrations == {
        "default": MORE.ranges
    }


def test_new_keeps_what_did_not_move_as_it_was_accepted(known):
    crept = Calibrated(key="default", ranges=dict(MORE.ranges) | {"x": (-1.25, 6.05)})
    assert accept(known, calibrated(crept), scope=Scope.NEW, reason="").baseline.calibrations == {
        "default": MORE.ranges
    }
    fewer = Calibrated(key="default", ranges={"x": (-1.25, 6.0)})
    assert accept(known, calibrated(fewer), scope=Scope.NEW).baseline.calibrations == {
        "default": fewer.ranges
    }


def test_two_calibrations_in_one_acceptance_are_refused(known):
    cells = [calibrated(MOVED), calibrated(SEEN, slug="ort-cpu+other")]
    with pytest.raises(InputError, match="calibrated in two ways"):
        accept(known, *cells, scope=Scope.ALL)


def test_what_a_later_cell_takes_is_not_left(known):
    better = calibrated(
        MOVED, top1(765), per(104), agreement(940), predictions="p2", slug="ort-cpu+w8a8_asym_pc"
    )
    other = calibrated(MOVED, slug="ort-aaa+w8a8_asym_pc")
    both = accept(known, better, calibrated(SEEN, slug="ort-aaa+w8a8_asym_pc"), scope=Scope.NEW)
    found = accept(both.baseline, other, better, scope=Scope.IMPROVED)
    assert (found.left_changed, found.baseline.calibrations) == (0, {"default": MOVED.ranges})


def test_another_model_forgets_its_calibrations(known):
    def again(**more):
        return accept_reference(
            known,
            measured(**more),
            ANSWERS,
            backend="ort-cpu",
            environment_class=str(HERE),
            reason="retrained",
        ).baseline

    assert again(model="m2").calibrations == {}
    assert again().calibrations == known.calibrations


def test_baselines_hold_them_as_words(tmp_path, known):
    path = tmp_path / "smoke" / "mobilenet_v2.json"
    save_baseline(path, known)
    table = json.loads(path.read_text())
    assert table["calibrations"] == {"default": {"x": "-1.25 6", "decoder::y/1": "0 3.4028e+38"}}
    assert load_baseline(path).calibrations == known.calibrations
    assert not save_baseline(path, load_baseline(path))


@pytest.mark.parametrize("word", ["1", "2 1", "nan 1", "0 inf", "low high", "0 1 2"])
def test_a_damaged_range_is_told(tmp_path, known, word):
    path = tmp_path / "smoke" / "mobilenet_v2.json"
    save_baseline(path, known)
    table = json.loads(path.read_text())
    table["calibrations"]["default"]["x"] = word
    path.write_text(json.dumps(table))
    with pytest.raises(StoreError, match="in another form"):
        load_baseline(path)


def test_a_record_brings_them_back():
    measurement = calibrated(SEEN)
    written = json.loads(json.dumps(line(measurement)))
    assert record_of_line(written).measurement() == measurement
    assert list(record_of_line(written).measurement().calibrated.ranges) == list(SEEN.ranges)
    assert record_of_line(line(measured())).measurement().calibrated is None


@pytest.mark.parametrize("ranges", ["", "not base64", "AAAA", None])
def test_a_record_with_strange_ranges_is_refused(ranges):
    written = dict(line(calibrated(SEEN)))
    written["calibrated"] = {"key": "default", "ranges": ranges}
    with pytest.raises(InputError, match="cannot be read"):
        record_of_line(written).measurement()


def test_a_borrowed_reference_brings_none(known):
    assert known.as_reference_of("quantized", None).calibrations == {}
    assert (
        dataclasses.replace(known, calibrations={}).expectation(measured().cell, {}).calibrations
        == {}
    )
    assert known.expectation(measured().cell, measured().digests).calibrations == {
        "default": SEEN.ranges
    }


@pytest.mark.parametrize("text", [b'{"x": "0 1"' + b" " * (1 << 24) + b"}", b"[" * 100_000])
def test_ranges_that_unpack_to_too_much_are_one_sentence(text):
    words = {"key": "default", "ranges": base64.b64encode(zlib.compress(text)).decode()}
    with pytest.raises(InputError, match="cannot be read"):
        record_of_line(
            {**json.loads(json.dumps(line(calibrated(SEEN)))), "calibrated": words}
        ).measurement()
