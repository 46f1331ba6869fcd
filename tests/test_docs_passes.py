"""docs/writing-a-pass.md runs as it stands there: every block in order,
and it prints what it shows.
"""

import contextlib
import io
import re
import tomllib
from pathlib import Path

import pytest

from qbench.storage import value_from_table
from qbench.suite import ModelTable
from qbench.suite.suite_file import SuiteTable

PAGE = Path(__file__).parents[1] / "docs" / "writing-a-pass.md"
BLOCK = re.compile(r"^```(python|text|toml)\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)
PLACE = re.compile(r"\[[\d,]+\]")
"""Where in a tensor a counterexample was found: of several the checker may take another one day."""


@pytest.fixture(scope="module")
def page():
    """(what each program printed, what the page shows of it), and the names that are left."""
    made, told = {"__name__": "page"}, []
    for language, text in BLOCK.findall(PAGE.read_text()):
        if language == "python":
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                exec(compile(text, str(PAGE), "exec", dont_inherit=True), made)
            told.append((said.getvalue(), ""))
        elif language == "text":
            told[-1] = (told[-1][0], text)
    return told, made


@pytest.mark.slow
def test_programs_print_what_is_shown(page):
    told, _ = page
    assert len(told) == 7
    for said, shown in told:
        assert PLACE.sub("[…]", said) == PLACE.sub("[…]", shown)


def test_the_suite_is_one_and_names_the_pass(page):
    (text,) = [text for language, text in BLOCK.findall(PAGE.read_text()) if language == "toml"]
    table = tomllib.loads(text)
    assert value_from_table(SuiteTable, table["suite"], "docs").passes == (
        "none",
        "exact",
        "rounding",
    )
    (model,) = [value_from_table(ModelTable, one, "docs") for one in table["model"]]
    assert model.variants["split"]["passes"] == page[1]["Rounding"]().name
