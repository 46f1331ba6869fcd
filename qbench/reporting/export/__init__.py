"""Runs in other tools' formats: tables, JUnit, dashboards."""

from qbench.reporting.export.formats import EXPORT_FORMATS, EXPORT_KEYS, export_pieces, export_text
from qbench.reporting.export.junit import cell_facts

__all__ = ["EXPORT_FORMATS", "EXPORT_KEYS", "cell_facts", "export_pieces", "export_text"]
