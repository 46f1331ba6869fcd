"""Installed versions, this computer in plain values, and the one place that reads a clock."""

import datetime
import os
import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version

from qbench.host.processor import architecture, probe_dot_product, processor_class, processor_features, processor_name

# Versions of installed packages, without importing them.


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


# This computer in plain values, for the environment line of a run file; nothing that names a person or a place.

Fact = str | int | list[str] | dict[str, str]
COUNTING_PACKAGES = ("numpy", "onnx", "onnx-ir", "onnxruntime", "pillow", "pytest-qbench")
"""The packages whose version every run records."""


def describe_host(packages: Iterable[str] = COUNTING_PACKAGES) -> dict[str, Fact]:
    """Processor, features, operating system, Python and package versions. No host name, user name or path."""
    return {
        "processor_class": processor_class(),
        "processor_name": processor_name(),
        "architecture": architecture(),
        "dot_product": probe_dot_product().value,
        "features": list(processor_features()),
        "cores": os.cpu_count() or 0,
        "system": platform.system(),
        "python": python_version(),
        "packages": package_versions(packages),
    }


# The one place that reads a clock; all other code gets a time as an argument.


def utc_now() -> datetime.datetime:
    """Now, in UTC."""
    return datetime.datetime.now(datetime.UTC)


def utc_today() -> datetime.date:
    """Today's date in UTC: what expiry dates are compared with."""
    return utc_now().date()
