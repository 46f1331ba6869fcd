"""The docs say what is there: every option, command, key and package;
what they show can be read.
"""

import ast
import importlib.util
import re
import runpy
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCS = [
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
]


def text(name):
    return (ROOT / "docs" / name).read_text()


def generated():
    """The pages that the site makes out of the code."""
    spec = importlib.util.spec_from_file_location("site_pages", ROOT / ".ci" / "site.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATED = {"commands.md", "api.md"}


def blocks(path, language):
    return re.findall(
        rf"^```{language}(?: [^\n]*)?\n(.*?)^```", path.read_text(), flags=re.MULTILINE | re.DOTALL
    )


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text()):
        if "://" not in target:
            assert target in GENERATED or (path.parent / target).exists(), target


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_code_can_be_read(path):
    for code in blocks(path, "python"):
        ast.parse(code)
    for code in blocks(path, "toml"):
        tomllib.loads(code)


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_names_of_files_in_this_repository_are_right(path):
    for name in re.findall(
        r"`((?:qbench|tests|benchmarks|suites|docs)/[\w./-]+\.(?:py|toml|md))`", path.read_text()
    ):
        assert (ROOT / name).exists(), name


@pytest.mark.parametrize("path", DOCS[:-1], ids=lambda path: path.name)
def test_what_installs_qbench_is_a_folder_or_a_file(path):
    """No package index has it."""
    assert not re.findall(r"pip install[^\n`]*\bpytest-qbench\b(?! @)[^\n`]*", path.read_text())


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
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    apart = [
        found
        for page in pages
        for found in re.findall(r"`--qbench-[a-z-]+ [A-Z/]+`", page.read_text())
    ]
    assert apart == [
        "`--qbench-history DIR`"
    ]  # a folder that stands alone moves pytest's root: the page says so


def test_every_command():
    from qbench.cli.program import COMMANDS

    page = generated().commands()
    assert re.findall(r"^## qbench ([a-z]+)$", page, flags=re.MULTILINE) == [
        command.name for command in COMMANDS
    ]
    assert page.count("usage: qbench ") >= len(COMMANDS)


def test_every_public_name_is_on_the_page_of_the_interface():
    import qbench

    shown = re.findall(r"^::: qbench\.\w+\.(\w+)$", generated().api(), flags=re.MULTILINE)
    assert sorted(shown) == sorted(set(qbench.__all__) - {"__version__"})


def test_every_key_of_a_suite():
    from qbench.judging import CELL_KEYS
    from qbench.suite import ModelTable, SuiteTable

    tables = text("options.md").partition("## Suites")[2].partition("## Gates")[0]
    written = {
        key
        for row in re.findall(r"^\| (`.*?) \|", tables, flags=re.MULTILINE)
        for key in re.findall(r"`(\w+)`", row)
    }
    keys = {field.name for table in (SuiteTable, ModelTable) for field in fields(table)} - {"cells"}
    assert keys | {key.name for key in CELL_KEYS} == written - {"suite", "model"}


