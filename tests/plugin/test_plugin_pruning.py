"""Baselines that nothing uses: listed by every run,
removed by ``--qbench-prune`` and only over a whole suite.
"""

import json

import pytest


@pytest.fixture
def shrunk(project):
    """A project whose suite lost a backend and a model since it was accepted."""
    project.accept()
    text = project.suite_path.read_text().replace('"ort-cpu", "ort-cpu-noopt"', '"ort-cpu"')
    project.write_suite(text[: text.index("\n[[model]]", text.index("tiny_a"))])
    return project


def baselines(project):
    folder = project.path / "baselines" / "scratch"
    return {path.stem: set(json.loads(path.read_text())["cells"]) for path in folder.glob("*.json")}


def test_every_run_lists_them_also_one_of_a_part(shrunk):
    before = baselines(shrunk)
    result = shrunk.run("-k", "fp32")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["note: 1 baseline*'scratch'*: tiny_b; *"])
    notes = [line["text"] for line in shrunk.lines(kind="note")]
    assert any(
        "2 baselines are left over" in text and "tiny_a::ort-cpu-noopt+fp32" in text
        for text in notes
    )
    assert baselines(shrunk) == before


@pytest.mark.slow
def test_collecting_the_whole_suite_suffices_to_prune(shrunk):
    result = shrunk.run("--collect-only", "--qbench-prune")
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        ["pruned tiny_a::ort-cpu-noopt+fp32: *", "pruned tiny_b: no such model*"]
    )
    assert baselines(shrunk) == {"tiny_a": {"ort-cpu+fp32", "ort-cpu+w8a8_asym_pc"}}
    assert not list((shrunk.path / "baselines" / "scratch").glob("tiny_b*"))
    result = shrunk.run("--qbench-prune")
    assert result.parseoutcomes() == {"passed": 2}
    result.stdout.fnmatch_lines(["nothing to prune: scratch.qbench.toml"])


@pytest.mark.parametrize(
    "selection", [["-k", "fp32"], ["--qbench-select=model=tiny_a schema=fp32"]]
)
@pytest.mark.parametrize("collect_only", [True, False])
def test_a_part_of_a_suite_prunes_nothing_and_measures_nothing(shrunk, selection, collect_only):
    before = baselines(shrunk)
    result = shrunk.run("--qbench-prune", *selection, *(["--collect-only"] if collect_only else []))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*found 1 of the 2 cells of 'scratch'*"])
    assert baselines(shrunk) == before
    assert len(shrunk.run_files) == 1


@pytest.mark.slow
def test_workers_tell_how_much_was_selected(shrunk):
    before = baselines(shrunk)
    result = shrunk.run("--qbench-prune", "-k", "fp32", workers=2)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["qbench: *'scratch': found *1 of its 2 cells*"])
    assert baselines(shrunk) == before
    assert shrunk.run("--qbench-prune", workers=2).ret == 0
    assert set(baselines(shrunk)) == {"tiny_a"}


@pytest.mark.slow
def test_a_suite_that_cannot_be_read_prunes_nothing(shrunk):
    before = baselines(shrunk)
    shrunk.write_suite("[suite]\nbackend = 1\n")
    result = shrunk.run("--collect-only", "--qbench-prune")
    assert result.ret != 0
    assert baselines(shrunk) == before


def test_an_unreadable_suite_is_not_said_to_be_no_suite(shrunk):
    shrunk.write_suite("[suite]\nbackend = 1\n")
    result = shrunk.run("--collect-only", "--qbench-prune")
    assert "found no suite" not in result.stdout.str() + result.stderr.str()
    result.stdout.fnmatch_lines(["*unknown key*backend*", "Nothing was pruned*"])


@pytest.mark.parametrize("collect_only", [True, False])
def test_a_quarantine_entry_about_no_cell_is_listed_and_the_rest_is_pruned(shrunk, collect_only):
    entry = 'cell = "{}"\nmeasured = "x"\nreason = "r"\nowner = "ann"\nexpires = "2999-01-01"\n'
    kept = f"[[cell]]\n{entry.format('tiny_b::*')}"
    (shrunk.suite_path.parent / "scratch.quarantine.toml").write_text(kept)
    assert shrunk.run("--collect-only").ret == pytest.ExitCode.INTERRUPTED
    result = shrunk.run("--qbench-prune", *(["--collect-only"] if collect_only else []))
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(
        [
            "pruned tiny_b: no such model*",
            (
                "left to you: the quarantine entry 'tiny_b::[*]' is about no cell of 'scratch': "
                "remove it from 'scratch.quarantine.toml'"
            ),
        ]
    )
    assert (shrunk.suite_path.parent / "scratch.quarantine.toml").read_text() == kept
    assert set(baselines(shrunk)) == {"tiny_a"}


def test_not_in_ci_without_being_told(shrunk, monkeypatch):
    monkeypatch.setenv("CI", "true")
    before = baselines(shrunk)
    assert shrunk.run("--collect-only", "--qbench-prune").ret == pytest.ExitCode.USAGE_ERROR
    assert baselines(shrunk) == before
    assert shrunk.run("--collect-only", "--qbench-prune", "--qbench-accept-in-ci").ret == 0


@pytest.mark.slow
def test_a_new_model_of_the_same_name_leaves_the_results_of_other_machines_behind(
    project, monkeypatch
):
    """They are of the former model: they neither judge nor make anything red there,
    and pruning takes them.
    """
    project.accept("-k", "tiny_b")
    monkeypatch.setenv("FAKE_PROCESSOR", "arm64-test")
    project.run("-k", "tiny_b", "--qbench-accept=new")
    monkeypatch.setenv("TINY_B_SEED", "7")
    project.run(
        "-k",
        "tiny_b",
        "--qbench-accept-fp32",
        "--qbench-accept=all",
        "--qbench-reason=trained anew",
    )
    monkeypatch.setenv("FAKE_PROCESSOR", "x64-test")
    result = project.run("-k", "tiny_b")
    assert result.parseoutcomes()["passed"] == 4
    result.stdout.fnmatch_lines(["note: 4 baselines*"])
    cells = json.loads((project.path / "baselines/scratch/tiny_b.json").read_text())["cells"]
    assert {name.partition("+")[0] for name in cells["ort-cpu+fp32"]["former"]} == {"x64-test"}
    project.run("-k", "tiny_b", "--qbench-accept=new")
    assert "former model" not in project.run("-k", "tiny_b").stdout.str()
