"""A history behind a URL: runs are written into a spool and stored whole, once."""

import datetime
import subprocess
import sys
import textwrap

import pytest
from tracked_results import line, measured, top1

from qbench.errors import StoreError
from qbench.storage import ObjectFolder, PlaceError, place_of
from qbench.tracking import (
    FolderStore,
    History,
    HistoryIndex,
    NotStoredError,
    ObjectStore,
    RunWriter,
    history_at,
    merge_run_files,
    metric_rows,
)

START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)

pytest.importorskip("fsspec")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("QBENCH_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def url(tmp_path):
    return f"file://{tmp_path}/nights"


def begun(place, token="t", hits=750):
    writer = RunWriter.open(place, {"suite": "smoke"}, started=START, commit="c0ffee1", token=token)
    writer.write(line(measured(top1(hits))))
    return writer


def out(monkeypatch, *names):
    """From now on these methods of every folder of objects fail as if there were no network."""

    def fail(self, *_, **__):
        raise PlaceError(f"Asking '{self}'", found="no answer", expected="one", remedy="Wait.")

    for name in names or ("create", "read", "has", "listing", "read_starts"):
        monkeypatch.setattr("qbench.storage.ObjectFolder." + name, fail, raising=True)


def test_it_gives_back_what_a_folder_gives_back(tmp_path, url):
    for place in (tmp_path / "folder", history_at(url)):
        begun(place, "a").close(exit_code=0)
        begun(place, "b", 700).abandon()
    folder, objects = History(tmp_path / "folder"), History(history_at(url))
    assert [*metric_rows(folder.runs())] == [*metric_rows(objects.runs())]
    assert [run.complete for run in objects.runs()] == [True, False]
    assert [head.header for head in folder.heads] == [head.header for head in objects.heads]
    assert all(run.path.startswith(f"{url}/") for run in objects.runs())
    names = sorted(path.name for path in (tmp_path / "nights").iterdir())
    assert [name.partition(".")[2] for name in names] == ["begun", "jsonl"] * 2
    assert not [*ObjectStore(place_of(url)).spool.iterdir()]


def test_a_run_that_grows_is_read_from_the_spool(url):
    store = history_at(url)
    writer = begun(store)
    assert len(History(store).runs()[0].cells) == 1
    assert len(History(history_at(url)).runs()[0].cells) == 1
    writer.close(exit_code=0)
    assert History(store).runs()[0].complete


def test_an_id_is_taken_by_one(url):
    first, second = history_at(url), history_at(url)
    first.create("plan-j0001-a01-smoke")
    with pytest.raises(FileExistsError):
        second.create("plan-j0001-a01-smoke")
    second.create("plan-j0001-a02-smoke")


def test_an_id_is_taken_by_one_computer(url, tmp_path, monkeypatch):
    history_at(url).create("plan-j0001-a01-smoke")
    monkeypatch.setenv("QBENCH_CACHE", str(tmp_path / "other computer"))
    with pytest.raises(FileExistsError):
        history_at(url).create("plan-j0001-a01-smoke")
    assert not [*history_at(url).spool.iterdir()]


def test_each_run_is_fetched_once(url, monkeypatch):
    begun(history_at(url), "a").close(exit_code=0)
    assert len(History(history_at(url)).runs()) == 1
    monkeypatch.delattr("qbench.storage.ObjectFolder.read")
    monkeypatch.delattr("qbench.storage.ObjectFolder.read_starts")
    assert len(History(history_at(url)).runs()[0].cells) == 1


def test_for_the_order_of_runs_only_their_first_lines_are_fetched(url, monkeypatch):
    begun(history_at(url), "a").close(exit_code=0)
    monkeypatch.delattr("qbench.storage.ObjectFolder.read")
    assert len(History(history_at(url)).heads) == 1


def test_a_removed_run_is_gone_and_an_exchanged_one_is_read_again(url, tmp_path):
    begun(history_at(url), "a").close(exit_code=0)
    begun(history_at(url), "b").close(exit_code=0)
    assert len(History(history_at(url)).runs()) == 2
    kept = history_at(url).kept
    first, second = sorted((tmp_path / "nights").glob("*.jsonl"))
    second.unlink()
    text = first.read_text()
    first.unlink()
    first.write_text(text.replace('"smoke"', '"other"'))
    (run,) = History(history_at(url)).runs()
    assert run.suite == "other"
    assert len([*kept.iterdir()]) == 1


def test_an_outage_keeps_the_run_and_the_next_run_stores_it(url, tmp_path, monkeypatch):
    store = ObjectStore(place_of(url), goes_on=True)
    with monkeypatch.context() as patch:
        out(patch)
        writer = begun(store)
        with pytest.raises(NotStoredError) as caught:
            writer.close(exit_code=0)
        assert str(store.spool) in caught.value.remedy
        # its reports are still made, from what is here
        (run,) = History(store).runs()
        assert run.complete
        with pytest.raises(StoreError, match="no answer"):
            History(history_at(url)).runs()
    assert not (tmp_path / "nights").exists()
    again = history_at(url)
    begun(again, "u").close(exit_code=0)
    assert len(again.take_notices()) == 1
    assert [run.complete for run in History(again).runs()] == [True, True]
    assert not [*again.spool.iterdir()]


def test_an_outage_in_the_middle_is_no_matter_when_it_is_over(url, monkeypatch):
    store = ObjectStore(place_of(url), goes_on=True)
    with monkeypatch.context() as patch:
        out(patch)
        writer = begun(store)
    writer.close(exit_code=0)
    assert store.outage is None
    assert len(History(history_at(url)).runs()) == 1


def test_a_store_that_was_away_is_asked_again_after_a_pause(url, monkeypatch):
    store = ObjectStore(place_of(url), goes_on=True)
    asked, now = [], [100.0]
    monkeypatch.setattr("qbench.tracking.object_store.time.monotonic", lambda: now[0])
    listing = ObjectFolder.listing

    def fails_once(folder, ending):
        asked.append(ending)
        if len(asked) == 1:
            raise PlaceError("Asking", found="no answer", expected="one", remedy="Wait.")
        return listing(folder, ending)

    monkeypatch.setattr(ObjectFolder, "listing", fails_once)
    assert [*store.runs()] == []
    begun(history_at(url)).close(exit_code=0)
    count = len(asked)
    assert [*store.runs()] == []  # each question may wait for a minute
    assert len(asked) == count
    now[0] += 60
    assert len([*store.runs()]) == 1
    assert store.outage is None


def test_runs_of_earlier_nights_are_stored_after_an_outage_though_a_listing_came_first(
    url, monkeypatch
):
    now = [100.0]
    monkeypatch.setattr("qbench.tracking.object_store.time.monotonic", lambda: now[0])
    store = ObjectStore(place_of(url), goes_on=True)
    with monkeypatch.context() as patch:
        out(patch)
        with pytest.raises(NotStoredError):
            begun(ObjectStore(place_of(url), goes_on=True)).close(exit_code=0)
        writer = begun(store, "u")
    now[0] += 60
    assert len([*store.runs()]) == 2
    assert store.outage is None
    writer.close(exit_code=0)
    assert not [*store.spool.glob("*.jsonl")]


def test_what_waits_is_merged_by_hand(url, tmp_path, monkeypatch):
    store = ObjectStore(place_of(url), goes_on=True)
    with monkeypatch.context() as patch:
        out(patch)
        with pytest.raises(NotStoredError):
            begun(store).close(exit_code=0)
    done = merge_run_files([store.spool], history_at(url))
    assert (len(done.added), done.same, done.conflicts) == (1, 0, ())
    assert merge_run_files([store.spool], history_at(url)).same == 1
    copy = merge_run_files([history_at(url)], tmp_path / "copy")
    assert len(copy.added) == 1


def test_another_run_of_the_same_id_is_kept_and_not_written_over(url, tmp_path):
    store = history_at(url)
    writer = begun(store)
    path = tmp_path / "nights" / f"{writer.id}.jsonl"
    path.write_text("of another computer\n")
    with pytest.raises(NotStoredError, match="other content"):
        writer.close(exit_code=0)
    assert path.read_text() == "of another computer\n"
    (waiting,) = store.spool.glob("*.jsonl")
    assert '"end"' in waiting.read_text()
    begun(history_at(url), "u").close(exit_code=0)
    assert waiting.is_file()


def test_the_same_run_there_already_is_fine(url, tmp_path):
    store = history_at(url)
    writer = begun(store)
    spooled = store.spool / f"{writer.id}.jsonl"
    end = '{"type":"end","cells":1,"exit_code":0}\n'
    (tmp_path / "nights" / f"{writer.id}.jsonl").write_text(spooled.read_text() + end)
    writer.close(exit_code=0)
    assert len(History(store).runs()) == 1


def test_what_a_killed_process_wrote_is_stored_unfinished_by_the_next(url, tmp_path):
    code = f"""
        import datetime, os, signal
        from qbench.tracking import RunWriter, history_at
        writer = RunWriter.open(history_at({url!r}), {{"suite": "smoke"}}, commit="abc", token="t",
                                started=datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC))
        writer.write({{"type": "note", "text": "measured"}})
        os.kill(os.getpid(), signal.SIGKILL)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=False)
    store = history_at(url)
    begun(store, "u").close(exit_code=0)
    runs = History(history_at(url)).runs()
    assert sorted((run.complete, run.notes) for run in runs) == [(False, ("measured",)), (True, ())]
    assert not [*store.spool.iterdir()]


KILLED = """
import os, signal, sys
from qbench.tracking import history_at
store = history_at(sys.argv[1])
unlink = type(store.spool).unlink

def dying(path, missing_ok=False):
    if path.suffix == ".lock":
        os.kill(os.getpid(), signal.SIGKILL)
    unlink(path, missing_ok)

type(store.spool).unlink = dying
name = store.create("a")
store.append(name, b'{"type":"run","format":"qbench-run/1","id":"a","suite":"s"}' + b"\\n")
store.close(name, complete=True)
"""


def test_a_lock_that_a_killed_process_left_is_removed_by_the_next(url):
    subprocess.run([sys.executable, "-c", KILLED, url], check=False)
    store = history_at(url)
    assert [path.name for path in store.spool.iterdir()] == ["a.lock"]
    held = store.create("b")
    begun(store, "t").close(exit_code=0)
    assert sorted(path.name for path in store.spool.iterdir()) == ["b.jsonl", "b.lock"]
    store.close(held, complete=True)
    assert list(store.spool.iterdir()) == []


def test_what_another_process_writes_is_left_to_it(url):
    first = history_at(url)
    writer = begun(first)
    code = f"""
        from qbench.tracking import history_at
        store = history_at({url!r})
        store.deliver()
        print(store.take_notices())
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], check=True, capture_output=True, text=True
    )
    assert done.stdout == "()\n"
    writer.close(exit_code=0)
    assert len(History(first).runs()) == 1


