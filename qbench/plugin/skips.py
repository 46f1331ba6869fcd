"""What users raise to skip a test, and what ends a session: neither is an error of a cell."""

import unittest

import pytest

ENDS_SESSION = (KeyboardInterrupt, pytest.exit.Exception)
"""What pytest itself raises from any item: the session ends, and the item has no result."""

_SKIPS = (pytest.skip.Exception, pytest.xfail.Exception, unittest.SkipTest)


def is_skip(error: BaseException) -> bool:
    """Whether ``error`` says that a test does not apply: ``pytest.skip``, ``importorskip``,
    ``xfail``, ``SkipTest``.
    """
    return isinstance(error, _SKIPS)


def skip_reason(error: BaseException) -> str:
    """The reason that a skip gives, on one line."""
    return " ".join(str(error).split()) or "no reason"
