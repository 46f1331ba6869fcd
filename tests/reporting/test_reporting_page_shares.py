"""Pages drawn in several processes: the same bytes as in one, errors raised here, and nothing left
running.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading

import pytest
from reporting_histories import make_cell, make_run

from qbench.errors import StoreError
from qbench.reporting import page_shares, write_reports
from qbench.reporting.page_shares import draw_shares
from qbench.working import telling, untold

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="this system has no fork that is safe"
)


@pytest.fixture
def forks(monkeypatch):
    """The forks that are started; as on a computer with three cores, whose process has one
    thread: pytest has its own.
    """
    started = []
    real = page_shares._forked

    def forked(act, count):
        started.extend(real(act, count))
        return started

    monkeypatch.setattr(page_shares, "_forked", forked)
    monkeypatch.setattr(page_shares, "_cores", lambda: 3)
    monkeypatch.setattr(page_shares, "_has_one_thread", lambda: True)
    return started


def into(folder):
    def draw(number):
        with (folder / str(number)).open("x") as file:  # a second time is an error
            file.write(str(os.getpid()))

    return draw


def authors(folder):
    return {int(path.name): int(path.read_text()) for path in folder.iterdir()}


@pytest.mark.parametrize("count", [1, 7, 2_500])
def test_each_number_is_drawn_once(tmp_path, forks, count):
    draw_shares(into(tmp_path), count, fewest=0)
    found = authors(tmp_path)
    assert sorted(found) == list(range(count))
    assert set(found.values()) <= {os.getpid(), *(fork.pid for fork in forks)}
    assert [fork.exitcode for fork in forks] == [0, 0]
    assert not multiprocessing.active_children()


def test_few_numbers_and_a_process_with_threads_fork_nothing(tmp_path, forks, monkeypatch):
    draw_shares(into(tmp_path), 5)
    assert (len(authors(tmp_path)), forks) == (5, [])
    monkeypatch.undo()
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    try:
        assert page_shares._forked(lambda: None, 2) == []
    finally:
        ended.set()
        thread.join()


COMMAND = """
from qbench.host.termination import ended_like_interrupted
from qbench.reporting import page_shares
from qbench.working import telling

page_shares._cores = lambda: 3
with ended_like_interrupted(), telling(print):
    forks = page_shares._forked(lambda: None, 2)
    for one in forks:  # what is not waited for is ended by a signal when this process ends
        one.join()
    print(len(forks))
"""


def test_a_command_forks_beside_its_threads_that_wait_and_tell():
    done = subprocess.run(
        [sys.executable, "-c", COMMAND], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "2\n", "")


def test_an_error_of_a_fork_is_raised_here(tmp_path, forks):
    def draw(number):
        if number == 3:
            (tmp_path / f"by-{os.getpid()}").touch()
            raise StoreError("Writing", found="no space", expected="space", remedy="Make some.")

    with pytest.raises(StoreError, match="no space"):
        draw_shares(draw, 9, fewest=0)
    assert (tmp_path / f"by-{os.getpid()}").exists()
    assert not multiprocessing.active_children()


def test_what_a_fork_took_that_was_killed_is_drawn(tmp_path, forks):
    own = os.getpid()

    def draw(number):
        if os.getpid() != own:
            os.kill(os.getpid(), signal.SIGKILL)
        (tmp_path / str(number)).touch()

    draw_shares(draw, 60, fewest=0)
    assert len(list(tmp_path.iterdir())) == 60
    assert not multiprocessing.active_children()


def test_the_thread_that_tells_rests_meanwhile():
    def tellers():
        return [one for one in threading.enumerate() if one.name == "qbench-steps"]

    with telling(print):
        with untold():
            assert tellers() == []
        assert len(tellers()) == 1
    assert tellers() == []


@pytest.mark.slow
def test_a_site_has_the_same_bytes_from_one_process_and_from_several(tmp_path, forks, monkeypatch):
    def cells(suite, night):
        names = [(f"network_{m:02}", backend) for m in range(24) for backend in ("a", "b")]
        return [
            make_cell(model, backend, "w8a8_sym_pc", 0.001 * (night == 2), suite=suite)
            for model, backend in names
        ]

    runs = [
        make_run(cells(suite, night), night, suite=suite)
        for night, suite in enumerate(("mine", "theirs", "mine", "mine"))
    ]

    def site(folder):
        written = write_reports(runs, folder, ["html"])
        assert len(set(written)) == len(written)
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in written}

    several = site(tmp_path / "several")
    assert len(several) > 48
    assert [fork.exitcode for fork in forks] == [0, 0]
    monkeypatch.setattr(page_shares, "_cores", lambda: 1)
    one = site(tmp_path / "one")
    assert one == several
    assert list(one) == list(several)
    assert len(forks) == 2
