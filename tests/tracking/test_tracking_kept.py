"""Answers kept with accepted results: stored beside the baseline, compared by flips and
probabilities, replaced.
"""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tracked_results import ELSEWHERE, HERE, START, top1

from qbench.errors import InputError, StoreError
from qbench.judging import Allowance, Cell, GateState, Measurement, Outcome, Rules, Tolerance, judge
from qbench.metrics import Answers, count_changes, kept_digest, packed_answers, unpacked_answers
from qbench.tracking import (
    Accepting,
    Baseline,
    CellRecord,
    Scope,
    StoredData,
    accept_measurements,
    accept_reference,
    find_baseline,
    load_baseline,
    record_of_line,
    save_baseline,
)

SLUG = "ort-cpu+w8a8_asym_pc"
IDS = np.tile(np.arange(5, dtype=np.int32), (40, 1))
SCORES = np.tile(np.array([0.5, 0.2, 0.1, 0.05, 0.01], dtype=np.float32), (40, 1))
ANSWERS = Answers(IDS, SCORES)


def moved(*, flips=0, by=0.0):
    ids, scores = IDS.copy(), SCORES.copy()
    ids[:flips, :2] = ids[:flips, 1::-1]
    scores[3, 0] += by
    return Answers(ids, scores)


def measurement(answers=ANSWERS, *, keeps=True):
    digests = {"model": "m1", "preprocessing": "x1", "quantized": "q1", "data:photos": "d1"}
    return Measurement(
        cell=Cell("smoke", "mobilenet_v2", *SLUG.split("+")),
        environment=HERE,
        scores=(top1(760, metric="top1"),),
        digests={
            **digests,
            "reference:photos": ANSWERS.digest,
            "predictions:photos": answers.digest,
        },
        integer_macs=0.98,
        kept={"photos": packed_answers(answers)} if keeps else {},
    )


def judged(found, expectation, rules):
    return judge(
        found, expectation, tolerance=Tolerance(), rules=rules, today=START.date(), node_id="node"
    )


def empty_baseline():
    stored = StoredData(samples=40, digest="d1", reference=ANSWERS.digest)
    return Baseline(
        model="mobilenet_v2",
        model_digest="m1",
        preprocessing="x1",
        backend="ort-cpu",
        environment_class=str(HERE),
        metrics={"top1": 760},
        data={"photos": stored},
        stored={"photos": Answers(IDS)},
    )


def accepting(baseline, *measurements, scope=Scope.NEW, reason="", rules=None):
    given = Accepting(scope=scope, reason=reason)
    return accept_measurements(baseline, measurements, accepting=given, rules=rules or Rules())


def verdict(baseline, found, **allowance):
    allowed = Allowance(flips_rule="suite smoke", moves_rule="suite smoke", **allowance)
    expectation = baseline.expectation(found.cell, found.digests)
    return judged(found, expectation, Rules(allowance=allowed))


@pytest.fixture
def baseline():
    return accepting(empty_baseline(), measurement()).baseline


