"""Merging is a union: in any order and any number of times the same,
and nothing is ever written over.
"""

import errno
import itertools
import json
import os
import re
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbench.tracking import merge_run_files

RUN = (
    '{{"type":"run","format":"qbench-run/1","id":"{0}","suite":"smoke",'
    '"started":"2026-11-21T04:30:00Z"}}\n'
)
CELL = (
    '{{"type":"cell","suite":"smoke","model":"m{0}","backend":"b","schema":"s",'
    '"outcome":"passed"}}\n'
)
END = '{"type":"end","cells":2,"exit_code":0}\n'


def content(run_id, *cells, end=True):
    return RUN.format(run_id) + "".join(CELL.format(cell) for cell in cells) + (END if end else "")


def counts(printed):
    """The numbers that ``qbench merge`` prints: runs added, there already and,
    where there are any, conflicts.
    """
    return [int(number) for number in re.findall(r"\d+", printed)]


def put(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.jsonl").write_text(text)


def held(folder):
    return {path.read_text() for path in folder.rglob("*.jsonl")}


def test_a_union(qbench, project):
    put(project / "a", x=content("x", 1), y=content("y", 1))
    put(project / "b" / "2026", y=content("y", 1), z=content("z", 1))
    code, out, err = qbench("merge", "a", "b", "-o", "all")
    assert (code, counts(out), err) == (0, [3, 0], "")
    assert held(project / "all") == {content(run, 1) for run in "xyz"}
    code, out, _ = qbench("merge", "a", "b", "-o", "all")
    assert (code, counts(out)) == (0, [0, 3])
    assert sorted(path.name for path in (project / "all").iterdir()) == [
        "x.jsonl",
        "y.jsonl",
        "z.jsonl",
    ]


@settings(max_examples=20)
@given(st.lists(st.sets(st.integers(0, 5)), min_size=1, max_size=3))
def test_any_order_gives_the_same(tmp_path_factory, sets):
    root = tmp_path_factory.mktemp("union")
    for number, runs in enumerate(sets):
        put(root / f"from{number}", **{f"r{run}": content(f"r{run}", 1) for run in runs})
    results = []
    for order, numbers in enumerate(itertools.permutations(range(len(sets)))):
        merge_run_files([root / f"from{number}" for number in numbers], root / f"to{order}")
        results.append(
            {path.name: path.read_text() for path in (root / f"to{order}").glob("*.jsonl")}
        )
    assert all(result == results[0] for result in results)
    assert set(results[0]) == {f"r{run}.jsonl" for run in set().union(*sets)}


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_two_that_tell_of_one_run_differently_are_named_and_left(qbench, project, order):
    put(project / "a", x=content("x", 1), y=content("y", 1))
    put(project / "b", x=content("x", 2))
    code, out, err = qbench("merge", *order, "-o", "all")
    assert code == 2
    assert counts(out) == [1, 0, 1]
    assert all(f"'{folder}/x.jsonl'" in err for folder in "ab")
    assert "run 'x'" in err
    assert held(project / "all") == {content("y", 1)}


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
@pytest.mark.parametrize("line", [1, 2, 3])
def test_a_copy_with_a_torn_line_gives_way_to_the_whole_one(qbench, project, order, line):
    whole = content("x", 1, 2)
    lines = whole.splitlines(keepends=True)
    put(
        project / "a",
        x="".join([*lines[:line], lines[line][:9] + "\0" * 90 + "\n", *lines[line + 1 :]]),
    )
    put(project / "b", x=whole)
    code, out, err = qbench("merge", *order, "-o", "all")
    assert (code, counts(out)) == (0, [1, 0])
    assert err.count("\n") == counts(err.rpartition(".jsonl")[2])[0] == 1
    assert held(project / "all") == {whole}
    from qbench.tracking import History

    put(project / "all", torn=(project / "a/x.jsonl").read_text())
    history = History(project / "all")
    assert [len(run.cells) for run in history.runs()] == [2]
    assert not [problem for problem in history.problems if "otherwise" in problem]


def test_a_torn_line_excuses_no_other_change(qbench, project):
    lines = content("x", 1, 2).splitlines(keepends=True)
    put(
        project / "a",
        x="".join([lines[0], "torn\n", content("x", 3).splitlines(keepends=True)[1], lines[3]]),
    )
    put(project / "b", x="".join(lines))
    code, out, _ = qbench("merge", "a", "b", "-o", "all")
    assert (code, counts(out)) == (2, [0, 0, 1])


def test_what_is_there_is_never_written_over(qbench, project):
    put(project / "all", x=content("x", 1), other=content("q", 7))
    put(project / "a", x=content("x", 2), y=content("other", 1))
    before = {path: path.stat().st_mtime_ns for path in (project / "all").iterdir()}
    assert qbench("merge", "a", "-o", "all")[0] == 2
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert held(project / "all") == {content("x", 1), content("q", 7), content("other", 1)}


def test_an_unfinished_copy_gives_way_to_the_whole_run_beside_it(qbench, project):
    whole = content("x", 1, 2)
    put(project / "all", x=whole[:150])
    put(project / "a", x=whole)
    code, out, err = qbench("merge", "a", "-o", "all")
    assert (code, counts(out)) == (0, [1, 0])
    assert err.count("\n") == counts(err.rpartition(".jsonl")[2])[0] == 1
    assert held(project / "all") == {whole[:150], whole}
    assert counts(qbench("merge", "a", "-o", "all")[1]) == [0, 1]
    from qbench.tracking import History

    (run,) = History(project / "all").runs()
    assert run.complete


def test_what_is_no_run_file_is_named_and_the_rest_is_merged(qbench, project):
    put(project / "a", x=content("x", 1), bad="nonsense\n")
    code, out, err = qbench("merge", "a", "-o", "all", "--json")
    assert code == 2
    assert json.loads(out)["added"] == ["all/x.jsonl"]
    assert "'a/bad.jsonl'" in err


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("plan.json", "a", "-o", "all"), "plan.json"),
        (("a", "--expect", "plan.json"), "no -o DIR"),
        (("-o", "all"), "no folder of run files"),
    ],
)
def test_what_merge_lacks_or_cannot_take_is_named(words, named, qbench, project):
    put(project / "a", x=content("x", 1))
    (project / "plan.json").write_text('{"format": "qbench-plan/1"}')
    code, _, err = qbench("merge", *words)
    assert code == 2
    assert named in err
    assert "no 'run' line" not in err
    assert not (project / "all").exists()


