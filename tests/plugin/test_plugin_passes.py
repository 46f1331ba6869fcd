"""Passes as an axis: cells called by it, a pass from a conftest in its place, and what each
moved on the record.
"""

import pytest

FORGETFUL = '''
from dataclasses import dataclass

from qbench.graph import node_key
from qbench.passes import EXACT, LOSSY


@dataclass(frozen=True, slots=True)
class ForgetGrid:
    """The first inner pair is gone, with its rounding."""

    name: str = "forget-grid"
    effect: object = {effect}
    after: tuple[str, ...] = ("merge-requantize",)
    before: tuple[str, ...] = ({before})

    def run(self, model):
        for node in model.graph:
            if node.op_type != "DequantizeLinear" or not node.inputs[0]:
                continue
            maker = node.inputs[0].producer()
            if maker is None or maker.op_type != "QuantizeLinear":
                continue
            if maker.inputs[0].producer() is not None:
                node.outputs[0].replace_all_uses_with(maker.inputs[0], replace_graph_outputs=True)
                model.graph.remove([node, maker], safe=True)
                return True
        return False


MORE = {{"passes": {{"forget-grid": ForgetGrid}}}}
'''

SUITE = """
[suite]
tolerance = 0.9
agreement = 0.1
integer_macs = 0.0
backends = ["ort-cpu-noopt"]
schemas = ["w8a8_asym_pc"]
passes = ["none", "exact", "fast"]

[[model]]
id = "tiny_a"
data = "points"
calibration = { data = "spare", count = 64 }
metrics = ["top1", "agreement"]
variants = { one = { passes = "remove-dead, forget-grid" } }
"""


@pytest.fixture
def forgetful(project):
    def make(effect="LOSSY", before="", suite=SUITE):
        project.write_suite(suite)
        project.write_conftest(FORGETFUL.format(effect=effect, before=before))
        return project

    return make


def cells(project):
    return {
        line["variant"]: line for line in project.lines(kind="cell") if line["schema"] != "fp32"
    }


@pytest.mark.slow
def test_each_policy_is_a_cell_that_says_what_its_passes_moved(forgetful):
    project = forgetful()
    assert project.accept().ret == 0
    found = cells(project)
    assert set(found) == {"", "passes=exact", "passes=fast", "one"}
    assert "rewritten" not in found[""]
    exact, fast, one = (found[name]["rewritten"] for name in ("passes=exact", "passes=fast", "one"))
    assert exact["policy"] == "exact"
    assert not [note for note in exact["passes"] if note["effect"] != "exact"]
    assert (
        found["passes=exact"]["digests"]["predictions:points"]
        == found[""]["digests"]["predictions:points"]
    )
    (lossy,) = (note for note in fast["passes"] if note["name"] == "forget-grid")
    assert lossy["effect"] == "lossy"
    assert 0 < lossy["differing"] <= lossy["elements"] == 64 * 7
    assert lossy["relative"] > 0
    assert one["passes"][-1]["name"] == "forget-grid"
    digests = {name: line["digests"].get("pipeline") for name, line in found.items()}
    assert digests.pop("") is None
    assert len(set(digests.values())) == 3
    assert project.run().ret == 0
    notices = cells(project)["passes=fast"]["notices"]
    assert any("forget-grid (lossy)" in notice and "moves" in notice for notice in notices)


def test_a_circle_of_places_is_one_sentence(forgetful):
    project = forgetful(before='"absorb-clip",')
    result = project.run("-k", "fast")
    result.stdout.fnmatch_lines(["*Placing the pass 'forget-grid'*a circle*"])


@pytest.mark.slow
def test_a_pass_that_breaks_the_graph_is_an_error_of_its_cells_alone(forgetful):
    project = forgetful()
    text = FORGETFUL.format(effect="EXACT", before="").replace(
        "[node, maker], safe=True", "maker, safe=False"
    )
    project.write_conftest(text)
    assert project.accept().ret != 0
    outcomes = {name: line["outcome"] for name, line in cells(project).items()}
    assert outcomes[""] == "accepted"
    assert outcomes["passes=exact"] == "error"
    assert "with the pass 'forget-grid'" in cells(project)["passes=exact"]["headline"]


@pytest.mark.parametrize(
    ("passes", "says"),
    [
        ('["exactly"]', "none of none, exact, rounding, fast"),
        ('["exact", "exact"]', "with a duplicate"),
    ],
)
def test_a_word_that_is_no_policy_is_one_sentence(forgetful, passes, says):
    project = forgetful(suite=SUITE.replace('["none", "exact", "fast"]', passes))
    result = project.run()
    assert result.ret != 0
    result.stdout.fnmatch_lines([f"*{says}*"])


def test_an_unknown_pass_of_a_variant_is_one_sentence(forgetful):
    project = forgetful(suite=SUITE.replace("forget-grid", "forget-grids"))
    result = project.run("-k", "one")
    result.stdout.fnmatch_lines(["*forget-grids*"])
