"""Gives pytest the store: every run of qbench in this folder is written into one database."""

from table_store import TableStore


def pytest_qbench_history_store(config):
    return TableStore(config.rootpath / "history.db")
