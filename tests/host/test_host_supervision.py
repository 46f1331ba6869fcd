"""A process that ends before its work: seen by the one that waits for it, or from within."""

import subprocess
import sys

import pytest

SUPERVISED = """
import ctypes, os, signal, sys
from qbench.host import run_supervised

def act():
    {act}

sys.exit(run_supervised(act, lambda how: print(how) or 4))
"""

INSIDE = """
import ctypes, os, sys, threading
from qbench.host import early_end_noticed

with early_end_noticed(lambda sentence: print(sentence, flush=True)):
    {act}
{after}
"""


def run(text):
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("act", "code", "how"),
    [
        ("return 0", 0, ""),
        ("return 3", 3, ""),
        ("os._exit(0)", 4, "with code 0"),
        ("ctypes.CDLL(None).exit(0)", 4, "with code 0"),
        ("ctypes.CDLL(None)._exit(0)", 4, "with code 0"),
        ("sys.exit(0)", 4, "with code 0"),
        ("os.kill(os.getpid(), signal.SIGKILL)", 4, "by signal SIGKILL"),
    ],
)
def test_only_the_word_of_the_work_itself_is_its_exit_code(act, code, how):
    done = run(SUPERVISED.format(act=act))
    assert (done.returncode, done.stdout.strip()) == (code, how)


@pytest.mark.parametrize(
    ("act", "after", "code"),
    [
        ("pass", "", 0),
        ("pass", "os._exit(0)", 0),
        ("pass", "ctypes.CDLL(None).exit(0)", 0),
        ("os._exit(0)", "", 1),
        ("os.execv('/bin/true', ['true'])", "", 1),
        ("os.execlp('true', 'true')", "", 1),
        ("import subprocess; subprocess.run(['true'], check=True)", "", 0),
        ("os.waitpid(os.fork() or os.execv('/bin/true', ['true']), 0)", "", 0),
        ("ctypes.CDLL(None).exit(0)", "", 2),
        (
            "threading.Thread(target=os._exit, args=(0,)).start(); __import__('time').sleep(60)",
            "",
            2,
        ),
        ("os.waitpid(os.fork() or os._exit(0), 0)", "", 0),
        ("os.waitpid(os.fork() or ctypes.CDLL(None).exit(0), 0)", "", 0),
    ],
)
def test_a_process_that_ends_itself_with_0_ends_with_another_code(act, after, code):
    assert run(INSIDE.format(act=act, after=after)).returncode == code


@pytest.mark.parametrize(
    ("after", "code"),
    [
        ("os._exit(0)", 3),
        ("os._exit(5)", 5),
        ("import atexit; atexit.register(lambda: os._exit(0))", 3),
        ("import atexit; atexit.register(os._exit, 0)", 3),
        ("os.waitpid(os.fork() or os._exit(0), 0)", 0),
    ],
)
def test_after_the_work_its_result_is_the_exit_code(after, code):
    """Engines end the process in an exit handler, so that nothing of theirs is torn down."""
    text = INSIDE.format(act="pass", after=after).replace("flush=True))", "flush=True), lambda: 3)")
    assert run(text).returncode == code


def test_a_parent_that_ignores_its_children_does_not_wait_forever():
    """A shell's ``trap '' CHLD`` is inherited: the system then takes ended children away
    without a signal.
    """
    text = SUPERVISED.format(act="return 3")
    ignoring = "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)"
    assert run(f"{ignoring}\n{text}").returncode == 3
