"""The program that guards the run of a tool of other people.

It starts the tool in a process group of its own, watches its time, its memory and the folder that
it writes, and kills everything that it has started: at a limit, after its end, and when qbench
ends.
It speaks as ``worker`` does: one message with the run, one with how it ended.

    qbench → outer process → guard → tool → …

The outer process is what qbench kills. The guard then receives a signal, kills the tool and its
children, and ends. Processes whose parent has ended become children of the guard
(``PR_SET_CHILD_SUBREAPER``), so that none can leave it by forking twice.
"""

import contextlib
import ctypes
import fcntl
import os
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from qbench.backends.venv.worker import read_message, write_message

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_SIOCSIFFLAGS, _IFF_UP, _IFF_RUNNING = 0x8914, 0x1, 0x40
"""Of linux/prctl.h, linux/sched.h and linux/if.h."""
_LOOK_S = 0.2
"""Seconds between two looks at memory and disk: less time is spent on them than by the tool."""
_KEPT = 1 << 16
"""Bytes of the end of the output that are kept."""
_LINES = 20
_MB = 1_000_000
_PAGE = resource.getpagesize()
_ENDED_TRIES = 500
_PROCESSES = Path("/proc")
"""Where Linux lists processes. Elsewhere the process group of the tool is all that is known of
them: its memory is not watched, and what leaves the group is not killed.
"""


def main(descriptors: list[str]) -> None:
    """Guard one run; ``descriptors``: of the pipe that is read and of the one that is written."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # qbench handles an interrupt
    parent = os.getppid()
    guard = os.fork()
    if guard:
        _follow(guard, parent)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGTERM, lambda *_: _leave())
    reading, writing = map(int, descriptors[:2])
    with open(reading, "rb", buffering=0) as incoming, open(writing, "wb") as outgoing:
        try:
            header, _ = read_message(incoming)
        except (EOFError, OSError):
            return
        write_message(outgoing, _run(header), {})


def _follow(guard: int, parent: int) -> NoReturn:
    """Wait for the end of the guard, or of qbench."""
    while True:
        done, status = os.waitpid(guard, os.WNOHANG)
        if done:
            os._exit(abs(os.waitstatus_to_exitcode(status)))
        if os.getppid() != parent:
            os._exit(1)  # the guard receives a signal of the kernel
        time.sleep(_LOOK_S)


def _leave(tool: int | None = None) -> NoReturn:
    _kill_all(tool)
    os._exit(1)


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _run(asked: Mapping[str, Any]) -> dict[str, Any]:
    """How the tool ended.

    Args:
        asked: ``command``, ``folder``, ``environment``, ``timeout_s``, ``memory_mb``, ``disk_mb``.
    """
    is_offline = _close_network()
    limit = int(asked["disk_mb"] * _MB)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    began = time.monotonic()
    try:
        tool = subprocess.Popen(
            asked["command"],
            cwd=asked["folder"],
            env=asked["environment"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=lambda: _limited(limit),  # noqa: PLW1509 - the guard has one thread
        )
    except OSError as error:
        return {"error": {"kind": "OSError", "text": error.strerror or str(error)}}
    signal.signal(signal.SIGTERM, lambda *_: _leave(tool.pid))
    watch = _Watch(tool, asked, began)
    stopped = watch.follow()
    left = len(set(_descendants(os.getpid())) - {tool.pid})
    _kill_all(tool.pid)
    watch.read()
    return {
        "code": watch.code,
        "stopped": stopped,
        "seconds": time.monotonic() - began,
        "peak_mb": watch.peak / _MB,
        "left": left,
        "offline": is_offline,
        "watched": _PROCESSES.is_dir(),
        "said": watch.said[-_KEPT:].decode("utf-8", errors="replace").splitlines()[-_LINES:],
    }


def _limited(disk: int) -> None:
    """In the process of the tool, before it begins."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (disk, disk))


