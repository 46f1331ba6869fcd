"""Names of schemas: what each word means, what cannot be, and what is suggested for a slip."""

import itertools
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.calibration.ranges import MinMax
from qbench.errors import InputError
from qbench.extension import Extension, named_also
from qbench.quantization import (
    BiasKind,
    BiasSpec,
    Granularity,
    Rule,
    Schema,
    Spec,
    catalogue,
    get_schema,
)
from qbench.quantization.float_names import FLOAT_FORM
from qbench.quantization.grammar import FORM, SchemaGrammar, SchemaName, builtin_schemas

WEIGHT = Spec(qtype="int8", symmetry="symmetric", narrow_range=True)


def only(name: str) -> Rule:
    """The one rule of a schema of the grammar."""
    schema = get_schema(name)
    assert schema.name == name
    assert schema.canonical == "default"
    (rule,) = schema.rules
    return rule


@pytest.mark.parametrize(
    ("family", "place", "power"),
    list(itertools.product(("asym", "sym", "symu8"), ("pt", "pc"), ("", "_pow2"))),
)
def test_eight_bits_are_what_they_always_were(family: str, place: str, power: str) -> None:
    qtype, symmetry = {
        "asym": ("uint8", "asymmetric"),
        "sym": ("int8", "symmetric"),
        "symu8": ("uint8", "symmetric_unsigned"),
    }[family]
    kind = "pow2" if power else "real"
    weight = Spec(
        qtype="int8",
        symmetry="symmetric",
        granularity=Granularity.CHANNEL if place == "pc" else Granularity.TENSOR,
        narrow_range=True,
        scale_kind=kind,
    )
    name = f"w8a8_{family}_{place}{power}"
    rules = (Rule(activation=Spec(qtype=qtype, symmetry=symmetry, scale_kind=kind), weight=weight),)
    assert get_schema(name) == Schema(name=name, rules=rules)
    assert name in builtin_schemas()


@pytest.mark.parametrize(
    ("name", "activation", "weight", "bias"),
    [
        ("w8_sym_pc", "None", "int8 symmetric per channel narrow", "float"),
        ("w4_sym_b32", "None", "int4 symmetric per block of 32", "float"),
        ("w4_asym_b128_minmax", "None", "uint4 asymmetric per block of 128", "float"),
        ("w8_symu8_pt", "None", "uint8 symmetric_unsigned", "float"),
        (
            "w4a8_asym_pc",
            "uint8 asymmetric",
            "int4 symmetric per channel",
            "int32 at the product's scale",
        ),
        ("w2a4_sym_pt", "int4 symmetric", "int2 symmetric", "int32 at the product's scale"),
        ("w5a6_asym_pt", "uint6 asymmetric", "int5 symmetric", "int32 at the product's scale"),
        (
            "w8a16_sym_pc",
            "int16 symmetric",
            "int8 symmetric per channel narrow",
            "int32 at the product's scale",
        ),
        (
            "w8a16_asym_pt",
            "uint16 asymmetric",
            "int8 symmetric narrow",
            "int32 at the product's scale",
        ),
        ("w16a16_sym_pc", "int16 symmetric", "int16 symmetric per channel narrow", "float"),
        (
            "w8a8_asym_pc_dyn",
            "uint8 asymmetric dynamic",
            "int8 symmetric per channel narrow",
            "float",
        ),
        (
            "w8a8_asym_pc_bias9",
            "uint8 asymmetric",
            "int8 symmetric per channel narrow",
            "int9 at a scale of its own",
        ),
        (
            "w8a8_sym_pt_pow2_bias16",
            "int8 symmetric pow2",
            "int8 symmetric narrow pow2",
            "int16 at a scale of its own, pow2",
        ),
    ],
)
def test_words(name: str, activation: str, weight: str, bias: str) -> None:
    rule = only(name)
    assert (str(rule.activation), str(rule.weight), str(rule.bias or BiasSpec())) == (
        activation,
        weight,
        bias,
    )


