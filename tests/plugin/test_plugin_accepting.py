"""Missing → accepted → green → other weights → stale → accepted → green,
and whatever refuses to accept.
"""

import json

import pytest

from qbench.judging import mcnemar_midp
from qbench.tracking import load_baseline

CELL = "tiny_b::ort-cpu+w8a8_asym_pc"


def fewer_calibration_samples(project):
    """What the quantizer decides changes a little; the model, the data and the reference do not."""
    project.write_suite(project.suite_path.read_text().replace("count = 64", "count = 48"))


def test_the_whole_story(project, monkeypatch):
    result = project.run("-k", "tiny_b")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "no baseline*",
            f"  cell: {CELL} is missing",
            (
                '  next: pytest "suites/scratch.qbench.toml::tiny_b" --qbench-accept-fp32 '
                "--qbench-accept=new"
            ),
        ]
    )
    result = project.accept()
    assert result.ret == 0
    assert result.parseoutcomes() == {"accepted": 8}
    result.stdout.fnmatch_lines(
        [
            "accepted in x64-test+onnxruntime-*:",
            "  tiny_b::ort-cpu+w8a8_asym_pc  *agreement*— → 9?.?? %",
        ]
    )
    assert project.run().parseoutcomes() == {"passed": 8}

    before = (project.path / "baselines/scratch/tiny_a.json").read_bytes()
    monkeypatch.setenv("TINY_B_SEED", "7")
    result = project.run()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert result.parseoutcomes() == {"passed": 4, "failed": 4}
    result.stdout.fnmatch_lines(
        [
            "the baseline is of another model; fp32 has * % agreement with the stored one",
            f"  cell: {CELL} is stale",
        ]
    )
    assert set(project.outcomes().values()) == {"passed", "stale"}

    result = project.run(
        "--qbench-accept-fp32", "--qbench-accept=all", "--qbench-reason", "trained anew"
    )
    assert result.ret == 0
    assert project.run().parseoutcomes() == {"passed": 8}
    assert (project.path / "baselines/scratch/tiny_a.json").read_bytes() == before
    stored = json.loads((project.path / "baselines/scratch/tiny_b.json").read_text())
    reasons = {
        a.get("reason") for cell in stored["cells"].values() for a in cell["accepted"].values()
    }
    assert "trained anew" in reasons


@pytest.mark.slow
@pytest.mark.parametrize(("seeds", "state"), [("2 7", "holds"), ("3 2", "broken")])
def test_before_a_retrained_model_is_accepted_its_fp32_is_judged_on_the_same_samples(
    project, monkeypatch, seeds, state
):
    before, after = seeds.split()
    project.write_suite(
        project.suite_path.read_text().replace('metrics = ["agreement"]', 'metrics = ["top1"]')
    )
    monkeypatch.setenv("TINY_B_SEED", before)
    project.accept()
    place = project.path / "baselines/scratch"
    old, labels = (
        load_baseline(place / "tiny_b.json"),
        load_baseline(place / "tiny_a.json").stored["points"].ids[:, 0],
    )
    monkeypatch.setenv("TINY_B_SEED", after)
    result = project.run()
    stale = [line for line in project.lines() if line.get("outcome") == "stale"]
    (gate,) = {
        json.dumps(gate) for line in stale for gate in line["gates"] if gate["kind"] == "fp32"
    }
    (headline,) = {line["headline"] for line in stale}
    (remedy,) = {line["remedy"] for line in stale}
    project.run("--qbench-accept-fp32", "--qbench-accept=all", "--qbench-reason", "trained anew")
    right, now = (
        one.stored["points"].ids[:, 0] == labels
        for one in (old, load_baseline(place / "tiny_b.json"))
    )
    losses, gains, n = int((right & ~now).sum()), int((now & ~right).sum()), len(labels)
    gate = json.loads(gate)
    assert gate["state"] == state
    assert f"losses {losses}, gains {gains};" in gate["detail"]
    assert f"{now.sum()}/{n} = " in gate["detail"]
    assert f"against the stored fp32 {right.sum()}/{n} = " in gate["detail"]
    assert gate["shown"]["midp"] == mcnemar_midp(losses, gains)
    assert gate["limit"] == pytest.approx(0.8 * right.mean())  # the tolerance of the suite
    assert f"fp32 top1 {100 * right.mean():.2f} → {100 * now.mean():.2f} %" in headline
    assert ("only if the loss of the fp32 model is intended" in remedy) == (state == "broken")
    result.stdout.fnmatch_lines([headline, f"*fp32: {gate['detail'][:40]}*", f"      {headline}"])


