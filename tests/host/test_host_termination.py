"""SIGTERM is an interrupt inside the block, once;
an interrupt waits until what is loaded is whole.
"""

import os
import signal
import subprocess
import sys

import pytest

from qbench.host import ended_like_interrupted
from qbench.lazy import loaded_whole


def test_the_first_sigterm_interrupts_and_the_next_is_the_systems():
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    after = []

    def ended():
        with ended_like_interrupted():
            try:
                os.kill(os.getpid(), signal.SIGTERM)
            finally:
                after.append(signal.getsignal(signal.SIGTERM))

    with pytest.raises(KeyboardInterrupt):
        ended()
    assert after == [signal.SIG_DFL]
    with ended_like_interrupted():
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_handler_that_is_there_stays(monkeypatch):
    plain = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with ended_like_interrupted():
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, plain)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_waits_for_what_is_loaded(number):
    done = []

    def load():
        with ended_like_interrupted(), loaded_whole():
            with loaded_whole():
                os.kill(os.getpid(), number)
                done.append("inner")
            done.append("outer")

    with pytest.raises(KeyboardInterrupt):
        load()
    assert done == ["inner", "outer"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_load_keeps_no_signal_from_the_system():
    with loaded_whole():
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


HANGING = """
import ctypes
from qbench.host import ended_like_interrupted
with ended_like_interrupted(grace_s=0.2):
    # Native code that no signal ends: it returns when its own child does, which says that the
    # call has begun.
    ctypes.CDLL(None).system(b"echo ready; read line")
"""


def test_a_process_that_hangs_in_code_of_an_engine_is_ended():
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", HANGING], **pipes, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=600) == 128 + signal.SIGTERM
