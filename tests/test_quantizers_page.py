"""Which cells ``benchmarks/quantizers.py`` keeps, and of which it names a cause."""

import importlib
import sys
from pathlib import Path

import pytest

from qbench.errors import UnavailableError, UnsupportedError
from qbench.storage import Cache

ROOT = Path(__file__).parents[1]
SCHEMA = "w8a8_asym_pc"
MODEL = "digits_cnn"


@pytest.fixture
def quantizers(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    yield importlib.import_module("quantizers")
    sys.modules.pop("quantizers", None)


@pytest.fixture
def ground(quantizers, monkeypatch, tmp_path):
    """A cell that another computer measured, and one that loses less, measured here."""
    cache = Cache(tmp_path)
    for place, backend, worse in (("there", "ort-cpu", 0.3), ("here", "integer-ideal", 0.1)):
        monkeypatch.setattr(quantizers, "conditions", lambda *_, place=place: {"at": place})
        path = quantizers.result_path(cache, MODEL, SCHEMA, backend)
        quantizers.keep(path, {"worse": worse})
    monkeypatch.setattr(quantizers, "artifacts", lambda *_: None)
    return cache


def localized(quantizers, monkeypatch, cache, words, *, again=False):
    """The backend whose cell is asked for a cause; empty: none is."""
    asked = []

    def cause(_shared, _schema, backend, _seconds):
        asked.append(backend)
        return words

    monkeypatch.setattr(quantizers, "cause", cause)
    quantizers.localize_worst(SCHEMA, [MODEL], cache, 1.0, again=again)
    return "".join(asked)


def test_the_worst_cell_that_was_measured_here_is_localized_though_another_is_worse(
    quantizers, monkeypatch, ground
):
    assert quantizers.worst_cell(SCHEMA, [MODEL], ground)[1] == "ort-cpu"
    assert localized(quantizers, monkeypatch, ground, "a node: a cause") == "integer-ideal"
    known = quantizers.known_result(ground, MODEL, SCHEMA, "integer-ideal")
    assert known["cause"] == "a node: a cause"


def test_a_cause_that_the_time_did_not_reach_to_is_looked_for_again(
    quantizers, monkeypatch, ground
):
    words = f"a node: coarse grid; {quantizers.NOT_LOOKED_FOR}"
    assert localized(quantizers, monkeypatch, ground, words) == "integer-ideal"
    assert localized(quantizers, monkeypatch, ground, "a cause") == ""
    assert localized(quantizers, monkeypatch, ground, "a cause", again=True) == "integer-ideal"
    assert localized(quantizers, monkeypatch, ground, "a cause", again=True) == ""


@pytest.mark.parametrize(("error", "shown"), [(UnavailableError, 0.3), (UnsupportedError, None)])
def test_an_engine_that_is_not_installed_takes_no_number_away(
    quantizers, monkeypatch, tmp_path, error, shown
):
    def fails(*_):
        raise error("Preparing", found="none", expected="one", remedy="Install it.")

    cache = Cache(tmp_path)
    monkeypatch.setattr(quantizers, "conditions", lambda *_: {"at": "there"})
    quantizers.keep(quantizers.result_path(cache, MODEL, SCHEMA, "ort-cpu"), {"value": 0.3})
    monkeypatch.setattr(quantizers, "conditions", lambda *_: {"at": "here"})
    monkeypatch.setattr(quantizers, "artifacts", lambda *_, **__: None)
    monkeypatch.setattr(quantizers, "backends_of", lambda _: ("ort-cpu",))
    monkeypatch.setattr(quantizers, "_measurement", fails)
    quantizers.measure_model(MODEL, [SCHEMA], cache, again=False, twice=False)
    assert quantizers.known_result(cache, MODEL, SCHEMA, "ort-cpu").get("value") == shown


@pytest.mark.parametrize(("size", "same"), [(100, True), (101, None)])
def test_that_two_runs_gave_the_same_bytes_is_known_of_another_computer(quantizers, size, same):
    """The record has no answers of it."""
    note = {"versions": {"tool": "1"}, "lock": "0123", "arguments": [], "size": 100}
    before = {"quantizer": note | {"same_bytes": True}, "older": True}
    new = {"arguments": (), "size": size, "same_bytes": None}
    found = {"answers": "kept", "quantizer": note | new}
    assert quantizers.carried(before, found)["quantizer"]["same_bytes"] is same


def test_a_cause_stays_where_the_answers_do(quantizers):
    found = {"answers": "kept", "quantizer": None}
    before = {"answers": "kept", "cause": "a node", "quantizer": None}
    assert quantizers.carried(before, found)["cause"] == "a node"
    assert "cause" not in quantizers.carried(before | {"answers": "others"}, found)
