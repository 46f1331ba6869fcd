"""Whether a text names a function that makes a model; it loads nothing, since suites are read by it
when tests are collected.
"""

import re
from pathlib import Path

_FACTORY = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


def is_factory(text: str) -> bool:
    """Whether ``text`` is ``module:factory`` and no file."""
    return _FACTORY.fullmatch(text) is not None and not Path(text).exists()
