"""Work that is tried more than once is counted exactly once, and nothing of a try is lost."""

import datetime
import json
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tracked_results import HERE, START, line, measured

from qbench.errors import InputError
from qbench.judging import Cause, Cell, ChangedSample, Finding, Outcome, SampleChanges
from qbench.reporting import build_reports
from qbench.tracking import (
    FolderStore,
    History,
    HistoryIndex,
    RunWriter,
    Wanted,
    finding_line,
    finding_of_line,
    held_results,
    lacking_shares,
    merge_run_files,
    read_run,
    read_samples,
    samples_line,
    trend_series,
    unfinished_runs,
)

PLAN = "0123456789abcdef"
AXES = [("mobilenet_v2", f"ort-cpu+s{number}") for number in range(4)]


def cell(number, outcome=Outcome.PASSED, *, predictions="p1", environment=HERE):
    found = measured(slug=AXES[number][1], predictions=predictions, environment=environment)
    return line(found, outcome)


def lost(number, outcome="infra"):
    found = line(measured(slug=AXES[number][1]))
    kept = {
        name: found[name] for name in ("type", "suite", "model", "backend", "schema", "variant")
    }
    return {**kept, "outcome": outcome, "headline": "the process died", "gates": []}


def begun(folder, index=1, of=2, *, selected=2, hours=0, plan=PLAN, **more):
    header = {
        "suite": "smoke",
        "commit": {"sha": "a" * 40, "dirty": False},
        "planned": of * 2,
        "selected": selected,
        "limited": None,
        "select": "",
        "job": {"plan": plan, "index": index, "of": of},
        **more,
    }
    started = START + datetime.timedelta(hours=hours)
    return RunWriter.open(folder, header, started=started, commit="a" * 40, token="aa")


def written(folder, *lines, end=True, **more):
    writer = begun(folder, **more)
    for one in lines:
        writer.write(one)
    if end:
        writer.close(exit_code=0)
    else:
        writer.abandon()
    return writer


def night(folder):
    history = History(folder)
    (found,) = history.each(history.nights())
    return found


def schemas(run):
    return [record.schema for record in run.cells]


# a: one run file per attempt, created if absent


def test_an_attempt_has_a_name_of_its_own(tmp_path):
    first, second = written(tmp_path, cell(0)), written(tmp_path, cell(0))
    other = written(tmp_path, index=17, of=50)
    assert [one.id for one in (first, second, other)] == [
        f"{PLAN}-j0001-a01-smoke",
        f"{PLAN}-j0001-a02-smoke",
        f"{PLAN}-j0017-a01-smoke",
    ]
    assert (tmp_path / f"{second.id}.jsonl").is_file()
    assert read_run(tmp_path / f"{other.id}.jsonl").header["job"] == {
        "plan": PLAN,
        "index": 17,
        "of": 50,
        "attempt": 1,
    }


RACE = """
import datetime, pathlib, sys, time
from qbench.tracking import RunWriter
job = {"plan": "0123456789abcdef", "index": 3, "of": 9}
while time.time() < float(sys.argv[2]):
    pass
for number in range(20):
    writer = RunWriter.open(
        pathlib.Path(sys.argv[1]), {"suite": "smoke", "job": job},
        started=datetime.datetime.now(datetime.UTC), commit=None, token="t")
    writer.write({"type": "note", "text": sys.argv[3]})
    writer.close(exit_code=0)
    print(writer.id)
"""


@pytest.mark.slow
def test_processes_of_one_moment_take_different_attempts(tmp_path):
    import time

    at = str(time.time() + 3)
    several = [
        subprocess.Popen(
            [sys.executable, "-c", RACE, tmp_path, at, f"process {number}"],
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    taken = [one for process in several for one in process.communicate()[0].split()]
    assert sorted(taken) == [f"{PLAN}-j0003-a{number:02}-smoke" for number in range(1, 61)]
    notes = [read_run(path).notes for path in tmp_path.iterdir()]
    assert sorted(notes) == sorted((f"process {number}",) for number in range(3) for _ in range(20))


def test_a_job_that_cannot_be_named_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"a table with plan, index and of"):
        begun(tmp_path, job={"plan": 7})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "job",
    [
        7,
        {"plan": PLAN, "index": "1", "of": 2},
        {"plan": PLAN, "index": 3, "of": 2},
        {"plan": PLAN, "index": 1, "of": 10**9},
        {"plan": PLAN, "index": 1, "of": 2, "attempt": -1},
        {"plan": PLAN, "index": True, "of": 2},
    ],
)
def test_a_file_with_a_job_that_no_plan_has_is_a_run_of_its_own(tmp_path, job):
    path = tmp_path / f"{written(tmp_path, cell(0), cell(1)).id}.jsonl"
    header, *rest = path.read_text().splitlines(keepends=True)
    path.write_text(json.dumps({**json.loads(header), "job": job}) + "\n" + "".join(rest))
    run = night(tmp_path)
    assert len(run.cells) == 2
    assert lacking_shares(run.header) == ()


