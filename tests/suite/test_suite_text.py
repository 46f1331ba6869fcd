"""A suite as written, and the matrix it expands to."""

import datetime
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from qbench.errors import InputError
from qbench.extension import Catalogue
from qbench.judging import Cell, EnvironmentClass, Rules
from qbench.metrics import Against
from qbench.suite import Catalogues, Suite, expand, load_suite
from qbench.suite.expansion import tolerances_of

HERE = EnvironmentClass("x64-avx512-vnni", (("engine", "1.0"),))
ELSEWHERE = EnvironmentClass("x64-avx2", (("engine", "1.0"),))


def never() -> object:
    raise AssertionError("expanding a suite loads nothing")


def names(kind: str, *known: str) -> Catalogue:
    return Catalogue(kind, dict.fromkeys(known, never))


CATALOGUES = Catalogues(
    models=names("model", "net_a", "net_b"),
    datasets=names("dataset", "photos", "crops", "others"),
    backends=names("backend", "fast", "slow"),
    schemas=names("schema", "w8a8_sym_pc", "w8a8_asym_pt"),
    metrics=names("metric", "top1", "agreement"),
)

SUITE = """
[suite]
tolerance = 0.01
backends = ["fast", "slow"]
schemas = ["w8a8_sym_pc", "w8a8_asym_pt"]
"""
MODEL = """
[[model]]
id = "net_a"
data = "photos"
calibration = { data = "others", count = 8 }
metrics = ["top1", "agreement@crops"]
"""


def suite(folder: Path, text: str, quarantine: str | None = None) -> Suite:
    path = folder / "small.qbench.toml"
    path.write_text(text)
    if quarantine is not None:
        (folder / "small.quarantine.toml").write_text(quarantine)
    return load_suite(path)


def test_the_matrix_in_file_order_fp32_first(tmp_path: Path) -> None:
    found = suite(
        tmp_path,
        SUITE
        + MODEL
        + 'variants = { few = { "calibration.count" = 2, schemas = ["w8a8_sym_pc"] } }',
    )
    cells = expand(found, CATALOGUES)
    assert [str(c.cell) for c in cells] == [
        "net_a::fast+fp32",
        "net_a::fast+w8a8_sym_pc",
        "net_a::fast+w8a8_asym_pt",
        "net_a::slow+fp32",
        "net_a::slow+w8a8_sym_pc",
        "net_a::slow+w8a8_asym_pt",
        "net_a::fast+w8a8_sym_pc+few",
        "net_a::slow+w8a8_sym_pc+few",
    ]
    assert [c.calibration.count for c in cells] == [8] * 6 + [2] * 2
    assert {c.line for c in cells} == {7}


def test_tolerance_layers_and_the_winner_is_named(tmp_path: Path) -> None:
    def winner(text: str, slug: str, environment: EnvironmentClass = HERE) -> tuple[float, str]:
        cell = next(c for c in expand(suite(tmp_path, text), CATALOGUES) if c.cell.slug == slug)
        found = cell.tolerance(environment)
        return found.value, found.rule

    assert winner(SUITE.replace("tolerance = 0.01", "") + MODEL, "fast+fp32") == (0.005, "default")
    assert winner(SUITE + MODEL, "fast+fp32") == (0.01, "suite small")
    assert winner(SUITE + MODEL + "tolerance = 0.02", "fast+w8a8_sym_pc") == (0.02, "model net_a")
    table = (
        'tolerance = { "slow+*" = 0.03, w8a8_sym_pc = { value = 0.04, '
        'when = "x64-avx2", reason = "no VNNI" } }'
    )
    assert winner(SUITE + MODEL + table, "slow+w8a8_sym_pc") == (0.03, "cell net_a::slow+*")
    assert winner(SUITE + MODEL + table, "fast+w8a8_sym_pc") == (0.01, "suite small")
    assert winner(SUITE + MODEL + table, "fast+w8a8_sym_pc", ELSEWHERE) == (
        0.04,
        "cell net_a::w8a8_sym_pc (no VNNI)",
    )


def one_tolerance(
    folder: Path, text: str, slug: str = "fast+w8a8_sym_pc"
) -> tuple[float, str, str]:
    found_suite = suite(folder, text)
    cell = Cell(found_suite.name, "net_a", *slug.split("+"))
    found = tolerances_of(found_suite, found_suite.models[0], cell)[0][1].of("top1")
    return found.value, found.relative_to.value, found.rule


