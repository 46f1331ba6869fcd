"""Baselines as values, as files, and as damaged files."""

import dataclasses
import errno
import json
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tracked_results import ANSWERS, HERE, baseline, measured

from qbench.errors import DamagedError, StoreError
from qbench.judging import Rules, State
from qbench.storage import work_folder
from qbench.tracking import (
    Accepting,
    Scope,
    accept_measurements,
    accept_reference,
    baseline_path,
    find_baseline,
    load_baseline,
    save_baseline,
)


def accepted():
    everything = Accepting(scope=Scope.ALL, reason="the first")
    return accept_measurements(
        baseline(), [measured()], accepting=everything, rules=Rules()
    ).baseline


@pytest.fixture
def path(tmp_path):
    path = baseline_path(tmp_path, "smoke", "mobilenet_v2")
    assert save_baseline(path, accepted())
    return path


def test_files_lie_by_suite_and_model(path, tmp_path):
    assert path == tmp_path / "smoke" / "mobilenet_v2.json"
    assert sorted(p.name for p in path.parent.iterdir()) == [
        "mobilenet_v2.fp32.npz",
        "mobilenet_v2.json",
    ]


def test_round_trip(path):
    before, after = accepted(), load_baseline(path)
    for field in dataclasses.fields(before):
        if field.name != "stored":
            assert getattr(after, field.name) == getattr(before, field.name), field.name
    for name, answers in ANSWERS.items():
        found = after.stored[name]
        assert found.ids.dtype == np.int32
        assert np.array_equal(found.ids, answers.ids)
        assert (found.digest, found.kind) == (answers.digest, answers.kind)


def test_saving_the_same_touches_nothing(path):
    files = sorted(path.parent.iterdir())
    before = [(f.read_bytes(), f.stat().st_mtime_ns) for f in files]
    assert not save_baseline(path, load_baseline(path))
    assert before == [(f.read_bytes(), f.stat().st_mtime_ns) for f in files]


def test_saving_elsewhere_gives_the_same_bytes(path, tmp_path):
    other = baseline_path(tmp_path / "other", "smoke", "mobilenet_v2")
    save_baseline(other, load_baseline(path))
    for suffix in (".json", ".fp32.npz"):
        name = path.stem + suffix
        assert (path.parent / name).read_bytes() == (other.parent / name).read_bytes()


def test_the_text_is_made_for_review(path):
    text = path.read_text()
    assert text.endswith("}\n")
    assert json.dumps(json.loads(text), indent=1, sort_keys=True, ensure_ascii=False) + "\n" == text
    for line in text.splitlines():  # one scalar a line
        assert sum(line.count(mark) for mark in "{[") <= 1
        assert (
            line.rstrip().endswith((",", "{", "}", "[", "]", "{}", '"'))
            or line.strip().split(": ")[-1].isdigit()
        )

    def numbers(value):
        if isinstance(value, dict):
            return [n for v in value.values() for n in numbers(v)]
        return [value] if not isinstance(value, str) else []

    assert all(type(n) is int for n in numbers(json.loads(text)))


def test_a_changed_count_is_one_changed_line(path):
    before = path.read_text().splitlines()
    cell = load_baseline(path)
    known = cell.cells["ort-cpu+w8a8_asym_pc"]
    result = known.accepted[str(HERE)]
    changed = dataclasses.replace(result, metrics={**result.metrics, "top1@photos": 757})
    cells = {"ort-cpu+w8a8_asym_pc": dataclasses.replace(known, accepted={str(HERE): changed})}
    save_baseline(path, dataclasses.replace(cell, cells=cells))
    after = path.read_text().splitlines()
    assert [(a, b) for a, b in zip(before, after, strict=True) if a != b] == [
        ('      "top1@photos": 758', '      "top1@photos": 757')
    ]


def test_answers_are_stored_small(path):
    with np.load(path.with_name("mobilenet_v2.fp32.npz")) as stored:
        assert stored["ids-photos"].dtype == np.uint16
        assert stored["ids-words"].dtype == np.int8


