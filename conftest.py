"""This repository's own determinism: one thread for every numeric library, and the same seeds
before every test.

And bytecode is kept, whatever the shell says: tests start many processes, and each would compile
    all of qbench anew.
"""

import gc
import os
import random
import sys

import pytest

for library in ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "VECLIB_MAXIMUM"):
    os.environ.setdefault(
        f"{library}_NUM_THREADS", "1"
    )  # read when the library is first loaded, hence here
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

pytest_plugins = ["pytester"]


def pytest_collection_finish() -> None:
    """Thousands of tests stay: no collection of garbage is to look at them again."""
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:  # noqa: ARG001 - the name is the hook's
    """Seed whatever draws random numbers."""
    random.seed(0)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(0)