def test_what_tolerances_are_relative_to_is_a_setting_of_its_own(tmp_path: Path) -> None:
    of_error = SUITE + 'relative_to = "error"' + MODEL
    assert one_tolerance(tmp_path, of_error) == (0.01, "error", "suite small")
    assert one_tolerance(tmp_path, of_error + "tolerance = 0.2") == (0.2, "error", "model net_a")
    assert (
        one_tolerance(tmp_path, of_error + 'tolerance = 0.2\nrelative_to = "score"')[1] == "score"
    )
    table = 'tolerance = { "fast+*" = { value = 0.3, relative_to = "nothing" }, "slow+*" = 0.2 }'
    assert one_tolerance(tmp_path, of_error + table) == (0.3, "nothing", "cell net_a::fast+*")
    assert one_tolerance(tmp_path, of_error + table, "slow+w8a8_sym_pc")[1] == "error"


def test_short_names_of_tolerances(tmp_path: Path) -> None:
    whole = SUITE.replace("tolerance = 0.01", "tolerance = { abs = 0.02 }") + MODEL
    assert one_tolerance(tmp_path, whole) == (0.02, "nothing", "suite small")
    assert one_tolerance(tmp_path, whole + "tolerance = 0.3") == (0.3, "score", "model net_a")
    assert one_tolerance(tmp_path, SUITE + MODEL + "tolerance = { rel = 0.02 }")[:2] == (
        0.02,
        "score",
    )
    table = (
        'tolerance = { w8a8_sym_pc = { abs = 0.5 }, "*" = { rel = 0.04, '
        "metrics = { top1 = 0.1 } } }"
    )
    assert one_tolerance(tmp_path, SUITE + MODEL + table)[:2] == (0.5, "nothing")
    assert one_tolerance(tmp_path, SUITE + MODEL + table, "fast+w8a8_asym_pt")[:2] == (0.1, "score")
    moves = SUITE + MODEL + "probabilities = { abs = 0.001, rel = 0.01 }"
    allowance = expand(suite(tmp_path, moves), CATALOGUES)[1].rules.allowance
    assert (allowance.absolute, allowance.relative) == (0.001, 0.01)


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("tolerance = { abs = 0.01, rel = 0.02 }", ["'rel' and 'abs'", "one number", "net_a"]),
        ('tolerance = { "*" = { value = 0.01, rel = 0.02 } }', ["'value' and 'rel'"]),
        ('tolerance = { abs = 0.01, relative_to = "error" }', ["'abs' and 'relative_to'"]),
        ("probabilities = { abs = 0.01, absolute = 0.02 }", ["'abs' and 'absolute'"]),
        ('relative_to = "scores"', ["relative_to", "'score', 'error', 'nothing'"]),
        ("recovery = 99", ["recovery = 99", "a share in [0, 1]"]),
        ('recovery = { "fastt+*" = 0.9 }', ["unknown cell 'fastt+*'"]),
    ],
)
def test_tolerances_that_are_given_twice_are_refused(
    tmp_path: Path, written: str, words: list[str]
) -> None:
    with pytest.raises(InputError) as refused:
        expand(suite(tmp_path, SUITE + MODEL + written), CATALOGUES)
    for word in words:
        assert word in str(refused.value)


def test_an_absolute_tolerance_of_a_share_in_points_is_refused(tmp_path: Path) -> None:
    top1 = SimpleNamespace(against=Against.LABELS, unit="%")
    metrics: Catalogue = Catalogue("metric", {"top1": lambda: top1, "agreement": never})
    known = replace(CATALOGUES, metrics=metrics)
    expand(suite(tmp_path, SUITE + MODEL + "tolerance = { abs = 0.5 }"), known)
    with pytest.raises(InputError) as refused:
        expand(suite(tmp_path, SUITE + MODEL + "tolerance = { abs = 5 }"), known)
    assert "abs = 5" in refused.value.found
    assert "5 points are 0.05" in refused.value.remedy


def test_recovery_and_slices_are_for_quantized_cells(tmp_path: Path) -> None:
    text = SUITE + 'recovery = 0.99\nslices = "class"' + MODEL + 'slices = { "slow+*" = "device" }'
    rules = {c.cell.slug: c.rules for c in expand(suite(tmp_path, text), CATALOGUES)}
    assert (rules["fast+fp32"].recovery, rules["fast+fp32"].slices) == (None, "")
    fast, slow = rules["fast+w8a8_sym_pc"], rules["slow+w8a8_sym_pc"]
    assert (fast.recovery, fast.recovery_rule, fast.slices, fast.slices_rule) == (
        0.99,
        *["suite small", "class"],
        "suite small",
    )
    assert (slow.slices, slow.slices_rule) == ("device", "model net_a::slow+*")


