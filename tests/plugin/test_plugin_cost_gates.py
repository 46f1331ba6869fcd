"""Latency and file size from a suite file to a verdict, with a real engine."""

import json

import pytest

SUITE = """
[suite]
backends = ["ort-cpu"]
schemas = ["w8a8_asym_pc"]
{keys}
[[model]]
id = "digits_cnn"
data = "digits_test"
samples = 32
metrics = ["top1"]
calibration = {{ data = "digits_train", count = 16 }}
"""


@pytest.fixture
def run(pytester):
    def with_keys(keys, *options):
        pytester.path.joinpath("suites").mkdir(exist_ok=True)
        pytester.path.joinpath("suites", "own.qbench.toml").write_text(SUITE.format(keys=keys))
        return pytester.runpytest("suites/own.qbench.toml", "-p", "no:cacheprovider", *options)

    return with_keys


@pytest.mark.slow
def test_a_file_that_is_too_large_fails_and_one_that_fits_passes(run):
    small = run("max_file_bytes = 1", "--qbench-accept-fp32", "--qbench-accept=new")
    assert small.ret == 1
    small.stdout.fnmatch_lines(["*at most 1*max_file_bytes 1 (suite own)*"])
    kept = run(
        "max_file_bytes = { fp32 = 0.9, accepted = 1.0 }",
        "--qbench-accept=all",
        "--qbench-reason",
        "sizes",
    )
    assert kept.ret == 0
    kept.stdout.fnmatch_lines(["*file_bytes*— → * bytes"])
    assert run("max_file_bytes = { fp32 = 0.9, accepted = 1.0 }").ret == 0
    red = run("max_file_bytes = { accepted = 0.5 }")
    assert red.ret == 1
    red.stdout.fnmatch_lines(["*max_file_bytes 0.5 of the accepted file (suite own)*"])
    red.stdout.fnmatch_lines(["*--qbench-accept=all*"])


@pytest.mark.slow
def test_another_size_is_accepted_with_a_row(run, pytester):
    key = "max_file_bytes = { accepted = 1.0 }"
    assert run(key, "--qbench-accept-fp32", "--qbench-accept=new").ret == 0
    (baseline,) = pytester.path.glob("baselines/own/*.json")
    stored = json.loads(baseline.read_text())
    (classes,) = [cell["accepted"] for name, cell in stored["cells"].items() if "w8a8" in name]
    (result,) = classes.values()
    result["remembered"]["file_size"] = 9_000
    baseline.write_text(json.dumps(stored))
    taken = run(key, "--qbench-accept=all", "--qbench-reason", "a new layout")
    assert taken.ret == 0
    taken.stdout.fnmatch_lines(["*file_bytes * 9,000 bytes → * bytes"])


@pytest.mark.slow
def test_a_key_that_is_new_is_accepted_as_new(run):
    assert run("", "--qbench-accept-fp32", "--qbench-accept=new").ret == 0
    before = run("max_file_bytes = { accepted = 1.0 }")
    before.stdout.fnmatch_lines(["*no other is known here to compare with*"])
    assert run("max_file_bytes = { accepted = 1.0 }", "--qbench-accept=new").ret == 0
    run("max_file_bytes = { accepted = 1.0 }").stdout.no_fnmatch_line("*no other is known*")


@pytest.mark.slow
def test_a_latency_that_no_engine_reaches_fails_and_a_generous_one_passes(run):
    assert (
        run(
            'max_latency_ratio = { "ort-cpu+w8a8_*" = 1e9 }',
            "--qbench-accept-fp32",
            "--qbench-accept=new",
        ).ret
        == 0
    )
    slow = run("max_latency_ratio = 1e-9")
    assert slow.ret == 1
    slow.stdout.fnmatch_lines(["*max_latency_ratio 1e-09 of fp32 (suite own)*"])


@pytest.mark.slow_but(1)
@pytest.mark.parametrize(
    ("key", "named"),
    [
        ("max_latency_ratio = 0", "a ratio of 0"),
        ("max_latency_ratio = {}", "without 'fp32' or 'accepted'"),
        ("max_file_bytes = { bites = 3 }", "Did you mean 'bytes'?"),
    ],
)
def test_what_is_no_limit_is_one_sentence(run, key, named):
    result = run(key)
    assert result.ret != 0
    assert named in result.stdout.str() + result.stderr.str()
    result.stdout.no_fnmatch_line("*Traceback*")
