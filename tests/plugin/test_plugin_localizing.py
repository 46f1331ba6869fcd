"""A red cell in pytest says which node went wrong and why, in the summary, in the run file, and
beside the reports.
"""

import html
import shutil
import subprocess
from pathlib import Path

import pytest

from qbench.judging import Cause
from qbench.quantization import load_schema
from qbench.tracking import finding_of_line

ROOT = Path(__file__).parents[2]
OWN = ROOT / "examples" / "own-model" / ".gitignore"
SPOILT = """
[[rules]]
names = ["gemm1"]
weight = { qtype = "int8", symmetry = "symmetric", range_method = "percentile(50)" }

[[rules]]
activation = { qtype = "uint8", symmetry = "asymmetric" }
weight = { qtype = "int8", symmetry = "symmetric", granularity = "channel", narrow_range = true }
"""
SUITE = """
[suite]
tolerance = 0.05
agreement = 0.9
integer_macs = 0.3
backends = ["ort-cpu-precise"]
schemas = ["spoilt", "w8a8_asym_pc"]

[[model]]
id = "tiny_a"
data = "points"
calibration = { data = "spare", count = 64 }
metrics = ["top1", "agreement"]
"""
CELL = "tiny_a.ort-cpu-precise.spoilt"


@pytest.fixture
def spoilt(project):
    project.write_suite(SUITE)
    schemas = project.suite_path.parent / "schemas"
    schemas.mkdir()
    (schemas / "spoilt.toml").write_text(SPOILT)
    project.accept()  # the references; a bad cell is accepted by nobody
    project.write_ini(
        f"qbench_cache = {project.cache}", "qbench_localize = 300"
    )  # on a busy machine too
    return project


@pytest.mark.slow
@pytest.mark.parametrize("ignored", [ROOT / ".gitignore", OWN])
def test_a_red_run_writes_nothing_that_git_would_take(spoilt, ignored):
    """Pages, charts, models, overrides, findings, the run file: all of this machine; what
    people noted is kept.
    """

    def git(*command):
        name = (
            "-c",
            "user.name=q",
            "-c",
            "user.email=q@example.org",
            "-c",
            "init.defaultBranch=main",
        )
        return subprocess.run(
            ["git", *name, *command], check=True, capture_output=True, text=True, cwd=spoilt.path
        )

    shutil.copy(ignored, spoilt.path / ".gitignore")
    git("init")
    home = spoilt.path / ".git" / "info" / "exclude"
    home.write_text(
        ".cache/\n"
    )  # the home folder of a test is its project, and engines write there
    for command in (("add", "."), ("commit", "-m", "before")):
        git(*command)
    assert not git("ls-files", "reports").stdout
    assert spoilt.run(*(f"--qbench-report={kind}" for kind in ("html", "md", "png"))).ret == 1
    written = {
        path.relative_to(spoilt.path).parts[1] for path in (spoilt.path / "reports").rglob("*")
    }
    assert {"models", "overrides", "index.html", "report.md", "history"} <= written
    assert git("status", "--porcelain").stdout == ""
    (spoilt.path / "reports" / "history" / "annotations.toml").write_text("")
    assert git("status", "--porcelain").stdout == "?? reports/\n"


def test_a_red_cell_names_its_node_and_a_schema_that_repairs_it(spoilt):
    result = spoilt.run()
    assert spoilt.outcomes() == {
        "tiny_a::ort-cpu-precise+fp32": "passed",
        "tiny_a::ort-cpu-precise+spoilt": "failed",
        "tiny_a::ort-cpu-precise+w8a8_asym_pc": "passed",
    }
    (line,) = spoilt.lines(kind="finding")
    cell, finding = finding_of_line(line)
    assert str(cell).endswith("tiny_a::ort-cpu-precise+spoilt")
    assert finding.suspects[0].node in ("gemm1", "relu1")
    assert finding.repair.nodes == ("gemm1",)
    assert finding.complete
    assert finding.notes == ()
    worst = "worst: *1, isolated SQNR * dB, weights clipped * %, cause: clipping"
    told = f"{worst}; repaired by keeping 1 node in float (gemm1), "
    result.stdout.fnmatch_lines([f"*{told}*"])
    path = spoilt.path / "reports" / "overrides" / "scratch" / f"{CELL}.toml"
    assert path.read_text() == finding.repair.overrides
    result.stdout.fnmatch_lines(
        [f"*wrote reports/overrides/scratch/{CELL}.toml: a schema that repairs the cell*"]
    )
    schemas = spoilt.suite_path.parent / "schemas"
    (schemas / "mended.toml").write_text(path.read_text())
    assert load_schema(path).rules == load_schema(schemas / "mended.toml").rules
    spoilt.write_suite(SUITE.replace('"spoilt"', '"mended"'))
    spoilt.run("--qbench-missing=warn")
    (mended,) = (c for c in spoilt.lines(kind="cell") if c["schema"] == "mended")
    assert "never accepted" in mended["headline"]
    assert not any(
        gate["state"] == "broken" and gate["kind"] in ("loss", "floor") for gate in mended["gates"]
    )


@pytest.mark.slow
def test_a_cell_that_was_never_accepted_and_would_fail_is_localised(spoilt):
    schemas = spoilt.suite_path.parent / "schemas"
    (schemas / "fresh.toml").write_text(SPOILT.replace("percentile(50)", "percentile(40)"))
    (schemas / "holds.toml").write_text(SPOILT.replace("percentile(50)", "minmax"))
    spoilt.write_suite(SUITE.replace('"w8a8_asym_pc"', '"fresh", "holds"'))
    spoilt.run()
    assert spoilt.outcomes()["tiny_a::ort-cpu-precise+fresh"] == "missing"
    assert spoilt.outcomes()["tiny_a::ort-cpu-precise+holds"] == "missing"
    found = {
        str(cell).rpartition("+")[2]: finding
        for cell, finding in map(finding_of_line, spoilt.lines(kind="finding"))
    }
    assert set(found) == {"spoilt", "fresh"}
    repair = found["fresh"].repair
    assert repair.nodes == ("gemm1",)
    for text in (repair.verdict, repair.overrides):
        assert "never accepted" not in text
        assert "…" not in text
        assert "top1" in text


