"""SIGTERM as an interrupt, so that a run that another program ends keeps what it measured and says so."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def ended_like_interrupted() -> Iterator[None]:
    """Inside the block the first SIGTERM raises KeyboardInterrupt in the main thread; a second one ends the process.

    Where SIGTERM is handled or ignored already, or this is not the main thread, nothing changes.
    """
    is_ours = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if not is_ours or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _interrupt(number: int, frame: FrameType | None) -> None:
    del frame
    signal.signal(number, signal.SIG_DFL)
    raise KeyboardInterrupt