def test_merging_from_and_into_it(url, tmp_path):
    begun(tmp_path / "folder", "a").close(exit_code=0)
    begun(history_at(f"{url}/inner"), "b").close(exit_code=0)
    done = merge_run_files([tmp_path / "folder", history_at(f"{url}/inner")], history_at(url))
    assert (len(done.added), done.same, done.problems) == (1, 1, ())
    again = merge_run_files([tmp_path / "folder"], history_at(url))
    assert (len(again.added), again.same) == (0, 2)
    back = merge_run_files([history_at(url)], tmp_path / "back")
    assert len(back.added) == 2
    assert {run.id for run in History(tmp_path / "back").runs()} == {
        run.id for run in History(history_at(url)).runs()
    }


def test_the_fuller_copy_of_an_unfinished_run_is_added(url, tmp_path):
    writer = begun(tmp_path / "folder", "a")
    merge_run_files([tmp_path / "folder"], history_at(url))
    writer.close(exit_code=0)
    done = merge_run_files([tmp_path / "folder"], history_at(url))
    assert len(done.added) == 1
    (run,) = History(history_at(url)).runs()
    assert run.complete


def test_an_index_is_made_of_it(url, tmp_path, monkeypatch, place):
    begun(history_at(url), "a").close(exit_code=0)
    begun(tmp_path / "folder", "a").close(exit_code=0)
    with (
        HistoryIndex(place) as index,
        HistoryIndex(str(tmp_path / "f.sqlite")) as of_folder,
    ):
        assert index.update(history_at(url)).added == 1
        of_folder.update(FolderStore(tmp_path / "folder"))
        assert index.rows() == of_folder.rows()
        monkeypatch.delattr("qbench.storage.ObjectFolder.read")
        done = index.update(history_at(url))
        assert (done.added, done.changed, done.kept, done.problems) == (0, 0, 1, ())
