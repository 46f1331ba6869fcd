"""A lazy door: names come out of their files when they are asked for, once, and unknown ones are refused."""

import importlib
import sys

import pytest


@pytest.fixture
def parlour(tmp_path, monkeypatch):
    """A package of two files behind a lazy door, imported anew."""
    folder = tmp_path / "parlour"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        "from qbench.lazy import open_on_use\n"
        "if TYPE_CHECKING := False:\n"
        "    from parlour.chairs import sit as sit\n"
        "    from parlour.chairs import stand as stand\n"
        "    from parlour.lamps import light as light\n"
        "__getattr__, __dir__, __all__ = open_on_use(__name__, __file__)\n"
    )
    (folder / "chairs.py").write_text("sit, stand = object(), object()\n")
    (folder / "lamps.py").write_text("raise RuntimeError('too early')\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("parlour")
    for name in [name for name in sys.modules if name.partition(".")[0] == "parlour"]:
        del sys.modules[name]


def test_a_name_loads_its_own_file_and_no_other(parlour):
    assert "parlour.chairs" not in sys.modules
    from parlour import sit

    assert sit is sys.modules["parlour.chairs"].sit
    assert "parlour.lamps" not in sys.modules


def test_a_name_is_looked_up_once(parlour):
    first = parlour.sit
    sys.modules["parlour.chairs"].sit = None
    assert parlour.sit is first
    assert vars(parlour)["sit"] is first


def test_every_name_is_listed_before_it_is_loaded(parlour):
    assert parlour.__all__ == ["light", "sit", "stand"]
    assert {"light", "sit", "stand", "__name__"} <= set(dir(parlour))


def test_an_unknown_name_is_refused_in_the_words_of_python(parlour):
    with pytest.raises(AttributeError, match=r"module 'parlour' has no attribute 'sofa'"):
        _ = parlour.sofa
    with pytest.raises(ImportError, match="cannot import name 'sofa'"):
        from parlour import sofa  # noqa: F401


def test_a_fault_of_the_file_is_not_hidden(parlour):
    with pytest.raises(RuntimeError, match="too early"):
        _ = parlour.light
