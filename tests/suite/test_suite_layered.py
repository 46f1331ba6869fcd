"""``decision``, ``flips``, ``probabilities`` and ``equivalents`` of a suite: who wins and is
named, what is refused.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from qbench.errors import InputError
from qbench.extension import Catalogue
from qbench.judging import Allowance, Cell, Decision, DecisionRule, EnvironmentClass, Rules
from qbench.suite import Catalogues, Suite, expand, load_suite


def never() -> object:
    raise AssertionError("expanding a suite loads nothing")


def names(kind: str, *known: str) -> Catalogue:
    return Catalogue(kind, dict.fromkeys(known, never))


CATALOGUES = Catalogues(
    models=names("model", "net_a", "net_b"),
    datasets=names("dataset", "photos", "others"),
    backends=names("backend", "fast", "slow"),
    schemas=names("schema", "w8a8_sym_pc", "w8a8_asym_pt"),
    metrics=names("metric", "top1"),
)
TEXT = """
[suite]
backends = ["fast", "slow"]
schemas = ["w8a8_sym_pc", "w8a8_asym_pt"]
{}
[[model]]
id = "net_a"
data = "photos"
calibration = {{ data = "others", count = 8 }}
metrics = ["top1"]
{}
[[model]]
id = "net_b"
data = "photos"
calibration = {{ data = "others", count = 8 }}
metrics = ["top1"]
"""


def suite(folder: Path, text: str = "", model: str = "") -> Suite:
    path = folder / "small.qbench.toml"
    path.write_text(TEXT.format(text, model))
    return load_suite(path)


def cell(schema: str = "w8a8_sym_pc", backend: str = "fast", model: str = "net_a") -> Cell:
    return Cell("small", model, backend, schema)


def rules(found: Suite) -> Callable[..., Rules]:
    """The rules of a cell of ``found``, as its plan has them."""
    planned = {one.cell: one.rules for one in expand(found, CATALOGUES)}
    return lambda *axes, **more: planned[cell(*axes, **more)]


def test_nothing_set_is_as_ever(tmp_path: Path) -> None:
    found = suite(tmp_path)
    planned = rules(found)()
    assert planned == found.rules("net_a")
    assert (planned.decision, planned.allowance) == (Decision(), Allowance())
    assert not planned.allowance.keeps_answers


def test_the_most_particular_layer_wins_and_is_named(tmp_path: Path) -> None:
    of = rules(
        suite(
            tmp_path,
            'decision = "ci"',
            'decision = { "w8a8_asym_pt" = "strict", "fast+*" = "point" }',
        )
    )
    cells = (of(), of("w8a8_asym_pt"), of(backend="slow"), of(model="net_b"), of("fp32"))
    assert [one.decision for one in cells] == [
        Decision(DecisionRule.POINT, "model net_a::fast+*"),
        Decision(DecisionRule.STRICT, "model net_a::w8a8_asym_pt"),
        Decision(DecisionRule.CI, "suite small"),
        Decision(DecisionRule.CI, "suite small"),
        Decision(),  # float cells are to reproduce their reference
    ]


def test_flips_and_probabilities_are_layered_apart(tmp_path: Path) -> None:
    of = rules(
        suite(
            tmp_path,
            "flips = 3\nprobabilities = { absolute = 0.001, relative = 0.01 }",
            'probabilities = { "slow" = { absolute = 0 } }\nflips = { "w8a8_asym_pt" = 0 }',
        )
    )
    assert of().allowance == Allowance(
        flips=3, absolute=0.001, relative=0.01, flips_rule="suite small", moves_rule="suite small"
    )
    assert of("w8a8_asym_pt", "slow").allowance == Allowance(
        flips=0,
        absolute=0.0,
        flips_rule="model net_a::w8a8_asym_pt",
        moves_rule="model net_a::slow",
    )
    assert of("fp32").allowance.flips == 3


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('decision = "maybe"', "one of 'point', 'ci', 'strict'"),
        ("flips = -1", "flips = -1 is impossible"),
        ("flips = 1.5", "an integer"),
        ("probabilities = {}", "without 'absolute' or 'relative'"),
        ("probabilities = { absolute = -0.1 }", "impossible"),
        ("probabilities = { absolut = 0.1 }", "such as { absolute"),
        ('probabilities = { "slow" = { absolut = 0.1 } }', "Did you mean 'absolute'"),
        ('equivalents = ["x64-avx2"]', "a list"),
    ],
)
def test_what_has_no_meaning_is_refused(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        suite(tmp_path, line)


@pytest.mark.parametrize(
    "line", ['decision = { "w8a8_sym_pt" = "ci" }', 'flips = { "w8a8_sym_pt" = 1 }']
)
@pytest.mark.parametrize("where", [0, 1])
def test_a_pattern_about_no_cell_is_refused(tmp_path: Path, line: str, where: int) -> None:
    texts = ["", ""]
    texts[where] = line
    with pytest.raises(InputError, match=r"unknown cell .w8a8_sym_pt"):
        expand(suite(tmp_path, *texts), CATALOGUES)


def test_equivalents_reach_every_model(tmp_path: Path) -> None:
    found = suite(tmp_path, 'equivalents = [["x64-avx2", "x64-avx512-vnni"], ["arm*"]]')
    assert found.rules("net_b") == Rules(
        equivalents=(("x64-avx2", "x64-avx512-vnni"), ("arm*",)),
        rule="suite small",
        agreement_rule="suite small",
        ranges_rule="suite small",
    )


def test_threads_are_of_the_class_where_an_engine_counts() -> None:
    packages = {"onnxruntime": "1.31.1"}
    assert str(EnvironmentClass.of("x64-avx2", packages)) == "x64-avx2+onnxruntime-1.31.1"
    several = EnvironmentClass.of("x64-avx2", packages, threads=4)
    assert str(several) == "x64-avx2+onnxruntime-1.31.1+threads-4"
    assert EnvironmentClass.parse(str(several)) == several
    assert (
        str(EnvironmentClass.of("x64-avx2", {}, threads=4)) == "x64-avx2"
    )  # our interpreter gives the same bits
