"""What the suites in this folder name beside qbench's own."""

from bias_and_scale import EXTENSION

from qbench import Extension


def pytest_qbench_extension(config: object) -> Extension:
    """The schemas of bias-and-scale.qbench.toml."""
    return EXTENSION
