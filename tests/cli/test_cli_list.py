"""``qbench list``: every name of every kind, with its owner."""

import json

import pytest

from qbench.cli.list_names import KINDS


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
        raise UnavailableError("Making it", found="nothing", expected="something", remedy="Install it.")

    from qbench.extension import Extension

    monkeypatch.setattr(
        "qbench.extension.installed_extensions", lambda: (Extension(name="far", backends={"far": unavailable}),)
    )
    code, out, _ = qbench("list", "backends")
    assert code == 0
    assert "cannot be had here: Making it: found nothing" in out
    assert "ort-cpu-noopt" in out