@pytest.mark.slow
def test_accepting_with_two_workers(project):
    project.run("--qbench-accept-fp32", "--qbench-accept=new", "--dist", "loadscope", workers=2)
    assert project.run().parseoutcomes() == {"passed": 8}


@pytest.mark.slow
def test_drift_is_red_until_accepted_with_a_reason(project):
    project.accept()
    fewer_calibration_samples(project)
    result = project.run()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    drifted = [cell for cell, outcome in project.outcomes().items() if outcome == "drifted"]
    assert drifted
    assert all("w8a8" in cell for cell in drifted)
    result.stdout.fnmatch_lines(["*✗ drift: *points*", "*--qbench-accept=changed --qbench-reason*"])
    assert project.run("--qbench-accept=new").ret == pytest.ExitCode.TESTS_FAILED
    result = project.run("--qbench-accept=changed", "--qbench-reason", "fewer samples")
    assert result.parseoutcomes() == {"passed": 8 - len(drifted), "accepted": len(drifted)}
    assert project.run().parseoutcomes() == {"passed": 8}


@pytest.mark.slow
def test_drift_on_another_processor_is_a_notice(project, monkeypatch):
    project.accept()
    fewer_calibration_samples(project)
    project.write_suite(
        project.suite_path.read_text().replace("[suite]", "[suite]\nranges = 1.0")
    )  # not what is asked
    monkeypatch.setenv("FAKE_PROCESSOR", "arm64-test")
    result = project.run()
    assert result.ret == 0
    assert result.parseoutcomes() == {"passed": 8}
    result.stdout.fnmatch_lines(
        ["note: nothing accepted for arm64-test+onnxruntime-*(accepted: x64-test*"]
    )
    assert project.lines(kind="environment")[0]["processor"] == "arm64-test"
    run = project.lines(kind="run")[0]["id"]
    result.stdout.fnmatch_lines(
        [f"*next: qbench compare previous {run} --across", f"*then: qbench accept {run} --what new"]
    )


@pytest.mark.parametrize(
    ("options", "environment", "sentence"),
    [
        (
            ["--qbench-accept=new"],
            {"CI": "true"},
            "*found the environment variable CI;*--qbench-accept-in-ci*",
        ),
        (["--qbench-accept-fp32"], {"CI": "1"}, "*found the environment variable CI;*"),
        (
            ["--qbench-accept=new", "--qbench-limit=10"],
            {},
            "*found --qbench-limit; expected a run over all samples.*",
        ),
        (
            ["--qbench-accept"],
            {},
            "*found --qbench-accept=changed without a reason;*Add --qbench-reason*",
        ),
        (["--qbench-accept=all"], {}, "*found --qbench-accept=all without a reason;*"),
        (
            ["--qbench-prune"],
            {"CI": "true"},
            "*Pruning baselines: found the environment variable CI;*",
        ),
        (
            ["--qbench-accept=most"],
            {},
            "*found 'most'; expected one of new, improved, changed, all*",
        ),
    ],
)
def test_refused_before_anything_runs(project, monkeypatch, options, environment, sentence):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    result = project.run(*options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([sentence])
    assert "Traceback" not in result.stderr.str()
    assert not (project.path / "baselines").exists()


@pytest.mark.slow
def test_in_ci_with_the_word_for_it(project, monkeypatch):
    monkeypatch.setenv("CI", "true")
    assert project.accept("--qbench-accept-in-ci").parseoutcomes() == {"accepted": 8}
    assert (project.path / "baselines/scratch/tiny_a.json").exists()


@pytest.mark.slow
def test_a_run_that_ended_early_accepts_nothing(project):
    project.write_suite(
        project.suite_path.read_text().replace("tolerance = 0.2", "tolerance = 0.003")
    )
    result = project.accept("-x")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["Nothing was accepted*"])
    assert not (project.path / "baselines").exists()


