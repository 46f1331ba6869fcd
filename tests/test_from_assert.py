"""docs/from-assert.md runs as it is, in an empty folder: the test, the YAML and the thresholds that
users come with, and what replaces them.
"""

from pathlib import Path

import pytest
from page_blocks import DOCS, run_page

CLAIMS = {
    "pytest test_before.py test_after.py": ("2 passed",),
    "pytest suites/numbers.qbench.toml": ("All 6 cells pass",),
    "pytest suites/thresholds.qbench.toml": ("All 2 cells pass", "sqnr"),
}


@pytest.mark.slow
def test_the_page_runs(tmp_path: Path) -> None:
    ran = list(run_page(DOCS / "from-assert.md", tmp_path))
    for command, claims in CLAIMS.items():
        said = "".join(out for content, out in ran if command in content)
        assert [claim for claim in claims if claim not in said] == [], said[-4000:]
