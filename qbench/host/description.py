"""This computer in plain values, for the environment line of a run file; nothing that names a person or a place."""

import os
import platform
from collections.abc import Iterable

from qbench.host.probe import probe_dot_product
from qbench.host.processor import architecture, processor_class, processor_features, processor_name
from qbench.host.versions import package_versions, python_version

Fact = str | int | list[str] | dict[str, str]
COUNTING_PACKAGES = ("numpy", "onnx", "onnx-ir", "onnxruntime", "pillow", "pytest-qbench")
"""The packages whose version every run notes."""


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
