"""What a whole pipeline does to outputs: nothing if every pass is exact; rounding adds up, and
that is measured.
"""

import numpy as np
import pytest
from chains import Grid, chain, run_machine, run_qdq
from hypothesis import given, settings
from hypothesis import strategies as st

from qbench.passes import Policy, output_changes, run_pipeline, standard_pipeline

LEVELS = np.arange(-128, 128).astype(np.int8)
GRIDS = st.builds(
    Grid,
    scale=st.sampled_from([0.25, 0.5, 0.75, 1.0, 0.1, 0.2, 0.3]),
    zero=st.sampled_from([0, 3, -7]),
)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(
    first=GRIDS, grids=st.lists(GRIDS, min_size=2, max_size=6), policy=st.sampled_from(list(Policy))
)
def test_changes_of_outputs_are_what_runs_show(
    first: Grid, grids: list[Grid], policy: Policy
) -> None:
    model = chain(*grids, integers_in=first, size=256)
    after = run_pipeline(model, standard_pipeline(policy), policy).model
    changes = {one.arithmetic: one for one in output_changes(model, after, [{"x": LEVELS}])}
    assert set(changes) == {"qdq", "ideal"}
    for machine, run in (("qdq", run_qdq), ("ideal", run_machine)):
        one, other = (run(graph, x=LEVELS)["y"].astype(np.float64) for graph in (model, after))
        steps = np.rint(np.abs(one - other) / np.float32(grids[-1].scale))
        found = changes[machine]
        assert (found.output, found.moved, found.of) == ("y", np.count_nonzero(one != other), 256)
        assert found.steps == steps.max()
        assert policy is not Policy.EXACT or not found.moved


def test_sites_that_move_one_step_each_add_up_to_three() -> None:
    """The effect of a pass holds per site:
    a step of a coarse grid is several of a finer one behind it.
    """
    grids = [Grid(0.75), Grid(0.3, 3), Grid(0.3), Grid(0.1, 3), Grid(0.1, 3), Grid(0.1, -7)]
    model = chain(*grids, integers_in=Grid(0.5), size=256)
    found = run_pipeline(model, standard_pipeline(Policy.ROUNDING), Policy.ROUNDING)
    assert {one.effect.steps for one in found.accounts if one.changed} <= {0, 1}
    assert [one.steps for one in output_changes(model, found.model, [{"x": LEVELS}])] == [3, 3]
