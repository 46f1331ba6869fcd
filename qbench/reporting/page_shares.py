"""Drawing many pages in several processes, each with a share of them.

Pages of a large suite take longer than reading its history. They are drawn from one value that
nothing changes any more, so that forks of this process share its memory, and only the number of a
page travels. Each process takes the next page that none has taken, and this process takes part:

- The numbers are in a pipe before the first fork, and its writing end is closed. A process that
  finds none is done; none waits for another one, and a process that is killed holds nothing.
- A fork that fails says nothing. This process then draws the pages that it did not draw itself, so
  that an error is raised here, as without forks, and a page whose process was killed is drawn.
- A fork whose parent is gone ends after its page.
"""

import contextlib
import gc
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from qbench.working import untold

if TYPE_CHECKING:
    from multiprocessing.context import ForkProcess

MOST_PROCESSES = 4
FEWEST_PAGES = 48
"""Pages of which more than one process draw; fewer take no longer than a second."""
_NUMBER, _MOST_NUMBERS = 4, 1_000
"""Bytes of a number in the pipe, and how many fit into the smallest pipe, of 4,096 bytes."""


def draw_shares(draw: Callable[[int], object], count: int, *, fewest: int = FEWEST_PAGES) -> None:
    """Call ``draw`` with each number below ``count``, in several processes where that is worth it.

    What ``draw`` does must be seen outside its process, as a file is. Those that take longest come
    first. Where this process has other threads, or the system no fork that is safe, there is one
    process.

    Args:
        fewest: with fewer numbers there is one process.

    Raises:
        Exception: what ``draw`` raises; the numbers after it may have been drawn.
    """
    forks = min(MOST_PROCESSES, _cores()) - 1 if count >= fewest else 0
    if not forks:
        for number in range(count):
            draw(number)
        return
    reader = _numbers_of(-(-count // _MOST_NUMBERS), count)
    drawn: set[int] = set()
    own = os.getpid()
    try:
        children = _forked(lambda: _draw_all(draw, reader, count, own), forks)
        try:
            for number in _taken(reader, count):
                draw(number)
                drawn.add(number)
        finally:
            for _ in _taken(reader, count):  # after an error: they find none and end
                pass
            for child in children:
                child.join()
    finally:
        os.close(reader)
    if any(child.exitcode for child in children):
        for number in range(count):
            if number not in drawn:
                draw(number)


def _cores() -> int:
    """The cores that this process may use; 1 where the system has no fork that is safe."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1


def _numbers_of(step: int, count: int) -> int:
    """A pipe to read each ``step``-th number below ``count`` from, and then its end."""
    reader, writer = os.pipe()
    with open(writer, "wb", buffering=0) as file:
        file.write(b"".join(n.to_bytes(_NUMBER, "little") for n in range(0, count, step)))
    return reader


def _taken(reader: int, count: int) -> Iterator[int]:
    """The numbers that this process takes from the pipe: no other process takes the same."""
    step = -(-count // _MOST_NUMBERS)
    while taken := os.read(reader, _NUMBER):
        first = int.from_bytes(taken, "little")
        yield from range(first, min(first + step, count))


def _forked(act: Callable[[], None], count: int) -> list["ForkProcess"]:
    """``count`` forks of this process that ``act``; fewer where it has threads or the system
    refuses one.
    """
    import multiprocessing

    context = multiprocessing.get_context("fork")
    children = [context.Process(target=act, daemon=True) for _ in range(count)]
    started = []
    with untold(), warnings.catch_warnings(), contextlib.suppress(OSError):
        # Python 3.12 warns of threads of any kind
        warnings.simplefilter("ignore", DeprecationWarning)
        for child in children if _has_one_thread() else ():
            child.start()
            started.append(child)
    return started


def _has_one_thread() -> bool:
    """Whether Python runs one thread, but for that of ``qbench.host`` which waits for a signal.

    That one holds no lock while it waits. Those of numpy's and of engines count for nothing: they
    hold no lock of Python, and a fork that draws never calls them.
    """
    return not {one.name for one in threading.enumerate()} - {"MainThread", "qbench-watch"}


def _draw_all(draw: Callable[[int], object], reader: int, count: int, parent: int) -> None:
    """What a fork does: exit code 1 after an error, and no word of it."""
    # a signal to this process is not told to the thread of its parent that waits for one
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    gc.freeze()  # a collection would write to all objects, and the pages of memory be copied
    try:
        for number in _taken(reader, count):
            if os.getppid() != parent:
                break
            draw(number)
    except BaseException:  # also an interrupt, which the parent receives too
        raise SystemExit(1) from None
