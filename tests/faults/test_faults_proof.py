"""Which cells a proof puts faults into."""

from types import SimpleNamespace

import pytest

from qbench.faults.proof import _is_measured
from qbench.judging import Outcome


@pytest.mark.parametrize("outcome", Outcome)
def test_faults_are_put_into_cells_that_hold_and_not_into_those_that_are_expected_to_fail(outcome):
    holds = outcome in (Outcome.PASSED, Outcome.INCONCLUSIVE, Outcome.ACCEPTED)
    assert _is_measured(SimpleNamespace(outcome=outcome)) is holds
