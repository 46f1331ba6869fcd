"""``decision``, ``flips``, ``probabilities`` and ``equivalents`` of a suite: who wins and is
named, what is refused.
"""

import re
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
        ("probabilities = { absolut = 0.1 }", "Did you mean 'absolute'"),
        ('probabilities = { "slow" = { absolut = 0.1 } }', "Did you mean 'absolute'"),
        ('equivalents = ["x64-avx2"]', "a list"),
    ],
)
def test_what_has_no_meaning_is_refused(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        suite(tmp_path, line)


BYTES = "expected an integer, or a table of 'bytes', 'fp32', 'accepted'. Write "
RATIO = "more than 0, such as 0.8. Write max_latency_ratio = 0.8, or "


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            'max_file_bytes = "4 MB"',
            f"found a string ('4 MB') in max_file_bytes; {BYTES}max_file_bytes = 4_000_000, or",
        ),
        ("max_file_bytes = true", f"found a boolean (True) in max_file_bytes; {BYTES}"),
        ("max_file_bytes = []", f"found a list ([]) in max_file_bytes; {BYTES}"),
        (
            'max_file_bytes = { bytes = "4 MB" }',
            "found a string ('4 MB') in 'bytes' of max_file_bytes; expected an integer. Write",
        ),
        (
            'max_file_bytes = { "slow" = "4 MB" }',
            f"""in max_file_bytes."slow"; {BYTES}max_file_bytes."slow" = 4_000_000""",
        ),
        ("max_file_bytes = { bites = 3 }", "an unknown key 'bites' in max_file_bytes; expected"),
        ("max_file_bytes = {}", "a limit without 'bytes', 'fp32' or 'accepted' in max_file_bytes"),
        ("max_file_bytes = 0", "0 bytes in max_file_bytes; expected a whole number from 1. Write"),
        ("max_latency_ratio = -1", f"found a ratio of -1 in max_latency_ratio; expected {RATIO}"),
        (
            'max_latency_ratio = "fast"',
            "expected a number, or a table of 'fp32', 'accepted'. Write max_latency_ratio = 0.8",
        ),
        ("no_worse_than = 3", "an integer (3) in no_worse_than; expected a text, or a table of"),
        ('flips = { "slow" = "a" }', """a string ('a') in flips."slow"; expected an integer."""),
    ],
)
def test_a_wrong_value_names_its_key_and_what_the_key_takes(tmp_path, line, words):
    """Many of these said 'expected a table' where a number is right, without the key."""
    with pytest.raises(InputError, match=re.escape(words)) as caught:
        suite(tmp_path, line)
    assert "\n" not in str(caught.value)


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
    )


def test_a_share_that_no_table_sets_is_the_default_and_not_of_the_suite(tmp_path: Path) -> None:
    """Such a rule named the suite, whose file does not have the key."""
    found = suite(tmp_path, "agreement = 0.9", "integer_macs = 0.2").rules("net_a")
    assert (found.integer_macs, found.rule) == (0.2, "model net_a")
    assert (found.agreement, found.agreement_rule) == (0.9, "suite small")
    assert (found.ranges, found.ranges_rule) == (0.01, "default")
    assert (found.executed_macs, found.executed_rule) == (None, "default")


def test_threads_are_of_the_class_where_an_engine_counts() -> None:
    packages = {"onnxruntime": "1.31.1"}
    assert str(EnvironmentClass.of("x64-avx2", packages)) == "x64-avx2+onnxruntime-1.31.1"
    several = EnvironmentClass.of("x64-avx2", packages, threads=4)
    assert str(several) == "x64-avx2+onnxruntime-1.31.1+threads-4"
    assert EnvironmentClass.parse(str(several)) == several
    assert (
        str(EnvironmentClass.of("x64-avx2", {}, threads=4)) == "x64-avx2"
    )  # our interpreter gives the same bits