def test_another_zlib_is_no_change(path):
    npz = path.with_name("mobilenet_v2.fp32.npz")
    with np.load(npz) as stored:
        arrays = {name: stored[name] for name in stored.files}
    np.savez(npz, **arrays)  # the same arrays, packed otherwise
    before = npz.read_bytes()
    assert not save_baseline(path, load_baseline(path))
    assert npz.read_bytes() == before


DAMAGES = {
    "empty": lambda path: path.write_text(""),
    "cut short": lambda path: path.write_text(path.read_text()[:200]),
    "not text": lambda path: path.write_bytes(b"\xff\xfe\x00\x01"),
    "a list": lambda path: path.write_text("[]"),
    "nested": lambda path: path.write_text("[" * 100_000),
    "newer": lambda path: path.write_text(path.read_text().replace("baseline/1", "baseline/2")),
    "unknown key": lambda path: path.write_text(path.read_text().replace('"backend"', '"bakend"')),
    "float": lambda path: path.write_text(path.read_text().replace(": 758", ": 758.5")),
    "NaN": lambda path: path.write_text(path.read_text().replace(": 758", ": NaN")),
    "other digest": lambda path: path.write_text(
        path.read_text().replace(ANSWERS["words"].digest, "0" * 64)
    ),
    "absent": lambda path: path.unlink(),
    "npz absent": lambda path: path.with_name("mobilenet_v2.fp32.npz").unlink(),
    "npz cut short": lambda path: cut(path.with_name("mobilenet_v2.fp32.npz")),
    "npz garbage": lambda path: path.with_name("mobilenet_v2.fp32.npz").write_bytes(b"nonsense"),
    "npz empty": lambda path: path.with_name("mobilenet_v2.fp32.npz").write_bytes(b""),
    "npz bare": lambda path: bare(path.with_name("mobilenet_v2.fp32.npz")),
    "npz pickle": lambda path: packed(path, np.array([{"a": 1}], dtype=object)),
    "npz fewer samples": lambda path: packed(path, ANSWERS["photos"].ids[:-1]),
    "npz floats": lambda path: packed(path, ANSWERS["photos"].ids.astype(np.float32)),
    "npz other": lambda path: packed(path, ANSWERS["photos"].ids[::-1]),
    "npz padded ranking": lambda path: packed(path, ANSWERS["photos"].ids - 1),
}


def cut(path):
    path.write_bytes(path.read_bytes()[:-40])


def bare(path):
    with path.open("wb") as file:
        np.save(file, ANSWERS["photos"].ids)


def packed(path, photos):
    np.savez(
        path.with_name("mobilenet_v2.fp32.npz"),
        **{"ids-photos": photos, "ids-words": ANSWERS["words"].ids},
    )


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_one_sentence(path, damage):
    DAMAGES[damage](path)
    with pytest.raises(StoreError) as caught:
        load_baseline(path)
    text = str(caught.value)
    assert "mobilenet_v2" in caught.value.doing
    assert "\n" not in text
    assert "version control" in caught.value.remedy


def error_of(path):
    try:
        load_baseline(path)
    except StoreError as error:
        return str(error)
    return ""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = baseline_path(tmp_path_factory.mktemp("whole"), "smoke", "m")
    save_baseline(path, accepted())
    return {file.name: file.read_bytes() for file in path.parent.iterdir()}


