"""On trained networks our plans cost what those of onnxruntime's quantizer cost:
benchmarks/against_onnxruntime.py.
"""

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@dataclass(frozen=True)
class Row:
    n: int
    fp32: float
    theirs: float
    ours: float
    verdict: str


def rows(*arguments: str) -> dict[str, Row]:
    """The table that the script prints, by granularity;
    it says by its exit code that the bar is kept.
    """
    script = [sys.executable, BENCHMARKS / "against_onnxruntime.py", *arguments]
    done = subprocess.run(script, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.findall(
        r"^\| \w+ \| (p[ct]) \| \w+ \| ([\d,]+)(?: of \d+ sources)? "
        r"\| ([\d.]+)% \| ([\d.]+)% \| ([\d.]+)% \|.* \| (\w+) \|$",
        done.stdout,
        re.MULTILINE,
    )
    return {
        place: Row(int(n.replace(",", "")), *(float(share) / 100 for share in shares), verdict)
        for place, n, *shares, verdict in found
    }


@pytest.mark.slow
def test_digits() -> None:
    table = rows("digits_cnn")
    assert set(table) == {"pc", "pt"}
    for row in table.values():
        assert row.n == 360
        assert min(row.ours, row.theirs) > 0.98
        assert row.verdict == "within"


@pytest.mark.slow
def test_mobilenet_v2_on_crops() -> None:
    row = rows("mobilenet_v2", "--scored", "100", "--calibrated", "32")["pc"]
    assert row.n == 100
    assert min(row.ours, row.theirs) > 0.82
    assert row.verdict in ("within", "better")


@pytest.mark.slow
def test_scales_per_tensor_ruin_efficientnet_lite0_in_both_hands() -> None:
    table = rows("efficientnet_lite0", "--scored", "100", "--calibrated", "32")
    for who in ("ours", "theirs"):
        assert getattr(table["pc"], who) > 0.93
        assert getattr(table["pt"], who) < getattr(table["pc"], who) - 0.06
    assert table["pt"].verdict == "within"
