"""The smallest case of a page about OpenVINO, run as the page has it: a failure means that the
installed OpenVINO does otherwise.
"""

import re
import subprocess
import sys

import pytest
from page_blocks import BLOCK, DOCS

pytestmark = pytest.mark.oracle


def test_a_clip_of_weights_makes_a_convolution_float_and_no_other_clip_does(openvino, tmp_path):
    text = (DOCS / "findings" / "openvino-clipped-weights.md").read_text(encoding="utf-8")
    (program,) = [body for _, language, _, body in BLOCK.findall(text) if language == "python"]
    (tmp_path / "case.py").write_text(program, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "case.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    found = dict(line.rsplit(": ", 1) for line in done.stdout.splitlines())
    assert len(found) == 8
    for case, precision in found.items():
        in_float = case.startswith("Conv, Clip of weights")
        assert re.fullmatch("f32|bf16" if in_float else "[iu]8", precision), case
