"""Memory → words: runs as a terminal summary, a Markdown page, an offline HTML page and PNG charts."""

from qbench.reporting.assembly import build_report, build_reports
from qbench.reporting.compared import Comparison, compare, newest_comparison
from qbench.reporting.markdown import markdown_text
from qbench.reporting.recent import WINDOW, Recent, recent_runs
from qbench.reporting.site import compare_page, html_pages
from qbench.reporting.terminal import PYTEST_MARKUP, RICH_STYLES, Line, styled_lines, summary_lines, summary_text
from qbench.reporting.view import CellKey, CellView, MetricView, Report
from qbench.reporting.writing import KINDS, write_reports

__all__ = [
    "KINDS",
    "PYTEST_MARKUP",
    "RICH_STYLES",
    "WINDOW",
    "CellKey",
    "CellView",
    "Comparison",
    "Line",
    "MetricView",
    "Recent",
    "Report",
    "build_report",
    "build_reports",
    "compare",
    "compare_page",
    "html_pages",
    "markdown_text",
    "newest_comparison",
    "recent_runs",
    "styled_lines",
    "summary_lines",
    "summary_text",
    "write_reports",
]
