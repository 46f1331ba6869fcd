"""The command line: one file a command; each imports what it needs only when it is run."""

from qbench.cli.program import main

__all__ = ["main"]
