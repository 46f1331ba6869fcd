"""Runs in other tools' formats: tables, JUnit, dashboards."""

from qbench.reporting.export.formats import EXPORT_FORMATS, export_text

__all__ = ["EXPORT_FORMATS", "export_text"]
