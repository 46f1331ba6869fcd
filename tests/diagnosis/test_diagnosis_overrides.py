"""Override files: a schema with nodes in float, which a file spells whole."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.diagnosis.repair.cell import REASON, kept_float, override_text
from qbench.quantization import Schema, get_schema, load_schema

SCHEMAS = Path(__file__).resolve().parents[2] / "suites" / "schemas"
NAMES = (
    "w8a8_asym_pc",
    "w8a8_sym_pt_pow2_bias16",
    "w4_sym_b32",
    "w8a8_asym_pc_dyn",
    "w4a16_sym_pc_entropy",
)


def written(folder, schema):
    path = folder / f"{schema.name}.toml"
    path.write_text(
        override_text(schema, comment="What repairs it.\n\nFound by a search."), encoding="utf-8"
    )
    return load_schema(path)


@pytest.mark.parametrize(
    "schema", [*NAMES, *sorted(SCHEMAS.glob("*.toml"))], ids=lambda one: Path(one).stem
)
def test_a_file_spells_the_very_schema(tmp_path, schema):
    base = load_schema(schema) if isinstance(schema, Path) else get_schema(schema)
    repaired = kept_float(base, ["/stem/conv", "blocks[0].conv"], name="repaired")
    assert written(tmp_path, repaired) == repaired
    assert repaired.rules[1:] == base.rules


@pytest.mark.parametrize("canonical", ["equalized", "split_bias"])
def test_what_is_beside_the_rules_is_kept(tmp_path, canonical):
    base = get_schema("w8a8_asym_pc")
    base = Schema(name="x", rules=base.rules, canonical=canonical, bias_correction=True)
    repaired = kept_float(base, ["a"], name="repaired")
    assert written(tmp_path, repaired) == repaired


@pytest.mark.slow
@given(st.lists(st.text(min_size=1), min_size=1, max_size=6, unique=True))
def test_the_rule_is_about_these_nodes_and_no_others(names):
    chosen, others = names[::2], names[1::2]
    rule = kept_float(get_schema("w8a8_asym_pc"), chosen).rules[0]
    assert all(rule.fits("Conv", name) for name in chosen)
    assert not any(rule.fits("Conv", name) for name in others)


@given(
    names=st.lists(
        st.text(st.characters(codec="utf-8"), min_size=1), min_size=1, max_size=3, unique=True
    )
)
def test_any_name_survives_the_file(tmp_path_factory, names):
    repaired = kept_float(get_schema("w8a8_asym_pc"), names, name="repaired")
    assert written(tmp_path_factory.getbasetemp(), repaired) == repaired


def test_units_in_float_say_why():
    repaired = kept_float(get_schema("w8a8_asym_pc"), ["second"])
    first, second = repaired.options_of([("Conv", "first"), ("Conv", "second")])
    assert (first.silent, second.silent, second.reason) == (False, True, REASON)
    assert repaired.name == "w8a8_asym_pc"


def test_without_nodes_the_schema_is_itself():
    base = get_schema("w8a8_asym_pc")
    assert kept_float(base, []) == base
