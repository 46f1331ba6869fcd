"""A machine in one TOML file: named by suites and commands,
and noticed when it comes to count otherwise.
"""

import json
from pathlib import Path

import pytest

SUITE = "suites/mine.qbench.toml"
TEXT = """
[suite]
tolerance = 0.5
agreement = 0.0
backends = ["integer-mine"]
schemas = ["w8a8_asym_pc"]
fp32 = false

[[model]]
id = "blobs"
data = "blobs_test"
calibration = { data = "blobs_train", count = 32 }
metrics = ["top1", "agreement"]
"""
MACHINE = """
source = "the data sheet of our accelerator"
accumulator = {{ bits = 24, overflow = "saturate" }}
{more}

[scaling]
form = "fixed"
bits = 15
stages = [{{ rounding = "{rounding}" }}]
"""


def write_machine(rounding="half_up", more=""):
    Path("suites/arithmetics").mkdir(exist_ok=True)
    Path("suites/arithmetics/mine.toml").write_text(MACHINE.format(rounding=rounding, more=more))


def accept_all():
    from qbench.host import utc_today
    from qbench.storage import Cache
    from qbench.suite import Bench, Settings, approve_run, expand, gather, load_suite
    from qbench.tracking import Accepting, Scope

    suite, catalogues = load_suite(Path(SUITE)), gather(suites=Path("suites"))
    settings = Settings(
        baselines=Path("baselines"),
        suite_path=SUITE,
        today=utc_today(),
        cache=Cache.default(),
        accepting=Accepting(scope=Scope.NEW, fp32=True),
    )
    bench = Bench(suite, catalogues, settings)
    approve_run(bench, [(planned, bench.measure(planned)) for planned in expand(suite, catalogues)])


def write_and_accept():
    Path(SUITE).write_text(TEXT)
    write_machine()
    accept_all()


@pytest.fixture
def accepted(project, fill_once):
    fill_once(project, write_and_accept)
    return project


def test_the_suite_runs_it_and_writes_its_digest(accepted, qbench):
    from qbench.numerics import load_arithmetic

    code, out, err = qbench("run", SUITE)
    assert code == 0, out + err
    (path,) = Path("reports/history").glob("*.jsonl")
    (cell,) = [
        line for line in map(json.loads, path.read_text().splitlines()) if line["type"] == "cell"
    ]
    assert cell["backend"] == "integer-mine"
    assert cell["digests"]["arithmetic"] == load_arithmetic("suites/arithmetics/mine.toml").digest


@pytest.mark.slow
def test_the_same_name_with_another_rounding_is_the_cause_of_its_drift(accepted, qbench):
    write_machine(rounding="floor")
    code, out, err = qbench("run", SUITE)
    assert code == 1
    assert "arithmetic changed: " in out + err


@pytest.mark.slow
def test_another_spelling_of_the_same_counting_is_no_change(accepted, qbench):
    write_machine(more="narrow = false")
    assert qbench("run", SUITE)[0] == 0


@pytest.mark.slow
def test_runs_under_two_arithmetics_say_so_when_compared(accepted, qbench):
    qbench("run", SUITE)
    (old,) = Path("reports/history").glob("*.jsonl")
    old = old.rename(old.with_name("old.jsonl"))
    write_machine(rounding="floor")
    qbench("run", SUITE)
    (new,) = [path for path in Path("reports/history").glob("*.jsonl") if path != old]
    code, out, _ = qbench("compare", old, new)
    assert code == 1
    assert "changed" in out
    assert "(arithmetic changed: " in out


def test_lists_have_it(words, accepted, qbench):
    rows = {row["name"]: row for row in json.loads(qbench("list", "arithmetics", "--json")[1])}
    assert rows["mine"]["owner"] == "arithmetics/*.toml"
    words(rows["mine"]["what"])
    assert "MultiplyByQuantizedMultiplier" in rows["gemmlowp"]["what"]
    assert "integer-mine" in qbench("list", "backends")[1]


def test_a_name_of_ours_is_refused(words, accepted, qbench):
    Path("suites/arithmetics/ideal.toml").write_text(
        Path("suites/arithmetics/mine.toml").read_text()
    )
    code, _, err = qbench("list", "backends")
    assert code == 2
    words(err)


@pytest.mark.slow_but(1)
@pytest.mark.parametrize(
    ("more", "words"),
    [
        ('name = "yours"', "'mine', as the file is called"),
        (
            'overrides = [{ operators = ["Cnv"], accumulator = { bits = 16 } }]',
            "Did you mean 'Conv'?",
        ),
    ],
)
def test_a_mistake_is_said_once_and_not_of_every_cell(accepted, qbench, more, words):
    write_machine(more=more)
    Path(SUITE).write_text(
        TEXT.replace('["w8a8_asym_pc"]', '["w8a8_asym_pc", "w8a8_asym_pt", "w8a8_sym_pc"]')
    )
    code, out, err = qbench("run", SUITE)
    assert code == 2
    assert (out + err).count(words) == 1


@pytest.mark.slow
def test_a_file_with_a_mistake_is_one_sentence(accepted, qbench):
    write_machine(more='averging = "raw"')
    code, out, err = qbench("run", SUITE)
    assert code != 0
    assert "Did you mean 'averaging'?" in out + err
