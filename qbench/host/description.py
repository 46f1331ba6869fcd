"""This computer in plain values, for the environment line of a run file; nothing that names a person or a place."""

import os
import platform
from collections.abc import Iterable

from qbench.host.probe import probe_dot_product
from qbench.host.processor import architecture, processor_class, processor_features, processor_name
from qbench.host.versions import package_versions, python_version
from qbench.storage import Plain

COUNTING_PACKAGES = ("numpy", "onnx", "onnx-ir", "onnxruntime", "pytest-qbench")
"""The packages whose version every run notes."""


def describe_host(packages: Iterable[str] = COUNTING_PACKAGES) -> dict[str, Plain]:
    """Processor, features, operating system, Python and package versions. No host name, user name or path."""
    features: list[Plain] = list(processor_features())
    versions: dict[str, Plain] = dict(package_versions(packages))
    return {
        "processor_class": processor_class(),
        "processor_name": processor_name(),
        "architecture": architecture(),
        "dot_product": probe_dot_product().value,
        "features": features,
        "cores": os.cpu_count() or 0,
        "system": platform.system(),
        "python": python_version(),
        "packages": versions,
    }