def _close_network() -> bool:
    """Move this process into a network of its own, which has a loopback and nothing else;
    False: the kernel does not let it.
    """
    library = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    try:
        if library.unshare(_CLONE_NEWNET) != 0:
            if library.unshare(_CLONE_NEWUSER | _CLONE_NEWNET) != 0:
                return False
            own = Path("/proc/self")
            (own / "setgroups").write_text("deny")
            (own / "uid_map").write_text(f"{user} {user} 1")
            (own / "gid_map").write_text(f"{group} {group} 1")
    except (OSError, AttributeError):
        return False
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_one:
        request = struct.pack("16sH22x", b"lo", _IFF_UP | _IFF_RUNNING)
        fcntl.ioctl(any_one, _SIOCSIFFLAGS, request)
    return True


class _Watch:
    """The run of ``tool``: ``said`` the end of its output, ``peak`` the most bytes of memory of
    it and its children, ``code`` its exit code; None: it was killed.
    """

    def __init__(
        self, tool: "subprocess.Popen[bytes]", asked: Mapping[str, Any], began: float
    ) -> None:
        self.said, self.peak = b"", 0
        self.code: int | None = None
        self._tool, self._asked, self._began = tool, asked, began
        self._is_open = True
        assert tool.stdout is not None
        os.set_blocking(tool.stdout.fileno(), False)

    def follow(self) -> str:
        """Wait for the end of the tool, or for a limit, whose name is returned; empty: it ended."""
        looked = 0.0
        while not self._has_ended():
            now = time.monotonic()
            if now - self._began > self._asked["timeout_s"]:
                return "time"
            if now - looked > _LOOK_S:
                looked = now
                self.peak = max(self.peak, sum(map(_resident, _descendants(os.getpid()))))
                if self.peak > self._asked["memory_mb"] * _MB:
                    return "memory"
                if _written(self._asked["folder"]) > self._asked["disk_mb"] * _MB:
                    return "disk"
            self.read(0.05)
        if _written(self._asked["folder"]) > self._asked["disk_mb"] * _MB:
            return "disk"
        return ""

    def read(self, seconds: float = 0.0) -> None:
        """Take what the tool has printed; wait for it for so long."""
        if not self._is_open or self._tool.stdout is None:
            time.sleep(seconds)
            return
        file = self._tool.stdout.fileno()
        while select.select([file], [], [], seconds)[0]:
            piece = os.read(file, _KEPT)
            if not piece:
                self._is_open = False
                return
            self.said = (self.said + piece)[-_KEPT:]
            seconds = 0.0

    def _has_ended(self) -> bool:
        """Whether the tool has; children that came to this process are taken from the table."""
        while True:
            try:
                done, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if not done:
                return False
            if done == self._tool.pid:
                self.code = self._tool.returncode = os.waitstatus_to_exitcode(status)
                self.peak = max(self.peak, usage.ru_maxrss * 1024)
                return True


def _kill_all(tool: int | None) -> None:
    """Kill the process group of ``tool``, and all descendants of this process until there are
    none.
    """
    if tool is not None:
        with contextlib.suppress(OSError):  # none of it is left
            os.killpg(tool, signal.SIGKILL)
    for _ in range(_ENDED_TRIES):
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        found = list(_descendants(os.getpid()))
        if not found:
            return
        for one in found:
            with contextlib.suppress(OSError):
                os.kill(one, signal.SIGKILL)
        time.sleep(0.01)


def _descendants(root: int) -> Iterator[int]:
    """The processes that ``root`` has started, and those that they have; none that have ended,
    and none where they are not listed.
    """
    children: dict[int, list[int]] = {}
    for entry in os.scandir(_PROCESSES) if _PROCESSES.is_dir() else ():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                text = Path(entry.path, "stat").read_text()
                state, parent = text.rpartition(")")[2].split()[:2]
                if state not in "ZX":
                    children.setdefault(int(parent), []).append(int(entry.name))
    waiting = list(children.get(root, ()))
    while waiting:
        one = waiting.pop()
        yield one
        waiting += children.get(one, ())


def _resident(process: int) -> int:
    """Bytes of memory of ``process``."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int((_PROCESSES / str(process) / "statm").read_text().split()[1]) * _PAGE
    return 0


def _written(folder: str) -> int:
    """Bytes on the disk of all files below ``folder``."""
    size, waiting = 0, [folder]
    while waiting:
        with contextlib.suppress(OSError):
            for entry in os.scandir(waiting.pop()):
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                else:
                    size += entry.stat(follow_symlinks=False).st_blocks * 512
    return size


if __name__ == "__main__":
    main(sys.argv[1:])
