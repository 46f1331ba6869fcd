"""What a schema asks of every slot, against an oracle of loops; its TOML spelling;
and what it refuses.
"""

import fnmatch
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.errors import InputError
from qbench.quantization import (
    BiasKind,
    BiasSpec,
    Finer,
    Granularity,
    Role,
    Rule,
    Schema,
    Share,
    SlotOptions,
    Spec,
    get_schema,
    schema_from_table,
)
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
bias = { kind = "own", qtype = "int16" }
"""
EVERY_KEY = """
name = "everything"
canonical = "split_bias"
bias_correction = true

[[rules]]
operators = ["Conv"]
names = ["*/c?", "stem"]
first = 2
last = 1
input = { qtype = "uint8", symmetry = "asymmetric", range_method = "minmax", dynamic = true }
output = { qtype = "int8", symmetry = "symmetric", scale_kind = "pow2_nearest", \
narrow_range = true }
weight = { qtype = "int4", symmetry = "symmetric", granularity = "block", block_size = 32 }
correlation = { qtype = "int16", symmetry = "symmetric", scale = 0.25, zero_point = 0, \
scale_kind = "pow2" }
bias = { kind = "own", qtype = "int9", scale_kind = "pow2", finer = "product" }
keep_float = ["sum"]
share = ["inputs", "output"]
reason = "to show them all"

