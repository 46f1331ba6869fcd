"""What happens to an index when its database does not behave: one sentence, the state of
before, and it catches up.
"""

import sqlite3
import threading

import pytest
from tracked_results import START, line, measured, written

from qbench.errors import StoreError
from qbench.tracking import History, HistoryIndex, index, index_building, index_tables, metric_rows

SENTENCE = (
    "Updating the index .*; expected a database that can be reached and written. "
    "The run files are untouched"
)


def history(folder, count=3, first=0):
    for number in range(first, first + count):
        written(
            folder,
            *(line(measured(slug=f"b{cell}+s")) for cell in range(8)),
            token=f"t{number}",
            started=START,
        )
    return folder


def held(folder):
    return {path: path.read_bytes() for path in folder.rglob("*.jsonl")}


def catches_up(place, folder):
    with HistoryIndex(place) as again:
        again.update(folder)
        assert again.rows() == list(metric_rows(History(folder).runs()))


def broken_off(monkeypatch, breaking, after):
    """Let ``breaking(connection)`` run in an update that writes file by file,
    before so many writings.
    """
    real, calls = index_tables.insert_values, []

    def insert(connection, table, rows):
        calls.append(table)
        if len(calls) == after:
            breaking(connection)
        real(connection, table, rows)

    monkeypatch.setattr(index_building, "_AT_ONCE", 1)
    monkeypatch.setattr(index_tables, "insert_values", insert)


def test_a_server_that_goes_away_in_the_middle(tmp_path, postgres, monkeypatch):
    import sqlalchemy

    folder = history(tmp_path / "h")
    with HistoryIndex(postgres) as one:
        one.update(folder)
        before = one.rows()
        history(folder, first=3)
        files = held(folder)
        other = sqlalchemy.create_engine(one._engine.url, isolation_level="AUTOCOMMIT")

        def kill(connection):
            number = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar()
            with other.connect() as killer:
                killer.exec_driver_sql(f"SELECT pg_terminate_backend({number})")

        with monkeypatch.context() as patched:
            broken_off(patched, kill, after=4)
            with pytest.raises(StoreError, match=SENTENCE):
                one.update(folder)
        other.dispose()
    assert held(folder) == files
    with HistoryIndex(postgres) as again:
        assert again.rows() == before
    catches_up(postgres, folder)


def test_a_server_that_is_not_there(postgres):
    from sqlalchemy.engine import make_url

    gone = make_url(postgres).set(port=1).render_as_string(hide_password=False)
    with HistoryIndex(gone) as one:
        with pytest.raises(StoreError, match="Reading the index") as caught:
            one.rows()
        assert str(make_url(postgres).password) not in str(caught.value)


def test_a_server_is_named_as_it_was_written_without_its_password():
    pytest.importorskip("psycopg")
    with HistoryIndex("postgresql://ann:secret@server/history") as one:
        assert one.name == "postgresql://ann:***@server/history"


@pytest.mark.slow_but(2)
@pytest.mark.parametrize("after", [1, 3, 6])
def test_a_writer_that_dies_leaves_the_index_as_it_was(tmp_path, place, monkeypatch, after):
    folder = history(tmp_path / "h")
    with HistoryIndex(place) as one:
        one.update(folder)
        before = one.rows()
        history(folder, first=3)

        def die(_connection):
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            broken_off(patched, die, after)
            with pytest.raises(KeyboardInterrupt):
                one.update(folder)
        assert one.rows() == before
    catches_up(place, folder)


@pytest.mark.slow
def test_a_full_disk(tmp_path):
    import sqlalchemy

    folder, place = history(tmp_path / "h"), str(tmp_path / "index.sqlite")
    with HistoryIndex(place) as one:
        one.update(folder)
        before = one.rows()
    history(folder, count=40, first=3)
    files = held(folder)
    with HistoryIndex(place) as one:
        sqlalchemy.event.listen(
            one._engine, "connect", lambda c, _: c.execute("PRAGMA max_page_count=1")
        )
        with pytest.raises(StoreError, match="disk is full"):
            one.update(folder)
        assert one.rows() == before
    assert held(folder) == files
    catches_up(place, folder)


