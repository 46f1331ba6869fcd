"""The smallest cases of docs/findings about ONNX Runtime, run as the pages have them.

A failure here means that the installed ONNX Runtime does otherwise than its page says: the page,
and what qbench does about it, are to be looked at.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from page_blocks import BLOCK, DOCS

from qbench.backends.block_products import rounds_data


def printed(page: str, folder: Path) -> str:
    """What the program of a page prints."""
    text = (DOCS / "findings" / page).read_text(encoding="utf-8")
    (program,) = [body for _, language, _, body in BLOCK.findall(text) if language == "python"]
    (folder / "case.py").write_text(program, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "case.py"], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.mark.skipif(not rounds_data(4, 32), reason="this processor has no kernel that rounds data")
def test_weights_alone_are_quantized_and_data_are_rounded(tmp_path):
    lines = printed("weight-only-that-is-not.md", tmp_path).splitlines()
    assert len(lines) == 4
    for line in lines:
        found = re.search(r"(\S+) by default, (\S+) at level 0, of (\S+)", line)
        assert found is not None
        by_default, at_level_0, largest = map(float, found.groups())
        assert by_default > 1e-3 * largest
        assert at_level_0 < 1e-5 * largest


def test_float8_data_around_an_operator_do_not_load_at_the_default_level(tmp_path):
    found = dict(
        line.split(": ")
        for line in printed("float8-data-that-do-not-load.md", tmp_path).splitlines()
    )
    assert len(found) == 30
    for case, said in found.items():
        kind, operator = case.split()
        refused = kind != "INT8" and operator != "Transpose"
        assert said == f"loads at BASIC, {'refused' if refused else 'loads'} at ALL", case


def test_a_relu_is_dropped_in_front_of_float8_and_few_bits(tmp_path):
    found = dict(
        line.split(": ") for line in printed("relu-before-float8.md", tmp_path).splitlines()
    )
    assert found == {
        "FLOAT8E4M3FN 0": "0 at BASIC, -3 at ALL",
        "FLOAT8E5M2 0": "0 at BASIC, -3 at ALL",
        "INT4 0": "0 at BASIC, -3 at ALL",
        "UINT4 1": "0 at BASIC, -0.5 at ALL",
        "INT4 -8": "0 at BASIC, 0 at ALL",
        "INT8 0": "0 at BASIC, 0 at ALL",
    }


def test_float16_scales_with_float32_results_do_not_load(tmp_path):
    lines = printed("half-scales-that-do-not-load.md", tmp_path).splitlines()
    assert ["an error of" in line for line in lines] == [True, True, False, False]
    assert all("MatMulNBits" in line for line in lines[2:])


def test_symmetric_data_behind_a_relu_run_in_float(tmp_path):
    found = printed("symmetric-data-in-float.md", tmp_path).split("\n")
    assert found[:-1] == [
        "int8 0: float",
        "int8 -128: integers",
        "uint8 0: integers",
        "uint8 3: float",
    ]
