"""What has to hold in the process before any test: what is loaded once, and that it can be interrupted.

pytester forgets the modules that a test loaded; onnx's compiled part cannot be loaded twice in one process and ends it.

A shell that starts a job in the background lets it ignore interrupts, and its children inherit that: tests that send an
interrupt to a child would wait for nothing. A handler of our own is not inherited, so that children start as usual.
"""

import signal

import onnx  # noqa: F401

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
