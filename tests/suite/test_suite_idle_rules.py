"""A rule is idle when it matched nothing in any model of a run, and when that can be known."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from qbench.suite import stale as idle_rules
from qbench.tracking import record_of_line

RULES = ("rule 1 (names a)", "rule 2 (names b)")
COUNTS = dict.fromkeys(("n", "hits", "out_of", "reference_hits", "losses", "gains"), 1)
CELLS = list(product(("net", "web"), ("one", "two"), ("fp32", "mine", "theirs")))


def idle_rule_errors(lines):
    return idle_rules.idle_rule_errors(map(record_of_line, lines))


def line(model, schema, idle=(), *, measured=True):
    found = {"model": model, "backend": "b", "schema": schema}
    return (
        found
        | ({"metrics": {"top1": COUNTS}} if measured else {})
        | ({"idle_rules": list(idle)} if idle else {})
    )


def test_only_what_no_model_has_is_idle():
    both, one = line("net", "s", RULES), line("web", "s", RULES[1:])
    (sentence,) = idle_rule_errors([both, one])
    assert sentence.startswith(
        "Running the schema 's': found rule 2 (names b), which matches no operator of net, web;"
    )
    assert len(idle_rule_errors([both])) == 2
    assert idle_rule_errors([both, line("web", "s")]) == ()
    assert idle_rule_errors([]) == ()


def test_what_was_not_measured_is_not_known():
    unmeasured = line("web", "s", measured=False)
    assert idle_rule_errors([line("net", "s", RULES), unmeasured]) == ()
    assert (
        len(idle_rule_errors([line("net", "s", RULES), unmeasured, line("web", "s", RULES)])) == 2
    )
    assert idle_rule_errors([unmeasured]) == ()


@given(
    st.lists(
        st.tuples(st.sampled_from(CELLS), st.booleans(), st.sets(st.sampled_from(RULES))),
        max_size=12,
    )
)
def test_against_an_oracle(drawn):
    lines = [
        line(model, schema, () if schema == "fp32" else tuple(sorted(idle)), measured=measured)
        for (model, _, schema), measured, idle in drawn
    ]
    expected = set()
    for schema in ("mine", "theirs"):
        cells = [one for one in lines if one["schema"] == schema]
        known = cells and all(
            any("metrics" in one for one in cells if one["model"] == model)
            for model in {c["model"] for c in cells}
        )
        for rule in RULES if known else ():
            if all(rule in one.get("idle_rules", ()) for one in cells if "metrics" in one):
                expected.add((schema, rule))
    told = idle_rule_errors(lines)
    assert len(told) == len(expected)
    assert {(s, r) for s, r in expected if any(f"'{s}'" in t and r in t for t in told)} == expected
