"""``qbench accept``: what is left out on purpose, what was asked for and refused,
and results for any class.
"""

import json
from pathlib import Path

import pytest

SUITE = "suites/tiny.qbench.toml"
BASELINE = Path("baselines/tiny/blobs.json")
LISTED = "blobs::ort-cpu+w8a8_asym_pc"


def bench(*, scope=None, fp32=False):
    """The bench of a session that accepts, and the cells of its suite."""
    from qbench.host import utc_today
    from qbench.storage import Cache
    from qbench.suite import Bench, Settings, expand, gather, load_suite
    from qbench.tracking import Accepting, Scope

    suite = load_suite(Path(SUITE))
    catalogues = gather(suites=Path("suites"))
    accepting = Accepting(fp32=fp32, scope=scope and Scope(scope))
    settings = Settings(
        baselines=Path("baselines"),
        suite_path=SUITE,
        today=utc_today(),
        cache=Cache.default(),
        accepting=accepting,
    )
    return Bench(suite, catalogues, settings), expand(suite, catalogues)


def run_with_a_known_bad_cell():
    from qbench.cli import main
    from qbench.suite import approve_run

    accepting, planned = bench(fp32=True)
    approve_run(accepting, [(planned[0], accepting.measure(planned[0]))])
    Path("suites/tiny.quarantine.toml").write_text(
        f'[[cell]]\ncell = "{LISTED}"\nmeasured = "97 %"\nreason = "saturates"\nowner = "ann"\n'
        'expires = "2999-01-01"\n'
    )
    main(["run", SUITE])


@pytest.fixture
def run_file(project, fill_once, capsys):
    """A run file of a project with an fp32 reference whose one cell is known to be bad."""
    fill_once(project, run_with_a_known_bad_cell)
    capsys.readouterr()
    (path,) = Path("reports/history").glob("*.jsonl")
    return path


def accepted_cells():
    return set(json.loads(BASELINE.read_text())["cells"])


@pytest.mark.slow
def test_a_listed_cell_is_left_out_on_purpose(run_file, qbench, golden):
    code, out, err = qbench("accept", run_file)
    assert code == 0
    golden("output/accept-listed.txt", f"{out.splitlines()[-1]}\n\n{err}")
    assert len(accepted_cells()) == 5
    code, out, _ = qbench("accept", run_file)
    assert code == 0
    assert "nothing to accept" in out


@pytest.mark.slow
def test_what_another_process_accepts_meanwhile_is_not_lost(run_file, qbench, monkeypatch):
    from qbench.cli import accept_run

    stored, others = accept_run._stored, iter(["blobs::ort-cpu-noopt+fp32"])

    def slow(*arguments):
        found = stored(*arguments)
        for cell in others:  # the first time: read here, written by the other
            assert qbench("accept", run_file, "--cell", cell)[0] == 0
        return found

    monkeypatch.setattr(accept_run, "_stored", slow)
    assert qbench("accept", run_file, "--cell", "blobs::ort-cpu+fp32")[0] == 0
    assert accepted_cells() == {"ort-cpu+fp32", "ort-cpu-noopt+fp32"}


def test_two_sessions_that_accept_one_after_the_other_lose_nothing(run_file):
    from qbench.suite import approve_run

    sessions = [bench(scope="new") for _ in range(2)]
    assert all(
        session._baselines.get("blobs").cells == {} for session, _ in sessions
    )  # both read before either writes
    for (session, planned), backend in zip(sessions, ("ort-cpu", "ort-cpu-noopt"), strict=True):
        cell = next(one for one in planned if one.cell.is_fp32 and one.cell.backend == backend)
        approve_run(session, [(cell, session.measure(cell))])
    assert accepted_cells() == {"ort-cpu+fp32", "ort-cpu-noopt+fp32"}


def test_a_folder_that_cannot_be_written_is_no_error_where_nothing_is_accepted(
    run_file, qbench, monkeypatch
):
    assert qbench("accept", run_file)[0] == 0
    monkeypatch.setattr(
        "qbench.storage.cache._make_ignored",
        lambda work: (_ for _ in ()).throw(PermissionError(13)),
    )
    assert qbench("accept", run_file)[0] == 0
    assert (
        qbench("accept", run_file, "--any-class", "--what", "all", "--reason", "r", "--dry-run")[0]
        == 0
    )
    code, _, err = qbench("accept", run_file, "--any-class", "--what", "all", "--reason", "r")
    assert (code, "Locking " in err, "baselines/tiny" in err) == (2, True, True)


