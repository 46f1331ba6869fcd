"""What ONNX Runtime's optimizations and its quantizer are known to change, measured again, as
the tables in the docs.

    python benchmarks/onnxruntime_optimizers.py [--write]

``--write`` puts both tables into ``docs/evidence/optimizers.md``; without it they are printed.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from onnxruntime_quantizer import largest_errors, quantizer_cases

from qbench.diagnosis import CaseResult, measure_case, optimizer_cases
from qbench.storage import write_text

_PAGE = Path(__file__).parents[1] / "docs" / "evidence" / "optimizers.md"
_CAUSES = (("tie", "tie"), ("one step", "one_step"), ("clamp", "clamp"), ("real", "real"))


def optimizer_lines() -> Iterator[str]:
    """Markdown: a row a case of the optimizers."""
    yield "| case | reported | measured | doing of | why |"
    yield "|---|---|---|---|---|"
    for case in optimizer_cases():
        result = measure_case(case)
        doing = (
            case.belongs.value
            if result.as_expected
            else f"**not as expected** ({case.belongs.value})"
        )
        says = " ".join(case.says.split())
        yield f"| `{case.name}` | {case.reported} | {_measured(result)} | {doing} | {says} |"


def quantizer_lines() -> Iterator[str]:
    """Markdown: a row a case of the quantizer."""
    yield "| case | reported | largest error: no optimizations | all | a step | why |"
    yield "|---|---|---|---|---|---|"
    for case in quantizer_cases():
        plain, rewritten = found = largest_errors(case)
        says = " ".join(case.says.split()) + ("" if case.holds(found) else " **Not as expected.**")
        yield (
            f"| `{case.name}` | {case.reported} | {plain:.3f} | {rewritten:.3f} | {case.step} "
            f"| {says} |"
        )


def _measured(result: CaseResult) -> str:
    found = result.measured
    if not found.differing:
        return f"0 of {found.elements:,}"
    causes = ", ".join(
        f"{word} {count:,}" for word, name in _CAUSES if (count := getattr(found, name))
    )
    share = 100 * found.differing / found.elements
    return f"{share:.2f} % of {found.elements:,} ({causes}), at most {found.largest}"


def main(arguments: list[str]) -> None:
    """Print the tables, or write them into the page."""
    tables = {
        "optimizers.py": "\n".join(optimizer_lines()),
        "quantizer.py": "\n".join(quantizer_lines()),
    }
    if "--write" not in arguments:
        print("\n\n".join(tables.values()))
        return
    page = _PAGE.read_text(encoding="utf-8")
    for script, table in tables.items():
        begin = f"<!-- made by: python benchmarks/onnxruntime_{script} -->\n"
        place = re.compile(f"(?<={re.escape(begin)}).*?(?=<!-- end)", re.DOTALL)
        page = place.sub(lambda _, table=table: f"\n{table}\n\n", page, count=1)
    write_text(_PAGE, page)


if __name__ == "__main__":
    main(sys.argv[1:])
