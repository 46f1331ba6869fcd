"""The hooks that qbench adds to pytest."""

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from qbench.extension import Extension
    from qbench.tracking import HistoryStore


def pytest_qbench_extension(config: pytest.Config) -> "Extension | None":
    """Add models, data sets, backends, schemas and metrics: what an installed package does by
    its entry point.

    A conftest adds to the suites below its own folder.
    """


@pytest.hookspec(firstresult=True)
def pytest_qbench_processor(config: pytest.Config) -> str | None:
    """Name the class of this machine's processor instead of the probe: ``x64-avx2``."""


@pytest.hookspec(firstresult=True)
def pytest_qbench_history_store(config: pytest.Config) -> "HistoryStore | None":
    """Give the store that runs are written into and reports are made from, instead of the
    history folder.

    Called once in a session, by the process that pytest was started in.
    """


def pytest_qbench_update_record(config: pytest.Config, record: dict[str, Any]) -> None:
    """Change or add to the line of one cell before it is sent and written; plain values only."""