def test_a_tolerance_of_some_metrics(tmp_path: Path) -> None:
    table = 'tolerance = { "fast+*" = { value = 0.3, metrics = { top1 = 0.06 } } }'
    fast, slow = (
        next(
            c
            for c in expand(suite(tmp_path, SUITE + MODEL + table), CATALOGUES)
            if c.cell.slug == slug
        )
        for slug in ("fast+w8a8_sym_pc", "slow+w8a8_sym_pc")
    )
    assert [fast.tolerance(HERE).of(metric).value for metric in ("top1", "top5")] == [0.06, 0.3]
    assert fast.tolerance(HERE).of("top1").rule == "cell net_a::fast+*"
    assert slow.tolerance(HERE).of("top1").value == 0.01


def test_a_model_may_ask_for_more_agreement_than_its_suite(tmp_path: Path) -> None:
    found = suite(
        tmp_path,
        SUITE + "agreement = 0.8" + MODEL + "agreement = 0.9" + MODEL.replace("net_a", "net_b"),
    )
    assert (found.rules("net_a").agreement, found.rules("net_a").agreement_rule) == (
        0.9,
        "model net_a",
    )
    assert (found.rules("net_b").agreement, found.rules("net_b").agreement_rule) == (
        0.8,
        "suite small",
    )
    with pytest.raises(InputError, match=r"agreement = 1\.2"):
        suite(tmp_path, SUITE + MODEL + "agreement = 1.2")


def test_a_model_may_have_less_in_integers_than_its_suite(tmp_path: Path) -> None:
    models = MODEL + "integer_macs = 0.0" + MODEL.replace("net_a", "net_b")
    found = suite(tmp_path, SUITE + "integer_macs = 0.3" + models)
    assert (found.rules("net_a").integer_macs, found.rules("net_a").rule) == (0.0, "model net_a")
    assert (found.rules("net_b").integer_macs, found.rules("net_b").rule) == (0.3, "suite small")
    assert found.rules("net_a").agreement_rule == "default"
    with pytest.raises(InputError, match=r"integer_macs = -1"):
        suite(tmp_path, SUITE + MODEL + "integer_macs = -1.0")


def executed_floors(
    found: Suite, model: str, schema: str = "w8a8_sym_pc"
) -> tuple[float | None, str]:
    """The floor of a cell and the place that set it."""
    cell, rules = Cell("small", model, "ort-cpu", schema), Rules()
    (table,) = (one for one in found.models if one.id == model)
    for layer in (*found.layers(), *table.layers()):
        setting = layer.value_for(cell)
        if setting is not None:
            rules = layer.key.apply(rules, cell, setting.value, setting.rule)
    return rules.executed_macs, rules.executed_rule


def test_a_floor_of_executed_integers_is_layered_and_unset_by_default(tmp_path: Path) -> None:
    assert executed_floors(suite(tmp_path, SUITE + MODEL), "net_a") == (None, "default")
    models = MODEL + "executed_macs = 0.9" + MODEL.replace("net_a", "net_b")
    found = suite(tmp_path, SUITE + "executed_macs = 0.3" + models)
    assert executed_floors(found, "net_a") == (0.9, "model net_a")
    assert executed_floors(found, "net_b") == (0.3, "suite small")
    floors = 'executed_macs = { "*+w8a8_sym_pc" = 0.0, "*" = 0.9 }'
    found = suite(tmp_path, SUITE + floors + MODEL)
    assert executed_floors(found, "net_a") == (0.0, "suite small::*+w8a8_sym_pc")
    assert executed_floors(found, "net_a", "w8a8_asym_pc") == (0.9, "suite small::*")
    with pytest.raises(InputError, match=r"executed_macs = 2"):
        suite(tmp_path, SUITE + MODEL + "executed_macs = 2.0")


