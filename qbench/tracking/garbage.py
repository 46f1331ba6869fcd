"""Two years of results are millions of objects and no cycles: looking for these takes up to a third of the time."""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def without_collector() -> Iterator[None]:
    """What is not used any more is freed as ever; only cycles stay until the collector runs again behind this."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
