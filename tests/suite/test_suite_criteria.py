"""``equal_to`` and ``close_to`` of a suite: which cells they are about, which layer wins,
what has no meaning.
"""

from pathlib import Path

import pytest

from qbench.errors import InputError
from qbench.extension import Catalogue
from qbench.judging import Criterion
from qbench.suite import Catalogues, expand, load_suite


def never() -> object:
    raise AssertionError("expanding a suite loads nothing")


def names(kind: str, *known: str) -> Catalogue:
    return Catalogue(kind, dict.fromkeys(known, never))


CATALOGUES = Catalogues(
    models=names("model", "net_a", "net_b"),
    datasets=names("dataset", "photos", "others"),
    backends=names("backend", "fast", "slow", "exact", "integer-ideal"),
    schemas=names("schema", "w8a8_sym_pc", "w8a8_asym_pt"),
    metrics=names("metric", "top1"),
    integer_backends=frozenset({"integer-ideal"}),
)

SUITE = """
[suite]
backends = ["fast", "slow"]
schemas = ["w8a8_sym_pc", "w8a8_asym_pt"]
{}
"""
MODEL = """
[[model]]
id = "net_a"
data = "photos"
calibration = {{ data = "others", count = 8 }}
metrics = ["top1"]
{}
"""


def criteria(folder: Path, suite: str = "", *models: str) -> dict[str, Criterion | None]:
    """Slug → criterion of the first model's cells."""
    path = folder / "small.qbench.toml"
    ids = ("net_a", "net_b")
    texts = [
        MODEL.format(model).replace("net_a", ids[place])
        for place, model in enumerate(models or ("",))
    ]
    path.write_text(SUITE.format(suite) + "".join(texts))
    cells = expand(load_suite(path), CATALOGUES)
    return {
        planned.cell.slug: planned.criterion for planned in cells if planned.cell.model == "net_a"
    }


def test_every_quantized_cell_of_a_suite_and_no_float_one(tmp_path: Path) -> None:
    found = criteria(tmp_path, 'equal_to = "exact"')
    assert {slug for slug, criterion in found.items() if criterion is None} == {
        "fast+fp32",
        "slow+fp32",
    }
    assert found["slow+w8a8_sym_pc"] == Criterion(backend="exact", rule="suite small")
    assert found["slow+w8a8_sym_pc"].text == "equal_to exact (suite small)"
    assert not any(criteria(tmp_path).values())


def test_the_most_particular_layer_wins_and_is_named(words, tmp_path: Path) -> None:
    suite = 'equal_to = { "slow" = "fast" }'
    found = criteria(
        tmp_path, suite, 'close_to = { "slow+w8a8_sym_*" = { backend = "exact", steps = 1 } }'
    )
    assert found["fast+w8a8_sym_pc"] is None
    assert found["slow+w8a8_asym_pt"].text == "equal_to fast (suite small::slow)"
    near = found["slow+w8a8_sym_pc"]
    assert near == Criterion(backend="exact", steps=1.0, rule="cell net_a::slow+w8a8_sym_*")
    words(near.text)
    both = criteria(tmp_path, suite, 'close_to = { backend = "exact", steps = 2, relative = 1e-3 }')
    words(both["slow+w8a8_sym_pc"].text)


def test_the_first_key_of_a_table_wins_and_an_empty_name_asks_nothing(tmp_path: Path) -> None:
    found = criteria(
        tmp_path, "", 'equal_to = { "slow+w8a8_sym_pc" = "fast", "w8a8_sym_pc" = "exact" }'
    )
    assert {slug: criterion.backend for slug, criterion in found.items() if criterion} == {
        "fast+w8a8_sym_pc": "exact",
        "slow+w8a8_sym_pc": "fast",
    }
    spared = criteria(tmp_path, 'equal_to = "exact"', 'equal_to = { "slow" = "" }', "")
    assert {slug for slug, criterion in spared.items() if criterion} == {
        "fast+w8a8_sym_pc",
        "fast+w8a8_asym_pt",
    }


def test_machines_that_count_integers_get_no_float_cell(tmp_path: Path) -> None:
    assert set(
        criteria(tmp_path, "", 'backends = ["fast", "integer-ideal"]\nschemas = ["w8a8_sym_pc"]')
    ) == {
        "fast+fp32",
        "fast+w8a8_sym_pc",
        "integer-ideal+w8a8_sym_pc",
    }


@pytest.mark.parametrize(
    ("suite", "model", "words"),
    [
        (
            'equal_to = "exakt"',
            "",
            ["unknown backend 'exakt'", "equal_to (suite small)", "Did you mean 'exact'?"],
        ),
        (
            "",
            'close_to = { backend = "exakt", steps = 1 }',
            ["unknown backend 'exakt'", "close_to (model net_a)"],
        ),
        (
            'equal_to = "fast"',
            "",
            ["cell 'net_a::fast+w8a8_sym_pc'", "'fast' compared with itself"],
        ),
        (
            'equal_to = "exact"\nclose_to = { backend = "exact", steps = 1 }',
            "",
            ["both 'equal_to' and 'close_to'"],
        ),
        (
            "",
            'equal_to = "exact"\nclose_to = { fast = { backend = "slow", steps = 1 } }',
            ["both 'equal_to' and"],
        ),
        ('equal_to = { "slwo" = "exact" }', "", ["unknown cell 'slwo'", "Did you mean 'slow'?"]),
        (
            "",
            'equal_to = { "*+fp32" = "exact" }',
            ["unknown cell '*+fp32'", "equal_to (cell net_a::*+fp32)"],
        ),
        ('close_to = { backend = "exact" }', "", ["a closeness without 'steps' or 'relative'"]),
        (
            'close_to = { backend = "exact", step = 1 }',
            "",
            ["unknown key 'step'", "Did you mean 'steps'?"],
        ),
        ("close_to = { steps = 1 }", "", ["no key 'backend'"]),
        ('close_to = { backend = "exact", steps = -1 }', "", ["steps = -1.0 is impossible"]),
        (
            'close_to = { slow = "exact" }',
            "",
            ["'slow' = 'exact'", "a table of a backend and limits"],
        ),
        ("close_to = {}", "", ["no key 'backend'"]),
        ("", "equal_to = 3", ["'equal_to' of item 1 ('", "an integer"]),
    ],
)
def test_criteria_without_meaning_are_one_sentence(
    tmp_path: Path, suite: str, model: str, words: list[str]
) -> None:
    with pytest.raises(InputError) as caught:
        criteria(tmp_path, suite, model)
    for word in words:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)
