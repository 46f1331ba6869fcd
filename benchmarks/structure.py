"""Count modules, lines and importers of the package, and print them as a table.

    python benchmarks/structure.py [ROOT …]
    python benchmarks/structure.py --write     writes the list of modules into docs/architecture.md
    python benchmarks/structure.py --check     fails where that page is stale (make lint)

Each ROOT is a checkout (default: this one); two of them compare two commits. A module counts as
single-importer when exactly one other module of ``qbench`` or its guests imports it; a package's
``__init__`` does not count as an importer.
"""

import argparse
import ast
import inspect
import re
import statistics
import sys
import tokenize
from pathlib import Path

FOLDERS = ("qbench", "engines", "zoo")
GUESTS = ("qbench_engines", "qbench_zoo")
PAGE = Path(__file__).parent.parent / "docs" / "architecture.md"
FIRST, LAST = "<!-- modules -->", "<!-- end of modules -->"
PATH_ROW = re.compile(r"^\| \w+ \| `(qbench/[^`]+)` \|", flags=re.MULTILINE)
"""A row of the table that ``benchmarks/hops.py`` writes."""


def modules(root: Path) -> dict[str, Path]:
    """Module name → file, of ``qbench`` and of its guests."""
    found = {}
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            parts = list(path.relative_to(root).with_suffix("").parts)
            if parts[-1] == "__init__":
                parts.pop()
            found[".".join(parts if folder == "qbench" else parts[1:])] = path
    return found


def imported(path: Path, names: dict[str, Path]) -> set[str]:
    """The modules that ``path`` imports anywhere in its text."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name in names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in names else node.module)
    return {name for name in found if name in names}


def facts(root: Path) -> dict[str, str]:
    """The rows of the table for one checkout."""
    names = modules(root)
    own = {
        name: path
        for name, path in names.items()
        if name.split(".")[0] == "qbench" and ".zoo" not in name
    }
    guests = len(names) - len(own)
    lengths = {
        name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in names.items()
    }
    importers: dict[str, set[str]] = {name: set() for name in names}
    for name, path in names.items():
        if path.name != "__init__.py":
            for target in imported(path, names) - {name}:
                importers[target].add(name)
    plain = [name for name in own if own[name].name != "__init__.py"]
    single = [name for name in plain if len(importers[name]) == 1]
    sizes = sorted(lengths[name] for name in plain)
    functions = [
        (node.end_lineno or node.lineno) - node.lineno + 1
        for path in own.values()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return {
        "modules of qbench": f"{len(own):,}",
        "lines of qbench": f"{sum(lengths[name] for name in own):,}",
        "modules of the zoo and the engines": f"{guests:,}",
        "lines of the zoo and the engines": (
            f"{sum(lengths.values()) - sum(lengths[name] for name in own):,}"
        ),
        "lines of a module, median": f"{statistics.median(sizes):,.0f}",
        "lines of a module, 90th percentile": f"{sizes[int(len(sizes) * 0.9)]:,}",
        "modules with a single importer": (
            f"{len(single):,} ({100 * len(single) / len(plain):.0f} %)"
        ),
        "lines of a function, mean": f"{statistics.mean(functions):.1f}",
    }


def purpose(path: Path) -> str:
    """The first sentence of a module's docstring, up to its first empty line."""
    return " ".join(docstring(path).split("\n\n")[0].split())


def docstring(path: Path) -> str:
    """The docstring of a module, or nothing; what comes after it is not read."""
    with tokenize.open(path) as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type == tokenize.STRING:
                return inspect.cleandoc(ast.literal_eval(token.string))
            if token.type not in {tokenize.COMMENT, tokenize.NL}:
                break
    return ""


def module_list(root: Path) -> str:
    """Every module with its purpose, by package, as Markdown."""
    lines: list[str] = []
    for name, path in modules(root).items():
        if path.name == "__init__.py":
            if name.count(".") == 1 or name in GUESTS:
                lines += ["", f"**{name}**: {purpose(path)}", ""]
        else:
            lines.append(f"- `{path.relative_to(root)}`: {purpose(path)}")
    return "\n".join(lines).strip()


def written(text: str) -> str:
    """The page ``text`` with the list of modules of this checkout."""
    head, _, rest = text.partition(FIRST)
    tail = rest.partition(LAST)[2]
    return f"{head}{FIRST}\n\n{module_list(PAGE.parent.parent)}\n\n{LAST}{tail}"


def stale(text: str) -> list[str]:
    """What of the page ``text`` is stale, with the command that writes it anew;
    a cell is not run for it.
    """
    found = []
    if written(text) != text:
        found.append(
            "docs/architecture.md has another list of modules: "
            "python benchmarks/structure.py --write"
        )
    gone = sorted(
        {file for file in PATH_ROW.findall(text) if not (PAGE.parent.parent / file).exists()}
    )
    if gone:
        found.append(
            f"docs/architecture.md leads a cell through {', '.join(gone)}: python "
            "benchmarks/hops.py --write"
        )
    return found


def main() -> None:
    """Print one column per checkout, or write or check the list of modules."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="write the list of modules")
    parser.add_argument("--check", action="store_true", help="fail where the list is out of date")
    parser.add_argument(
        "checkouts", metavar="ROOT", nargs="*", type=Path, default=[Path(__file__).parent.parent]
    )
    arguments = parser.parse_args()
    if arguments.write:
        PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
        return
    if arguments.check:
        sys.exit("\n".join(stale(PAGE.read_text(encoding="utf-8"))) or 0)
    columns = [facts(root) for root in arguments.checkouts]
    for row in columns[0]:
        print(f"| {row} | " + " | ".join(column[row] for column in columns) + " |")


if __name__ == "__main__":
    main()