def test_a_database_that_somebody_holds(tmp_path, monkeypatch):
    monkeypatch.setattr(index, "_WAIT_S", 0.05)
    folder, place = history(tmp_path / "h"), str(tmp_path / "index.sqlite")
    with HistoryIndex(place) as one:
        one.update(folder)
        holder = sqlite3.connect(place)
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="found database is locked"):
            one.update(folder)
        assert len(one.rows()) == 3 * 8 * 3, "readers do not wait for a writer"
        holder.close()
    catches_up(place, folder)


@pytest.mark.parametrize(
    "content",
    [b"no database at all, but long enough to be one" * 100, b"SQLite format 3\0" + b"\0" * 4096],
)
def test_a_file_that_is_no_database_is_left_alone(tmp_path, content):
    folder, path = history(tmp_path / "h"), tmp_path / "index.sqlite"
    path.write_bytes(content)
    with HistoryIndex(str(path)) as one:
        with pytest.raises(StoreError, match="'qbench history index --rebuild'"):
            one.update(folder)
        with pytest.raises(StoreError, match="Reading the index"):
            one.rows()
        assert path.read_bytes() == content
        done = one.update(folder, rebuild=True)
        assert (done.was_damaged, done.added) == (True, 3)
    catches_up(str(path), folder)


@pytest.mark.slow
def test_an_index_that_was_torn_is_made_anew(tmp_path):
    folder, path = history(tmp_path / "h", 30), tmp_path / "index.sqlite"
    with HistoryIndex(str(path)) as one:
        one.update(folder)
    path.write_bytes(path.read_bytes()[:8192] + b"\xff" * 20_000)
    with HistoryIndex(str(path)) as one:
        with pytest.raises(StoreError, match="--rebuild' makes it anew"):
            one.update(history(folder, 3, first=40))
        assert one.update(folder, rebuild=True).was_damaged
    catches_up(str(path), folder)


def test_a_file_of_another_name_is_never_thrown_away(tmp_path):
    folder, path = history(tmp_path / "h"), tmp_path / "letter.txt"
    path.write_bytes(content := b"Dear aunt, " * 200)
    with (
        HistoryIndex(str(path)) as one,
        pytest.raises(StoreError, match=r"name another file, .* and keep this one"),
    ):
        one.update(folder, rebuild=True)
    assert path.read_bytes() == content


def test_two_writers_at_the_same_moment(tmp_path, place):
    folder = history(tmp_path / "h", 6)
    errors = []
    gate = threading.Barrier(3)

    def write():
        with HistoryIndex(place) as one:
            gate.wait()
            try:
                one.update(folder)
            except Exception as error:  # whatever it is, the test is to show it
                errors.append(error)

    threads = [threading.Thread(target=write) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    catches_up(place, folder)


def test_an_update_waits_for_a_writer_that_does_not_use_a_write_ahead_log_yet(tmp_path):
    folder, path = history(tmp_path / "h", 3), tmp_path / "index.sqlite"
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("CREATE TABLE another (number INTEGER)")
    other.execute("BEGIN IMMEDIATE")
    release = threading.Timer(0.3, other.execute, ["COMMIT"])
    release.start()
    with HistoryIndex(str(path)) as one:
        assert one.update(folder).added == 3
    release.join()
    other.close()
    catches_up(str(path), folder)


def test_a_run_that_grows_while_it_is_indexed_is_read_again(tmp_path, place):
    from qbench.tracking import RunWriter

    folder = tmp_path / "h"
    writer = RunWriter.open(folder, {"suite": "smoke"}, started=START, commit="c", token="t")
    with HistoryIndex(place) as one:
        for number in range(3):
            writer.write(line(measured(slug=f"b{number}+s")))
            one.update(folder)
            assert one.rows() == list(metric_rows(History(folder).runs()))
        (run,) = one.runs()
        assert not run.complete
        writer.close(exit_code=0)
        one.update(folder)
        (run,) = one.runs()
        assert run.complete
