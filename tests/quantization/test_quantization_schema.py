from pathlib import Path

import pytest

from qbench.errors import InputError
from qbench.extension import Extension
from qbench.quantization import Granularity, Schema, catalogue, get_schema, schema_from_table
from qbench.storage import read_toml

TEXT = """
name = "first_in_float"

[[rules]]
names = ["stem*"]
reason = "the first layer is worth it"

[[rules]]
operators = ["Conv", "Gemm"]
activation = { qtype = "uint8", symmetry = "asymmetric" }
weight = { qtype = "int8", symmetry = "symmetric", granularity = "channel", narrow_range = true }
bias = "int32"
"""


def test_a_schema_is_a_toml_table(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text(TEXT)
    schema = schema_from_table(read_toml(path), f"'{path}'")
    stem, conv = schema.rule_for("Conv", "stem.0"), schema.rule_for("Conv", "block")
    assert stem is not None
    assert stem.weight is None
    assert conv is not None
    assert conv.weight is not None
    assert conv.weight.granularity is Granularity.CHANNEL
    assert schema.rule_for("Softmax", "head") is None
    assert schema.canonical == "default"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("symmetry", "symetry", "Did you mean 'symmetry'"),
        ('"uint8"', '"uint99"', "integer grid"),
        ('"asymmetric"', '"lopsided"', "lopsided"),
        ('"channel"', '"pixel"', "pixel"),
        ("narrow_range = true", "narrow_range = 1", "true or false"),
        ('"int32"', '"int31"', "int31"),
        ("[[rules]]", "[[rulez]]", "rulez"),
        ("name =", 'canonical = "defualt"\nname =', "Did you mean 'default'"),
    ],
)
def test_a_wrong_table_is_one_sentence(old: str, new: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text(TEXT.replace(old, new))
    with pytest.raises(InputError, match=words):
        schema_from_table(read_toml(path), "a schema")


def test_a_schema_without_rules_is_none() -> None:
    with pytest.raises(InputError, match="at least one rule"):
        schema_from_table({"name": "empty", "rules": []}, "a schema")


@pytest.mark.parametrize("name", catalogue().names())
def test_names_say_what_they_are(name: str) -> None:
    schema = get_schema(name)
    assert schema.name == name
    (rule,) = schema.rules
    assert rule.activation is not None
    assert rule.weight is not None
    assert rule.activation.qtype == ("int8" if "_sym_" in name else "uint8")
    assert (rule.weight.granularity is Granularity.CHANNEL) == ("_pc" in name)
    assert (rule.weight.scale_kind == "pow2") == (rule.activation.scale_kind == "pow2") == ("pow2" in name)


def test_unknown_names_and_extensions() -> None:
    with pytest.raises(InputError, match="Did you mean 'w8a8_asym_pt'"):
        get_schema("w8a8_asym_cp")
    schema: Schema = get_schema("w8a8_asym_pt")
    more = catalogue([Extension(name="theirs", schemas={"house": lambda: schema})])
    assert more.get("house") is schema
    assert more.owner("house") == "theirs"