def test_every_setting_of_a_picture_folder():
    from qbench.subjects.sources import _SETTINGS

    (row,) = re.findall(r"^\| `folder:PATH.*?\| (.*) \|$", text("options.md"), flags=re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", row)) == set(_SETTINGS)


def test_every_outcome():
    from qbench.judging import Outcome

    rows = [
        row for row in text("files.md").splitlines() if row.startswith(("| `passed`", "| `failed`"))
    ]
    green, red = (set(re.findall(r"`(\w+)`", row.partition(" | ")[0])) for row in rows)
    assert green == {outcome.value for outcome in Outcome if not outcome.is_red}
    assert red == {outcome.value for outcome in Outcome if outcome.is_red}


def test_every_kind_of_extension():
    from qbench import Extension

    written = set(re.findall(r"^\| `(\w+)` \| .*qbench/", text("extending.md"), flags=re.MULTILINE))
    assert written == {field.name for field in fields(Extension)} - {"name"}


def test_every_field_of_an_operator():
    from qbench.graph import Operator

    (table,) = re.findall(
        r"^\| `Operator` \|.*?(?=\n\n)", text("extending.md"), flags=re.MULTILINE | re.DOTALL
    )
    assert set(re.findall(r"^\| `(\w+)`", table, flags=re.MULTILINE)) - {"Operator"} == {
        field.name for field in fields(Operator)
    }


def test_the_operator_that_is_shown_is_one():
    from qbench.graph import operator_catalogue

    (code,) = (
        code for code in blocks(ROOT / "docs" / "extending.md", "python") if "make_swish" in code
    )
    made = {}
    exec(code, made)
    operator = operator_catalogue([made["EXTENSION"]]).get("acme::Swish")
    assert operator.pointwise
    assert operator.kernel(0.0) == 0


def test_the_metric_that_is_shown_counts():
    import numpy as np

    from qbench.metrics import Answers, score

    (code,) = (code for code in blocks(ROOT / "docs" / "extending.md", "python") if "near1" in code)
    made = {}
    exec(code, made)
    metric = made["pytest_qbench_extension"](None).metrics["near1"]()
    reference, answers = (
        Answers(np.array([[a], [b], [4]], dtype=np.int32)) for a, b in ((1, 2), (3, 3))
    )
    found = score(metric, answers, labels=((1,), (2,), (1,)), reference=reference)
    assert (found.hits, found.reference_hits, found.losses, found.gains) == (1, 2, 1, 0)
    assert (found.n, found.out_of, found.proportion) == (3, 3, True)


def test_every_field_of_answers():
    from qbench.metrics import IntegerAnswers

    table = text("metrics.md").partition("| field of `IntegerAnswers` |")[2]
    assert set(re.findall(r"^\| `(\w+)` \|", table, flags=re.MULTILINE)) == {
        field.name for field in fields(IntegerAnswers)
    }


def test_the_number_of_faults_is_right():
    from qbench.faults import CATALOGUE

    assert f"[{len(CATALOGUE)} faults](docs/faults.md)" in (ROOT / "README.md").read_text("utf-8")
    assert f"a catalogue of {len(CATALOGUE)} bugs" in text("faults.md")


def test_the_fault_that_is_shown_is_put_somewhere(capsys):
    code, *_ = blocks(ROOT / "docs" / "faults.md", "python")
    names = {}
    exec(code, names)
    assert capsys.readouterr().out == "integer-ort-x64!last-rows-skipped@conv1 False\n"
    assert names["broken"].name in code


def test_every_package_has_its_licence():
    from qbench.extension import installed_extensions
    from qbench.subjects import dataset_catalogue, model_catalogue, needed_packages

    extensions = installed_extensions()
    names = [*model_catalogue(extensions).names(), *dataset_catalogue(extensions).names()]
    needed = {f"{package.name} {package.version}" for package in needed_packages(names)}
    written = set(
        re.findall(
            r"^\| ([\w.-]+ \d[\w.~:+-]*)(?: \(Debian\))? \|",
            text("evidence/licences.md"),
            flags=re.MULTILINE,
        )
    )
    assert written == needed


def shown_schemas(tmp_path):
    """The schemas that docs/schemas.md shows, read as files of a suite."""
    from qbench.quantization import load_ranges
    from qbench.suite import gather

    (tmp_path / "schemas").mkdir()
    every = blocks(ROOT / "docs" / "schemas.md", "toml")
    shown = [block for block in every if "[values." not in block]
    (by_hand,) = (block for block in every if block not in shown)
    (tmp_path / "ranges.toml").write_text(by_hand)
    assert load_ranges(tmp_path / "ranges.toml").names == ("relu1", "conv1.weight")
    for number, block in enumerate(shown):
        (tmp_path / "schemas" / f"shown{number}.toml").write_text(block)
    schemas = gather(suites=tmp_path).schemas
    return [schemas.get(f"shown{number}") for number in range(len(shown))]


def test_the_schemas_that_are_shown_are_some(tmp_path):
    float_last, exceptions, *others = shown_schemas(tmp_path)
    last, conv = float_last.options_of([("Gemm", "net/classifier/fc"), ("Conv", "net/conv")])
    assert last.silent
    assert conv.weight.qtype == "int8"
    first, sums, fc = exceptions.options_of([("Conv", "a"), ("Add", "b"), ("Gemm", "c")])
    assert (first.bias.qtype, first.weight.qtype, first.input.qtype) == ("int16", "int8", "uint8")
    assert {share.value for share in sums.share} == {"inputs"}
    assert (fc.output, fc.input.qtype) == (None, "uint8")
    assert len(others) == 2
    for schema in (float_last, exceptions, *others):
        assert (
            schema.idle_rules(
                schema.options_of([("Gemm", "x/classifier/y"), ("Add", "b"), ("Conv", "z")])
            )
            == ()
        )


def test_every_key_of_a_schema():
    from qbench.quantization import BiasSpec, Rule, Schema, Spec
    from qbench.storage import NOT_WRITTEN

    parts = re.split(r"^### Keys of an? ", text("schemas.md"), flags=re.MULTILINE)[1:]
    values = {"schema": Schema, "rule": Rule, "spec": Spec, "bias": BiasSpec}
    assert [part.split("\n")[0] for part in parts] == list(values)
    for part, value in zip(parts, values.values(), strict=True):
        rows = re.findall(r"^\| (`.*?) \|", part.partition("\n## ")[0], flags=re.MULTILINE)
        written = {key for row in rows for key in re.findall(r"`(\w+)`", row)}
        assert written | ({"name"} if value is Schema else set()) == {
            field.name
            for field in fields(value)
            if field.init and NOT_WRITTEN not in field.metadata
        }


def test_every_canonical_pipeline():
    from qbench.passes import CANONICAL

    (listed,) = re.findall(
        r"^Canonical passes: (.*?), which", text("schemas.md"), flags=re.MULTILINE | re.DOTALL
    )
    assert set(re.findall(r"`(\w+)`", listed)) == set(CANONICAL)


def test_every_word_of_a_schema_name():
    from qbench.quantization import catalogue

    page = text("schemas.md")
    assert catalogue().grammar.form in page
    named = set(re.findall(r"`(w\d+(?:a\d+)?_\w+)`", page))
    assert len(named) >= 8
    assert [name for name in sorted(named) if not catalogue().knows(name)] == []


def test_every_schema_file_is_described():
    written = set(
        re.findall(r"^\| `suites/schemas/(\w+)\.toml`", text("schemas.md"), flags=re.MULTILINE)
    )
    assert written == {path.stem for path in (ROOT / "suites" / "schemas").glob("*.toml")}


def test_the_tolerance_and_the_entry_that_are_shown_are_some():
    from qbench.storage import value_from_table
    from qbench.suite import ModelTable
    from qbench.suite.suite_file import QuarantineText, SuiteTable

    classes, admitted, model, entry = blocks(ROOT / "docs" / "baselines.md", "toml")
    rest = {"data": "d", "calibration": {"data": "c", "count": 1}, "metrics": ["top1"]}
    table = value_from_table(SuiteTable, tomllib.loads(classes)["suite"], "docs")
    assert table.equivalents[0] == ("x64-avx512-vnni", "x64-avx-vnni")
    assert (
        value_from_table(SuiteTable, tomllib.loads(admitted)["suite"], "docs").cells["flips"] == 3
    )
    decided, sliced, repeated, *_ = blocks(ROOT / "docs" / "statistics.md", "toml")
    assert (
        value_from_table(SuiteTable, tomllib.loads(sliced)["suite"], "docs").cells["slices"]
        == "class"
    )
    assert value_from_table(
        SuiteTable, tomllib.loads(repeated)["suite"], "docs"
    ).repeat_threads == (2, 1)
    for text_ in (admitted, decided):
        (table,) = tomllib.loads(text_)["model"]
        assert value_from_table(ModelTable, {**table, **rest}, "docs").layers()
    (table,) = tomllib.loads(model)["model"]
    assert value_from_table(ModelTable, {**table, **rest}, "docs").tolerance["w8a8_asym_pt"] == 0.02
    assert value_from_table(QuarantineText, tomllib.loads(entry), "docs").cell[0].when == "x64-avx2"


def test_the_layers_that_are_drawn_are_the_contract():
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ][0]
    drawn = re.search(
        r"^cli → plugin → .*?(?=\n```)", text("architecture.md"), flags=re.MULTILINE | re.DOTALL
    )
    assert [layer.strip() for layer in re.split(r"\s*→\s*", drawn.group())] == contract["layers"]


