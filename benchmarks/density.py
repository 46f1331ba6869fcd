"""Count what makes code slow to read, and print it as a table: one row per package.

    python benchmarks/density.py [ROOT …]      the packages of each checkout; default: this one
    python benchmarks/density.py --list        also names the functions and the comprehensions

    conditional expressions per 1,000 lines = 1000 · (number of `a if b else c`) / lines, and
    likewise per 1,000 statements, which does not depend on where lines are broken
    dense function = more than MOST_CONDITIONALS conditional expressions, or one inside another
    wide comprehension = more than MOST_LOOPS `for` in one comprehension

A nested function is counted by itself and not again with the function around it; lambdas and
comprehensions belong to the function in which they are. Code outside functions enters the first
number only.
"""

import argparse
import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDERS = ("qbench", "engines/qbench_engines", "zoo/qbench_zoo")
MOST_CONDITIONALS = 4
MOST_LOOPS = 2
LONGEST_LINE = 100

Function = ast.FunctionDef | ast.AsyncFunctionDef
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseFunction:
    """A function with too many conditional expressions, or with nested ones."""

    path: Path
    line: int
    name: str
    conditionals: int
    nested: int

    def text(self, root: Path) -> str:
        """One line: where it is, its name and both counts."""
        place = f"{self.path.relative_to(root)}:{self.line}"
        return (
            f"{place} {self.name}: {self.conditionals} conditional expressions, "
            f"{self.nested} nested"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Density:
    """The counts of some files."""

    lines: int
    statements: int
    conditionals: int
    dense: tuple[DenseFunction, ...]
    wide: tuple[tuple[Path, int], ...]
    """(file, line) of each comprehension with more than `MOST_LOOPS` loops."""
    long_lines: int
    """The number of lines of more than `LONGEST_LINE` columns."""


def dense_functions(path: Path, tree: ast.AST) -> Iterator[DenseFunction]:
    """The functions of ``tree`` that break the rule, in the order of the file."""
    conditionals: dict[Function, list[ast.IfExp]] = {}
    nesting: set[ast.IfExp] = set()
    # nodes to visit, each with the function whose body it is in and the conditional expression
    # around it; what surrounds the body of a function (decorators, defaults) belongs to none
    waiting: list[tuple[ast.AST, Function | None, ast.IfExp | None]] = [(tree, None, None)]
    while waiting:
        node, function, around = waiting.pop()
        if isinstance(node, Function):
            conditionals[node] = []
            waiting += [(part, node, None) for part in node.body]
            continue
        if isinstance(node, ast.ClassDef):
            function = None
        elif isinstance(node, ast.IfExp):
            if function:
                conditionals[function].append(node)
            if around:
                nesting.add(around)
            around = node
        waiting += [(part, function, around) for part in ast.iter_child_nodes(node)]
    for function in sorted(conditionals, key=lambda node: node.lineno):
        own = conditionals[function]
        nested = len(nesting.intersection(own))
        if len(own) > MOST_CONDITIONALS or nested:
            yield DenseFunction(
                path=path,
                line=function.lineno,
                name=function.name,
                conditionals=len(own),
                nested=nested,
            )


def wide_comprehensions(nodes: Iterable[ast.AST]) -> Iterator[Comprehension]:
    """The comprehensions among ``nodes`` with more than `MOST_LOOPS` loops."""
    for node in nodes:
        if isinstance(node, Comprehension) and len(node.generators) > MOST_LOOPS:
            yield node


def density_of(paths: list[Path]) -> Density:
    """The counts of the files ``paths``."""
    lines = 0
    statements = 0
    conditionals = 0
    dense: list[DenseFunction] = []
    wide: list[tuple[Path, int]] = []
    long_lines = 0
    for path in paths:
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        lines += len(text.splitlines())
        statements += sum(isinstance(node, ast.stmt) for node in ast.walk(tree))
        conditionals += sum(isinstance(node, ast.IfExp) for node in ast.walk(tree))
        dense += dense_functions(path, tree)
        wide += [(path, node.lineno) for node in wide_comprehensions(ast.walk(tree))]
        long_lines += sum(len(line) > LONGEST_LINE for line in text.splitlines())
    return Density(
        lines=lines,
        statements=statements,
        conditionals=conditionals,
        dense=tuple(dense),
        wide=tuple(wide),
        long_lines=long_lines,
    )


def packages(root: Path) -> dict[str, list[Path]]:
    """Package → its files. Modules directly below ``qbench`` are one row; each guest
    distribution is one row.
    """
    found: dict[str, list[Path]] = {}
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            below = path.relative_to(root / folder).parts
            inner = folder == "qbench" and len(below) > 1
            found.setdefault(f"qbench.{below[0]}" if inner else Path(folder).name, []).append(path)
    return dict(sorted(found.items()))


def row_of(name: str, density: Density) -> str:
    """One row of the table, as Markdown."""
    of_lines = 1000 * density.conditionals / density.lines
    of_statements = 1000 * density.conditionals / density.statements
    counts = f"{density.lines:,} | {density.conditionals:,} | {of_lines:.1f} | {of_statements:.1f}"
    dense = f"{len(density.dense)} | {len(density.wide)}"
    return f"| {name} | {counts} | {dense} | {density.long_lines:,} |"


def print_table(root: Path, *, names: bool) -> None:
    """Print the table of one checkout, with ``names`` also the functions and comprehensions."""
    print(
        "| package | lines | conditional expressions | per 1,000 lines | per 1,000 statements "
        "| dense functions | wide comprehensions | long lines |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for package, paths in packages(root).items():
        print(row_of(package, density_of(paths)))
    whole = density_of([path for paths in packages(root).values() for path in paths])
    print(row_of("**all**", whole))
    if not names:
        return
    for function in whole.dense:
        print(function.text(root))
    for path, line in whole.wide:
        print(f"{path.relative_to(root)}:{line} more than {MOST_LOOPS} loops in one comprehension")


def main() -> None:
    """Print one table per checkout."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument(
        "roots", nargs="*", type=Path, metavar="ROOT", help="a checkout (default: this one)"
    )
    parser.add_argument(
        "--list", action="store_true", help="also name the functions and comprehensions"
    )
    arguments = parser.parse_args()
    for root in arguments.roots or [Path(__file__).parents[1]]:
        print_table(root, names=arguments.list)


if __name__ == "__main__":
    main()
