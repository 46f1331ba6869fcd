"""The scripted year: check and page name the commits that changed a rule and the slide;
machines raise no alarm.
"""

import importlib.util
import json
import shutil
from pathlib import Path
from types import ModuleType

import pytest

from qbench.cli import main

pytestmark = pytest.mark.slow
SCRIPT = Path(__file__).parents[1] / "examples/scripted-year/scripted_year.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("scripted_year", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def year(script, tmp_path_factory) -> tuple[Path, tuple[str, ...]]:
    """The project after a year, and its commits."""
    project = tmp_path_factory.mktemp("year")
    return project, script.live(project)


def test_what_is_remembered_names_no_place_of_this_machine(year):
    project, _ = year
    told = [path.read_text() for path in (project / "reports/history").glob("*.jsonl")]
    assert any("pytest" in text and "suites/year.qbench.toml::" in text for text in told)
    assert not [text for text in told if str(project) in text]


def checked(
    capsys, project: Path, nights: int, tmp_path: Path, annotations: str = ""
) -> tuple[int, dict]:
    """(exit code, facts) of ``qbench history check`` after so many nights."""
    history = tmp_path / "history"
    history.mkdir()
    for path in sorted((project / "reports/history").glob("*.jsonl"))[:nights]:
        shutil.copy(path, history)
    (history / "annotations.toml").write_text(annotations)
    options = [
        "--history",
        str(history),
        "--project",
        str(project),
        "--baselines",
        str(project / "baselines"),
    ]
    code = main(["history", "check", "--json", *options])
    return code, json.loads(capsys.readouterr().out)


def steps(facts: dict) -> list[dict]:
    """The regressions that are steps."""
    return [one for one in facts["regressions"] if one["kind"] == "step"]


def test_before_anything_changes_two_machines_raise_no_alarm(script, year, capsys, tmp_path):
    code, facts = checked(capsys, year[0], script.SHORTER, tmp_path)
    assert (code, facts["regressions"]) == (0, [])


def outcomes(project: Path) -> list[str]:
    """What each night said of its cell."""
    paths = sorted((project / "reports/history").glob("*.jsonl"))
    return [json.loads(path.read_text().splitlines()[2])["outcome"] for path in paths]


def test_a_slide_that_every_night_let_pass_is_seen_beside_what_was_accepted(
    script, year, capsys, tmp_path, monkeypatch
):
    project, commits = year
    assert set(outcomes(project)[script.MACHINES : script.ROUNDS_DOWN]) == {"passed"}
    code, facts = checked(capsys, project, script.ROUNDS_DOWN, tmp_path)
    (slide,) = facts["regressions"]
    assert (code, slide["kind"], slide["new"], slide["suspects"]) == (1, "slide", True, [])
    alerts = {(alert["metric"], alert["environment_class"]): alert for alert in slide["alerts"]}
    assert set(alerts) == {
        (m, c) for m in ("top1", "agreement") for c in ("board-a-fw1", "board-b-fw1")
    }
    assert {alert["commit"] for alert in alerts.values()} == set(
        commits[script.SHORTER : script.SHORTER + 2]
    )
    drops = {round(400 * (alert["before"] - alert["after"])) for alert in alerts.values()}
    assert drops == {2}, "two stairs of one sample each, neither of which is a step"
    monkeypatch.chdir(project)
    options = [
        "--history",
        str(tmp_path / "history"),
        "--report",
        "html",
        "-o",
        str(tmp_path / "pages"),
    ]
    assert main(["report", *options]) == 0
    overview = (tmp_path / "pages/index.html").read_text()
    assert "slide" in overview
    assert commits[script.SHORTER][:9] in overview or commits[script.SHORTER + 1][:9] in overview
    model = (tmp_path / "pages/models/fashion_mobile.html").read_text()
    accepted = {alert["metric"]: 100 * alert["before"] for alert in alerts.values()}
    assert f", accepted {accepted['top1']:.2f} %" in model


def test_the_commit_that_rounds_down_is_named_while_it_is_bad(script, year, capsys, tmp_path):
    project, commits = year
    code, facts = checked(capsys, project, script.ROUNDS_AGAIN, tmp_path)
    assert code == 1
    (regression,) = steps(facts)
    assert regression["suspects"] == [commits[script.ROUNDS_DOWN]]
    assert regression["subject"] == "Last step of the kernels: one instruction less"
    assert {alert["environment_class"] for alert in regression["alerts"]} == {
        "board-a-fw1",
        "board-b-fw1",
    }


def test_the_upgrade_of_a_machine_moves_its_numbers_and_raises_no_alarm(
    script, year, capsys, tmp_path
):
    project, commits = year
    code, facts = checked(capsys, project, script.CALIBRATES_NARROWLY, tmp_path)
    (regression,) = steps(facts)
    assert (code, regression["new"], regression["suspects"]) == (
        1,
        False,
        [commits[script.ROUNDS_DOWN]],
    )
    (slide,) = [one for one in facts["regressions"] if one["kind"] == "slide"]
    assert "board-a-fw2" not in {alert["environment_class"] for alert in slide["alerts"]}, (
        "nothing was accepted there"
    )
    assert {alert["state"] for alert in regression["alerts"]} == {"fixed"}
    lines = [
        json.loads(path.read_text().splitlines()[2])
        for path in sorted((project / "reports/history").iterdir())
    ]
    agreement = {
        line["environment_class"]: line["metrics"]["agreement"]["hits"]
        for line in lines[: script.ROUNDS_DOWN]
    }
    after = lines[script.UPGRADE + 1]
    assert after["environment_class"] == "board-a-fw2"
    assert (
        after["metrics"]["agreement"]["hits"] < agreement["board-a-fw1"] - 2
    )  # the noise that is to be passed over


def test_the_calibration_rule_is_named_and_can_be_ruled_on(script, year, capsys, tmp_path):
    project, commits = year
    culprit = commits[script.CALIBRATES_NARROWLY]
    code, facts = checked(capsys, project, script.COMMITS, tmp_path)
    assert code == 1
    (new,) = [one for one in steps(facts) if one["new"]]
    assert new["suspects"] == [culprit]
    assert {alert["environment_class"] for alert in new["alerts"]} == {"board-a-fw2", "board-b-fw1"}
    note = "".join(
        f'[[annotation]]\ncommit = "{commit[:9]}"\nstate = "expected"\nauthor = "ann"\n'
        'reason = "a trial"\n'
        for commit in (
            next(one for one in facts["regressions"] if one["kind"] == "slide")["alerts"][0][
                "commit"
            ],
            culprit,
        )
    )
    (tmp_path / "ruled").mkdir()
    code, facts = checked(capsys, project, script.COMMITS, tmp_path / "ruled", note)
    assert (code, facts["new"], facts["idle_annotations"]) == (0, 0, [])
