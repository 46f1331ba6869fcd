"""A history behind s3://, against a server on this computer: two writers of one key, outages,
expired credentials, a store that is read-only.
"""

import datetime
import socket
import threading

import pytest
from object_server import BUCKET, HOST, SECRETS, ObjectServer

from qbench.errors import StoreError
from qbench.storage import ObjectFolder, PlaceError, place_of
from qbench.storage.places import SCHEMES, _file_system
from qbench.tracking import History, NotStoredError, ObjectStore, RunWriter, history_at

pytestmark = pytest.mark.slow

URL = f"s3://{BUCKET}/history"
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.setenv("QBENCH_CACHE", str(tmp_path / "cache"))
    server = ObjectServer.of_test(monkeypatch)
    yield server
    server.end()


def begun(place, token="t"):
    writer = RunWriter.open(place, {"suite": "smoke"}, started=START, commit="c0ffee1", token=token)
    writer.write({"type": "note", "text": token * 20000})
    return writer


def without_secrets(text):
    assert not [secret for secret in SECRETS if secret in text]
    return text


def test_a_run_is_stored_and_read(server):
    begun(history_at(URL)).close(exit_code=0)
    begun(history_at(URL), "u").abandon()
    runs = History(history_at(URL)).runs()
    assert [(run.complete, run.notes[0][:1]) for run in runs] == [(True, "t"), (False, "u")]
    assert all(run.path.startswith(f"{URL}/2026") for run in runs)


def test_of_two_writers_of_one_key_one_wins(server):
    folder = place_of(URL)
    outcomes = []
    ready = threading.Barrier(8)

    def create(number):
        ready.wait()
        try:
            folder.create("run.begun", str(number).encode())
            outcomes.append(number)
        except FileExistsError:
            outcomes.append(None)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = [one for one in outcomes if one is not None]
    assert folder.read("run.begun") == str(winner).encode()
    assert len(outcomes) == 8


def test_a_large_run_is_one_object_too(server, monkeypatch):
    monkeypatch.setattr("s3fs.S3FileSystem._pipe_file.__defaults__", (5 << 20, None, "overwrite"))
    folder = place_of(URL)
    content = bytes(range(256)) * (12 << 12)
    folder.create("large.jsonl", content)
    with pytest.raises(FileExistsError):
        folder.create("large.jsonl", content[1:])
    assert folder.read("large.jsonl") == content


def test_a_server_that_stops_in_the_middle_ends_nothing(server):
    store = ObjectStore(place_of(URL), goes_on=True)
    writer = begun(store)
    server.stop()
    with pytest.raises(NotStoredError) as caught:
        writer.close(exit_code=0)
    assert "no connection to the store" in without_secrets(str(caught.value))
    assert History(store).runs()[0].complete
    with pytest.raises(PlaceError):
        History(history_at(URL)).runs()
    server.start()
    assert History(history_at(URL)).runs()[0].complete  # from the spool
    begun(history_at(URL), "u").close(exit_code=0)
    assert sorted(name.rpartition(".")[2] for name in place_of(URL).listing()) == [
        *["begun"] * 2,
        *["jsonl"] * 2,
    ]
    assert not [*store.spool.iterdir()]


@pytest.mark.parametrize(
    ("refuses", "words"), [("expired", "expired credentials"), ("read-only", "no permission")]
)
def test_a_store_that_refuses_keeps_the_run_here(server, refuses, words):
    server.refuses = refuses
    store = ObjectStore(place_of(URL), goes_on=True)
    writer = begun(store)
    with pytest.raises(NotStoredError) as caught:
        writer.close(exit_code=0)
    assert words in without_secrets(str(caught.value))
    assert len([*store.spool.glob("*.jsonl")]) == 1
    server.refuses = ""
    again = history_at(URL)
    begun(again, "u").close(exit_code=0)
    assert len(History(again).runs()) == 2
    assert [*again.take_notices()]


def test_no_bucket_is_said(server):
    with pytest.raises(StoreError, match="no such bucket"):
        History(history_at("s3://other-nights/history")).runs()
    with pytest.raises(StoreError, match="no such bucket"):
        ObjectFolder("s3", "other-nights/history").create("x", b"")


def test_no_credentials_are_said(server, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    from qbench.storage.places import _file_system

    _file_system.cache_clear()
    with pytest.raises(StoreError, match="no credentials"):
        place_of(URL).create("x", b"")


def test_a_server_that_takes_connections_and_never_answers_is_left_after_two_tries(monkeypatch):
    pytest.importorskip("s3fs")
    settings = SCHEMES["s3"].options["config_kwargs"]
    tries = settings["retries"]["total_max_attempts"]
    # a try without an answer, and between two at most two seconds: less than the 20 s of a hang
    assert tries * settings["read_timeout"] + 2 * (tries - 1) < 20
    silent = socket.create_server((HOST, 0))
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{HOST}:{silent.getsockname()[1]}")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, SECRETS[0])
    monkeypatch.setitem(settings, "read_timeout", 0.2)
    _file_system.cache_clear()
    with silent, pytest.raises(PlaceError, match="no answer in time"):
        place_of(URL).read("run.begun")
    _file_system.cache_clear()
