"""Every fault of the catalogue has a story, changes its operator and nothing before it, and is
repeated by its seed.
"""

import re
from pathlib import Path

import numpy as np
import pytest

from qbench.faults import CATALOGUE, ProfileFault, Stage, draw_sites, fault_rows, get_fault
from qbench.storage import Cache
from tests.faults.broken_digits import make_grounds

RUNNING = [name for name, fault in CATALOGUE.items() if fault.stage is not Stage.CALIBRATION]

QUICK = RUNNING[::6]
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in RUNNING if name not in QUICK]


@pytest.fixture(scope="module")
def grounds(tmp_path_factory):
    return make_grounds(Cache(tmp_path_factory.mktemp("cache")))


def first_effect(grounds, fault):
    """The first place at which the fault changes anything: ground, place, its results,
    changed values.
    """
    for ground in grounds:
        for placed in ground.places(fault):
            found = ground.faulty(placed)
            if changed := ground.changed(found):
                return ground, placed, found, changed
    return None


@pytest.mark.slow_but(1)
@pytest.mark.parametrize(
    "name",
    [
        *QUICK,
        *(pytest.param(name, marks=pytest.mark.slow) for name in RUNNING if name not in QUICK),
    ],
)
def test_a_fault_changes_its_operator_and_nothing_before_it(grounds, name):
    effect = first_effect(grounds, get_fault(name))
    assert effect is not None, f"'{name}' changes nothing on any subject"
    ground, placed, found, changed = effect
    order = [value for _, value in ground.lowered]
    own = min(order.index(value) for node, value in ground.lowered if node in placed.sites)
    assert own <= order.index(changed[0])
    last = max(order.index(value) for node, value in ground.lowered if node in placed.sites)
    assert order.index(changed[0]) <= last + 2  # a quantizer or a clip of levels may stand behind
    again = ground.faulty(placed)
    assert all(
        np.array_equal(a[key], b[key]) for a, b in zip(found, again, strict=True) for key in a
    )


def test_every_fault_has_a_story_and_a_cause():
    for fault in CATALOGUE.values():
        assert re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", fault.story.thread), fault.name
        assert fault.story.sentence.endswith("."), fault.name
        assert fault.summary.endswith("."), fault.name
        assert 1 <= len(fault.causes) <= 2
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", fault.name)
        assert isinstance(fault.injection, ProfileFault) == (fault.stage is Stage.CALIBRATION)
    assert len(CATALOGUE) == 79  # fewer: two have one name


def test_sites_are_drawn_by_the_seed_alone(grounds):
    fault, model = get_fault("bias-dropped"), grounds[1].quantized
    assert draw_sites(fault, model, 3, 4) == draw_sites(fault, model, 3, 4)
    assert draw_sites(fault, model, 3, 4) != draw_sites(fault, model, 4, 4)
    every = draw_sites(fault, model, 3, 99)
    assert sorted(placed.sites[0] for placed in every) == sorted(fault.sites(model))


def test_a_fault_of_several_layers_stands_at_different_ones(grounds):
    (placed,) = draw_sites(get_fault("three-layers-rounded-twice"), grounds[1].quantized, 0, 1)
    assert len(set(placed.sites)) == 3


def test_the_page_shows_the_catalogue():
    page = (Path(__file__).parents[2] / "docs" / "faults.md").read_text(encoding="utf-8")
    assert "\n".join(fault_rows()) in page
    assert f"catalogue of {len(CATALOGUE)} bugs" in page
