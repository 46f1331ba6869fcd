"""A rule that matches nothing in a whole suite is red, with or without workers;
in a part of it nobody can know.
"""

import pytest

IDLE = """
[[rules]]
names = ["stem*"]
reason = "the first layer"

[[rules]]
activation = { qtype = "uint8", symmetry = "asymmetric" }
weight = { qtype = "int8", symmetry = "symmetric", granularity = "channel", narrow_range = true }
"""


@pytest.fixture
def idle(project):
    folder = project.path / "suites" / "schemas"
    folder.mkdir()
    (folder / "idle.toml").write_text(IDLE)
    project.write_suite(project.suite_path.read_text().replace('["w8a8_asym_pc"]', '["idle"]'))
    assert project.accept().ret == pytest.ExitCode.TESTS_FAILED
    return project


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_it_is_told_and_red(idle, workers):
    result = idle.run(workers=workers)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    sentence = (
        "*Running the schema 'idle': found rule 1 (names stem[*]), "
        "which matches no operator of tiny_a, tiny_b;*"
    )
    result.stdout.fnmatch_lines([sentence])
    assert set(idle.outcomes().values()) == {"passed"}
    (note,) = idle.lines(kind="note")
    assert note["text"].startswith("Running the schema 'idle'")
    (end,) = idle.lines(kind="end")
    assert end["exit_code"] == 1


def test_a_part_of_the_suite_cannot_tell(idle):
    result = idle.run("--qbench-select", "model=tiny_a")
    assert result.ret == pytest.ExitCode.OK
    assert idle.lines(kind="note") == []


@pytest.mark.slow
def test_a_rule_that_one_model_has_is_not_idle(idle):
    path = idle.path / "suites" / "schemas" / "idle.toml"
    path.write_text(IDLE.replace("stem*", "gemm0"))
    result = idle.run("--qbench-accept=all", "--qbench-reason", "another schema")
    assert result.ret == pytest.ExitCode.OK
    assert idle.lines(kind="note") == []