def test_every_module_is_listed():
    files = [
        path
        for folder in ("qbench", "engines/qbench_engines", "zoo/qbench_zoo")
        for path in (ROOT / folder).rglob("*.py")
    ]
    modules = {str(path.relative_to(ROOT)) for path in files if path.name != "__init__.py"}
    listed = re.findall(r"^- `([\w/]+\.py)`: \S", text("architecture.md"), flags=re.MULTILINE)
    assert sorted(listed) == sorted(modules), (
        "write the list again: python benchmarks/structure.py --write"
    )


def test_the_table_of_gates_is_that_of_the_code():
    run = runpy.run_path(str(ROOT / "benchmarks" / "gates.py"))
    page = text("options.md")
    assert page == run["written"](page), "write it again: python benchmarks/gates.py --write"
    for spec in run["GATES"]:
        assert f"| `{spec.kind.value}` |" in page
    stale = run["written"](page, run["GATES"][1:])
    assert stale != page
    assert "| `loss` |" not in stale


def test_every_benchmark_is_named():
    scripts = {path.name for path in (ROOT / "benchmarks").glob("*.py")}
    assert scripts <= set(re.findall(r"benchmarks/(\w+\.py)", text("performance.md")))


def test_every_arithmetic_has_its_row():
    from qbench.numerics import list_arithmetics

    table = text("arithmetics.md").partition("## The arithmetics")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `([\w-]+)` \|", table, flags=re.MULTILINE)) == set(
        list_arithmetics()
    )