@pytest.mark.slow
def test_a_repair_that_leaves_too_little_in_integers_says_so(spoilt):
    spoilt.write_suite(SUITE.replace("integer_macs = 0.3", "integer_macs = 0.6"))
    spoilt.run()
    (line,) = spoilt.lines(kind="finding")
    (note,) = finding_of_line(line)[1].notes
    assert "48.9 %" in note
    assert "60 %" in note


@pytest.mark.slow
def test_findings_travel_from_workers(spoilt):
    spoilt.run(workers=2)
    (line,) = spoilt.lines(kind="finding")
    assert finding_of_line(line)[1].repair.nodes == ("gemm1",)
    assert (spoilt.path / "reports" / "overrides" / "scratch" / f"{CELL}.toml").exists()


@pytest.mark.slow_but(1)
@pytest.mark.parametrize("by", ["option", "ini"])
def test_0_seconds_look_for_nothing(spoilt, by):
    if by == "ini":
        spoilt.write_ini(f"qbench_cache = {spoilt.cache}", "qbench_localize = 0")
    result = spoilt.run(*(["--qbench-localize=0"] if by == "option" else []))
    assert spoilt.outcomes()["tiny_a::ort-cpu-precise+spoilt"] == "failed"
    assert spoilt.lines(kind="finding") == []
    result.stdout.no_fnmatch_line("*worst:*")


BREAKING = """
import os
from dataclasses import dataclass, field
from qbench.backends import Closing, get_backend
from qbench.graph import Capabilities

@dataclass(frozen=True)
class Aborting:
    name: str = "aborting"
    capabilities: Capabilities = field(
        default_factory=lambda: get_backend("ort-cpu-precise").capabilities)
    packages: tuple = ()

    def prepare(self, model, *, taps=(), threads=1):
        names = {node.name for node in model.graph}
        if "gemm2" in names and "gemm0" not in names:
            os.abort()
        return get_backend("ort-cpu-precise").prepare(model, taps=taps, threads=threads)

MORE = {"backends": {"aborting": Aborting}}
"""


@pytest.mark.slow
def test_an_engine_that_aborts_on_a_node_alone_is_a_finding_and_the_other_cells_are_run(spoilt):
    """In a process of its own: were the engine in it, it would end."""
    spoilt.write_conftest(BREAKING)
    spoilt.write_suite(SUITE.replace('["ort-cpu-precise"]', '["aborting", "ort-cpu-precise"]'))
    result = spoilt.run("--qbench-report=html", "--qbench-localize=300", process=True)
    outcomes = spoilt.outcomes()
    assert outcomes["tiny_a::ort-cpu-precise+w8a8_asym_pc"] == "passed"
    assert outcomes["tiny_a::ort-cpu-precise+spoilt"] == "failed"
    found = {cell.backend: one for cell, one in map(finding_of_line, spoilt.lines(kind="finding"))}
    (crash,) = (one for one in found["aborting"].suspects if one.cause is Cause.CRASH)
    assert crash.node == "gemm2"
    assert crash.evidence.startswith("'aborting' ")
    assert "SIGABRT" in crash.evidence
    assert crash.remedy
    assert {"gemm0", "gemm1"} <= {
        node.node.replace("relu", "gemm") for node in found["aborting"].nodes
    }
    assert found["ort-cpu-precise"].suspects[0].cause is Cause.CLIPPING
    result.stdout.fnmatch_lines(["*; gemm2: engine crash; repaired by *"])
    (page,) = (spoilt.path / "reports" / "findings").glob("*aborting*spoilt*.html")
    assert crash.evidence.partition(":")[0] in html.unescape(page.read_text())


@pytest.mark.slow
def test_what_a_process_has_spent_is_not_spent_again(spoilt):
    spoilt.write_suite(SUITE.replace('["ort-cpu-precise"]', '["ort-cpu-precise", "ort-cpu-noopt"]'))
    spoilt.run("--qbench-localize=0.001")
    first, *others = spoilt.lines(kind="finding")
    assert others == []
    assert not finding_of_line(first)[1].complete


def test_what_is_no_number_of_seconds_is_refused(project):
    result = project.run("--qbench-localize=soon")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--qbench-localize: found 'soon'*"])


@pytest.mark.slow
def test_a_failure_to_localise_is_a_sentence_and_the_cell_red_for_its_own_reason(
    spoilt, monkeypatch
):
    import qbench.diagnosis

    def broken(*arguments, **more):
        raise ZeroDivisionError("no such luck")

    monkeypatch.setattr(qbench.diagnosis, "localize_verdict", broken, raising=False)
    result = spoilt.run()
    assert spoilt.outcomes()["tiny_a::ort-cpu-precise+spoilt"] == "failed"
    (line,) = spoilt.lines(kind="finding")
    assert finding_of_line(line)[1].notes == ("could not be localised: no such luck",)
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*could not be localised: no such luck"])


@pytest.mark.slow
def test_an_overrides_folder_that_cannot_be_written_is_a_note(spoilt):
    (spoilt.path / "reports" / "overrides").write_text("in the way")
    spoilt.run()
    assert any("overrides" in note["text"] for note in spoilt.lines(kind="note"))
    assert spoilt.lines(kind="end")
