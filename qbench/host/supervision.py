"""A process that ends before its work does, whatever its exit code: noticed from outside, or
from within.
"""

import contextlib
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import NoReturn

_PR_SET_PDEATHSIG = 1
_SI_KERNEL = 0x80
"""``si_code`` of a signal by the terminal, which every process of the foreground group receives
(signal.h).
"""
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_supervised(act: Callable[[], int], ended_early: Callable[[str], int]) -> int:
    """The exit code of ``act``, run in a child process that shares all streams.

    An engine can end its process with code 0, by ``os._exit(0)`` or the ``exit(0)`` of C. Only
    another process can tell this from the end of the work. The child is a fork, so call this before
    threads exist. Where the system does not offer that, ``act`` runs in this process.

    Args:
        act: returns an exit code from 0 to 255.
        ended_early: receives how the child ended without returning from ``act``; its exit code.
    """
    if not (hasattr(os, "fork") and hasattr(signal, "sigwaitinfo")):
        return act()
    sys.stdout.flush()
    sys.stderr.flush()
    reader, writer = os.pipe()
    # where it is inherited as ignored, no child would be waited for
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (*_PASSED_ON, signal.SIGCHLD))
    child = os.fork()
    if child == 0:
        os.close(reader)
        _end_with_parent()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        code = act()
        os.write(writer, bytes([code]))
        return code
    os.close(writer)
    status = _waited(child)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    # a process that the child left behind may hold the other end open
    os.set_blocking(reader, False)
    with open(reader, "rb", buffering=0) as words:
        word = words.read(1)
    if word:
        return os.waitstatus_to_exitcode(status) or word[0]
    return ended_early(_end_text(status))


def _waited(child: int) -> int:
    """The status of ``child`` once it has ended; signals that only this process receives are
    passed on to it.
    """
    while True:
        found = signal.sigwaitinfo((*_PASSED_ON, signal.SIGCHLD))
        if found.si_signo != signal.SIGCHLD:
            if found.si_code != _SI_KERNEL:
                os.kill(child, found.si_signo)
            continue
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status


def _end_with_parent() -> None:
    """Let the system kill this process when its parent is killed."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _end_text(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return f"with code {code}" if code >= 0 else f"by signal {signal.Signals(-code).name}"


EARLY_END = 2
"""The exit code of a process that ends early: that of pytest for an interrupted session."""


_ENDING = ("_exit", "execv", "execve")
"""Functions of ``os`` that end what this process does; the other ``exec`` functions call the
last two.
"""


@contextlib.contextmanager
def early_end_noticed(
    say: Callable[[str], None], result: Callable[[], int] | None = None
) -> Iterator[None]:
    """Inside the block ``os._exit`` and ``os.exec…`` raise SystemExit, and the ``exit`` of C
    gives ``EARLY_END``.

    In another thread they end the process with ``EARLY_END``. Processes that are forked inside the
    block end as usual. After the block, ``os._exit(0)`` ends the process with its result: engines
    register it with ``atexit``, so that nothing of theirs is torn down. What remains unnoticed is
    the ``_exit`` of C, a system call, and an ``os._exit`` that was looked up before the block: only
    ``run_supervised`` sees these.

    Args:
        say: receives a sentence before the process ends.
        result: the exit code of the work, called after the block; None: there ``os._exit`` is what
            it was.
    """
    kept, here = {name: getattr(os, name) for name in _ENDING}, os.getpid()
    plain = os._exit

    def guarding(name: str) -> Callable[..., NoReturn]:
        def guarded(*given: object, **named: object) -> NoReturn:
            if os.getpid() != here:
                kept[name](*given, **named)
            what = next(iter((*given, *named.values())), "")
            if threading.current_thread() is threading.main_thread():
                raise SystemExit(f"os.{name}({what}) was called")
            say(f"os.{name}({what}) was called in a thread of the process that measures")
            status = what if name == "_exit" and isinstance(what, int) else 0
            plain(status or EARLY_END)

        return guarded

    def afterwards(status: int) -> NoReturn:
        own = 0 if os.getpid() != here or result is None else result()
        plain(status or own)

    def at_exit(_: object) -> None:
        if os.getpid() == here:
            say("the exit function of C was called in the process that measures")
            plain(EARLY_END)

    for name in _ENDING:
        setattr(os, name, guarding(name))
    try:
        with _before_c_exit(at_exit):
            yield
    finally:
        for name, function in kept.items():
            setattr(os, name, function)
        if result is not None:
            os._exit = afterwards


@contextlib.contextmanager
def _before_c_exit(act: Callable[[object], None]) -> Iterator[None]:
    """Inside the block the ``exit`` of C calls ``act`` first; only with glibc, which can
    withdraw that again.

    ``__cxa_atexit`` registers it under a handle, by which ``__cxa_finalize`` calls and removes it
    (Itanium C++ ABI, section 3.3.6.3).
    """
    try:
        os.confstr("CS_GNU_LIBC_VERSION")
        library = ctypes.CDLL(None)
        register, withdraw = library["__cxa_atexit"], library["__cxa_finalize"]
    except (ValueError, OSError, AttributeError):
        yield
        return
    is_inside = True
    handle = ctypes.create_string_buffer(1)
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(
        lambda given: act(given) if is_inside else None
    )
    address = ctypes.c_void_p(ctypes.addressof(handle))
    register(function, None, address)
    try:
        yield
    finally:
        is_inside = False
        withdraw(address)
