"""Memory → words: runs as a terminal summary, a Markdown page, an offline HTML page and PNG charts."""

from qbench.reporting.assembly import NOTHING, Memory, build_report, build_reports, read_memory, remember
from qbench.reporting.columns import READ
from qbench.reporting.export import EXPORT_FORMATS, EXPORT_KEYS, cell_facts, export_pieces, export_text
from qbench.reporting.findings_view import Found, found_text
from qbench.reporting.github import add_step_summary, annotations, step_summary
from qbench.reporting.html import compare_page, finding_page, html_pages
from qbench.reporting.markdown import markdown_text
from qbench.reporting.progress import WINDOW, Pace, Recent, last_seconds, left_text, recent_runs
from qbench.reporting.report import Report
from qbench.reporting.run_comparison import Comparison, compare, newest_comparison
from qbench.reporting.terminal import PYTEST_MARKUP, RICH_STYLES, Line, styled_lines, summary_lines, summary_text
from qbench.reporting.view import CellKey, CellView, MetricView
from qbench.reporting.writing import KINDS, front_pages, write_comparison, write_reports

__all__ = [
    "EXPORT_FORMATS",
    "EXPORT_KEYS",
    "KINDS",
    "NOTHING",
    "PYTEST_MARKUP",
    "READ",
    "RICH_STYLES",
    "WINDOW",
    "CellKey",
    "CellView",
    "Comparison",
    "Found",
    "Line",
    "Memory",
    "MetricView",
    "Pace",
    "Recent",
    "Report",
    "add_step_summary",
    "annotations",
    "build_report",
    "build_reports",
    "cell_facts",
    "compare",
    "compare_page",
    "export_pieces",
    "export_text",
    "finding_page",
    "found_text",
    "front_pages",
    "html_pages",
    "last_seconds",
    "left_text",
    "markdown_text",
    "newest_comparison",
    "read_memory",
    "recent_runs",
    "remember",
    "step_summary",
    "styled_lines",
    "summary_lines",
    "summary_text",
    "write_comparison",
    "write_reports",
]