# b: the first complete attempt counts, a later one is no second vote


def test_the_jobs_of_a_plan_are_one_night(tmp_path):
    written(tmp_path, cell(0), cell(1))
    written(tmp_path, cell(2), cell(3), index=2, hours=30)
    run = night(tmp_path)
    assert run.id == f"{PLAN}-smoke"
    assert schemas(run) == ["s0", "s1", "s2", "s3"]
    assert run.complete
    assert run.header["complete_selection"] is True
    assert lacking_shares(run.header) == ()
    written(tmp_path, cell(0), cell(1), plan="f" * 16, hours=40)
    assert len(History(tmp_path).nights()) == 2


def test_a_job_that_never_ran_is_told_by_its_number(tmp_path):
    written(tmp_path, cell(0), cell(1), of=3)
    assert lacking_shares(night(tmp_path).header) == ("job 2 of 3", "job 3 of 3")
    written(tmp_path, cell(2), cell(3), index=3, of=3)
    run = night(tmp_path)
    assert lacking_shares(run.header) == ("job 2 of 3",)
    assert run.header["complete_selection"] is False


def test_the_first_complete_attempt_counts_and_an_unfinished_one_never(tmp_path):
    written(tmp_path, cell(0, predictions="torn"), end=False)
    written(tmp_path, cell(0, Outcome.FAILED), cell(1))
    written(tmp_path, cell(0), cell(1))
    written(tmp_path, cell(0), end=False)
    run = night(tmp_path)
    assert [(one.schema, one.outcome) for one in run.cells] == [("s0", "failed"), ("s1", "passed")]
    assert run.complete


def test_other_answers_of_a_later_attempt_are_a_finding_and_no_vote(tmp_path):
    written(tmp_path, cell(0), cell(1))
    written(tmp_path, cell(0, predictions="p2"), cell(1))
    run = night(tmp_path)
    assert [one.digests_of("predictions")["photos"] for one in run.cells] == ["p1-photos"] * 2
    ((found, finding),) = map(finding_of_line, run.findings)
    assert found.schema == "s0"
    (suspect,) = finding.suspects
    assert suspect.cause is Cause.NONDETERMINISM
    assert "-a02-" in suspect.evidence
    (note,) = run.notes
    assert "-a01-" in note
    assert "-a02-" in note
    (report,) = build_reports([run])
    assert list(report.findings) == [found]
    assert any("not deterministic" in text for text in report.run.notes)


def test_other_answers_of_another_machine_or_of_equal_attempts_are_no_finding(tmp_path):
    from tracked_results import ELSEWHERE

    written(tmp_path, cell(0), cell(1))
    written(tmp_path, cell(0, predictions="p2", environment=ELSEWHERE), cell(1))
    written(tmp_path, cell(0), cell(1))
    written(tmp_path, cell(0, predictions="p3"), end=False)
    assert not night(tmp_path).findings
    assert not night(tmp_path).notes


def test_an_infra_cell_of_the_attempt_that_counts_gives_way_to_a_result(tmp_path):
    written(tmp_path, cell(0), lost(1))
    assert [one.outcome for one in night(tmp_path).cells] == ["passed", "infra"]
    written(tmp_path, cell(0, Outcome.FAILED), cell(1))
    assert [(one.schema, one.outcome) for one in night(tmp_path).cells] == [
        ("s0", "passed"),
        ("s1", "passed"),
    ]


