"""What this process is doing, and a line about it every 30 s where standard error is no terminal.

Every package notes its long steps with ``working``; only a program that a person started tells
them, with ``telling``. A worker process notes its steps too, but these are not printed.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")
INTERVAL = 30.0
"""Seconds between two lines; shorter work has none."""
_MINUTE, _HOUR = 60, 3600


@dataclass(eq=False, slots=True)
class Step:
    """Something that may take long.

    Args:
        what: for the line.
        started: seconds of a monotonic clock.
        total: how many ``unit`` there are; 0: not known.
        done: how many of them are finished.
    """

    what: str
    started: float
    total: int = 0
    unit: str = ""
    done: int = 0

    def text(self) -> str:
        """``what``, with how much of it is done."""
        return f"{self.what}, {self.done} of {self.total} {self.unit}" if self.total else self.what

    def left(self, now: float) -> float | None:
        """Seconds still to go at ``now``, if the rest takes as long as what is done; None: no
        estimate.
        """
        if not self.total or not self.done:
            return None
        return (now - self.started) * (self.total - self.done) / self.done


_STEPS: list[Step] = []
"""What this process is doing, the outermost first; a step is in it from its beginning to its
end.
"""


@contextlib.contextmanager
def working(
    what: str, total: int = 0, unit: str = "", *, clock: Callable[[], float] = time.monotonic
) -> Iterator[Step]:
    """Inside the block this process does ``what``; count the ``done`` of the step up where
    there is a ``total``.
    """
    step = Step(what, clock(), total, unit)
    _STEPS.append(step)
    try:
        yield step
    finally:
        _STEPS.remove(step)


def each_told(what: str, values: Sequence[T], unit: str) -> Iterator[T]:
    """Each of ``values``; meanwhile this process does ``what``, and those before it are done."""
    with working(what, len(values), unit) as step:
        for step.done, value in enumerate(values):
            yield value


def left_text(seconds: float | None) -> str:
    """``about 40 s left``, ``about 12 min left``, ``about 1 h 20 min left``; empty for None."""
    if seconds is None:
        return ""
    if seconds < _MINUTE:
        return f"about {round(seconds)} s left"
    if seconds < _HOUR:
        return f"about {round(seconds / _MINUTE)} min left"
    hours, minutes = divmod(round(seconds / _MINUTE), _MINUTE)
    return f"about {hours} h {minutes} min left"


def steps_line(steps: Sequence[Step], now: float) -> str:
    """All ``steps`` at ``now``, the outermost first, and what is left of the outermost that has
    an estimate.
    """
    texts = dict.fromkeys(step.text() for step in steps)
    lefts = [left for left in (step.left(now) for step in steps) if left is not None]
    elapsed = f"{round(now - steps[0].started)} s so far"
    return "; ".join(
        [": ".join(texts), ", ".join(filter(None, (elapsed, left_text(next(iter(lefts), None)))))]
    )


def tell_steps(
    write: Callable[[str], object],
    wait: Callable[[float], bool],
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Write a line every ``INTERVAL`` until the end.

    Args:
        write: receives a line.
        wait: waits so many seconds; True at the end.
    """
    while not wait(INTERVAL):
        steps = tuple(_STEPS)
        if steps:
            with contextlib.suppress(OSError, ValueError):  # a stream that is closed
                write(f"qbench: {steps_line(steps, clock())}")


class _Teller:
    """The thread that tells what this process does, from ``start`` to ``stop``, again and again."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write

    def start(self) -> None:
        self._ended = threading.Event()
        self._thread = threading.Thread(
            target=tell_steps,
            args=(self._write, self._ended.wait),
            name="qbench-steps",
            daemon=True,
        )
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join(1)


_TELLING = threading.Lock()
_TELLERS: list[_Teller] = []
"""The one that tells, if any."""


@contextlib.contextmanager
def telling(write: Callable[[str], object]) -> Iterator[None]:
    """Inside the block a thread writes what this process does; one inside another writes
    nothing of its own.
    """
    if not _TELLING.acquire(blocking=False):
        yield
        return
    teller = _Teller(write)
    teller.start()
    _TELLERS.append(teller)
    try:
        yield
    finally:
        _TELLERS.remove(teller)
        teller.stop()
        _TELLING.release()


@contextlib.contextmanager
def untold() -> Iterator[None]:
    """Inside the block no thread tells anything, so that this process may fork."""
    tellers = tuple(_TELLERS)
    for teller in tellers:
        teller.stop()
    try:
        yield
    finally:
        for teller in tellers:
            teller.start()