@pytest.mark.slow
def test_a_loss_beyond_tolerance_is_recorded_but_stays_red(project):
    project.write_suite(
        project.suite_path.read_text().replace("tolerance = 0.2", "tolerance = 0.003")
    )
    result = project.accept()
    assert result.parseoutcomes() == {"accepted": 6, "failed": 2}
    result = project.run()
    assert result.parseoutcomes() == {"passed": 6, "failed": 2}
    text = result.stdout.str()
    assert "Traceback" not in text
    assert "session.py" not in text
    result.stdout.fnmatch_lines(
        [
            "  cell: tiny_a::ort-cpu+w8a8_asym_pc is failed",
            "  ✗ loss: top1 3*/400 = *against fp32 400/400*",
            "  rule: tolerance 0.3 % (suite scratch)",
            "  next: *",
        ]
    )


@pytest.mark.slow
def test_a_damaged_baseline_is_one_sentence_and_can_be_accepted_anew(project):
    project.accept()
    path = project.path / "baselines/scratch/tiny_b.json"
    path.write_text(path.read_text()[:200])
    result = project.run()
    assert result.parseoutcomes() == {"passed": 4, "failed": 4}
    result.stdout.fnmatch_lines(["*'*tiny_b.json': found *JSON*", "  cell: *is error"])
    assert "Traceback" not in result.stdout.str()
    torn = path.read_bytes()
    refused = project.run("--qbench-accept-fp32", "--qbench-accept=all", "--qbench-reason=x")
    assert refused.ret != 0
    assert path.read_bytes() == torn
    path.rename(
        f"{path}.damaged"
    )  # as the message advises: what it held for other classes stays there
    assert project.accept().ret == 0
    assert project.run().parseoutcomes() == {"passed": 8}


UNREADABLE = {
    "floors": lambda cell, _: cell["floors"].update(agreement="x"),
    "result of the other class": lambda cell, other: cell["accepted"][other].update(predictions=3),
    "noise": lambda cell, other: cell.update(noise={other: 3}),
}


@pytest.mark.slow_but(1)
@pytest.mark.parametrize("what", UNREADABLE)
def test_accepting_over_a_value_that_cannot_be_read_loses_no_other_class(
    what, project, monkeypatch
):
    """It is made again by this run, or nothing is written."""
    select = ("-k", "tiny_b and not noopt and not fp32")
    project.accept(*select)
    path = project.path / "baselines/scratch/tiny_b.json"
    table = json.loads(path.read_text())
    ((slug, cell),) = table["cells"].items()
    (own,) = cell["accepted"]
    other = f"arm64-test+{own.partition('+')[2]}"
    cell["accepted"][other] = dict(cell["accepted"][own])
    UNREADABLE[what](cell, other)
    path.write_text(json.dumps(table))
    before = path.read_bytes()
    project.write_suite(
        project.suite_path.read_text().replace("count = 64", "count = 48")
    )  # another result
    result = project.run(
        "--qbench-accept-fp32", "--qbench-accept=all", "--qbench-reason=x", *select
    )
    if what == "floors":
        assert result.ret == 0
        assert json.loads(path.read_text())["cells"][slug]["accepted"].keys() == {own, other}
        assert load_baseline(path).cells[slug].floors
    else:
        assert result.ret != 0
        assert path.read_bytes() == before