def test_stored_beside_the_baseline_and_read_back(baseline: Baseline, tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    assert save_baseline(path, baseline)
    again = load_baseline(path)
    kept = again.kept[SLUG][str(HERE)]["photos"]
    assert kept_digest(kept) == kept_digest(ANSWERS)
    assert np.array_equal(kept.scores, SCORES)
    files = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert set(files) == {"m.json", "m.fp32.npz", "m.accepted.npz"}
    assert not save_baseline(path, again)
    assert files == {file.name: file.read_bytes() for file in tmp_path.iterdir()}


def test_nothing_is_stored_that_nobody_asked_for(tmp_path: Path) -> None:
    plain = accepting(empty_baseline(), measurement(keeps=False)).baseline
    save_baseline(tmp_path / "m.json", plain)
    assert {file.name for file in tmp_path.iterdir()} == {"m.json", "m.fp32.npz"}
    assert "kept" not in (tmp_path / "m.json").read_text()


def test_the_file_goes_with_its_last_answers(baseline: Baseline, tmp_path: Path) -> None:
    save_baseline(tmp_path / "m.json", baseline)
    changed = measurement(moved(flips=1), keeps=False)
    save_baseline(
        tmp_path / "m.json", accepting(baseline, changed, scope=Scope.CHANGED, reason="r1").baseline
    )
    assert not (tmp_path / "m.accepted.npz").exists()


@pytest.mark.parametrize("damage", ["gone", "torn", "other"])
def test_damaged_answers_are_named(baseline: Baseline, tmp_path: Path, damage: str) -> None:
    path, file = tmp_path / "m.json", tmp_path / "m.accepted.npz"
    save_baseline(path, baseline)
    if damage == "gone":
        file.unlink()
    elif damage == "torn":
        file.write_bytes(file.read_bytes()[:100])
    else:
        other = accepting(empty_baseline(), measurement(moved(by=0.1))).baseline
        save_baseline(tmp_path / "o.json", other)
        file.write_bytes((tmp_path / "o.accepted.npz").read_bytes())
    with pytest.raises(StoreError, match=r"accepted\.npz"):
        load_baseline(path)


KILLED = """
import json, os, shutil, signal, sys
from pathlib import Path
from qbench.errors import StoreError
from qbench.metrics import kept_digest
from qbench.tracking import load_baseline, save_baseline

old, new, work = map(Path, sys.argv[1:])
CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod"}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
os.fsync = lambda handle: None  # a kill of a process is not one of the machine


def state():
    try:
        found = load_baseline(work / "m.json")
    except StoreError:
        return "unreadable"
    kept = [kept_digest(a) for c in found.kept.values() for e in c.values() for a in e.values()]
    stored = [a.digest for a in found.stored.values()]
    return str((found.preprocessing, sorted(found.cells), kept, stored))


def killed(point):
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] != 0
    seen = []

    def count(path=None):
        seen.append(path)
        if len(seen) > point:
            os.kill(os.getpid(), signal.SIGKILL)

    def audit(event, arguments):
        if event in CHANGES or (event == "open" and arguments[2] & WRITES):
            count()

    wanted = load_baseline(new / "m.json")
    os.fsync = count
    sys.addaudithook(audit)
    save_baseline(work / "m.json", wanted)
    os._exit(0)


states, names, point = [], [], 0
while True:
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(old, work)
    was_killed = killed(point)
    states.append(state())
    save_baseline(work / "m.json", load_baseline(new / "m.json"))
    names.append(sorted(os.listdir(work)) + [state()])
    if not was_killed:
        break
    point += 1
print(json.dumps([states, names]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "direction",
    [
        "replaced",
        *(name for name in ("first kept", "last kept")),
    ],
)
def test_a_kill_before_any_file_operation_leaves_the_old_baseline_or_the_new(
    baseline: Baseline, tmp_path: Path, direction: str
) -> None:
    if direction == "replaced":  # answers and the reference at once
        later = accepting(
            baseline, measurement(moved(flips=1)), scope=Scope.CHANGED, reason="r"
        ).baseline
        other = Answers(IDS[:, ::-1].copy())
        data = {"photos": dataclasses.replace(later.data["photos"], reference=other.digest)}
        later = dataclasses.replace(later, stored={"photos": other}, data=data, preprocessing="x2")
    else:
        later = accepting(empty_baseline(), measurement(keeps=False)).baseline
    old, new = (later, baseline) if direction == "first kept" else (baseline, later)
    save_baseline(tmp_path / "old" / "m.json", old)
    save_baseline(tmp_path / "new" / "m.json", new)
    folders = [tmp_path / name for name in ("old", "new", "work")]
    done = subprocess.run(
        [sys.executable, "-c", KILLED, *map(str, folders)],
        check=True,
        capture_output=True,
        text=True,
    )
    states, names = json.loads(done.stdout)
    assert len(states) > 10
    assert set(states) == {states[0], states[-1]}
    assert "unreadable" not in states
    assert all(
        name == [*sorted(file.name for file in folders[1].iterdir()), states[-1]] for name in names
    )


def test_a_reader_between_two_writes_reads_again(
    baseline: Baseline, tmp_path: Path, monkeypatch
) -> None:
    """It has the old .json, and everything else is new by then."""
    from qbench.tracking import baseline_file

    path = tmp_path / "m.json"
    save_baseline(path, baseline)
    later = accepting(
        baseline, measurement(moved(flips=1)), scope=Scope.CHANGED, reason="r"
    ).baseline
    read, calls = baseline_file.read_bytes, []

    def slow(file: Path) -> bytes | None:
        text = read(file)
        calls.append(file)
        if len(calls) == 1:
            save_baseline(path, later)
        return text

    monkeypatch.setattr(baseline_file, "read_bytes", slow)
    assert load_baseline(path).cells == later.cells


def test_of_damaged_answers_the_results_stay_for_a_new_reference(
    baseline: Baseline, tmp_path: Path
) -> None:
    path = tmp_path / "m.json"
    save_baseline(path, baseline)
    (tmp_path / "m.accepted.npz").write_bytes(b"torn")
    kept = find_baseline(path, keep_whole_parts=True)
    assert len(kept.lost) == 1
    result = kept.cells[SLUG].accepted[str(HERE)]
    assert result == dataclasses.replace(baseline.cells[SLUG].accepted[str(HERE)], kept={})
    save_baseline(path, kept)
    assert load_baseline(path).cells == kept.cells
    taken = accepting(kept, measurement()).baseline
    assert taken.cells == baseline.cells


def test_answers_of_data_that_the_baseline_has_no_more_are_read(
    baseline: Baseline, tmp_path: Path
) -> None:
    other = dataclasses.replace(
        measurement(),
        digests={
            "model": "m2",
            "preprocessing": "x1",
            "data:words": "d2",
            "reference:words": ANSWERS.digest,
        },
    )
    changed = accept_reference(
        baseline,
        other,
        {"words": ANSWERS},
        backend="ort-cpu",
        environment_class=str(HERE),
        reason="other data",
    )
    save_baseline(tmp_path / "m.json", changed.baseline)
    again = load_baseline(tmp_path / "m.json")
    assert kept_digest(again.kept[SLUG][str(HERE)]["photos"]) == kept_digest(ANSWERS)


@pytest.mark.parametrize("word", ["torn", "short", "other kind"])
def test_a_record_with_damaged_answers_is_refused(word: str) -> None:
    text = packed_answers(ANSWERS)
    kind, _, packed = text.partition(":")
    short = packed_answers(Answers(IDS[:3], SCORES[:3]))
    torn = {
        "torn": f"{kind}:{packed[: len(packed) // 2 // 4 * 4]}",
        "short": short,
        "other kind": f"sequence:{packed}",
    }
    found = accepting(
        empty_baseline(), dataclasses.replace(measurement(), kept={"photos": torn[word]})
    )
    assert not found.rows
    assert "its record is damaged" in found.refusals[0].reason


def test_a_record_carries_answers_and_only_where_asked() -> None:
    given = measurement()
    plain = empty_baseline()
    line = CellRecord.of(given.cell, verdict(plain, given), given).line()
    assert record_of_line(line).measurement().kept == given.kept
    assert kept_digest(unpacked_answers(line["kept"]["photos"])) == kept_digest(ANSWERS)
    assert (
        "kept"
        not in CellRecord.of(given.cell, verdict(plain, given), measurement(keeps=False)).line()
    )


def test_flips_within_and_beyond(baseline: Baseline) -> None:
    found = measurement(moved(flips=2))
    assert verdict(baseline, found).outcome is Outcome.DRIFTED
    within = verdict(baseline, found, flips=2)
    assert within.outcome is Outcome.PASSED
    gate = next(gate for gate in within.gates if gate.kind == "drift")
    assert gate.detail.startswith("2 flips ")
    assert (gate.state.value, gate.rule.endswith("2 flips (suite smoke)")) == ("holds", True)
    beyond = verdict(baseline, found, flips=1)
    assert beyond.outcome is Outcome.DRIFTED
    assert beyond.rule.endswith("1 flip (suite smoke)")
    assert "--qbench-accept=changed" in beyond.remedy


def test_lower_ranks_are_no_flips(baseline: Baseline) -> None:
    ids = IDS.copy()
    ids[:, 3:] = ids[:, :2:-1]
    found = measurement(Answers(ids, SCORES))
    assert verdict(baseline, found).outcome is Outcome.DRIFTED
    assert verdict(baseline, found, flips=0).outcome is Outcome.PASSED


def test_flips_of_a_result_without_answers_cannot_be_counted() -> None:
    plain = accepting(empty_baseline(), measurement(keeps=False)).baseline
    found = verdict(plain, measurement(moved(flips=1)), flips=5)
    assert found.outcome is Outcome.DRIFTED
    assert any("were not kept" in gate.detail for gate in found.gates)


@pytest.mark.parametrize(
    ("limits", "outcome"),
    [
        ({}, Outcome.PASSED),
        ({"absolute": 0.02}, Outcome.PASSED),
        ({"absolute": 0.005}, Outcome.DRIFTED),
        ({"relative": 0.03}, Outcome.PASSED),
        ({"relative": 0.01}, Outcome.DRIFTED),
        ({"absolute": 0.005, "relative": 0.03}, Outcome.PASSED),  # either suffices
        ({"absolute": 0.02, "relative": 0.001}, Outcome.PASSED),
    ],
)
def test_a_probability_of_a_half_moves_by_a_hundredth(baseline: Baseline, limits, outcome) -> None:
    assert verdict(baseline, measurement(moved(by=0.01)), **limits).outcome is outcome


def test_results_without_probabilities_say_so() -> None:
    plain = accepting(empty_baseline(), measurement(keeps=False)).baseline
    found = verdict(plain, measurement(), absolute=0.1)
    assert found.outcome is Outcome.PASSED
    assert [g.state for g in found.gates if g.metric == "probabilities"] == [GateState.SHOWN]
    assert any("no probabilities were kept" in notice for notice in found.notices)
    added = accepting(plain, measurement())
    assert added.baseline.kept[SLUG][str(HERE)]["photos"].scores is not None


def test_moved_probabilities_are_accepted_by_word(baseline: Baseline) -> None:
    found = measurement(moved(by=0.1))
    assert not accepting(baseline, found).rows
    with pytest.raises(InputError, match="no reason"):
        accepting(baseline, found, scope=Scope.CHANGED)
    done = accepting(baseline, found, scope=Scope.CHANGED, reason="another softmax").baseline
    assert verdict(done, found, absolute=0.0).outcome is Outcome.PASSED
    assert done.cells[SLUG].accepted[str(HERE)].reason == "another softmax"


def test_classes_that_only_one_names() -> None:
    """Of a class that fell out it is known that it has no more than
    the last of those that are named.
    """
    before = Answers(np.array([[1, 2]], np.int32), np.array([[0.6, 0.3]], np.float32))
    now = Answers(np.array([[1, 3]], np.int32), np.array([[0.5, 0.4]], np.float32))
    change = count_changes(now, before)
    assert change.largest == pytest.approx(
        0.1, abs=1e-6
    )  # 1: 0.1; 2: 0.3 → at most 0.4; 3: at most 0.3 → 0.4
    low = Answers(np.array([[1, 3]], np.int32), np.array([[0.6, 0.05]], np.float32))
    assert count_changes(low, before).largest == pytest.approx(0.25, abs=1e-6)
    with pytest.raises(ValueError, match="compared with"):
        count_changes(now, Answers(np.zeros((2, 1), np.int32)))


@given(st.lists(st.permutations(range(6)), min_size=1, max_size=6), st.integers(0, 2**32 - 1))
def test_changes_against_a_scalar_count(orders, seed) -> None:
    rng = np.random.default_rng(seed)
    ids = [np.array(rows, np.int32)[:, :3] for rows in (orders, [order[::-1] for order in orders])]
    scores = [np.sort(rng.random(i.shape).astype(np.float32))[:, ::-1] for i in ids]
    now, before = (Answers(i, s) for i, s in zip(ids, scores, strict=True))
    largest = 0.0
    for row in range(len(now)):
        p, q = (
            dict(zip(a.ids[row].tolist(), a.scores[row].tolist(), strict=True))
            for a in (now, before)
        )
        for name in p.keys() | q.keys():
            if name in p and name in q:
                largest = max(largest, abs(p[name] - q[name]))
            else:
                here, there = (p, q) if name in p else (q, p)
                largest = max(largest, here[name] - min(there.values()))
    assert count_changes(now, before).largest == pytest.approx(largest, abs=1e-9)
    assert count_changes(now, before).flips == sum(a[0] != b[0] for a, b in zip(*ids, strict=True))
    assert count_changes(now, now, absolute=0.0) == dataclasses.replace(
        count_changes(now, now), flips=0, beyond=0, largest=0.0
    )


@pytest.mark.parametrize("text", ["", "ranking:", "ranking:AAAA", "nothing:AAAA", "ranking:ä"])
def test_text_that_holds_no_answers(text) -> None:
    with pytest.raises(ValueError, match="kept answers"):
        unpacked_answers(text)


def test_kept_answers_that_unpack_to_too_much_are_not_unpacked(monkeypatch) -> None:
    from qbench.storage import limits_times, size_limits

    word = packed_answers(Answers(np.zeros((1 << 12, 17), np.int32)))
    monkeypatch.setattr(size_limits, "_DEFAULTS", size_limits.SizeLimits(kept_bytes=40_000))
    with pytest.raises(ValueError, match="69,632 bytes"):
        unpacked_answers(word)
    with limits_times(2):
        assert len(unpacked_answers(word)) == 1 << 12


def test_what_an_equivalent_class_has_is_accepted_for_this_one_only_by_word(
    baseline: Baseline,
) -> None:
    rules = Rules(equivalents=((ELSEWHERE.processor, HERE.processor),))
    same = dataclasses.replace(measurement(), environment=ELSEWHERE)
    other = dataclasses.replace(measurement(moved(flips=1)), environment=ELSEWHERE)
    assert accepting(baseline, same).rows  # without a declaration it is another class, and new
    assert not accepting(baseline, same, rules=rules).rows
    assert not accepting(baseline, other, rules=rules).rows
    done = accepting(
        baseline, other, scope=Scope.CHANGED, reason="it differs", rules=rules
    ).baseline
    assert set(done.cells[SLUG].accepted) == {str(HERE), str(ELSEWHERE)}