def test_the_method_is_of_what_the_family_is_of() -> None:
    theirs = Extension(name="acme", range_methods={"acme-range_2": lambda: MinMax})
    with named_also(lambda: (theirs,)):
        both, alone = only("w8a8_sym_pc_bias8_acme-range_2"), only("w4_sym_b32_acme-range_2")
        with pytest.raises(InputError, match=r"Did you mean 'w8a8_sym_pc_acme-range_2'\?"):
            get_schema("w8a8_sym_pc_acmerange")
    assert both.activation is not None
    assert both.weight is not None
    assert alone.weight is not None
    assert (both.activation.range_method, both.weight.range_method) == ("acme-range_2", "minmax")
    assert alone.weight.range_method == "acme-range_2"


@pytest.mark.parametrize(
    ("name", "found", "suggested"),
    [
        ("w8a8_asm_pt", "unknown schema 'w8a8_asm_pt'", "w8a8_asym_pt"),
        ("w8a8_asym_ptt_bias16", "unknown schema", "w8a8_asym_pt_bias16"),
        ("w4a8_assym_b32", "unknown schema", "w4a8_asym_b32"),
        ("w08a8_asym_pc", "unknown schema", "w8a8_asym_pc"),
        ("w8a8_asym", "unknown schema", "w8a8_asym_pt"),
        ("w1a8_sym_pc", "weights of 1 bit in", "w2a8_sym_pc"),
        ("w17_sym_pc", "weights of 17 bits in", "w16_sym_pc"),
        ("w8a1_sym_pc", "activations of 1 bit in", "w8a2_sym_pc"),
        ("w8a32_sym_pc", "activations of 32 bits in", "w8a16_sym_pc"),
        ("w8a8_sym_pc_bias1", "biases of 1 bit in", "w8a8_sym_pc_bias2"),
        ("w8a8_sym_pc_bias24", "biases of 24 bits in", "w8a8_sym_pc_bias16"),
        ("w4_sym_b0", "blocks of 0 in", "w4_sym_b32"),
        ("w8a16_symu8_pc", "'symu8' of 16 bits in", "w8a16_asym_pc|w8a16_sym_pc"),
        ("w4_symu8_pc", "'symu8' of 4 bits in", "w8a8_symu8_pc"),
        ("w8_asym_pc_dyn", "'dyn' without activations", "w8a8_asym_pc_dyn"),
        ("w8a8_sym_pc_dyn", "dynamic activations 'a8_sym'", "w8a8_asym_pc_dyn"),
        ("w8a8_asym_pc_pow2_dyn", "'pow2' with 'dyn'", "w8a8_asym_pc_pow2"),
        ("w8a8_asym_pc_dyn_minmax", "the method 'minmax' with 'dyn'", "w8a8_asym_pc_dyn"),
        ("w4_sym_b32_bias8", "a bias in integers with activations in float", "w4_sym_b32"),
        ("w8a8_asym_pc_bias16_pow2", "'pow2' at the end", "w8a8_asym_pc_pow2_bias16"),
        (
            "w8a8_asym_pc_pow2_moving_averge",
            "unknown range method 'moving_averge'",
            "w8a8_asym_pc_pow2_moving_average",
        ),
        ("w8a8_asym_pc_fixed", "the method 'fixed', which needs settings", "w8a8_asym_pc.*"),
        ("w8a8_sym_pc_entopy", "unknown range method 'entopy'", "w8a8_sym_pc_entropy"),
        ("w8a8_sym_pc_l2", "unknown range method 'l2'", "w8a8_sym_pc_mse"),
        ("w8a8_sym_pc_kl", "unknown range method 'kl'", "w8a8_sym_pc_tvm_kl"),
        ("w8a8_sym_pc_bias16_absmax", "unknown range method 'absmax'", "w8a8_sym_pc_bias16_minmax"),
        ("w8a8_asym_pc_minmaxx", "unknown range method 'minmaxx'", "w8a8_asym_pc_minmax"),
    ],
)
def test_what_is_no_schema_is_said_with_the_grammar_and_a_name(
    name: str, found: str, suggested: str
) -> None:
    assert not catalogue().knows(name)
    with pytest.raises(InputError) as raised:
        get_schema(name)
    error = raised.value
    assert found in error.found
    assert FORM in error.expected
    assert re.fullmatch(rf"Did you mean '({suggested})'\?", error.remedy), error.remedy
    assert catalogue().knows(error.remedy.split("'")[1])