def test_the_arithmetic_that_is_shown_is_one(tmp_path):
    from qbench.numerics import load_arithmetic

    (shown,) = blocks(ROOT / "docs" / "arithmetics.md", "toml")
    (tmp_path / "mine.toml").write_text(shown)
    assert load_arithmetic(tmp_path / "mine.toml").accumulator.bits == 24


def test_every_word_of_a_machine():
    import enum
    import typing

    from qbench.numerics import (
        Accumulator,
        Adding,
        Arithmetic,
        FloatSums,
        Override,
        Quantizing,
        Scaling,
        Stage,
    )

    section = text("arithmetics.md").partition("## One of your own")[2]
    tables = "".join(line for line in section.splitlines() if line.startswith("|"))
    written = set(re.findall(r"`(\w+)`", tables)) | {"name"}
    for cls in (
        Accumulator,
        Adding,
        Arithmetic,
        FloatSums,
        Override,
        Quantizing,
        Scaling,
        Stage,
    ):
        for name, kind in typing.get_type_hints(cls).items():
            assert name in written, (cls, name)
            if (
                isinstance(kind, type)
                and issubclass(kind, enum.Enum)
                and kind.__name__ != "Rounding"
            ):
                assert {one.value for one in kind} <= written, (cls, name)


def test_the_program_around_a_machine_runs(tmp_path, monkeypatch, capsys):
    import numpy as np
    import onnx.parser

    net = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> net (float[1, 2] x) => (float[1, 2] y) '
        "<float s = {0.5}, int8 z = {0}, int8[2, 2] w = {1, 2, 3, 4}> { q = QuantizeLinear(x, s, "
        "z) "
        "d = DequantizeLinear(q, s, z) v = DequantizeLinear(w, s, z) [product] p = MatMul(d, v) "
        "hidden = QuantizeLinear(p, s, z) y = DequantizeLinear(hidden, s, z) }"
    )
    (tmp_path / "suites" / "arithmetics").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    onnx.save(net, "net.int8.onnx")
    (shown,) = blocks(ROOT / "docs" / "arithmetics.md", "toml")
    Path("suites/arithmetics/mine.toml").write_text(shown)
    (code,) = (
        code
        for code in blocks(ROOT / "docs" / "arithmetics.md", "python")
        if "IntegerBackend" in code
    )
    names = {"x": np.array([[1.0, 100.0]], np.float32)}
    exec(code, names)
    assert names["outputs"]["hidden"].tolist() == [[127, 127]]
    assert names["outputs"]["y"].tolist() == [[63.5, 63.5]]
    assert any(
        line.startswith("product") and not line.endswith(" 0 0 0")
        for line in capsys.readouterr().out.splitlines()
    )


def test_keys_of_profiles_plans_and_histograms(tmp_path):
    import json

    import numpy as np
    import onnx

    from qbench.calibration import calibrate, equal_width_text
    from qbench.quantization import make_plan, save_plan

    net = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> net (float[N, 2] x) => (float[N, 1] y) '
        "<float[2, 1] w = {1, 2}> { [fc] m = MatMul (x, w) [relu] r = Relu (m) y = Neg (r) }"
    )
    profile = calibrate(net, [{"x": np.float32([[1, 2], [1, 2]])}])
    profile.dump(tmp_path / "p.json")
    save_plan(make_plan(net, profile, "w8a8_asym_pc"), tmp_path / "plan.json")
    tables = [json.loads((tmp_path / name).read_text()) for name in ("p.json", "plan.json")]
    bins = json.loads(equal_width_text(profile.values, tmp_path / "bins.json"))
    rows = [
        *tables,
        *tables[0]["values"].values(),
        *tables[1]["slots"],
        *tables[1]["floats"].values(),
        bins["x"],
    ]
    keys = {key for row in rows for key in row}
    words = set(re.findall(r"`(\w+)`", text("files.md")))
    assert keys <= words
    for table in tables:
        assert f"`{table['format']}`, version {table['version']}" in text("files.md")
    assert len(bins["x"]["counts"]) == 2000


def test_the_tests_of_the_rules_of_a_night_are_there():
    page = text("architecture.md")
    section = page.partition("## The rules of a night")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([a-j]) \|(.*)$", section, flags=re.MULTILINE)
    assert [point for point, _ in rows] == list("abcdefghij")
    files = (ROOT / "tests").rglob("test_*.py")
    known = {
        name
        for file in files
        for name in re.findall(
            r"^def (test_\w+)", file.read_text(encoding="utf-8"), flags=re.MULTILINE
        )
    }
    for point, row in rows:
        named = re.findall(r"`(test_\w+)`", row)
        assert named, point
        assert not {*named} - known
