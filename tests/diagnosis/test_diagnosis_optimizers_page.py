"""The tables of docs/evidence/optimizers.md are those of its benchmark; ONNX Runtime's
quantizer errs as they say.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from qbench.host import architecture

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "evidence" / "optimizers.md").read_text(encoding="utf-8")


@pytest.fixture
def benchmarks(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))


@pytest.mark.skipif(
    architecture() != "x64", reason="the kernels of other processors count otherwise"
)
def test_every_row_of_the_optimizers_is_in_the_page(benchmarks):
    from onnxruntime_optimizers import optimizer_lines

    rows = list(optimizer_lines())
    assert len(rows) > 25
    assert "\n".join(rows) in PAGE, (
        "write it again: python benchmarks/onnxruntime_optimizers.py --write"
    )


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_quantizer_errs_as_the_page_says(benchmarks):
    from onnxruntime_optimizers import quantizer_lines
    from onnxruntime_quantizer import quantizer_cases

    rows = list(quantizer_lines())
    assert "\n".join(rows) in PAGE, (
        "write it again: python benchmarks/onnxruntime_optimizers.py --write"
    )
    assert "Not as expected" not in PAGE
    for case in quantizer_cases():
        assert case.holds((case.unoptimized, case.optimized))
        assert not replace(case, optimized=case.optimized + 0.01).holds(
            (case.unoptimized, case.optimized)
        )
