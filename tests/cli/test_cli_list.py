"""``qbench list``: every name of every kind, with its owner."""

import json

import pytest

from qbench.cli.list_names import KINDS
from qbench.errors import InputError


@pytest.mark.parametrize("kind", KINDS)
def test_all_names_are_listed(qbench, kind):
    from pathlib import Path

    from qbench.suite import gather

    code, out, _ = qbench("list", kind)
    assert code == 0
    if kind == "arithmetics":
        from qbench.numerics import list_arithmetics

        assert tuple(line.split()[0] for line in out.splitlines()[1:]) == list_arithmetics()
        return
    if kind == "faults":
        from qbench.faults import CATALOGUE

        assert [line.split()[0] for line in out.splitlines()[1:]] == sorted(CATALOGUE)
        return
    assert [line.split()[0] for line in out.splitlines()[1:]] == list(
        getattr(gather(suites=Path("suites")), kind).names()
    )


def test_the_words_of_a_pass_are_whole_sentences(qbench):
    rows = json.loads(qbench("list", "passes", "--json")[1])
    words = [row["what"] for row in rows if row["owner"] == "qbench"]
    assert len(words) > 20
    assert [one for one in words if not one.endswith(".") or "\n" in one] == []


def test_json_has_owner_and_words(qbench):
    rows = {row["name"]: row for row in json.loads(qbench("list", "schemas", "--json")[1])}
    assert rows["w8a8_sym_pc"] == {
        "name": "w8a8_sym_pc",
        "owner": "qbench",
        "what": "activations int8 symmetric, weights int8 symmetric per channel narrow",
    }


def test_extensions_are_named_as_owners(project, qbench):
    rows = {row["name"]: row["owner"] for row in json.loads(qbench("list", "models", "--json")[1])}
    assert rows["blobs"] == "shapes"
    assert rows["digits_cnn"] == "qbench"


def test_a_broken_entry_does_not_hide_the_others(qbench, monkeypatch):
    from qbench.errors import UnavailableError

    def unavailable():
        raise UnavailableError(
            "Making it", found="nothing", expected="something", remedy="Install it."
        )

    from qbench.extension import Extension

    monkeypatch.setattr(
        "qbench.extension.installed_extensions",
        lambda: (Extension(name="far", backends={"far": unavailable}),),
    )
    code, out, _ = qbench("list", "backends")
    assert code == 0
    assert "cannot be had here: Making it: found nothing" in out
    assert "ort-cpu-noopt" in out


def test_an_unknown_backend_lists_the_engines_first(qbench, project):
    code, _, err = qbench("eval", "net.onnx", "--data", "x.npz", "--backend", "tensorrt")
    assert code == 2
    assert (
        "Choose one of: ort-cpu, ort-cpu-noopt, ort-cpu-precise, "
        "ort-cpu-default, ort-cpu-qoperator, onnx-reference, " in err
    )


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("acc", "top1"),
        ("Accuracy", "top1"),
        ("mse", "rmse"),
        ("linf", "max_error"),
        ("agrement", "agreement"),
    ],
)
def test_a_metric_by_the_name_of_another_tool_is_suggested(name, meant):
    from qbench.metrics import get_metric

    with pytest.raises(InputError, match=f"Did you mean '{meant}'"):
        get_metric(name)


def test_the_other_names_of_metrics_are_of_metrics_that_exist():
    from qbench.metrics import catalogue

    found = catalogue()
    assert set(found.also_called.values()) <= set(found.names())
    assert not set(found.also_called) & set(found.names())
