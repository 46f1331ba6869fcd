"""SIGTERM as an interrupt, so that a run that another program ends keeps its measurements and
records how it ended.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_GRACE_S = 30.0
"""Seconds for Python code to receive the signal: an engine that hangs in native code never
returns to Python.
"""


@contextlib.contextmanager
def ended_like_interrupted(*, grace_s: float = _GRACE_S) -> Iterator[None]:
    """Inside the block the first SIGTERM raises KeyboardInterrupt in the main thread; a second
    one ends the process.

    Where the main thread does not return to Python within ``grace_s`` seconds, the process ends
    with code 143. Where SIGTERM is handled or ignored already, or this is not the main thread,
    nothing changes.
    """
    is_default = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if not is_default or threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived = threading.Event()

    def interrupt(number: int, frame: FrameType | None) -> None:
        del frame
        arrived.set()
        signal.signal(number, signal.SIG_DFL)
        raise KeyboardInterrupt

    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.signal(signal.SIGTERM, interrupt)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    watch = (reader, arrived, grace_s)
    threading.Thread(target=_watch, args=watch, name="qbench-watch", daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        arrived.set()
        os.close(writer)


def _watch(reader: int, arrived: threading.Event, grace_s: float) -> None:
    """End the process where a SIGTERM that the system delivered does not arrive in Python."""
    with open(reader, "rb", buffering=0) as numbers:
        while number := numbers.read(1):
            if number[0] == signal.SIGTERM and not arrived.wait(grace_s):
                os._exit(128 + signal.SIGTERM)