def test_an_id_that_is_no_file_name_stays_inside_the_folder(qbench, project):
    put(project / "a", x=content("../../escape", 1))
    assert qbench("merge", "a", "-o", "deep/all")[0] == 0
    (path,) = (project / "deep" / "all").iterdir()
    assert path.read_text() == content("../../escape", 1)
    assert not list(project.glob("escape*"))


def test_a_source_that_is_not_there_is_one_sentence(qbench, project):
    code, out, err = qbench("merge", "none", "-o", "all")
    assert (code, out) == (2, "")
    assert "found no 'none'" in err
    assert not (project / "all").exists()


def test_a_full_disk_leaves_no_half_file(qbench, project, monkeypatch):
    put(project / "a", x=content("x", 1), y=content("y", 1))
    real, calls = os.fsync, []

    def full(handle):
        calls.append(handle)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        code, _, err = qbench("merge", "a", "-o", "all")
    assert code == 2
    assert "found No space left on device" in err
    assert [path.name for path in (project / "all").iterdir()] == ["x.jsonl"]
    assert counts(qbench("merge", "a", "-o", "all")[1]) == [1, 1]


@pytest.mark.slow
def test_merges_at_once_write_each_run_once(tmp_path):
    for side in "ab":
        put(
            tmp_path / side,
            **{f"{side}{number}": content(f"run-{number}", 1) for number in range(30)},
        )
    command = "import sys; from qbench.cli.program import main; sys.exit(main(sys.argv[1:]))"
    words = [
        sys.executable,
        "-c",
        command,
        "merge",
        str(tmp_path / "a"),
        str(tmp_path / "b"),
        "-o",
        str(tmp_path / "to"),
    ]
    several = [subprocess.Popen(words, stdout=subprocess.DEVNULL) for _ in range(3)]
    assert [one.wait() for one in several] == [0, 0, 0]
    assert sorted(path.name for path in (tmp_path / "to").iterdir()) == sorted(
        f"run-{n}.jsonl" for n in range(30)
    )