@pytest.mark.slow
def test_results_of_another_class_outlive_a_damaged_reference(project, monkeypatch):
    """The .json is whole: what the message advises must not throw it away."""
    select = ("-k", "tiny_b and fp32 and not noopt")
    project.accept(*select)
    monkeypatch.setenv("FAKE_PROCESSOR", "arm64-test")
    project.run("--qbench-accept=new", *select)
    before = (project.path / "baselines/scratch/tiny_b.json").read_bytes()
    (project.path / "baselines/scratch/tiny_b.fp32.npz").write_bytes(b"torn")
    result = project.run("--qbench-accept-fp32", *select)
    result.stdout.fnmatch_lines(["*baseline of 'tiny_b'*tiny_b.fp32.npz*"])
    assert (project.path / "baselines/scratch/tiny_b.json").read_bytes() == before
    assert project.run(*select).parseoutcomes()["passed"] == 1


@pytest.mark.slow_but(1)
@pytest.mark.parametrize(
    ("choice", "outcomes"), [("warn", {"missing": 8}), ("skip", {"skipped": 8})]
)
def test_what_missing_baselines_do_is_a_choice(project, choice, outcomes):
    result = project.run(f"--qbench-missing={choice}")
    assert result.ret == 0
    assert result.parseoutcomes() == outcomes
    result.stdout.fnmatch_lines(["*No cell is red: 0 pass, 8 without a baseline*"])
    result.stdout.no_fnmatch_line("*are red*")
    place = f"'{project.path / 'baselines'}' (root folder of pytest: '{project.path}')"
    assert result.outlines.count(f"no baseline in {place}") == 1
    assert not [note for note in project.lines(kind="note") if str(project.path) in note["text"]]


@pytest.mark.slow
def test_a_limited_run_is_judged_against_fp32_of_today(project):
    project.accept()
    result = project.run("--qbench-limit=20")
    assert result.ret == 0
    assert project.lines(kind="cell")[0]["n"] == 20
    assert project.lines(kind="run")[0]["limited"] == 20
    assert project.lines(kind="run")[0]["complete_selection"] is False
    result.stdout.fnmatch_lines(["note: *20 samples*"])
    result.stdout.fnmatch_lines(["note: * (8 cells)"])
    result.stdout.no_fnmatch_line("*nothing accepted*")
    result.stdout.no_fnmatch_line("*of the suite*selected*")


@pytest.mark.slow
def test_an_entry_that_ran_out_does_not_keep_from_accepting(project):
    (project.suite_path.parent / "scratch.quarantine.toml").write_text(
        '[[cell]]\ncell = "tiny_a::ort-cpu+*"\nmeasured = "97 %"\nreason = "old"\nowner = "ann"\n'
        'expires = "2020-01-01"\n'
    )
    result = project.accept("-k", "tiny_a")
    result.stdout.fnmatch_lines(["The quarantine entry 'tiny_a::ort-cpu+[*]' ended on 2020-01-01*"])
    assert result.stdout.str().count("ended on 2020-01-01 and prevents") == 1
    project.run("-k", "tiny_a")
    assert set(project.outcomes().values()) == {"passed"}


def test_a_loss_that_is_being_accepted_is_not_told_to_be_accepted(project):
    project.write_suite(
        project.suite_path.read_text().replace("tolerance = 0.2", "tolerance = 0.003")
    )
    result = project.accept("-k", "tiny_a and not noopt")
    assert result.parseoutcomes()["failed"] == 1
    result.stdout.fnmatch_lines(
        [
            "  next: find the cause, or give the cell its own tolerance "
            "or a quarantine entry ('qbench*"
        ]
    )
    for text in ("*next: pytest*", "*never accepted*", "note: nothing accepted yet*"):
        result.stdout.no_fnmatch_line(text)


