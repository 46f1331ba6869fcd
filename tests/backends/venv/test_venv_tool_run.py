"""The guard of tools on a system that does not list its processes."""

import sys
import time
from pathlib import Path

import pytest

from qbench.backends import ToolLimits, run_tool
from qbench.backends.venv import tool_run

BLIND = """
import sys
from pathlib import Path
from qbench.backends.venv import tool_guard
tool_guard._PROCESSES = Path("/no/such/folder")
tool_guard.main(sys.argv[1:])
"""
FORKS = """
import os, time
child = os.fork()
os.write(1, b'%d\\n' % os.getpid())
time.sleep({seconds})
if child:
    os.waitpid(child, 0)
"""


def state_of(process):
    """The letter of the state of ``process`` (proc(5)); X: it is gone."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


@pytest.mark.parametrize(("seconds", "stopped"), [(0, ""), (600, "time")])
def test_a_tool_runs_and_its_group_is_killed_where_processes_are_not_listed(
    tmp_path, monkeypatch, seconds, stopped
):
    monkeypatch.setattr(tool_run, "own_python", lambda _: [sys.executable, "-P", "-c", BLIND])
    limits = ToolLimits(timeout_s=10 if stopped else 120, memory_mb=1000, disk_mb=1000)
    command = [sys.executable, "-c", FORKS.format(seconds=seconds)]
    end = run_tool(command, folder=tmp_path, environment={}, limits=limits)
    assert end.stopped == stopped
    assert end.code == (None if stopped else 0)
    assert not end.watched
    assert len(end.said) == 2
    until = time.monotonic() + 60
    while any(state_of(line) not in "ZX" for line in end.said):
        assert time.monotonic() < until
        time.sleep(0.02)
