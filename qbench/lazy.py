"""Front doors that load nothing: each name of a room comes out of its file when it is first asked for (PEP 562).

A suite is expanded from names and small numbers; the process that does so must not pay for numpy, onnx and engines.

An interrupt, SIGTERM too, waits until a file is loaded: numpy and onnx that are loaded by half cannot be loaded again
in the process, and what has to be written at the end of an interrupted run needs them.
"""

import contextlib
import importlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any

Door = tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]


@contextlib.contextmanager
def loaded_whole() -> Iterator[None]:
    """SIGINT and SIGTERM that come inside the block are handled at its end, where Python code handles them.

    So SIGTERM waits inside ``ended_like_interrupted``; where the system handles it, it ends the process at once.
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


def open_on_use(package: str, files: Mapping[str, tuple[str, ...]]) -> Door:
    """What ``package``'s ``__init__`` calls ``__getattr__``, ``__dir__`` and ``__all__``.

    Args:
        package: its ``__name__``. files: file (or room) below it → the names that file gives.
    """
    owners = {name: file for file, names in files.items() for name in names}

    def load(name: str) -> Any:  # noqa: ANN401 - whatever the file gives
        if name not in owners:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        with loaded_whole():
            value = getattr(importlib.import_module(f"{package}.{owners[name]}"), name)
        setattr(sys.modules[package], name, value)  # asked once: from now on a plain attribute
        return value

    def listed() -> list[str]:
        return sorted({*vars(sys.modules[package]), *owners})

    return load, listed, sorted(owners)