@pytest.mark.parametrize("ends", [True, False])
def test_an_attempt_at_a_part_of_its_job_hides_no_other(tmp_path, ends):
    """With ``-k`` an attempt is complete after some of its cells."""
    written(tmp_path, cell(0), selected=1)
    written(tmp_path, cell(0, predictions="p2"), cell(1), end=ends)
    run = night(tmp_path)
    assert [one.digests["predictions:photos"] for one in run.cells] == ["p1-photos"] * 2
    assert (schemas(run), run.complete) == (["s0", "s1"], ends)
    assert run.header["selected"] == 2
    assert bool(run.findings) is ends
    series = trend_series(History(tmp_path).runs())
    assert {(one.cell.schema, len(one.points)) for one in series} == {("s0", 1), ("s1", 1)}
    with HistoryIndex(str(tmp_path / "index.sqlite")) as index:
        index.update(tmp_path)
        assert index.series(Wanted(), commits=()) == series


# c: only the closing line completes an attempt


def test_without_a_closing_line_each_cell_counts_once(tmp_path):
    written(tmp_path, cell(0), lost(1, "error"), end=False)
    run = written(tmp_path, cell(0, Outcome.FAILED), cell(1), end=False)
    found = night(tmp_path)
    assert [(one.schema, one.outcome) for one in found.cells] == [
        ("s0", "passed"),
        ("s1", "passed"),
    ]
    assert not found.complete
    assert found.was_interrupted
    path = tmp_path / f"{run.id}.jsonl"
    path.write_text(path.read_text() + '{"type":"end","cells":2,"exit_code":1}\n')
    found = night(tmp_path)
    assert [one.outcome for one in found.cells] == ["failed", "passed"]
    assert found.complete


def test_an_attempt_that_ended_without_all_its_cells_is_not_complete(tmp_path):
    written(tmp_path, cell(0))
    written(tmp_path, cell(0, Outcome.FAILED), cell(1))
    assert [one.outcome for one in night(tmp_path).cells] == ["failed", "passed"]


# d: a retry deletes nothing


def test_a_retry_changes_no_byte_of_an_earlier_attempt(tmp_path):
    written(tmp_path, cell(0), end=False)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    written(tmp_path, cell(0), cell(1))
    assert {path: path.read_bytes() for path in before} == before


# resumed runs, without a plan


def resumed(folder, before, *lines, hours, end=True, **more):
    header = {"suite": "smoke", "planned": 2, "selected": 2, **more}
    if before is not None:
        header["resumes"] = before.id
    started = START + datetime.timedelta(hours=hours)
    writer = RunWriter.open(folder, header, started=started, commit=None, token="aa")
    for one in lines:
        writer.write(one)
    if end:
        writer.close(exit_code=0)
    else:
        writer.abandon()
    return writer


def test_a_resumed_run_that_completes_takes_the_place_of_the_unfinished_one(tmp_path):
    first = resumed(tmp_path, None, cell(0), hours=0, end=False)
    second = resumed(tmp_path, first, cell(0), hours=1, end=False)
    (run,) = History(tmp_path).nights()
    assert run.id == second.id
    assert schemas(night(tmp_path)) == ["s0"]
    third = resumed(tmp_path, second, cell(0), cell(1), hours=2)
    run = night(tmp_path)
    assert (run.id, run.complete, schemas(run)) == (third.id, True, ["s0", "s1"])
    other = resumed(tmp_path, None, cell(0), cell(1), hours=3)
    assert [run.id for run in History(tmp_path).nights()] == [third.id, other.id]


def test_a_resumed_share_is_the_same_share_of_its_night(tmp_path):
    night_facts = {"commit": {"sha": "a" * 40, "dirty": False}, "limited": None, "select": ""}
    facts = {**night_facts, "planned": 4}
    first = resumed(tmp_path, None, cell(0), hours=0, end=False, shard="1/2", **facts)
    resumed(tmp_path, None, cell(2), cell(3), hours=1, shard="2/2", **facts)
    resumed(tmp_path, first, cell(0), cell(1), hours=20, shard="1/2", **facts)
    run = night(tmp_path)
    assert schemas(run) == ["s0", "s1", "s2", "s3"]
    assert run.complete
    assert run.header["complete_selection"] is True


