"""Rewrites that are exact leave every output bit of random trees;
those that round leave every limit.
"""

import pytest
from chains import Grid
from hypothesis import given, settings
from trees import GRIDS, STEPS, assert_same, feeds, rewritten, tree

from qbench.passes import Pass
from qbench.passes.rewrites.requantize import (
    DropIdentityRequantize,
    MergeRequantize,
    RequantizeIntoConsumer,
    RequantizeIntoDequantize,
    RequantizeIntoProducer,
)

PASSES = (
    DropIdentityRequantize(),
    MergeRequantize(),
    RequantizeIntoProducer(),
    RequantizeIntoDequantize(),
    RequantizeIntoConsumer(),
)
FEEDS = feeds()
Steps = list[tuple[str, int, int, Grid]]


@pytest.mark.slow_but(2)
@pytest.mark.parametrize("one", PASSES, ids=lambda one: one.name)
@settings(max_examples=4)
@given(first=GRIDS, steps=STEPS)
def test_each_exact_pass_leaves_every_bit(one: Pass, first: Grid, steps: Steps) -> None:
    model = tree(first, steps)
    assert_same(model, rewritten(model, one), **FEEDS)


@pytest.mark.slow
@settings(max_examples=8)
@given(first=GRIDS, steps=STEPS)
def test_all_exact_passes_together_leave_every_bit(first: Grid, steps: Steps) -> None:
    model = tree(first, steps)
    assert_same(model, rewritten(model, *PASSES), **FEEDS)
