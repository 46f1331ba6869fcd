"""Memory → words: runs as a terminal summary, a Markdown page, an offline HTML page and PNG charts."""

from qbench.reporting.assembly import build_report, build_reports
from qbench.reporting.html import html_page
from qbench.reporting.markdown import markdown_text
from qbench.reporting.terminal import PYTEST_MARKUP, RICH_STYLES, Line, styled_lines, summary_lines, summary_text
from qbench.reporting.view import CellKey, CellView, MetricView, Report
from qbench.reporting.writing import KINDS, write_reports

__all__ = [
    "KINDS",
    "PYTEST_MARKUP",
    "RICH_STYLES",
    "CellKey",
    "CellView",
    "Line",
    "MetricView",
    "Report",
    "build_report",
    "build_reports",
    "html_page",
    "markdown_text",
    "styled_lines",
    "summary_lines",
    "summary_text",
    "write_reports",
]
