"""A loss in two parts: they add up, one begins where the other ends,
and samples are counted in each.
"""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judged_numbers import agreement, top1

from qbench.judging import LossParts, Part, parts_of_counts, parts_of_scores

COUNTS = st.integers(0, 1000)


@given(COUNTS, COUNTS, COUNTS)
def test_parts_add_up_to_the_whole(reference, ideal, hits):
    parts = parts_of_counts("top1", reference=reference, ideal=ideal, hits=hits, out_of=1000)
    assert parts.schema.change + parts.counting.change == pytest.approx(parts.change)
    assert parts.change == pytest.approx((hits - reference) / 1000)
    assert (parts.schema.losses, parts.counting.gains) == (None, None)


def test_parts_of_scores_keep_the_samples_of_each_step():
    parts = parts_of_scores(
        top1(757, losses=5, gains=2), top1(750, reference=757, losses=9, gains=2)
    )
    assert parts.schema == Part(before=760, after=757, out_of=1000, losses=5, gains=2)
    assert parts.counting == Part(before=757, after=750, out_of=1000, losses=9, gains=2)
    assert (parts.metric, parts.change) == ("top1", pytest.approx(-0.01))


def test_parts_have_the_unit_of_their_metric():
    assert parts_of_counts("top1", reference=1, ideal=1, hits=1, out_of=2).unit == "%"
    assert (
        parts_of_counts("perplexity", reference=1, ideal=1, hits=1, out_of=2, unit="nats").unit
        == "nats"
    )
    first, second = (
        dataclasses.replace(one, unit="nats") for one in (top1(757), top1(750, reference=757))
    )
    assert parts_of_scores(first, second).unit == "nats"


def test_counting_begins_where_the_schema_ends():
    with pytest.raises(ValueError, match="ends at 757 of 1000, counting begins at 756"):
        parts_of_scores(top1(757), top1(750, reference=756))
    with pytest.raises(ValueError, match="counting begins at 3 of 8"):
        LossParts(
            metric="m",
            schema=Part(before=4, after=3, out_of=9),
            counting=Part(before=3, after=2, out_of=8),
        )


def test_other_metrics_and_metrics_against_the_reference_have_no_parts():
    with pytest.raises(ValueError, match="not one metric against labels"):
        parts_of_scores(top1(757), top1(750, reference=757, metric="top5"))
    beside = agreement(470)
    with pytest.raises(ValueError, match="not one metric against labels"):
        parts_of_scores(beside, dataclasses.replace(beside, reference_hits=470))
