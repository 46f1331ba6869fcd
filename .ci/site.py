"""What the documentation site has out of the code: the pages of the commands and of the Python
interface.

MkDocs calls these functions by their names (``hooks`` of mkdocs.yml).
"""

import argparse
import ast
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
# Grouped as a reader looks for them; what the public interface has more is listed at the end.
API = {
    "Measure a cell": ("measure_cell", "localize"),
    "Quantize a model": ("load_model", "save_model", "calibrate", "make_plan", "quantize_model"),
    "Run a model": ("get_backend",),
    "Numbers": (
        *(
            "QType",
            "QParams",
            "choose_qparams",
            "quantize",
            "dequantize",
            "fake_quantize",
            "fake_quantize_grad",
        ),
        *("get_arithmetic", "list_arithmetics", "requantize", "add_quantized"),
    ),
    "Statistics": ("mcnemar_midp", "paired_interval", "find_change_points"),
}


def on_files(files: Any, *, config: Any) -> Any:  # noqa: ANN401 - MkDocs' own types
    """Adds the generated pages."""
    from mkdocs.structure.files import File

    for name, content in (("commands.md", commands()), ("api.md", api())):
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Links to files of the repository that are no pages become plain text:
    the site has no copy of them.
    """
    return re.sub(r"\[([^\]]*)\]\((?:\.\./)+(?!docs/)[^)]*\)", r"\1", markdown)


def commands() -> str:
    """Every verb with the text of its --help."""
    from qbench.cli.program import COMMANDS, build_parser

    parts = [
        "# Commands\n\nThis page is the output of `qbench COMMAND --help`, made when the site is "
        "built.\n\n"
        "| exit code | meaning |\n|---|---|\n| 0 | fine |\n"
        "| 1 | a gate failed, or what was asked for differs |\n"
        "| 2 | wrong usage or bad input |\n| 3 | nothing could be compared |\n"
        "| 4 | a run was not complete |\n"
    ]
    verbs = _choices(build_parser())
    for command in COMMANDS:
        parts.append(f"## qbench {command.name}\n")
        parsers = (verbs[command.name], *_choices(verbs[command.name]).values())
        parts.extend(f"```text\n{parser.format_help().rstrip()}\n```\n" for parser in parsers)
    return "\n".join(parts)


def _choices(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The sub-commands of a parser by name."""
    actions = [
        action
        for action in parser._actions  # noqa: SLF001
        if isinstance(action, argparse._SubParsersAction)  # noqa: SLF001
    ]
    return {name: one for action in actions for name, one in action.choices.items()}


def public_names() -> dict[str, str]:
    """Name → module of everything that ``import qbench`` offers."""
    tree = ast.parse((ROOT / "qbench" / "__init__.py").read_text(encoding="utf-8"))
    imports = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module != "typing"
    ]
    return {
        alias.name: node.module
        for node in imports
        for alias in node.names
        if node.module and node.module != "qbench.lazy"
    }


def api() -> str:
    """The public interface, from the docstrings."""
    public = public_names()
    grouped = {name for names in API.values() for name in names}
    groups = {**API, "Everything else": tuple(sorted(set(public) - grouped))}
    parts = [
        "# Python\n\nAll names are importable from `qbench`. `import qbench` alone loads neither "
        "numpy nor onnx.\n"
    ]
    for title, names in groups.items():
        parts.append(f"## {title}\n")
        parts.extend(
            f"::: {public[name]}.{name}\n    options: {{heading_level: 3}}\n" for name in names
        )
    return "\n".join(parts)