@given(st.data())
def test_no_flipped_byte_is_a_traceback(whole, tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("flips", numbered=True)
    for name, content in whole.items():
        (folder / name).write_bytes(content)
    victim = folder / data.draw(st.sampled_from(["m.json", "m.fp32.npz"]))
    content = bytearray(victim.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    victim.write_bytes(content)
    assert "\n" not in error_of(folder / "m.json")
    shutil.rmtree(folder)


@pytest.mark.parametrize("part", [".json", ".fp32.npz"])
def test_a_link_to_nothing_is_not_a_missing_baseline(path, part):
    """Taken for missing, it would be made anew, without what was accepted."""
    file = path.with_name(path.name.removesuffix(".json") + part)
    file.unlink()
    file.symlink_to("nowhere")
    with pytest.raises(StoreError) as caught:
        load_baseline(path)
    assert not isinstance(caught.value, DamagedError)
    assert "symbolic link" in caught.value.found


def test_what_cannot_be_read_is_not_damaged(path, monkeypatch):
    """It may be whole: a run that makes the reference anew must not take it for lost either."""
    before = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    read = Path.read_bytes
    for name in before:
        with monkeypatch.context() as patched:

            def refused(file, name=name):
                if file.name == name:
                    raise OSError(errno.EMFILE, "Too many open files")
                return read(file)

            patched.setattr(Path, "read_bytes", refused)
            for act in (load_baseline, lambda path: find_baseline(path, keep_whole_parts=True)):
                with pytest.raises(StoreError, match=f"{name}.*Too many open files") as caught:
                    act(path)
                assert not isinstance(caught.value, DamagedError)
                assert "--qbench-accept-fp32" not in str(caught.value)
            with pytest.raises(StoreError):
                save_baseline(path, accepted())
    assert before == {file.name: file.read_bytes() for file in path.parent.iterdir()}


def test_damage_names_the_command_that_restores_first(path):
    path.with_name("mobilenet_v2.fp32.npz").unlink()
    with pytest.raises(DamagedError) as caught:
        load_baseline(path)
    restored, anew = caught.value.remedy.split(", or ")
    assert (
        f"git -C {path.parent} stash push -- mobilenet_v2.json mobilenet_v2.fp32.npz)" in restored
    )
    assert "--qbench-accept-fp32" in anew


def test_whole_parts_are_kept_for_a_new_reference(path):
    whole = load_baseline(path)
    path.with_name("mobilenet_v2.fp32.npz").write_bytes(b"torn")
    kept = find_baseline(path, keep_whole_parts=True)
    assert len(kept.lost) == 1
    assert (kept.cells, kept.data) == (whole.cells, whole.data)
    again = accept_reference(
        kept, measured(), ANSWERS, backend="ort-cpu", environment_class=str(HERE)
    )
    assert save_baseline(path, again.baseline)
    assert load_baseline(path).cells == whole.cells


def test_a_link_stays_one_and_its_file_is_written(path, tmp_path):
    real = tmp_path / "elsewhere" / "kept.json"
    real.parent.mkdir()
    path.rename(real)
    path.symlink_to(real)
    changed = dataclasses.replace(load_baseline(path), preprocessing="another")
    assert save_baseline(path, changed)
    assert path.is_symlink()
    assert load_baseline(path).preprocessing == "another"
    assert json.loads(real.read_text())["preprocessing"] == "another"
    assert [file.name for file in real.parent.iterdir()] == ["kept.json"]


def test_what_a_killed_process_left_is_hidden_from_git_and_swept_by_the_next(path):
    left = path.parent / ".qbench"
    with work_folder(path.parent) as work:
        (work / ".mobilenet_v2.json.x1").write_text("half")
        shutil.copytree(left, path.parent / "copy")
    (path.parent / "copy").rename(left)
    shutil.copytree(left, path.parent / ".qbench-0123456789abcdef")
    subprocess.run(["git", "init", "-q", path.parent], check=True)
    shown = ["git", "-C", path.parent, "status", "--porcelain", "--untracked-files=all"]
    assert subprocess.run(shown, check=True, capture_output=True, text=True).stdout.split()[
        1::2
    ] == [
        "mobilenet_v2.fp32.npz",
        "mobilenet_v2.json",
    ]
    shutil.rmtree(path.parent / ".git")
    save_baseline(path, load_baseline(path))
    assert sorted(file.name for file in path.parent.iterdir()) == [
        "mobilenet_v2.fp32.npz",
        "mobilenet_v2.json",
    ]


def test_our_own_baselines_are_written_again_as_they_are(tmp_path):
    ours = Path(__file__).parents[2] / "baselines"
    shutil.copytree(ours, tmp_path / "copy")
    files = sorted((tmp_path / "copy").glob("smoke/*.json"))
    assert files
    for file in files:
        assert not save_baseline(file, load_baseline(file))
        save_baseline(tmp_path / "new" / file.name, load_baseline(file))
        assert (tmp_path / "new" / file.name).read_bytes() == file.read_bytes()


def test_a_fitting_measurement_is_known():
    found = accepted().expectation(measured().cell, measured().digests)
    assert (found.state, found.what, found.cell_known) == (State.KNOWN, "", True)
    assert found.reference == {name: answers.digest for name, answers in ANSWERS.items()}
    assert found.accepted[str(HERE)].metrics["top1@photos"] == 758
    assert found.floors == {"agreement@photos": 920}


def test_a_cell_nobody_accepted_is_not_known():
    found = accepted().expectation(measured(slug="ort-cpu+other").cell, measured().digests)
    assert (found.state, found.cell_known, found.accepted, found.floors) == (
        State.KNOWN,
        False,
        {},
        {},
    )


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("model", "another model"),
        ("preprocessing", "another preprocessing"),
        ("data:photos", "another data set 'photos'"),
        ("data:more", "no data set 'more'"),
        ("reference:words", "other fp32 answers"),
    ],
)
def test_what_differs_makes_it_stale(key, words):
    digests = {**measured().digests, key: "something else"}
    found = accepted().expectation(measured().cell, digests)
    assert found.state is State.STALE
    assert words in found.what
    assert accepted().expectation(measured().cell, digests, trusted=True).state is State.KNOWN