def test_runs_that_resume_each_other_are_read_all_the_same(tmp_path):
    first = resumed(tmp_path, None, cell(0), hours=0, resumes="z")
    path = tmp_path / f"{first.id}.jsonl"
    path.write_text(path.read_text().replace('"resumes":"z"', f'"resumes":"{first.id}"'))
    assert schemas(night(tmp_path)) == ["s0"]


# what reads a history


def test_trends_and_the_index_count_one_attempt_of_a_job(tmp_path):
    written(tmp_path, cell(0), end=False)
    written(tmp_path, cell(0), cell(1), hours=1)
    written(tmp_path, cell(0), cell(1), hours=2)
    written(tmp_path, cell(2), end=False, index=2)
    written(tmp_path, cell(2), end=False, index=2)
    series = trend_series(History(tmp_path).runs())
    assert {len(one.points) for one in series} == {1}
    assert len({one.cell for one in series}) == 3
    with HistoryIndex(str(tmp_path / "index.sqlite")) as index:
        index.update(tmp_path)
        found = index.series(Wanted(), commits=())
    assert found == series
    runs = list(History(tmp_path).counted())
    assert [len(run.cells) for run in runs] == [2, 1]
    assert [run.complete for run in runs] == [True, False]


# f: a merge is a union, also of attempts that saw nothing of each other


def attempts_of(folder):
    """Three attempts of job 1 and one of job 2, each on a machine of its own."""
    written(folder / "m0", cell(0), end=False)
    written(folder / "m1", cell(0), cell(1), hours=1)
    written(folder / "m2", cell(0, predictions="p2"), cell(1), hours=2)
    written(folder / "m3", cell(2), cell(3), index=2)
    return [folder / f"m{number}" for number in range(4)]


def test_machines_that_saw_nothing_of_each_other_began_two_attempts(tmp_path):
    sources = attempts_of(tmp_path / "from")
    assert len({path.name for source in sources for path in source.iterdir()}) == 2
    done = merge_run_files(sources, tmp_path / "all")
    assert (len(done.added), done.conflicts) == (4, ())
    run = night(tmp_path / "all")
    assert schemas(run) == ["s0", "s1", "s2", "s3"]
    assert run.complete
    assert len(run.findings) == 1


@settings(max_examples=8, deadline=None)
@given(st.lists(st.sets(st.integers(0, 3)), min_size=1, max_size=4))
def test_any_order_twice_and_in_parts_counts_the_same(tmp_path_factory, steps):
    folder = tmp_path_factory.mktemp("union")
    sources = attempts_of(folder / "from")
    for step in steps:  # some of them, in any order, some twice
        merge_run_files([sources[number] for number in step], folder / "some")
    merge_run_files(sources[::-1], folder / "some")
    merge_run_files(sources, folder / "all")
    assert {path.read_bytes() for path in (folder / "some").glob("*.jsonl")} == {
        path.read_bytes() for path in (folder / "all").glob("*.jsonl")
    }
    one, other = night(folder / "some"), night(folder / "all")
    assert (one.cells, one.complete, one.findings) == (other.cells, other.complete, other.findings)


def samples_of(number, sample):
    changes = SampleChanges(
        metric="top1", digest="d", lost=1, gained=0, changed=1,
        samples=(ChangedSample(id=sample, effect="lost"),),
    )  # fmt: skip
    return samples_line(
        Cell("smoke", *AXES[number][:1], *AXES[number][1].split("+")), {"x": changes}
    )


def finding_of(number, note):
    cell = Cell("smoke", *AXES[number][:1], *AXES[number][1].split("+"))
    names = {"model": cell.model, "backend": cell.backend, "schema": cell.schema}
    return finding_line(cell, Finding(**names, samples=1, notes=(note,), complete=False))


def test_findings_and_samples_are_those_of_the_attempt_that_counts_for_the_cell(tmp_path):
    first = (cell(0), samples_of(0, "a"), finding_of(0, "a"), lost(1, "error"))
    written(tmp_path, *first, end=False)
    again = (cell(0), samples_of(0, "b"), finding_of(0, "b"), cell(1), samples_of(1, "c"))
    written(tmp_path, *again, end=False)
    history = History(tmp_path)
    (run,) = history.each(history.nights(), samples=[night.id for night in history.nights()])
    read, unread = read_samples(run.samples)
    assert unread == 0
    assert {cell.schema: one["x"].samples[0].id for cell, one in read.items()} == {
        "s0": "a",
        "s1": "c",
    }
    assert [finding_of_line(line)[1].notes for line in run.findings] == [("a",)]