@pytest.mark.slow
def test_a_cell_that_is_bad_on_one_processor_only_passes_on_another(project, monkeypatch):
    """Listed here, it can never be accepted here; where it is not listed it is judged against
    fp32 all the same.
    """
    (project.suite_path.parent / "scratch.quarantine.toml").write_text(
        '[[cell]]\ncell = "tiny_a::ort-cpu+w8a8_asym_pc"\nmeasured = "97 %"\n'
        'reason = "pairs saturate"\n'
        'owner = "ann"\nexpires = "2999-01-01"\nwhen = ["x64-test"]\n'
    )
    project.write_suite(
        project.suite_path.read_text().replace("tolerance = 0.2", "tolerance = 0.003")
    )
    project.accept("-k", "tiny_a and not noopt")
    assert project.run("-k", "tiny_a and not noopt").parseoutcomes()["quarantined"] == 1
    monkeypatch.setenv("FAKE_PROCESSOR", "arm64-test")
    assert (
        project.run("-k", "tiny_a and not noopt").parseoutcomes()["failed"] == 1
    )  # its loss is judged
    project.write_suite(
        project.suite_path.read_text().replace("tolerance = 0.003", "tolerance = 0.2")
    )
    result = project.run("-k", "tiny_a and not noopt")
    assert result.ret == 0
    assert set(project.outcomes().values()) == {"passed"}


OWN_CODE = """
from dataclasses import dataclass


@dataclass(frozen=True)
class Stepped(ReadyArray):
    @property
    def name(self):
        return "stepped"

    def finish(self, batch):
        return {n: SCALE * np.sign(a) for n, a in batch.items()}


@dataclass(frozen=True)
class Shifted(Classification):
    @property
    def name(self):
        return "shifted"


def stepped_a():
    made = model("tiny_a", 1)()
    return dataclasses.replace(made, preprocess=Stepped(input="x"), task=Shifted(k=3))


MORE = {}
"""


@pytest.mark.slow_but(1)
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("SCALE * np.sign(a)", "0.01 * SCALE * np.sign(a)"),  # a preprocessing that keeps its name
        ("SCALE = 1.0", "SCALE = 0.01"),  # a constant that it reads
    ],
)
def test_changed_code_is_measured_anew_though_its_name_stays(project, before, after):
    """Samples, profile and fp32 run of the former code would make the reference and the ranges
    those of the former.
    """
    project.write_suite(
        project.suite_path.read_text().replace(
            'backends = ["ort-cpu", "ort-cpu-noopt"]', 'backends = ["ort-cpu"]'
        )
    )
    code = "import dataclasses\nSCALE = 1.0\n" + OWN_CODE
    wired = (
        "\nWEIGHTS.clear(); MODELS_OF_MINE = {'tiny_a': stepped_a, 'tiny_b': model('tiny_b', 2)}\n"
    )
    hook = (
        "\ndef pytest_qbench_extension(config):\n"
        "    return Extension(name='mine', models=MODELS_OF_MINE, datasets={'points': "
        "data('points', 10), "
        "'spare': data('spare', 11, 64)})\n"
    )

    def measured(text):
        project.write_conftest(text, wired + hook)
        assert (
            project.run(
                "-k", "tiny_a", "--qbench-accept-fp32", "--qbench-accept=all", "--qbench-reason=x"
            ).ret
            == 0
        )
        quantized, bare = (
            next(c for c in project.lines(kind="cell") if (c["schema"] == "fp32") is floats)
            for floats in (False, True)
        )
        baseline = json.loads((project.path / "baselines" / "scratch" / "tiny_a.json").read_text())
        ranges = next(iter(baseline["calibrations"].values()))
        return (
            bare["metrics"]["top1"]["hits"],
            quantized["metrics"]["top1"]["reference_hits"],
            ranges["x"],
        )

    fp32, reference, seen = measured(code)
    assert fp32 == reference
    fp32_now, reference_now, seen_now = measured(code.replace(before, after))
    assert fp32_now == reference_now != reference
    assert [float(end) for end in seen_now.split()] == pytest.approx(
        [0.01 * float(end) for end in seen.split()]
    )