@pytest.mark.parametrize(
    ("name", "suggested"),
    [
        ("wf8e4m_sym_pc", "wf8e4m3_sym_pc"),
        ("wfp8e4m3_sym_pc", "wf8e4m3_sym_pc"),
        ("wf8_sym_pc", "wf8e4m3_sym_pc"),
        ("wfloat8e4m3fn_sym_pt_pow2", "wf8e4m3_sym_pt_pow2"),
        ("wfp4_sym_b16", "wf4e2m1_sym_b16"),
        ("wf8e5m2_asym_pc_percentile", "wf8e5m2_sym_pc_percentile"),
        ("wf8e4m3_sym_pc_entropy", "wf8e4m3_sym_pc"),
        ("wf8e4m3a8_sym_pc", "wf8e4m3af8e4m3_sym_pc"),
        ("w8af8e4m3_sym_pc", "wf8e4m3af8e4m3_sym_pc"),
        ("wf8e5m2af8e5m3_sym_pc", "wf8e5m2af8e5m2_sym_pc"),
        ("wf6e2m3_sym_pcc", "wf6e2m3_sym_pc"),
        ("mxfp4", "wmxfp4_sym_b32"),
        ("wmxfp8_sym_b32", "wmxfp8e4m3_sym_b32"),
        ("wmxfp4_sym_b16", "wmxfp4_sym_b32"),
        ("nvfp4_b16", "wnvfp4_sym_b16"),
    ],
)
def test_a_misspelled_type_of_floats_leads_to_floats(name: str, suggested: str) -> None:
    with pytest.raises(InputError) as raised:
        get_schema(name)
    assert raised.value.remedy == f"Did you mean '{suggested}'?"
    assert FLOAT_FORM in raised.value.expected
    assert catalogue().knows(suggested)


def test_a_misspelled_quantizer_leads_to_the_name_of_its_schema(tmp_path: Path) -> None:
    added = Extension(name="mine", quantizers={"acme": lambda: tmp_path})
    for written in ("by-acmee", "by_acme"):
        assert catalogue([added]).unknown(written, "Looking").remedy == "Did you mean 'by-acme'?"


@pytest.mark.parametrize("written", ["by-acme.", "by-acme..", "by-acme.a.b"])
def test_a_name_without_a_variant_after_its_dot_is_none(tmp_path: Path, written: str) -> None:
    file = tmp_path / "acme.toml"
    file.write_text('[quantizer]\ntitle = "acme"\ncommand = ["{python}", "{out}"]\n')
    known = catalogue([Extension(name="mine", quantizers={"acme": lambda: file})])
    known.get("by-acme")
    with pytest.raises(InputError) as raised:
        known.get(written)
    assert written in raised.value.found
    assert "'by-acme'" in raised.value.expected


@pytest.mark.parametrize(("usual", "ours"), [("l2", "mse"), ("kl", "tvm_kl")])
def test_the_usual_name_of_a_method_is_answered_with_ours(usual: str, ours: str) -> None:
    with pytest.raises(InputError) as raised:
        get_schema(f"w8a8_sym_pc_{usual}")
    assert raised.value.expected.startswith(f"'{ours}' for that, ")


def test_a_name_of_nothing_leads_to_the_list() -> None:
    with pytest.raises(InputError, match="See 'qbench list schemas'"):
        get_schema("?!")


WIDTHS = st.integers(0, 40)


