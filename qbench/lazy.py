"""Lazy packages: a public name is loaded from its module when it is first used (PEP 562).

Expanding a suite needs only names and small numbers: a process that does so must not load numpy, onnx or engines.

An interrupt, SIGTERM too, waits until a module is loaded: numpy and onnx cannot be loaded again in the process after a
partial import, and the end of an interrupted run needs them to write its files.
"""

import contextlib
import importlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

Door = tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]


@contextlib.contextmanager
def loaded_whole() -> Iterator[None]:
    """Delay SIGINT and SIGTERM inside the block until its end, if their handlers are Python functions.

    SIGTERM has one inside ``ended_like_interrupted``; otherwise the system ends the process at once.
    """
    with _held_back(signal.SIGTERM), _held_back(signal.SIGINT):
        yield


@contextlib.contextmanager
def _held_back(number: signal.Signals) -> Iterator[None]:
    handler = signal.getsignal(number)
    if not callable(handler) or threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[FrameType | None] = []
    signal.signal(number, lambda _, frame: came.append(frame))
    try:
        yield
    finally:
        signal.signal(number, handler)
        if came:
            handler(number, came[0])


def open_on_use(package: str, file: str) -> Door:
    """``__getattr__``, ``__dir__`` and ``__all__`` of ``package``, whose ``__init__`` is ``file``.

    The names are read from the text of ``file``: each is a line ``from MODULE import NAME as NAME`` under its
    ``if TYPE_CHECKING``, as mypy and editors read it. They are not parsed: ``ast`` would cost more than the rest.
    """
    owners = {}
    with open(file, encoding="utf-8") as text:
        for line in text:
            match line.split():
                case ["from", module, "import", _, "as", name]:
                    owners[name] = module

    def load(name: str) -> Any:  # noqa: ANN401 - of any type
        if name not in owners:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        with loaded_whole():
            value = getattr(importlib.import_module(owners[name]), name)
        setattr(sys.modules[package], name, value)  # a plain attribute from now on
        return value

    def listed() -> list[str]:
        return sorted({*vars(sys.modules[package]), *owners})

    return load, listed, sorted(owners)
