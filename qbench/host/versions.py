"""Versions of installed packages, without importing them."""

import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version


def package_versions(names: Iterable[str]) -> dict[str, str]:
    """Distribution name → installed version; a name that is not installed is left out."""
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def python_version() -> str:
    """``3.11.9``."""
    return platform.python_version()
