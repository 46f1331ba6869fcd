"""Every operator of ONNX that the interpreter or ``onnx-reference`` runs in float, held against
ONNX Runtime.

``python tests/interpreter/test_interpreter_float_sweep.py [OPERATOR …]`` prints the table of
docs/findings.
"""

import sys
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))

from operator_cases.float_sweep import SIDES, STRATEGIES, Tally, swept

from qbench.interpreter import refusal

CASES = 200
UNCOMPARED = {("interpreter", "If"), ("interpreter", "Loop"), ("interpreter", "Scan")} | {
    (side, "MaxRoiPool") for side in SIDES
}
"""(side, operator) that is refused whole; of all others at least ``CASES`` results are compared."""
GRAPHLESS = {"Constant"}
"""A value and no kernel: it is an initializer before anything runs."""


def _refused_whole(operator: str) -> bool:
    """Whether every node of ``operator`` is refused, whatever is in it."""
    return refusal(ir.Node("", operator, []), 25) is not None


def test_every_operator_of_opsets_7_to_25_is_swept_or_refused() -> None:
    schemas = onnx.defs.get_all_schemas_with_history()
    known = {schema.name for schema in schemas if not schema.domain and schema.since_version <= 25}
    left = known - set(STRATEGIES) - GRAPHLESS
    assert left
    assert {operator for operator in left if not _refused_whole(operator)} == set()


@pytest.mark.slow
@pytest.mark.parametrize("operator", sorted(STRATEGIES))
def test_no_result_of_an_operator_differs_from_the_engines(operator: str) -> None:
    for side, tally in swept(operator, CASES).items():
        assert not tally.shown, (side, tally.counts, tally.shown)
        if (side, operator) in UNCOMPARED:
            assert tally.compared == 0
        else:
            assert tally.compared >= CASES, (side, tally.counts)


@pytest.mark.parametrize(
    "operator", ["BatchNormalization", "LRN", "ConvTranspose", "GRU", "Slice", "QuantizeLinear"]
)
def test_a_few_calls_of_operators_that_were_wrong(operator: str) -> None:
    for side, tally in swept(operator, 8).items():
        assert not tally.shown, (side, tally.counts, tally.shown)


def _row(operator: str, tallies: dict[str, Tally]) -> str:
    cells = []
    for side in SIDES:
        counts = tallies[side].counts
        wrong = counts["wrong"] + counts["crash"]
        cells += [
            counts["equal"],
            counts["rounding"],
            counts["refused"],
            counts["refused-late"],
            wrong,
        ]
    return f"| {operator} | {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    np.seterr(all="ignore")
    print(
        "| operator |" + " equal | rounding | refused | refused by the batch | wrong |" * len(SIDES)
    )
    print("|---|" + "--:|" * (5 * len(SIDES)))
    for name in sys.argv[1:] or sorted(STRATEGIES):
        print(_row(name, swept(name, CASES)), flush=True)