def test_an_entry_that_ran_out_keeps_nothing_back(run_file, qbench):
    entries = Path("suites/tiny.quarantine.toml")
    entries.write_text(entries.read_text().replace("2999-01-01", "2020-01-01"))
    code, out, err = qbench("accept", run_file)
    assert code == 0, out + err
    assert LISTED.partition("::")[2] in accepted_cells()
    assert (
        err.count(
            f"The quarantine entry '{LISTED}' ended on 2020-01-01 "
            "and prevents no acceptance any more"
        )
        == 1
    )


def test_a_listed_cell_that_was_asked_for_by_name_is_refused(run_file, qbench):
    assert qbench("accept", run_file, "--cell", LISTED)[0] == 1
    assert qbench("accept", run_file, "--cell", "blobs::*pc")[0] == 0
    assert accepted_cells() == {"ort-cpu-noopt+w8a8_asym_pc"}


def test_a_result_can_be_declared_for_any_class(run_file, qbench):
    code, out, _ = qbench("accept", run_file, "--any-class")
    assert code == 0
    assert {line.split()[1] for line in out.splitlines() if line.startswith("blobs::")} == {"any"}
    cells = json.loads(BASELINE.read_text())["cells"]
    assert all(set(cell["accepted"]) == {"any"} for cell in cells.values())
    code, out, err = qbench("run", SUITE, "--json")
    outcomes = {
        cell["outcome"] for cell in json.loads(out)["cells"] if cell["schema"] != "w8a8_asym_pc"
    }
    assert outcomes == {"passed"}, err
    assert any(
        "for any class" in gate["detail"]
        for cell in json.loads(out)["cells"]
        for gate in cell["gates"]
    )


@pytest.mark.slow
def test_changed_results_are_pointed_at_and_are_new_in_no_class(run_file, qbench):
    assert qbench("accept", run_file)[0] == 0
    before = json.loads(BASELINE.read_text())["cells"]
    suite = Path(SUITE)
    suite.write_text(suite.read_text().replace("count = 32", "count = 5"))
    qbench("run", SUITE)
    for options in ((), ("--any-class", "--reason", "portable")):
        code, out, err = qbench("accept", "latest", *options)
        assert code == 0, err
        assert 'changed and not accepted: use --what changed --reason "…"' in out
        assert "no result differs" not in out
        after = json.loads(BASELINE.read_text())["cells"]
        moved = {slug for slug in after if "any" in after[slug]["accepted"]}
        assert bool(moved) == bool(options)
        assert all(after[slug] == before[slug] for slug in after if slug not in moved)
    assert len(moved) < len(before)
    code, out, err = qbench(
        "accept", "latest", "--any-class", "--what", "all", "--reason", "portable"
    )
    assert code == 0, err
    told = [line.split() for line in out.splitlines() if line.startswith("blobs::")]
    rows = [row for row in told if row[0] != "blobs::calibration:default"]
    assert len(told) == len(rows) + 1
    assert all(row[3] != "—" and row[4] == "%" for row in rows)
    assert len(rows) == 2 * (len(before) - len(moved))
    stored = json.loads(BASELINE.read_text())["cells"].values()
    assert {cell["accepted"]["any"]["reason"] for cell in stored} == {"portable"}


def test_what_is_left_over_is_noted_in_the_run(run_file, qbench):
    assert qbench("accept", run_file)[0] == 0
    suite = Path(SUITE)
    suite.write_text(suite.read_text().replace('"ort-cpu", "ort-cpu-noopt"', '"ort-cpu"'))
    code, out, err = qbench("run", SUITE, "--select", "schema=fp32")
    assert code == 0, err
    assert (
        "note: 3 baselines are left over (no such cell in the suite 'tiny'): "
        "blobs::ort-cpu-noopt+fp32," in out
    )
    assert "--collect-only --qbench-prune" in " ".join(out.split())


@pytest.mark.slow
def test_a_share_without_models_is_fine(run_file, qbench):
    from qbench.suite import Shard

    idle = next(index for index in (1, 2) if not Shard(index, 2).holds("blobs"))
    code, _, err = qbench("run", SUITE, "--shard", f"{idle}/2")
    assert (code, "no selected model is in shard" in err) == (0, True)
    assert qbench("run", SUITE, "--shard", "3/2")[0] == 2
    code, out, _ = qbench("run", SUITE, "--shard", f"{3 - idle}/2", "--json")
    assert (
        json.loads(Path(json.loads(out)["path"]).read_text().splitlines()[0])["shard"]
        == f"{3 - idle}/2"
    )