# a process can be killed at any byte that it writes


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_run_file_that_ends_anywhere_is_gone_on_with(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("cut")
    lines = (cell(0), samples_of(0, "a"), cell(1), finding_of(1, "x"))
    path = folder / f"{written(folder, *lines).id}.jsonl"
    whole = path.read_bytes()
    head = whole.index(b"\n") + 1
    cut = data.draw(st.integers(head, len(whole)), "cut")
    path.write_bytes(whole[:cut])
    there = {
        one["schema"]
        for text in whole[:cut].split(b"\n")
        if text.startswith(b'{"type":"cell"') and (one := readable(text))
    }
    run = night(folder)
    assert set(schemas(run)) == there
    assert run.complete == (b'"type":"end","cells":2,"exit_code":0}' in whole[:cut])
    held = held_results(FolderStore(folder), [str(path)])
    taken = [held.lines(record.cell) for record in night_of(whole, folder)]
    assert {one.cell["schema"] for one in taken if one is not None} == there
    if not run.complete:
        found = unfinished_runs(FolderStore(folder), lambda header: True)
        assert found == {"smoke": [[str(path)]]}
    written(folder, *lines)  # and the next attempt has them all, each once
    assert sorted(schemas(night(folder))) == ["s0", "s1"]
    assert path.read_bytes() == whole[:cut]


def readable(text):
    try:
        return json.loads(text)
    except ValueError:
        return None


def night_of(whole, folder):
    copy = folder.parent / f"{folder.name}-whole.jsonl"
    copy.write_bytes(whole)
    return read_run(copy).cells


def test_only_attempts_on_the_same_class_of_processor_with_the_same_code_give_lines(tmp_path):
    """The last attempt alone was asked, and lines of an earlier one of another class were taken."""
    tries = [
        ("x64-avx2", "old", 0),
        ("x64-avx2", "new", 1),
        ("arm64", "new", 2),
        ("x64-avx2", "new", 3),
    ]
    made = []
    for processor, code, number in tries:
        where = {"type": "environment", "processor": processor}
        made.append(written(tmp_path, where, cell(number), end=False, code=code))
    held = held_results(FolderStore(tmp_path), [one.name for one in made])

    def taken(processor, code):
        own = held.given_by(lambda header, other: (other, header["code"]) == (processor, code))
        found = own and {n: own.lines(read_cell) for n, read_cell in enumerate(cells)}
        return own and (own.run, [n for n, lines in found.items() if lines is not None])

    cells = [Cell("smoke", "mobilenet_v2", "ort-cpu", f"s{number}") for number in range(4)]
    assert taken("x64-avx2", "new") == (made[3].id, [1, 3])
    assert taken("arm64", "new") == (made[2].id, [2])
    assert taken("arm64", "old") is None


WRITING = """
import datetime, pathlib, sys, time
from qbench.tracking import RunWriter
writer = RunWriter.open(
    pathlib.Path(sys.argv[1]), {"suite": "smoke", "selected": 2},
    started=datetime.datetime.now(datetime.UTC), commit=None, token="t")
writer.write({"type": "started", "suite": "smoke", "model": "m", "backend": "b", "schema": "s"})
RunWriter.open(  # reads what is there: it must not unlock what this process writes
    pathlib.Path(sys.argv[1]), {"suite": "other", "selected": 2},
    started=datetime.datetime.now(datetime.UTC), commit=None, token="u")
print(writer.name, flush=True)
time.sleep(60)
"""


@pytest.mark.slow
def test_a_run_that_a_living_process_writes_is_neither_resumed_nor_dead(tmp_path):
    store, begun_cell = FolderStore(tmp_path), Cell("smoke", "m", "b", "s")
    arguments = [sys.executable, "-c", WRITING, tmp_path]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        name = process.stdout.readline().strip()
        growing = unfinished_runs(store, lambda header: True)
        deaths, _ = held_results(store, [name]).deaths(begun_cell)
        process.kill()
    assert (growing, deaths) == ({}, ())
    assert unfinished_runs(store, lambda header: True)["smoke"] == [[name]]
    assert len(held_results(store, [name]).deaths(begun_cell)[0]) == 1
