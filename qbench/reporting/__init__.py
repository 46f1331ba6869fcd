"""Memory → words: runs as a terminal summary, a Markdown page, an offline HTML page and PNG
charts.
"""

from typing import TYPE_CHECKING

from qbench.lazy import open_on_use

if TYPE_CHECKING:
    from qbench.reporting.assembly import Memory as Memory
    from qbench.reporting.assembly import build_report as build_report
    from qbench.reporting.assembly import build_reports as build_reports
    from qbench.reporting.assembly import read_memory as read_memory
    from qbench.reporting.assembly import remember as remember
    from qbench.reporting.columns import READ as READ
    from qbench.reporting.distribution_png import check_plot as check_plot
    from qbench.reporting.distribution_png import write_distributions as write_distributions
    from qbench.reporting.export import EXPORT_FORMATS as EXPORT_FORMATS
    from qbench.reporting.export import EXPORT_KEYS as EXPORT_KEYS
    from qbench.reporting.export import cell_facts as cell_facts
    from qbench.reporting.export import export_pieces as export_pieces
    from qbench.reporting.export import export_text as export_text
    from qbench.reporting.findings_view import Found as Found
    from qbench.reporting.findings_view import found_text as found_text
    from qbench.reporting.github import add_step_summary as add_step_summary
    from qbench.reporting.github import annotations as annotations
    from qbench.reporting.github import badge_text as badge_text
    from qbench.reporting.github import comment_text as comment_text
    from qbench.reporting.github import comparison_with_main as comparison_with_main
    from qbench.reporting.github import step_summary as step_summary
    from qbench.reporting.html import compare_page as compare_page
    from qbench.reporting.html import finding_page as finding_page
    from qbench.reporting.html import html_pages as html_pages
    from qbench.reporting.html import proof_page as proof_page
    from qbench.reporting.html import sweep_page as sweep_page
    from qbench.reporting.markdown import markdown_text as markdown_text
    from qbench.reporting.places import ALL_KINDS as ALL_KINDS
    from qbench.reporting.places import GITHUB as GITHUB
    from qbench.reporting.places import KINDS as KINDS
    from qbench.reporting.places import read_repository as read_repository
    from qbench.reporting.progress import WINDOW as WINDOW
    from qbench.reporting.progress import Pace as Pace
    from qbench.reporting.progress import last_seconds as last_seconds
    from qbench.reporting.progress import recent_runs as recent_runs
    from qbench.reporting.proof_rows import PROOF_COLUMNS as PROOF_COLUMNS
    from qbench.reporting.proof_rows import ProofTable as ProofTable
    from qbench.reporting.proof_rows import how_text as how_text
    from qbench.reporting.proof_rows import proof_facts as proof_facts
    from qbench.reporting.proof_rows import proof_markdown as proof_markdown
    from qbench.reporting.proof_rows import proof_notes as proof_notes
    from qbench.reporting.proof_rows import proof_table as proof_table
    from qbench.reporting.proof_rows import share_sentence as share_sentence
    from qbench.reporting.report import Report as Report
    from qbench.reporting.run_comparison import compare as compare
    from qbench.reporting.run_comparison import newest_comparison as newest_comparison
    from qbench.reporting.sweep_picture import sweep_png as sweep_png
    from qbench.reporting.sweep_rows import SORTED_BY as SORTED_BY
    from qbench.reporting.sweep_rows import SORTS as SORTS
    from qbench.reporting.sweep_rows import SweepTable as SweepTable
    from qbench.reporting.sweep_rows import bytes_text as bytes_text
    from qbench.reporting.sweep_rows import loss_text as loss_text
    from qbench.reporting.sweep_rows import sweep_columns as sweep_columns
    from qbench.reporting.sweep_rows import sweep_facts as sweep_facts
    from qbench.reporting.sweep_rows import sweep_table as sweep_table
    from qbench.reporting.sweep_rows import time_text as time_text
    from qbench.reporting.terminal import PYTEST_MARKUP as PYTEST_MARKUP
    from qbench.reporting.terminal import RICH_STYLES as RICH_STYLES
    from qbench.reporting.terminal import Line as Line
    from qbench.reporting.terminal import styled_lines as styled_lines
    from qbench.reporting.terminal import summary_lines as summary_lines
    from qbench.reporting.view import MetricView as MetricView
    from qbench.reporting.writing import front_pages as front_pages
    from qbench.reporting.writing import write_comparison as write_comparison
    from qbench.reporting.writing import write_reports as write_reports
else:
    __getattr__, __dir__, __all__ = open_on_use(__name__, __file__)
