"""The docs say what is there: every option, command, key and package; what they show can be read."""

import ast
import re
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCS = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]


def text(name):
    return (ROOT / "docs" / name).read_text()


def blocks(path, language):
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text()):
        if "://" not in target:
            assert (path.parent / target).exists(), target


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_code_can_be_read(path):
    for code in blocks(path, "python"):
        ast.parse(code)
    for code in blocks(path, "toml"):
        tomllib.loads(code)


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_names_of_files_in_this_repository_are_right(path):
    for name in re.findall(r"`((?:qbench|tests|benchmarks|suites|docs)/[\w./-]+\.(?:py|toml|md))`", path.read_text()):
        assert (ROOT / name).exists(), name


def test_every_option_of_the_plugin(pytestconfig):
    known = {
        option
        for action in pytestconfig._parser.getgroup("qbench").options
        for option in action.names()
        if option.startswith("--qbench-")
    }
    assert known
    written = set(re.findall(r"--qbench-[a-z0-9-]+", text("options.md")))
    assert written == known


def test_every_command():
    from qbench.cli.program import COMMANDS

    written = set(re.findall(r"^\| `qbench ([a-z]+)", text("options.md"), flags=re.MULTILINE))
    assert written == {command.name for command in COMMANDS}


def test_every_key_of_a_suite():
    from qbench.suite import ModelTable, SuiteTable

    tables = text("options.md").partition("## Suites")[2].partition("## Command line")[0]
    written = {
        key for row in re.findall(r"^\| (`.*?) \|", tables, flags=re.MULTILINE) for key in re.findall(r"`(\w+)`", row)
    }
    assert {field.name for table in (SuiteTable, ModelTable) for field in fields(table)} == written - {"suite", "model"}


def test_every_setting_of_a_picture_folder():
    from qbench.zoo.sources import _SETTINGS

    (row,) = re.findall(r"^\| `folder:PATH.*?\| (.*) \|$", text("options.md"), flags=re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", row)) == set(_SETTINGS)


def test_every_outcome():
    from qbench.judging import Outcome

    rows = [row for row in text("history.md").splitlines() if row.startswith(("| `passed`", "| `failed`"))]
    green, red = (set(re.findall(r"`(\w+)`", row.partition(" | ")[0])) for row in rows)
    assert green == {outcome.value for outcome in Outcome if not outcome.is_red}
    assert red == {outcome.value for outcome in Outcome if outcome.is_red}


def test_every_kind_of_extension():
    from qbench import Extension

    written = set(re.findall(r"^\| `(\w+)` \| .*qbench/", text("extending.md"), flags=re.MULTILINE))
    assert written <= {field.name for field in fields(Extension)}
    assert written == {"models", "datasets", "backends", "schemas", "metrics"}


def test_every_package_has_its_licence():
    from qbench.zoo import dataset_catalogue, model_catalogue, needed_packages

    names = [*model_catalogue().names(), *dataset_catalogue().names()]
    needed = {f"{package.name} {package.version}" for package in needed_packages(names)}
    written = set(re.findall(r"^\| ([\w.-]+ \d[\w.]*) \|", text("licences.md"), flags=re.MULTILINE))
    assert written == needed


def test_the_schema_that_is_shown_is_one(tmp_path):
    from qbench.suite import gather

    (shown,) = blocks(ROOT / "docs" / "qdq.md", "toml")
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "mine.toml").write_text(shown)
    schema = gather(suites=tmp_path).schemas.get("mine")
    assert schema.rule_for("Gemm", "net/classifier/fc").activation is None
    assert schema.rule_for("Conv", "net/conv").weight.qtype == "int8"


def test_the_tolerance_and_the_entry_that_are_shown_are_some():
    from qbench.storage import value_from_table
    from qbench.suite import ModelTable
    from qbench.suite.suite import QuarantineText

    model, entry = blocks(ROOT / "docs" / "baselines.md", "toml")
    (table,) = tomllib.loads(model)["model"]
    rest = {"data": "d", "calibration": {"data": "c", "count": 1}, "metrics": ["top1"]}
    assert value_from_table(ModelTable, {**table, **rest}, "docs").tolerance["w8a8_asym_pt"] == 0.02
    assert value_from_table(QuarantineText, tomllib.loads(entry), "docs").cell[0].when == "x64-avx2"


def test_the_layers_that_are_drawn_are_the_contract():
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    drawn = re.search(r"^plugin \| cli → .*?(?=\n```)", text("architecture.md"), flags=re.MULTILINE | re.DOTALL)
    assert [layer.strip() for layer in re.split(r"\s*→\s*", drawn.group())] == contract["layers"]


def test_every_benchmark_is_named():
    scripts = {path.name for path in (ROOT / "benchmarks").glob("*.py")}
    assert scripts <= set(re.findall(r"benchmarks/(\w+\.py)", text("performance.md")))