@given(
    st.builds(
        lambda w, a, family, place, *rest: f"w{w}{a}_{family}_{place}" + "".join(rest),
        WIDTHS,
        st.one_of(st.just(""), WIDTHS.map("a{}".format)),
        st.sampled_from(["asym", "sym", "symu8"]),
        st.one_of(st.sampled_from(["pt", "pc"]), st.integers(0, 300).map("b{}".format)),
        st.sampled_from(["", "_pow2"]),
        st.sampled_from(["", "_dyn"]),
        st.one_of(st.just(""), WIDTHS.map("_bias{}".format)),
        st.sampled_from(["", "_minmax"]),
    )
)
def test_a_name_is_what_its_words_say_or_an_error(name: str) -> None:
    """An oracle from the text of the name alone."""
    match = re.fullmatch(
        r"w(\d+)(?:a(\d+))?_(\w+?)_(pt|pc|b(\d+))(_pow2)?(_dyn)?(?:_bias(\d+))?(_minmax)?", name
    )
    assert match is not None
    weight, activation, family, place, block, pow2, dynamic, bias, method = match.groups()
    legal = (
        2 <= int(weight) <= 16
        and (activation is None or 2 <= int(activation) <= 16)
        and block != "0"
        and (family != "symu8" or (activation or weight) == "8")
        and (bias is None or ((2 <= int(bias) <= 16 or bias == "32") and activation is not None))
        and (
            dynamic is None
            or (activation == "8" and family == "asym" and pow2 is None and method is None)
        )
    )
    assert catalogue().knows(name) == legal
    if not legal:
        with pytest.raises(InputError):
            get_schema(name)
        return
    assert str(SchemaName.parse(name)) == name
    rule = only(name)
    assert rule.weight is not None
    assert rule.weight.kind.qtype.bits == int(weight)
    assert (rule.weight.granularity.value[0], rule.weight.block_size) == (
        {"pt": "t", "pc": "c"}.get(place, "b"),
        int(block) if block else None,
    )
    assert (rule.weight.scale_kind == "pow2") == (pow2 is not None)
    assert (rule.activation is None) == (activation is None)
    if rule.activation is not None:
        assert rule.activation.kind.qtype.bits == int(activation)
        assert rule.activation.kind.qtype.signed == (family == "sym")
        assert rule.activation.dynamic == (dynamic is not None)
        assert rule.weight.symmetry == "symmetric"
    if bias is not None:
        kind = "pow2" if pow2 else "real"
        assert rule.bias == BiasSpec(kind=BiasKind.OWN, qtype=f"int{bias}", scale_kind=kind)
    else:
        derived = activation is not None and dynamic is None and int(weight) + int(activation) <= 24
        assert rule.bias == (None if derived else BiasSpec(kind=BiasKind.FLOAT))


def test_every_listed_name_is_of_the_grammar_and_different() -> None:
    names = catalogue().names()
    schemas = [get_schema(name) for name in names]
    assert [schema.name for schema in schemas] == list(names)
    asked = {(schema.rules, schema.weight_codes, schema.cache) for schema in schemas}
    assert len(asked) == len(names)


def test_a_fit_is_of_the_weights_and_the_method_stays_that_of_the_ranges() -> None:
    schema = get_schema("w4a8_asym_pc_pow2_bias16_fit_mse")
    plain = get_schema("w4a8_asym_pc_pow2_bias16_mse")
    assert (schema.rules, schema.fits_weights) == (plain.rules, True)
    assert schema.bias_correction
    assert schema.needs_samples
    assert not plain.fits_weights
    weights = get_schema("w4_sym_b32_fit")
    assert weights.needs_samples
    assert not weights.needs_profile


def test_extensions_add_names_but_take_none_of_the_grammar() -> None:
    schema = get_schema("w8a8_asym_pt")
    more = catalogue([Extension(name="theirs", schemas={"house": lambda: schema})])
    assert more.get("house") is schema
    assert more.owner("house") == "theirs"
    assert more.knows("house")
    assert more.knows("w5_sym_pc")
    with pytest.raises(InputError, match="Did you mean 'house'"):
        more.get("houze")
    for taken in ("w8a8_asym_pt", "w5_sym_pc"):
        with pytest.raises(InputError, match="'qbench' defines the same name"):
            catalogue([Extension(name="theirs", schemas={taken: lambda: schema})])


def test_names_are_known_without_numerics() -> None:
    code = (
        "import sys; from qbench.quantization import catalogue; names = catalogue();"
        "assert names.knows('w5a8_asym_b32_pow2_bias16') and not names.knows('w1_sym_pc') and "
        "names.names();"
        "assert not {'numpy', 'onnx', 'onnx_ir'} & set(sys.modules), sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_grammar_shows_its_form() -> None:
    grammar = catalogue().grammar
    assert isinstance(grammar, SchemaGrammar)
    assert grammar.form == FORM
