"""The table of gates in ``docs/options.md``, from the rows of ``judging/gates.py``.

python benchmarks/gates.py             prints it
python benchmarks/gates.py --write     writes it into docs/options.md
python benchmarks/gates.py --check     fails where that page is stale (make lint)
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from qbench.judging.gates import GATES, GateSpec

PAGE = Path(__file__).parent.parent / "docs" / "options.md"
FIRST, LAST = "<!-- gates -->", "<!-- end of gates -->"
HEADINGS = ("gate", "keys of the suite", "judges", "a broken one makes a cell", "next step")
NAMED = {"listed": "`<name>.quarantine.toml`"}
"""Kinds of gates that another file sets."""


def row(spec: GateSpec) -> str:
    """The line of one gate."""
    keys = dict.fromkeys((*spec.model_keys, *(key.name for key in spec.keys)))
    where = ", ".join(f"`{key}`" for key in keys) or NAMED.get(spec.kind.value, "–")
    makes = f"*{spec.severity.value}*" if spec.next_step or spec.keys else "–"
    return f"| `{spec.kind.value}` | {where} | {spec.judges} | {makes} | {spec.next_step or '–'} |"


def table(gates: Sequence[GateSpec] = GATES) -> str:
    """The table in Markdown, in the order in which gates decide a cell."""
    rules = "|---" * len(HEADINGS) + "|"
    return "\n".join([f"| {' | '.join(HEADINGS)} |", rules, *map(row, gates)])


def written(text: str, gates: Sequence[GateSpec] = GATES) -> str:
    """``text`` of the page with the table of today."""
    before, _, rest = text.partition(FIRST)
    _, _, after = rest.partition(LAST)
    return f"{before}{FIRST}\n\n{table(gates)}\n\n{LAST}{after}"


def main(arguments: Sequence[str]) -> int:
    """Print, write or check; 1 where the page is stale."""
    text = PAGE.read_text(encoding="utf-8")
    if "--write" in arguments:
        PAGE.write_text(written(text), encoding="utf-8")
    elif "--check" in arguments:
        if text != written(text):
            sys.stderr.write("docs/options.md: run python benchmarks/gates.py --write\n")
            return 1
    else:
        sys.stdout.write(f"{table()}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
