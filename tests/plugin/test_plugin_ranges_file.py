"""``ranges_file`` of a suite: ranges by hand, for all cells or by pattern, noticed when edited."""

import pytest

SUITE = """
[suite]
backends = ["ort-cpu"]
schemas = ["w8a8_asym_pc", "w8a8_sym_pc"]
fp32 = false
agreement = 0.3
tolerance = 0.9

[[model]]
id = "tiny_a"
data = "points"
calibration = {{ data = "spare", count = 64 }}
metrics = ["top1", "agreement"]
{ranges}
"""
FILE = "[values.r1]\nlow = 0.0\nhigh = {high}\n"
KEY = 'ranges_file = "tiny.ranges.toml"'


@pytest.fixture
def by_hand(project):
    def write(ranges=KEY, high=2.0, name="r1"):
        text = FILE.format(high=high).replace("r1", name)
        (project.suite_path.parent / "tiny.ranges.toml").write_text(text)
        project.write_suite(SUITE.format(ranges=ranges))
        return project

    return write


def made(project):
    return {cell["schema"]: cell["made"] for cell in project.lines(kind="cell")}


def test_an_edited_file_is_named(by_hand):
    project = by_hand()
    assert project.accept().parseoutcomes() == {"accepted": 2}
    assert project.run().parseoutcomes() == {"passed": 2}
    first = made(project)["w8a8_asym_pc"]
    assert first["ranges"].startswith("1 value of 'tiny.ranges.toml' (#")
    result = by_hand(high=0.5).run()
    assert result.parseoutcomes() == {"failed": 2}
    second = made(project)["w8a8_asym_pc"]
    assert second["schema"] == first["schema"]
    result.stdout.fnmatch_lines(["*qbench localize tiny_a * --ranges suites/tiny.ranges.toml*"])
    result.stdout.fnmatch_lines(
        [f"*ranges by hand: {first['ranges']} → {second['ranges']}*".replace("[", "[[]")]
    )


@pytest.mark.slow
def test_a_file_that_is_new_or_gone_is_named(by_hand):
    project = by_hand(ranges="")
    assert project.accept().parseoutcomes() == {"accepted": 2}
    result = by_hand(high=0.5).run()
    assert result.parseoutcomes() == {"failed": 2}
    result.stdout.fnmatch_lines(["*ranges by hand: none → 1 value of 'tiny.ranges.toml'*"])


@pytest.mark.slow
def test_cells_by_pattern(by_hand):
    project = by_hand(ranges='ranges_file = { "w8a8_asym_pc" = "tiny.ranges.toml" }')
    project.run()
    found = made(project)
    assert "ranges" in found["w8a8_asym_pc"]
    assert "ranges" not in found["w8a8_sym_pc"]


@pytest.mark.slow
def test_a_model_without_that_of_its_suite(by_hand):
    project = by_hand(ranges='ranges_file = ""')
    text = project.suite_path.read_text().replace("[suite]\n", f"[suite]\n{KEY}\n")
    project.write_suite(text)
    project.run()
    assert not any("ranges" in one for one in made(project).values())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranges", "sentence"),
    [
        ('ranges_file = "none.toml"', "*none.toml*No such file*"),
        ("ranges_file = 3", "*ranges_file*a text*"),
        ('ranges_file = { "w9*" = "tiny.ranges.toml" }', "*ranges_file*w9*"),
    ],
)
def test_a_suite_with_a_mistake_does_not_start(by_hand, ranges, sentence):
    result = by_hand(ranges=ranges).run()
    assert result.ret != 0
    assert not result.parseoutcomes().get("passed")
    lines = [*result.outlines, *result.errlines]
    assert any(
        line for line in lines if all(word in line for word in sentence.strip("*").split("*"))
    )


@pytest.mark.slow
def test_a_value_that_no_model_has_is_an_error_of_the_cell(by_hand):
    project = by_hand(name="h9")
    result = project.run()
    assert set(project.outcomes().values()) == {"error"}
    result.stdout.fnmatch_lines(["*tiny.ranges.toml*unknown value 'h9'*"])