@pytest.mark.parametrize(
    ("now", "words"),
    [(-1, "({0} samples, today's has {1})"), (0, "(as many samples, {0}, but other contents")],
)
def test_another_data_set_is_told_by_its_count(now, words):
    digests = {**measured().digests, "data:photos": "something else"}
    before = accepted().data["photos"].samples
    found = accepted().expectation(measured().cell, digests, samples={"photos": before + now})
    assert "another data set 'photos' " + words.format(before, before + now) in found.what


def test_noise_is_stored_by_class_and_absent_where_none_was_measured(path):
    from qbench.judging import MetricNoise, Repeats

    before = load_baseline(path)
    text = path.read_text()
    assert '"noise"' not in text
    counts = MetricNoise(hits=(350, 352, 349), out_of=(400, 400, 400), pairs=9, flips=12)
    noise = {
        "x64-avx2": Repeats(
            runs=3, differing={"photos": 5}, flips={"photos": 12}, metrics={"top1": counts}
        ),
        "x64-test": Repeats(runs=2),
    }
    slug = next(iter(before.cells))
    save_baseline(
        path,
        dataclasses.replace(
            before,
            cells={**before.cells, slug: dataclasses.replace(before.cells[slug], noise=noise)},
        ),
    )
    assert load_baseline(path).cells[slug].noise == noise
    assert json.loads(path.read_text())["cells"][slug]["noise"]["x64-test"] == {"runs": 2}
    assert load_baseline(path).cells[slug].outdated().noise == {}
    save_baseline(path, before)
    assert path.read_text() == text


# Names in a baseline are any text.


@given(
    name=st.text(min_size=1, max_size=12)
    | st.sampled_from(["a\nb", "\n", "a b", "{array}", "a\r\nb", "../x", "\x1b[31m", ""])
)
def test_a_name_of_data_is_any_text_or_one_sentence(name):
    with tempfile.TemporaryDirectory() as folder:
        path = baseline_path(Path(folder), "smoke", "mobilenet_v2")
        save_baseline(path, accepted())
        table = json.loads(path.read_text())
        table["data"][name] = table["data"].pop("photos")
        path.write_text(json.dumps(table))
        with pytest.raises(StoreError) as caught:  # the arrays are of another name
            load_baseline(path)
        assert caught.value.found