def test_quarantine_entries_cover_cells_and_expire(tmp_path: Path) -> None:
    entry = """
    [[cell]]
    cell = "net_a::*+w8a8_asym_pt"
    measured = "agreement 77 %"
    reason = "depthwise, per tensor"
    owner = "kernels"
    expires = "2027-01-31"
    when = ["x64-avx512-vnni", "x64-avx2-vnni"]
    """
    cells = {c.cell.slug: c for c in expand(suite(tmp_path, SUITE + MODEL, entry), CATALOGUES)}
    found = cells["slow+w8a8_asym_pt"].quarantine_entry(HERE)
    assert found is not None
    assert not found.expired(datetime.date(2027, 1, 31))
    assert found.expired(datetime.date(2027, 2, 1))
    assert cells["slow+w8a8_asym_pt"].quarantine_entry(ELSEWHERE) is None
    assert cells["slow+w8a8_sym_pc"].quarantine_entry(HERE) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            SUITE.replace("tolerance", "tolerence") + MODEL,
            ["'tolerence'", "Did you mean 'tolerance'?"],
        ),
        (SUITE.replace("0.01", '"1 %"') + MODEL, ["a string", "a number"]),
        (SUITE.replace("0.01", "1.5") + MODEL, ["a tolerance of 1.5 is impossible"]),
        (
            SUITE.replace("0.01", "5") + MODEL,
            ["expected a fraction in [0, 1), such as 0.05 for 5 %"],
        ),
        (SUITE + MODEL + "tolerance = -0.1", ["a tolerance of -0.1 is impossible"]),
        (SUITE + MODEL.replace("net_a", "net_aa"), ["unknown model 'net_aa'", "'net_a'"]),
        (SUITE + MODEL.replace("photos", "fotos"), ["unknown dataset 'fotos'", "'photos'"]),
        (
            SUITE + MODEL.replace("agreement@crops", "agreement@corps"),
            ["unknown dataset 'corps'", "'crops'"],
        ),
        (SUITE + MODEL.replace("top1", "tpo1"), ["unknown metric 'tpo1'", "'top1'"]),
        (SUITE.replace('"slow"', '"slwo"') + MODEL, ["unknown backend 'slwo'", "'slow'"]),
        (
            SUITE.replace("w8a8_sym_pc", "w8a8_sim_pc") + MODEL,
            ["unknown schema 'w8a8_sim_pc'", "'w8a8_sym_pc'"],
        ),
        (SUITE.replace('"slow"', '"fast"') + MODEL, ["'fast' twice among the backends"]),
        (SUITE + MODEL + MODEL, ["the model 'net_a' 2 times"]),
        (SUITE + MODEL.replace("count = 8", "count = 0"), ["a calibration count of 0"]),
        (
            SUITE + MODEL + "tolerance = { w8a8_sym_cp = 0.1 }",
            ["unknown cell 'w8a8_sym_cp'", "'w8a8_sym_pc'"],
        ),
        (
            SUITE + MODEL + 'tolerance = { "*" = { value = 0.1, metrics = { tpo1 = 0.2 } } }',
            ["unknown metric 'tpo1'", "'top1'"],
        ),
        (
            SUITE + MODEL + 'tolerance = { "*" = { value = 0.1, metrics = { top1 = 1.2 } } }',
            ["a tolerance of 1.2 is impossible"],
        ),
        (
            SUITE + MODEL + 'variants = { v = { "calibration.cont" = 3 } }',
            ["'calibration.cont'", "'calibration.count'"],
        ),
        (SUITE + MODEL + 'variants = { "V 1" = {} }', ["variant 'V 1'"]),
        (
            SUITE + MODEL + 'variants = { v = { "calibration.count" = 0 } }',
            ["variant 'v' of 'net_a'", "count of 0"],
        ),
        (SUITE, ["no key 'model'"]),
    ],
)
def test_bad_suites_are_one_sentence(tmp_path: Path, text: str, words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        expand(suite(tmp_path, text), CATALOGUES)
    for word in words:
        assert word in str(caught.value)


def test_a_quarantine_entry_about_no_cell_is_an_error(tmp_path: Path) -> None:
    entry = (
        '[[cell]]\ncell = "net_a::fast+w8a8_sym_pt"\nmeasured = "x"\nreason = "x"\nowner = "x"\n'
        'expires = "2027-01-31"'
    )
    with pytest.raises(InputError, match=r"quarantine file.*'net_a::fast\+w8a8_sym_pt'"):
        expand(suite(tmp_path, SUITE + MODEL, entry), CATALOGUES)
    with pytest.raises(InputError, match="Invalid isoformat"):
        suite(tmp_path, SUITE + MODEL, entry.replace("2027-01-31", "soon"))


def test_a_suite_is_utf8_whatever_the_machine_writes(tmp_path: Path) -> None:
    path = tmp_path / "own.qbench.toml"
    path.write_text(f"# models × backends\n{SUITE}{MODEL}", encoding="utf-8")
    ascii_only = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    program = (
        "import pathlib, sys; from qbench.suite import load_suite; "
        "load_suite(pathlib.Path(sys.argv[1]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, path], env=ascii_only, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("line", "found", "possible"),
    [
        ("threads = 0", "threads = 0", "a whole number from 1"),
        ("repeat_threads = [2, 0]", "repeat_threads = [2, 0]", "whole numbers from 1"),
        ("most_excused = 1.5", "most_excused = 1.5", "a share between 0 and 1"),
        ("repeats = 0", "repeats = 0", "a whole number from 1"),
        ("limits = { top1 = inf }", "limits.top1 = inf", "a finite number"),
    ],
)
def test_a_number_that_is_impossible_comes_with_what_is_possible(tmp_path, line, found, possible):
    path = tmp_path / "s.qbench.toml"
    path.write_text(f"[suite]\nbackends = ['fast']\n{line}\n{MODEL}")
    with pytest.raises(InputError) as caught:
        load_suite(path)
    assert (caught.value.found, caught.value.expected) == (f"{found} is impossible", possible)
