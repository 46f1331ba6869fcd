"""What of the baselines nothing uses any more: found by the suite's cells, told in sentences,
removed on request.
"""

import dataclasses

import pytest
from tracked_results import ELSEWHERE, HERE, baseline, measured

from qbench.judging import Cell, Rules
from qbench.tracking import (
    Accepting,
    Scope,
    StaleEntry,
    accept_measurements,
    baseline_path,
    find_stale_entries,
    load_baseline,
    orphan_notes,
    prune_stale_entries,
    save_baseline,
    stale_entry_notes,
)

SLUGS = ("ort-cpu+w8a8_asym_pc", "ort-cpu+old", "ort-cpu+w8a8_asym_pc+calib32")
CELLS = [
    Cell("smoke", "mobilenet_v2", "ort-cpu", "w8a8_asym_pc"),
    Cell("smoke", "mobilenet_v2", "ort-cpu", "fp32"),
]
PATH = "suites/smoke.qbench.toml"


@pytest.fixture
def folder(tmp_path):
    every = [
        measured(slug=slug, environment=where) for slug in SLUGS for where in (HERE, ELSEWHERE)
    ]
    known = accept_measurements(
        baseline(), every, accepting=Accepting(scope=Scope.NEW), rules=Rules()
    ).baseline
    save_baseline(baseline_path(tmp_path, "smoke", "mobilenet_v2"), known)
    for model in ("gone", "broken"):
        save_baseline(baseline_path(tmp_path, "smoke", model), known)
    baseline_path(tmp_path, "smoke", "broken").write_text("{")
    return tmp_path


def test_models_and_cells_that_the_suite_lost_are_found_even_in_damaged_files(folder):
    found = find_stale_entries(folder, "smoke", CELLS)
    assert [one.name for one in found] == [
        "broken",
        "gone",
        f"mobilenet_v2::{SLUGS[1]}",
        f"mobilenet_v2::{SLUGS[2]}",
    ]
    assert find_stale_entries(folder, "nightly", CELLS) == ()


def test_a_damaged_baseline_of_a_model_that_is_there_is_left_to_others(folder):
    assert not any(
        one.model == "broken"
        for one in find_stale_entries(folder, "smoke", [Cell("smoke", "broken", "b", "s")])
    )


def test_the_sentences_count_name_and_say_what_to_type(folder, golden):
    notes = stale_entry_notes(find_stale_entries(folder, "smoke", CELLS), PATH)
    models, cells = notes
    assert ": broken, gone; " in models
    assert f"pytest {PATH} --collect-only --qbench-prune" in cells
    golden("tracking/stale.txt", "\n".join(notes))
    assert stale_entry_notes((), PATH) == ()


def test_answers_without_their_baseline_are_left_over(folder):
    baseline_path(
        folder, "smoke", "gone"
    ).unlink()  # as a process leaves them that was killed while it removed it
    found = find_stale_entries(folder, "smoke", CELLS)
    assert "gone" in [one.name for one in found]
    prune_stale_entries(folder, found)
    assert not list((folder / "smoke").glob("gone*"))


def test_what_was_accepted_anew_since_it_was_found_is_not_pruned(folder):
    path = baseline_path(folder, "smoke", "mobilenet_v2")
    whole = load_baseline(path)
    former = {slug: cell.outdated() for slug, cell in whole.cells.items()}
    save_baseline(path, dataclasses.replace(whole, cells=former))
    found = find_stale_entries(
        folder, "smoke", [*CELLS, *(Cell("smoke", "mobilenet_v2", *s.split("+")) for s in SLUGS)]
    )
    assert [one for one in found if one.environment_class]
    save_baseline(path, whole)
    prune_stale_entries(folder, found)
    assert load_baseline(path).cells == whole.cells


def test_pruning_removes_them_with_their_answers_and_nothing_else(folder):
    path = baseline_path(folder, "smoke", "mobilenet_v2")
    before = load_baseline(path)
    prune_stale_entries(folder, find_stale_entries(folder, "smoke", CELLS))
    assert sorted(file.name for file in path.parent.iterdir()) == [
        "mobilenet_v2.fp32.npz",
        "mobilenet_v2.json",
    ]
    assert load_baseline(path).cells == {SLUGS[0]: before.cells[SLUGS[0]]}
    assert find_stale_entries(folder, "smoke", CELLS) == ()


def test_results_of_a_former_model_go_class_by_class_and_a_cell_with_its_last(folder):
    path = baseline_path(folder, "smoke", "mobilenet_v2")
    known = load_baseline(path)
    partly = dataclasses.replace(known.cells[SLUGS[0]], former=(str(ELSEWHERE),))
    save_baseline(
        path,
        dataclasses.replace(
            known, cells={SLUGS[0]: partly, SLUGS[1]: known.cells[SLUGS[1]].outdated()}
        ),
    )
    cells = [Cell("smoke", "mobilenet_v2", *slug.split("+")) for slug in SLUGS]
    found = [
        one for one in find_stale_entries(folder, "smoke", cells) if one.model == "mobilenet_v2"
    ]
    assert len(found) == 3
    assert stale_entry_notes(found[-1:], PATH)[0].startswith("1 baseline ")
    prune_stale_entries(folder, found)
    left = load_baseline(path).cells
    assert {slug: set(cell.accepted) for slug, cell in left.items()} == {SLUGS[0]: {str(HERE)}}
    assert left[SLUGS[0]].former == ()


def test_folders_without_a_suite_are_named_and_nothing_more(folder, tmp_path):
    suites = tmp_path / "suites"
    suites.mkdir()
    (note,) = orphan_notes(folder, suites, ".qbench.toml")
    assert note.startswith(f"'{folder.name}/smoke' ")
    (suites / "smoke.qbench.toml").touch()
    assert orphan_notes(folder, suites, ".qbench.toml") == ()


def test_leftovers_sort_by_what_they_are():
    assert (
        StaleEntry(suite="s", model="a")
        < StaleEntry(suite="s", model="a", cell="x")
        < StaleEntry(suite="s", model="b")
    )


def test_what_a_lost_variant_was_calibrated_by_goes_with_it(folder):
    path = baseline_path(folder, "smoke", "mobilenet_v2")
    ranges = {"x": (0.0, 1.0)}
    by_key = dict.fromkeys(("default", "default+calib32", "default+calib8", "none"), ranges)
    save_baseline(path, dataclasses.replace(load_baseline(path), calibrations=by_key))
    cells = [*CELLS, Cell("smoke", "mobilenet_v2", "ort-cpu", "w8a8_asym_pc", "calib32")]
    found = [one for one in find_stale_entries(folder, "smoke", cells) if one.is_calibration]
    assert [one.name for one in found] == ["mobilenet_v2::calibration:default+calib8"]
    assert found[0].why.startswith("no such variant ")
    before = load_baseline(path).cells
    prune_stale_entries(folder, found)
    after = load_baseline(path)
    assert (list(after.calibrations), after.cells) == (
        ["default", "default+calib32", "none"],
        before,
    )
