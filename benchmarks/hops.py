"""How many functions a reader meets who follows one cell from its pytest item to its line in the run file.

    hop = a function of qbench that is handed the cell in one of its forms (planned, request, measurement, verdict,
          record, line) between ``CellItem.runtest`` and ``RunWriter.write``, each counted once

Properties and class bodies count like functions; comprehensions and lambdas do not. The second number of the table is
every function entered in the packages that the cell goes through, whatever it is handed.

Run: python benchmarks/hops.py [--select "model=digits_cnn backend=ort-cpu schema=w8a8_asym_pc"] [--list]
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("plugin", "suite", "evaluation", "judging", "tracking")
FORMS = {"CellItem", "PlannedCell", "Request", "Measurement", "Verdict", "JudgedCell", "CellRecord"}
INNER = ("<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>", "<lambda>", "<module>")
_NEWLOCALS = 0x2
"""The flag of code that is a function and not the body of a class."""

Place = tuple[str, str]
"""(file below ``qbench``, qualified name)."""


class Follower:
    """A pytest plugin that notes the functions entered while a cell is run."""

    def __init__(self) -> None:
        self.entered: dict[Place, None] = {}
        self.hops: dict[Place, None] = {}
        self._begun = False
        self._root = f"{ROOT / 'qbench'}{os.sep}"

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Iterator[None]:
        """Follow one item."""
        sys.setprofile(self._note)
        try:
            return (yield)
        finally:
            sys.setprofile(None)
            self._begun = False

    def _note(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(self._root) or not code.co_flags & _NEWLOCALS:
            return
        if any(part in code.co_qualname for part in INNER):
            return
        place = code.co_filename.removeprefix(self._root), code.co_qualname
        self._begun = self._begun or place[1] == "CellItem.runtest"
        if not self._begun:
            return
        self.entered.setdefault(place)
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        if any(_is_form(frame.f_locals.get(name)) for name in names):
            self.hops.setdefault(place)


def _is_form(value: object) -> bool:
    if isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    return type(value).__name__ in FORMS or (type(value) is dict and value.get("type") == "cell")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--select", default="model=digits_cnn backend=ort-cpu schema=w8a8_asym_pc")
    parser.add_argument("--list", action="store_true", help="every hop, in the order in which it is met")
    arguments = parser.parse_args()
    follower = Follower()
    with tempfile.TemporaryDirectory() as history:
        options = ["-q", "-p", "no:cacheprovider", "-W", "ignore", "--qbench-history", history]
        suite = str(ROOT / "suites" / "smoke.qbench.toml")
        pytest.main([suite, *options, "--qbench-select", arguments.select], plugins=[follower])
    through = [place for place in follower.entered if place[0].split("/")[0] in PACKAGES]
    for what, places in (("hops of the cell", list(follower.hops)), ("functions entered on its way", through)):
        print(f"{what:30} {len(places):4} in {len({file for file, _ in places})} files")
    for file, name in follower.hops if arguments.list else ():
        print(f"    {file} {name}")


if __name__ == "__main__":
    main()