[[rules]]
activation = { qtype = "uint8", symmetry = "symmetric_unsigned" }
sum = { qtype = "int32", symmetry = "symmetric" }
"""
UINT8 = Spec(qtype="uint8", symmetry="asymmetric")
INT8 = Spec(qtype="int8", symmetry="symmetric")
FLOAT = BiasSpec(kind=BiasKind.FLOAT)


def test_a_schema_is_a_toml_table(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text(TEXT)
    schema = schema_from_table(read_toml(path), f"'{path}'")
    stem, conv, head = schema.options_of(
        [("Conv", "stem.0"), ("Conv", "block"), ("Softmax", "head")]
    )
    assert stem.silent
    assert stem.reason == "the first layer is worth it"
    assert conv.weight is not None
    assert conv.weight.granularity is Granularity.CHANNEL
    assert conv.bias.qtype == "int16"
    assert head.silent
    assert head.rules == ()
    assert schema.canonical == "default"


def test_every_key_has_a_toml_spelling(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text(EVERY_KEY)
    assert schema_from_table(read_toml(path), "a schema") == Schema(
        name="everything",
        canonical="split_bias",
        bias_correction=True,
        rules=(
            Rule(
                operators=("Conv",),
                names=("*/c?", "stem"),
                first=2,
                last=1,
                input=Spec(qtype="uint8", symmetry="asymmetric", dynamic=True),
                output=Spec(
                    qtype="int8", symmetry="symmetric", scale_kind="pow2_nearest", narrow_range=True
                ),
                weight=Spec(
                    qtype="int4", symmetry="symmetric", granularity=Granularity.BLOCK, block_size=32
                ),
                correlation=Spec(
                    qtype="int16", symmetry="symmetric", scale=0.25, zero_point=0, scale_kind="pow2"
                ),
                bias=BiasSpec(
                    kind=BiasKind.OWN, qtype="int9", scale_kind="pow2", finer=Finer.PRODUCT
                ),
                keep_float=(Role.SUM,),
                share=(Share.INPUTS, Share.OUTPUT),
                reason="to show them all",
            ),
            Rule(
                activation=Spec(qtype="uint8", symmetry="symmetric_unsigned"),
                sum=Spec(qtype="int32", symmetry="symmetric"),
            ),
        ),
    )


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("symmetry", "symetry", "Did you mean 'symmetry'"),
        (
            '"uint8"',
            '"uint99"',
            "Reading 'activation' of item 2 of 'rules' of a schema: .* 2 to 16 or 32 bits",
        ),
        ('"asymmetric"', '"lopsided"', "lopsided"),
        ('"channel"', '"pixel"', "pixel"),
        ('"channel"', '"block"', "no block_size with the granularity 'block'"),
        ('"channel"', '"block", block_size = 0', "a block_size of 0, below one element"),
        (
            '"channel"',
            '"channel", block_size = 8',
            "a block_size of 8 with the granularity 'channel'",
        ),
        ("narrow_range = true", "narrow_range = 1", "true or false"),
        ("narrow_range = true", 'scale_kind = "power"', "none of real, pow2, pow2_nearest"),
        (
            "narrow_range = true",
            "dynamic = true",
            "dynamic parameters with the granularity 'channel'",
        ),
        ("narrow_range = true", "scale = 1.0", "a fixed scale without a fixed zero_point"),
        ('"asymmetric"', '"asymmetric", range_method = "minimax"', "Did you mean 'minmax'"),
        (
            '"asymmetric"',
            '"asymmetric", scale = 1.0, zero_point = 300',
            "a zero point lies in 0 … 255",
        ),
        (
            '"asymmetric"',
            '"symmetric", scale = 1.0, zero_point = 3',
            "no symmetric uint8 qparams have",
        ),
        (
            '"asymmetric"',
            '"symmetric_unsigned", scale = 1, zero_point = 3',
            "no symmetric_unsigned uint8 qparams have",
        ),
        ('"asymmetric"', '"asymmetric", scale = -1.0, zero_point = 3', "positive and finite"),
        ('"asymmetric"', '"asymmetric", scale = 1.0, zero_point = 0.5', "an integer"),
        (
            '"asymmetric"',
            '"asymmetric", scale = 0.3, zero_point = 0, scale_kind = "pow2"',
            "no power of two",
        ),
        (
            '"asymmetric"',
            '"asymmetric", scale = 0.3, zero_point = 0, dynamic = true',
            "a fixed scale with dynamic = true",
        ),
        (
            '"asymmetric"',
            '"symmetric", dynamic = true',
            "dynamic parameters that are symmetric with real scales",
        ),
        (
            '"asymmetric"',
            '"asymmetric", granularity = "block", block_size = 4',
            "only weights have them",
        ),
        ('"own"', '"owned"', "owned"),
        ('"own"', '"derived"', "for a bias of kind 'derived', not 'own'"),
        ('"int16"', '"uint16"', "the unsigned uint16 for a bias"),
        ('"int16"', '"int17"', "Reading 'bias' of item 2"),
        ("[[rules]]", "[[rulez]]", "rulez"),
        (
            "bias =",
            'keep_float = ["bias"]\nbias =',
            "a spec for 'bias', which 'keep_float' keeps in float",
        ),
        ("bias =", 'keep_float = ["biases"]\nbias =', "biases"),
        ("bias =", 'share = ["everything"]\nbias =', "everything"),
        ("bias =", "first = 0\nbias =", "count from 1, not 0"),
        ("bias =", "last = true\nbias =", "an integer"),
        ("operators = [", "operators = [3, ", "item 1 of 'operators'"),
        ("weight = {", "weight = { dynamic = false, ", "^never$"),
        ("name =", 'canonical = "defualt"\nname =', "Did you mean 'default'"),
    ],
)
def test_a_wrong_table_is_one_sentence(old: str, new: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text(TEXT.replace(old, new))
    if (
        words == "^never$"
    ):  # the edit as such is fine: what is refused above is refused for what it says
        schema_from_table(read_toml(path), "a schema")
        return
    with pytest.raises(InputError, match=words) as raised:
        schema_from_table(read_toml(path), "a schema")
    assert "a schema" in raised.value.doing
    assert "\n" not in str(raised.value)


def test_a_schema_without_rules_is_none() -> None:
    with pytest.raises(InputError, match="a schema without rules"):
        schema_from_table({"name": "empty", "rules": []}, "a schema")


def test_a_rule_without_use_is_none() -> None:
    with pytest.raises(ValueError, match="'activation' next to settings for both"):
        Rule(activation=UINT8, input=INT8, output=INT8)
    with pytest.raises(ValueError, match="'activation' next to settings for both"):
        Rule(activation=UINT8, keep_float=(Role.INPUT, Role.OUTPUT))
    with pytest.raises(ValueError, match="dynamic parameters for 'weight'"):
        Rule(weight=replace(UINT8, dynamic=True))
    with pytest.raises(ValueError, match="of kind 'float', not 'own'"):
        BiasSpec(kind=BiasKind.FLOAT, scale_kind="pow2")
    assert Rule(activation=UINT8, output=INT8).spec_of(Role.INPUT) is UINT8


NETWORK = [
    ("Conv", "stem"),
    ("Conv", "a/c1"),
    ("Add", "a/sum"),
    ("Conv", "b/c1"),
    ("Conv", "b/c2"),
    ("Gemm", "fc"),
]


def test_positions_count_among_the_units_that_match() -> None:
    first = Rule(operators=("Conv",), first=1, last=2, reason="ends")
    schema = Schema(name="s", rules=(first, Rule(activation=UINT8, weight=INT8)))
    options = schema.options_of(NETWORK)
    assert [option.silent for option in options] == [True, False, False, True, True, False]
    assert {option.reason for option in options if option.silent} == {"ends"}


def test_a_rule_leaves_slots_it_does_not_speak_about_to_the_next() -> None:
    int16 = BiasSpec(kind=BiasKind.OWN, qtype="int16")
    schema = Schema(
        name="s",
        rules=(
            Rule(names=("b/*",), weight=replace(INT8, qtype="int4")),
            Rule(operators=("Conv",), last=1, bias=int16),
            Rule(operators=("Add",), share=(Share.INPUTS,)),
            Rule(operators=("Gemm",), keep_float=(Role.OUTPUT, Role.BIAS)),
            Rule(activation=UINT8, weight=INT8),
        ),
    )
    stem, _, add, first, last, head = schema.options_of(NETWORK)
    assert (stem.input, stem.weight, stem.output, stem.bias) == (UINT8, INT8, UINT8, BiasSpec())
    assert (add.share, add.input) == (frozenset({Share.INPUTS}), UINT8)
    assert (first.weight, first.bias, first.input) == (
        replace(INT8, qtype="int4"),
        BiasSpec(),
        UINT8,
    )
    assert (last.weight, last.bias, last.rules) == (replace(INT8, qtype="int4"), int16, (0, 1, 4))
    assert (head.output, head.bias, head.input, head.weight) == (None, FLOAT, UINT8, INT8)


def test_rules_that_never_spoke_are_told() -> None:
    rules = (
        Rule(names=("steam",)),
        Rule(operators=("Conv",), activation=UINT8, weight=INT8, bias=BiasSpec()),
        Rule(operators=("Conv",), first=1, weight=INT8),
    )
    schema = Schema(name="s", rules=rules)
    options = schema.options_of(NETWORK)
    assert schema.idle_rules(options) == (
        "rule 1 (names steam)",
        "rule 3 (operators Conv; first 1)",
    )
    assert schema.idle_rules(()) == (
        "rule 1 (names steam)",
        "rule 2 (operators Conv)",
        "rule 3 (operators Conv; first 1)",
    )
    assert get_schema("w8a8_sym_pc").idle_rules(get_schema("w8a8_sym_pc").options_of(NETWORK)) == ()


def test_an_override_comes_first() -> None:
    schema = get_schema("w8a8_asym_pc").preceded_by((Rule(names=("fc",), reason="why not"),))
    options = schema.options_of(NETWORK)
    assert [option.silent for option in options] == [False] * 5 + [True]
    assert options[-1].reason == "why not"


RULED = [role for role in Role if role is not Role.CACHE]
"""What a rule decides about; what a decoder keeps is asked of a whole schema."""
SPECS = st.sampled_from([None, None, UINT8, INT8, replace(INT8, qtype="int16")])
BIASES = st.sampled_from([None, None, FLOAT, BiasSpec(), BiasSpec(kind=BiasKind.OWN, qtype="int9")])
UNITS = st.lists(
    st.tuples(
        st.sampled_from(["Conv", "Gemm", "Add"]), st.sampled_from(["a", "ab", "b", "b/a", "cab"])
    ),
    max_size=12,
)


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    """Any rule that is not refused."""
    specs: dict[str, Any] = {role.value: draw(SPECS) for role in RULED if role is not Role.BIAS}
    specs["bias"] = draw(BIASES)
    free = [role for role in RULED if specs[role.value] is None]
    kept = tuple(draw(st.lists(st.sampled_from(free), unique=True))) if free else ()
    used = {Role.INPUT, Role.OUTPUT} & (set(free) - set(kept))
    return Rule(
        operators=tuple(draw(st.lists(st.sampled_from(["Conv", "Gemm", "Add"]), max_size=2))),
        names=tuple(draw(st.lists(st.sampled_from(["a", "a*", "*b", "?", "*/*"]), max_size=2))),
        first=draw(st.one_of(st.none(), st.integers(1, 4))),
        last=draw(st.one_of(st.none(), st.integers(1, 4))),
        activation=draw(SPECS) if used else None,
        keep_float=kept,
        share=tuple(draw(st.lists(st.sampled_from(Share), unique=True))),
        reason=draw(st.sampled_from(["", "one", "two"])),
        **specs,
    )


def _matches(rule: Rule, at: int, units: list[tuple[str, str]]) -> bool:
    """Whether unit ``at`` matches, by counting."""

    def fits(unit: tuple[str, str]) -> bool:
        operator, name = unit
        named = not rule.names or any(fnmatch.fnmatchcase(name, pattern) for pattern in rule.names)
        return named and (not rule.operators or operator in rule.operators)

    if not fits(units[at]):
        return False
    before = sum(fits(unit) for unit in units[:at])
    behind = sum(fits(unit) for unit in units[at + 1 :])
    if rule.first is None and rule.last is None:
        return True
    return (rule.first is not None and before < rule.first) or (
        rule.last is not None and behind < rule.last
    )


def _slot(rule: Rule, role: Role) -> tuple[bool, Any]:
    """(whether the rule speaks about it, what it says)."""
    said = getattr(rule, role.value)
    if said is None and role in (Role.INPUT, Role.OUTPUT):
        said = rule.activation
    if role in rule.keep_float:
        return True, None
    if said is not None:
        return True, said
    fields = ("activation", "input", "output", "weight", "correlation", "sum", "bias")
    empty = (
        all(getattr(rule, name) is None for name in fields)
        and not rule.keep_float
        and not rule.share
    )
    return empty, None


@given(st.lists(rules(), min_size=1, max_size=5), UNITS)
def test_wishes_are_those_of_the_first_rule_that_speaks(
    given_rules: list[Rule], units: list[tuple[str, str]]
) -> None:
    schema = Schema(name="s", rules=tuple(given_rules))
    options = schema.options_of(units)
    assert len(options) == len(units)
    ever: set[int] = set()
    for at, option in enumerate(options):
        spoke: set[int] = set()
        for role in RULED:
            expected: Any = BiasSpec() if role is Role.BIAS else None
            for index, rule in enumerate(given_rules):
                speaks, said = _slot(rule, role)
                if _matches(rule, at, units) and speaks:
                    expected = FLOAT if said is None and role is Role.BIAS else said
                    spoke.add(index)
                    break
            assert getattr(option, role.value) == expected
        sharing = [
            i for i, rule in enumerate(given_rules) if rule.share and _matches(rule, at, units)
        ][:1]
        assert option.share == {share for i in sharing for share in given_rules[i].share}
        spoke.update(sharing)
        assert option.rules == tuple(sorted(spoke))
        assert (
            option.reason
            == ([given_rules[i].reason for i in sorted(spoke) if given_rules[i].reason] + [""])[0]
        )
        ever |= spoke
    idle = [f"rule {i + 1} ({rule})" for i, rule in enumerate(given_rules) if i not in ever]
    assert list(schema.idle_rules(options)) == idle


@given(rules())
def test_a_rule_in_words_and_wishes_in_words(rule: Rule) -> None:
    text = str(rule)
    for word in (*rule.operators, *rule.names):
        assert word in text
    assert (text == "every unit") == (not (rule.operators or rule.names or rule.first or rule.last))
    told = str(
        Schema(name="s", rules=(replace(rule, operators=(), names=()),)).options_of(
            [("Conv", "a")]
        )[0]
    )
    for role in RULED:
        spec = rule.spec_of(role)
        assert (f"{role.value} {spec}" in told) == (spec is not None) or role is Role.BIAS


CACHE = Spec(qtype="int8", symmetry="symmetric", granularity=Granularity.HEAD)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Rule(keep_float=(Role.CACHE,)), "'cache' in a rule"),
        (lambda: Rule(weight=CACHE), "heads for 'weight'"),
        (lambda: Schema(name="s", rules=(Rule(activation=UINT8),), cache=CACHE), "known ranges"),
        (
            lambda: Schema(
                name="s", rules=(Rule(),), cache=replace(CACHE, granularity=Granularity.CHANNEL)
            ),
            "per channel",
        ),
        (
            lambda: Schema(
                name="s",
                rules=(Rule(),),
                cache=replace(CACHE, granularity=Granularity.TENSOR, scale=0.5, zero_point=0),
            ),
            "dynamic or fixed",
        ),
    ],
)
def test_what_a_cache_cannot_have(make: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()


def test_wishes_say_float_when_nothing_is_asked() -> None:
    assert str(SlotOptions()) == "float"
    assert SlotOptions().silent


@pytest.mark.parametrize("scale", [0.0, -1.0, float("inf"), float("nan")])
def test_a_fixed_scale_that_is_none(scale):
    with pytest.raises(
        ValueError, match=f"a fixed scale of {scale:g}, which is not positive and finite"
    ):
        Spec(qtype="int8", symmetry="symmetric", scale=scale, zero_point=0)
