"""Reports at the end of a run know what was accepted and said of it; GitHub is told;
JUnit has the counts.
"""

import json
import re
import xml.etree.ElementTree

import pytest

STRICT = "tolerance = 0.003"


def cell_page(project, model):
    return (project.path / "reports" / "models" / f"{model}.html").read_text()


def worse_from(project, night):
    """Four more nights like the accepted one;
    from number ``night`` on tiny_a has lost forty samples.
    """
    accepted = project.run_files[0].read_text().splitlines()
    for number in range(1, 8):
        lines = [json.loads(line) for line in accepted]
        lines[0] |= {"started": f"2020-01-0{number}T00:00:00Z", "id": f"night-{number}"}
        lines[0]["commit"] = {"sha": f"{number}" * 40, "short": f"{number}" * 9, "dirty": False}
        for line in lines:
            if line["type"] == "cell" and line["model"] == "tiny_a" and number >= night:
                line["metrics"]["top1"]["hits"] -= 40
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (project.path / "reports" / "history" / f"night-{number}.jsonl").write_text(text)
    project.run_files[0].unlink()


@pytest.mark.slow
def test_a_report_at_the_end_knows_what_was_accepted_and_what_people_said(project):
    project.accept()
    worse_from(project, 4)
    (project.path / "reports" / "history" / "annotations.toml").write_text(
        '[[annotation]]\ncommit = "444444444"\nstate = "expected"\nauthor = "ann"\n'
        'reason = "a cheaper table"\n'
    )
    assert project.run("--qbench-report=html", "-k", "tiny_b").ret == 0
    overview = (project.path / "reports" / "index.html").read_text()
    assert "a cheaper table (ann)" in overview
    assert ", accepted " in cell_page(project, "tiny_a")


@pytest.mark.slow_but(1)
@pytest.mark.parametrize("summary", [True, False])
def test_github_is_told_what_broke_and_in_which_suite_file(project, monkeypatch, summary):
    project.accept()
    project.write_suite(project.suite_path.read_text().replace("tolerance = 0.2", STRICT))
    told = project.path / "summary.md"
    told.write_text("before\n")
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    if summary:
        monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(told))
    result = project.run("--qbench-report=github")
    assert result.ret == 1
    (command,) = [line for line in result.outlines if line.startswith("::error ")]
    assert re.match(
        r"::error file=suites/scratch\.qbench\.toml,title=scratch%3A .*::tiny_a::ort-cpu", command
    )
    assert told.read_text().startswith("before\n# qbench scratch\n" if summary else "before\n")
    assert ("# qbench" in told.read_text()) is summary
    assert not (project.path / "reports" / "index.html").exists()


@pytest.mark.slow
def test_github_is_told_of_the_suites_of_this_job_alone(project, monkeypatch, tmp_path_factory):
    summary = tmp_path_factory.mktemp("job") / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    project.accept()
    lines = [json.loads(line) for line in project.run_files[0].read_text().splitlines()]
    lines[0] |= {"id": "other-night", "suite": "other", "started": "2020-01-01T00:00:00Z"}
    cells = [
        line | {"suite": "other", "outcome": "failed"} for line in lines if line["type"] == "cell"
    ]
    (project.path / "reports/history/other.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in [lines[0], *cells, lines[-1]])
    )
    result = project.run("--qbench-report=github")
    assert result.ret == 0
    assert [line for line in result.outlines if line.startswith("::")] == []
    assert "# qbench scratch" in summary.read_text()
    assert "other" not in summary.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1])
def test_junit_xml_has_the_counts_of_each_cell_as_properties(project, workers):
    project.accept()
    project.run("--junitxml=junit.xml", workers=workers)
    lines = {f"{c['model']}::{c['backend']}+{c['schema']}": c for c in project.lines(kind="cell")}
    cases = xml.etree.ElementTree.parse(project.path / "junit.xml").findall(".//testcase")
    assert len(cases) == len(lines) == 8
    for case in cases:
        found = [(one.get("name"), one.get("value")) for one in case.findall("properties/property")]
        line = lines[f"{case.get('classname').rpartition('.')[2]}::{case.get('name')}"]
        assert len(found) == len(dict(found)) == 2 + 6 * len(line["metrics"])
        assert dict(found)["outcome"] == "passed"
        assert dict(found)["agreement:hits"] == str(line["metrics"]["agreement"]["hits"])
