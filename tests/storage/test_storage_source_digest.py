"""The digest of code: another when what runs changes, the same when anything else does."""

import functools
import importlib
import importlib.metadata
import sys
from dataclasses import dataclass

import pytest

from qbench.storage import digest_code, source_digest

MODULE = """
from dataclasses import dataclass
from beside_it import FACTOR

@dataclass(frozen=True)
class Scaled:
    name: str = "scaled"

    def finish(self, batch):
        return {n: a * FACTOR for n, a in batch.items()}

@dataclass(frozen=True)
class Wrapped:
    inner: object

def make(factor):
    return lambda a: a * factor
"""


@pytest.fixture
def digest_of(tmp_path, monkeypatch):
    """The digest of an expression in a module of these texts, loaded as anew."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def made(expression="Scaled()", text=MODULE, beside="FACTOR = 1.0\n"):
        (tmp_path / "written_code.py").write_text(text)
        (tmp_path / "beside_it.py").write_text(beside)
        for name in ("written_code", "beside_it"):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        return digest_code(eval(expression, vars(importlib.import_module("written_code"))))

    yield made
    for name in ("written_code", "beside_it"):
        sys.modules.pop(name, None)


def test_the_same_code_has_the_same_digest(digest_of):
    assert digest_of() == digest_of()
    assert digest_of("make(2)") == digest_of("make(2)")


@pytest.mark.parametrize(
    "changed",
    [
        {"text": MODULE.replace("a * FACTOR", "a * FACTOR * 0.01")},
        {"beside": "FACTOR = 0.5\n"},
        {"expression": "make(2)"},
        {"text": MODULE.replace("class Scaled:", "class Scaled:\n    extra = 1")},
    ],
)
def test_changed_code_has_another(digest_of, changed):
    assert digest_of(**changed) != digest_of()


def test_what_a_function_closes_over_is_part_of_it(digest_of):
    assert len({digest_of(f"make({factor})") for factor in (1, 2, "'a'", None)}) == 4
    assert digest_of("Wrapped(make(2))") != digest_of("Wrapped(make(3))")


def test_partials_and_wrapped_objects_are_seen_through():
    def scaled(a, factor):
        return a * factor

    class Kept:
        def __init__(self, inner):
            self.__wrapped__ = inner

    assert digest_code(functools.partial(scaled, factor=1)) != digest_code(
        functools.partial(scaled, factor=2)
    )
    assert digest_code(Kept(functools.partial(scaled, factor=1))) != digest_code(
        Kept(functools.partial(scaled, factor=2))
    )


def test_code_without_a_file_counts_by_its_instructions():
    def function(text):
        names = {}
        exec(f"def f(a):\n    return {text}\n", names)
        return names["f"]

    assert digest_code(function("a * 2")) == digest_code(function("a * 2"))
    assert (
        len(
            {
                digest_code(function(text))
                for text in ("a * 2", "a * 3", "a + 2", "(lambda: a * 2)()")
            }
        )
        == 4
    )


def test_a_cycle_of_objects_ends():
    @dataclass
    class Node:
        other: object = None

    one = Node()
    one.other = Node(one)
    assert digest_code(one) == digest_code(one)


def test_code_of_other_packages_is_followed_into_the_subjects_it_is_built_on(
    digest_of, monkeypatch
):
    text = MODULE + "from qbench.subjects import Picture\n"
    before = digest_of(text=text)
    read = source_digest._read

    def changed(file, *known):
        digest, imported = read(file, *known)
        return ("0" * 64 if file.name == "pictures.py" else digest), imported

    monkeypatch.setattr(source_digest, "_read", changed)
    assert digest_of(text=text) != before
    assert digest_of() == digest_of()


def test_imports_anywhere_in_a_file_are_found(tmp_path):
    text = (
        "import json\ndef f():\n    try:\n        import array\n    except ImportError:\n"
        "        import bisect\n"
        "    else:\n        import calendar\n    finally:\n        import cmd\n    match 1:\n"
        "        case 1:\n"
        "            import code\n    with x:\n        import colorsys\nclass A:\n    import copy\n"
        "    g = lambda: (yield) if x else y\nasync def h():\n    async for i in y:\n"
        "        import csv\n"
        "if x:\n    pass\nelif y:\n    import dbm\nelse:\n    import dis\nwhile x:\n    pass\n"
        "else:\n    import enum\n"
    )
    file = tmp_path / "written.py"
    file.write_text(text)
    status = file.stat()
    found = source_digest._read(file, status.st_mtime_ns, status.st_size, "written", "")[1]
    expected = [
        "array",
        "bisect",
        "calendar",
        "cmd",
        "code",
        "colorsys",
        "copy",
        "csv",
        "dbm",
        "dis",
        "enum",
        "json",
    ]
    assert list(found) == expected


@pytest.mark.slow
def test_the_distribution_of_a_package_is_found_as_importlib_does_it():
    distributions = list(importlib.metadata.distributions())
    known = importlib.metadata.packages_distributions()
    for package in ("PIL", "onnx", "google", "_pytest", "filelock", "onnx_ir", "does_not_exist"):
        found = {
            one.metadata["Name"]
            for one in distributions
            if source_digest._has_package(one, package)
        }
        assert found == set(known.get(package, ()))


def test_a_distribution_without_a_record_is_asked_for_its_files(tmp_path):
    folder = tmp_path / "old-1.0.egg-info"
    folder.mkdir()
    (folder / "PKG-INFO").write_text("Metadata-Version: 1.0\nName: old\nVersion: 1.0\n")
    (folder / "SOURCES.txt").write_text("old/__init__.py\nalone.py\ndata/table.csv\n")
    for name in ("old/__init__.py", "alone.py", "data/table.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    distribution = importlib.metadata.Distribution.at(folder)
    found = {
        name: source_digest._has_package(distribution, name)
        for name in ("old", "alone", "data", "ol")
    }
    assert found == {"old": True, "alone": True, "data": False, "ol": False}
