"""Front doors that load nothing: each name of a room comes out of its file when it is first asked for (PEP 562).

A suite is expanded from names and small numbers; whoever does so must not pay for numpy, onnx and every engine.
"""

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

Door = tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]


def open_on_use(package: str, files: Mapping[str, tuple[str, ...]]) -> Door:
    """What ``package``'s ``__init__`` calls ``__getattr__``, ``__dir__`` and ``__all__``.

    Args:
        package: its ``__name__``. files: file (or room) below it → the names that file gives.
    """
    owners = {name: file for file, names in files.items() for name in names}

    def load(name: str) -> Any:  # noqa: ANN401 - whatever the file gives
        if name not in owners:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        value = getattr(importlib.import_module(f"{package}.{owners[name]}"), name)
        setattr(sys.modules[package], name, value)  # asked once: from now on a plain attribute
        return value

    def listed() -> list[str]:
        return sorted({*vars(sys.modules[package]), *owners})

    return load, listed, sorted(owners)
